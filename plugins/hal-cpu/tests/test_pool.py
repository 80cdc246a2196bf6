"""The worker pool: every chunk runs once, errors reach the caller, interrupts wait for workers."""

import itertools
import os
import signal
import sys
import threading
import time
from ctypes import CFUNCTYPE, byref, c_char_p, c_int32, c_int64, c_void_p, cast
from functools import partial
from pathlib import Path
from struct import pack
from types import SimpleNamespace

import numpy as np
import pytest
from ctrl_c import Scene, press_everywhere
from hypothesis import given
from hypothesis import strategies as st
from in_threads import results, wait_until

import hal_core as hal
from hal_cpu.program import CPUProgram
from hal_cpu.threads import team as team_module
from hal_cpu.threads.job import call_in_thread
from hal_cpu.threads.pool import Pool, split
from hal_cpu.threads.stacks import start_thread


@given(blocks=st.integers(1, 2**40), threads=st.integers(1, 64))
def test_split_covers_every_block_once(blocks, threads):
    chunks = [(first.value, last.value) for first, last in split(blocks, threads)]
    assert chunks[0][0] == 0 and chunks[-1][1] == blocks
    assert all(a[1] == b[0] for a, b in itertools.pairwise(chunks))
    sizes = [last - first for first, last in chunks]
    assert min(sizes) >= 1 and max(sizes) - min(sizes) <= 1


class Recorder:
    def __init__(self, pause=0.0):
        self.seen = []
        self.pause = pause

    def __call__(self, args, launch, first, last):
        time.sleep(self.pause)
        self.seen.append((first.value, threading.current_thread().name))


@pytest.fixture
def workers():
    """A function that names the threads of pools that were started since."""
    before = set(threading.enumerate())
    return lambda: sorted(one.name for one in set(threading.enumerate()) - before if one.is_alive())


@pytest.fixture
def pool(workers):
    made = Pool(4)
    yield made
    made.close()


def test_P6_every_chunk_runs_once_on_several_threads(pool):
    seen = []

    def run(args, launch, first, last):
        seen.append((first.value, threading.current_thread().name))
        wait_until(lambda: len({name for _, name in seen}) > 1)

    pool.run(run, b"", None, split(100, 4))
    assert sorted(first for first, _ in seen) == [100 * n // 16 for n in range(16)]


def test_X1_concurrent_callers_each_get_their_own(pool):
    records = [Recorder(0.001) for _ in range(8)]

    def call(record):
        for _ in range(10):
            pool.run(record, b"", None, split(16, 4))

    results(*(partial(call, record) for record in records))
    for record in records:
        assert sorted(first for first, _ in record.seen) == sorted([*range(16)] * 10)


@pytest.mark.parametrize("bad", [0, 5, 15])
def test_an_exception_of_any_thread_reaches_the_caller(pool, bad):
    seen = []

    def run(args, launch, first, last):
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

    def __init__(self):
        self.handled = 0

    def __enter__(self):
        self.before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_):
        signal.signal(signal.SIGINT, self.before)

    def _handle(self, *_):
        self.handled += 1
        raise KeyboardInterrupt

    def send(self):
        sent = self.handled + 1
        os.kill(os.getpid(), signal.SIGINT)
        wait_until(lambda: self.handled == sent)


def test_interrupts_wait_for_running_chunks(pool):
    """The kernel writes the caller's memory: it has stopped when control is back."""
    running = []
    done = []

    def run(args, launch, first, last):
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


def test_an_interrupt_waits_for_a_call_in_a_thread():
    """LLVM would be at work while Python ends, and its own finalizers with it."""
    done = []

    def work():
        interrupts.send()
        interrupts.send()
        done.append(threading.current_thread().name)

    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt):
        call_in_thread(work)
    assert done == ["hal-cpu-call"]


