"""Tests of memory that another library shares, whose work runs on a stream of its own.

A plugin's test_sharing.py imports them, and gives the fixtures `shuffle`, `fail` and `capture`.
"""

import gc
import threading

import numpy as np
import pytest
from any_order import expect, twofold
from in_threads import results

import hal_core as hal
from hal_core.buffer import capsule
from hal_streams.sharing import STRAYS_KEPT

N, SEEDS = 64, range(1, 13)
NO_MEMORY, IS_DESTROYED = 2, 400


class Library:
    """Another library and its stream, which is ordered with the default stream or `independent`."""

    def __init__(self, device, independent=False):
        self.device, self.api = device, device.api
        with device.own("test"):
            self.stream = device.api.make_stream(independent)

    def take(self, buffer, stream="own"):
        """Take a buffer as a consumer; the memory is given back with the result."""
        number = int(self.stream) if stream == "own" else stream
        return capsule.take(buffer.__dlpack__(stream=number))

    def fill(self, address, value, stream=None):
        with self.device.own("test"):
            pattern = np.int32(value).tobytes()
            self.api.fill(address, pattern, N, self.stream if stream is None else stream)

    def array(self, value):
        """Return an array full of `value`, whose memory is reused once it is given back."""
        with self.device.own("test"):
            address = self.api.allocate(4 * N, self.stream, None)
        self.fill(address, value)
        return Array(self, address)

    def close(self):
        self.device.synchronize()  # memory that came back is filled
        with self.device.own("test"):
            if self.stream is not None:
                self.api.wait(self.stream)
                self.api.destroy_stream(self.stream)


class Array:
    """Memory that its library uses for something else as soon as nobody refers to it."""

    def __init__(self, library, address):
        self.library, self.address = library, address
        self.came_back = threading.Event()
        self.stale = -1

    def __dlpack_device__(self):
        return self.library.device.allocator.dlpack_device

    def __dlpack__(self, stream=None, **_):
        api, device = self.library.api, self.library.device
        with device.own("test"), device.events(1) as (written,):
            api.record(written, self.library.stream)
            api.wait_for(stream, written)
        place = self.__dlpack_device__()
        return capsule.make(self.address, N, hal.int32, place, Content(self))


class Content:
    """Owner of an array's memory: what a producer's deleter ends."""

    def __init__(self, array):
        self.array = array

    def __del__(self):
        self.array.came_back.set()
        self.array.library.fill(self.array.address, self.array.stale)


@pytest.fixture
def theirs(device):
    gc.collect()
    device.allocator.free_cache()  # blocks of one size are used again in their order
    made = Library(device)
    yield made
    made.close()


@pytest.fixture
def apart(device, theirs):
    """Another library with an independent stream."""
    made = Library(device, independent=True)
    yield made
    made.close()


def held(device):
    """Count what other libraries gave back, and what they are to get back."""
    sharing = device.sharing
    return len(sharing._ended) + len(sharing._stray) + len(sharing._borrowed)


# -- exports


def reuse(device, theirs, seed, drop_first=False):
    """Drop an export while its consumer works, and use the block again; True if that is right."""
    made = hal.empty(N, hal.int32, device).fill(1)
    address, taken = int(made._buf), theirs.take(made)
    dropped = [taken, made] if drop_first else [made, taken]
    theirs.fill(taken.pointer, -1)
    del made, taken
    while dropped:
        dropped.pop()
    made = hal.empty(N, hal.int32, device).fill(seed)
    expect(int(made._buf) == address, "the block was not used again")
    device.call("test", device.api.wait, theirs.stream)
    return made.numpy().tolist() == [seed] * N


@pytest.mark.parametrize("drop_first", [False, True])
def test_B9_a_block_that_a_consumer_gave_back_is_used_after_its_work(
    device, theirs, shuffle, drop_first
):
    for seed in SEEDS:
        shuffle(seed)
        expect(reuse(device, theirs, seed, drop_first), f"seed {seed}")
    expect(not held(device))


def test_B9_a_queue_that_gets_the_block_comes_after_the_consumer_too(device, theirs, shuffle):
    queue = device.queue()
    for seed in SEEDS:
        shuffle(seed)
        taken = theirs.take(hal.empty(N, hal.int32, device).fill(1))
        theirs.fill(taken.pointer, -1)
        address = taken.pointer
        del taken
        made = hal.empty(N, hal.int32, device)
        expect(int(made._buf) == address)
        found = np.zeros(N, np.int32)
        made.fill(seed, queue=queue)
        expect(made.copyout(found, queue=queue).wait(20) and found.tolist() == [seed] * N)
    queue.close()


@pytest.mark.parametrize("stream", [None, "legacy", 2, 0])
def test_B9_default_streams_of_consumers(device, theirs, shuffle, stream):
    """The stream of each thread is one of the thread that drops the memory only by chance."""
    legacy = device.allocator.dlpack_stream
    number = legacy if stream == "legacy" else stream
    for seed in SEEDS:
        shuffle(seed)
        taken = theirs.take(hal.empty(N, hal.int32, device).fill(1), number)
        theirs.fill(taken.pointer, -1, legacy if number in (None, 0) else number)
        kept = [taken]
        address = taken.pointer
        del taken
        results(kept.clear)
        made = hal.empty(N, hal.int32, device).fill(seed)
        expect(int(made._buf) == address and made.numpy().tolist() == [seed] * N, f"seed {seed}")


