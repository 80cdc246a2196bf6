"""Metal devices: their facts, their command queue, and the work that is in flight."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from hal_core.concurrency import fork_safe_lock, poll
from hal_core.device.base import Compiled, DeviceInfo, Limits
from hal_core.errors import DeviceFault, DeviceUnavailable
from hal_metal import driver
from hal_metal.clock import MetalClock
from hal_metal.driver import Work

if TYPE_CHECKING:
    from hal_core.graph import Step
    from hal_metal.graph import Replay
    from hal_metal.queue import MetalQueue

_MAX_BLOCKS = 2**31 - 1
MOST_PENDING = 512  # command buffers that are kept without asking whether they are done
KEPT_LIBRARIES = 32  # of the images that were used last
_NOTHING_NBYTES = 16
VIEW_ALIGNMENT = 16  # the largest element of a `device` pointer: float4


def enumerate_devices(family: str) -> list[DeviceInfo]:
    """Return the facts of every GPU, without a queue. Raises: DeviceUnavailable."""
    with driver.check("enumerate METAL"):
        found = driver.find_devices()
        return [describe(f"{family}:{n}" if n else family, one) for n, one in enumerate(found)]


def describe(name: str, hardware: Any) -> DeviceInfo:
    """Translate Metal's facts of one GPU."""
    facts = driver.read_facts(hardware)
    capabilities = {"timing", "pinned", "fp16", "graphs", "images"}
    if facts.apple_family:
        capabilities.add("subgroups")
    x, y, z = facts.max_block
    version, build = driver.system()
    return DeviceInfo(
        name=name,
        kind="gpu",
        title=facts.name,
        memory_nbytes=facts.memory_nbytes,
        arch=f"apple{facts.apple_family}" if facts.apple_family else "mac",
        compute_units=0,  # Metal does not tell
        host_visible=True,
        limits=Limits(
            max_block=(x, y, z),
            max_block_threads=x,  # of one pipeline it may be fewer
            max_grid=(_MAX_BLOCKS, _MAX_BLOCKS, _MAX_BLOCKS),
            shared_nbytes=facts.shared_nbytes,
            view_alignment=VIEW_ALIGNMENT,
            max_alloc_nbytes=facts.max_buffer_nbytes,
        ),
        capabilities=frozenset(capabilities),
        vendor={
            "registry_id": facts.registry_id,
            "unified_memory": facts.unified,
            "system_version": version,
            "system": build,
        },
    )


class MetalDevice(Compiled):
    """One GPU: a command queue in the order of the calls, and the work in flight.

    Raises: DeviceUnavailable for a GPU with memory of its own, which the host does not see.
    """

    def __init__(self, name: str, info: DeviceInfo) -> None:
        super().__init__(name, info)
        if not info.vendor["unified_memory"]:
            raise DeviceUnavailable(
                "open", "the GPU has memory of its own (hasUnifiedMemory is false)", device=name,
                fix="hal-metal computes in the host's memory: use a Mac with Apple silicon.",
            )  # fmt: skip
        self.pending: deque[Work] = deque()  # committed or about to be, oldest first
        self.libraries: OrderedDict[bytes, Any] = OrderedDict()  # of the last images
        self.transfer_kernels: dict[str, Any] = {}  # pipelines of our own
        self._failures: list[DeviceFault] = []  # that no wait has raised yet
        self._settling = fork_safe_lock()
        with driver.check("open", name):
            found = driver.find_devices()
            if self.index >= len(found):
                raise DeviceUnavailable(
                    "open", "the device is no longer there", got=self.index, device=name
                )
            self.hardware = found[self.index]
            try:
                self.commands = driver.open_queue(self.hardware)
                # Bound in place of empty buffers: Metal ends the process if nothing is bound there.
                self.nothing = driver.allocate(self.hardware, _NOTHING_NBYTES)
            except driver.Refused as error:
                raise DeviceUnavailable("open", str(error), device=name) from None

    def _synchronize(self, timeout: float | None) -> bool:
        return self.wait_for(None, math.inf if timeout is None else timeout)

    def _close(self) -> None:
        self.libraries.clear()
        self.transfer_kernels.clear()
        with self._settling:
            self.pending.clear()  # another thread may have queued some since the last wait
        del self.commands, self.nothing

    def _make_queue(self) -> MetalQueue:
        from hal_metal.queue import MetalQueue

        return MetalQueue(self)

    def _wrap_queue(self, obj: object) -> MetalQueue | None:
        from hal_metal.queue import MetalQueue

        with driver.check("wrap", self.name):
            if not driver.is_queue(obj, self.commands):
                return None
        return MetalQueue(self, obj, f"a borrowed queue of {self.name}")

    def _make_clock(self) -> MetalClock:
        return MetalClock(self)

    @property
    def graph(self) -> Callable[[Compiled, list[Step]], Replay | None]:
        """The function that makes a replay in one command buffer."""
        from hal_metal.graph import native_replay

        return native_replay

    def wait_for(self, work: Work | None, timeout: float = math.inf) -> bool:
        """Wait for all work up to `work`, or queued so far; return False when the timeout passes.

        Ctrl-C ends the wait, not the work. Raises: DeviceFault for work that failed since the last
        wait.
        """
        reached = self.reach(work, timeout)
        if self._failures:
            with self._settling:
                failures, self._failures = self._failures, []
            if failures:
                raise failures[0]
        return reached

    def reach(self, work: Work | None, timeout: float = math.inf) -> bool:
        """Do as `wait_for`, and leave failures to the next wait."""
        deadline = monotonic() + timeout
        last = work or self.newest()
        while last is not None and not last.done:
            try:
                first = self.pending[0]
            except IndexError:  # another thread is about to note that it is done
                first = last
            if not poll(partial(_is_over, first), deadline - monotonic()):
                return False
            self._settle(first)
        return True

    def newest(self) -> Work | None:
        """Return the work that was queued last, unless it is known to be done."""
        try:
            return self.pending[-1]
        except IndexError:
            return None

    def settle(self) -> None:
        """Forget work that is done, and note what failed of it."""
        while len(self.pending) > MOST_PENDING // 2:
            first = self.pending[0]
            if not _is_over(first):
                return
            self._settle(first)

    def submit(self, name: str, encode: Any) -> Work:
        """Queue a command buffer that `encode(commands)` has filled. Raises: Refused."""
        work = Work(driver.make_commands(self.commands), name)
        encode(work.commands)
        try:
            self.pending.append(work)
            driver.commit(work)
        except BaseException:
            self.withdraw(work)
            raise
        return work

    def keep_library(self, image: bytes, library: Any) -> None:
        """Keep the library of an image for the programs that are loaded next."""
        self.libraries[image] = library
        while len(self.libraries) > KEPT_LIBRARIES:
            self.libraries.popitem(last=False)

    def withdraw(self, work: Work) -> None:
        """Forget work whose commit was refused or interrupted, unless it was committed."""
        if not driver.is_committed(work):
            with self._settling:
                work.done = True
                if work in self.pending:
                    self.pending.remove(work)

    def _settle(self, work: Work) -> None:
        with self._settling:
            if work.done:
                return
            fault = driver.fault_of(work, self.name)
            if fault is not None:
                self._failures.append(fault)
            work.done = True
            if work in self.pending:  # or the device was closed
                self.pending.remove(work)

    def __getattr__(self, name: str) -> Any:
        if name in ("commands", "nothing"):  # another thread closed the device after our check
            self._check_open(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _is_over(work: Work) -> bool:
    return work.done or driver.is_over(work)
