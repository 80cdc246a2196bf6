"""The driver in a program that uses PyCUDA. Nothing else imports it.

PyCUDA gives its current context and facts; what makes, moves or waits goes past it:
`hal_cuda.libcuda` says why.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_void_p
from typing import Any

import pycuda.driver as cu

from hal_cuda import driver, libcuda
from hal_cuda.driver import ATTRIBUTES, Facts, KernelFacts, Refused
from hal_cuda.libcuda import ask, call

_function = cu.function_attribute
_CONTEXT, _MEMORY_TYPE, _IS_MANAGED, _ORDINAL = 1, 2, 8, 9  # CU_POINTER_ATTRIBUTE_...
_HOST = 1  # CU_MEMORYTYPE_HOST
_PORTABLE_MAPPED = 0x01 | 0x02  # CU_MEMHOSTALLOC_PORTABLE | _DEVICEMAP


@contextmanager
def _guard() -> Iterator[None]:
    """PyCUDA's errors become refusals."""
    try:
        yield
    except cu.Error as error:
        raise libcuda.refused_in(str(error)) from None


# -- devices and contexts


def initialise() -> None:
    call("cuInit", 0)


@_guard()
def version() -> tuple[int, int]:
    number = int(cu.get_driver_version())
    return number // 1000, number % 1000 // 10


@_guard()
def count() -> int:
    return int(cu.Device.count())


@_guard()
def facts(index: int) -> Facts:
    device = cu.Device(index)
    attributes = {name: _attribute(device, name) for name in ATTRIBUTES}
    return Facts(str(device.name()), int(device.total_memory()), attributes)


def _attribute(device: Any, name: str) -> int:
    attribute = getattr(cu.device_attribute, name.upper(), None)
    if attribute is None:
        return 0
    try:
        with _guard():
            return int(device.get_attribute(attribute))
    except Refused as error:
        if error.code != driver.INVALID_VALUE:
            raise
        return 0  # the driver is older than the attribute


class _Theirs(int):
    """The handle of a context that PyCUDA keeps."""

    keeper: Any


@_guard()
def retain(index: int) -> int:
    """PyCUDA's current context when it is of this device; else the primary one."""
    keeper = cu.Context.get_current()
    if keeper is not None and cu.Context.get_device() == cu.Device(index):
        context = _Theirs(keeper.handle)
        context.keeper = keeper
        return context
    return int(ask("cuDevicePrimaryCtxRetain", c_void_p, index))


def release(index: int, context: int) -> None:
    if not isinstance(context, _Theirs):
        call("cuDevicePrimaryCtxRelease", index)


def set_current(context: int) -> None:
    call("cuCtxSetCurrent", context)


def current_context() -> int:
    return int(ask("cuCtxGetCurrent", c_void_p) or 0)


@_guard()
def peer(context: int, device: int, other: int) -> bool:
    """Let the current context of `device` reach the memory of `other`, whose context it is."""
    if not cu.Device(device).can_access_peer(cu.Device(other)):
        return False
    try:
        call("cuCtxEnablePeerAccess", context, 0)
    except Refused as error:
        return error.code == driver.PEER_ALREADY  # else the driver copies through the host
    return True


# -- memory


@_guard()
def memory_info() -> tuple[int, int]:
    free, total = cu.mem_get_info()
    return int(free), int(total)


def allocate(nbytes: int, stream: int, pooled: bool) -> int:
    if pooled:
        return int(ask("cuMemAllocAsync", ctypes.c_uint64, nbytes, stream))
    return int(ask("cuMemAlloc", ctypes.c_uint64, nbytes))


def free(address: int, stream: int | None, pooled: bool) -> None:
    if pooled:
        call("cuMemFreeAsync", address, stream)
    else:
        call("cuMemFree", address)  # waits for the work of the whole device


def allocate_host(nbytes: int) -> int:
    """Pinned memory, reachable by every context at the same address."""
    return int(ask("cuMemHostAlloc", c_void_p, nbytes, _PORTABLE_MAPPED))


def free_host(address: int) -> None:
    call("cuMemFreeHost", address)


def copy_in(dest: int, src: Any, nbytes: int, stream: int) -> None:
    """`src`: a host address, or bytes. Pageable memory may change on return."""
    call("cuMemcpyHtoDAsync", dest, src, nbytes, stream)


def copy_out(dest: Any, src: int, nbytes: int, stream: int) -> None:
    if not isinstance(dest, int):
        dest = (ctypes.c_ubyte * nbytes).from_buffer(dest)
    call("cuMemcpyDtoHAsync", dest, src, nbytes, stream)


def copy(dest: int, src: int, nbytes: int, stream: int) -> None:
    call("cuMemcpyDtoDAsync", dest, src, nbytes, stream)


def copy_peer(
    dest: int, dest_context: int, src: int, src_context: int, nbytes: int, stream: int
) -> None:
    call("cuMemcpyPeerAsync", dest, dest_context, src, src_context, nbytes, stream)


