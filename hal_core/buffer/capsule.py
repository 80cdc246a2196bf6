"""DLPack capsules: memory with its place, dtype and shape, and who keeps it.

Source: dlpack.h, version 1.0, with the structure of 0.8 for consumers that know no other; "Python
Specification for DLPack" of the array API standard.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from hal_core.dtypes import DTYPES, DType
from hal_core.errors import InvalidArgument

VERSION = 1, 0  # the newest that is given and taken

_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_BFLOAT = 4
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


_FORMS = (_Managed, _Versioned)

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


class _Memory:
    """What numpy is told of memory, which it does not look at."""

    def __init__(self, pointer: int, size: int, bits: str, owner: object) -> None:
        self.__array_interface__ = {
            "data": (pointer, False), "shape": (size,), "typestr": bits, "version": 3,
        }  # fmt: skip
        self.owner = owner


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
    """A capsule of `size` elements in one dimension.

    `newest` is the version that the consumer knows; None knows none. `copied`: nobody else has
    this memory. Owns: `owner`, until the consumer is done.
    """
    import numpy as np

    # numpy makes it, of memory that it takes for the host's. A capsule may be destroyed while an
    # error is on its way, which a function of ours would swallow, or when Python has ended.
    bits = np.dtype(f"u{dtype.itemsize}")
    array = np.asarray(_Memory(pointer, size, bits.str, owner)) if size else np.empty(0, bits)
    try:
        made = array.__dlpack__(max_version=newest)
    except TypeError:  # numpy before 2.1
        made = array.__dlpack__()
    managed = _managed_of(made)
    tensor = managed.tensor
    tensor.device_type, tensor.device_id = device
    tensor.code = _BFLOAT if dtype.name == "bfloat16" else _CODES[dtype.kind]
    if isinstance(managed, _Versioned) and copied:
        managed.flags |= _COPIED
    return made


# -- import


class Taken(NamedTuple):
    """What a capsule holds. Owns: the producer's memory, through `owner`."""

    pointer: int
    size: int
    dtype: DType
    device: tuple[int, int]
    owner: object
    read_only: bool


class _Owner:
    """Calls the producer's deleter when the last user is gone."""

    def __init__(self, managed: _Managed | _Versioned) -> None:
        self._delete, self._address = managed.deleter, ctypes.addressof(managed)

    def __del__(self) -> None:  # at exit, perhaps, when this module has no names any more
        if self._delete:
            self._delete(self._address)


def take(made: Any) -> Taken:
    """The memory of a capsule; the capsule cannot be used again.

    Raises: InvalidArgument for no or a used capsule, a version or a dtype we lack and memory with
    gaps; the capsule is then as it was.
    """
    managed = _managed_of(made)
    tensor = managed.tensor
    shape = [tensor.shape[axis] for axis in range(tensor.ndim)]
    dtype = _dtype(tensor)
    _check_dense(tensor, shape)
    _rename(id(made), managed.USED)
    size = 1
    for extent in shape:
        size *= extent
    pointer = (tensor.data or 0) + tensor.byte_offset
    device = tensor.device_type, tensor.device_id
    read_only = isinstance(managed, _Versioned) and bool(managed.flags & _READ_ONLY)
    return Taken(pointer, size, dtype, device, _Owner(managed), read_only)


def _managed_of(made: Any) -> _Managed | _Versioned:
    if type(made).__name__ == "PyCapsule":
        for form in _FORMS:
            if _valid(id(made), form.NAME):
                found = form.from_address(_pointer(id(made), form.NAME))
                if isinstance(found, _Versioned) and found.major > VERSION[0]:
                    got = f"{found.major}.{found.minor}"
                    raise InvalidArgument("from_dlpack", "DLPack is too new", got=got, limit="1.x")
                return found
    raise InvalidArgument("from_dlpack", "not a fresh DLPack capsule", got=repr(made))


def _dtype(tensor: _Tensor) -> DType:
    for dtype in DTYPES.values():
        code = _BFLOAT if dtype.name == "bfloat16" else _CODES[dtype.kind]
        if (code, 8 * dtype.itemsize, 1) == (tensor.code, tensor.bits, tensor.lanes):
            return dtype
    got = f"code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes"
    raise InvalidArgument("from_dlpack", "no dtype of ours", got=got)


def _check_dense(tensor: _Tensor, shape: list[int]) -> None:
    if 0 in shape:
        return
    step = 1
    for axis in range(tensor.ndim - 1, -1, -1):
        if tensor.strides and shape[axis] != 1 and tensor.strides[axis] != step:
            strides = [tensor.strides[k] for k in range(tensor.ndim)]
            raise InvalidArgument(
                "from_dlpack", "the array is not C-contiguous",
                got=f"shape {shape}, strides {strides}", fix="Copy it there first.",
            )  # fmt: skip
        step *= shape[axis]
