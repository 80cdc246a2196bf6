"""Queues of an OpenCL device: command queues of the driver."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, ref

from hal_core.concurrency import fork_safe_lock, poll, run_unless_busy
from hal_core.profiling import record_queued
from hal_core.queue import Event, Failure, PolledEvent, Queue, WorkerQueue
from hal_opencl import driver
from hal_opencl.allocator import Opaque, overlap
from hal_opencl.driver import COMPLETE, cl

if TYPE_CHECKING:
    from hal_core.device.base import Compiled
    from hal_core.program import Program
    from hal_core.queue import Keep
    from hal_opencl.device import OpenCLDevice

_FAILED = -1  # the status of an event whose work failed: the driver drops what is queued behind it


class Command(NamedTuple):
    """A command of the queue that was not seen complete yet."""

    name: str  # "launch of saxpy"
    marker: cl.Event | None  # None: the driver refused it, or never got it as earlier work failed
    keep: Any  # memory and objects that it needs until it is complete
    event: Callable[[], Event | None] = lambda: None  # a weak reference to the event it completes
    waited: Event | None = None  # the event that it waits for
    failure: Failure | None = None  # why the driver refused it

    @property
    def status(self) -> int:
        """The driver's status: above COMPLETE the command is pending, below COMPLETE it failed."""
        return int(self.marker.command_execution_status if self.marker else COMPLETE)


class OpenCLEvent(PolledEvent):
    """A marker in a command queue."""

    queue: OpenCLQueue
    _mark: cl.Event | None

    def _poll(self) -> bool:
        self.queue.look()
        return self._done


class Latest:
    """A command queue and its last launch, in the attributes that a device has for them."""

    def __init__(self, commands: cl.CommandQueue) -> None:
        self.commands = commands
        self.last_event: cl.Event | None = None
        self.last_launched = ""


class _Dropped(PolledEvent):
    """The end of the commands of a queue that nobody refers to any more."""

    def __init__(self, pending: deque[Command]) -> None:
        super().__init__()
        self._pending = pending

    def _poll(self) -> bool:
        while self._pending and self._pending[0].status <= COMPLETE:
            self._pending.popleft()
        return not self._pending