def test_B9_a_consumer_that_asks_for_no_order_gets_none(device, theirs, shuffle):
    made, found = hal.empty(N, hal.int32, device), set[int]()
    for seed in range(1, 11):
        made.fill(1)
        device.synchronize()
        shuffle(seed)
        taken = theirs.take(made, -1)
        theirs.fill(taken.pointer, 7)
        del taken
        expect(not held(device))
        found.add(int(made.numpy()[0]))
        shuffle(0)
        theirs.api.wait(theirs.stream)
    expect(1 in found, "ours never comes first")


@pytest.mark.parametrize("reason", ["independent", "destroyed", "no event", "no stream"])
def test_B9_memory_whose_end_nothing_tells_waits_for_all_work(
    device, theirs, apart, shuffle, reason, fail
):
    consumer = theirs if reason == "no event" else apart
    for seed in SEEDS:
        shuffle(seed)
        made = hal.empty(N, hal.int32, device).fill(1)
        address = int(made._buf)
        taken = consumer.take(made, "a stream" if reason == "no stream" else "own")
        consumer.fill(taken.pointer, -1)
        del made
        if reason == "destroyed":
            with device.own("test"):
                device.api.destroy_stream(consumer.stream)
                consumer.stream = None
        if reason == "no event":
            fail("EventRecord", NO_MEMORY)
        del taken
        expect(held(device) == 1, "the finalizer does not wait")
        expect(int(hal.empty(N, hal.int32, device)._buf) != address, "it is in use")
        device.synchronize()
        expect(held(device) == 0)
        made = hal.empty(N, hal.int32, device).fill(seed)
        expect(made.numpy().tolist() == [seed] * N)
        if consumer.stream is None:
            consumer.stream = Library(device, independent=True).stream


@pytest.mark.parametrize("independent", [False, True])
def test_B9_the_end_of_an_export_touches_no_stream_that_is_gone(device, untouched, independent):
    """CUDA ends the process when it is given the handle of a destroyed stream."""
    passing = Library(device, independent)
    taken = passing.take(hal.empty(N, hal.int32, device))
    passing.close()
    del taken
    device.synchronize()
    expect(untouched() and not held(device))


def test_B9_exports_whose_end_nothing_tells_do_not_pile_up(device, apart):
    live = device.allocator.statistics().live
    for _ in range(3 * STRAYS_KEPT):
        apart.take(hal.empty(N, hal.int32, device))
        expect(held(device) <= STRAYS_KEPT + 1)
    expect(live < device.allocator.statistics().live <= live + STRAYS_KEPT + 1)
    device.allocator.free_cache()
    expect(device.allocator.statistics().live == live)


def test_B9_memory_that_nothing_tells_the_end_of_is_there_when_it_is_needed(
    device, apart, monkeypatch
):
    device.allocator.free_cache()
    taken = apart.take(hal.empty(N, hal.int32, device))
    del taken
    expect(held(device) == 1)
    monkeypatch.setattr(device.allocator, "limit", device.allocator.statistics().current)
    hal.empty(N, hal.int32, device)
    expect(not held(device))


def test_B9_an_export_outlives_its_device(device, theirs):
    taken = theirs.take(hal.empty(N, hal.int32, device).fill(1))
    with device.own("test"):
        theirs.api.wait(theirs.stream)
        theirs.api.destroy_stream(theirs.stream)
    theirs.close = lambda: None
    device.close()
    del taken
    gc.collect()
    expect(not held(device))


# -- imports


def borrow(device, theirs, seed, queue=None):
    """Drop an import while our work reads it; True if that has read what it should."""
    array = theirs.array(seed)
    y = hal.empty(N, hal.int32, device)
    x = hal.Buffer.from_dlpack(array, device)
    program = device.compile(twofold)
    program(y, x, vals=(N,), threads=N, queue=queue)
    del x
    if queue is not None:
        expect(queue.synchronize(20))
    right = y.numpy().tolist() == [2 * seed] * N
    device.synchronize()
    expect(array.came_back.wait(20), "the owner got nothing back")
    return right


@pytest.mark.parametrize("queued", [False, True])
def test_B9_an_owner_gets_memory_back_after_our_work(device, theirs, shuffle, queued):
    queue = device.queue() if queued else None
    for seed in SEEDS:
        shuffle(seed)
        expect(borrow(device, theirs, seed, queue), f"seed {seed}")
    expect(not held(device))


def test_B9_an_owner_gets_memory_back_at_once_when_our_work_is_over(device, theirs):
    array = theirs.array(3)
    x = hal.Buffer.from_dlpack(array, device)
    expect(x.numpy().tolist() == [3] * N)
    part = x[4:8]
    del x
    expect(not array.came_back.is_set(), "a view keeps it")
    del part
    expect(array.came_back.is_set())


