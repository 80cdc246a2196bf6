"""The states of queues, events and awaits (docs/design/queues.md), disturbed between any two."""

import asyncio
import gc
import logging
import os
import threading
from collections import deque
from functools import partial
from pathlib import Path

import interrupted
import pytest
from ctrl_c import Scene, press_everywhere, raise_in_handler
from fake_backend import put
from in_threads import wait_until

import hal_core as hal
from hal_core.concurrency import make_calls, serve_alone, start_server
from hal_core.queue import PolledEvent
from hal_core.queue.watcher import Watcher

FOLDERS = [str(Path(hal.__file__).parent / part) for part in ("queue", "device", "concurrency")]
MOST = 200  # places of each scene; all of them under HAL_TEST_EVERY_PLACE=1


def alive(name):
    return sum(one.is_alive() for one in threading.enumerate() if one.name == name)


# -- close, beside what another thread does


def beside_close(device, work):
    """Close a queue on another thread at every place of some work."""

    def scene():
        queue = device.queue()
        queue.record()
        return interrupted.Scene(lambda: work(queue), queue.close, lambda: None)

    assert interrupted.everywhere(FOLDERS, scene, on_another_thread=True) > 20


def test_Q4_a_device_is_synchronized_beside_the_close_of_a_queue(fake):
    beside_close(fake, lambda queue: fake.synchronize())


def test_Q4_a_queue_is_synchronized_beside_its_close(fake):
    def synchronize(queue):
        assert queue.synchronize() is True

    beside_close(fake, synchronize)


def test_Q4_an_event_recorded_beside_a_close_happens_or_is_free(fake):
    def record(queue):
        event = hal.Event()
        try:
            queue.record(event)
        except hal.InvalidState:
            event.set()  # it has no place
        assert event.wait()

    beside_close(fake, record)


def test_Q4_what_is_put_behind_the_end_is_done(fake):
    """Put work as a thread does that had looked before the queue was closed."""
    ran = []
    queue = fake.queue()
    worker, gate, late = queue._worker, threading.Event(), hal.Event()
    put(queue, lambda: gate.wait(20))
    for _ in range(2):  # as two threads that close it put two
        worker.items.put(worker.gone)
    put(queue, lambda: ran.append(1))
    queue.record(late)
    gate.set()
    assert late.wait(20) and ran == [1]
    assert worker.over.wait(20)
    queue.closed = True


# -- waits that can never end


def test_Q8_a_finalizer_in_the_thread_that_its_wait_needs_raises(fake):
    queue, ends, refused = fake.queue(), [], []

    def finalize():
        for end in ends:
            with pytest.raises(hal.InvalidState, match="a finalizer or a signal's handler waits"):
                end.wait(5)
            refused.append(end)

    begin = hal.Event()
    queue.wait(begin)._add(finalize, "finalize", ())
    ends += queue.record(), fake.queue().wait(queue.record()).record()
    begin.set()
    assert queue.record().wait(20)
    assert refused == ends


def circle(*queues):
    """Let two queues wait for each other; return the events that they record."""
    events = [hal.Event(), hal.Event()]
    for number, queue in enumerate(queues):
        queue.wait(events[1 - number])
        queue.record(events[number])
    return events


def test_Q8_a_dropped_queue_that_waits_for_a_circle_elsewhere_is_given_up(fake):
    device = hal.Device["PYTHON"]
    queue = device.queue().wait(circle(fake.queue(), fake.queue())[0])
    name = queue.name
    del queue
    gc.collect()
    with pytest.raises(hal.InvalidState, match="wait for each other: queue . of FAKE"):
        device.synchronize(5)
    assert device.synchronize(20)
    wait_until(lambda: not alive(name))


def test_Q8_a_dropped_queue_whose_event_nobody_sets_ends_with_its_device():
    device, never = hal.Device["PYTHON"], hal.Event()
    queue = device.queue().wait(never)
    name = queue.name
    del queue
    gc.collect()
    device.close()
    assert never.done
    with pytest.raises(hal.DeviceFault, match="closed while a queue that was dropped waited"):
        never.wait()
    wait_until(lambda: not alive(name))


