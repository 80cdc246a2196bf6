"""Queues: work of one device in the order of the calls, beside other queues.

Three kinds are here or in the files beside this one. `WorkerQueue` needs nothing of a backend: a
thread does the work. `DirectQueue` is a device's default queue, where work is done as without
`queue=`. A backend whose driver has queues subclasses `Queue` itself.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Self

from hal_core.concurrency import OfThisProcess, fork_error, forkable, may_be_ctrl_c
from hal_core.device import opened
from hal_core.errors import ForkError, InvalidArgument, InvalidState, check_class
from hal_core.queue.ending import Rest, finish, reached
from hal_core.queue.event import Event, Failure, forget_over, seconds_of
from hal_core.signature import POINTER

if TYPE_CHECKING:
    from hal_core.buffer import Buffer
    from hal_core.device.base import Compiled
    from hal_core.program import Program

Keep = tuple[Any, ...]  # objects that queued work needs until it is done

# Method of an allocator, and of a queue with `keep` besides -> the call of a buffer that it serves.
OPERATIONS = {
    "_copyin": "copyin", "_copyout": "copyout", "_copy": "copy_from", "_fill": "fill",
}  # fmt: skip


class Queue(OfThisProcess):
    """Work of one device that runs in the order of the calls: `device.queue()` makes one.

    Order: nothing orders two queues, even if one is the default queue, except
    `later.wait(earlier.record())`, on any two devices.
    Owns: what its work needs: buffers' memory, programs and host memory. A queue to which nothing
    refers any more finishes its work. `close` and the device's `close` wait for it.
    Concurrency: any thread may use it; work runs in the order of the calls.
    """

    device: Compiled
    name: str  # "queue 2 of CPU"
    closed: bool
    forked: bool  # True in a forked child of the process that made it
    event_class: type[Event] = Event  # of `record()`
    _keeps_work = False  # True: its device need not keep the queue while it has work

    _sees_all_work = False  # True: `_has_work` sees all, as nobody else adds any
    _servers: Mapping[int, threading.Thread] = {}  # that work for it, by number
    _failure: Failure | None = None  # of work that is over; what comes behind it is dropped

    _instead = "Make one there: device.queue()."

    def __init__(self, device: Compiled, name: str = "") -> None:
        if type(self) is Queue:
            raise InvalidArgument("Queue", "its device makes a queue", fix="Write device.queue().")
        self.device = device
        self.name = name or f"queue {next(device._queue_numbers)} of {device.name}"
        self.closed = self.forked = False
        self._places = itertools.count(1)  # of waits and records, in the order of the calls
        self._waits: deque[tuple[int, Event]] = deque()  # those that may still be pending
        forkable.add(self)

    @staticmethod
    def wrap(obj: object, device: str | Compiled | None = None) -> Queue:
        """Make a queue over a vendor library's own, such as a PyOpenCL `CommandQueue`.

        Work of both runs in the order of the calls. Owns: nothing: `obj` is borrowed, and neither
        closed nor destroyed. Raises: InvalidArgument for an object that the device's backend does
        not know.
        """
        owner = opened(device, "wrap")
        owner._forget_ends()
        made = owner._wrap_queue(obj)
        if made is None:
            problem, got = "the backend knows no such queue", type(obj).__name__
            fix = "device.queue() makes one."
            raise InvalidArgument("wrap", problem, got=got, device=owner.name, fix=fix)
        owner._queues.add(made)
        return made

    def _call(self, method: str, args: tuple[Any, ...], keep: Keep) -> None:
        """Queue what a method of the device's allocator does, by the method of that name here."""
        getattr(self, method)(*args, keep)

    # -- what a backend fills in

    def _launch(self, program: Program, geometry: Any, args: tuple[Any, ...], keep: Keep) -> None:
        """Queue a launch. `keep` is released when the work is done, here and below."""
        raise self.device._missing(self, "_launch")

    def _launch_timed(
        self, program: Program, geometry: Any, args: tuple[Any, ...], keep: Keep
    ) -> float:
        """Queue a launch, wait for it, and return the seconds that the device spent."""
        raise self.device._missing(self, "_launch_timed")

    def _copyin(self, dest: Any, src: memoryview, keep: Keep) -> None:
        """Queue a copy from host memory, which `keep` keeps."""
        raise self.device._missing(self, "_copyin")

    def _copyout(self, dest: memoryview, src: Any, keep: Keep) -> None:
        """Queue a copy to host memory."""
        raise self.device._missing(self, "_copyout")

    def _copy(self, dest: Any, src: Any, nbytes: int, src_device: Compiled, keep: Keep) -> None:
        """Queue a copy from memory of any device to this one; the ranges may overlap."""
        raise self.device._missing(self, "_copy")

    def _fill(self, dest: Any, nbytes: int, pattern: bytes, keep: Keep) -> None:
        """Queue a fill; `nbytes` is a multiple of the pattern's length."""
        raise self.device._missing(self, "_fill")

    def _record(self, event: Event) -> None:
        """Let `event`, of `event_class` or a plain one, happen after the work queued so far."""
        raise self.device._missing(self, "_record")

    def _wait(self, event: Event) -> None:
        """Let later work begin after `event`, of any queue, has happened; fail if it failed."""
        raise self.device._missing(self, "_wait")

    def _synchronize(self, seconds: float) -> bool:
        """Wait for the work queued so far; False when the time has passed. Raises no failure.

        Raises: InvalidState when it can never end, as queues wait for each other.
        """
        return reached(self._last_event(), seconds)

    def _seconds_between(self, earlier: Event, later: Event) -> float:
        """Return the seconds between two events of the device; by default those of the host."""
        return (later._ns - earlier._ns) * 1e-9

    def _wait_rest(self, seconds: float) -> bool:
        """Wait for what a closed queue still has; optional: nothing is left.

        Other threads may have added it while `close` waited, or `close` ended by an error.
        """
        return True

    def _has_work(self) -> bool:
        """Return whether some work is not known to be done. Never waits."""
        return not self._record_end()._is_over()

    def _close(self) -> None:
        """Release what the driver has for the queue. Order: after its work."""

    # -- for everybody

    @property
    def running(self) -> str:
        """Name the work that runs now, such as "launch of saxpy"; empty where none is known."""
        return ""

    def record(self, event: Event | None = None) -> Event:
        """Return the event of all work queued so far; with `event`, record that one.

        Raises: InvalidState for an event that has happened or is recorded already.
        """
        self._check_open("record")
        if event is None:
            event = self.event_class()
        elif check_class(event, Event, "record", _AN_EVENT).queue is not None or event._is_over():
            fix = "An event happens once: make a new one."
            raise InvalidState("record", f"{event!r} has its place already", fix=fix)
        self._placed(event)
        self._keep()
        return event

    def wait(self, event: Event) -> Self:
        """Let work that is queued from now on begin after `event`; the caller does not wait.

        On the default queue this call waits itself, unless the event is of a queue of the same
        driver, and the driver alone brings it about. On the CPU and PYTHON it always does.
        Raises: InvalidArgument for something that is no event. When the work before the event
        failed, the work of this queue fails with it.
        """
        self._check_open("wait")
        owner = check_class(event, Event, "wait", _AN_EVENT).queue
        if owner is not None and owner.forked and not event._done:
            raise owner._fork_error("wait")
        if owner is not self:
            forget_over(self._waits)
            self._waits.append((next(self._places), event))
            if self.device._order is not None:
                self.device._order.waited(self, event)
            self._wait(event)
            self._keep()
        return self

    def synchronize(self, timeout: float | None = None) -> bool:
        """Wait for the work queued so far; return False when the timeout passes first.

        On a queue that is closed, or that another thread is closing, it waits for the remaining
        work and raises no failure; `close` raises it.

        Units: seconds. Raises: as `Event.wait`.
        """
        seconds = seconds_of(timeout, "synchronize")
        return self._last_event().wait(seconds)

    def close(self) -> None:
        """Wait for the work, and refuse more; a second call does nothing.

        What Ctrl-C ends refuses more, too; the work goes on, and the next call waits for it.
        A default queue stays open, as it lives as long as its device.
        Raises: DeviceFault naming the work that failed, InvalidState when the work can never end;
        the queue is closed in both cases.
        """
        if self.forked or (self.closed and self._wait_rest(0.0)):
            return
        if vars(self.device).get("default_queue") is self:
            self.synchronize()
            return
        try:
            self.synchronize()
        finally:
            self.closed = True
            self._close()

    def __enter__(self) -> Self:
        self._check_open("with")
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        running = self.running
        state = " closed" if self.closed else f", running {running}" if running else ""
        if not self.closed and any(not (one.queue or one._done) for _, one in list(self._waits)):
            state += ", waiting for an event that nobody has set"
        return f"<{type(self).__name__} {self.name}{state}>"

    # -- called by programs and buffers, with checked arguments

    def _add_launch(
        self, program: Program, geometry: Any, bufs: tuple[Buffer, ...], args: tuple[Any, ...],
        sizes: tuple[Any, ...] = (), wait: bool = False,
    ) -> float | None:  # fmt: skip
        """Queue a launch; with `wait` return its seconds. A graph saves `sizes`."""
        self._check_launch(program, bufs)
        keep = program, *[buffer._share() for buffer in bufs]
        if wait:
            return self._launch_timed(program, geometry, args, keep)
        self._launch(program, geometry, args, keep)
        self._keep()
        return None

    def _add_replay(self, plan: Any) -> None:
        """Queue all steps of a graph's plan. A backend may do it in one piece."""
        keep = plan.keep()
        for kind, program, geometry, args, _ in plan.steps:
            if program is not None:
                self._launch(program, geometry, args, keep)
            else:
                self._call(f"_{kind}", args, keep)

    def _add_memory_work(self, method: str, args: tuple[Any, ...], *bufs: Buffer) -> Event:
        """Queue what a method of OPERATIONS does; `bufs` are the device's buffers among `args`."""
        first = bufs[0]
        self._check_device(first._device, OPERATIONS[method])
        if first.nbytes:
            keep: Keep
            host: tuple[memoryview, bool] | None = None
            # Of host memory a view of its own: the caller may release his while the copy waits.
            if method == "_copyin":
                args = args[0], args[1][:]
                host, keep = (args[1], False), (args[1], first._share())
            elif method == "_copyout":
                args = args[0][:], args[1]
                host, keep = (args[0], True), (args[0], first._share())
            else:
                keep = first._share(), bufs[-1]._share(), bufs[-1]._device
            if self.device._order is not None:
                uses = zip(bufs, (method != "_copyout", False), strict=False)
                self.device._order.add(self, [(method[1:], uses, host)])
            self._call(method, args, keep)
        event = self._placed(self.event_class())  # as `record`, which would check all again
        self._keep()
        return event

    # -- helpers

    def _keep(self) -> None:
        """Let the device keep this queue until its work is done; called behind that work."""
        if not self._keeps_work:
            self.device._busy.add(self)

    def _record_end(self) -> Event:
        """Return an event of the work queued so far; where there is none, it has happened."""
        if not self._sees_all_work or self._has_work():
            return self._placed(self.event_class())
        event = self._stamped(self.event_class())
        if self.device._order is not None:
            self.device._order.recorded(self, event)
        event._happen(self._failure)
        return event

    def _last_event(self) -> Event:
        """Return an event of the work queued so far, also of a queue that is closed."""
        try:
            self._check_open("synchronize")
            return self._record_end()
        except InvalidState:
            if not self.closed:
                raise
            return self._stamped(Rest())

    def _placed(self, event: Event) -> Event:
        """Record an event behind the work queued so far.

        An error leaves it without a place. After a signal, such as Ctrl-C, nobody knows whether the
        queue has it, so it is recorded again: it happens at the first of its places.
        """
        try:
            if self.device._order is not None:
                self.device._order.recorded(self, event)
            self._record(self._stamped(event))
        except BaseException as error:
            if may_be_ctrl_c(error):
                self._record(self._stamped(event))
            else:
                event.queue, event._waits = None, ()
            raise
        return event

    def _stamped(self, event: Event) -> Event:
        event.queue, event._place, event._waits = self, next(self._places), self._waits
        return event

    def _is_in_call(self) -> bool:
        """Tell whether this thread is in a call that the queued work waits for."""
        return threading.current_thread() in self._servers.values() or self.device._is_in_call()

    def _leave(self, end: Event) -> None:
        """Have the device wait for the end of the work, as nobody refers to this queue any more."""
        self.device._ends.append(end)  # first: Ctrl-C may come behind it
        # Not all waits: the queues of those that are over would live as long as the end.
        end._waits = [one for one in self._waits if not one[1]._done]

    def _check_launch(self, program: Program, bufs: tuple[Buffer, ...]) -> None:
        self._check_device(program.device, f"launch {program.name}")
        if self.device._order is not None:
            params = program.signature.pointers
            uses = [(buf, one.kind == POINTER) for one, buf in zip(params, bufs, strict=True)]
            self.device._order.add(self, [(f"launch of {program.name}", uses, None)])

    def _check_device(self, device: Compiled, operation: str) -> None:
        if device is not self.device or self.closed or self.forked or device.closed:
            self._check_open(operation)  # first: the device may have been opened again since
            name, problem = device.name, "the queue belongs to another device"
            fix = f"{name}'s queue() makes one."
            raise InvalidArgument(operation, problem, got=self.name, device=name, fix=fix)

    def _check_open(self, operation: str) -> None:
        if self.forked:
            raise self._fork_error(operation)
        self.device._check_open(operation)
        if self.closed:
            refuse_as_closed(operation, self.name)

    def _fork_error(self, operation: str) -> ForkError:
        name = self.device.name
        if self.device.forked:
            return fork_error(operation, name)
        problem = f"the parent process made {self.name}, whose thread does not survive a fork"
        return ForkError(operation, problem, device=name, fix="Make a new one: device.queue().")

    def _stop(self) -> None:
        """Wait for the work at the end of the device, unless it can never end; then refuse more."""
        if self.forked:
            return
        if self.closed:
            finish(self._stamped(Rest()), self.device)
            return
        try:
            finish(self._record_end(), self.device)
        except InvalidState:
            if not self.closed:  # by another thread, which has waited for the work
                raise
        finally:
            self.closed = True
            self._close()

    def _after_fork(self) -> None:
        self.forked = True


_AN_EVENT = "queue.record() is one."


def refuse_as_closed(operation: str, queue: str, work: object = None) -> NoReturn:
    """Refuse work for a queue that is closed. Raises: InvalidState."""
    fix = "Make a new one: device.queue()."
    raise InvalidState(operation, f"{queue} is closed", fix=fix)


def checked(queue: object, operation: str, device: Compiled) -> Queue:
    """Return `queue` if it is one. Raises: InvalidArgument."""
    fix = "Give queue= one of device.queue(), or hal.Queue.wrap(...) of a library's queue."
    return check_class(queue, Queue, operation, fix, device.name)
