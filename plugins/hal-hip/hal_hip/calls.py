"""The functions of the HIP runtime that this backend calls, through ctypes."""

from __future__ import annotations

import ctypes
import re
import struct
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hal_core.streams.driver import INVALID_VALUE, NOT_READY, Facts, KernelFacts, Refused
from hal_core.streams.library import HANDLE, LibraryDriver, Row, address_of

_P, _I, _U, _N, _S = (
    ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_size_t, ctypes.c_char_p
)  # fmt: skip
_A = HANDLE

_LONG: dict[str, Row] = {  # called without the GIL
    "hipGetDeviceCount": ((_I,), ()),  # starts the runtime
    "hipDeviceReset": ((), ()),
    "hipDeviceSynchronize": ((), ()),
    "hipMalloc": ((_A,), (_N,)),
    "hipMallocFromPoolAsync": ((_A,), (_N, _P, _P)),
    "hipMemPoolCreate": ((_A,), (_P,)),
    "hipMemPoolDestroy": ((), (_P,)),
    "hipMemPoolTrimTo": ((), (_P, _N)),
    "hipFree": ((), (_A,)),
    "hipFreeAsync": ((), (_A, _P)),
    "hipHostMalloc": ((_A,), (_N, _U)),
    "hipHostFree": ((), (_A,)),
    "hipMemcpyHtoDAsync": ((), (_A, _P, _N, _P)),
    "hipMemcpyDtoHAsync": ((), (_P, _A, _N, _P)),
    "hipMemcpyAsync": ((), (_A, _A, _N, _I, _P)),
    "hipMemcpyPeerAsync": ((), (_A, _I, _A, _I, _N, _P)),
    "hipMemsetD8Async": ((), (_A, ctypes.c_ubyte, _N, _P)),
    "hipMemsetD16Async": ((), (_A, ctypes.c_ushort, _N, _P)),
    "hipMemsetD32Async": ((), (_A, _I, _N, _P)),
    "hipStreamCreateWithFlags": ((_A,), (_U,)),
    "hipStreamDestroy": ((), (_P,)),
    "hipStreamSynchronize": ((), (_P,)),
    "hipEventSynchronize": ((), (_P,)),
    "hipModuleLaunchKernel": ((), (_P, *[_U] * 7, _P, _P, _P)),  # waits while the queue is full
    "hipModuleLoadData": ((_A,), (_P,)),
    "hipModuleUnload": ((), (_P,)),
}
_SHORT: dict[str, Row] = {  # called with the GIL, which is faster than to give it up
    "hipRuntimeGetVersion": ((_I,), ()),
    "hipDeviceGetName": ((ctypes.c_char * 256,), (_I, _I)),
    "hipDeviceGetAttribute": ((_I,), (_I, _I)),
    "hipDeviceTotalMem": ((_N,), (_I,)),
    "hipDeviceCanAccessPeer": ((_I,), (_I, _I)),
    "hipSetDevice": ((), (_I,)),
    "hipGetDevice": ((_I,), ()),
    "hipMemGetInfo": ((_N, _N), ()),
    "hipMemPoolSetAccess": ((), (_P, _P, _N)),
    "hipMemPoolSetAttribute": ((), (_P, _I, _P)),
    "hipPointerGetAttribute": ((_A,), (_I, _A)),  # 32 or 64 bits, into 64 that were zero
    "hipStreamQuery": ((), (_P,)),
    "hipStreamWaitEvent": ((), (_P, _P, _U)),
    "hipEventCreateWithFlags": ((_A,), (_U,)),
    "hipEventDestroy": ((), (_P,)),
    "hipEventRecord": ((), (_P, _P)),
    "hipEventElapsedTime": ((ctypes.c_float,), (_P, _P)),
    "hipModuleGetFunction": ((_A,), (_P, _S)),
    "hipFuncGetAttribute": ((_I,), (_I, _P)),
    "hipGetErrorName": ((), (_I,)),
    "hipGetErrorString": ((), (_I,)),
}
# The older one fills in the older layout.
_PROPERTIES = ("hipGetDevicePropertiesR0600", "hipGetDeviceProperties")
_PROPERTIES_NBYTES, _TITLE_NBYTES = 16 << 10, 256  # more than either layout has; the name is first
_ARCH = re.compile(rb"gfx[0-9a-f]+(?::[a-z0-9]+[+-])*")

