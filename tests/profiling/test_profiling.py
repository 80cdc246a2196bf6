"""Test F1: the events of a profile on every device, and no trace of it once it is closed."""

import copy
import gc
import os
import subprocess
import sys
import threading
import weakref
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from counts import calls
from fake_backend import FakePlugin
from in_threads import results
from installed import installed, opened
from run_python import printed

import hal_core as hal
from hal_core.profiling import events
from hal_core.profiling.host_clock import HostClock

BACKENDS = installed("CPU", "OPENCL")

SIGNATURE = "y: float32*, n: int32"
PYTHON = "def work(t, y, n):\n    if t[0] == 0:\n        y[0] = y[0] + n\n"


@hal.kernel
def work(y: hal.Ptr[hal.float32], n: hal.int32) -> None:
    i = hal.global_idx(0)
    s = y[i]
    for _ in range(n):
        s = s * 0.999 + 1.0
    y[i] = s


def compiled(device):
    if device.family == "FAKE":
        return device.compile(hal.Source("work", PYTHON, SIGNATURE, language="python"))
    return device.compile(work)


@pytest.fixture(params=["FAKE", *BACKENDS])
def device(request):
    if request.param == "FAKE":
        hal.Device.register_plugin("FAKE", FakePlugin())
    with opened(request.param) as device:
        yield device


def everything(device):
    """Do work of each kind once; `copyin`, `alloc` and `free` three times."""
    x = hal.Buffer.from_numpy(np.ones(64, "f4"), device)
    y = hal.Buffer.from_numpy(np.zeros(64, "f4"), device)
    compiled(device)(x, vals=(3,), threads=64)
    x.fill(2)
    z = hal.empty(64, hal.float32, device)
    z.copyin(bytearray(256))
    if device.family != "FAKE":
        z.copy_from(x)
    assert x.numpy()[5] == 2
    x.deallocate()
    y.deallocate()
    hal.Buffer(device, 0, hal.float32).allocate()  # takes no memory


def methods(device, program):
    """Return the callables that a device, its allocator and a program hold as attributes."""
    return [
        {name: value for name, value in vars(part).items() if callable(value)}
        for part in (device, device.allocator, program)
    ]


def test_F1_off_means_that_nothing_is_there(device):
    """No method is another, and a short copy and a launch cost what they did."""
    program, data = compiled(device), bytes(256)
    x = hal.Buffer.from_numpy(np.ones(64, "f4"), device)

    def use():
        x.copyin(data)
        program(x, vals=(1,), threads=64)

    def cost():
        return min(calls(use) for _ in range(4))

    least, before = cost(), methods(device, program)
    with hal.profile(), hal.profile():
        assert methods(device, program) != before
        everything(device)
    after = methods(device, program)
    assert after == before and cost() <= least
    assert [list(part) for part in after] == [list(part) for part in before]
    assert events.open_profiles == ()


def test_F1_a_program_first_launched_in_a_profile_launches_after_it(device):
    program, other = compiled(device), compiled(device)
    x = hal.zeros(64, hal.float32, device)
    assert program is other or device.family == "FAKE"
    with hal.profile() as profile:
        program(x, vals=(1,), threads=64)
    for _ in range(3):
        program(x, vals=(1,), threads=64)
    assert [event.kind for event in profile.events] == ["launch"]
    assert x.numpy()[0] > 3


def test_F1_devices_and_programs_made_while_it_is_on():
    hal.Device.register_plugin("FAKE", FakePlugin("accelerator", "accelerator"))
    with hal.profile() as profile, hal.Device["FAKE"] as one, hal.Device["FAKE:1"] as two:
        for device in (one, two):
            everything(device)
            compiled(device)
        x = hal.Buffer.from_numpy(np.ones(4, "f4"), one)
        hal.empty(4, hal.float32, two).copy_from(x)
    counts = Counter((event.device, event.kind) for event in profile.events)
    assert counts["FAKE", "launch"] == counts["FAKE:1", "launch"] == 1
    assert counts["FAKE", "compile"] == 1 and counts["FAKE:1", "reuse"] == 2
    assert counts["FAKE", "reuse"] == 1, "a second Source object of the same text"
    assert counts["FAKE", "copyout"] == 2 and counts["FAKE:1", "copyin"] == 4, "a staged copy"


