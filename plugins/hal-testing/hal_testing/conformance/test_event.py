"""Test the events of a profile, and the file of them: promises F1 and F2."""

from __future__ import annotations

import gc
import json
import random
import threading
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import perf_counter_ns

import pytest

import hal_core as hal
from hal_core.profiling import trace
from hal_testing.conformance.kernels import count_up
from hal_testing.conformance.raw import buffer_of, pattern, read
from hal_testing.conformance.slow import SlowCounter
from hal_testing.kit.abilities import need

SLACK_NS = 2_000_000  # by which two clocks may differ on a busy machine
QUEUED = {"copyin", "copyout", "copy", "fill", "launch"}


def events_of(device: hal.Compiled, profile: hal.Profile, *kinds: str) -> list[hal.ProfileEvent]:
    return [
        event
        for event in profile.events
        if event.device == device.name and (not kinds or event.kind in kinds)
    ]


class TestEvent:
    def test_F1_every_kind_of_event(self, device: hal.Compiled) -> None:
        program = device.compile(count_up)
        gc.collect()  # garbage of other tests is freed before the profile, not in it
        before = perf_counter_ns()
        with hal.profile() as profile:
            made = buffer_of(device, pattern(400), hal.int32)
            other = hal.Buffer(device, 100, hal.int32).copy_from(made)
            program(made, vals=(5, 100), threads=100)
            made.copyout(bytearray(400))
            other.fill(3)
            made.deallocate()
            del other
            # A finalizer returns the block, which is an event like any other.
            gc.collect()
            device.synchronize()
        after = perf_counter_ns()
        events = events_of(device, profile)
        kinds = Counter(event.kind for event in events)
        if device.allocator.poison and kinds["fill"] == 3:
            kinds["fill"] = 1  # in checked mode the device fills fresh memory, too
        assert kinds == {
            "alloc": 2, "copyin": 1, "copy": 1, "launch": 1, "copyout": 1, "fill": 1, "free": 2,
        }  # fmt: skip
        assert profile.dropped == 0
        for event in events:
            assert before - SLACK_NS <= event.start_ns <= event.end_ns <= after + SLACK_NS, event
            assert event.thread == threading.get_ident()
            launch = event.kind == "launch"
            kind = hal.ProfileProgramEvent if launch else hal.ProfileDeviceEvent
            assert type(event) is kind
            assert event.name == (count_up.name if launch else event.kind)
            assert launch or event.nbytes == 400

    def test_F1_compilations(self, device: hal.Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("HAL_CCACHE", raising=False)
        number = random.randrange(1 << 30)  # so that no cache has the kernel

        @hal.kernel
        def unheard_of(y: hal.Ptr[hal.int32]) -> None:
            y[hal.global_idx(0)] = number

        with hal.profile() as profile:
            for _ in range(2):
                device.compile(unheard_of.lower())
        compiled = events_of(device, profile, "compile", "reuse")
        assert [event.kind for event in compiled] == ["compile", "reuse"]
        for event in compiled:
            assert event.name == "unheard_of" and event.nbytes > 0
            assert event.end_ns > event.start_ns

    def test_F1_work_of_a_device_does_not_overlap(self, device: hal.Compiled) -> None:
        """Work runs in the order of the calls; each event begins after the one before has ended."""
        slow = SlowCounter(device)
        made, other = slow.buffer(device), slow.buffer(device)
        with hal.profile() as profile:
            for turn in range(3):
                slow(made, turn)
                other.copy_from(made)
                slow(other, turn)
                other.fill(turn)
                made.copyin(pattern(made.nbytes))
            read(made)
        events = events_of(device, profile, *QUEUED)
        calls = ["launch", "copy", "launch", "fill", "copyin"] * 3 + ["copyout"] * 2
        assert [event.kind for event in events] == calls
        for first, second in pairwise(events):
            assert second.start_ns >= first.end_ns - SLACK_NS, (first, second)

    def test_F1_a_launch_lies_within_its_call_and_the_wait(self, device: hal.Compiled) -> None:
        slow = SlowCounter(device, seconds=0.01)
        made, walls = slow.buffer(device), list[tuple[int, int]]()
        with hal.profile() as profile:
            for turn in range(4):
                begin = perf_counter_ns()
                slow(made, turn)
                device.synchronize()
                walls.append((begin, perf_counter_ns()))
        launches = events_of(device, profile, "launch")
        assert len(launches) == len(walls)
        for event, (begin, end) in zip(launches, walls, strict=True):
            assert begin - SLACK_NS <= event.start_ns < event.end_ns <= end + SLACK_NS

    def test_F1_more_work_takes_longer(self, device: hal.Compiled) -> None:
        slow = SlowCounter(device)
        made, turns = slow.buffer(device), slow.turns

        def seconds(times: int) -> float:
            slow.turns = turns * times
            with hal.profile() as profile:
                for turn in range(2):
                    slow(made, turn)
            return min(event.seconds for event in events_of(device, profile, "launch"))

        few = 0.0
        for times in (16, 16, 64, 256):  # pauses of a busy machine can be longer than the work
            few = seconds(1)
            if seconds(times) > 4 * few > 0:
                return
        pytest.fail(f"256 times the work does not take four times as long as {few} s")

    def test_F1_launches_take_what_wait_says(self, device: hal.Compiled) -> None:
        need(device, "timing")
        slow = SlowCounter(device)
        made, pairs = slow.buffer(device), list[tuple[float, float]]()
        for _ in range(6):  # on a busy machine one of the two may have had to wait
            waited = min(slow.timed(made) for _ in range(4))
            with hal.profile() as profile:
                for turn in range(4):
                    slow(made, turn)
            told = min(event.seconds for event in events_of(device, profile, "launch"))
            if waited / 3 < told < waited * 3:
                return
            pairs.append((waited, told))
        pytest.fail(f"seconds that `wait=True` gave, and those of the events: {pairs}")

    def test_F1_it_is_left_while_a_queue_is_held(self, device: hal.Compiled) -> None:
        """The host may let the queue go on only after the block; work not begun is left out."""
        held, free = (buffer_of(device, bytes(400)) for _ in range(2))
        queue, gate = device.queue(), hal.Event()
        late = threading.Timer(10, gate.set)
        late.start()
        try:
            with hal.profile() as profile:
                free.fill(1)
                held.fill(2, queue=queue.wait(gate))
            assert not gate.done, "the end of the block waits for the queue"
        finally:
            late.cancel()
            gate.set()
        queue.synchronize()
        found = [(event.kind, event.queue) for event in events_of(device, profile)]
        assert found == [("fill", "")] and profile.dropped == 0

    def test_F1_it_is_turned_on_later_and_off(self, device: hal.Compiled) -> None:
        program, made = device.compile(count_up), buffer_of(device, bytes(400), hal.int32)

        def launch(start: int) -> None:
            program(made, vals=(start, 100), threads=100)

        launch(1)
        launch(2)
        with hal.profile() as profile:
            launch(3)
            made.view(3).fill(0)
        launch(4)
        assert [event.kind for event in events_of(device, profile)] == ["launch", "fill"]
        assert read(made)[:4] == b"\4\0\0\0"  # work outside the profile is done as ever
        with hal.profile() as again:
            launch(5)
        assert len(events_of(device, again)) == 1 and len(events_of(device, profile)) == 2

    def test_F1_a_replay_shows_every_step(self, device: hal.Compiled) -> None:
        program, made = device.compile(count_up), buffer_of(device, bytes(400), hal.int32)
        with device.capture() as graph:
            for start in (1, 2):
                program(made, vals=(start, 100), threads=100)
            made.view(3).fill(0)
        queue = device.queue()
        in_queue = partial(graph.replay, queue=queue)
        for replay, name in ((graph.replay, ""), (in_queue, queue.name)):
            replay()  # by the driver, where it has graphs
            device.synchronize()
            with hal.profile() as profile:
                replay()
                device.synchronize()
            events = events_of(device, profile)
            assert [event.kind for event in events] == ["launch", "launch", "fill"]
            assert {event.queue for event in events} == {name}

    def test_F1_copies_in_a_queue_have_their_bytes(self, device: hal.Compiled) -> None:
        made, other = (buffer_of(device, bytes(400), hal.int32) for _ in range(2))
        queue = device.queue()
        with hal.profile() as profile:
            made.copyin(bytes(400), queue=queue)
            other.copy_from(made, queue=queue)
            other.view(3).fill(0, queue=queue)
            other.view(100).copyout(bytearray(400), queue=queue)
            queue.synchronize()
        events = events_of(device, profile, *QUEUED)
        sizes = [(event.kind, event.nbytes) for event in events if event.queue]
        assert sizes == [("copyin", 400), ("copy", 400), ("fill", 12), ("copyout", 400)]

    def test_F1_memory_is_bounded_and_what_is_dropped_counts(self, device: hal.Compiled) -> None:
        made = buffer_of(device, bytes(64))
        with hal.profile(limit=4) as profile:
            # Each fill has another size, which tells the events apart.
            for turn in range(10):
                made.view(1 + turn).fill(turn)
        assert [event.nbytes for event in profile.events] == [7, 8, 9, 10]
        assert profile.dropped == 6

    def test_F2_a_trace_has_a_row_a_queue_arrows_and_memory(
        self, device: hal.Compiled, tmp_path: Path
    ) -> None:
        program = device.compile(count_up)
        gc.collect()  # garbage of other tests is freed before the profile, not in it
        with hal.profile() as profile:
            one, two = device.queue(), device.queue()
            made, other = (buffer_of(device, bytes(400), hal.int32) for _ in range(2))
            for turn in range(3):
                program(made, vals=(turn, 100), threads=100, queue=one)
            two.wait(one.record())
            other.copy_from(made, queue=two)
            assert two.synchronize(20) and read(other)[:4] == bytes([2, 0, 0, 0])
        rows = trace.rows_of(profile.events)
        kinds = {row.name: [one.kind for one in row.events] for row in rows}
        assert kinds[one.name] == ["launch"] * 3 and kinds[two.name] == ["wait", "copy"]
        [arrow] = trace.arrows_of(rows)
        assert [rows[number].name for number, _ in arrow] == [one.name, two.name]
        profile.save(tmp_path / "trace.json")
        events = json.loads((tmp_path / "trace.json").read_text("utf-8"))["traceEvents"]
        memory = sorted((one["ts"], one["args"]["bytes"]) for one in events if one["ph"] == "C")
        assert [nbytes for _, nbytes in memory] == [0, 400, 800]
