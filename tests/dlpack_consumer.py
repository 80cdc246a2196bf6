"""A consumer of DLPack by its own hands, which believes nothing that hal_core says of it."""

import ctypes
import struct

_get = ctypes.pythonapi.PyCapsule_GetPointer
_get.restype, _get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, (ctypes.py_object,)
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.argtypes = (ctypes.py_object, ctypes.c_char_p)

# Of dlpack.h: data, device, ndim, dtype, shape, strides, byte_offset; then manager and deleter.
_OLD = struct.Struct("=QiiiBBHQQQQQ")
# The same behind version, manager, deleter and flags.
_NEW = struct.Struct("=IIQQQQiiiBBHQQQ")
USED = {b"dltensor": b"used_dltensor", b"dltensor_versioned": b"used_dltensor_versioned"}


def _must(holds, what):
    if not holds:
        raise AssertionError(what)


class Consumed:
    """What a capsule holds; `release` gives it back."""

    def __init__(self, capsule):
        name = _name(capsule)
        _must(name in USED, name)
        self._start = _get(capsule, name)
        self._used = USED[name]  # a capsule keeps no copy of its name
        _rename(capsule, self._used)
        self.version = None
        self.flags = 0
        if name == b"dltensor":
            *tensor, _, self._deleter = _OLD.unpack(ctypes.string_at(self._start, _OLD.size))
        else:
            fields = _NEW.unpack(ctypes.string_at(self._start, _NEW.size))
            major, minor, _, self._deleter, self.flags, *tensor = fields
            self.version = major, minor
            _must(major == 1, self.version)
        data, kind, number, ndim, self.code, self.bits, lanes, shape, strides, offset = tensor
        self.device, self.address = (kind, number), data + offset
        _must((ndim, lanes) == (1, 1), (ndim, lanes))
        (self.size,) = struct.unpack("=q", ctypes.string_at(shape, 8))
        if strides and self.size > 1:
            _must(ctypes.string_at(strides, 8) == struct.pack("=q", 1), "strides")

    def content(self):
        """Of memory that the host reads, whatever it is called."""
        return ctypes.string_at(self.address, self.size * self.bits // 8)

    def release(self):
        deleter, self._deleter = self._deleter, 0
        _must(bool(deleter), "released twice")
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter)(self._start)
