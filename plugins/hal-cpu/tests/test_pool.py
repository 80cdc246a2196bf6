"""The worker pool: every chunk runs once, errors reach the caller, interrupts wait for workers."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable
from ctypes import CFUNCTYPE, byref, c_int32, c_int64, c_void_p, cast
from functools import partial
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, Self

import pytest
from ctrl_c import Heard, Scene, press_everywhere
from hypothesis import given
from hypothesis import strategies as st
from in_threads import results

import hal_core as hal
from hal_cpu.program import CPUProgram
from hal_cpu.threads import pool as pool_module
from hal_cpu.threads import team as team_module
from hal_cpu.threads.pool import Pool, call_in_thread, split
from hal_cpu.threads.stacks import start_thread


@given(blocks=st.integers(1, 2**40), threads=st.integers(1, 64))
def test_split_covers_every_block_once(blocks: int, threads: int) -> None:
    chunks = [(first.value, last.value) for first, last in split(blocks, threads)]
    assert chunks[0][0] == 0 and chunks[-1][1] == blocks
    assert all(a[1] == b[0] for a, b in itertools.pairwise(chunks))
    sizes = [last - first for first, last in chunks]
    assert min(sizes) >= 1 and max(sizes) - min(sizes) <= 1


class Recorder:
    def __init__(self, pause: float = 0.0) -> None:
        self.seen: list[tuple[int, str]] = []
        self.pause = pause

    def __call__(self, args: bytes, launch: Any, first: c_int64, last: c_int64) -> None:
        time.sleep(self.pause)
        self.seen.append((first.value, threading.current_thread().name))


@pytest.fixture
def pool() -> Any:
    made = Pool(4)
    yield made
    made.close()


def wait_until(true: Callable[[], object]) -> None:
    """Wait, for as long as a busy machine may take."""
    end = time.monotonic() + 30
    while not true():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.001)


def test_P6_every_chunk_runs_once_on_several_threads(pool: Pool) -> None:
    seen: list[tuple[int, str]] = []

    def run(args: bytes, launch: Any, first: c_int64, last: c_int64) -> None:
        seen.append((first.value, threading.current_thread().name))
        wait_until(lambda: len({name for _, name in seen}) > 1)

    pool.run(run, b"", None, split(100, 4))
    assert sorted(first for first, _ in seen) == [100 * n // 16 for n in range(16)]


def test_no_thread_before_the_first_launch(pool: Pool) -> None:
    assert pool._workers == {}
    pool.run(Recorder(), b"", None, split(8, 4))
    wait_until(lambda: len(pool._workers) == 3)


def test_X1_concurrent_callers_each_get_their_own(pool: Pool) -> None:
    records = [Recorder(0.001) for _ in range(8)]

    def call(record: Recorder) -> None:
        for _ in range(10):
            pool.run(record, b"", None, split(16, 4))

    results(*(partial(call, record) for record in records))
    for record in records:
        assert sorted(first for first, _ in record.seen) == sorted([*range(16)] * 10)


@pytest.mark.parametrize("bad", [0, 5, 15])
def test_an_exception_of_any_thread_reaches_the_caller(pool: Pool, bad: int) -> None:
    seen = []

    def run(args: bytes, launch: Any, first: c_int64, last: c_int64) -> None:
        time.sleep(0.001)
        seen.append(first.value)
        if first.value == bad:
            raise ValueError(f"chunk {bad}")

    with pytest.raises(ValueError, match=f"chunk {bad}"):
        pool.run(run, b"", None, split(16, 4))
    count = len(seen)
    time.sleep(0.02)
    assert len(seen) == count == len(set(seen))  # nothing runs on after the call
    pool.run(Recorder(), b"", None, split(16, 4))


class Interrupts:
    """Ctrl-C, sent from another thread; each is handled before the next."""

    def __init__(self) -> None:
        self.handled = 0

    def __enter__(self) -> Self:
        self.before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self.before)

    def _handle(self, *_: object) -> None:
        self.handled += 1
        raise KeyboardInterrupt

    def send(self) -> None:
        sent = self.handled + 1
        os.kill(os.getpid(), signal.SIGINT)
        wait_until(lambda: self.handled == sent)


def test_interrupts_wait_for_running_chunks(pool: Pool) -> None:
    """The kernel writes the caller's memory: it has stopped when control is back."""
    running: list[str] = []
    done: list[str] = []

    def run(args: bytes, launch: Any, first: c_int64, last: c_int64) -> None:
        name = threading.current_thread().name
        running.append(name)
        wait_until(lambda: len(running) == 4)
        for _ in range(4 if name == "hal-cpu-1" else 0):
            interrupts.send()
        wait_until(lambda: interrupts.handled == 4)
        done.append(name)

    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt) as caught:
        pool.run(run, b"", None, split(16, 4))
    time.sleep(0.05)
    # All but the caller's own have ended; what was not begun is dropped.
    assert len(done) == len(running) - 1 == 3
    assert caught.value.__context__ is None  # the first interrupt, nothing of the later ones


