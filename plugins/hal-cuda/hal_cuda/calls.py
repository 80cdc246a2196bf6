"""The driver functions that this backend calls, written once for both transports."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hal_core.streams.driver import (
    INVALID_VALUE,
    NOT_READY,
    Facts,
    KernelFacts,
    Refused,
    StreamDriver,
)

# CU_DEVICE_ATTRIBUTE_..., as cuda.h numbers them
_ATTRIBUTES = {
    "max_threads_per_block": 1, "max_block_dim_x": 2, "max_block_dim_y": 3, "max_block_dim_z": 4,
    "max_grid_dim_x": 5, "max_grid_dim_y": 6, "max_grid_dim_z": 7,
    "max_shared_memory_per_block": 8, "max_shared_memory_per_block_optin": 97,
    "multiprocessor_count": 16, "warp_size": 10, "clock_rate": 13,
    "compute_capability_major": 75, "compute_capability_minor": 76,
    "memory_pools_supported": 115, "concurrent_kernels": 31, "ecc_enabled": 32, "integrated": 18,
    "can_map_host_memory": 19, "unified_addressing": 41, "l2_cache_size": 38,
    "memory_clock_rate": 36, "global_memory_bus_width": 37,
}  # fmt: skip
_KERNEL_FACTS = 4, 1, 3, 0  # registers, shared, local, threads: KernelFacts' order
_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_CONTEXT, _MEMORY_TYPE, _IS_MANAGED, _ORDINAL = 1, 2, 8, 9  # CU_POINTER_ATTRIBUTE_...
_HOST = 1  # CU_MEMORYTYPE_HOST
_PORTABLE_MAPPED = 0x01 | 0x02  # CU_MEMHOSTALLOC_PORTABLE | _DEVICEMAP
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_PINNED, _NO_HANDLES, _ON_DEVICE = 1, 0, 1  # CUmemPoolProps: kind of memory, exports, place
_READ_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
_RELEASE_THRESHOLD = 4  # CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
_SET = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async"}

LOG_NBYTES = 16 << 10  # for what the driver's own compiler says of a module


class Calls(StreamDriver):
    """The driver, as the rest of hal_cuda sees it; a subclass is a transport.

    Handles are what the transport returns.
    """

    # Enumerations of the driver: a transport may need a type of its own.
    device_attribute: Callable[[int], Any] = int
    pointer_attribute: Callable[[int], Any] = int
    function_attribute: Callable[[int], Any] = int
    pool_attribute: Callable[[int], Any] = int

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a driver function by its name without version; return its result or results."""
        raise NotImplementedError

    def structure(self, name: str, packed: bytes) -> Any:
        """Make a structure of the driver, such as a CUmemPoolProps, from its bytes."""
        raise NotImplementedError

    def array(self, one: Any) -> Any:
        """Make an array of one structure."""
        return [one]

    def refused(self, name: str, status: Any) -> Refused:
        """Explain a status with the driver's own words."""
        raise NotImplementedError

    def _call_or(self, unknown: int, name: str, *arguments: Any) -> int:
        """Return the integer result, or `unknown` if the driver calls an argument invalid."""
        try:
            return int(self.call(name, *arguments))
        except Refused as error:
            if error.code != INVALID_VALUE:
                raise
            return unknown

    # -- devices and contexts

    def initialise(self) -> None:
        """Start the driver. Raises: OSError where there is none."""
        self.call("cuInit", 0)

    def version(self) -> tuple[int, int]:
        number = self.call("cuDriverGetVersion")
        return number // 1000, number % 1000 // 10

    def count(self) -> int:
        return int(self.call("cuDeviceGetCount"))

    def facts(self, index: int) -> Facts:
        device = self.call("cuDeviceGet", index)
        attributes: dict[str, Any] = {}
        for name, number in _ATTRIBUTES.items():
            which = self.device_attribute(number)
            # 0: the driver is older than the attribute.
            attributes[name] = self._call_or(0, "cuDeviceGetAttribute", which, device)
        title = self.call("cuDeviceGetName", 128, device).partition(b"\0")[0]
        nbytes = int(self.call("cuDeviceTotalMem", device))
        major, minor = (attributes[f"compute_capability_{part}"] for part in ("major", "minor"))
        attributes["compute_capability"] = major, minor
        return Facts(title.decode(errors="replace"), nbytes, attributes, f"sm_{major}{minor}")

    def retain(self, index: int) -> Any:
        return self.call("cuDevicePrimaryCtxRetain", index)

    def release(self, index: int, context: Any, lost: bool) -> None:
        self.call("cuDevicePrimaryCtxRelease", index)

    def set_current(self, context: Any) -> None:
        self.call("cuCtxSetCurrent", context)

    def current_context(self) -> Any:
        return self.call("cuCtxGetCurrent")

    # -- memory

    def memory_info(self) -> tuple[int, int]:
        free, total = self.call("cuMemGetInfo")
        return int(free), int(total)

    def make_pool(self, index: int, keep_nbytes: int) -> Any:
        facts = struct.pack("4iPNH54x", _PINNED, _NO_HANDLES, _ON_DEVICE, index, 0, 0, 0)
        pool = self.call("cuMemPoolCreate", self.structure("CUmemPoolProps", facts))
        try:
            threshold = self.structure("cuuint64_t", struct.pack("Q", keep_nbytes))
            which = self.pool_attribute(_RELEASE_THRESHOLD)
            self.call("cuMemPoolSetAttribute", pool, which, threshold)
        except BaseException:
            self.destroy_pool(pool)
            raise
        return pool

    def share_pool(self, pool: Any, owner: int, device: int) -> None:
        if self.call("cuDeviceCanAccessPeer", device, owner):
            packed = struct.pack("3i", _ON_DEVICE, device, _READ_WRITE)
            access = self.array(self.structure("CUmemAccessDesc", packed))
            with suppress(Refused):  # then the driver copies through the host
                self.call("cuMemPoolSetAccess", pool, access, 1)

    def trim_pool(self, pool: Any) -> None:
        self.call("cuMemPoolTrimTo", pool, 0)

    def destroy_pool(self, pool: Any) -> None:
        self.call("cuMemPoolDestroy", pool)

    def allocate(self, nbytes: int, stream: Any, pool: Any) -> int:
        if pool is not None:
            return int(self.call("cuMemAllocFromPoolAsync", nbytes, pool, stream))
        return int(self.call("cuMemAlloc", nbytes))

    def free(self, address: int, stream: Any, pooled: bool) -> None:
        if pooled:
            self.call("cuMemFreeAsync", address, stream)
        else:
            self.call("cuCtxSynchronize")  # of a pool's memory cuMemFree waits for nothing
            self.call("cuMemFree", address)

    def allocate_host(self, nbytes: int) -> int:
        return int(self.call("cuMemHostAlloc", nbytes, _PORTABLE_MAPPED))

    def free_host(self, address: int) -> None:
        self.call("cuMemFreeHost", address)

    def copy_in(self, dest: int, src: int | bytes, nbytes: int, stream: Any) -> None:
        self.call("cuMemcpyHtoDAsync", dest, src, nbytes, stream)

    def copy_out(self, dest: Any, src: int, nbytes: int, stream: Any) -> None:
        self.call("cuMemcpyDtoHAsync", dest, src, nbytes, stream)

    def copy(self, dest: int, src: int, nbytes: int, stream: Any) -> None:
        self.call("cuMemcpyAsync", dest, src, nbytes, stream)

    def copy_peer(
        self, dest: int, dest_context: Any, src: int, src_context: Any, nbytes: int, stream: Any
    ) -> None:
        self.call("cuMemcpyPeerAsync", dest, dest_context, src, src_context, nbytes, stream)

    def fill(self, dest: int, pattern: bytes, count: int, stream: Any) -> None:
        self.call(_SET[len(pattern)], dest, int.from_bytes(pattern, "little"), count, stream)

    def owner_of(self, address: int) -> tuple[int, bool, int]:
        ask, kinds = "cuPointerGetAttribute", self.pointer_attribute
        index = self._call_or(-1, ask, kinds(_ORDINAL), address)
        if index == -1:
            return -1, False, 0
        if int(self.call(ask, kinds(_MEMORY_TYPE), address)) == _HOST:
            return index, True, 0
        if self._call_or(0, ask, kinds(_IS_MANAGED), address):
            return index, False, 0
        return index, False, self._call_or(0, ask, kinds(_CONTEXT), address)  # 0: from a pool

    def range_of(self, address: int) -> tuple[int, int]:
        """Return the start and the size in bytes of the allocation that an address lies in."""
        start, nbytes = self.call("cuMemGetAddressRange", address)
        return int(start), int(nbytes)

    # -- streams and events

    def make_stream(self, independent: bool = False) -> Any:
        return self.call("cuStreamCreate", _NON_BLOCKING if independent else 0)

    def destroy_stream(self, stream: Any) -> None:
        self.call("cuStreamDestroy", stream)

    def wait(self, stream: Any) -> None:
        self.call("cuStreamSynchronize", stream)

    def is_done(self, stream: Any) -> bool:
        try:
            self.call("cuStreamQuery", stream)
        except Refused as error:
            if error.code != NOT_READY:
                raise
            return False
        return True

    def make_event(self) -> Any:
        return self.call("cuEventCreate", 0)

    def destroy_event(self, event: Any) -> None:
        self.call("cuEventDestroy", event)

    def record(self, event: Any, stream: Any) -> None:
        self.call("cuEventRecord", event, stream)

    def wait_for(self, stream: Any, event: Any) -> None:
        self.call("cuStreamWaitEvent", stream, event, 0)

    def wait_event(self, event: Any) -> None:
        self.call("cuEventSynchronize", event)

    def seconds_between(self, start: Any, end: Any) -> float:
        self.wait_event(end)
        return float(self.call("cuEventElapsedTime", start, end)) * 1e-3

    # -- programs

    def unload(self, module: Any) -> None:
        self.call("cuModuleUnload", module)

    def function_of(self, module: Any, name: str) -> Any:
        return self.call("cuModuleGetFunction", module, name.encode())

    def kernel_facts(self, function: Any) -> KernelFacts:
        ask, kinds = "cuFuncGetAttribute", self.function_attribute
        return KernelFacts(*(int(self.call(ask, kinds(n), function)) for n in _KERNEL_FACTS))

    def allow_shared(self, function: Any, nbytes: int) -> None:
        self.call("cuFuncSetAttribute", function, self.function_attribute(_DYNAMIC_SHARED), nbytes)

    def launch_refused(self, status: Any) -> Refused:
        return self.refused("cuLaunchKernel", status)
