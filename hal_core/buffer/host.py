"""Host memory: checks of the memory that copies take, and device memory shown to numpy."""

from __future__ import annotations

from typing import Any

from hal_core.errors import InvalidArgument


def host_bytes(obj: Any, nbytes: int, operation: str, device: str) -> memoryview:
    """Return the host memory of `obj`, which must have `nbytes` bytes, as one row of bytes.

    Raises: InvalidArgument for another size, for strides, and for an object without host memory.
    """
    if obj.__class__ is memoryview:
        view = obj
    else:
        try:
            view = memoryview(obj)
        except (TypeError, ValueError, BufferError):  # ValueError: such as numpy's datetime64
            raise InvalidArgument(
                operation,
                "no host memory behind it",
                got=type(obj).__name__,
                fix="Give bytes, a bytearray or a numpy array; for device memory use copy_from.",
            ) from None
    if view.format == "B" and view.ndim == 1 and view.nbytes == nbytes and view.contiguous:
        return view
    if view.nbytes != nbytes:
        raise InvalidArgument(
            operation,
            "the host memory has another size",
            got=f"{view.nbytes} bytes",
            limit=f"expected {nbytes} bytes",
            device=device,
            fix="Bytes are copied as they are: give the buffer's dtype and size, or copy a view.",
        )
    if not view.c_contiguous:
        raise InvalidArgument(
            operation,
            "the host memory is not C-contiguous",
            got=f"strides {view.strides}",
            device=device,
            fix="Use numpy.ascontiguousarray.",
        )
    return view.cast("B") if nbytes else memoryview(b"")


class ArrayMemory:
    """Memory that `numpy.asarray` makes an array of. The array keeps `owner` alive.

    numpy only records the address. It may be device memory while nobody reads the array.
    """

    __slots__ = ("__array_interface__", "_owner")

    def __init__(self, address: int, size: int, typestr: str, owner: object) -> None:
        self._owner = owner
        self.__array_interface__ = {
            "version": 3, "shape": (size,), "typestr": typestr, "data": (address, False),
        }  # fmt: skip
