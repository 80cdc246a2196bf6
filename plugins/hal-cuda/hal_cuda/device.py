"""NVIDIA GPUs and their memory."""

from __future__ import annotations

import time
from collections import deque
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hal_core.allocator import LRUAllocator
from hal_core.device import Compiled, DeviceInfo, Limits
from hal_core.errors import DeviceFault, InvalidArgument, OutOfMemory
from hal_cuda import driver
from hal_cuda.interchange import array_interface
from hal_cuda.staging import LARGE_NBYTES, Staging

if TYPE_CHECKING:
    from hal_core.spec import BufferSpec

_LONGEST_NAP = 1e-3  # seconds between two looks at a stream
_KDL_CUDA, _LEGACY_STREAM = 2, 1  # DLPack's numbers


def enumerate_devices(family: str) -> list[DeviceInfo]:
    """Facts of every GPU; no context is made. Raises: DeviceUnavailable."""
    api = driver.api()
    with driver.check("enumerate", family):
        facts = [api.facts(index) for index in range(api.count())]
    return [describe(f"{family}:{n}" if n else family, one) for n, one in enumerate(facts)]


def describe(name: str, facts: driver.Facts) -> DeviceInfo:
    numbers = facts.attributes
    capabilities = {
        "fp16", "fp64", "int64_atomics", "float_atomics", "timing", "pinned", "disassemble", "peer",
    }  # fmt: skip
    if facts.capability >= (8, 0):
        capabilities.add("bf16")
    return DeviceInfo(
        name=name,
        kind="gpu",
        title=facts.name,
        memory_nbytes=facts.memory_nbytes,
        arch="sm_{}{}".format(*facts.capability),
        compute_units=numbers["multiprocessor_count"],
        host_visible=False,
        limits=Limits(
            max_block=tuple(numbers[f"max_block_dim_{axis}"] for axis in "xyz"),  # type: ignore[arg-type]
            max_block_threads=numbers["max_threads_per_block"],
            max_grid=tuple(numbers[f"max_grid_dim_{axis}"] for axis in "xyz"),  # type: ignore[arg-type]
            shared_nbytes=numbers["max_shared_memory_per_block_optin"]
            or numbers["max_shared_memory_per_block"],
            view_alignment=16,  # what vector types of a `Source` kernel ask for
            max_alloc_nbytes=facts.memory_nbytes,
        ),
        capabilities=frozenset(capabilities),
        vendor={**numbers, "compute_capability": facts.capability},
    )


class CUDADevice(Compiled):
    """A GPU: its primary context, which other libraries of the process share, and one stream.

    Order: the stream waits for work on the legacy default stream, and that for it, so that arrays
    of PyCUDA or CuPy and buffers of ours may be used in turns.
    """

    def __init__(self, name: str, info: DeviceInfo) -> None:
        super().__init__(name, info)
        self.api = driver.api()
        self.last_launched = ""  # a program's name, for the text of a fault
        self.unused: deque[Any] = deque()  # modules of programs that are gone
        with driver.check("open", name):
            self.context = self.api.retain(self.index)
            try:
                driver.use(self.context)
                self.stream = self.api.make_stream()
            except BaseException:
                self._release_context()
                raise

    @property
    def driver_version(self) -> tuple[int, int]:
        """Of CUDA, the newest that the driver takes."""
        with self.check("open"):
            version: tuple[int, int] = self.api.version()
            return version

    def check(self, operation: str) -> driver.check:
        """`with device.check("copyin"):` - the context is current, refusals become ours."""
        driver.use(self.context)
        return driver.check(operation, self.name, self.last_launched)

    def _synchronize(self, timeout: float | None) -> bool:
        with self.check("wait"):
            if timeout is None:
                self.api.wait(self.stream)
                return True
            deadline = time.monotonic() + timeout
            nap = 20e-6
            while not self.api.is_done(self.stream):  # the driver has no wait with a limit
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                time.sleep(min(nap, left))
                nap = min(2 * nap, _LONGEST_NAP)
            return True

    def unload_unused(self) -> None:
        """The context is current."""
        while self.unused:
            self.api.unload(self.unused.popleft())

    def _close(self) -> None:
        try:
            with driver.check("close", self.name):
                driver.use(self.context)
                self.unload_unused()
                self.api.destroy_stream(self.stream)
        except DeviceFault:
            pass  # the context is lost, and what it held with it
        finally:
            self._release_context()

    def _release_context(self) -> None:
        driver.current.context = None
        with driver.check("close", self.name):
            self.api.release(self.index)


