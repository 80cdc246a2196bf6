"""The CPU as a device."""

from __future__ import annotations

import math

from hal_core import config
from hal_core.device import Compiled, DeviceInfo, Limits
from hal_core.errors import DeviceUnavailable
from hal_cpu import processor
from hal_cpu.in_flight import Running
from hal_cpu.threads.pool import Pool


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