def test_Q8_what_is_given_up_is_what_the_circle_waits_for(fake):
    class Polled(PolledEvent):
        """An event that a driver waits for by itself."""

    first, second = fake.queue(), fake.queue()
    second.event_class = Polled
    behind, other = hal.Event(), hal.Event()
    first.wait(second.wait(behind).record())
    first.record(behind)
    first.wait(other)  # no part of the circle
    with pytest.raises(hal.InvalidState, match="wait for each other"):
        fake.synchronize(5)
    assert behind.done and not other.done
    other.set()
    assert fake.synchronize(20)


@pytest.mark.parametrize("closed", [[], [0], [1], [0, 1]])
@pytest.mark.parametrize("end", ["synchronize", "queue", "close"])
@pytest.mark.usefixtures("impatient")
def test_Q8_a_circle_is_found_and_given_up_when_its_queues_are_closed(closed, end):
    device = hal.Device["PYTHON"]
    queues = [device.queue(), device.queue()]
    events = circle(*queues)
    for number in closed:
        with pytest.raises(hal.InvalidState, match="wait for each other"):
            queues[number].close()
    if end == "queue":
        with pytest.raises(hal.InvalidState, match="wait for each other"):
            queues[sum(closed[:1])].synchronize(5)
    if end != "close":
        with pytest.raises(hal.InvalidState, match="wait for each other"):
            device.synchronize(5)
        assert device.synchronize(20)
    device.close()
    for event in events:
        with pytest.raises(hal.DeviceFault):
            event.wait(20)
    for queue in queues:
        wait_until(lambda queue=queue: not alive(queue.name))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("closed", [False, True])
def test_Q8_a_queue_whose_event_nobody_sets_ends_with_its_device(closed):
    """Leave a closed queue with work, as Ctrl-C in its `close` does."""
    device, late = hal.Device["PYTHON"], hal.Event()
    queue = device.queue().wait(late)
    if closed:
        queue.closed = True
        queue._close()
    assert not queue.synchronize(0.01)
    device.close()
    assert late.done
    wait_until(lambda: not alive(queue.name))


def test_Q4_a_queue_whose_thread_cannot_start_ends(monkeypatch):
    """Play the end of the program, when Python starts no more threads."""

    def refuse(*_):
        raise hal.InvalidState("start thread", "there can be none")

    monkeypatch.setattr("hal_core.queue.worker.start_server", refuse)
    device = hal.Device["PYTHON"]
    queue, idle = device.queue(), device.queue()
    with pytest.raises(hal.InvalidState, match="there can be none"):
        queue.record()
    queue.close()
    assert queue.synchronize(5)
    device.close()
    assert device.closed and idle.closed


# -- errors of other code


class Loop(asyncio.SelectorEventLoop):
    """A loop that refuses calls of other threads, as one that is closed does."""

    error: BaseException | None = None

    def call_soon_threadsafe(  # asyncio's has a variadic type
        self, callback, *args, context=None
    ):
        if self.error is not None:
            raise self.error
        return super().call_soon_threadsafe(callback, *args, context=context)


@pytest.mark.parametrize(
    "error", [RuntimeError("Event loop is closed"), KeyError(1), SystemExit(1)]
)
@pytest.mark.usefixtures("impatient")
def test_Q2_a_loop_that_refuses_ends_no_queue(fake, error):
    queue, gate, loop = fake.queue(), hal.Event(), Loop()
    event = queue.wait(gate).record()

    async def begin():
        task = asyncio.ensure_future(awaited(event))
        await asyncio.sleep(0)
        loop.error = error
        gate.set()
        await asyncio.sleep(0.01)
        loop.error = None
        await task  # a look finds what the loop did not hear

    try:
        loop.run_until_complete(asyncio.wait_for(begin(), 20))
    finally:
        loop.close()
    assert queue.record().wait(5)


