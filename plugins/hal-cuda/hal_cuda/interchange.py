"""Arrays of other libraries, as memory of a buffer: PyCUDA's, and all with the array interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hal_core.dtypes import uint8
from hal_core.hookspecs import Foreign
from hal_streams import interchange

if TYPE_CHECKING:
    from hal_cuda.device import CUDADevice


def foreign(device: CUDADevice, obj: Any) -> Foreign | None:
    """Return the memory of an array, or None if `obj` is not an array on a GPU.

    PyCUDA's DeviceAllocation becomes an array of bytes. Raises: InvalidArgument.
    """
    found = interchange.foreign(device, obj)
    if found is None and type(obj).__module__.startswith("pycuda") and hasattr(obj, "__int__"):
        with device.own("wrap"):
            start, nbytes = device.api.range_of(int(obj))
        # An address may lie inside its allocation, which ends where it does.
        return Foreign(int(obj), start + nbytes - int(obj), uint8, obj)
    return found