class OpenCLQueue(Queue):
    """A command queue of the driver, in order and with timestamps.

    Owns: the command queue, unless it is `borrowed`: the default queue's belongs to the device.
    """

    device: OpenCLDevice
    event_class = OpenCLEvent

    def __init__(
        self, device: OpenCLDevice, commands: cl.CommandQueue | None = None, name: str = ""
    ) -> None:
        super().__init__(device, name)
        self._sees_all_work = commands is None
        if commands is None:
            _, commands = driver.open_queue(device.hardware, device.name, device.context)
        self.commands = commands
        self._latest = Latest(commands)
        self._lock = fork_safe_lock()
        # It must not refer to the queue: the collector finalizes all objects of a cycle, also the
        # memory that `__del__` keeps for running commands.
        self._pending: deque[Command] = deque()
        self._failure: Failure | None = None  # the first one of the complete commands
        self._drops = False  # True: the driver refused a command, so later ones are dropped
        self._launches: WeakKeyDictionary[Program, Callable[..., cl.Event]] = WeakKeyDictionary()

    # -- work

    def _add(self, name: str, enqueue: Callable[[], cl.Event], keep: Any, **more: Any) -> None:
        """Queue a command, unless work before it has failed."""
        with self._lock:
            self._look()
            if self._drops or self._failure is not None:
                self._pending.append(Command(name, None, keep, **more))
                return
            if name != "event":
                enqueue = partial(record_queued, self, name, more.get("waited"), enqueue)
            try:
                marker = enqueue()
                self.commands.flush()
                self._pending.append(Command(name, marker, keep, **more))
            except cl.Error as error:
                why = driver.explain(error, name, self.device.name)
                failure = Failure(name, self.name, why)
                self._pending.append(Command(name, None, keep, **more, failure=failure))
                self._drops = True

    def look(self) -> None:
        """Let the events of complete commands happen, and release what the commands needed.

        Does nothing while another thread works with the queue, or a caller of this method does.
        """
        run_unless_busy(self._lock, self._look)

    def _look(self) -> None:
        pending = self._pending
        while pending and self._is_over(pending[0]):
            done = pending[0]
            self._failure = self._failure or self._failure_of(done)
            event = done.event()
            if event is not None:
                event._happen(self._failure)
            # Taken out last, as Ctrl-C may come. A callback of the event may have looked, too.
            if pending and pending[0] is done:
                del pending[0]

    def _is_over(self, command: Command) -> bool:
        if command.status > COMPLETE or command.waited is None:
            return command.status <= COMPLETE
        if isinstance(command.waited, OpenCLEvent):  # it fails if the work before it failed
            command.waited.queue.look()
        return command.waited._done

    def _failure_of(self, command: Command) -> Failure | None:
        if command.waited is not None:
            return command.waited._failure
        if command.marker is not None:
            try:
                driver.raise_failure(command.marker)
            except cl.Error as error:
                why = driver.explain(error, "wait", self.device.name)
                return Failure(command.name, self.name, why)
        return command.failure

    def _launch(self, program: Any, geometry: Any, args: tuple[Any, ...], keep: Keep) -> None:
        launch = self._launches.get(program)
        if launch is None:
            launch = self._launches[program] = program.bind_to(self._latest)
        bound = launch
        self._add(f"launch of {program.name}", lambda: bound(geometry, *args), keep)

    def _launch_timed(
        self, program: Program, geometry: Any, args: tuple[Any, ...], keep: Keep
    ) -> float:
        self._latest.last_event = None
        self._launch(program, geometry, args, keep)
        event = self._latest.last_event
        self.record().wait()
        return float(event.profile.end - event.profile.start) * 1e-9 if event is not None else 0.0

    def _add_replay(self, plan: Any) -> None:
        native = plan.native()
        if native is None:
            super()._add_replay(plan)
        else:
            keep = plan.keep(), native
            self._add("replay of a graph", lambda: native.enqueue(self.commands), keep)

    def _copyin(self, dest: Opaque, src: memoryview, keep: Keep) -> None:
        write = driver.enqueue_write
        self._add("copyin", lambda: write(self.commands, dest[0], src, dest[1], None, False), keep)

    def _copyout(self, dest: memoryview, src: Opaque, keep: Keep) -> None:
        read = driver.enqueue_read
        self._add("copyout", lambda: read(self.commands, src[0], dest, src[1], None, False), keep)

    def _copy(self, dest: Opaque, src: Any, nbytes: int, src_device: Compiled, keep: Keep) -> None:
        allocator = src_device.allocator
        if src_device is self.device:
            if overlap(dest, src, nbytes):
                between = cl.Buffer(self.device.context, cl.mem_flags.READ_WRITE, nbytes), 0
                self._copy(between, src, nbytes, src_device, keep)
                src = between
            self._add("copy", lambda: self._copied(dest, src, nbytes), keep)
        elif allocator.host_ordered:  # the host reads the source in place
            self._copyin(dest, allocator._as_buffer(src, nbytes), keep)
        else:
            helper = WorkerQueue(self.device, name=f"helper of {self.name}")
            helper.wait(self.record())
            helper._call("_copy", (dest, src, nbytes, src_device), keep)
            self.wait(helper.record())

    def _copied(self, dest: Opaque, src: Opaque, nbytes: int) -> cl.Event:
        return cl.enqueue_copy(
            self.commands, dest[0], src[0],
            src_offset=src[1], dst_offset=dest[1], byte_count=nbytes,
        )  # fmt: skip

    def _fill(self, dest: Opaque, nbytes: int, pattern: bytes, keep: Keep) -> None:
        fill = cl.enqueue_fill_buffer
        self._add("fill", lambda: fill(self.commands, dest[0], pattern, dest[1], nbytes), keep)

    # -- order

    def _record(self, event: Event) -> None:
        def mark() -> cl.Event:
            marker: cl.Event = cl.enqueue_marker(self.commands)
            event._mark = marker
            return marker

        self._add("event", mark, None, event=ref(event))
        if not isinstance(event, OpenCLEvent):  # an event of another class does not poll
            after = self._record_end()  # also when another thread closes the queue meanwhile
            after._when_done(after._poll)

    def _wait(self, event: Event) -> None:
        if self.device.is_simulated:  # its driver would wait in the call, deaf to Ctrl-C
            event.wait()
            return
        ours = isinstance(event, OpenCLEvent) and event.queue.device is self.device
        marker = event._mark if ours else None
        if marker is None:
            marker = cl.UserEvent(self.device.context)
            user: cl.UserEvent = marker
            event._when_done(lambda: user.set_status(_FAILED if event._failure else COMPLETE))
        wait = lambda: cl.enqueue_barrier(self.commands, wait_for=[marker])  # noqa: E731
        self._add("wait", wait, event, waited=event)

    def _seconds_between(self, earlier: Event, later: Event) -> float:
        with driver.check("seconds_since", self.device.name):
            return float(later._mark.profile.end - earlier._mark.profile.end) * 1e-9

    # -- end

    def _has_work(self) -> bool:
        self.look()
        return bool(self._pending)

    def _wait_rest(self, seconds: float) -> bool:
        return poll(lambda: not self._has_work(), seconds)

    def __del__(self) -> None:
        # The driver finishes the commands. The device keeps what they need until it sees their end.
        pending = getattr(self, "_pending", None)
        if pending and not self.forked and not self.device.closed:
            rest = _Dropped(pending)
            if not rest._poll():
                self._leave(rest)
