"""Command buffers of a driver: commands that are recorded once and queued by one call.

PyOpenCL has no such calls, so they are taken from the driver by name. Tried with PoCL 3.1, which
has version 0.9.0 of `cl_khr_command_buffer`.
Source: OpenCL extension specification, cl_khr_command_buffer, versions 0.9.0 to 0.9.4.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, byref, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, NoReturn

from hal_opencl.driver import cl, inner
from hal_opencl.images import place_of

_NAME = "cl_khr_command_buffer"
_AT_MOST = 0, 9, 4  # later versions take other arguments
_CAPABILITIES, _SIMULTANEOUS = 0x12A9, 1 << 2  # of a device: may be queued again while it runs
_FLAGS = (c_uint64 * 3)(0x1293, 1, 0)  # of a command buffer: it will be

_Sizes = POINTER(c_size_t)
_AFTER = c_uint32, c_void_p, c_void_p, c_void_p  # sync points before, and handles: none here
_CALLS: dict[str, tuple[Any, ...]] = {
    "clCreateCommandBufferKHR": (c_void_p, c_uint32, c_void_p, c_void_p, POINTER(c_int32)),
    "clReleaseCommandBufferKHR": (c_int32, c_void_p),
    "clFinalizeCommandBufferKHR": (c_int32, c_void_p),
    "clEnqueueCommandBufferKHR": (
        c_int32, c_uint32, c_void_p, c_void_p, c_uint32, c_void_p, POINTER(c_void_p),
    ),
    "clCommandNDRangeKernelKHR": (
        c_int32, c_void_p, c_void_p, c_void_p, c_void_p, c_uint32, _Sizes, _Sizes, _Sizes, *_AFTER,
    ),
    "clCommandCopyBufferKHR": (
        c_int32, c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_size_t, c_size_t, *_AFTER,
    ),
    "clCommandCopyBufferToImageKHR": (
        c_int32, c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, _Sizes, _Sizes, *_AFTER,
    ),
    "clCommandCopyImageToBufferKHR": (
        c_int32, c_void_p, c_void_p, c_void_p, c_void_p, _Sizes, _Sizes, c_size_t, *_AFTER,
    ),
    "clCommandFillBufferKHR": (
        c_int32, c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_size_t, c_size_t, *_AFTER,
    ),
}  # fmt: skip
_NONE_AFTER = 0, None, None, None


def calls_of(device: cl.Device) -> dict[str, Callable[..., Any]] | None:
    """Return the driver's functions by name; None where it has no command buffers of this form."""
    try:
        versions = {one.name: one.version for one in device.extensions_with_version}
    except (cl.Error, AttributeError):  # before OpenCL 3.0
        return None
    version = versions.get(_NAME)
    if version is None or (version >> 22, version >> 12 & 0x3FF, version & 0xFFF) > _AT_MOST:
        return None
    library = ctypes.CDLL(inner.__file__)  # which finds the loader that PyOpenCL uses
    able = c_uint64()
    ask = library.clGetDeviceInfo
    ask.argtypes = c_void_p, c_uint32, c_size_t, c_void_p, c_void_p
    if ask(device.int_ptr, _CAPABILITIES, 8, byref(able), None) or not able.value & _SIMULTANEOUS:
        return None
    find = library.clGetExtensionFunctionAddressForPlatform
    find.restype, find.argtypes = c_void_p, (c_void_p, ctypes.c_char_p)
    found: dict[str, Callable[..., Any]] = {}
    for name, types in _CALLS.items():
        address = find(device.platform.int_ptr, name.encode())
        if not address:
            return None
        found[name] = ctypes.CFUNCTYPE(*types)(address)
    return found


class CommandBuffer:
    """Commands for one queue, in the order in which they are added.

    Owns: the driver's object, and what its commands need: drivers read a kernel's arguments when
    the commands are queued. (PoCL 3.1 does; the specification says when they are added.)
    """

    _handle: int | None = None

    def __init__(self, calls: dict[str, Callable[..., Any]], commands: cl.CommandQueue) -> None:
        """Raises: cl.Error, and so do all methods."""
        self._calls, self._keep = calls, []  # type: tuple[Any, list[Any]]
        status = c_int32()
        queues = (c_void_p * 1)(commands.int_ptr)
        self._handle = calls["clCreateCommandBufferKHR"](1, queues, _FLAGS, byref(status))
        if status.value:
            _refused("clCreateCommandBufferKHR", status.value)

    def add_launch(
        self, kernel: cl.Kernel, items: tuple[int, ...], group: tuple[int, ...], keep: Any
    ) -> None:
        """Add a launch of a kernel, whose arguments are set and must not be changed any more."""
        self._keep.append((kernel, keep))
        sizes = [(c_size_t * len(items))(*extents) for extents in (items, group)]
        kernel_args = None, None, kernel.int_ptr, len(items), None, *sizes
        self._call("clCommandNDRangeKernelKHR", *kernel_args, *_NONE_AFTER)

    def add_copy(self, dest: tuple[Any, int], src: tuple[Any, int], nbytes: int) -> None:
        """Add a copy between ranges of (memory, offset) that do not overlap; one is no image."""
        self._keep.append((dest, src))
        memory = None, src[0].int_ptr, dest[0].int_ptr
        image = next((one for one, _ in (dest, src) if isinstance(one, cl.Image)), None)
        place = [(c_size_t * 3)(*one) for one in place_of(image)] if image else []
        if image is dest[0]:
            self._call("clCommandCopyBufferToImageKHR", *memory, src[1], *place, *_NONE_AFTER)
        elif image:
            self._call("clCommandCopyImageToBufferKHR", *memory, *place, dest[1], *_NONE_AFTER)
        else:
            self._call("clCommandCopyBufferKHR", *memory, src[1], dest[1], nbytes, *_NONE_AFTER)

    def add_fill(self, dest: tuple[Any, int], pattern: bytes, nbytes: int) -> None:
        """Add a fill of (memory, offset); `nbytes` is a multiple of the pattern's length."""
        self._keep.append(dest)
        what = dest[0].int_ptr, pattern, len(pattern), dest[1], nbytes
        self._call("clCommandFillBufferKHR", None, *what, *_NONE_AFTER)

    def finish(self) -> None:
        """Allow no more commands: from now on they can be queued."""
        self._call("clFinalizeCommandBufferKHR")

    def enqueue(self, commands: cl.CommandQueue) -> cl.Event:
        """Queue all commands; return their event."""
        queues, event = (c_void_p * 1)(commands.int_ptr), c_void_p()
        enqueue = self._calls["clEnqueueCommandBufferKHR"]
        status = enqueue(1, queues, self._handle, 0, None, byref(event))
        if status:
            _refused("clEnqueueCommandBufferKHR", status)
        commands.flush()
        return cl.Event.from_int_ptr(event.value or 0, retain=False)

    def _call(self, name: str, *args: Any) -> None:
        status = self._calls[name](self._handle, *args)
        if status:
            _refused(name, status)

    def __del__(self) -> None:
        if self._handle:
            self._calls["clReleaseCommandBufferKHR"](self._handle)


def _refused(call: str, code: int) -> NoReturn:
    raise cl.Error(inner._ErrorRecord(msg="", code=code, routine=call))
