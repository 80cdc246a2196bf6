"""The driver through cuda-bindings. Nothing else imports it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cuda.bindings import driver as cu

from hal_cuda import driver
from hal_cuda.driver import ATTRIBUTES, Facts, KernelFacts, Refused

_function = cu.CUfunction_attribute
_HOST = 1  # CU_MEMORYTYPE_HOST
_PORTABLE_MAPPED = 0x01 | 0x02  # CU_MEMHOSTALLOC_PORTABLE | _DEVICEMAP


def _call(function: Callable[..., tuple[Any, ...]], *arguments: Any) -> Any:
    """The results behind the status. Raises: Refused."""
    try:
        status, *results = function(*arguments)
    except ValueError as error:  # a code that cuda-bindings is too old to know
        code = str(error).partition(" is not a valid CUresult")[0]
        if not code.isdecimal():
            raise
        raise Refused(function.__name__, int(code), "an unknown code", "") from None
    if status:
        raise refused(function.__name__, status)
    return results[0] if len(results) == 1 else tuple(results)


def refused(call: str, status: Any) -> Refused:
    """What a status says."""
    code = int(status)
    _, name = cu.cuGetErrorName(cu.CUresult(code))
    _, sentence = cu.cuGetErrorString(cu.CUresult(code))
    return Refused(call, code, (name or b"an unknown code").decode(), (sentence or b"").decode())


# -- devices and contexts


def initialise() -> None:
    try:
        _call(cu.cuInit, 0)
    except RuntimeError as error:  # no libcuda: cuda-bindings has an error of its own for it
        raise OSError(str(error)) from None


def version() -> tuple[int, int]:
    number = _call(cu.cuDriverGetVersion)
    return number // 1000, number % 1000 // 10


def count() -> int:
    return int(_call(cu.cuDeviceGetCount))


def facts(index: int) -> Facts:
    device = _call(cu.cuDeviceGet, index)
    attributes = {}
    for name in ATTRIBUTES:
        attribute = getattr(cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name.upper()}")
        try:
            attributes[name] = int(_call(cu.cuDeviceGetAttribute, attribute, device))
        except Refused as error:
            if error.code != driver.INVALID_VALUE:
                raise
            attributes[name] = 0  # the driver is older than the attribute
    title = _call(cu.cuDeviceGetName, 128, device).partition(b"\0")[0].decode(errors="replace")
    return Facts(title, _call(cu.cuDeviceTotalMem, device), attributes)


def retain(index: int) -> Any:
    """The primary context of a device, which every library of the process shares."""
    return _call(cu.cuDevicePrimaryCtxRetain, index)


def release(index: int, context: Any) -> None:
    _call(cu.cuDevicePrimaryCtxRelease, index)


def set_current(context: Any) -> None:
    _call(cu.cuCtxSetCurrent, context)


def current_context() -> Any:
    return _call(cu.cuCtxGetCurrent)


def peer(context: Any, device: int, other: int) -> bool:
    """Let the current context of `device` reach the memory of `other`, whose context it is."""
    if not _call(cu.cuDeviceCanAccessPeer, device, other):
        return False
    try:
        _call(cu.cuCtxEnablePeerAccess, context, 0)
    except Refused as error:
        return error.code == driver.PEER_ALREADY  # else the driver copies through the host
    return True


# -- memory


def memory_info() -> tuple[int, int]:
    free, total = _call(cu.cuMemGetInfo)
    return int(free), int(total)


def allocate(nbytes: int, stream: Any, pooled: bool) -> int:
    if pooled:
        return int(_call(cu.cuMemAllocAsync, nbytes, stream))
    return int(_call(cu.cuMemAlloc, nbytes))


def free(address: int, stream: Any, pooled: bool) -> None:
    if pooled:
        _call(cu.cuMemFreeAsync, address, stream)
    else:
        _call(cu.cuMemFree, address)  # waits for the work of the whole device


def allocate_host(nbytes: int) -> int:
    """Pinned memory, reachable by every context at the same address."""
    return int(_call(cu.cuMemHostAlloc, nbytes, _PORTABLE_MAPPED))


def free_host(address: int) -> None:
    _call(cu.cuMemFreeHost, address)


def copy_in(dest: int, src: Any, nbytes: int, stream: Any) -> None:
    """`src`: a host address, or a flat buffer. Pageable memory may change on return."""
    _call(cu.cuMemcpyHtoDAsync, dest, src, nbytes, stream)


def copy_out(dest: Any, src: int, nbytes: int, stream: Any) -> None:
    _call(cu.cuMemcpyDtoHAsync, dest, src, nbytes, stream)


def copy(dest: int, src: int, nbytes: int, stream: Any) -> None:
    _call(cu.cuMemcpyDtoDAsync, dest, src, nbytes, stream)


def copy_peer(
    dest: int, dest_context: Any, src: int, src_context: Any, nbytes: int, stream: Any
) -> None:
    _call(cu.cuMemcpyPeerAsync, dest, dest_context, src, src_context, nbytes, stream)


def fill(dest: int, pattern: bytes, count: int, stream: Any) -> None:
    """`count` times a pattern of 1, 2 or 4 bytes."""
    names = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async"}
    function = getattr(cu, names[len(pattern)])
    _call(function, dest, int.from_bytes(pattern, "little"), count, stream)


def owner_of(address: int) -> tuple[int, bool, int]:
    """The index of the device that memory belongs to, whether it is the host's, and the context
    that alone reaches it; -1 where the driver does not know it, 0 for any context."""
    which = cu.CUpointer_attribute
    try:
        index = _call(cu.cuPointerGetAttribute, which.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address)
    except Refused as error:
        if error.code != driver.INVALID_VALUE:
            raise
        return -1, False, 0
    kind = _call(cu.cuPointerGetAttribute, which.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
    if int(kind) == _HOST:
        return int(index), True, 0
    return int(index), False, _context_of(address)


def _context_of(address: int) -> int:
    which = cu.CUpointer_attribute
    try:
        if _call(cu.cuPointerGetAttribute, which.CU_POINTER_ATTRIBUTE_IS_MANAGED, address):
            return 0
        return int(_call(cu.cuPointerGetAttribute, which.CU_POINTER_ATTRIBUTE_CONTEXT, address))
    except Refused as error:
        if error.code != driver.INVALID_VALUE:
            raise
        return 0  # memory from a pool has none


def range_of(address: int) -> tuple[int, int]:
    """Start and bytes of the allocation that an address lies in."""
    start, nbytes = _call(cu.cuMemGetAddressRange, address)
    return int(start), int(nbytes)


# -- streams and events


def make_stream(apart: bool = False) -> Any:
    """`apart`: in no order with the legacy default stream."""
    return _call(cu.cuStreamCreate, int(apart))  # CU_STREAM_NON_BLOCKING is 1


def destroy_stream(stream: Any) -> None:
    _call(cu.cuStreamDestroy, stream)


def wait(stream: Any) -> None:
    _call(cu.cuStreamSynchronize, stream)


def wait_for_foreign(stream: int) -> None:
    """The number of a stream that somebody else made."""
    _call(cu.cuStreamSynchronize, stream)


def is_done(stream: Any) -> bool:
    (status,) = cu.cuStreamQuery(stream)
    if status and int(status) != driver.NOT_READY:
        raise refused("cuStreamQuery", status)
    return not status


def make_event() -> Any:
    return _call(cu.cuEventCreate, 0)


def destroy_event(event: Any) -> None:
    _call(cu.cuEventDestroy, event)


def record(event: Any, stream: Any) -> None:
    _call(cu.cuEventRecord, event, stream)


def wait_for(stream: Any, event: Any) -> None:
    """Later work of `stream` starts after what `event` stands behind."""
    _call(cu.cuStreamWaitEvent, stream, event, 0)


def wait_event(event: Any) -> None:
    _call(cu.cuEventSynchronize, event)


def seconds_between(start: Any, end: Any) -> float:
    """Waits for `end`."""
    wait_event(end)
    return float(_call(cu.cuEventElapsedTime, start, end)) * 1e-3


# -- programs

_ERROR_LOG = cu.CUjit_option.CU_JIT_ERROR_LOG_BUFFER
_ERROR_LOG_NBYTES = cu.CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
_LOG_NBYTES = 16 << 10


def load(image: bytes) -> Any:
    """A module. Raises: Refused, with the log of the driver's own compiler in it."""
    log = bytes(_LOG_NBYTES)  # which the driver writes into: cuda-bindings takes nothing else
    options = [_ERROR_LOG, _ERROR_LOG_NBYTES]
    status, module = cu.cuModuleLoadDataEx(image + b"\0", len(options), options, [log, _LOG_NBYTES])
    if status:
        error = refused("cuModuleLoadDataEx", status)
        said = log.partition(b"\0")[0].decode(errors="replace").strip()
        error.sentence = said or error.sentence
        raise error
    return module


def unload(module: Any) -> None:
    _call(cu.cuModuleUnload, module)


def function_of(module: Any, name: str) -> Any:
    return _call(cu.cuModuleGetFunction, module, name.encode())


def kernel_facts(function: Any) -> KernelFacts:
    numbers = (
        _call(cu.cuFuncGetAttribute, getattr(_function, f"CU_FUNC_ATTRIBUTE_{name}"), function)
        for name in ("NUM_REGS", "SHARED_SIZE_BYTES", "LOCAL_SIZE_BYTES", "MAX_THREADS_PER_BLOCK")
    )
    return KernelFacts(*map(int, numbers))


def allow_shared(function: Any, nbytes: int) -> None:
    """More dynamic shared memory than the 48 KiB that any kernel may have."""
    which = _function.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    _call(cu.cuFuncSetAttribute, function, which, nbytes)


STATUS = "(status,)"  # what a launch gives


def launch_of(function: Any) -> Any:
    return cu.cuLaunchKernel


def launch_refused(status: Any) -> Refused:
    return refused("cuLaunchKernel", status)
