"""Test queues and events: promises Q1 to Q5 and Q8."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import pytest

import hal_core as hal
from hal_testing.conformance.kernels import add_one, count_up
from hal_testing.conformance.raw import buffer_of, pattern, read
from hal_testing.conformance.slow import SlowCounter
from hal_testing.conformance.threads import in_threads
from hal_testing.kit.abilities import need

SECONDS = 20.0  # for work that takes milliseconds, on a busy machine
SIZE = 100  # elements of int32


@contextmanager
def held(*queues: hal.Queue) -> Iterator[hal.Event]:
    """Keep all work that is queued inside from running, until the event is set or at the end."""
    gate = hal.Event()
    for queue in queues:
        queue.wait(gate)
    try:
        yield gate
    finally:
        gate.set()


def ints(device: hal.Compiled, value: int = 0) -> hal.Buffer:
    return buffer_of(device, np.full(SIZE, value, np.int32).tobytes(), hal.int32)


def first(buffer: hal.Buffer) -> int:
    return int.from_bytes(read(buffer)[:4], "little", signed=True)


class TestQueue:
    def test_Q1_work_runs_in_the_order_of_the_calls(self, device: hal.Compiled) -> None:
        program, queue = device.compile(add_one), device.queue()
        made, other, expected = ints(device), ints(device), 0
        data = [np.full(SIZE, 100 * turn, np.int32) for turn in range(9)]
        with held(queue):
            for turn in range(9):
                if turn % 4 == 1:
                    made.copyin(data[turn], queue=queue)
                    expected = 100 * turn
                if turn % 5 == 2:
                    made.fill(turn, queue=queue)
                    expected = turn
                other.copy_from(made, queue=queue)
                program(other, vals=(SIZE,), threads=SIZE, queue=queue)
                made.copy_from(other, queue=queue)
                expected += 1
            found = np.zeros(SIZE, np.int32)
            done = made.copyout(found, queue=queue)
            assert not done.done and not found.any()
        assert done.wait(SECONDS) and found.tolist() == [expected] * SIZE

    @pytest.mark.parametrize("make", ["empty", "zeros"])
    def test_Q1_a_new_buffer_has_no_part_in_earlier_work(
        self, device: hal.Compiled, make: str
    ) -> None:
        slow = SlowCounter(device, seconds=0.01)
        for _ in range(3):
            queue = device.queue()
            slow(slow.buffer(device), 1)  # the new buffer may get the memory of this one
            made = getattr(hal, make)(slow.size, hal.uint32, device)
            if make == "empty":
                made.fill(7, queue=queue)
            else:
                slow.program(made, vals=(*slow._vals(7)[:4], 1), threads=1, queue=queue)
            assert queue.synchronize(SECONDS)
            device.synchronize()
            expected = [7] * slow.size if make == "empty" else [7, *[0] * (slow.size - 1)]
            assert made.numpy().tolist() == expected

    def test_Q1_queues_have_no_order_without_a_wait(self, device: hal.Compiled) -> None:
        held_queue, free, mine = device.queue(), device.queue(), ints(device)
        program = device.compile(add_one)
        theirs, plain = ints(device), ints(device)
        with held(held_queue):
            program(mine, vals=(SIZE,), threads=SIZE, queue=held_queue)
            behind = held_queue.record()
            program(theirs, vals=(SIZE,), threads=SIZE, queue=free)
            program(plain, vals=(SIZE,), threads=SIZE)
            assert free.synchronize(SECONDS)
            assert (first(theirs), first(plain)) == (1, 1) and not behind.done
        assert behind.wait(SECONDS) and first(mine) == 1

    def test_Q1_a_wait_orders_queues(self, device: hal.Compiled) -> None:
        """Work goes to and fro between queues, each of which waits for the one before."""
        program, queues, made = device.compile(add_one), [device.queue() for _ in range(3)], None
        made, last = ints(device), hal.Event()
        last.set()
        with held(*queues):
            for turn in range(12):
                queue = queues[turn % 3].wait(last)
                made.fill(turn, queue=queue)
                program(made, vals=(SIZE,), threads=SIZE, queue=queue)
                last = queue.record()
        assert last.wait(SECONDS) and first(made) == 12

    def test_Q1_a_wait_orders_devices(
        self, device: hal.Compiled, second_device: hal.Compiled
    ) -> None:
        here, there = device.queue(), second_device.queue()
        made, copied = ints(device), ints(second_device)
        with held(here):
            device.compile(count_up)(made, vals=(7, SIZE), threads=SIZE, queue=here)
            there.wait(here.record())
            copied.copy_from(made, queue=there)
            done = there.record()
            assert not done.done
        assert done.wait(SECONDS) and first(copied) == 7

    def test_Q1_the_default_queue_takes_part_and_stays_open(self, device: hal.Compiled) -> None:
        """It lives as long as its device, whoever closes it."""
        made, queue, default = ints(device), device.queue(), device.default_queue
        made.fill(3)
        queue.wait(default.record())
        device.compile(add_one)(made, vals=(SIZE,), threads=SIZE, queue=queue)
        default.wait(queue.record())
        device.compile(add_one)(made, vals=(SIZE,), threads=SIZE, queue=default)
        with default:
            made.fill(3, queue=default)
        assert made.fill(9, queue=default).wait(SECONDS) and first(made) == 9
        assert not default.closed and device.default_queue is default

    def test_Q2_done_and_wait_with_a_timeout(self, device: hal.Compiled) -> None:
        queue = device.queue()
        with held(queue):
            event = queue.record()
            begin = time.monotonic()
            for _ in range(10):
                assert not event.done
            assert event.wait(0) is False and queue.synchronize(0.01) is False
            assert time.monotonic() - begin < SECONDS / 4, "one of them waited"
        assert event.wait() is True and event.done and queue.synchronize(SECONDS)

    def test_Q2_a_wait_takes_no_core(self, device: hal.Compiled) -> None:
        queue = device.queue()
        with held(queue):
            event, calls = queue.record(), 0

            def count(frame: FrameType, what: str, _: object) -> None:
                nonlocal calls
                calls += what in ("call", "c_call")

            sys.setprofile(count)
            try:
                assert not event.wait(0.2)
            finally:
                sys.setprofile(None)
        assert calls < 15_000, "it looks over and over, and never sleeps"

    def test_Q2_await_in_any_loop(self, device: hal.Compiled) -> None:
        queue, made = device.queue(), ints(device)

        async def fill(gate: hal.Event) -> None:
            events = [made.fill(turn, queue=queue) for turn in range(20)]
            before = threading.active_count()
            tasks = [asyncio.ensure_future(_awaited(event)) for event in events * 10]
            await asyncio.sleep(0.01)
            assert threading.active_count() <= before + 2 and not any(map(asyncio.Task.done, tasks))
            gate.set()
            await asyncio.gather(*tasks)

        for _ in range(2):
            with held(queue) as gate:
                asyncio.run(fill(gate))
            assert first(made) == 19

    def test_Q2_an_await_is_cancelled_without_harm(self, device: hal.Compiled) -> None:
        queue = device.queue()

        async def give_up(event: hal.Event) -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(_awaited(event), 0.01)

        with held(queue):
            event = queue.record()
            asyncio.run(give_up(event))
        assert event.wait(SECONDS)
        asyncio.run(asyncio.wait_for(_awaited(event), SECONDS))

    def test_Q2_seconds_between_events(self, device: hal.Compiled) -> None:
        need(device, "timing")
        queue = device.queue()
        early = queue.record()
        assert early.wait(SECONDS)
        with held(queue):
            late = queue.record()
            with pytest.raises(hal.InvalidState, match="has not happened"):
                late.seconds_since(early)
            time.sleep(0.05)
        assert late.wait(SECONDS) and 0.03 < late.seconds_since(early) < SECONDS
        plain, host = hal.Event(), hal.Event()  # the queue gives one its place, and its clock
        queue.record(plain)
        assert plain.wait(SECONDS) and 0.03 < plain.seconds_since(early) < SECONDS
        host.set()
        for first, second in ((host, late), (late, host)):
            with pytest.raises(hal.InvalidArgument, match="two clocks"):
                second.seconds_since(first)

    def test_Q3_host_memory_lives_until_its_event(self, device: hal.Compiled) -> None:
        queue, size = device.queue(), 1 << 20
        made, found = hal.Buffer(device, size, hal.uint8), bytearray(size)
        with held(queue):
            source = bytearray(pattern(size))
            made.copyin(source, queue=queue)
            with pytest.raises(BufferError):  # it is in use
                source.clear()
            del source
            made.copyin(np.frombuffer(pattern(size, 2), np.uint8).copy(), queue=queue)
            done = made.copyout(found, queue=queue)
            gc.collect()
            junk = [bytearray(b"\xee" * size) for _ in range(4)]  # where freed memory would be
        assert done.wait(SECONDS) and bytes(found) == pattern(size, 2)
        del junk
        found.clear()  # it is not in use any more

    def test_Q4_a_freed_block_waits_for_every_queue(self, device: hal.Compiled) -> None:
        queues = [device.queue() for _ in range(2)]
        program = device.compile(count_up)
        with held(*queues):
            made = ints(device)
            made.fill(1, queue=queues[0])
            program(made, vals=(1, SIZE), threads=SIZE, queue=queues[1])
            made.deallocate()
            after = [buffer_of(device, pattern(4 * SIZE, seed)) for seed in range(4)]
        for queue in queues:
            assert queue.synchronize(SECONDS)
        assert [read(one) for one in after] == [pattern(4 * SIZE, seed) for seed in range(4)]

    def test_Q4_memory_comes_back_after_its_use(self, device: hal.Compiled) -> None:
        before, queue = device.allocator.statistics().current, device.queue()
        with held(queue):
            ints(device).fill(1, queue=queue)
            made = ints(device)
            ints(device).copy_from(made, queue=queue)
            made.deallocate()
            assert device.allocator.statistics().current > before
        assert queue.synchronize(SECONDS)
        assert device.allocator.statistics().current == before

    def test_Q4_a_dropped_queue_finishes_its_work(self, device: hal.Compiled) -> None:
        program, made, gate = device.compile(count_up), ints(device), hal.Event()
        queue = device.queue().wait(gate)
        program(made, vals=(5, SIZE), threads=SIZE, queue=queue)
        del queue
        gc.collect()
        assert not device.synchronize(0.01)
        gate.set()
        assert device.synchronize(SECONDS) and first(made) == 5

    def test_Q4_dropped_queues_that_wait_in_turn_keep_their_memory(
        self, device: hal.Compiled
    ) -> None:
        """Each knows the other by the events that it waits for; both are garbage at once."""
        program, made, gate = device.compile(count_up), ints(device), hal.Event()
        one, two = device.queue().wait(gate), device.queue()
        for number in range(4):
            queue, other = (one, two) if number % 2 else (two, one)
            queue.wait(other.record())
            program(made, vals=(number, SIZE), threads=SIZE, queue=queue)
        del one, two, queue, other, made
        gc.collect()
        others = [ints(device) for _ in range(4)]
        assert not device.synchronize(0.01)
        gate.set()
        assert device.synchronize(SECONDS)
        assert [read(one) for one in others] == [bytes(4 * SIZE)] * 4

    def test_Q4_dropped_queues_that_waited_in_turn_are_freed(self, device: hal.Compiled) -> None:
        one, two = device.queue(), device.queue()
        for _ in range(2):
            two.wait(one.record())
            one.wait(two.record())
        assert device.synchronize(SECONDS)
        freed = [weakref.ref(one), weakref.ref(two)]
        del one, two
        gc.collect()
        assert [queue() for queue in freed] == [None, None]

    def test_Q4_synchronize_and_close_wait_for_queues(self, device: hal.Compiled) -> None:
        made, queue = ints(device), device.queue()
        with held(queue) as gate:
            event = made.fill(6, queue=queue)
            assert device.synchronize(0.01) is False
            threading.Timer(0.02, gate.set).start()
            assert device.synchronize(SECONDS) and event.done
        with queue:
            event = made.fill(7, queue=queue)
        assert event.done and first(made) == 7

    @pytest.mark.parametrize("again", [False, True])
    def test_Q4_ctrl_c_in_close_drops_no_work_and_the_next_close_waits_for_it(
        self, device: hal.Compiled, again: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted() -> None:
            raise KeyboardInterrupt

        made, queue = ints(device), device.queue()
        with held(queue) as gate:
            event = made.fill(6, queue=queue)
            monkeypatch.setattr(queue, "synchronize", interrupted)
            with pytest.raises(KeyboardInterrupt):
                queue.close()
            monkeypatch.undo()
            threading.Timer(0.02, gate.set).start()
            if again:
                queue.close()
            assert event.done if again else event.wait(SECONDS)
            assert first(made) == 6

    @pytest.mark.parametrize("use", ["record", "synchronize", "device"])
    def test_Q4_a_queue_is_closed_while_it_is_used(
        self, device: hal.Compiled, monkeypatch: pytest.MonkeyPatch, use: str
    ) -> None:
        """It is closed behind the look whether it is open: nothing waits for ever."""
        queue, event = device.queue(), hal.Event()
        ints(device).fill(1, queue=queue)
        record = queue._record

        def late(event: hal.Event) -> None:
            monkeypatch.setattr(queue, "_record", record)
            queue.close()
            record(event)

        monkeypatch.setattr(queue, "_record", late)
        if use == "synchronize":
            assert queue.synchronize(SECONDS) is True
        elif use == "device":
            assert device.synchronize(SECONDS) is True
        else:
            try:
                queue.record(event)
            except hal.InvalidState:
                event.set()  # it is free
            assert event.wait(SECONDS)
        queue.close()
        assert queue.synchronize(SECONDS) is True

    def test_Q4_events_of_a_closed_device_have_happened(self, device: hal.Compiled) -> None:
        queue = device.queue()
        event = ints(device).fill(1, queue=queue)
        device.close()
        assert event.done and event.wait(0.0)
        asyncio.run(_awaited(event))
        assert hal.Device[device.name].queue().wait(event).synchronize(SECONDS)
        for late in (queue.record, lambda: queue.wait(event), device.queue):
            with pytest.raises(hal.InvalidState, match="the device is closed"):
                late()
        queue.close()

    def test_Q5_a_failure_surfaces_at_every_wait_for_its_queue(
        self, device: hal.Compiled, hal_fault: Callable[[hal.Program], None]
    ) -> None:
        device.close()  # the failure may ruin the open device, so this test opens its own
        opened = hal.Device[device.name]
        program, queue, other = opened.compile(count_up), opened.queue(), opened.queue()
        made, mine = ints(opened), ints(opened)
        before = made.fill(1, queue=queue)
        assert before.wait(SECONDS)
        hal_fault(program)
        program(made, vals=(2, SIZE), threads=SIZE, queue=queue)
        made.fill(3, queue=queue)  # raises nothing, and is dropped
        behind = queue.record()
        for wait in (behind.wait, behind.wait, queue.synchronize, lambda: _run(behind)):
            with pytest.raises(hal.DeviceFault, match=r"launch of count_up failed in queue"):
                wait()
        assert behind.done and before.wait()
        try:
            mine.fill(4, queue=other)
            assert other.synchronize(SECONDS) and first(mine) == 4
            survives = True
        except hal.DeviceFault:  # the whole device is lost, on some hardware
            survives = False
        third = opened.queue()
        third.wait(behind)
        mine.fill(5, queue=third)
        with pytest.raises(hal.DeviceFault, match="count_up"):
            third.synchronize(SECONDS)
        with pytest.raises(hal.DeviceFault, match="count_up"):
            queue.close()
        if survives:
            assert first(mine) == 4
        with contextlib.suppress(hal.DeviceFault):
            opened.close()

    def test_Q8_queues_that_wait_for_each_other_are_shown(self, device: hal.Compiled) -> None:
        queues, events = [device.queue() for _ in range(3)], [hal.Event() for _ in range(3)]
        for number, queue in enumerate(queues):
            queue.wait(events[number])
            queue.record(events[(number + 1) % 3])
        names = [queue.name for queue in queues]
        with pytest.raises(hal.InvalidState) as caught:
            events[0].wait(0.05)
        text = str(caught.value)
        assert "wait for each other" in text and all(name in text for name in names)
        with pytest.raises(hal.InvalidState, match="wait for each other"):
            asyncio.run(asyncio.wait_for(_awaited(events[0]), SECONDS))
        rescue = device.queue()
        assert rescue.synchronize(SECONDS)  # the others are not in its way
        events[0]._happen(None)  # so that the device can be closed at once
        assert queues[2].synchronize(SECONDS)

    def test_Q8_dropped_queues_that_wait_for_each_other_are_given_up(
        self, device: hal.Compiled
    ) -> None:
        gc.collect()
        device.synchronize()
        before = device.allocator.statistics().current
        one, two, ahead = device.queue(), device.queue(), hal.Event()
        one.wait(ahead)
        ints(device).fill(1, queue=one)
        two.wait(one.record()).record(ahead)
        del one, two, ahead
        gc.collect()
        with pytest.raises(hal.InvalidState, match="queues wait for each other"):
            device.synchronize(0.01)
        assert device.synchronize(SECONDS)
        gc.collect()
        assert device.queue().synchronize(SECONDS)  # it looks for what is over
        assert device.allocator.statistics().current == before

    def test_Q8_queues_that_wait_in_turn_for_a_host_that_is_late_are_no_circle(
        self, device: hal.Compiled
    ) -> None:
        one, two = device.queue(), device.queue()
        with held(one):
            for _ in range(3):
                two.wait(one.record())
                one.wait(two.record())
            event = one.record()
            assert event.wait(0.05) is False
        assert event.wait(SECONDS)

    def test_Q8_a_finalizer_within_a_call_never_hangs(self, device: hal.Compiled) -> None:
        """Let it work at each function of the core that the call starts, as a handler might."""
        queue, made = device.queue(), ints(device)
        place, seen = 0, 1

        def count(frame: FrameType, event: str, given: object) -> None:
            nonlocal seen
            seen += frame.f_globals["__name__"].startswith("hal_core")  # no driver in Python
            if seen == place:
                seen += 1
                late = device.queue()
                with contextlib.suppress(hal.InvalidState):
                    hal.zeros(SIZE, hal.int32, device).fill(1, queue=late)
                    assert late.synchronize(SECONDS) and queue.synchronize(SECONDS)

        while seen > place:
            place, seen = place + 1, 0
            sys.setprofile(count)
            try:
                made.fill(place, queue=queue).done  # noqa: B018 - a look
            finally:
                sys.setprofile(None)
        assert queue.synchronize(SECONDS) and first(made) == place

    def test_Q1_from_many_threads(self, device: hal.Compiled) -> None:
        program, made = device.compile(add_one), [ints(device) for _ in range(4)]
        shared = device.queue()

        def work(number: int) -> None:
            queue = shared if number % 2 else device.queue()
            for _ in range(10):
                program(made[number], vals=(SIZE,), threads=SIZE, queue=queue)
            assert queue.synchronize(SECONDS)

        in_threads(work, 4)
        assert [first(one) for one in made] == [10] * 4

    def test_Q1_wrong_use_is_refused(self, device: hal.Compiled) -> None:
        program, made, queue = device.compile(count_up), ints(device), device.queue()
        anything: Any = "queue 1"
        with pytest.raises(hal.InvalidArgument, match=r"not a hal\.Queue.*queue="):
            program(made, vals=(1, SIZE), threads=SIZE, queue=anything)
        for call in (made.copyin, made.copyout):
            with pytest.raises(hal.InvalidArgument, match=r"not a hal\.Queue.*queue="):
                call(bytearray(4 * SIZE), queue=anything)
        with pytest.raises(hal.InvalidArgument, match=r"not a hal\.Event"):
            queue.wait(anything)
        with pytest.raises(hal.InvalidArgument, match="timeout"):
            queue.record().wait(anything)
        event = queue.record()
        with pytest.raises(hal.InvalidState, match="has its place already"):
            queue.record(event)
        with pytest.raises(hal.InvalidState, match="happens when its queue"):
            event.set()
        queue.close()
        queue.close()
        for work in (
            lambda: program(made, vals=(1, SIZE), threads=SIZE, queue=queue),
            lambda: made.fill(1, queue=queue),
            queue.record,
            queue.__enter__,
            lambda: queue.wait(hal.Event()),
        ):
            with pytest.raises(hal.InvalidState, match="is closed"):
                work()
        assert first(made) == 0

    def test_P4_a_timed_launch_in_a_queue(self, device: hal.Compiled) -> None:
        need(device, "timing")
        made, queue = ints(device), device.queue()
        seconds = device.compile(count_up)(
            made, vals=(2, SIZE), threads=SIZE, queue=queue, wait=True
        )
        assert 0 <= seconds < SECONDS and first(made) == 2


async def _awaited(event: hal.Event) -> None:
    await event


def _run(event: hal.Event) -> None:
    asyncio.run(_awaited(event))