@pytest.mark.parametrize("way", ["synchronize", "import", "export", "queue", "statistics", "close"])
def test_B9_calls_that_give_memory_back_to_its_owner(device, theirs, shuffle, way):
    shuffle(1)
    array, other = theirs.array(3), theirs.array(4)
    y, x = hal.empty(N, hal.int32, device), hal.Buffer.from_dlpack(array, device)
    device.compile(twofold)(y, x, vals=(N,), threads=N)
    del x
    expect(not array.came_back.is_set(), "the kernel has not run yet")
    shuffle(0)
    if way != "close":
        device.call("test", device.api.wait, device.stream)
    if way == "import":
        hal.Buffer.from_dlpack(other, device)
    elif way == "export":
        y.__dlpack__(stream=-1)
    elif way == "close":
        other = None
        theirs.close()
        theirs.close = lambda: None
        theirs.fill = lambda *_: None
        device.close()
    else:
        call = {
            "synchronize": device.synchronize,
            "queue": device.queue,
            "statistics": device.allocator.statistics,
        }[way]
        call()
    expect(array.came_back.wait(20))


def test_B9_an_export_of_an_import_ends_behind_both(device, theirs, shuffle):
    second = Library(device)
    for seed in SEEDS:
        shuffle(seed)
        array, found = theirs.array(seed), hal.empty(N, hal.int32, device)
        x = hal.Buffer.from_dlpack(array, device)
        taken = second.take(x)
        with device.own("test"):
            device.api.copy(found._buf, taken.pointer, 4 * N, second.stream)
        del x, taken
        device.synchronize()
        expect(array.came_back.wait(20))
        expect(found.numpy().tolist() == [seed] * N, f"seed {seed}")
    second.close()


# -- while something else goes on


@pytest.mark.parametrize("independent", [False, True])
def test_B9_memory_that_comes_back_amid_a_capture_leaves_the_capture_alone(
    device, theirs, apart, capture, independent
):
    captured, other = (apart, theirs) if independent else (theirs, apart)
    before = captured.take(hal.empty(N, hal.int32, device).fill(1))
    beside = other.take(hal.empty(N, hal.int32, device).fill(1))
    x = hal.Buffer.from_dlpack(other.array(2), device)
    x.fill(3)
    with capture(captured.stream):
        del before, beside, x
        gc.collect()
        waiting = len(device.sharing._ended)
        expect(waiting == (not independent), "the default stream takes no mark amid a capture")
        made = hal.empty(N, hal.int32, device).fill(5)  # on the device, not in the graph
    expect(made.numpy().tolist() == [5] * N)
    device.synchronize()
    expect(not held(device))


def test_B9_memory_goes_to_no_stream_that_is_captured(device, theirs, capture):
    made = hal.empty(N, hal.int32, device).fill(1)
    with capture(theirs.stream), pytest.raises(hal.InvalidState, match=r"before the capture"):
        made.__dlpack__(stream=int(theirs.stream))
    del made


def test_B9_our_own_stream_amid_a_capture(device, theirs, capture):
    array = theirs.array(2)
    x, taken = hal.Buffer.from_dlpack(array, device), theirs.take(hal.empty(N, hal.int32, device))
    device.synchronize()
    with capture(device.stream):
        del x, taken
        expect(held(device) == 2 and not array.came_back.is_set())
    device.synchronize()
    expect(array.came_back.is_set() and not held(device))


def test_B9_a_capture_of_ours_keeps_what_it_needs(device, theirs):
    array, y = theirs.array(2), hal.empty(N, hal.int32, device)
    x = hal.Buffer.from_dlpack(array, device)
    with device.capture() as graph:
        device.compile(twofold)(y, x, vals=(N,), threads=N)
        del x
    graph.replay()
    expect(y.numpy().tolist() == [4] * N)
    expect(not array.came_back.is_set())
    del graph
    gc.collect()
    device.synchronize()
    expect(array.came_back.wait(20))


def test_B9_memory_comes_back_on_threads_of_others(device, theirs, shuffle):
    """Such a thread has no context; ours stays with the threads that had it."""
    shuffle(3)
    with device.own("test"):
        before = int(device.api.current_context())
    array = theirs.array(2)
    dropped = [hal.Buffer.from_dlpack(array, device), theirs.take(hal.empty(N, hal.int32, device))]
    results(dropped.clear)
    device.synchronize()
    expect(array.came_back.wait(20) and not held(device))
    expect(int(device.api.current_context()) == before)


def test_B9_a_finalizer_says_nothing_when_the_driver_refuses(device, theirs, fail, recwarn):
    for call in ("StreamIsCapturing", "EventRecord", "EventQuery", "StreamWaitEvent"):
        array = theirs.array(2)
        x = hal.Buffer.from_dlpack(array, device)
        taken = theirs.take(hal.empty(N, hal.int32, device))
        fail(call, NO_MEMORY)
        del x
        fail(call, NO_MEMORY)
        del taken
        device.synchronize()
        expect(array.came_back.wait(20) and not held(device), call)
    expect(not list(recwarn))
