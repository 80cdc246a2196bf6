"""What a kernel asks of a device, looked at before anything is compiled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from hal_core.dtypes import DType, bfloat16, float16, float64
from hal_core.errors import Unsupported
from hal_core.ir import Kernel, Source

if TYPE_CHECKING:
    from hal_core.device import DeviceInfo

# As values of a `Source` kernel; in memory they are sixteen bits like any other.
_HALVES = {float16: "fp16", bfloat16: "bf16"}


class Need(NamedTuple):
    """One thing in a kernel that not every device can do."""

    what: str
    capability: str
    fix: str


def has_dtype(info: DeviceInfo, dtype: DType) -> bool:
    """Whether kernels of the device can have `dtype` in memory, and compute with it: float16 and
    bfloat16 as float32."""
    return dtype is not float64 or "fp64" in info.capabilities


def check_kernel(kernel: Kernel | Source, info: DeviceInfo) -> None:
    """Raises: Unsupported naming kernel, what it asks for, the limit and the device."""
    operation = f"compile {kernel.name}"
    needs = _needs_of_source(kernel) if isinstance(kernel, Source) else _needs(kernel)
    for need in needs:
        if need.capability not in info.capabilities:
            raise Unsupported(
                operation,
                f"{need.what}, which the device does not have ({need.capability})",
                device=info.name,
                fix=need.fix,
            )
    if kernel.block is not None:
        _check_block(kernel.block, operation, info)
    if isinstance(kernel, Kernel) and kernel.shared_nbytes > info.limits.shared_nbytes:
        raise Unsupported(
            operation,
            "a block's shared memory is larger than the device's",
            got=kernel.shared_nbytes,
            limit=info.limits.shared_nbytes,
            device=info.name,
            fix="Make the tiles smaller: what an array takes is rounded up to 16 bytes.",
        )


def _check_block(block: tuple[int, int, int], operation: str, info: DeviceInfo) -> None:
    limits = info.limits
    threads = block[0] * block[1] * block[2]
    fits = all(used <= most for used, most in zip(block, limits.max_block, strict=True))
    if not fits or threads > limits.max_block_threads:
        raise Unsupported(
            operation,
            "the block that the kernel fixes is too large",
            got=block,
            limit=f"limit {limits.max_block}, {limits.max_block_threads} threads in all",
            device=info.name,
            fix="Fix a smaller block, and let each thread do more.",
        )


def _needs_of_source(source: Source) -> Iterator[Need]:
    for param in source.signature.params:
        if param.dtype is float64:
            yield _double(f"parameter {param.name!r} has dtype float64")
        elif not param.is_pointer and param.dtype in _HALVES:
            what = f"the value {param.name!r} has dtype {param.dtype.name}"
            yield Need(what, _HALVES[param.dtype], "Pass a float32 and convert it.")


def _needs(kernel: Kernel) -> Iterator[Need]:
    for param in kernel.signature.params:
        if param.dtype is float64:
            yield _double(f"parameter {param.name!r} has dtype float64")
    for node in kernel.uops:
        at = f" at line {node.line}" if node.line else ""
        if node.dtype is float64:
            yield _double(f"it computes in float64{at}")
        if node.op in ("ATOMIC", "CAS") and node.dtype is not None and node.dtype.itemsize == 8:
            what = f"it has an atomic operation on {node.dtype.name}{at}"
            yield Need(what, "int64_atomics", "Use elements of 32 bits.")


def _double(what: str) -> Need:
    return Need(what, "fp64", "Compute in float32.")
