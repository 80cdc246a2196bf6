"""The CPU as a device, and its memory."""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any

from hal_core import config
from hal_core.allocator import LRUAllocator
from hal_core.device import Compiled, DeviceInfo, Limits
from hal_core.errors import DeviceUnavailable
from hal_cpu import driver, processor
from hal_cpu.pool import Pool
from hal_cpu.running import Running

if TYPE_CHECKING:
    from hal_core.allocator import BufferSpec


def _thread_count(text: str) -> int:
    if not (text.strip().isdigit() and int(text)):
        raise ValueError("expected a number of threads, 1 or more")
    return min(int(text), _MAX_THREADS)


_MAX_THREADS = 1024  # more cores than hosts have; each thread costs a stack
THREADS = config.declare(
    "HAL_CPU_THREADS", 0, "threads that share a large launch; unset = usable cores", _thread_count
)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < math.inf:
        raise ValueError("expected a number of seconds, more than 0")
    return seconds


def _seed(text: str) -> int:
    if not text.strip().isdigit():
        raise ValueError("expected a whole number, 0 or more")
    return int(text)


CHECK_SECONDS = config.declare(
    "HAL_CPU_CHECK_SECONDS", 60.0, "how long a launch in checked mode may take", _seconds
)
CHECK_SEED = config.declare(
    "HAL_CPU_CHECK_SEED", 0, "another order of threads in checked mode; 0 = as numbered", _seed
)

_SMALL_NBYTES = 64 << 10  # below, a mapping of its own costs more than it gives
MAX_BLOCK_THREADS = 1024
_SHARED_NBYTES = 64 << 10  # on a worker's stack; more would leave the core's nearest caches
_CAPABILITIES = frozenset(
    {"fp64", "int64_atomics", "float_atomics", "timing", "pinned", "disassemble", "subprocess_fork"}
)


def describe() -> DeviceInfo:
    """Facts of this host. Raises: DeviceUnavailable where its objects cannot be loaded."""
    if processor.machine() not in ("x86-64", "aarch64") or not processor.is_linux():
        raise DeviceUnavailable(
            "open",
            f"hal-cpu runs on Linux on x86-64 and aarch64, this is {processor.system()}",
            device="CPU",
        )
    memory = processor.usable_memory()
    limits = Limits(
        max_block=(MAX_BLOCK_THREADS,) * 3,
        max_block_threads=MAX_BLOCK_THREADS,
        max_grid=(2**31 - 1,) * 3,
        shared_nbytes=_SHARED_NBYTES,
        view_alignment=1,
        max_alloc_nbytes=memory,
    )
    return DeviceInfo(
        name="CPU",
        kind="cpu",
        title=processor.cpu_title(),
        memory_nbytes=memory,
        arch=processor.cpu_arch(),
        compute_units=processor.usable_cores(),
        host_visible=True,
        limits=limits,
        capabilities=_CAPABILITIES,
        vendor={"flags": processor.cpu_flags()},
    )


class CPUDevice(Compiled):
    """The processor this process runs on, all usable cores of it as one device.

    Order: work is done when its call returns. Calls that overlap, from several threads, have no
    order among them and run at once.
    """

    checked = False  # whether it was opened under HAL_CHECK=1

    _pool: Pool | None = None

    def __init__(self, name: str, info: DeviceInfo) -> None:
        self.running = Running()  # one, or threads that launch first at once would note in two
        super().__init__(name, info)

    @property
    def pool(self) -> Pool:
        """Of the threads that share large launches; none is started before the first."""
        if self._pool is None:
            made = Pool(THREADS.read() or self.info.compute_units)
            if self._pool is None:  # else another thread was faster
                self._pool = made
        return self._pool

    def _after_fork(self) -> None:
        super()._after_fork()
        self.running.work.clear()  # of threads that only the parent has

    def _close(self) -> None:
        if self._pool is not None:
            self._pool.close()


class CPUAllocator(LRUAllocator[int]):
    """Ordinary memory; an opaque is an address, aligned to 64 bytes, or 2 MiB from 2 MiB on.

    Host memory is all there is, so `host` and `cpu_access` are honoured by any block.
    """

    honours = frozenset({"nolru", "zero", "external_ptr", "cpu_access", "host"})
    device: CPUDevice
    null = 0
    fresh_is_zero = True
    host_ordered = True

    def _alloc(self, nbytes: int, options: BufferSpec) -> int:
        if nbytes >= _SMALL_NBYTES:
            return driver.map_pages(nbytes, huge=nbytes >= driver.HUGE)
        address = driver.allocate_small(nbytes)
        if options.zero:
            ctypes.memset(address, 0, nbytes)
        return address

    def _free(self, opaque: int, nbytes: int, options: BufferSpec) -> None:
        if nbytes >= _SMALL_NBYTES:
            driver.unmap_pages(opaque, nbytes)
        else:
            driver.free_small(opaque)

    def _give_back(self, opaque: int, nbytes: int, options: BufferSpec) -> None:
        running = self.device.running
        if not (running.work and running.keep(self, opaque, nbytes, options)):
            super()._give_back(opaque, nbytes, options)

    def _wrap(self, pointer: int, nbytes: int) -> int:
        return pointer

    def _offset(self, opaque: int, nbytes: int, offset: int) -> int:
        return opaque + offset

    def _as_buffer(self, opaque: int, nbytes: int) -> memoryview:
        return driver.memory_at(opaque, nbytes)

    def _copyin(self, dest: int, src: memoryview) -> None:
        if src.nbytes <= driver.LARGE_COPY:
            driver.memory_at(dest, src.nbytes)[:] = src
        else:
            address, _holder = driver.address_of(src)
            with self.device.running.using(dest):
                ctypes.memmove(dest, address, src.nbytes)

    def _copyout(self, dest: memoryview, src: int) -> None:
        if dest.nbytes <= driver.LARGE_COPY:
            dest[:] = driver.memory_at(src, dest.nbytes)
        else:
            address, _holder = driver.address_of(dest)
            with self.device.running.using(src):
                ctypes.memmove(address, src, dest.nbytes)

    def _transfer(self, dest: int, src: Any, nbytes: int, src_device: Compiled) -> bool:
        if src_device is not self.device:
            return False
        if nbytes <= driver.LARGE_COPY:
            ctypes.memmove(dest, src, nbytes)
            return True
        with self.device.running.using(dest, src):
            ctypes.memmove(dest, src, nbytes)
        return True

    def _fill(self, dest: int, nbytes: int, pattern: bytes) -> None:
        if nbytes <= driver.LARGE_COPY:
            _repeat(dest, nbytes, pattern)
            return
        with self.device.running.using(dest):
            _repeat(dest, nbytes, pattern)


def _repeat(address: int, nbytes: int, pattern: bytes) -> None:
    if len(set(pattern)) == 1:
        ctypes.memset(address, pattern[0], nbytes)
        return
    ctypes.memmove(address, pattern, len(pattern))
    done = len(pattern)
    while done < nbytes:  # what is filled already is the source of the rest
        step = min(done, nbytes - done)
        ctypes.memmove(address + done, address, step)
        done += step