# hipDeviceAttribute..., as hip_runtime_api.h numbers them since 5.0
_ATTRIBUTES = {
    "max_threads_per_block": 56, "max_block_dim_x": 26, "max_block_dim_y": 27,
    "max_block_dim_z": 28, "max_grid_dim_x": 29, "max_grid_dim_y": 30, "max_grid_dim_z": 31,
    "max_shared_memory_per_block": 74, "multiprocessor_count": 63, "warp_size": 87,
    "clock_rate": 5, "compute_capability_major": 23, "compute_capability_minor": 61,
    "memory_pools_supported": 88, "concurrent_kernels": 8, "ecc_enabled": 0, "integrated": 16,
    "can_map_host_memory": 3, "l2_cache_size": 19, "memory_clock_rate": 60,
    "global_memory_bus_width": 59,
}  # fmt: skip
_KERNEL_FACTS = 4, 1, 3, 0  # registers, shared, local, threads: KernelFacts' order
_MEMORY_TYPE, _ORDINAL = 2, 9  # HIP_POINTER_ATTRIBUTE_...
_PORTABLE_MAPPED = 0x01 | 0x02  # hipHostMallocPortable | hipHostMallocMapped
_ANY_DIRECTION = 4  # hipMemcpyDefault
_NON_BLOCKING = 1  # hipStreamNonBlocking
_PINNED, _NO_HANDLES, _ON_DEVICE = 1, 0, 1  # hipMemPoolProps: kind of memory, exports, place
_READ_WRITE = 3  # hipMemAccessFlagsProtReadWrite
_RELEASE_THRESHOLD = 4  # hipMemPoolAttrReleaseThreshold
_SET = {1: "hipMemsetD8Async", 2: "hipMemsetD16Async", 4: "hipMemsetD32Async"}
_LEGACY_STREAM = 1  # its number in the array interface; only newer runtimes know it by that