# -- bounds, ranges, several at once


def test_F1_memory_is_bounded_and_what_was_dropped_is_counted(fake):
    """By ranges of one thread, and by memory of four."""
    with hal.profile(limit=10) as profile:
        for n in range(25):
            with hal.profile_range(f"step {n}"):
                pass
        assert profile.dropped == 15
    assert [event.name for event in profile.events] == [f"step {n}" for n in range(15, 25)]
    assert profile.dropped == 15 and "10 events, 15 dropped" in repr(profile)

    def work():
        for _ in range(200):
            hal.zeros(4, hal.int8, fake)

    with hal.profile(limit=100) as profile:
        results(*[work] * 4)
    # alloc, fill and free of each
    assert len(profile.events) == 100 and profile.dropped == 4 * 200 * 3 - 100


def test_F1_a_clock_is_stopped_when_the_last_profile_closes(fake):
    """The clock is stopped before the profile is read, with no lock held, and can be used again."""
    stopped = []

    def look():
        """Another thread opens a profile, for which it needs the lock."""
        with hal.profile():
            stopped.append(len(events.open_profiles))

    class Clock(HostClock):
        def stop(self):
            if not looking.locked():
                with looking:
                    results(look, seconds=20)

    looking, clock = threading.Lock(), Clock(fake)
    fake._make_clock = lambda: clock
    x = hal.zeros(64, hal.float32, fake)
    for turn in range(2):
        with hal.profile() as outer:
            with hal.profile() as inner:
                x.fill(1)
            x.fill(2)
            assert len(stopped) == turn
        assert stopped == [1] * (turn + 1)
        assert len(outer.events) == 2 and len(inner.events) == 1


def test_F1_ranges():
    with hal.profile_range("nobody looks"):
        pass
    with hal.profile() as profile:
        inner = hal.profile_range("inner")
        with hal.profile_range("outer"), pytest.raises(KeyError):
            with inner:
                raise KeyError
        with inner:
            pass
    outer, inner, _ = profile.events
    assert (outer.kind, outer.name, outer.device, outer.nbytes) == ("range", "outer", "", 0)
    assert isinstance(inner, hal.ProfileRangeEvent) and inner.name == "inner"
    assert outer.start_ns <= inner.start_ns <= inner.end_ns <= outer.end_ns


def test_profiles_open_at_once_each_see_all(fake):
    with hal.profile() as outer:
        hal.empty(4, hal.int8, fake)
        with hal.profile() as inner:
            hal.empty(8, hal.int8, fake)
        assert "alloc" in vars(fake.allocator)
        hal.empty(16, hal.int8, fake)
    allocs = [
        [event.nbytes for event in profile.events if event.kind == "alloc"]
        for profile in (inner, outer)
    ]
    assert allocs == [[8], [4, 8, 16]]
    assert events.open_profiles == ()


def test_a_profile_opened_twice_is_refused(fake):
    with hal.profile() as profile:
        for again in (profile, copy.copy(profile)):
            with pytest.raises(hal.InvalidState, match="opened before.*hal.profile()"), again:
                pass
        hal.empty(4, hal.int8, fake)
    assert len(profile.events) == 2
    started = hal.start_profile()
    with pytest.raises(hal.InvalidState, match="opened before"), started:
        pass
    hal.empty(4, hal.int8, fake)
    assert len(hal.finalize_profile()) == 2


def test_F1_memory_of_others_is_no_event(fake):
    other = fake.allocator.alloc(64)
    with hal.profile() as profile:
        x = hal.Buffer(fake, 64, hal.int8, hal.BufferSpec(external_ptr=other[0])).allocate()
        x.copyin(bytes(64))
        x.deallocate()
        fake.allocator.free(other, 64)
    assert [event.kind for event in profile.events] == ["copyin", "free"]


