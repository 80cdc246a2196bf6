"""Mutants whose queues lose order, memory, failures or waits."""

import time

from mutants import around, mutant

from hal_core.buffer import Buffer
from hal_core.device.base import Compiled
from hal_core.queue import event as events
from hal_core.queue.base import Queue
from hal_core.queue.event import Event, Failure
from hal_core.queue.worker import Worker, WorkerQueue


@mutant("Q1", "queue", WorkerQueue, "_put_behind")
def queues_run_the_latest_work_first(inner, self, item):
    waiting = []
    is_work = isinstance(item, tuple) and item[2] != "wait"
    while is_work and not self._worker.items.empty():
        waiting.append(self._worker.items.get())
    inner(self, item)
    for item in waiting:
        self._put(item)


@mutant("Q1", "queue")
def waits_of_queues_do_nothing():
    WorkerQueue._wait = lambda self, event: None  # type: ignore[method-assign]


@mutant("Q1", "queue")
def waits_of_queues_wait_on_the_host():
    WorkerQueue._wait = lambda self, event: event._sleep(1.0)  # type: ignore[method-assign]


@mutant("Q1", "queue")
def one_queue_serves_all():
    shared = {}

    @around(Compiled, "_make_queue")
    def _make_queue(inner, self):
        if self not in shared:
            shared[self] = inner(self)
        return shared[self]


@mutant("Q1", "queue")
def the_default_queue_is_made_anew():
    Compiled.default_queue = property(  # type: ignore[assignment,method-assign]
        lambda self: self._make_default_queue()
    )


@mutant("Q2 Q1", "queue", WorkerQueue, "_record")
def events_happen_at_once(inner, self, event):
    event._happen(None)


@mutant("Q2_done", "queue")
def events_happen_late_and_only_when_waited_for():
    Event.done = property(lambda self: self._sleep(0.1) or self._done)  # type: ignore[assignment]


@mutant("Q2", "queue")
def waits_spin():
    def _sleep(self, seconds):
        until = time.monotonic() + seconds
        while not self._done and time.monotonic() < until:
            pass

    Event._sleep = _sleep  # type: ignore[method-assign]


@mutant("Q2", "queue", Event, "wait")
def a_wait_that_times_out_says_true(inner, self, timeout=None):
    inner(self, timeout)
    return True


@mutant("Q2", "queue")
def an_awaited_event_blocks_the_loop():
    def _await(self):
        self._sleep(0.02)
        return iter(())

    Event.__await__ = _await  # type: ignore[method-assign]


@mutant("Q2", "queue", Event, "seconds_since")
def seconds_between_events_are_nanoseconds(inner, self, earlier):
    return float(inner(self, earlier)) * 1e9


@mutant("Q3", "queue", WorkerQueue, "_call")
def queued_copies_keep_an_address_only(inner, self, method, args, keep):
    if method == "_copyin":
        args, keep = (args[0], memoryview(bytes(args[1]))), ()
    inner(self, method, args, keep)


@mutant("Q4", "queue")
def freed_blocks_do_not_wait_for_queues():
    Buffer._share = lambda self: None  # type: ignore[method-assign]


@mutant("Q4", "queue")
def done_work_keeps_its_memory():
    kept = []

    @around(WorkerQueue, "_put_behind")
    def _put_behind(inner, self, item):
        kept.append(item[3] if isinstance(item, tuple) and item[2] == "copy" else None)
        inner(self, item)


@mutant("Q4", "queue")
def a_dropped_queue_drops_its_work():
    def __del__(self):
        while not self._worker.items.empty():
            self._worker.items.get()

    WorkerQueue.__del__ = __del__  # type: ignore[attr-defined]


@mutant("Q4", "queue")
def devices_do_not_wait_for_queues():
    Compiled.synchronize = (  # type: ignore[method-assign]
        lambda self, timeout=None: self._synchronize(timeout)
    )


@mutant("Q4", "queue")
def closing_a_queue_does_not_wait():
    def close(self):
        self.closed = True

    Queue.close = close  # type: ignore[method-assign]


@mutant("Q5", "queue")
def a_failure_is_raised_once():
    told = set()

    @around(Event, "_raise_failure")
    def _raise_failure(inner, self, operation):
        if id(self._failure) not in told:
            told.add(id(self._failure))
            inner(self, operation)


@mutant("Q5", "queue", Worker, "serve")
def work_behind_a_failure_runs(inner, self, queue):
    Worker.failure = property(  # type: ignore[assignment]
        lambda self: None, lambda self, failure: None
    )
    inner(self, queue)


@mutant("Q5", "queue", Failure, "to_raise")
def a_failure_names_no_program(inner, self, operation):
    return inner(self._replace(work="work"), operation)


@mutant("Q5", "queue")
def failures_do_not_pass_from_queue_to_queue():
    def _wait(self, event):
        self._add(lambda: event._sleep(10.0), "wait", (event,))

    WorkerQueue._wait = _wait  # type: ignore[method-assign]


@mutant("Q8", "queue")
def circles_are_not_looked_for():
    Event._check_can_happen = lambda self: None  # type: ignore[method-assign]


@mutant("Q8", "queue", events, "obstacle")
def every_long_wait_is_called_a_circle(inner, event):
    return inner(event)[0], True
