"""DLPack capsules of memory that numpy cannot hold: a GPU's.

Source: dlpack.h, version 0.8 of the structures, which every consumer takes; "Python Specification
for DLPack" of the array API standard.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from hal_core.dtypes import DTYPES, DType
from hal_core.errors import InvalidArgument

_NAME, _USED = b"dltensor", b"used_dltensor"
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_BFLOAT = 4


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
    _fields_ = (
        ("tensor", _Tensor),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    )


_api = ctypes.pythonapi
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", _api)
)
# By address: a capsule that is being destroyed must not be referred to.
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

_exported: dict[int, tuple[Any, ...]] = {}  # address of the structure -> what it needs


def _delete(address: int) -> None:
    _exported.pop(address, None)


def _destroy(capsule: int) -> None:
    """Of a capsule that nobody took."""
    if _valid(capsule, _NAME):
        _delete(_pointer(capsule, _NAME))


_deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_delete)
_destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_destroy)


def capsule(pointer: int, size: int, dtype: DType, device: tuple[int, int], owner: object) -> Any:
    """A capsule of `size` elements in one dimension. Owns: `owner`, until the consumer is done."""
    managed = _Managed()
    shape = (ctypes.c_int64 * 1)(size)
    tensor = managed.tensor
    tensor.data, (tensor.device_type, tensor.device_id) = pointer or None, device
    tensor.ndim, tensor.shape = 1, shape
    tensor.code = _BFLOAT if dtype.name == "bfloat16" else _CODES[dtype.kind]
    tensor.bits, tensor.lanes = 8 * dtype.itemsize, 1
    managed.deleter = _deleter
    address = ctypes.addressof(managed)
    _exported[address] = managed, shape, owner
    return _new(address, _NAME, ctypes.cast(_destructor, ctypes.c_void_p))


# -- import


class Taken(NamedTuple):
    """What a capsule holds. Owns: the producer's memory, through `owner`."""

    pointer: int
    size: int
    dtype: DType
    device: tuple[int, int]
    owner: object


class _Owner:
    """Calls the producer's deleter when the last user is gone."""

    def __init__(self, managed: _Managed) -> None:
        self._managed = managed

    def __del__(self) -> None:
        if self._managed.deleter:
            self._managed.deleter(ctypes.addressof(self._managed))


def take(made: Any) -> Taken:
    """The memory of a capsule; the capsule cannot be used again.

    Raises: InvalidArgument for no or a used capsule, a dtype we lack and memory with gaps; the
    capsule is then as it was.
    """
    address = id(made)
    if type(made).__name__ != "PyCapsule" or not _valid(address, _NAME):
        raise InvalidArgument(
            "from_dlpack", "not a fresh DLPack capsule without version", got=repr(made)
        )
    managed = _Managed.from_address(_pointer(address, _NAME))
    tensor = managed.tensor
    shape = [tensor.shape[axis] for axis in range(tensor.ndim)]
    dtype = _dtype(tensor)
    _check_dense(tensor, shape)
    _rename(address, _USED)
    size = 1
    for extent in shape:
        size *= extent
    pointer = (tensor.data or 0) + tensor.byte_offset
    device = tensor.device_type, tensor.device_id
    return Taken(pointer, size, dtype, device, _Owner(managed))


def _dtype(tensor: _Tensor) -> DType:
    for dtype in DTYPES.values():
        code = _BFLOAT if dtype.name == "bfloat16" else _CODES[dtype.kind]
        if (code, 8 * dtype.itemsize, 1) == (tensor.code, tensor.bits, tensor.lanes):
            return dtype
    got = f"code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes"
    raise InvalidArgument("from_dlpack", "no dtype of ours", got=got)


def _check_dense(tensor: _Tensor, shape: list[int]) -> None:
    step = 1
    for axis in range(tensor.ndim - 1, -1, -1):
        if tensor.strides and shape[axis] != 1 and tensor.strides[axis] != step:
            strides = [tensor.strides[k] for k in range(tensor.ndim)]
            raise InvalidArgument(
                "from_dlpack", "the array is not C-contiguous",
                got=f"shape {shape}, strides {strides}", fix="Copy it there first.",
            )  # fmt: skip
        step *= shape[axis]