def test_what_fails_is_no_event(fake):
    program = compiled(fake)
    with hal.profile() as profile:
        fake.allocator.fail_next = 2
        with pytest.raises(hal.OutOfMemory):
            hal.empty(64, hal.int8, fake)
        with pytest.raises(hal.InvalidArgument):
            fake.allocator.free((1, 0), 64)
        with pytest.raises(hal.InvalidArgument):
            program(vals=(1,), threads=1)
        program.unload()
        with pytest.raises(hal.InvalidState):
            program(hal.Buffer(fake, 1, hal.float32), vals=(1,), threads=1)
    assert profile.events == ()
    with pytest.raises(hal.InvalidState):
        program(hal.Buffer(fake, 1, hal.float32), vals=(1,), threads=1)


def test_F1_on_and_off_beside_threads_that_work_loses_nothing(device):
    program = compiled(device)
    ending = threading.Event()

    def run(seed):
        while not ending.is_set():
            x = hal.Buffer.from_numpy(np.full(64, seed, "f4"), device)
            program(x, vals=(0,), threads=64)
            y = hal.zeros(64, hal.float32, device).copy_from(x)
            assert y.numpy()[63] == seed
            x.deallocate()

    def profile():
        try:
            for _ in range(8):
                with hal.profile(limit=50) as profile:
                    ending.wait(0.01)
                assert all(event.start_ns <= event.end_ns for event in profile.events)
        finally:
            ending.set()

    gc.collect()
    held = device.allocator.statistics().live
    results(*(partial(run, seed) for seed in range(3)), profile)
    gc.collect()
    assert device.allocator.statistics().live == held
    assert events.open_profiles == ()


# -- the whole of a process


def test_start_and_finalize(fake):
    started = hal.start_profile()
    with pytest.raises(hal.InvalidState, match=r"finalize_profile\(\) first"):
        hal.start_profile()
    hal.empty(4, hal.int8, fake)
    found = hal.finalize_profile()
    hal.empty(4, hal.int8, fake)
    assert [event.kind for event in found] == ["alloc", "free"]
    assert hal.finalize_profile() is found and started.dropped == 0
    assert fake.log[-1] == "synchronize"
    assert hal.start_profile() is not started
    assert hal.finalize_profile() == ()


def test_F1_opening_a_profile_waits_for_queued_work(fake):
    fake.allocator  # made
    fake.log.clear()
    with hal.profile():
        assert fake.log == ["synchronize"]


AT_EXIT = """
import atexit, sys
sys.path.insert(0, {tests!r})

def last():
    found = hal.finalize_profile()
    print(*(event.kind for event in found), device.closed, device.log)

atexit.register(last)
import hal_core as hal
from fake_backend import FakePlugin
hal.Device.register_plugin("FAKE", FakePlugin())
assert hal.finalize_profile() == ()
device = hal.Device["FAKE"]
x = hal.zeros(4, hal.int8, device)
"""


def test_F1_HAL_PROFILE_records_from_the_first_device_to_the_end():
    text = AT_EXIT.format(tests=os.path.dirname(os.path.dirname(__file__)))
    for value, expected in (("1", "alloc fill True"), ("0", "True")):
        said = printed(text, HAL_PROFILE=value)
        assert said.startswith(expected) and "'synchronize', 'close'" in said


def test_F1_a_program_goes_with_its_last_user(fake):
    """A profile makes no reference cycle that would keep a program until the collector runs."""
    with hal.profile():
        kernel = hal.Source("work", PYTHON, SIGNATURE, language="python")
        reference = weakref.ref(fake.compile(kernel))
        assert reference() is not None
        gc.disable()
        try:
            del kernel
            assert reference() is None
        finally:
            gc.enable()


@pytest.mark.full
def test_F1_the_suite_passes_while_everything_is_profiled():
    """The recording methods behave as the real ones do."""
    folder = Path(__file__).parents[1]
    names = ("test_buffer.py", "test_program.py", "test_arrays.py", "test_allocator.py")
    tests = [path for name in names for path in folder.rglob(name) if path.parent.name != "testing"]
    assert len(tests) >= len(names)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests], cwd=folder,
        env=os.environ | {"HAL_PROFILE": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
