"""Host memory: what copies take, and how device memory the host can see is handed out."""

from __future__ import annotations

from typing import Any

from hal_core.errors import InvalidArgument

LARGE = 1 << 20  # bytes; a copy of more releases the GIL


def host_bytes(obj: Any, nbytes: int, operation: str, device: str) -> memoryview:
    """The memory behind `obj` as one-dimensional bytes, when there are `nbytes` of them.

    Raises: InvalidArgument for another size, for strides, and for what is no host memory.
    """
    view = obj if obj.__class__ is memoryview else _memory_of(obj, operation)
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


def _memory_of(obj: Any, operation: str) -> memoryview:
    try:
        return memoryview(obj)
    except (TypeError, ValueError, BufferError):  # ValueError: dtypes a buffer cannot have
        raise InvalidArgument(
            operation,
            "no host memory behind it",
            got=type(obj).__name__,
            fix="Give bytes, a bytearray or a numpy array; for device memory use copy_from.",
        ) from None


class Export:
    """Gives numpy an address, and keeps the memory behind it."""

    __slots__ = ("__array_interface__", "_owner")

    def __init__(self, memory: memoryview, owner: object) -> None:
        import numpy as np

        self._owner = owner
        address = np.frombuffer(memory, np.uint8).__array_interface__["data"][0]
        self.__array_interface__ = {
            "version": 3, "shape": (memory.nbytes,), "typestr": "|u1", "data": (address, False),
        }  # fmt: skip
