"""Calls of the driver in a program that uses PyCUDA, which no other module imports.

PyCUDA is asked for its current context, and for nothing else: `docs/design/pycuda.md` says why. All
functions are called through ctypes, in the library that PyCUDA has loaded.
"""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

import pycuda.driver as cu

from hal_cuda.calls import LOG_NBYTES, Calls
from hal_cuda.driver import LIBRARY
from hal_streams.driver import Refused
from hal_streams.library import HANDLE, LibraryDriver, Row

_P, _I, _U, _A = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, HANDLE
_ERROR_LOG, _ERROR_LOG_NBYTES = 5, 6  # CU_JIT_ERROR_LOG_BUFFER, .._SIZE_BYTES

_LONG: dict[str, Row] = {  # called without the GIL
    "Init": ((), (_U,)),
    "DevicePrimaryCtxRetain": ((_A,), (_I,)),
    "DevicePrimaryCtxRelease": ((), (_I,)),
    "ModuleLoadDataEx": ((_A,), (_P, _U, _P, _P)),
}
_SHORT: dict[str, Row] = {
    "DriverGetVersion": ((_I,), ()),
    "DeviceGet": ((_I,), (_I,)),
    "CtxSetCurrent": ((), (_P,)),
    "CtxGetCurrent": ((_A,), ()),
    "CtxGetDevice": ((_I,), ()),
    "MemGetAddressRange": ((_A, ctypes.c_size_t), (_A,)),
    "FuncSetAttribute": ((), (_P, _U, _I)),
    "GetErrorName": ((), (_U, _P)),
    "GetErrorString": ((), (_U, _P)),
    "GraphAddMemcpyNode": ((_A,), (_P, _P, ctypes.c_size_t, _P, _P)),
    "GraphAddMemsetNode": ((_A,), (_P, _P, ctypes.c_size_t, _P, _P)),
    "GraphExecMemcpyNodeSetParams": ((), (_P, _P, _P, _P)),
    "GraphExecMemsetNodeSetParams": ((), (_P, _P, _P, _P)),
}
# Functions whose first version took 32 bits, or another context.
_SECOND = (
    "DevicePrimaryCtxRelease", "MemAlloc", "MemFree", "MemcpyHtoDAsync", "MemcpyDtoHAsync",
    "StreamDestroy", "DeviceTotalMem", "MemGetInfo", "MemGetAddressRange", "EventDestroy",
    "GraphAddKernelNode", "GraphExecKernelNodeSetParams", "Array3DCreate", "Memcpy3DAsync",
)  # fmt: skip


class BorrowedContext(int):
    """The handle of a context that PyCUDA owns."""

    owner: Any  # PyCUDA's object, which destroys the context when it goes


class PyCUDA(Calls, LibraryDriver):
    """The driver's functions through ctypes; handles are integers."""

    prefix = "cu"
    symbols: ClassVar[dict[str, str]] = {
        **{name: f"{name}_v2" for name in _SECOND},
        "GraphInstantiate": "GraphInstantiateWithFlags",
    }

    def __init__(self) -> None:
        super().__init__(LIBRARY, _LONG, _SHORT)

    def refused(self, name: str, status: int) -> Refused:
        title, sentence = ctypes.c_char_p(), ctypes.c_char_p()
        self.function("GetErrorName")(status, ctypes.byref(title))
        self.function("GetErrorString")(status, ctypes.byref(sentence))
        texts = title.value or b"an unknown code", sentence.value or b""
        return Refused(f"cu{name}", status, *(text.decode() for text in texts))

    def retain(self, index: int) -> int:
        """Return PyCUDA's current context when it is of this device, else the primary one."""
        owner = cu.Context.get_current()
        if owner is None or self.call("CtxGetDevice") != index:
            return int(super().retain(index))
        context = BorrowedContext(owner.handle)
        context.owner = owner
        return context

    def release(self, index: int, context: int, lost: bool) -> None:
        if not isinstance(context, BorrowedContext):
            super().release(index, context, lost)

    def load(self, image: bytes) -> int:
        log = ctypes.create_string_buffer(LOG_NBYTES)
        options = (_U * 2)(_ERROR_LOG, _ERROR_LOG_NBYTES)
        values = (_P * 2)(ctypes.addressof(log), LOG_NBYTES)
        try:
            return int(self.call("ModuleLoadDataEx", image + b"\0", 2, options, values))
        except Refused as error:
            error.sentence = log.value.decode(errors="replace").strip() or error.sentence
            raise