class CUDAAllocator(LRUAllocator[int]):
    """Opaque: a device address. Freeing is behind queued work.

    `host` is pinned host memory, which kernels reach over the bus. `external_ptr` is a device
    address of this GPU that somebody else allocated.
    """

    honours = frozenset({"nolru", "zero", "host", "external_ptr"})
    null = 0
    exports = MappingProxyType({"__cuda_array_interface__": array_interface})
    device: CUDADevice

    def __init__(self, device: CUDADevice) -> None:
        super().__init__(device)
        self._pooled = bool(device.info.vendor["memory_pools_supported"]) and device.api.POOLS
        self._staging = Staging(device)
        self.dlpack_device = _KDL_CUDA, device.index
        self.dlpack_stream = _LEGACY_STREAM

    def _alloc(self, nbytes: int, options: BufferSpec) -> int:
        device = self.device
        try:
            with device.check("allocate"):
                if options.host:
                    return int(device.api.allocate_host(nbytes))
                return int(device.api.allocate(nbytes, device.stream, self._pooled))
        except OutOfMemory as error:
            free, total = device.api.memory_info()
            raise OutOfMemory(
                "allocate", f"{error.problem}; the driver has {free} bytes free of {total}",
                got=nbytes, device=device.name,
            ) from None  # fmt: skip

    def _free(self, opaque: int, nbytes: int, options: BufferSpec) -> None:
        device = self.device
        if device.closed:
            return self._free_late(opaque, options)
        with device.check("free"):
            if options.host:
                device.api.wait(device.stream)
                device.api.free_host(opaque)
            else:
                device.api.free(opaque, device.stream, self._pooled)
        return None

    def _free_late(self, opaque: int, options: BufferSpec) -> None:
        """An export kept the memory after the device was closed. If nobody else holds the primary
        context it is gone already."""
        api, index = self.device.api, self.device.index
        try:
            context = api.retain(index)
            try:
                driver.use(context)
                api.free_host(opaque) if options.host else api.free(opaque, None, False)
            finally:
                driver.current.context = None
                api.release(index)
        except driver.Refused:
            pass

    def _wrap(self, pointer: int, nbytes: int) -> int:
        device = self.device
        with device.check("external_ptr"):
            if device.api.context_of(pointer):
                return pointer
        raise InvalidArgument(
            "external_ptr", "no memory that the CUDA driver knows", got=hex(pointer),
            device=device.name, fix="Give a device address, such as int(gpuarray.gpudata).",
        )  # fmt: skip

    def _offset(self, opaque: int, nbytes: int, offset: int) -> int:
        return opaque + offset

    def _copyin(self, dest: int, src: memoryview) -> None:
        device = self.device
        with device.check("copyin"):
            if src.nbytes >= LARGE_NBYTES:
                self._staging.copy_in(dest, src)
            else:  # the driver keeps a copy of pageable memory before it returns
                device.api.copy_in(dest, src, src.nbytes, device.stream)

    def _copyout(self, dest: memoryview, src: int) -> None:
        device = self.device
        with device.check("copyout"):
            if dest.nbytes >= LARGE_NBYTES:
                self._staging.copy_out(dest, src)
            else:
                device.api.copy_out(dest, src, dest.nbytes, device.stream)
                device.api.wait(device.stream)

    def _transfer(self, dest: int, src: Any, nbytes: int, src_device: Compiled) -> bool:
        device = self.device
        if src_device is device:
            if abs(dest - src) < nbytes:
                return False  # ranges that overlap have no order in a copy of the driver
            with device.check("copy_from"):
                device.api.copy(dest, src, nbytes, device.stream)
            return True
        if not isinstance(src_device, CUDADevice):
            return False
        self._transfer_peer(dest, src, nbytes, src_device)
        return True

    def _transfer_peer(self, dest: int, src: int, nbytes: int, other: CUDADevice) -> None:
        """Behind the work of both devices, ahead of their later work."""
        device, api = self.device, self.device.api
        with other.check("copy_from"):
            written = api.make_event()
            api.record(written, other.stream)
        with device.check("copy_from"):
            api.peer(other.context, device.index, other.index)
            api.wait_for(device.stream, written)
            api.copy_peer(dest, device.context, src, other.context, nbytes, device.stream)
            copied = api.make_event()
            api.record(copied, device.stream)
        with other.check("copy_from"):
            api.wait_for(other.stream, copied)
            api.destroy_event(written)
        with device.check("copy_from"):
            api.destroy_event(copied)

    def _fill(self, dest: int, nbytes: int, pattern: bytes) -> None:
        device = self.device
        half = len(pattern) // 2
        if len(pattern) == 8 and pattern[:half] == pattern[half:]:
            pattern = pattern[:half]
        if len(pattern) == 8:  # wider than the driver fills: a part, then copies that double it
            return super()._fill(dest, nbytes, pattern)
        with device.check("fill"):
            device.api.fill(dest, pattern, nbytes // len(pattern), device.stream)
        return None

    def close(self) -> None:
        self._staging.close()
        super().close()