class HIP(LibraryDriver):
    """The HIP runtime. Its context is the device that is current on a thread: an index.

    It counts itself who uses a device, as HIP has no count of contexts.
    """

    def __init__(self, library: str) -> None:
        super().__init__(library, _LONG, _SHORT)
        self.library = ctypes.PyDLL(library)
        for name in ("hipGetErrorName", "hipGetErrorString"):
            self._functions[name][0].restype = _S  # type: ignore[attr-defined]
        self._users: Counter[int] = Counter()  # of each device
        self._lost: set[int] = set()  # devices whose last user resets them

    def refused(self, name: str, status: Any) -> Refused:
        parts: list[Any] = [self.function(f"hipGetError{part}") for part in ("Name", "String")]
        title, sentence = ((part(status) or b"").decode() for part in parts)
        return Refused(name, status, title or "an unknown code", sentence)

    def _call_or(self, unknown: int, name: str, *arguments: Any) -> int:
        """Return the integer result, or `unknown` if the driver calls an argument invalid."""
        try:
            return int(self.call(name, *arguments))
        except Refused as error:
            if error.code != INVALID_VALUE:
                raise
            return unknown

    # -- devices and contexts

    def version(self) -> tuple[int, int, int]:
        number = self.call("hipRuntimeGetVersion")
        return number // 10_000_000, number // 100_000 % 100, number % 100_000

    def count(self) -> int:
        return int(self.call("hipGetDeviceCount"))

    def facts(self, index: int) -> Facts:
        ask = "hipDeviceGetAttribute"
        attributes = {name: self._call_or(0, ask, n, index) for name, n in _ATTRIBUTES.items()}
        properties = ctypes.create_string_buffer(_PROPERTIES_NBYTES)
        name = next(name for name in _PROPERTIES if hasattr(self.library, name))
        status = getattr(self.library, name)(properties, index)
        if status:
            raise self.refused(name, status)
        # No attribute has the architecture with its features, and the layouts differ.
        found = _ARCH.search(properties.raw, _TITLE_NBYTES)
        if found is None:
            raise Refused(name, INVALID_VALUE, "a device without an architecture", "")
        nbytes = int(self.call("hipDeviceTotalMem", index))
        title = self.call("hipDeviceGetName", _TITLE_NBYTES, index).decode(errors="replace")
        return Facts(title, nbytes, attributes, found[0].decode())

    def retain(self, index: int) -> int:
        self._users[index] += 1
        return index

    def release(self, index: int, context: int, lost: bool) -> None:
        self._users[index] -= 1
        if lost:
            self._lost.add(index)
        if not self._users[index] and index in self._lost:
            self._lost.discard(index)
            self.set_current(index)
            self.call("hipDeviceReset")

    def set_current(self, context: int) -> None:
        self.call("hipSetDevice", context)

    def current_context(self) -> int:
        return int(self.call("hipGetDevice"))

    # -- memory

    def memory_info(self) -> tuple[int, int]:
        free, total = self.call("hipMemGetInfo")
        return int(free), int(total)

    def make_pool(self, index: int, keep_nbytes: int) -> int:
        facts = struct.pack("4iPNH54x", _PINNED, _NO_HANDLES, _ON_DEVICE, index, 0, 0, 0)
        pool = int(self.call("hipMemPoolCreate", facts))
        try:
            threshold = struct.pack("Q", keep_nbytes)
            self.call("hipMemPoolSetAttribute", pool, _RELEASE_THRESHOLD, threshold)
        except BaseException:
            self.destroy_pool(pool)
            raise
        return pool

    def share_pool(self, pool: int, owner: int, device: int) -> None:
        if self.call("hipDeviceCanAccessPeer", device, owner):
            access = struct.pack("3i", _ON_DEVICE, device, _READ_WRITE)
            with suppress(Refused):  # then the runtime copies through the host
                self.call("hipMemPoolSetAccess", pool, access, 1)

    def trim_pool(self, pool: int) -> None:
        self.call("hipMemPoolTrimTo", pool, 0)

    def destroy_pool(self, pool: int) -> None:
        self.call("hipMemPoolDestroy", pool)

    def allocate(self, nbytes: int, stream: Any, pool: int | None) -> int:
        if pool is not None:
            return int(self.call("hipMallocFromPoolAsync", nbytes, pool, stream))
        return int(self.call("hipMalloc", nbytes))

    def free(self, address: int, stream: Any, pooled: bool) -> None:
        if pooled:
            self.call("hipFreeAsync", address, stream)
        else:
            self.call("hipDeviceSynchronize")  # for memory of a pool hipFree need not wait
            self.call("hipFree", address)

    def allocate_host(self, nbytes: int) -> int:
        return int(self.call("hipHostMalloc", nbytes, _PORTABLE_MAPPED))

    def free_host(self, address: int) -> None:
        self.call("hipHostFree", address)

    def copy_in(self, dest: int, src: int | bytes, nbytes: int, stream: int) -> None:
        self.call("hipMemcpyHtoDAsync", dest, src, nbytes, stream)

    def copy_out(self, dest: Any, src: int, nbytes: int, stream: int) -> None:
        self.call("hipMemcpyDtoHAsync", address_of(dest, nbytes), src, nbytes, stream)

    def copy(self, dest: int, src: int, nbytes: int, stream: int) -> None:
        self.call("hipMemcpyAsync", dest, src, nbytes, _ANY_DIRECTION, stream)

    def copy_peer(
        self, dest: int, dest_context: int, src: int, src_context: int, nbytes: int, stream: int
    ) -> None:
        self.call("hipMemcpyPeerAsync", dest, dest_context, src, src_context, nbytes, stream)

    def fill(self, dest: int, pattern: bytes, count: int, stream: int) -> None:
        self.call(_SET[len(pattern)], dest, int.from_bytes(pattern, "little"), count, stream)

    def owner_of(self, address: int) -> tuple[int, bool, int]:
        ask = "hipPointerGetAttribute"
        index = self._call_or(-1, ask, _ORDINAL, address)
        if index == -1:
            return -1, False, 0
        # hipMemoryTypeHost, which 6.0 renumbered
        of_host = ctypes.c_int(self.call(ask, _MEMORY_TYPE, address)).value
        return index, of_host == int(self.version() >= (6,)), 0

    # -- streams and events

    def make_stream(self, independent: bool = False) -> int:
        return int(self.call("hipStreamCreateWithFlags", _NON_BLOCKING if independent else 0))

    def destroy_stream(self, stream: int) -> None:
        self.call("hipStreamDestroy", stream)

    def wait(self, stream: int) -> None:
        self.call("hipStreamSynchronize", stream)

    def is_done(self, stream: int) -> bool:
        try:
            self.call("hipStreamQuery", stream)
        except Refused as error:
            if error.code != NOT_READY:
                raise
            return False
        return True

    def make_event(self) -> int:
        return int(self.call("hipEventCreateWithFlags", 0))

    def destroy_event(self, event: int) -> None:
        self.call("hipEventDestroy", event)

    def record(self, event: int, stream: int) -> None:
        self.call("hipEventRecord", event, stream)

    def wait_for(self, stream: int, event: int) -> None:
        self.call("hipStreamWaitEvent", stream, event, 0)

    def wait_event(self, event: int) -> None:
        self.call("hipEventSynchronize", event)

    def seconds_between(self, start: int, end: int) -> float:
        self.wait_event(end)
        return float(self.call("hipEventElapsedTime", start, end)) * 1e-3

    # -- programs

    def load(self, image: bytes) -> int:
        return int(self.call("hipModuleLoadData", image))

    def unload(self, module: int) -> None:
        self.call("hipModuleUnload", module)

    def function_of(self, module: int, name: str) -> int:
        return int(self.call("hipModuleGetFunction", module, name.encode()))

    def kernel_facts(self, function: int) -> KernelFacts:
        ask = "hipFuncGetAttribute"
        return KernelFacts(*(int(self.call(ask, which, function)) for which in _KERNEL_FACTS))

    def launch_of(self, function: int) -> Callable[..., Any]:
        return self.function("hipModuleLaunchKernel")

    def launch_refused(self, status: Any) -> Refused:
        return self.refused("hipModuleLaunchKernel", status)
