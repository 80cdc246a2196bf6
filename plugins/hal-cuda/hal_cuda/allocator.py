"""A GPU's memory."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hal_core.allocator import LRUAllocator
from hal_core.errors import DeviceFault, HalError, InvalidArgument, OutOfMemory
from hal_cuda import driver
from hal_cuda.device import CUDADevice, keeping
from hal_cuda.interchange import array_interface
from hal_cuda.staging import LARGE_IN_NBYTES, LARGE_OUT_NBYTES, Staging

if TYPE_CHECKING:
    from hal_core.allocator import BufferSpec
    from hal_core.device import Compiled

_FILL_NBYTES = 64 << 10  # of a pattern that is sent from the host
_KDL_CUDA, _KDL_CUDA_HOST, _LEGACY_STREAM = 2, 3, 1  # DLPack's numbers


class CUDAAllocator(LRUAllocator[int]):
    """Opaque: a device address. Freeing is behind queued work.

    `host` is pinned host memory, which kernels reach over the bus. `external_ptr` is a device
    address of this GPU that somebody else allocated.
    """

    honours = frozenset({"nolru", "zero", "host", "external_ptr"})
    null = 0
    dlpack_pinned = _KDL_CUDA_HOST, 0  # of any device: DLPack gives pinned memory the number 0
    exports = MappingProxyType({"__cuda_array_interface__": array_interface})
    device: CUDADevice

    def __init__(self, device: CUDADevice) -> None:
        super().__init__(device)
        self._pooled = bool(device.info.vendor["memory_pools_supported"])
        self._staging = Staging(device)
        self._late = False  # the device has ended
        self._keeps_context = False  # for memory that is still out then
        self._pinned: set[int] = set()  # blocks of it
        self.dlpack_device = _KDL_CUDA, device.index
        self.dlpack_stream = _LEGACY_STREAM

    def _alloc(self, nbytes: int, options: BufferSpec) -> int:
        device = self.device
        try:
            with device.own("allocate"):
                if options.host:
                    address = int(device.api.allocate_host(nbytes))
                    self._pinned.add(address)
                    return address
                return int(device.api.allocate(nbytes, device.stream, self._pooled))
        except OutOfMemory as error:
            problem = error.problem
            with suppress(HalError), device.own("allocate"):
                free, total = device.api.memory_info()
                problem += f"; the driver has {free} bytes free of {total}"
            raise OutOfMemory("allocate", problem, got=nbytes, device=device.name) from None

    def _free(self, opaque: int, nbytes: int, options: BufferSpec) -> None:
        device = self.device
        if options.host:
            self._pinned.discard(opaque)  # before another thread may be given its address
        if self._late:
            return self._free_late(opaque, options)
        try:
            with device.visit("free"):
                if options.host:
                    try:
                        device.api.wait(device.stream)
                    finally:
                        device.api.free_host(opaque)
                else:
                    device.api.free(opaque, device.stream, self._pooled)
        except DeviceFault:
            pass  # the context is lost, as the next wait tells, and its memory with it
        return None

    def keep_context(self, lost: bool) -> bool:
        """The device ends. Whether memory is still out, which would go with the context.

        `lost`: of a context that is lost only what the host sees: an array may be over it.
        """
        with self._lock:
            self._drain()
            self._late = True
            self._keeps_context = bool(self._pinned if lost else self._live or self._dropped)
        if self._keeps_context:
            keeping.add(self)
        return self._keeps_context

    def let_go(self) -> None:
        """Of the context and of the memory in it, unless some is the host's."""
        if self._keeps_context and not self._pinned:
            self._keeps_context = False
            self.device.release_context()

    def _free_late(self, opaque: int, options: BufferSpec) -> None:
        """Somebody kept the memory after the device was closed."""
        if not self._keeps_context:
            return None  # it went with a context that was lost
        device = self.device
        try:
            with device.visit("free"):
                api = device.api
                api.free_host(opaque) if options.host else api.free(opaque, None, False)
        except DeviceFault:
            return self.let_go()
        if not (self._live or self._dropped):
            self.let_go()
        return None

    def _wrap(self, pointer: int, nbytes: int) -> int:
        device = self.device
        with device.own("external_ptr"):
            index, of_host, context = device.api.owner_of(pointer)
        if of_host or (index == device.index and context in (0, int(device.context))):
            return pointer
        problem = "no memory that the CUDA driver knows"
        fix = "Give a device address, such as int(gpuarray.gpudata)."
        if index == device.index:
            problem = "memory of another context of this device, which no kernel of ours reaches"
            fix = (
                "Share one: import pycuda.autoprimaryctx, or set HAL_CUDA_DRIVER=pycuda and open "
                "the device while PyCUDA's context is current."
            )
        elif index >= 0:
            there = f"{device.family}:{index}" if index else device.family
            problem = f"memory of another device, {there}"
            fix = "Make the buffer there and copy it: here.copy_from(there)."
        raise InvalidArgument(
            "external_ptr", problem, got=hex(pointer), device=device.name, fix=fix
        )

    def _offset(self, opaque: int, nbytes: int, offset: int) -> int:
        return opaque + offset

    def _host_sees(self, options: BufferSpec) -> bool:
        return options.host and options.external_ptr is None

    def _as_buffer(self, opaque: int, nbytes: int) -> memoryview:
        return memoryview((ctypes.c_ubyte * nbytes).from_address(opaque)).cast("B")

    def _copyin(self, dest: int, src: memoryview) -> None:
        device = self.device
        if src.nbytes > LARGE_IN_NBYTES:
            with device.own("copyin"):
                if self._staging.copy_in(dest, src):
                    return
        # Bytes of our own, as `src` may be pinned: the driver has copied them on return.
        copy_in = device.api.copy_in
        device.call("copyin", copy_in, dest, bytes(src), src.nbytes, device.stream)

    def _copyout(self, dest: memoryview, src: int) -> None:
        device = self.device
        if dest.nbytes >= LARGE_OUT_NBYTES:
            with device.own("copyout"):
                if self._staging.copy_out(dest, src):
                    return
        device.call("copyout", device.api.copy_out, dest, src, dest.nbytes, device.stream)
        device.call("copyout", device.api.wait, device.stream)

    def _transfer(self, dest: int, src: Any, nbytes: int, src_device: Compiled) -> bool:
        device = self.device
        if src_device is device:
            if abs(dest - src) < nbytes:
                return False  # ranges that overlap have no order in a copy of the driver
            device.call("copy_from", device.api.copy, dest, src, nbytes, device.stream)
            return True
        if not isinstance(src_device, CUDADevice):
            return False
        try:
            self._transfer_peer(dest, src, nbytes, src_device)
        except InvalidArgument:  # such as pinned memory of a third context
            return False
        except HalError:
            src_device._check_open("copy_from")  # another thread has closed it meanwhile
            raise
        return True

    def _transfer_peer(self, dest: int, src: int, nbytes: int, other: CUDADevice) -> None:
        """Behind the work of both devices, ahead of their later work."""
        device, api = self.device, self.device.api
        with other.own("copy_from"), other.events(1) as (written,):
            api.record(written, other.stream)
            with device.own("copy_from"), device.events(1) as (copied,):
                api.peer(other.context, device.index, other.index)
                api.wait_for(device.stream, written)
                api.copy_peer(dest, device.context, src, other.context, nbytes, device.stream)
                api.record(copied, device.stream)
                driver.use(other.context)
                api.wait_for(other.stream, copied)

    def _fill(self, dest: int, nbytes: int, pattern: bytes) -> None:
        device = self.device
        half = len(pattern) // 2
        if len(pattern) == 8 and pattern[:half] == pattern[half:]:
            pattern = pattern[:half]
        if len(pattern) < 8:
            fill, count = device.api.fill, nbytes // len(pattern)
            device.call("fill", fill, dest, pattern, count, device.stream)
            return
        # Wider than the driver fills: a part, then copies that double it.
        done = min(nbytes, _FILL_NBYTES)
        self._copyin(dest, memoryview(pattern * (done // len(pattern))))
        while done < nbytes:
            more = min(done, nbytes - done)
            device.call("fill", device.api.copy, dest + done, dest, more, device.stream)
            done += more

    def close(self) -> None:
        self._staging.close()
        super().close()