def fill(dest: int, pattern: bytes, count: int, stream: int) -> None:
    """`count` times a pattern of 1, 2 or 4 bytes."""
    names = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async"}
    call(names[len(pattern)], dest, int.from_bytes(pattern, "little"), count, stream)


def owner_of(address: int) -> tuple[int, bool, int]:
    """The index of the device that memory belongs to, whether it is the host's, and the context
    that alone reaches it; -1 where the driver does not know it, 0 for any context."""
    try:
        index = ask("cuPointerGetAttribute", ctypes.c_int, _ORDINAL, address)
    except Refused as error:
        if error.code != driver.INVALID_VALUE:
            raise
        return -1, False, 0
    kind = ask("cuPointerGetAttribute", ctypes.c_uint, _MEMORY_TYPE, address)
    if kind == _HOST:
        return int(index), True, 0
    return int(index), False, _context_of(address)


def _context_of(address: int) -> int:
    try:
        if ask("cuPointerGetAttribute", ctypes.c_uint, _IS_MANAGED, address):
            return 0
        return int(ask("cuPointerGetAttribute", c_void_p, _CONTEXT, address) or 0)
    except Refused as error:
        if error.code != driver.INVALID_VALUE:
            raise
        return 0  # memory from a pool has none


@_guard()
def range_of(address: int) -> tuple[int, int]:
    """Start and bytes of the allocation that an address lies in."""
    start, nbytes = cu.mem_get_address_range(address)
    return int(start), int(nbytes)


# -- streams and events


def make_stream(apart: bool = False) -> int:
    """`apart`: in no order with the legacy default stream."""
    return int(ask("cuStreamCreate", c_void_p, int(apart)))  # CU_STREAM_NON_BLOCKING is 1


def destroy_stream(stream: int) -> None:
    call("cuStreamDestroy", stream)


def wait(stream: int) -> None:
    call("cuStreamSynchronize", stream)


def wait_for_foreign(stream: int) -> None:
    """The number of a stream that somebody else made."""
    call("cuStreamSynchronize", stream)


def is_done(stream: int) -> bool:
    try:
        call("cuStreamQuery", stream)
    except Refused as error:
        if error.code != driver.NOT_READY:
            raise
        return False
    return True


def make_event() -> int:
    return int(ask("cuEventCreate", c_void_p, 0))


def destroy_event(event: int) -> None:
    call("cuEventDestroy", event)


def record(event: int, stream: int) -> None:
    call("cuEventRecord", event, stream)


def wait_for(stream: int, event: int) -> None:
    """Later work of `stream` starts after what `event` stands behind."""
    call("cuStreamWaitEvent", stream, event, 0)


def wait_event(event: int) -> None:
    call("cuEventSynchronize", event)


def seconds_between(start: int, end: int) -> float:
    """Waits for `end`."""
    wait_event(end)
    return float(ask("cuEventElapsedTime", ctypes.c_float, start, end)) * 1e-3


# -- programs

_ERROR_LOG, _ERROR_LOG_NBYTES = 5, 6  # CU_JIT_ERROR_LOG_BUFFER, .._SIZE_BYTES
_LOG_NBYTES = 16 << 10


def load(image: bytes) -> int:
    """A module. Raises: Refused, with the log of the driver's own compiler in it."""
    log = ctypes.create_string_buffer(_LOG_NBYTES)
    options = (ctypes.c_uint * 2)(_ERROR_LOG, _ERROR_LOG_NBYTES)
    values = (c_void_p * 2)(ctypes.addressof(log), _LOG_NBYTES)
    try:
        return int(ask("cuModuleLoadDataEx", c_void_p, image + b"\0", 2, options, values))
    except Refused as error:
        error.sentence = log.value.decode(errors="replace").strip() or error.sentence
        raise


def unload(module: int) -> None:
    call("cuModuleUnload", module)


def function_of(module: int, name: str) -> int:
    return int(ask("cuModuleGetFunction", c_void_p, module, name.encode()))


def kernel_facts(function: int) -> KernelFacts:
    which = (
        _function.NUM_REGS, _function.SHARED_SIZE_BYTES, _function.LOCAL_SIZE_BYTES,
        _function.MAX_THREADS_PER_BLOCK,
    )  # fmt: skip
    return KernelFacts(*(ask("cuFuncGetAttribute", ctypes.c_int, n, function) for n in which))


def allow_shared(function: int, nbytes: int) -> None:
    """More dynamic shared memory than the 48 KiB that any kernel may have."""
    call("cuFuncSetAttribute", function, _function.MAX_DYNAMIC_SHARED_SIZE_BYTES, nbytes)


STATUS = "status"  # what a launch gives


def launch_of(function: int) -> Any:
    return libcuda.functions()["cuLaunchKernel"]


def launch_refused(status: int) -> Refused:
    return libcuda.refused("cuLaunchKernel", status)
