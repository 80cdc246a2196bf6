"""Rendered kernels under HAL_CHECK=1: the reference interpreter carries them out on the buffers'
memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hal_core.compiler import CompileOptions, Compiler
from hal_core.compiler.seal import seal, unseal
from hal_core.errors import CompileError, HalError, Unsupported
from hal_core.geometry import Dim3
from hal_core.interpreter import carry_out
from hal_core.interpreter.arguments import Given
from hal_core.interpreter.casts import stored_as
from hal_core.interpreter.executor import Patience
from hal_core.interpreter.prepared import Script
from hal_core.ir.listing import parse_listing
from hal_core.ir.verify import verify
from hal_core.program import Program
from hal_cpu import driver
from hal_cpu.compilers.objects import ObjectCompiler
from hal_cpu.device import MAX_BLOCK_THREADS
from hal_cpu.program import check_shared

if TYPE_CHECKING:
    from hal_core.compiler import Binary
    from hal_core.ir import Kernel, Param, Signature
    from hal_cpu.checked.device import CheckedDevice
    from hal_cpu.checked.guarded_memory import Place


class UOpsCompiler(Compiler):
    """A kernel's listing is what is loaded, behind a sum that tells a damaged one."""

    language = format = "uops"
    target = "interpreter"
    identity = "uops 1"

    def _compile(self, source: str, options: CompileOptions) -> bytes:
        operation = f"compile {options.entry}"
        if options.options or options.defines or options.includes:
            raise Unsupported(
                operation,
                "options, defines and includes mean nothing to a listing",
                got=(options.options, options.defines, options.includes),
                device="CPU",
                fix="Leave them out.",
            )
        _read(source, options.entry, options.signature, operation, "CPU")
        return seal(_MAKER, None, source.encode())

    def _disassemble(self, image: bytes) -> str:
        try:
            return unseal(_MAKER, image, "disassemble", "CPU")[1].decode()
        except CompileError:  # a kernel that is machine code all the same
            return ObjectCompiler()._disassemble(image)


class Geometry(NamedTuple):
    grid: Dim3
    block: Dim3


class InterpretedProgram(Program):
    """A kernel that the reference interpreter carries out on the buffers' memory.

    Raises, at a launch: KernelFault. What the kernel wrote before is written.
    """

    device: CheckedDevice

    def __init__(self, device: CheckedDevice, binary: Binary) -> None:
        super().__init__(device, binary)
        self._script: Script | None = Script(_kernel(binary, device.name), device.name)
        self.info = self.info._replace(max_block_threads=MAX_BLOCK_THREADS)

    def _geometry(self, grid: Dim3, block: Dim3, shared: int) -> Geometry:
        check_shared(self.name, shared, self.device.name)
        return Geometry(grid, block)

    def _bind(self) -> Callable[..., None]:
        script, device = self._script, self.device

        def launch(geometry: Geometry, *args: Any) -> None:
            interpreted(script, device, geometry, args)  # type: ignore[arg-type]  # or unloaded

        return launch

    def _launch_timed(self, geometry: Geometry, args: tuple[Any, ...]) -> float:
        start = perf_counter()
        interpreted(self._script, self.device, geometry, args)  # type: ignore[arg-type]
        return perf_counter() - start

    def _unload(self) -> None:
        self._script = None


def interpreted(
    script: Script, device: CheckedDevice, geometry: Geometry, args: tuple[Any, ...]
) -> None:
    """One launch."""
    device.raise_fault()
    name, params = script.kernel.name, script.kernel.signature.params
    given = Given({}, {}, {})
    for param, arg in zip(params, args, strict=True):
        if param.is_pointer:
            _give_memory(given, param, arg, f"{param.name!r} of kernel {name}")
        else:
            given.values[param.position] = np.array([arg], stored_as(param.dtype))
    until = monotonic() + device.seconds
    how = "with HAL_CPU_CHECK_SECONDS"
    patience = Patience(_NO_LIMIT, until, device.seconds, how)
    used = [arg for param, arg in zip(params, args, strict=True) if param.is_pointer]
    try:
        with device.running.using(*used):
            carry_out(script, given, geometry, patience, seed=device.seed)
    finally:
        for position in given.written:
            args[position].block.settle()


_NO_LIMIT = 1 << 62


def _give_memory(given: Given, param: Param, place: Place, called: str) -> None:
    position, itemsize = param.position, param.dtype.itemsize
    memory = driver.memory_at(place, place.nbytes) if place.nbytes else b""
    given.arrays[position] = np.frombuffer(memory, stored_as(param.dtype))
    written = place.record(itemsize)
    if written is not None:
        given.written[position] = written
    if place.block is not None:
        place.block.called = called


_MAKER = "hal-cpu-uops 1"


def _kernel(binary: Binary, device: str) -> Kernel:
    """Raises: CompileError when the bytes are no listing of this kernel, or damaged."""
    operation = f"load {binary.entry}"
    _, text = unseal(_MAKER, binary.image, operation, device)
    return _read(text.decode(), binary.entry, binary.signature, operation, device)


def _read(text: str, entry: str, signature: Signature, operation: str, device: str) -> Kernel:
    """The kernel of a listing. Raises: CompileError for another one, and with the line at fault."""
    try:
        kernel = parse_listing(text)
        verify(kernel)
    except HalError as error:
        line = re.match(r"line (\d+) ", error.problem)
        problem, place = "the listing is no kernel", int(line[1]) if line else None
        raise CompileError(
            operation, problem, log=str(error), source=text, line=place, device=device
        ) from None
    if kernel.name != entry or kernel.signature != signature:
        problem = f"the listing is of another kernel, {kernel.name}({kernel.signature})"
        raise CompileError(operation, problem, source=text, device=device)
    return kernel
