"""The driver's library, called through ctypes beside PyCUDA.

PyCUDA's objects may only be made and let go of on one thread, in the context on top of its own
stack. And Python ends a daemon thread where it comes back to the interpreter once the process is
ending: inside PyCUDA's C++, or with a context on that stack, this takes the process down. So PyCUDA
is asked for facts, and what makes, moves or waits is called here.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from hal_cuda.driver import LIBRARY, Refused

_P, _I, _U, _N = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_size_t
_A = ctypes.c_uint64  # a device address
_VERSION_2 = "_v2"  # of a function whose first version took 32 bits, or another context

_LONG: dict[str, tuple[Any, ...]] = {  # other threads run meanwhile
    "cuInit": (_U,),
    "cuDevicePrimaryCtxRetain": (_P, _I),
    "cuDevicePrimaryCtxRelease_v2": (_I,),
    "cuMemAlloc_v2": (_P, _N),
    "cuMemAllocAsync": (_P, _N, _P),
    "cuMemFree_v2": (_A,),
    "cuMemFreeAsync": (_A, _P),
    "cuMemHostAlloc": (_P, _N, _U),
    "cuMemFreeHost": (_P,),
    "cuMemcpyHtoDAsync_v2": (_A, _P, _N, _P),
    "cuMemcpyDtoHAsync_v2": (_P, _A, _N, _P),
    "cuMemcpyDtoDAsync_v2": (_A, _A, _N, _P),
    "cuMemcpyPeerAsync": (_A, _P, _A, _P, _N, _P),
    "cuMemsetD8Async": (_A, ctypes.c_ubyte, _N, _P),
    "cuMemsetD16Async": (_A, ctypes.c_ushort, _N, _P),
    "cuMemsetD32Async": (_A, _U, _N, _P),
    "cuStreamCreate": (_P, _U),
    "cuStreamDestroy_v2": (_P,),
    "cuStreamSynchronize": (_P,),
    "cuEventSynchronize": (_P,),
    "cuModuleLoadDataEx": (_P, _P, _U, _P, _P),
    "cuModuleUnload": (_P,),
}
_SHORT: dict[str, tuple[Any, ...]] = {
    "cuCtxSetCurrent": (_P,),
    "cuCtxGetCurrent": (_P,),
    "cuCtxEnablePeerAccess": (_P, _U),
    "cuPointerGetAttribute": (_P, _U, _A),
    "cuStreamQuery": (_P,),
    "cuStreamWaitEvent": (_P, _P, _U),
    "cuEventCreate": (_P, _U),
    "cuEventDestroy_v2": (_P,),
    "cuEventRecord": (_P, _P),
    "cuEventElapsedTime": (_P, _P, _P),
    "cuModuleGetFunction": (_P, _P, ctypes.c_char_p),
    "cuFuncGetAttribute": (_P, _U, _P),
    "cuFuncSetAttribute": (_P, _U, _I),
    "cuLaunchKernel": (_P, *[_U] * 7, _P, _P, _P),
    "cuGetErrorName": (_U, _P),
    "cuGetErrorString": (_U, _P),
}


@functools.cache
def functions() -> dict[str, Callable[..., int]]:
    """By their names without versions. PyCUDA has loaded the library."""
    found = {}
    for kind, table in ((ctypes.CDLL, _LONG), (ctypes.PyDLL, _SHORT)):
        library = kind(LIBRARY)
        for symbol, arguments in table.items():
            function = found[symbol.removesuffix(_VERSION_2)] = getattr(library, symbol)
            function.argtypes = arguments
    return found


def call(name: str, *arguments: Any) -> None:
    """Raises: Refused."""
    code = functions()[name](*arguments)
    if code:
        raise refused(name, code)


def ask(name: str, kind: type[Any], *arguments: Any) -> Any:
    """What a function writes to its first argument. Raises: Refused."""
    answer = kind()
    call(name, ctypes.byref(answer), *arguments)
    return answer.value


def refused(name: str, code: int) -> Refused:
    return Refused(name, code, _name(code), _sentence(code))


def refused_in(text: str) -> Refused:
    """From the text of PyCUDA's errors, which has the driver's sentence and no code."""
    name, _, sentence = text.partition(" failed: ")
    code = next((code for code in range(1, 1000) if _sentence(code) == sentence), 999)
    return refused(name, code)


def _name(code: int) -> str:
    return _text("cuGetErrorName", code) or "an unknown code"


def _sentence(code: int) -> str:
    return _text("cuGetErrorString", code)


def _text(function: str, code: int) -> str:
    text = ctypes.c_char_p()
    functions()[function](code, ctypes.byref(text))
    return (text.value or b"").decode()
