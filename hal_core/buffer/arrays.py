"""Buffers from and to numpy arrays, and over memory that other libraries own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from hal_core.allocator import BufferSpec
from hal_core.buffer.host import ArrayMemory
from hal_core.dtypes import DType, as_dtype
from hal_core.errors import InvalidArgument, NotShareable
from hal_core.registry import Device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hal_core.buffer import Buffer
    from hal_core.device import Compiled

B = TypeVar("B", bound="Buffer")


def to_numpy(buffer: Buffer, shape: int | Sequence[int] | None) -> NDArray[Any]:
    """Copy the elements to a new array of `shape`, one-dimensional by default."""
    import numpy as np

    array = np.empty(buffer.size, buffer.dtype.to_numpy())
    buffer.copyout(array.view(np.uint8))
    if shape is None:
        return array
    try:
        return array.reshape(shape)
    except ValueError:
        raise InvalidArgument(
            "numpy",
            "the shape has another number of elements",
            got=shape,
            limit=f"has {buffer.size}",
            device=buffer.device,
            fix="Copy a part: buffer[:n].numpy(shape).",
        ) from None


def from_numpy(
    cls: type[B], array: NDArray[Any], device: str | Compiled | None, options: BufferSpec | None
) -> B:
    """Make a buffer with a copy of the array's elements, in C order and native byte order."""
    import numpy as np

    array = np.ascontiguousarray(array)
    dtype = as_dtype(array.dtype, "from_numpy")
    made = cls(Device[None] if device is None else device, array.size, dtype, options)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return made.allocate().copyin(array.reshape(-1).view(np.uint8))


def in_place(buffer: Buffer, operation: str) -> NDArray[Any]:
    """Return an array over the buffer's own memory, which the array keeps alive.

    Order: waits for all work of the device queued so far.
    Raises: NotShareable where the host does not see the memory.
    """
    import numpy as np

    check_visible(buffer, operation)
    opaque = buffer._opaque_for(operation)
    allocator = buffer._device.allocator
    if not allocator.host_ordered:
        buffer._device.synchronize()
    dtype = buffer.dtype.to_numpy()
    if not buffer.nbytes:
        return np.empty(0, dtype)
    memory = np.frombuffer(allocator._as_buffer(opaque, buffer.nbytes), np.uint8)
    address = memory.__array_interface__["data"][0]
    # An array over `memory` itself would keep the view of it alive, but not the block behind it.
    return np.asarray(ArrayMemory(address, buffer.nbytes, "|u1", buffer._share())).view(dtype)


def as_array(buffer: Buffer, dtype: Any, copy: bool | None) -> NDArray[Any]:
    """Answer `numpy.asarray(buffer, dtype, copy=copy)`."""
    array = in_place(buffer, "numpy.asarray")
    if dtype is None or array.dtype == dtype:
        return array.copy() if copy else array
    if copy is False:
        raise InvalidArgument(
            "numpy.asarray", "another dtype needs a copy", got=dtype, device=buffer.device,
            fix="Leave out copy=False, or look at the bytes: buffer.view(dtype=...).",
        )  # fmt: skip
    return array.astype(dtype)


def check_visible(buffer: Buffer, operation: str) -> None:
    """Refuse memory that the host does not see. Raises: NotShareable."""
    if not buffer._device.allocator._host_sees(buffer.options):
        raise NotShareable(
            operation,
            "the memory is not visible to the host",
            device=buffer.device,
            fix="Copy it: buffer.numpy().",
        )


def wrap(cls: type[B], obj: Any, device: str | Compiled | None) -> B:
    """Make a buffer over memory of a vendor's library, as the device's backend understands it."""
    opened = Device[device] if device is None or isinstance(device, str) else device
    found = opened._backend.import_buffer(opened, obj)
    if found is None:
        raise InvalidArgument(
            "wrap",
            "the backend knows no such object",
            got=type(obj).__name__,
            device=opened.name,
            fix="Buffer.from_dlpack and from_numpy take other libraries' arrays.",
        )
    return borrow(cls, opened, *found)


def borrow(
    cls: type[B], device: Compiled, pointer: int, size: int, dtype: DType, owner: object
) -> B:
    """Make a buffer over memory that `owner` owns; the buffer and its exports keep `owner`."""
    if not size:
        return cls(device, 0, dtype).allocate()
    made = cls(device, size, dtype, BufferSpec(external_ptr=pointer)).allocate()
    made._lease = owner
    return made
