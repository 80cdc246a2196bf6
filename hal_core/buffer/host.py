"""Memory that the host sees: checks of what copies take, and buffers as numpy arrays in place."""

from __future__ import annotations

import os
import sys
from itertools import product
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from hal_core.concurrency import Late, unless_of_a_signal
from hal_core.dtypes import as_dtype, check_array, plain_bytes
from hal_core.errors import InvalidArgument, NotShareable, OutOfMemory
from hal_core.queue import check_no_capture

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hal_core.buffer import Buffer
    from hal_core.dtypes import DType
else:
    np = Late("numpy")

# Formats of memory whose bytes are what a device takes; Z is a complex number, c a byte.
_ORDERS = ("", "@", "=", "<" if sys.byteorder == "little" else ">")
_LETTERS = (*"?cbBhHiIlLqQnNefd", "Zf", "Zd")
_NUMBERS = frozenset(map("".join, product(_ORDERS, _LETTERS)))


def host_bytes(
    obj: Any, nbytes: int, operation: str, device: str, dtype: DType | None = None
) -> memoryview:
    """Return the host memory of `obj`, which must have `nbytes` bytes, as one row of bytes.

    `dtype` is that of the elements; with it an array of the same structs is taken.

    Raises: InvalidArgument for another size, for strides, for an object without host memory, and
    if the bytes alone do not say what the elements are: another byte order, a mask, fields, text.
    """
    if hasattr(obj, "mask"):
        check_array(obj, operation)
    try:
        view = obj if obj.__class__ is memoryview else memoryview(obj)
        if view.format == "B" and view.ndim == 1 and view.nbytes == nbytes and view.contiguous:
            return view
    except (TypeError, ValueError, BufferError):
        if isinstance(obj, np.ndarray):
            as_dtype(obj.dtype, operation)  # raises, but for bfloat16, which has no format
            return host_bytes(obj.view(np.uint16), nbytes, operation, device)
        got = type(obj).__name__
        fix = "Give bytes, a bytearray or a numpy array; for device memory use copy_from."
        problem = "the object exposes no host memory"
        raise InvalidArgument(operation, problem, got=got, fix=fix) from None
    if view.format not in _NUMBERS:
        bits = obj if dtype is None else plain_bytes(obj, dtype)
        if bits is not obj:
            return host_bytes(bits, nbytes, operation, device)
        if isinstance(obj, np.ndarray):
            as_dtype(obj.dtype, operation)  # raises, but for records
        got, fix = f"format {view.format!r}", "Convert it, or give its bytes: array.view(np.uint8)."
        problem = "the elements have not the buffer's dtype, nor are they this machine's numbers"
        raise InvalidArgument(operation, problem, got=got, device=device, fix=fix)
    if view.nbytes != nbytes:
        check_nbytes(view.nbytes, nbytes, operation, device)  # raises
    if not view.c_contiguous:
        got, fix = f"strides {view.strides}", "Use numpy.ascontiguousarray."
        problem = "the host memory is not C-contiguous"
        raise InvalidArgument(operation, problem, got=got, device=device, fix=fix)
    return view.cast("B") if nbytes else memoryview(b"")


def check_nbytes(got: int, expected: int, operation: str, device: str) -> None:
    """Refuse to copy between memories of two sizes. Raises: InvalidArgument naming both."""
    if got != expected:
        fix = "Bytes are copied as they are: give the buffer's dtype and size, or a part: [:n]."
        raise InvalidArgument(
            operation, "the sizes differ", got=f"{got} bytes", limit=f"expected {expected} bytes",
            device=device, fix=fix,
        )  # fmt: skip


def empty_array(shape: int | tuple[int, ...], dtype: DType, operation: str) -> NDArray[Any]:
    """Return an array whose contents are undefined. Raises: OutOfMemory."""
    kind = dtype.to_numpy()
    try:
        return np.empty(shape, kind)
    except (MemoryError, ValueError):  # ValueError: the bytes are more than numpy counts
        got = f"shape {shape} of {dtype}"
        raise OutOfMemory(operation, "the host has no room for a copy", got=got) from None


def array_at(address: int, size: int, typestr: str, owner: object) -> NDArray[Any]:
    """Return an array over memory at `address`, which keeps `owner` alive.

    numpy only records the address. It may be device memory while nobody reads the array.
    """
    if not size:
        return np.empty(0, typestr)
    facts = {"version": 3, "shape": (size,), "typestr": typestr, "data": (address, False)}
    return np.asarray(SimpleNamespace(__array_interface__=facts, owner=owner))


def in_place(buffer: Buffer, operation: str, *, is_new: bool = False) -> NDArray[Any]:
    """Return the bytes of the buffer's own memory as an array, which keeps the memory alive.

    Order: waits for all work of the device queued so far, of queues too; memory that is new has
    none in queues.
    Raises: NotShareable where the host does not see the memory.
    """
    check_visible(buffer, operation)
    check_no_capture(operation, "data cannot be read")
    opaque = buffer._opaque_for(operation)
    device = buffer._device
    wait = device._synchronize if is_new else device.synchronize
    wait(None)
    if not buffer.nbytes:
        return np.empty(0, np.uint8)
    # An array over `memory` itself would keep the view of it alive, but not the block behind it.
    memory = np.frombuffer(device.allocator._as_buffer(opaque, buffer.nbytes), np.uint8)
    return array_at(memory.ctypes.data, buffer.nbytes, "|u1", buffer._share())


def check_visible(buffer: Buffer, operation: str) -> None:
    """Refuse memory that the host does not see. Raises: NotShareable."""
    if not buffer._device.allocator._host_sees(buffer.options):
        problem, fix = "the memory is not visible to the host", "Copy it: buffer.numpy()."
        raise NotShareable(operation, problem, device=buffer.device, fix=fix)


def word_at(address: int) -> int | None:
    """Read eight bytes of this process; return None where no memory is.

    The system reads them: writing them to a pipe fails at an address at which a load would end the
    process.
    """
    import ctypes

    reader, writer = os.pipe()
    try:
        os.write(writer, (ctypes.c_char * 8).from_address(address))
        return int.from_bytes(os.read(reader, 8), sys.byteorder)
    except unless_of_a_signal(OSError):
        return None
    finally:
        os.close(reader)
        os.close(writer)
