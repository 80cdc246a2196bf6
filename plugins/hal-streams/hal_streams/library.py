"""Call a driver's C library through ctypes, by a table of its functions.

A row has the types of the results, then those of the arguments. In the C call pointers to the
results come before the arguments, and a status is returned; `call("StreamCreate", 0)` gives the
stream.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, ClassVar

from hal_streams.calls import PrefixedDriver

_P, _I, _U, _N = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_size_t
HANDLE = ctypes.c_uint64  # a handle or an address that is returned: an integer, never None
_A = HANDLE

Row = tuple[tuple[Any, ...], tuple[Any, ...]]  # types of the results, types of the arguments

LONG: dict[str, Row] = {  # called without the GIL
    "DeviceGetCount": ((_I,), ()),  # starts HIP's runtime
    "MemAlloc": ((_A,), (_N,)),
    "MemAllocFromPoolAsync": ((_A,), (_N, _P, _P)),
    "MemPoolCreate": ((_A,), (_P,)),
    "MemPoolDestroy": ((), (_P,)),
    "MemPoolTrimTo": ((), (_P, _N)),
    "MemPoolSetAccess": ((), (_P, _P, _N)),
    "MemFree": ((), (_A,)),
    "MemFreeAsync": ((), (_A, _P)),
    "MemHostAlloc": ((_A,), (_N, _U)),
    "MemFreeHost": ((), (_P,)),
    "MemcpyHtoDAsync": ((), (_A, _P, _N, _P)),
    "MemcpyDtoHAsync": ((), (_P, _A, _N, _P)),
    "MemcpyAsync": ((), (_A, _A, _N, _P)),
    "Memcpy3DAsync": ((), (_P, _P)),
    "Array3DCreate": ((_A,), (_P,)),
    "ArrayDestroy": ((), (_P,)),
    "TexObjectCreate": ((_A,), (_P, _P, _P)),
    "TexObjectDestroy": ((), (_A,)),
    "SurfObjectCreate": ((_A,), (_P,)),
    "SurfObjectDestroy": ((), (_A,)),
    "MemcpyPeerAsync": ((), (_A, _P, _A, _P, _N, _P)),
    "MemsetD8Async": ((), (_A, ctypes.c_ubyte, _N, _P)),
    "MemsetD16Async": ((), (_A, ctypes.c_ushort, _N, _P)),
    "MemsetD32Async": ((), (_A, _U, _N, _P)),
    "StreamCreate": ((_A,), (_U,)),
    "StreamDestroy": ((), (_P,)),
    "StreamSynchronize": ((), (_P,)),
    "EventSynchronize": ((), (_P,)),
    "CtxSynchronize": ((), ()),
    # These three wait while the stream has no room.
    "LaunchKernel": ((), (_P, *[_U] * 7, _P, _P, _P)),
    "StreamWaitEvent": ((), (_P, _P, _U)),
    "EventRecord": ((), (_P, _P)),
    # The driver loads a kernel when it is first asked for, and may wait for the device to do so.
    "ModuleGetFunction": ((_A,), (_P, ctypes.c_char_p)),
    "FuncGetAttribute": ((_I,), (_U, _P)),
    "ModuleUnload": ((), (_P,)),
    "GraphInstantiate": ((_A,), (_P, ctypes.c_ulonglong)),
    "GraphLaunch": ((), (_P, _P)),
    "GraphExecDestroy": ((), (_P,)),
}
SHORT: dict[str, Row] = {  # called with the GIL, which is faster than to give it up
    "DeviceGetName": ((ctypes.c_char * 128,), (_I, _I)),
    "DeviceGetAttribute": ((_I,), (_U, _I)),
    "DeviceTotalMem": ((_N,), (_I,)),
    "DeviceCanAccessPeer": ((_I,), (_I, _I)),
    "MemGetInfo": ((_N, _N), ()),
    "MemPoolSetAttribute": ((), (_P, _U, _P)),
    "PointerGetAttribute": ((_A,), (_U, _A)),  # 32 or 64 bits, into 64 that were zero
    "StreamQuery": ((), (_P,)),
    # Of these the last argument points to the result, that of the third also to the argument.
    "StreamGetFlags": ((), (_P, _P)),
    "StreamIsCapturing": ((), (_P, _P)),
    "ThreadExchangeStreamCaptureMode": ((), (_P,)),
    "EventCreate": ((_A,), (_U,)),
    "EventDestroy": ((), (_P,)),
    "EventQuery": ((), (_P,)),
    "EventElapsedTime": ((ctypes.c_float,), (_P, _P)),
    "GraphCreate": ((_A,), (_U,)),
    "GraphDestroy": ((), (_P,)),
    "GraphAddKernelNode": ((_A,), (_P, _P, _N, _P)),
    "GraphExecKernelNodeSetParams": ((), (_P, _P, _P)),
}


class LibraryDriver(PrefixedDriver):
    """The functions of a C library; handles are integers."""

    prefix: ClassVar[str]
    symbols: ClassVar[
        dict[str, str]
    ]  # of functions whose symbol is not their name after the prefix

    def __init__(self, library: str, long: dict[str, Row], short: dict[str, Row]) -> None:
        """Look up the functions of the tables here, and of the backend's `long` and `short`.

        Raises: OSError where there is no such library; AttributeError where it lacks a function.
        """
        super().__init__()
        self._functions: dict[str, tuple[Callable[..., int], tuple[Any, ...]]] = {}
        for kind, table in ((ctypes.CDLL, LONG | long), (ctypes.PyDLL, SHORT | short)):
            loaded = kind(library)
            for name, (results, arguments) in table.items():
                function = getattr(loaded, self.symbol_of(name))
                function.argtypes = (*[ctypes.c_void_p] * len(results), *arguments)
                self._functions[name] = function, results

    def symbol_of(self, name: str) -> str:
        """Return a function's name in the library."""
        return self.prefix + self.symbols.get(name, name)

    def call(self, name: str, *arguments: Any) -> Any:
        function, kinds = self._functions[name]
        if kinds:
            results = [kind() for kind in kinds]
            code = function(*map(ctypes.byref, results), *arguments)
        else:  # copies, events: the fast way
            code = function(*arguments)
        if code:
            raise self.refused(name, code)
        if len(kinds) > 1:
            return tuple(result.value for result in results)
        return results[0].value if kinds else None

    def stream_flags(self, stream: int) -> int:
        flags = ctypes.c_uint()
        self.call("StreamGetFlags", stream, ctypes.byref(flags))
        return flags.value

    def capture_status(self, stream: int) -> int:
        status = ctypes.c_int()
        self.call("StreamIsCapturing", stream, ctypes.byref(status))
        return status.value

    def exchange_capture_mode(self, mode: int) -> int:
        swapped = ctypes.c_int(mode)
        self.call("ThreadExchangeStreamCaptureMode", ctypes.byref(swapped))
        return swapped.value

    def handles(self, nodes: list[int]) -> Any:
        return (ctypes.c_void_p * len(nodes))(*nodes)

    def readable(self, src: memoryview) -> Any:
        # Of memory that is read-only ctypes gives no address.
        return bytes(src) if src.readonly else (ctypes.c_ubyte * src.nbytes).from_buffer(src)

    def copy_out(self, dest: Any, src: int, nbytes: int, stream: int) -> None:
        if not isinstance(dest, int):  # ctypes does not take a memoryview as a pointer
            dest = (ctypes.c_ubyte * nbytes).from_buffer(dest)
        super().copy_out(dest, src, nbytes, stream)

    def function(self, name: str) -> Any:
        """Return a function itself, which gives its status without raising."""
        return self._functions[name][0]

    def launch_of(self, function: int) -> Callable[..., Any]:
        return self.function("LaunchKernel")  # type: ignore[no-any-return]
