"""Calls of the driver in a program that uses PyCUDA, which no other module imports.

PyCUDA is asked for its current context, and for nothing else: `docs/design/pycuda.md` says why. All
functions are called through ctypes, in the library that PyCUDA has loaded.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pycuda.driver as cu

from hal_core.streams.driver import Refused
from hal_core.streams.library import HANDLE, LibraryDriver, Row, address_of
from hal_cuda.calls import LOG_NBYTES, Calls
from hal_cuda.driver import LIBRARY

_P, _I, _U, _N = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_size_t
_A = HANDLE
_S = ctypes.c_char_p
_VERSION_2 = "_v2"  # of a function whose first version took 32 bits, or another context
_ERROR_LOG, _ERROR_LOG_NBYTES = 5, 6  # CU_JIT_ERROR_LOG_BUFFER, .._SIZE_BYTES

_LONG: dict[str, Row] = {  # called without the GIL
    "cuInit": ((), (_U,)),
    "cuDevicePrimaryCtxRetain": ((_A,), (_I,)),
    "cuDevicePrimaryCtxRelease_v2": ((), (_I,)),
    "cuMemAlloc_v2": ((_A,), (_N,)),
    "cuMemAllocFromPoolAsync": ((_A,), (_N, _P, _P)),
    "cuMemPoolCreate": ((_A,), (_P,)),
    "cuMemPoolDestroy": ((), (_P,)),
    "cuMemPoolTrimTo": ((), (_P, _N)),
    "cuMemFree_v2": ((), (_A,)),
    "cuMemFreeAsync": ((), (_A, _P)),
    "cuMemHostAlloc": ((_A,), (_N, _U)),
    "cuMemFreeHost": ((), (_P,)),
    "cuMemcpyHtoDAsync_v2": ((), (_A, _P, _N, _P)),
    "cuMemcpyDtoHAsync_v2": ((), (_P, _A, _N, _P)),
    "cuMemcpyAsync": ((), (_A, _A, _N, _P)),
    "cuMemcpyPeerAsync": ((), (_A, _P, _A, _P, _N, _P)),
    "cuMemsetD8Async": ((), (_A, ctypes.c_ubyte, _N, _P)),
    "cuMemsetD16Async": ((), (_A, ctypes.c_ushort, _N, _P)),
    "cuMemsetD32Async": ((), (_A, _U, _N, _P)),
    "cuStreamCreate": ((_A,), (_U,)),
    "cuStreamDestroy_v2": ((), (_P,)),
    "cuStreamSynchronize": ((), (_P,)),
    "cuEventSynchronize": ((), (_P,)),
    "cuCtxSynchronize": ((), ()),
    "cuLaunchKernel": ((), (_P, *[_U] * 7, _P, _P, _P)),  # waits while the queue is full
    "cuModuleLoadDataEx": ((_A,), (_P, _U, _P, _P)),
    "cuModuleUnload": ((), (_P,)),
}
_SHORT: dict[str, Row] = {  # called with the GIL, which is faster than to give it up
    "cuDriverGetVersion": ((_I,), ()),
    "cuDeviceGetCount": ((_I,), ()),
    "cuDeviceGet": ((_I,), (_I,)),
    "cuDeviceGetName": ((ctypes.c_char * 128,), (_I, _I)),
    "cuDeviceGetAttribute": ((_I,), (_U, _I)),
    "cuDeviceTotalMem_v2": ((_N,), (_I,)),
    "cuDeviceCanAccessPeer": ((_I,), (_I, _I)),
    "cuCtxSetCurrent": ((), (_P,)),
    "cuCtxGetCurrent": ((_A,), ()),
    "cuCtxGetDevice": ((_I,), ()),
    "cuMemGetInfo_v2": ((_N, _N), ()),
    "cuMemPoolSetAccess": ((), (_P, _P, _N)),
    "cuMemPoolSetAttribute": ((), (_P, _U, _P)),
    "cuMemGetAddressRange_v2": ((_A, _N), (_A,)),
    "cuPointerGetAttribute": ((_A,), (_U, _A)),  # 32 or 64 bits, into 64 that were zero
    "cuStreamQuery": ((), (_P,)),
    "cuStreamWaitEvent": ((), (_P, _P, _U)),
    "cuEventCreate": ((_A,), (_U,)),
    "cuEventDestroy_v2": ((), (_P,)),
    "cuEventRecord": ((), (_P, _P)),
    "cuEventElapsedTime": ((ctypes.c_float,), (_P, _P)),
    "cuModuleGetFunction": ((_A,), (_P, _S)),
    "cuFuncGetAttribute": ((_I,), (_U, _P)),
    "cuFuncSetAttribute": ((), (_P, _U, _I)),
    "cuGetErrorName": ((), (_U, _P)),
    "cuGetErrorString": ((), (_U, _P)),
}


class BorrowedContext(int):
    """The handle of a context that PyCUDA owns."""

    owner: Any  # PyCUDA's object, which destroys the context when it goes


class PyCUDA(LibraryDriver, Calls):
    """The driver's functions through ctypes; handles are integers."""

    def __init__(self) -> None:
        super().__init__(LIBRARY, _LONG, _SHORT, _VERSION_2)

    def structure(self, name: str, packed: bytes) -> bytes:
        return packed  # which ctypes passes as a pointer

    def array(self, one: bytes) -> bytes:
        return one

    def refused(self, name: str, status: int) -> Refused:
        title, sentence = _S(), _S()
        self.function("cuGetErrorName")(status, ctypes.byref(title))
        self.function("cuGetErrorString")(status, ctypes.byref(sentence))
        texts = title.value or b"an unknown code", sentence.value or b""
        return Refused(name, status, *(text.decode() for text in texts))

    def retain(self, index: int) -> int:
        """Return PyCUDA's current context when it is of this device, else the primary one."""
        owner = cu.Context.get_current()
        if owner is None or self.call("cuCtxGetDevice") != index:
            return int(super().retain(index))
        context = BorrowedContext(owner.handle)
        context.owner = owner
        return context

    def release(self, index: int, context: int, lost: bool) -> None:
        if not isinstance(context, BorrowedContext):
            super().release(index, context, lost)

    def copy_out(self, dest: Any, src: int, nbytes: int, stream: int) -> None:
        super().copy_out(address_of(dest, nbytes), src, nbytes, stream)

    def load(self, image: bytes) -> int:
        log = ctypes.create_string_buffer(LOG_NBYTES)
        options = (_U * 2)(_ERROR_LOG, _ERROR_LOG_NBYTES)
        values = (_P * 2)(ctypes.addressof(log), LOG_NBYTES)
        try:
            return int(self.call("cuModuleLoadDataEx", image + b"\0", 2, options, values))
        except Refused as error:
            error.sentence = log.value.decode(errors="replace").strip() or error.sentence
            raise

    def launch_of(self, function: int) -> Callable[..., Any]:
        return self.function("cuLaunchKernel")