def test_an_interrupt_while_workers_are_called_waits_for_them(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: list[None] = []
    done: list[None] = []

    def run(args: bytes, launch: Any, first: c_int64, last: c_int64) -> None:
        running.append(None)
        time.sleep(0.1)
        done.append(None)

    class Interrupted(SimpleQueue[Any]):
        def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
            super().put(item)
            if item is not None:
                wait_until(lambda: running)
                raise KeyboardInterrupt

    pool._queue = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        pool.run(run, b"", None, split(16, 4))
    assert len(running) == len(done) == 1
    time.sleep(0.05)
    assert len(running) == 1


def test_an_interrupt_waits_for_a_call_in_a_thread() -> None:
    """LLVM would be at work while Python ends, and its own finalizers with it."""
    done: list[str] = []

    def work() -> None:
        interrupts.send()
        interrupts.send()
        done.append(threading.current_thread().name)

    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt):
        call_in_thread(work)
    assert done == ["hal-cpu-call"]


def test_a_call_is_made_here_where_there_can_be_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert call_in_thread(threading.current_thread) is threading.main_thread()
    with pytest.raises(RuntimeError, match="can't start"):
        call_in_thread(threading.current_thread, 1 << 60)


@pytest.mark.parametrize("granted", [0, 2])
def test_work_is_done_by_the_threads_that_could_be_started(
    monkeypatch: pytest.MonkeyPatch, granted: int
) -> None:
    left = [granted]
    start = threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(thread)

    pool = Pool(8)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", limited)
        record = Recorder(0.001)
        pool.run(record, b"", None, split(32, 8))
    assert len(record.seen) == 32
    wait_until(lambda: len(pool._workers) == granted)
    assert pool._queue.empty()  # no worker would take a job from it
    workers = list(pool._workers.values())
    pool.close()
    wait_until(lambda: not any(worker.is_alive() for worker in workers))


def test_close_ends_the_threads_and_a_closed_pool_still_serves() -> None:
    pool = Pool(3)
    pool.run(Recorder(), b"", None, split(12, 3))
    workers = list(pool._workers.values())
    pool.close()
    wait_until(lambda: not any(worker.is_alive() for worker in workers))
    record = Recorder()
    pool.run(record, b"", None, split(12, 3))
    assert len(record.seen) == 12
    pool.close()


# -- launches that machine code shares


def as_machine_code(kernel: Callable[[int, int, int, int], None]) -> tuple[Any, int]:
    """Return what a team calls as it calls a kernel, and its address."""
    called = CFUNCTYPE(None, c_void_p, c_void_p, c_int64, c_int64)(kernel)
    return called, cast(called, c_void_p).value or 0


