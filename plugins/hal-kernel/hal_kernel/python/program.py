"""A loaded listing and its launch, on PYTHON and on other devices that interpret kernels."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hal_core.compiler.seal import unseal
from hal_core.errors import Unsupported
from hal_core.geometry import Dim3
from hal_core.program import Program
from hal_kernel.errors import KernelFault
from hal_kernel.interpreter.arguments import Inputs
from hal_kernel.interpreter.casts import stored_as
from hal_kernel.interpreter.prepared import PreparedKernel
from hal_kernel.python.compiler import MAKER, parse

if TYPE_CHECKING:
    from hal_core.source import Binary
    from hal_kernel.python.allocator import Part


class Geometry(NamedTuple):
    grid: Dim3
    block: Dim3


class InterpretedProgram(Program):
    """A kernel that `device.interpret(kernel, geometry, args)` runs.

    Raises, at a launch: KernelFault; what the kernel wrote before the fault stays written.
    """

    device: Any  # has `interpret`
    formats = ("uops",)

    def __init__(self, device: Any, binary: Binary) -> None:
        super().__init__(device, binary)
        operation = f"load {binary.name}"
        _, text = unseal(MAKER, binary.image, operation, device.name)
        kernel = parse(text.decode(), binary.name, binary.signature, operation, device.name)
        self._kernel: PreparedKernel | None = PreparedKernel(kernel, device.name)
        self.info = self.info._replace(max_block_threads=device.info.limits.max_block_threads)

    def _geometry(self, grid: Dim3, block: Dim3, shared: int) -> Geometry:
        if shared:
            problem = "interpreted kernels have the shared memory they declare, and no more"
            fix = "Declare it in the kernel: hal.shared(dtype, shape)."
            operation, limit, device = f"launch {self.name}", "shared=0", self.device.name
            raise Unsupported(operation, problem, got=shared, limit=limit, device=device, fix=fix)
        return Geometry(grid, block)

    def _bind(self) -> Callable[..., None]:
        kernel, interpret = self._kernel, self.device.interpret

        def launch(geometry: Geometry, *args: Any) -> None:
            try:
                interpret(kernel, geometry, args)
            except KernelFault as fault:  # the text has the kernel's line; ours say nothing more
                raise fault.with_traceback(None) from None

        return launch

    def _launch_timed(self, geometry: Geometry, args: tuple[Any, ...]) -> float:
        start = perf_counter()
        self._bind()(geometry, *args)
        return perf_counter() - start

    def _unload(self) -> None:
        self._kernel = None


def inputs_of(kernel: PreparedKernel, args: tuple[Any, ...]) -> Inputs:
    """Return the interpreter's inputs for a launch on PYTHON's memory."""
    inputs = Inputs({}, {}, {})
    for param, arg in zip(kernel.signature.params, args, strict=True):
        if not param.is_pointer:
            inputs.values[param.position] = np.array([arg], stored_as(param.dtype))
            continue
        memory: Part = arg
        whole = slice(memory.nbytes // param.dtype.itemsize * param.dtype.itemsize)
        inputs.arrays[param.position] = memory.data[whole].view(stored_as(param.dtype))
        record = memory.record
        if record is not None:
            inputs.written[param.position] = record[whole].view(f"u{param.dtype.itemsize}")
    return inputs
