"""Queues that need no queue of a driver: a thread does the work, or the caller does."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any
from weakref import ref

from hal_core.concurrency import Servers, start_server, unless_of_a_signal
from hal_core.profiling import events
from hal_core.profiling.instrumentation import source_of
from hal_core.queue.base import Keep, Queue, refuse_as_closed
from hal_core.queue.ending import Freed
from hal_core.queue.event import Event, Failure, PolledEvent, forget_over

if TYPE_CHECKING:
    from hal_core.device.base import Compiled
    from hal_core.program import Program


class _Over(Event):
    """The end of a worker: the event of no queue, and of none that the host sets."""

    def __init__(self, servers: Servers) -> None:
        super().__init__()
        self._servers = servers

    def _poll(self) -> bool:
        return self._done or not self._servers  # without a thread there is no work


class Worker:
    """The work of one queue, and the thread that does it.

    The thread keeps this, not the queue. When the queue is closed or garbage, `gone` stands behind
    its work, and the thread ends there.
    """

    def __init__(self, queue: WorkerQueue, finish: Callable[[], object] | None) -> None:
        # (work, its arguments, name, keep), an Event, or `gone`
        self.items: SimpleQueue[Any] = SimpleQueue()
        self.pending: deque[None] = deque()  # an entry for each item that is not done
        # Python itself puts it there when it frees the queue: no Ctrl-C comes between.
        self.gone = ref(queue, self.items.put)
        self.freed: Freed  # likewise, among the ends that the device waits for
        self.servers: Servers = {}
        self.over = _Over(self.servers)  # all is done, and the thread ends
        self.failure: Failure | None = None
        self.running = ""
        self._finish = finish

    def serve(self, queue: str) -> None:
        """Do the work in its order; after a failure drop the rest, whose events have it then."""
        events.of_thread.queue = queue
        ending = False
        while not (ending and self.items.empty()):  # another thread may have put work behind it
            item = self.items.get()
            if item is self.gone:
                ending = True
            else:
                self._do(item, queue)
            item = None  # while the thread waits, nothing keeps the memory of work that is done
        self.over._happen(None)

    def _do(self, item: Any, queue: str) -> None:
        is_event = isinstance(item, Event)
        try:
            if is_event:
                self.pending.pop()  # first: whoever waits for the event may ask what is pending
                item._happen(self.failure)
            elif self.failure is None:
                self.running = item[2]
                item[0](*item[1])
                if self._finish is not None:
                    self._finish()
        except BaseException as error:
            # Its traceback would keep this frame, and so the memory of the work.
            self.failure = Failure(self.running, queue, error.with_traceback(None))
        self.running = ""
        if not is_event:
            self.pending.pop()


class WorkerQueue(Queue):
    """A queue whose work a thread of its own does, for backends without queues of their own.

    `finish` waits until the device has done the work so far; None where work is done on return.
    """

    _keeps_work = True  # its thread does
    _sees_all_work = True

    def __init__(
        self, device: Compiled, finish: Callable[[], object] | None = None, name: str = ""
    ) -> None:
        super().__init__(device, name)
        self._worker = Worker(self, finish)
        self._servers: Servers = self._worker.servers
        self._worker.over._waits = self._waits
        self._worker.freed = Freed(self, device._ends.append)
        self._worker.freed.end = self._worker.over
        # This decides what is taken: `_close` exchanges it. To read and to call it is one step.
        self._put = self._worker.items.put

    @property
    def running(self) -> str:
        """Name the work that runs now, such as "launch of saxpy"; empty while there is none."""
        return self._worker.running

    @property
    def _failure(self) -> Failure | None:  # type: ignore[override]  # only read
        return self._worker.failure

    def _add(self, work: Callable[[], object], name: str, keep: Keep) -> None:
        self._put_behind((work, (), name, keep))

    def _put_behind(self, item: Any) -> None:
        if not self._servers and not self.closed:
            start_server(self._servers, self.name, partial(self._worker.serve, self.name))
        self._worker.pending.append(None)  # first: if Ctrl-C comes between, too much is pending
        self._put(item)

    def _launch(self, program: Program, geometry: Any, args: tuple[Any, ...], keep: Keep) -> None:
        given = program, geometry, args, program._launch
        self._put_behind((_run, given, f"launch of {program.name}", keep))

    def _launch_timed(
        self, program: Program, geometry: Any, args: tuple[Any, ...], keep: Keep
    ) -> float:
        return self._seconds_of(partial(program._launch_timed, geometry, args), program, keep)

    def _seconds_of(self, launch: Callable[[], float], program: Program, keep: Keep) -> float:
        seconds: list[float] = []
        self._add(lambda: seconds.append(launch()), f"launch of {program.name}", keep)
        self.record().wait()
        return seconds[0]

    def _add_replay(self, plan: Any) -> None:
        self._add(plan.work(), "replay of a graph", plan.keep())

    def _call(self, method: str, args: tuple[Any, ...], keep: Keep) -> None:
        work = getattr(self.device.allocator, method)
        self._put_behind((work, args, method[1:], keep))  # no `partial`: fewer objects to collect

    def _record(self, event: Event) -> None:
        self._put_behind(event)

    def _wait(self, event: Event) -> None:
        worker, device, waits = self._worker, self.device.name, self._waits

        def wait() -> None:
            start = perf_counter_ns()
            while not event._is_over():
                event._sleep(_WAIT_SECONDS)
            _record_wait(event, device, start)
            worker.failure = event._failure
            forget_over(waits)  # the thread keeps them, and so would keep queues that nobody uses

        self._add(wait, "wait", (event,))

    def _has_work(self) -> bool:
        return bool(self._worker.pending)

    def _wait_rest(self, seconds: float) -> bool:
        if not self._servers:  # there is no work: whoever adds some starts a thread first
            return True
        # Once more, for a `close` that Ctrl-C has ended ahead of `_close`.
        self._worker.items.put(self._worker.gone)
        self._worker.over._sleep(seconds)
        return self._worker.over._done

    def _close(self) -> None:
        # What was put until now stands before the end.
        self._put = partial(refuse_as_closed, "queue work", self.name)
        self._worker.items.put(self._worker.gone)
        thread = self._servers.get(0)
        if thread is None or thread is threading.current_thread() or self._worker.pending:
            return  # what is left is given up by others, or ends later
        thread.join(_JOIN_SECONDS)

    def _after_fork(self) -> None:
        super()._after_fork()
        self._servers.clear()  # the child has no such thread


_WAIT_SECONDS = 3600.0  # of a thread that has nothing else to do
_JOIN_SECONDS = 1.0


def copy_by_host(
    queue: Queue, dest: Any, src: Any, nbytes: int, src_device: Compiled, keep: Keep,
    finish: Callable[[], object] | None = None,
) -> None:  # fmt: skip
    """Queue a copy from a device that shares no memory with that of `queue`.

    `finish`: as of the WorkerQueue that copies where the host cannot read the source in place.
    """
    allocator = src_device.allocator
    if allocator.host_ordered:  # the host sees it in place
        queue._copyin(dest, allocator._as_buffer(src, nbytes), keep)
        return
    helper = WorkerQueue(queue.device, finish, f"helper of {queue.name}")
    helper.wait(queue.record())
    helper._call("_copy", (dest, src, nbytes, src_device), keep)
    queue.wait(helper.record())


def _run(program: Program, geometry: Any, args: tuple[Any, ...], accepted: Any = None) -> None:
    """Launch as the program does now, which a profile may have replaced since it was accepted.

    Of a program that was unloaded since, the launch is the one of that time.
    """
    launch = accepted if accepted is not None and program._unloaded else program._launch
    if launch is not None:
        launch(geometry, *args)


def _record_wait(event: Event, device: str, start_ns: int) -> None:
    times = start_ns, perf_counter_ns()
    events.record(events.ProfileDeviceEvent, "wait", source_of(event), device, times)


class _IdleEvent(PolledEvent):
    """The event of a default queue: it has happened when the device is seen idle."""

    def _poll(self) -> bool:
        queue = self.queue
        if not self._done and queue is not None:
            try:
                if not queue.device._is_done(0.0):
                    return False
                self._happen(None)
            except unless_of_a_signal(Exception) as error:
                self._happen(Failure("work", queue.name, error))
        return self._done


class DirectQueue(Queue):
    """The default queue of a device without queues of its own: calls work as without `queue=`.

    Its `wait` waits on the calling thread, where its work is done or queued.
    """

    event_class = _IdleEvent
    _keeps_work = True

    def _launch(self, program: Program, geometry: Any, args: tuple[Any, ...], keep: Keep) -> None:
        _run(program, geometry, args)

    def _launch_timed(
        self, program: Program, geometry: Any, args: tuple[Any, ...], keep: Keep
    ) -> float:
        return program._launch_timed(geometry, args)

    def _call(self, method: str, args: tuple[Any, ...], keep: Keep) -> None:
        getattr(self.device.allocator, method)(*args)

    def _record(self, event: Event) -> None:
        if isinstance(event, _IdleEvent):
            if type(self) is DirectQueue:  # else its time would be that of the first look
                event._poll()
        else:  # it does not poll
            after = self._stamped(_IdleEvent())
            if after._poll():
                event._happen(after._failure)
            else:
                after._when_done(lambda: event._happen(after._failure))

    def _wait(self, event: Event) -> None:
        start = perf_counter_ns()
        event.wait()
        _record_wait(event, self.device.name, start)

    def _stop(self) -> None:
        self.closed = True
