"""Queues of an OpenCL device: command queues of the driver."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from weakref import ref

from hal_core.concurrency import run_unless_busy
from hal_core.errors import Unsupported
from hal_core.profiling import events
from hal_core.profiling.instrumentation import record_queued
from hal_core.queue import OPERATIONS, Event, Failure, PolledEvent, PolledQueue, copy_by_host
from hal_core.queue.watcher import watch
from hal_opencl import driver, images
from hal_opencl.allocator import Opaque, enqueue_copy
from hal_opencl.driver import COMPLETE, STATUS, TIMED, cl
from hal_opencl.waiter import waiter

if TYPE_CHECKING:
    from hal_core.device.base import Compiled
    from hal_core.program import Program
    from hal_core.queue import Keep
    from hal_opencl.device import OpenCLDevice

# A copy of this many bytes takes milliseconds, in which Ctrl-C may wait.
_SHORT_NBYTES = 16 << 20
_RECORDABLE = frozenset(name[1:] for name in OPERATIONS)
_FAILED = -1  # the status of an event whose work failed: the driver drops what is queued behind it


class Command:
    """A command of the queue that was not seen complete yet."""

    __slots__ = ("events", "failure", "follows", "host", "keep", "marker", "name", "waited")
    finish = None  # the driver itself writes to the host's memory

    def __init__(self, name: str, keep: Keep, waited: Event | None) -> None:
        self.name, self.keep = name, keep  # "launch of saxpy"; what it needs until it is complete
        self.waited = waited  # the event that it waits for
        # None: the driver refused it, or never got it as earlier work failed. A command queue:
        # Ctrl-C came into the call, and nobody knows whether the driver got it there.
        self.marker: cl.Event | cl.CommandQueue | None = None
        self.failure: Failure | None = None  # why the driver refused it
        self.events: list[ref[Event]] = []  # those that it completes
        # What a copy reads or writes; the command of the default queue that it comes after.
        self.host = keep[0] if keep and keep[0].__class__ is memoryview else None
        self.follows: list[cl.Event] = keep[0] if keep and keep[0].__class__ is list else []

    @property
    def is_over(self) -> bool:
        marker = self.end()
        return marker is None or _is_over(marker)

    def end(self) -> cl.Event | None:
        """Return the marker: one behind the command if nobody knows whether the driver got it."""
        if isinstance(self.marker, cl.CommandQueue):
            commands = self.marker
            self.marker = cl.enqueue_marker(commands)
            commands.flush()
        return self.marker


def _is_over(event: cl.Event) -> bool:
    return bool(event.command_execution_status <= COMPLETE)


def _tell(
    user: cl.UserEvent, event: Event, waiting: ref[OpenCLQueue], kept: list[cl.Event]
) -> None:
    """Tell the driver that an event has happened. By a failure it drops what waits, and no more.

    `kept` has the command that waits: PoCL goes to it, also where it has failed before. Never
    waits: a thread that adds work may itself wait for what this thread does, in a finalizer.
    """
    if event._failure is None:
        _set(user, COMPLETE)
        return
    is_told = partial(_is_told, user, event, waiting)
    if not is_told():
        watch(is_told, kept.clear)


def _is_told(user: cl.UserEvent, event: Event, waiting: ref[OpenCLQueue]) -> bool:
    """Tell the driver of a failure, unless a thread is in a call of the queue that waits.

    PoCL drops what it has behind the wait, and would run what it is given later.
    """
    queue = waiting()
    if queue is not None:
        return run_unless_busy(queue._lock, partial(queue._drop_behind, event, user))
    _set(user, _FAILED)
    return True


def _set(user: cl.UserEvent, status: int) -> None:
    with suppress(cl.Error):  # done before, in a call that Ctrl-C ended
        user.set_status(status)


class OpenCLEvent(PolledEvent):
    """The end of a command in a command queue."""

    queue: OpenCLQueue
    _mark: Any  # a cl.Event; None for work that the driver never got

    def _poll(self) -> bool:
        mark = self._mark
        if mark is None or mark.get_info(STATUS) <= COMPLETE:  # else a look would not reach it
            self.queue.look()
        return self._done

    def _sleep(self, seconds: float) -> None:
        mark = self._mark
        if mark is None:
            super()._sleep(seconds)
        elif not self.queue.runs_short_copy(mark):
            waiter.wait(mark, self._poll, seconds, self.queue.device.awake)
        else:
            try:  # noqa: SIM105 - as in `_look`
                mark.wait()
            except cl.Error:  # the look behind the wait finds the failure
                pass


class OpenCLQueue(PolledQueue):
    """A command queue of the driver, in order and with timestamps.

    The default queue waits on the calling thread for what the driver alone does not bring about,
    and raises at once what the driver refuses: no failure comes to work without `queue=`. PoCL ends
    the process when a command fails to which nothing refers, as to all of those but the newest.

    Owns: the command queue, unless it is `borrowed`: the default queue's belongs to the device.
    """

    device: OpenCLDevice
    event_class = OpenCLEvent

    def __init__(
        self, device: OpenCLDevice, commands: cl.CommandQueue | None = None, name: str = ""
    ) -> None:
        super().__init__(device, name, is_borrowed=commands is not None)
        if commands is None:
            _, commands = driver.open_queue(device.hardware, device.name, device.context)
        self.commands = commands
        self._is_timed = bool(commands.properties & TIMED)
        self._is_default = commands is device.commands
        self.last_event: cl.Event | None = None  # of its last launch
        self.last_launched = ""
        self._recordable: Command | None = None  # a copy or fill, if the next event is its end

    # -- work

    def _add(
        self, name: str, keep: Keep, nbytes: int, enqueue: Callable[..., cl.Event], *args: Any,
        waited: Event | None = None,
    ) -> None:  # fmt: skip
        """Queue the command that `enqueue(*args)` adds, unless work before it has failed."""
        with self._lock:
            self._look()
            if self._known.lacks(keep):  # the first work on it here
                self._follow_default()
                self._known.add(keep)
            command = Command(name, keep, waited)
            self._recordable = None
            self._pending.append(command)  # first, as after Ctrl-C the driver may have the work
            try:
                if waited is not None and waited._failure is not None:
                    self._drops = True
                if not (self._drops or self._failure is not None):
                    command.marker = self.commands
                    if name == "event" or not events.open_profiles:
                        command.marker = enqueue(*args)
                    else:
                        work = partial(enqueue, *args)
                        command.marker = record_queued(self, name, waited, work, nbytes)
                    self.commands.flush()
            except cl.Error as error:
                why = driver.explain(error, name, self.device.name)
                command.marker = None
                if self._is_default:
                    self._pending.remove(command)
                    raise why from None
                command.failure = Failure(name, self.name, why)
                self._drops = True
            if name in _RECORDABLE:
                self._recordable = command

    def _follow_default(self) -> None:
        last = self.device.last_event
        if last is None or self._is_default or self.device.is_simulated:
            return
        if last.command_execution_status > COMPLETE:
            # The driver alone orders the two: this thread may be in a call of the default queue.
            kept = list[cl.Event]()  # without it PoCL ends the process if earlier work fails
            title = f"wait of {self.device.name}, {events.DEFAULT_QUEUE}"  # for a profile
            self._add(title, (kept,), 0, self._enqueue_follow, kept)

    def _enqueue_follow(self, kept: list[cl.Event]) -> cl.Event:
        default = self.device.commands
        kept += [cl.enqueue_marker(default)]
        default.flush()
        return cl.enqueue_barrier(self.commands, kept)

    def _drop_behind(self, event: Event, user: cl.UserEvent) -> None:
        if any(one.waited is event for one in list(self._pending)):
            self._drops = True
        _set(user, _FAILED)

    def look(self) -> None:
        run_unless_busy(self._lock, self._look)
        if self._pending:
            self._look_at_others()

    def _look_at_others(self) -> None:
        """Look at the queues whose events this one waits for, and at this one again behind them.

        One after the other, not one within the other: a thousand may wait in a row.
        """
        before = list[Event]()
        while True:
            chain: dict[OpenCLQueue, None] = {self: None}
            events, event = list[Event](), self._blocked_by()
            while isinstance(event, OpenCLEvent) and event.queue not in chain:
                chain[event.queue] = None
                events.append(event)
                event = event.queue._blocked_by()
            if events == before:
                return
            for queue in reversed(chain):
                run_unless_busy(queue._lock, queue._look)
            before = events

    def _blocked_by(self) -> Event | None:
        """Return what the next command waits for, if nothing but that is missing."""
        try:
            first: Command = self._pending[0]
        except IndexError:
            return None
        waited = first.waited
        return waited if waited is not None and not waited._done and first.is_over else None

    def _look(self) -> None:
        pending = self._pending
        while pending:
            done = pending[0]
            marker = done.marker if done.marker is not self.commands else done.end()
            status = COMPLETE if marker is None else marker.get_info(STATUS)
            # PoCL looks at a failed command again when what it comes after is over.
            if status > COMPLETE or (status < COMPLETE and not all(map(_is_over, done.follows))):
                break
            if done.waited is not None:
                if not done.waited._done:  # and of ours: `look` has looked at its queue
                    break
                done.failure = done.waited._failure
            elif status < COMPLETE:
                why = driver.explain(driver.failed_work(status), "wait", self.device.name)
                done.failure = Failure(done.name, self.name, why)
            if self._failure is None:
                self._failure = done.failure
            if (done.events or status < COMPLETE) and marker is not None and done.host is not None:
                try:  # noqa: SIM105 - suppress() takes longer than the wait
                    marker.wait()  # PyOpenCL's event lets go of the host's memory
                except cl.Error:
                    pass
            for reference in done.events:
                event = reference()
                if event is not None:
                    event._happen(self._failure)
            # Taken out last, as Ctrl-C may come. A callback of the event may have looked, too.
            if pending and pending[0] is done:
                del pending[0]

    def runs_short_copy(self, marker: cl.Event) -> bool:
        """Return whether the device has nothing to do but a short copy, which this marker ends."""
        device, pending = self.device, list(self._pending)
        if len(pending) != 1 or pending[0].marker is not marker or not self._sees_all_work:
            return False
        host, last = pending[0].host, device.last_event
        return (
            host is not None
            and host.nbytes <= _SHORT_NBYTES
            and (last is None or last.command_execution_status <= COMPLETE)
            and not any(one._has_work() for one in device._busy - {self})
        )

    def _launch(self, program: Any, geometry: Any, args: tuple[Any, ...], keep: Keep) -> None:
        launch = program._enqueue or program._bind()
        self._add(f"launch of {program.name}", keep, 0, launch, geometry, *args, self)

    def _launch_timed(
        self, program: Program, geometry: Any, args: tuple[Any, ...], keep: Keep
    ) -> float:
        self._check_timed(f"launch {program.name}")
        self.last_event = None
        self._launch(program, geometry, args, keep)
        event = self.last_event
        self.record().wait()
        return float(event.profile.end - event.profile.start) * 1e-9 if event is not None else 0.0

    def _add_replay(self, plan: Any) -> None:
        # PoCL ends the process when the commands of a replay fail, as they may behind a wait. A
        # native replay is for queues like the device's.
        self.look()
        may_fail = self._may_fail() and driver.is_pocl(self.device.hardware)
        native = plan.native() if self._is_timed and not may_fail else None
        if native is None:
            super()._add_replay(plan)
            self._recordable = None
        else:
            keep = *plan.keep(), native
            self._add("replay of a graph", keep, 0, native.enqueue, self.commands)

    def _copyin(self, dest: Opaque, src: memoryview, keep: Keep) -> None:
        kept: list[cl.Event] = []
        args = self.commands, dest[0], src, dest[1], None, False
        work: Any = driver.kept_event, kept, driver.enqueue_write, args
        if isinstance(dest[0], cl.Image):
            work = images.write, *args, kept
        self._add("copyin", (*keep, kept), src.nbytes, *work)

    def _copyout(self, dest: memoryview, src: Opaque, keep: Keep) -> None:
        kept: list[cl.Event] = []
        args = self.commands, src[0], dest, src[1], None, False
        work: Any = driver.kept_event, kept, driver.enqueue_read, args
        if isinstance(src[0], cl.Image):
            work = images.read, *args, kept
        self._add("copyout", (*keep, kept), dest.nbytes, *work)

    def _copy(self, dest: Opaque, src: Any, nbytes: int, src_device: Compiled, keep: Keep) -> None:
        if src_device is self.device:
            kept = list[cl.Event]()  # without it PoCL ends the process if the copy fails
            args = self.commands, dest, src, nbytes, kept
            self._add("copy", (*keep, kept), nbytes, enqueue_copy, *args)
        else:
            copy_by_host(self, dest, src, nbytes, src_device, keep)

    def _fill(self, dest: Opaque, nbytes: int, pattern: bytes, keep: Keep) -> None:
        if isinstance(dest[0], cl.Image):
            data = memoryview(pattern * (nbytes // len(pattern)))
            kept: list[cl.Event] = []
            args = self.commands, dest[0], data, 0, None, False, kept
            self._add("fill", (data, *keep, kept), nbytes, images.write, *args)
            return
        fill = cl.enqueue_fill_buffer
        self._add("fill", keep, nbytes, fill, self.commands, dest[0], pattern, dest[1], nbytes)

    # -- order

    def _record(self, event: Event) -> None:
        with self._lock:
            last, self._recordable = self._recordable, None
            if last is None or not self._sees_all_work:
                # The command's own event will do, unless it is over, as the queue may have been
                # idle since, or others may have put work behind it. A marker says when that is
                # done.
                over = not self._pending or self._pending[-1].is_over
                if over or not self._sees_all_work:
                    self._add("event", (), 0, cl.enqueue_marker, self.commands)
                last = self._pending[-1]
            event._mark = last.marker
            last.events.append(ref(event))
            if last not in self._pending:  # another thread has seen its end
                event._happen(self._failure)
        if not isinstance(event, OpenCLEvent):  # an event of another class does not poll
            after = self._record_end()  # also when another thread closes the queue meanwhile
            after._when_done(after._poll)

    def _wait(self, event: Event) -> None:
        # The driver of a simulator would wait in the call, deaf to Ctrl-C.
        if self.device.is_simulated or (self._is_default and self._needs_host(event)):
            event.wait()
            return
        event._is_over()  # a look: `_add` asks for its failure
        marker, kept = event._mark, list[cl.Event]()
        if self._needs_host(event):
            marker = cl.UserEvent(self.device.context)
            event._when_done(partial(_tell, marker, event, ref(self), kept))
        args = self.commands, [marker]
        work = driver.kept_event, kept, cl.enqueue_barrier, args
        self._add("wait", (event, marker), 0, *work, waited=event)

    def _needs_host(self, event: Event) -> bool:
        """Tell whether an event has failed, or may fail, or the driver does not know it."""
        if not isinstance(event, OpenCLEvent) or event.queue.device is not self.device:
            return True
        fails = event._failure is not None if event._done else event.queue._may_fail()
        return fails or event._mark is None

    def _may_fail(self) -> bool:
        """Tell whether work here has failed, or is behind an event that the host tells of.

        What a wait keeps is its event, and what the driver waits for.
        """
        pending = list(self._pending)  # first: a look notes a failure, and then takes out the wait
        waits = any(one.waited and isinstance(one.keep[1], cl.UserEvent) for one in pending)
        return waits or self._drops or self._failure is not None

    def _seconds_between(self, earlier: Event, later: Event) -> float:
        for event in (earlier, later):
            cast("OpenCLQueue", event.queue)._check_timed("seconds_since")
        with driver.check("seconds_since", self.device.name):
            return float(later._mark.profile.end - earlier._mark.profile.end) * 1e-9

    def _check_timed(self, operation: str) -> None:
        if not self._is_timed:
            raise Unsupported(
                operation, "the wrapped command queue has no timestamps", device=self.device.name,
                fix="Make it with properties=pyopencl.command_queue_properties.PROFILING_ENABLE.",
            )  # fmt: skip
