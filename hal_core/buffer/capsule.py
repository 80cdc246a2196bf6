"""DLPack capsules: a description of memory (place, dtype, shape) together with its owner.

Source: dlpack.h, version 1.0, with the structure of 0.8 for consumers that know no other; "Python
Specification for DLPack" of the array API standard.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from hal_core.buffer.host import ArrayMemory
from hal_core.dtypes import DTYPES, DType, bfloat16
from hal_core.errors import InvalidArgument

VERSION = 1, 0  # the newest that is exported and imported

_KIND_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_CODES = {t: 4 if t is bfloat16 else _KIND_CODES[t.kind] for t in DTYPES.values()}
_READ_ONLY, _COPIED = 1, 2  # flags


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    NAME, USED = b"dltensor", b"used_dltensor"
    _fields_ = (
        ("tensor", _Tensor),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    )


class _Versioned(ctypes.Structure):
    NAME, USED = b"dltensor_versioned", b"used_dltensor_versioned"
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_api = ctypes.pythonapi
_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api)
)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_SetName", _api)
)


# -- export


def make(
    pointer: int,
    size: int,
    dtype: DType,
    device: tuple[int, int],
    owner: object,
    *,
    newest: tuple[int, int] | None = None,
    copied: bool = False,
) -> Any:
    """Make a capsule of `size` elements in one dimension.

    `newest` is the latest version that the consumer knows; None for one that names none. `copied`
    says that nobody else has this memory. Owns: `owner`, until the consumer is done.
    """
    import numpy as np

    # numpy makes the capsule, as if of host memory, and then place and dtype are corrected. With a
    # deleter in Python the error of a consumer would be lost, and a capsule that is destroyed
    # after the interpreter has ended would call into nothing.
    bits = np.dtype(f"u{dtype.itemsize}")
    memory = ArrayMemory(pointer, size, bits.str, owner)
    array = np.asarray(memory) if size else np.empty(0, bits)
    try:
        made = array.__dlpack__(max_version=newest)
    except TypeError:  # numpy before 2.1
        made = array.__dlpack__()
    managed = _managed_of(made)
    tensor = managed.tensor
    tensor.device_type, tensor.device_id = device
    tensor.code = _CODES[dtype]
    if isinstance(managed, _Versioned) and copied:
        managed.flags |= _COPIED
    return made


# -- import


class Taken(NamedTuple):
    """The content of a capsule. Owns: the producer's memory, through `owner`."""

    pointer: int
    size: int
    dtype: DType
    device: tuple[int, int]
    owner: object
    read_only: bool


class _Owner:
    """Keeps the producer's memory; its end calls the producer's deleter."""

    def __init__(self, managed: _Managed | _Versioned) -> None:
        # Both are stored, as at exit this module may have no names any more.
        self._delete, self._address = managed.deleter, ctypes.addressof(managed)

    def __del__(self) -> None:
        if self._delete:
            self._delete(self._address)


def take(made: Any) -> Taken:
    """Take the memory out of a capsule, which cannot be used again.

    Raises: InvalidArgument for something else, a used capsule, a later major version, a dtype
    that hal-core lacks, and memory with gaps; the capsule then stays as it was.
    """
    managed = _managed_of(made)
    tensor = managed.tensor
    for dtype in DTYPES.values():
        if (_CODES[dtype], 8 * dtype.itemsize, 1) == (tensor.code, tensor.bits, tensor.lanes):
            break
    else:
        got = f"code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes"
        raise InvalidArgument("from_dlpack", "hal-core lacks the dtype", got=got)
    shape = tensor.shape[: tensor.ndim]
    size, dense = 1, True
    for axis in reversed(range(tensor.ndim)):
        if tensor.strides and shape[axis] != 1:  # an axis of one element may have any stride
            dense = dense and tensor.strides[axis] == size
        size *= shape[axis]
    if size and not dense:
        raise InvalidArgument(
            "from_dlpack", "the array is not C-contiguous",
            got=f"shape {shape}, strides {tensor.strides[: tensor.ndim]}",
            fix="Make it contiguous in its own library first.",
        )  # fmt: skip
    _rename(id(made), managed.USED)
    return Taken(
        (tensor.data or 0) + tensor.byte_offset,
        size,
        dtype,
        (tensor.device_type, tensor.device_id),
        _Owner(managed),
        isinstance(managed, _Versioned) and bool(managed.flags & _READ_ONLY),
    )


def _managed_of(made: Any) -> _Managed | _Versioned:
    """Return the structure in a capsule that nobody has used yet."""
    if type(made).__name__ == "PyCapsule":
        for form in (_Managed, _Versioned):
            if _valid(id(made), form.NAME):
                found: _Managed | _Versioned
                found = form.from_address(_pointer(id(made), form.NAME))
                if isinstance(found, _Versioned) and found.major > VERSION[0]:
                    got = f"{found.major}.{found.minor}"
                    raise InvalidArgument("from_dlpack", "DLPack is too new", got=got, limit="1.x")
                return found
    raise InvalidArgument("from_dlpack", "not a fresh DLPack capsule", got=repr(made))
