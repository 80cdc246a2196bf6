"""What other libraries for NVIDIA GPUs take and give: `__cuda_array_interface__`, PyCUDA's memory.

Source: CUDA Array Interface, version 3 (Numba's documentation).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hal_core.dtypes import as_dtype, uint8
from hal_core.errors import InvalidArgument, Unsupported
from hal_core.hookspecs import Foreign

if TYPE_CHECKING:
    from hal_core.buffer import Buffer
    from hal_cuda.device import CUDADevice

_LEGACY_STREAM = 1  # the interface's number of it


def array_interface(buffer: Buffer) -> dict[str, Any]:
    """`buffer.__cuda_array_interface__`. Consumers keep the buffer, and order their work behind
    the legacy default stream, which waits for ours."""
    if buffer.dtype.name == "bfloat16":
        raise Unsupported(
            "__cuda_array_interface__", "the interface has no bfloat16", device=buffer.device,
            fix="Export the bits: buffer.view(dtype=hal.uint16), or use DLPack.",
        )  # fmt: skip
    return {
        "shape": (buffer.size,),
        "typestr": buffer.dtype.to_numpy().str,
        "data": (buffer._opaque_for("__cuda_array_interface__") or 0, False),
        "version": 3,
        "strides": None,
        "stream": _LEGACY_STREAM,
    }


def foreign(device: CUDADevice, obj: Any) -> Foreign | None:
    """Memory of anything with `__cuda_array_interface__` (CuPy, PyTorch, Numba, PyCUDA's GPUArray),
    and of PyCUDA's DeviceAllocation, as bytes."""
    facts = getattr(obj, "__cuda_array_interface__", None)
    if isinstance(facts, dict):
        return _of_interface(device, obj, facts)
    if type(obj).__module__.startswith("pycuda") and hasattr(obj, "__int__"):
        with device.check("wrap"):
            start, nbytes = device.api.range_of(int(obj))
        return Foreign(int(obj), start + nbytes - int(obj), uint8, obj)
    return None


def _of_interface(device: CUDADevice, obj: Any, facts: dict[str, Any]) -> Foreign:
    import numpy as np

    kind = np.dtype(facts["typestr"])
    dtype = as_dtype(kind, "wrap")
    size, dense = 1, []
    for extent in reversed(facts["shape"]):
        dense.append(size * kind.itemsize)
        size *= extent
    strides = facts.get("strides")
    problem = ""
    if strides is not None and tuple(strides) != tuple(reversed(dense)) and size > 1:
        problem = "the array is not C-contiguous"
    elif facts["data"][1]:
        problem = "the array is read-only"
    elif facts.get("mask") is not None:
        problem = "the array is masked"
    if problem:
        raise InvalidArgument(
            "wrap", problem, got=facts, device=device.name, fix="Make a copy of it there first."
        )
    return Foreign(facts["data"][0], size, dtype, obj)
