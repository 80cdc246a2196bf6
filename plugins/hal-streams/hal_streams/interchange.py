"""Arrays shared with other libraries through `__cuda_array_interface__`, both ways.

Source: CUDA Array Interface, version 3 (Numba's documentation).
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

from hal_core.dtypes import as_dtype
from hal_core.errors import InvalidArgument, NotShareable, Unsupported
from hal_core.hookspecs import Foreign

if TYPE_CHECKING:
    from hal_core.buffer import Buffer
    from hal_streams.device import StreamDevice

_LEGACY_STREAM = 1  # the interface's number for the legacy default stream


def array_interface(buffer: Buffer) -> dict[str, Any]:
    """Return `buffer.__cuda_array_interface__`.

    Order: consumers queue work after the legacy default stream, which waits for our stream, and
    that for our queues.
    Owns: a consumer keeps the buffer alive.
    """
    if buffer.dtype.name == "bfloat16":
        raise Unsupported(
            "__cuda_array_interface__", "the interface has no bfloat16", device=buffer.device,
            fix="Export the bits: buffer.view(dtype=hal.uint16), or use DLPack.",
        )  # fmt: skip
    opaque = buffer._opaque_for("__cuda_array_interface__")
    device: Any = buffer._device
    if not isinstance(opaque, int | None):
        problem, fix = "an image has no address", "Copy it: buffer.numpy()."
        raise NotShareable("__cuda_array_interface__", problem, device=buffer.device, fix=fix)
    if not device.join_queues():
        device.synchronize()
    return {
        "shape": (buffer.size,),
        "typestr": buffer.dtype.to_numpy().str,
        "data": (opaque or 0, False),
        "version": 3,
        "strides": None,
        "stream": _LEGACY_STREAM,
    }


def foreign(device: StreamDevice, obj: Any) -> Foreign | None:
    """Return the memory of an array, or None if `obj` has no `__cuda_array_interface__`.

    CuPy, PyTorch, Numba and PyCUDA have it; PyTorch has it for AMD's GPUs too. Raises:
    InvalidArgument.
    """
    facts = getattr(obj, "__cuda_array_interface__", None)
    if isinstance(facts, dict):
        return _from_interface(device, obj, facts)
    if facts is not None:
        raise _refused(device, "__cuda_array_interface__ is no dictionary", facts)
    return None


def _from_interface(device: StreamDevice, obj: Any, facts: dict[str, Any]) -> Foreign:
    """Check the interface of `obj`, wait for its stream, and return its memory."""
    import numpy as np

    try:
        kind = np.dtype(facts["typestr"])
        shape = tuple(map(operator.index, facts["shape"]))
        strides = tuple(map(operator.index, facts.get("strides") or ()))
        place, read_only = facts["data"]
        address = operator.index(place or 0)
        stream = None if facts.get("stream") is None else operator.index(facts["stream"])
    except (KeyError, TypeError, ValueError) as error:
        problem = f"__cuda_array_interface__ lacks or garbles {error}"
        raise _refused(device, problem, facts) from None
    dtype = as_dtype(kind, "wrap")
    size = math.prod(shape)
    problem = ""
    if min(shape, default=0) < 0 or (strides and len(strides) != len(shape)):
        problem = "the shape is negative, or the strides do not match it"
    elif size and not address:
        problem = "the array has no memory"
    elif not _is_dense(shape, strides, kind.itemsize):
        problem = "the array is not C-contiguous"
    elif read_only:
        problem = "the array is read-only"
    elif facts.get("mask") is not None:
        problem = "the array is masked"
    elif stream is not None and not 0 < stream < 1 << 64:
        problem = "no such stream: the interface has 1, 2 and handles"
    if problem:
        raise _refused(device, problem, facts)
    if stream not in (None, _LEGACY_STREAM):  # the device's stream waits for the legacy one only
        with device.own("wrap"):  # the per-thread default stream is one of the current context
            device.api.wait(stream)
    return Foreign(address, size, dtype, obj)


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...], step: int) -> bool:
    """Return whether an array of these strides in bytes is C-contiguous, of `step` bytes each."""
    if not strides or not math.prod(shape):
        return True
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != step:  # no step is taken along an axis of one element
            return False
        step *= extent
    return True


def _refused(device: StreamDevice, problem: str, got: object) -> InvalidArgument:
    fix = "Copy it with its own library first."
    return InvalidArgument("wrap", problem, got=got, device=device.name, fix=fix)