def launched(kernel: Callable[[int, int, int, int], None]) -> Any:
    """Return a function that a pool runs as the machine code of a kernel."""

    def run(args: bytes, launch: Any, first: c_int64, last: c_int64) -> None:
        kernel(0, 0, first.value, last.value)

    kept, entry = as_machine_code(kernel)
    run.code = SimpleNamespace(entry=entry, kept=kept)  # type: ignore[attr-defined]
    return run


@hal.kernel
def count(hits: hal.Ptr[hal.int32]) -> None:
    hal.atomic_add(hits, hal.global_idx(0), 1)


def test_P6_machine_code_runs_every_block_once(
    pool: Pool, device: hal.Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three callers at once, and workers that look, sleep, or come late."""
    program = device.compile(count)
    assert isinstance(program, CPUProgram)
    monkeypatch.setattr(pool_module, "Job", _Fallback)
    _Fallback.made = 0
    launches = 200

    def launch(blocks: int, found: list[bool]) -> None:
        hits = hal.zeros(blocks * 8, hal.int32, device=device)
        args, where = program._pack(hits._buf), byref((c_int32 * 6)(blocks, 1, 1, 8, 1, 1))
        for k in range(launches):
            pool.run(program._releasing, args, where, split(blocks, 1 + k % 64))
            if not (hits.numpy() == k + 1).all():  # also: nobody is late
                return
            time.sleep(0.002 * (k % 16 == 0))
        found.append(True)

    found: list[bool] = []
    launch(20_000, found)
    assert found == [True] and not _Fallback.made
    results(*(partial(launch, blocks, found) for blocks in (1, 370, 5000)))
    assert len(found) == 4
    assert _Fallback.made < 3 * launches


class _Fallback(pool_module.Job):
    made = 0

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        type(self).made += 1


_HELD = """enter:
  %arrived = getelementptr i64, ptr %job, i64 22
  store atomic i64 1, ptr %arrived seq_cst, align 8
  %gate = getelementptr i64, ptr %job, i64 23
  br label %held
held:
  %opened = load atomic i64, ptr %gate seq_cst, align 8
  %goes_on = icmp ne i64 %opened, 0
  br i1 %goes_on, label %go_on, label %held
go_on:
"""


def test_P6_a_worker_that_comes_when_the_launch_is_over_runs_nothing(
    device: hal.Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has seen the job open, and enters while the caller fills in the next one."""
    monkeypatch.setattr(team_module, "_TEXT", team_module._TEXT.replace("enter:\n", _HELD))
    code = team_module._functions.__wrapped__()
    monkeypatch.setattr(team_module, "_functions", lambda: code)
    team = team_module.Team(2)
    ran: list[tuple[int, str]] = []
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            team.serve(1)

    def kernel(args: int, launch: int, first: int, last: int) -> None:
        ran.append((first, threading.current_thread().name))
        wait_until(lambda: team._job[22])  # until the worker has seen the job

    called, address = as_machine_code(kernel)
    worker = threading.Thread(target=serve, name="worker")
    worker.start()
    try:
        assert team.lead(address, b"", None, c_int64(2)) and called
        team._job[24] = team._job[32] = 0  # parts of the next job, which is not open yet
    finally:
        over.set()
        team._job[23] = 1
        worker.join()
    assert ran == [(first, threading.current_thread().name) for first in (0, 1)]


@pytest.mark.parametrize("blocks", [1, 2, 3, 7, 24, 25, 1000])
def test_P6_the_caller_runs_the_parts_of_workers_that_never_come(blocks: int) -> None:
    team = team_module.Team(3)
    ran: list[tuple[int, int]] = []

    def kernel(args: int, launch: int, first: int, last: int) -> None:
        ran.append((first, last))

    called, address = as_machine_code(kernel)
    assert team.lead(address, b"", None, c_int64(blocks)) and called
    assert ran[0][0] == 0 and ran[-1][1] == blocks
    assert all(a[1] == b[0] for a, b in itertools.pairwise(ran))
    assert len(ran) >= min(blocks, 9)


def test_a_thread_begins_with_the_same_part_of_each_launch(pool: Pool) -> None:
    """It finds what it wrote in the launch before in the cache of its core."""
    begun: dict[str, int] = {}
    seen: list[dict[str, int]] = []  # of launches in which all threads took part

    def kernel(args: int, launch: int, first: int, last: int) -> None:
        begun.setdefault(threading.current_thread().name, first)
        end = time.monotonic() + 0.2  # a worker that was about to sleep does not come
        while len(begun) < 4 and time.monotonic() < end:
            time.sleep(0.001)

    def all_begin() -> bool:
        begun.clear()
        pool.run(run, b"", None, split(4, 4))
        if len(begun) == 4:
            seen.append(begun.copy())
        return len(seen) == 3

    run = launched(kernel)
    wait_until(all_begin)
    me = threading.current_thread().name
    assert seen == [{me: 0, "hal-cpu-1": 1, "hal-cpu-2": 2, "hal-cpu-3": 3}] * 3


def test_P6_workers_that_wake_before_the_job_is_open_help(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One may wake on the core of the caller, which opens its job when that worker sleeps."""
    wake = pool._wake
    names: set[str] = set()

    def late() -> None:
        wake()
        time.sleep(0.03)

    def kernel(args: int, launch: int, first: int, last: int) -> None:
        names.add(threading.current_thread().name)
        time.sleep(0.01)

    run = launched(kernel)
    pool.run(run, b"", None, split(16, 4))
    wait_until(lambda: len(pool._idle) == 3)
    monkeypatch.setattr(pool, "_wake", late)
    names.clear()
    pool.run(run, b"", None, split(16, 4))
    assert len(names) > 1


def test_a_worker_that_has_done_its_part_sleeps_though_the_launch_runs_on(pool: Pool) -> None:
    """Beside busy processes the caller may be stopped in its part for milliseconds. Workers that
    look on meanwhile have used up their share of the processor when the next launch begins."""
    ran: list[str] = []

    def kernel(args: int, launch: int, first: int, last: int) -> None:
        name = threading.current_thread().name
        ran.append(name)
        if name == me and ran.count(me) == 1:
            wait_until(lambda: len(pool._idle) == 3)

    me = threading.current_thread().name
    run = launched(kernel)
    for _ in range(2):  # the first starts the workers, the second wakes them
        ran.clear()
        pool.run(run, b"", None, split(16, 4))
        assert len(ran) == 16


def test_ctrl_c_while_a_team_is_led_and_a_thread_is_started() -> None:
    """The team is free again, and threads of others get the stack that they got before."""
    team, usual = team_module.Team(1), threading.stack_size(1 << 20)
    called, address = as_machine_code(lambda *_: None)
    try:

        def scene() -> Scene:
            def work() -> None:
                team.lead(address, b"", None, c_int64(1))
                start_thread("served", int)

            def check(heard: Heard) -> None:
                assert called and not team._busy.locked()
                assert threading.stack_size(1 << 20) == 1 << 20

            return Scene(work, check)

        assert press_everywhere(scene, 100) > 10
    finally:
        threading.stack_size(usual)


def test_P6_ctrl_c_at_the_first_launch_leaves_each_number_one_thread() -> None:
    """Two threads of one number would both run its part of a launch, and one too few is slow."""

    def scene() -> Scene:
        before, pool = set(threading.enumerate()), Pool(3)

        def names() -> list[str]:
            made = set(threading.enumerate()) - before
            return sorted(one.name for one in made if one.is_alive())

        def check(heard: Heard) -> None:
            record = Recorder()
            pool.run(record, b"", None, split(12, 3))
            assert sorted(first for first, _ in record.seen) == list(range(12))
            wait_until(lambda: len(pool._workers) == 2)
            wait_until(lambda: names() == ["hal-cpu-1", "hal-cpu-2"])
            pool.close()
            wait_until(lambda: not names())

        return Scene(lambda: pool.run(Recorder(), b"", None, split(12, 3)), check)

    assert press_everywhere(scene, 80) > 50