def test_X1_a_thread_of_ours_goes_on_after_any_error():
    """Also when the program's own handler of the log raises."""

    class Raises(logging.Handler):
        def emit(self, record):
            raise SystemExit(2)

    class Nameless(Exception):
        def __str__(self):
            raise ValueError

    log, handler = logging.getLogger("hal_core"), Raises()
    errors, done = deque([ZeroDivisionError(), Nameless(), SystemExit(3)]), threading.Event()

    def serve():
        if errors:
            raise errors.popleft()
        done.set()

    log.addHandler(handler)
    try:
        servers = {}
        start_server(servers, "hal test", serve)
        assert done.wait(20)
    finally:
        log.removeHandler(handler)


# -- Ctrl-C


def test_Q2_ctrl_c_at_the_start_of_the_thread_that_watches():
    def scene():
        watcher, gate = Watcher(), threading.Event()
        calls = []

        def check(heard):
            done = threading.Event()
            watcher.watch(gate.is_set, done.set)
            wait_until(lambda: alive("hal-events") == 1)
            gate.set()
            assert done.wait(20) and len(calls) <= 1
            wait_until(lambda: not alive("hal-events"))

        return Scene(lambda: watcher.watch(gate.is_set, lambda: calls.append(1)), check)

    assert press_everywhere(scene, MOST) > 30


def test_Q2_ctrl_c_while_an_event_is_set(fake):
    """It is set or not; what waits for it goes on once it is, and all its calls are made."""

    def scene():
        event, queue = hal.Event(), fake.queue()
        calls = []
        behind = queue.wait(event).record()
        for number in range(3):
            event._when_done(partial(calls.append, number))

        def check(heard):
            if not event.done:
                event.set()
            assert behind.wait(20) and sorted(set(calls)) == [0, 1, 2]
            queue.close()

        return Scene(event.set, check)

    assert press_everywhere(scene, MOST) > 5


def test_Q2_ctrl_c_in_a_wait_leaves_others_awake():
    """It comes behind the lock of the event, for which a queue may sleep, too."""
    event = hal.Event()
    lock = event._end

    class Interrupted:
        release = lock.release

        def acquire(self, timeout):
            event.set()
            assert lock.acquire(timeout=timeout)
            raise KeyboardInterrupt

    event._end = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        event.wait(20)
    assert event.done and lock.acquire(timeout=1)


def test_Q4_ctrl_c_between_two_steps_of_a_close_lets_the_device_end(fake):
    """The thread was told of no end, and `device.close()` waited for it without one."""
    queue = fake.queue()
    put(queue, lambda: None)

    def interrupted_close():
        raise KeyboardInterrupt

    queue._close = interrupted_close
    with pytest.raises(KeyboardInterrupt):
        queue.close()
    name = queue.name
    fake.close()
    wait_until(lambda: not alive(name))


def test_X1_one_thread_serves_and_none_misses_work():
    """Threads that come too late end; work added while one ends is done."""
    servers = {}
    items, done = deque(range(0)), []
    busy = threading.Lock()

    def serve():
        assert busy.acquire(blocking=False), "two threads serve"
        while items:
            done.append(items.popleft())
        busy.release()

    for number in range(300):
        items.append(number)
        if not servers or number % 7 == 0:
            start_server(servers, "hal test", serve, lambda: items)
    wait_until(lambda: len(done) == 300 and not servers)
    assert done == list(range(300))
    late = {0: threading.current_thread()}
    other = threading.Thread(target=serve_alone, args=(late, 0, done.clear))
    other.start()
    other.join(20)
    assert done and not other.is_alive()


# -- awaits


