"""DLPack capsules: a description of memory (place, dtype, shape) together with its owner.

numpy makes and reads them, as if all memory were the host's and all elements were integers or
complex numbers. Place and dtype are written and read here, in the capsule itself.

Source: dlpack.h, version 1.0, with the structure of 0.8 for consumers that know no other; "Python
Specification for DLPack" of the array API standard.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hal_core.buffer.host import array_at
from hal_core.concurrency import unless_of_a_signal
from hal_core.dtypes import DTYPES, DType, bfloat16, complex64, complex128
from hal_core.errors import InvalidArgument, NotShareable

# The newest that is asked for: numpy before 2.1 has no versions.
VERSION = (1, 0) if np.lib.NumpyVersion(np.__version__) >= "2.1.0" else None

_KIND_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_EXCHANGED = *DTYPES.values(), complex64, complex128
_CODES = {t: 4 if t is bfloat16 else _KIND_CODES[t.kind] for t in _EXCHANGED}
_READ_ONLY, _COPIED = 1, 2  # flags


class _Tensor(ctypes.Structure):
    """A tensor of one capsule. numpy writes and reads shape and strides."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    """The content of a capsule with a version; one without begins with the tensor."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_NAMED = ctypes.c_void_p, ctypes.c_char_p  # a capsule, by its address, and its name
_valid = ctypes.PYFUNCTYPE(ctypes.c_int, *_NAMED)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, *_NAMED)(("PyCapsule_GetPointer", ctypes.pythonapi))


def make(
    pointer: int, size: int, dtype: DType, device: tuple[int, int], owner: object, *,
    offset: int = 0, newest: tuple[int, int] | None = None, copied: bool = False,
) -> Any:  # fmt: skip
    """Make a capsule of `size` elements in one dimension.

    `offset` is where they begin, in bytes behind `pointer`. `newest` is the latest version that the
    consumer knows; None for one that names none. `copied` says that nobody else has this memory.
    Owns: `owner`, until the consumer is done.
    """
    if dtype not in _CODES:
        fix = "View it as numbers first: buffer.view(dtype=hal.float32)."
        raise NotShareable("__dlpack__", "DLPack has no such elements", got=dtype, fix=fix)
    # With a deleter in Python instead of numpy's the error of a consumer would be lost, and a
    # capsule that is destroyed after the interpreter has ended would call into nothing.
    kind = "c" if dtype.kind == "c" else "u"
    array: Any = array_at(pointer, size, f"{kind}{dtype.itemsize}", owner)
    # numpy 1.26 has no max_version.
    made = array.__dlpack__(max_version=newest) if VERSION else array.__dlpack__()
    tensor, versioned = _open(made)
    tensor.device_type, tensor.device_id = device
    tensor.code, tensor.byte_offset = _CODES[dtype], offset
    if versioned is not None and copied:
        versioned.flags |= _COPIED
    return made


class Taken(NamedTuple):
    """The content of a capsule. Owns: the producer's memory, through `array`."""

    pointer: int
    offset: int  # bytes from there to the first element
    dtype: DType
    device: tuple[int, int]
    array: NDArray[Any]  # of unsigned integers, or complex; device memory is not to be read
    read_only: bool


class _OnHost:
    """Give numpy a capsule, as an array on the host that makes it.

    Source: numpy before 2.1 looks for `__dlpack__` at the class.
    """

    def __init__(self, made: Any) -> None:
        self.made = made

    def __dlpack__(self, **_: Any) -> Any:
        return self.made

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def take(made: Any) -> Taken:
    """Take the memory out of a capsule, which cannot be used again.

    Raises: InvalidArgument for something else, a used capsule, a later major version, and a dtype
    that hal-core lacks.
    """
    tensor, versioned = _open(made)
    for dtype, code in _CODES.items():
        if (code, 8 * dtype.itemsize, 1) == (tensor.code, tensor.bits, tensor.lanes):
            break
    else:
        got = f"code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes"
        raise InvalidArgument("from_dlpack", "hal-core lacks the dtype", got=got)
    device = tensor.device_type, tensor.device_id
    read_only = versioned is not None and bool(versioned.flags & _READ_ONLY)
    pointer, offset = tensor.data or 0, tensor.byte_offset
    tensor.device_type = 1
    if dtype.kind != "c":
        tensor.code = _KIND_CODES["u"]
    try:
        array = np.from_dlpack(_OnHost(made))  # its end calls the producer's deleter
    except unless_of_a_signal(ValueError, BufferError, RuntimeError) as error:
        # numpy has no such arrays. The capsule stays the producer's, whose deleter reads these.
        tensor.device_type, tensor.code = device[0], _CODES[dtype]
        raise InvalidArgument("from_dlpack", str(error), got=f"{tensor.ndim} axes") from None
    return Taken(pointer, offset, dtype, device, array, read_only)


def _open(made: Any) -> tuple[_Tensor, _Versioned | None]:
    """Return the structures in a capsule that nobody has used yet."""
    if _valid(id(made), b"dltensor"):
        return _Tensor.from_address(_pointer(id(made), b"dltensor")), None
    if not _valid(id(made), b"dltensor_versioned"):
        raise InvalidArgument("from_dlpack", "not a fresh DLPack capsule", got=repr(made))
    found = _Versioned.from_address(_pointer(id(made), b"dltensor_versioned"))
    if found.major > 1:
        got = f"{found.major}.{found.minor}"
        raise InvalidArgument("from_dlpack", "DLPack is too new", got=got, limit="1.x")
    return found.tensor, found
