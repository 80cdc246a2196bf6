"""Rendered kernels under HAL_CHECK=1: the interpreter runs them on the buffers' memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hal_core.compiler import CompileOptions, Compiler
from hal_core.compiler.seal import seal, unseal
from hal_core.errors import CompileError, HalError, KernelFault
from hal_core.geometry import Dim3
from hal_core.interpreter import execute
from hal_core.interpreter.arguments import Inputs
from hal_core.interpreter.casts import stored_as
from hal_core.interpreter.executor import LoopLimits
from hal_core.interpreter.prepared import PreparedKernel
from hal_core.ir.listing import parse_listing
from hal_core.ir.verify import verify
from hal_core.program import Program
from hal_cpu import driver
from hal_cpu.compilers.objects import ObjectCompiler, refuse_options
from hal_cpu.device import MAX_BLOCK_THREADS
from hal_cpu.program import refuse_shared

if TYPE_CHECKING:
    from hal_core.compiler import Binary
    from hal_core.ir import Kernel, Signature
    from hal_cpu.checked.device import CheckedDevice
    from hal_cpu.checked.guarded_memory import Address

_MAKER = "hal-cpu-uops 1"  # the format of binaries and its version
_NO_LIMIT = 1 << 62  # of loop iterations: only their time is limited


class UOpsCompiler(Compiler):
    """A compiler whose binary is the kernel's listing, after a checksum that shows damage."""

    language = format = "uops"
    target = "interpreter"
    identity = "uops 1"

    def _compile(self, source: str, options: CompileOptions) -> bytes:
        refuse_options(options, "a listing")
        _parse(source, options.entry, options.signature, f"compile {options.entry}", "CPU")
        return seal(_MAKER, None, source.encode())

    def _disassemble(self, image: bytes) -> str:
        try:
            return unseal(_MAKER, image, "disassemble", "CPU")[1].decode()
        except CompileError:  # machine code, by a compiler that CPU_CC chose
            return ObjectCompiler()._disassemble(image)


class Geometry(NamedTuple):
    grid: Dim3
    block: Dim3


class InterpretedProgram(Program):
    """A kernel that the reference interpreter runs.

    Raises, at a launch: KernelFault; what the kernel wrote before the fault stays written.
    """

    device: CheckedDevice

    def __init__(self, device: CheckedDevice, binary: Binary) -> None:
        super().__init__(device, binary)
        operation = f"load {binary.entry}"
        _, text = unseal(_MAKER, binary.image, operation, device.name)
        kernel = _parse(text.decode(), binary.entry, binary.signature, operation, device.name)
        self._kernel: PreparedKernel | None = PreparedKernel(kernel, device.name)
        self.info = self.info._replace(max_block_threads=MAX_BLOCK_THREADS)

    def _geometry(self, grid: Dim3, block: Dim3, shared: int) -> Geometry:
        refuse_shared(self.name, shared, self.device.name)
        return Geometry(grid, block)

    def _bind(self) -> Callable[..., None]:
        kernel, device = self._kernel, self.device

        def launch(geometry: Geometry, *args: Any) -> None:
            try:
                interpret(kernel, device, geometry, args)  # type: ignore[arg-type]  # if unloaded
            except KernelFault as fault:  # the text has the kernel's line; ours say nothing more
                raise fault.with_traceback(None) from None

        return launch

    def _launch_timed(self, geometry: Geometry, args: tuple[Any, ...]) -> float:
        start = perf_counter()
        self._bind()(geometry, *args)
        return perf_counter() - start

    def _unload(self) -> None:
        self._kernel = None


def interpret(
    kernel: PreparedKernel, device: CheckedDevice, geometry: Geometry, args: tuple[Any, ...]
) -> None:
    """Run one launch. Raises: KernelFault, and DeviceFault for damage found since the last."""
    device.raise_fault()
    inputs, addresses = Inputs({}, {}, {}), []
    for param, arg in zip(kernel.signature.params, args, strict=True):
        if not param.is_pointer:
            inputs.values[param.position] = np.array([arg], stored_as(param.dtype))
            continue
        address: Address = arg
        memory = driver.memory_at(address, address.nbytes) if address.nbytes else b""
        inputs.arrays[param.position] = np.frombuffer(memory, stored_as(param.dtype))
        written = address.record(param.dtype.itemsize)
        if written is not None:  # None: every byte is written, so no read is a fault
            inputs.written[param.position] = written
        if address.block is not None:
            address.block.user = f"{param.name!r} of kernel {kernel.name}"
        addresses.append(address)
    limits = LoopLimits(
        _NO_LIMIT, monotonic() + device.seconds, device.seconds, "with HAL_CPU_CHECK_SECONDS"
    )
    try:
        with device.in_flight.using(*addresses):
            execute(kernel, inputs, geometry, limits, seed=device.seed)
    finally:
        # The interpreter marked what it wrote in the records themselves.
        for position in inputs.written:
            args[position].block.drop_full_record()


def _parse(text: str, entry: str, signature: Signature, operation: str, device: str) -> Kernel:
    """Parse a listing. Raises: CompileError with the faulty line, or for another kernel."""
    try:
        kernel = parse_listing(text)
        verify(kernel)
    except HalError as error:
        line = re.match(r"line (\d+) ", error.problem)
        problem, place = "not a valid listing", int(line[1]) if line else None
        raise CompileError(
            operation, problem, log=str(error), source=text, line=place, device=device
        ) from None
    if kernel.name != entry or kernel.signature != signature:
        problem = f"the listing is of another kernel, {kernel.name}({kernel.signature})"
        raise CompileError(operation, problem, source=text, device=device)
    return kernel
