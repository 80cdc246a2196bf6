"""Rendered kernels under HAL_CHECK=1: the interpreter runs them on the buffers' memory."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from hal_core.errors import CompileError
from hal_core.geometry import Dim3
from hal_core.signature import POINTER
from hal_cpu import driver, processor
from hal_cpu.checked.order import Range
from hal_cpu.compilers.objects import ObjectCompiler
from hal_cpu.vectors.width import Registers, subgroup_of
from hal_kernel.interpreter import execute
from hal_kernel.interpreter.arguments import Inputs
from hal_kernel.interpreter.casts import stored_as
from hal_kernel.interpreter.executor import LoopLimits
from hal_kernel.interpreter.prepared import PreparedKernel
from hal_kernel.python.compiler import ListingCompiler

if TYPE_CHECKING:
    from hal_cpu.checked.device import CheckedDevice
    from hal_cpu.checked.guarded_memory import Address

_NO_LIMIT = 1 << 62  # of loop iterations: only their time is limited


class UOpsCompiler(ListingCompiler):
    """The compiler of listings, which can also show machine code of the device."""

    def _disassemble(self, image: bytes) -> str:
        try:
            return super()._disassemble(image)
        except CompileError:  # machine code, by a compiler that CPU_CC chose
            return ObjectCompiler()._disassemble(image)


def interpret(
    kernel: PreparedKernel, device: CheckedDevice, geometry: tuple[Dim3, Dim3],
    args: tuple[Any, ...],
) -> None:  # fmt: skip
    """Run one launch. Raises: KernelFault, and DeviceFault for damage found since the last."""
    device.raise_fault()
    inputs, addresses, ranges = Inputs({}, {}, {}), [], list[Range]()
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
        ranges.append((address, address + address.nbytes, param.kind == POINTER))
    device.check_order(f"launch of {kernel.name}", *ranges)
    instead = "allow more with HAL_CPU_CHECK_SECONDS"
    limits = LoopLimits(_NO_LIMIT, monotonic() + device.seconds, device.seconds, instead)
    try:
        with device.in_flight.using(*addresses):
            registers = Registers(*processor.vector_registers())
            size = subgroup_of(registers)  # as LLVM's text has them
            execute(kernel, inputs, geometry, limits, seed=device.seed, subgroup=size)
    finally:
        # The interpreter marked what it wrote in the records themselves.
        for position in inputs.written:
            args[position].block.drop_full_record()
