"""The processor of this host as a device."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hal_core import config
from hal_core.device.base import Compiled, DeviceInfo, Limits
from hal_core.errors import DeviceUnavailable
from hal_core.queue import WorkerQueue
from hal_cpu import processor
from hal_cpu.clock import CPUClock
from hal_cpu.in_flight import InFlight
from hal_cpu.settings import DEVICES, LOADER, THREADS
from hal_cpu.threads.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Callable

    from hal_core.graph import Step
    from hal_core.program import Program
    from hal_core.source import Binary
    from hal_cpu.allocator import CPUAllocator

_MAX_THREADS = 1024  # more cores than hosts have; each thread costs a stack
MAX_BLOCK_THREADS = 1024
_SHARED_NBYTES = 64 << 10  # on a worker's stack; more would not fit the core's nearest caches
_CAPABILITIES = frozenset({
    "fp64", "int64_atomics", "float_atomics", "subgroups", "timing", "pinned", "disassemble",
    "subprocess_fork",
})  # fmt: skip


def enumerate_devices(family: str) -> list[DeviceInfo]:
    """Return the facts of the host or of its parts. Raises: DeviceUnavailable."""
    count = DEVICES.read()
    if count == 1:
        return [describe(family)]
    cores, found = processor.usable_cores(), []
    for index in range(count):
        share = max(1, cores * (index + 1) // count - cores * index // count)
        whole = describe(f"{family}:{index}" if index else family)
        found.append(
            whole._replace(
                title=f"{whole.title}, {share} of {cores} cores",
                compute_units=share,
                memory_nbytes=whole.memory_nbytes // count,
            )
        )
    return found


def describe(name: str) -> DeviceInfo:
    """Return the facts of this host. Raises: DeviceUnavailable where kernels cannot be loaded."""
    if processor.machine() not in processor.MACHINES.get(sys.platform, ()):
        raise DeviceUnavailable(
            "open",
            "hal-cpu runs on Linux and macOS on x86-64 and aarch64, and on Windows on x86-64; this "
            f"is {processor.system()}",
            device=name,
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
        name=name, kind="cpu", title=processor.cpu_title(), memory_nbytes=memory,
        arch=processor.cpu_arch(), compute_units=processor.usable_cores(), host_visible=True,
        limits=limits, capabilities=_CAPABILITIES, vendor={"flags": processor.cpu_flags()},
    )  # fmt: skip


def open_device(name: str, info: DeviceInfo) -> CPUDevice:
    """Open the device: a checked one if HAL_CHECK=1 is set now, else an ordinary one."""
    if config.CHECK.read():
        from hal_cpu.checked.device import CheckedDevice

        return CheckedDevice(name, info)
    return CPUDevice(name, info)


class CPUDevice(Compiled):
    """The processor that this process runs on: all usable cores, or its share of HAL_CPU_DEVICES.

    Order: work is done when its call returns. Calls that overlap, from several threads, have no
    order among them and run at once; `synchronize` and `close` wait for those of other threads.
    """

    checked = False  # True: opened under HAL_CHECK=1

    def __init__(self, name: str, info: DeviceInfo) -> None:
        self.loader = LOADER.read()
        self.in_flight = InFlight()
        self._pool: Pool | None = None
        super().__init__(name, info)

    def _synchronize(self, timeout: float | None) -> bool:
        return not self.in_flight.work or self.in_flight.wait(timeout)

    def _close(self) -> None:
        self.in_flight.wait(None)  # for launches that began before their programs were unloaded
        if self._pool is not None:
            self._pool.close()

    def _make_queue(self) -> WorkerQueue:
        return WorkerQueue(self)  # work is done when its call returns

    def _make_clock(self) -> CPUClock:
        return CPUClock(self)

    @property
    def graph(self) -> Callable[[Compiled, list[Step]], Callable[[], None] | None] | None:
        """The function that makes a replay in one call of machine code."""
        from hal_cpu.graph import native_replay

        return native_replay

    def _after_fork(self) -> None:
        super()._after_fork()
        self.in_flight.work.clear()  # it belongs to threads that only the parent has

    @property
    def pool(self) -> Pool:
        """The threads that share large launches; the first such launch starts them."""
        with self._lock:
            if self._pool is None:
                threads = THREADS.read() or self.info.compute_units
                self._pool = Pool(min(threads, _MAX_THREADS))
            return self._pool

    def make_allocator(self) -> CPUAllocator:
        from hal_cpu.allocator import CPUAllocator

        return CPUAllocator(self)

    def make_program(self, binary: Binary) -> Program:
        from hal_cpu.program import CPUProgram

        return CPUProgram(self, binary)
