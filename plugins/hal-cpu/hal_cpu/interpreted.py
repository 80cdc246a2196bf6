"""Rendered kernels under HAL_CHECK=1: the reference interpreter carries them out on the buffers'
memory."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hal_core.compiler import CompileOptions, Compiler
from hal_core.errors import CompileError, HalError
from hal_core.geometry import Dim3
from hal_core.ir.listing import parse_listing
from hal_core.ir.verify import verify
from hal_core.program import Program
from hal_core.testing.arguments import Given
from hal_core.testing.casts import stored_as
from hal_core.testing.interpreter import carry_out
from hal_core.testing.run import Patience
from hal_core.testing.script import Script
from hal_cpu import driver
from hal_cpu.compiler import ObjectCompiler
from hal_cpu.device import MAX_BLOCK_THREADS
from hal_cpu.program import check_shared

if TYPE_CHECKING:
    from hal_core.compiler import Binary
    from hal_core.ir import Kernel, Param
    from hal_cpu.checked import CheckedDevice
    from hal_cpu.guarded import Place


class UOpsCompiler(Compiler):
    """A kernel's listing is what is loaded: nothing is compiled."""

    language = format = "uops"
    target = "interpreter"
    identity = "uops 1"

    def _compile(self, source: str, options: CompileOptions) -> bytes:
        return source.encode()

    def _disassemble(self, image: bytes) -> str:
        if image.startswith(b"kernel "):
            return image.decode()
        return ObjectCompiler()._disassemble(image)  # of a kernel that is machine code all the same


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


def _kernel(binary: Binary, device: str) -> Kernel:
    """Raises: CompileError when the bytes are no listing of this kernel."""
    try:
        kernel = parse_listing(binary.image.decode())
        verify(kernel)
    except (HalError, UnicodeDecodeError) as error:
        raise CompileError(f"load {binary.entry}", f"no kernel: {error}", device=device) from None
    if kernel.name != binary.entry or kernel.signature != binary.signature:
        raise CompileError(
            f"load {binary.entry}",
            f"the listing is of another kernel, {kernel.name}({kernel.signature})",
            device=device,
        )
    return kernel
