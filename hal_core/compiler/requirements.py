"""Check that a device has what a kernel asks for, before anything is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hal_core.dtypes import bfloat16, float16, float64
from hal_core.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hal_core.device.base import DeviceInfo
    from hal_core.signature import Interface

# As values of a kernel that is written as text, these need an ability; in memory they are sixteen
# plain bits.
_HALVES = {float16: "fp16", bfloat16: "bf16"}

Need = tuple[str, str, str]  # what a kernel asks for, the capability, what to do without it
DOUBLE = "fp64", "Compute in float32."


def check(interface: Interface, info: DeviceInfo, needs: Iterable[Need] = ()) -> None:
    """Refuse parameters, further `needs`, a block or shared memory that the device does not have.

    Raises: Unsupported naming the kernel, what it asks for, the limit and the device.
    """
    limits, operation = info.limits, f"compile {interface.signature.name}"
    own: list[Need] = []
    for param in interface.signature.params:
        if param.dtype is float64:
            own.append((f"parameter {param.name!r} has dtype float64", *DOUBLE))
        elif param.dtype.kind == "I":
            own.append((f"parameter {param.name!r} is an image", "images", "Pass a buffer."))
        elif not interface.rendered and not param.is_pointer and param.dtype in _HALVES:
            problem = f"the value {param.name!r} has dtype {param.dtype.name}"
            own.append((problem, _HALVES[param.dtype], "Pass a float32 and convert it."))
    for problem, capability, fix in (*own, *needs):
        if capability not in info.capabilities:
            problem += f", which the device does not have ({capability})"
            raise Unsupported(operation, problem, device=info.name, fix=fix)
    x, y, z = block = interface.block or (1, 1, 1)
    fits = all(used <= most for used, most in zip(block, limits.max_block, strict=True))
    if not fits or x * y * z > limits.max_block_threads:
        raise Unsupported(
            operation, "the block that the kernel fixes is too large", got=block,
            limit=f"limit {limits.max_block}, {limits.max_block_threads} threads in all",
            device=info.name, fix="Fix a smaller block, and let each thread do more.",
        )  # fmt: skip
    if interface.shared_nbytes > limits.shared_nbytes:
        raise Unsupported(
            operation, "a block's shared memory is larger than the device's",
            got=interface.shared_nbytes, limit=limits.shared_nbytes, device=info.name,
            fix="Make the tiles smaller: each array is rounded up to 16 bytes.",
        )  # fmt: skip