def test_Q2_cancelled_awaits_leave_nothing(fake):
    gate = hal.Event()
    behind = fake.queue().wait(gate).record()
    polled = PolledEvent()

    def count():
        gc.collect()
        return sum(isinstance(one, asyncio.Future) for one in gc.get_objects())

    async def cancel_all():
        before = count()
        tasks = [
            asyncio.ensure_future(awaited(event))
            for event in (gate, behind, polled)
            for _ in range(1000)
        ]
        await asyncio.sleep(0)
        assert count() >= 6000 + before  # of the awaits, and the tasks
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        tasks.clear()
        del task
        for _ in range(100):  # the thread that watches may be in the middle of a look
            if count() <= before + 1:  # that which `asyncio.wait` has made
                return
            await asyncio.sleep(0.005)
        raise AssertionError(count())

    asyncio.run(cancel_all())
    gate.set()


@pytest.mark.usefixtures("impatient")
def test_Q2_an_await_looks_now_and_then(fake):
    """A circle that closes during the await is found, as it is by a wait."""
    one, two, first, second = fake.queue(), fake.queue(), hal.Event(), hal.Event()
    one.wait(second)
    one.record(first)

    async def main():
        task = asyncio.ensure_future(awaited(first))
        await asyncio.sleep(0.01)
        assert not task.done()
        two.wait(first)
        two.record(second)
        with pytest.raises(hal.InvalidState, match="wait for each other"):
            await asyncio.wait_for(task, 20)

    asyncio.run(main())


async def awaited(event):
    await event


# -- fork


@pytest.fixture
def python():
    """A device that survives a fork."""
    device = hal.Device["PYTHON"]
    yield device
    device.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("use", ["synchronize", "to_file", "dlpack", "queues", "close"])
def test_X2_a_child_works_whatever_queues_its_parent_has(python, use, tmp_path):
    import numpy as np

    idle, busy, dropped, gate = python.queue(), python.queue(), python.queue(), hal.Event()
    x = hal.zeros(4, hal.int32, python)
    python.default_queue.record()
    x.fill(1, queue=idle).wait(20)
    for queue in (busy, dropped):
        queue.wait(gate)
        pending = queue.record()
    del queue, dropped
    gc.collect()

    def in_child():
        if use == "synchronize":
            assert python.synchronize()
        elif use == "to_file":
            x.to_file(tmp_path / "x")
        elif use == "dlpack":
            assert np.from_dlpack(x).tolist() == [1] * 4
        elif use == "queues":
            assert x.fill(2, queue=python.queue()).wait(20)
            assert python.default_queue.record().wait(20) and python.synchronize()
            for call in (
                idle.record, busy.synchronize, lambda: x.fill(1, queue=idle), pending.wait,
                lambda: asyncio.run(asyncio.wait_for(awaited(pending), 20)), lambda: pending.done,
            ):  # fmt: skip
                with pytest.raises(hal.ForkError, match=r"made queue \d.*Make a new one: device\."):
                    call()
        else:
            python.close()

    pid = os.fork()
    if not pid:
        code = 1
        try:
            threading.Timer(10, os._exit, (2,)).start()
            in_child()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    gate.set()
    assert busy.synchronize(20)


@pytest.mark.parametrize("is_of_signal", [True, False])
def test_Q2_a_record_that_a_handler_of_signals_ends_is_made_again(fake, is_of_signal):
    queue, event, calls = fake.queue(), hal.Event(), []

    def interrupted(event, record=queue._record):
        calls.append(event)
        if is_of_signal and len(calls) == 1:
            record(event)
            raise_in_handler(TimeoutError)
        if not is_of_signal:
            raise TimeoutError  # of the backend
        record(event)

    queue._record = interrupted
    with pytest.raises(TimeoutError):
        queue.record(event)
    assert len(calls) == 1 + is_of_signal and event.queue is (queue if is_of_signal else None)
    assert event.wait(20 if is_of_signal else 0) is is_of_signal


@pytest.mark.parametrize("kind", [KeyboardInterrupt, TimeoutError])
def test_make_calls_is_resumed_after_a_signal(kind):
    calls = deque()

    def once():
        if not made:
            made.append(0)
            raise_in_handler(kind)
        made.append(1)

    made = []
    calls.extend([once, lambda: made.append(2)])
    with pytest.raises(kind):
        make_calls(calls)
    make_calls(calls)
    assert made == [0, 1, 2]
