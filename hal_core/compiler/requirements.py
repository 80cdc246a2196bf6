"""Check that a device has what a kernel asks for, before anything is rendered or compiled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

from hal_core.dtypes import bfloat16, float16, float64
from hal_core.errors import Unsupported
from hal_core.ir import Kernel
from hal_core.ir.uop import ATOMIC_OPS, SUBGROUP, TOGETHER
from hal_core.source import Source

if TYPE_CHECKING:
    from hal_core.device.base import DeviceInfo

# As values of a `Source` kernel these need an ability; in memory they are sixteen plain bits.
_HALVES = {float16: "fp16", bfloat16: "bf16"}


def check_kernel(kernel: Kernel | Source, info: DeviceInfo) -> None:
    """Refuse a kernel that asks for more than the device has.

    Raises: Unsupported naming the kernel, what it asks for, the limit and the device.
    """
    limits = info.limits

    def refuse(problem: str, fix: str, **facts: object) -> NoReturn:
        raise Unsupported(f"compile {kernel.name}", problem, device=info.name, fix=fix, **facts)

    for problem, capability, fix in _needs(kernel):
        if capability not in info.capabilities:
            refuse(f"{problem}, which the device does not have ({capability})", fix)
    x, y, z = block = kernel.block or (1, 1, 1)
    fits = all(used <= most for used, most in zip(block, limits.max_block, strict=True))
    if not fits or x * y * z > limits.max_block_threads:
        refuse(
            "the block that the kernel fixes is too large",
            "Fix a smaller block, and let each thread do more.",
            got=block,
            limit=f"limit {limits.max_block}, {limits.max_block_threads} threads in all",
        )
    if isinstance(kernel, Kernel) and kernel.shared_nbytes > limits.shared_nbytes:
        refuse(
            "a block's shared memory is larger than the device's",
            "Make the tiles smaller: each array is rounded up to 16 bytes.",
            got=kernel.shared_nbytes,
            limit=limits.shared_nbytes,
        )


def _needs(kernel: Kernel | Source) -> Iterator[tuple[str, str, str]]:
    """Yield (what the kernel asks for, the capability, what to do without it)."""
    double = "fp64", "Compute in float32."
    for param in kernel.signature.params:
        if param.dtype is float64:
            yield f"parameter {param.name!r} has dtype float64", *double
        elif isinstance(kernel, Source) and not param.is_pointer and param.dtype in _HALVES:
            problem = f"the value {param.name!r} has dtype {param.dtype.name}"
            yield problem, _HALVES[param.dtype], "Pass a float32 and convert it."
    for node in kernel.uops if isinstance(kernel, Kernel) else ():
        place = f" at line {node.line}" if node.line else ""
        if node.dtype is float64:
            yield f"it computes in float64{place}", *double
        if node.op in TOGETHER or (node.op == "SPECIAL" and node.arg[0] in SUBGROUP):
            fix = "Write it with hal.shared and hal.barrier()."
            yield f"it uses subgroups{place}", "subgroups", fix
        element = node.src[0].dtype if node.op in ATOMIC_OPS else None
        if element is not None and element.itemsize == 8:
            problem = f"it has an atomic operation on {element.name}{place}"
            yield problem, "int64_atomics", "Use elements of 32 bits."