def test_a_call_is_made_here_where_there_can_be_no_thread(monkeypatch):
    def start(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert call_in_thread(threading.current_thread) is threading.main_thread()
    with pytest.raises(RuntimeError, match="can't start"):
        call_in_thread(threading.current_thread, 1 << 60)


@pytest.mark.parametrize("granted", [0, 2, 7])
def test_threads_start_at_the_first_launch_as_many_as_can_and_end_with_the_pool(
    monkeypatch, workers, granted
):
    left = [granted]
    start = threading.Thread.start

    def limited(thread):
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(thread)

    pool = Pool(8)
    assert not workers()
    for _ in range(2):  # a closed pool still serves
        left[0] = granted
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", limited)
            record = Recorder(0.001)
            pool.run(record, b"", None, split(32, 8))
        assert sorted(first for first, _ in record.seen) == list(range(32))
        assert workers() == [f"hal-cpu-{me}" for me in range(1, granted + 1)]
        pool.close()
        wait_until(lambda: not workers())


# -- launches that machine code shares


def as_machine_code(kernel):
    """Return what a team calls as it calls a kernel, and its address."""
    called = CFUNCTYPE(None, c_void_p, c_void_p, c_int64, c_int64)(kernel)
    return called, cast(called, c_void_p).value or 0


def launched(kernel):
    """Return a function that a pool runs as the machine code of a kernel."""

    def run(args, launch, first, last):
        kernel(0, 0, first.value, last.value)

    kept, entry = as_machine_code(kernel)
    run.code = SimpleNamespace(entry=entry, kept=kept)
    return run


@hal.kernel
def count(hits: hal.Ptr[hal.int32]) -> None:
    hal.atomic_add(hits, hal.global_idx(0), 1)


def test_P6_machine_code_runs_every_block_once(pool, device):
    """Three callers at once, and workers that look, sleep, or come late."""
    program = device.compile(count)
    assert isinstance(program, CPUProgram) and program.code is not None
    run = CFUNCTYPE(None, c_char_p, c_void_p, c_int64, c_int64)(program.code.entry)
    run.code = program.code

    def launch(blocks):
        hits = np.zeros(blocks * 8, np.int32)
        args, where = pack("@Q", hits.ctypes.data), byref((c_int32 * 6)(blocks, 1, 1, 8, 1, 1))
        for k in range(200):
            pool.run(run, args, where, split(blocks, 1 + k % 64))
            assert (hits == k + 1).all()  # also: nobody is late
            time.sleep(0.002 * (k % 16 == 0))

    launch(20_000)
    results(*(partial(launch, blocks) for blocks in (1, 370, 5000)))


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


def test_P6_a_worker_that_comes_when_the_launch_is_over_runs_nothing(device, monkeypatch):
    """It has seen the job open, and enters while the caller fills in the next one."""
    monkeypatch.setattr(team_module, "_TEXT", team_module._TEXT.replace("enter:\n", _HELD))
    code = team_module._functions.__wrapped__()
    monkeypatch.setattr(team_module, "_functions", lambda: code)
    team = team_module.Team(2)
    ran = []
    over = threading.Event()

    def serve():
        while not over.is_set():
            team.serve(1)

    def kernel(args, launch, first, last):
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
def test_P6_the_caller_runs_the_parts_of_workers_that_never_come(blocks):
    team = team_module.Team(3)
    ran = []

    def kernel(args, launch, first, last):
        ran.append((first, last))

    called, address = as_machine_code(kernel)
    assert team.lead(address, b"", None, c_int64(blocks)) and called
    assert ran[0][0] == 0 and ran[-1][1] == blocks
    assert all(a[1] == b[0] for a, b in itertools.pairwise(ran))
    assert len(ran) >= min(blocks, 9)


def test_a_thread_begins_with_the_same_part_of_each_launch(pool):
    """It finds what it wrote in the launch before in the cache of its core."""
    begun = {}
    seen = []  # of launches in which all threads took part

    def kernel(args, launch, first, last):
        begun.setdefault(threading.current_thread().name, first)
        end = time.monotonic() + 0.2  # a worker that was about to sleep does not come
        while len(begun) < 4 and time.monotonic() < end:
            time.sleep(0.001)

    def all_begin():
        begun.clear()
        pool.run(run, b"", None, split(4, 4))
        if len(begun) == 4:
            seen.append(begun.copy())
        return len(seen) == 3

    run = launched(kernel)
    wait_until(all_begin)
    me = threading.current_thread().name
    assert seen == [{me: 0, "hal-cpu-1": 1, "hal-cpu-2": 2, "hal-cpu-3": 3}] * 3


def test_P6_a_worker_that_wakes_before_the_job_is_open_helps():
    """One may wake on the core of the caller, which opens its job when that worker sleeps."""
    team, names = team_module.Team(2), set[str]()

    def kernel(args, launch, first, last):
        names.add(threading.current_thread().name)
        time.sleep(0.01)

    called, address = as_machine_code(kernel)
    team.coming = True
    worker = threading.Thread(target=team.serve, args=(1,), name="worker")
    worker.start()
    time.sleep(0.03)
    assert team.lead(address, b"", None, c_int64(16)) and called
    team.coming = False
    worker.join()
    assert names == {"worker", threading.current_thread().name}


@pytest.mark.skipif(sys.platform != "linux", reason="Linux says which threads sleep")
def test_workers_that_have_done_their_part_sleep_though_the_launch_runs_on(pool):
    """Those that look on have used up their share of the processor when the next launch begins."""
    slept = []

    def asleep(worker):
        stat = Path(f"/proc/self/task/{worker.native_id}/stat").read_text()
        return stat.rpartition(") ")[2][0] == "S"

    def kernel(args, launch, first, last):
        workers = [one for one in threading.enumerate() if one.name.startswith("hal-cpu-")]
        if threading.current_thread() is threading.main_thread() and workers and not slept:
            wait_until(lambda: all(map(asleep, workers)))
            slept.extend(one.name for one in workers)

    run = launched(kernel)
    for _ in range(2):  # the first starts the workers, the second wakes them
        slept.clear()
        pool.run(run, b"", None, split(16, 4))
        assert len(slept) >= 3


def test_ctrl_c_while_a_team_is_led_and_a_thread_is_started():
    """The team is free again, and threads of others get the stack that they got before."""
    team, usual = team_module.Team(1), threading.stack_size(1 << 20)
    called, address = as_machine_code(lambda *_: None)
    try:

        def scene():
            def work():
                team.lead(address, b"", None, c_int64(1))
                start_thread("served", int)

            def check(heard):
                assert called and team.lead(address, b"", None, c_int64(1))
                assert threading.stack_size(1 << 20) == 1 << 20

            return Scene(work, check)

        assert press_everywhere(scene, 100) > 10
    finally:
        threading.stack_size(usual)


def test_P6_ctrl_c_at_the_first_launch_leaves_each_number_one_thread(workers):
    """Two threads of one number would both run its part of a launch, and one too few is slow."""

    def scene():
        pool, first, again = Pool(3), Recorder(), Recorder()

        def check(heard):
            ran = len(first.seen)
            pool.run(again, b"", None, split(12, 3))
            assert sorted(number for number, _ in again.seen) == list(range(12))
            assert workers() == ["hal-cpu-1", "hal-cpu-2"]
            pool.close()
            wait_until(lambda: not workers())
            assert len(first.seen) == ran  # what was interrupted had ended

        return Scene(lambda: pool.run(first, b"", None, split(12, 3)), check)

    assert press_everywhere(scene, 80) > 50
