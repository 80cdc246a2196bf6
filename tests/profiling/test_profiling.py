"""Test F1: the events of a profile on every device, and no trace of it once it is closed."""

from __future__ import annotations

import copy
import gc
import os
import subprocess
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_backend import FakePlugin

import hal_core as hal
from hal_core import buffer as buffer_module
from hal_core.profiling import HostClock, events, instrumentation, session

BACKENDS = [name for name in ("CPU", "OPENCL") if find_spec(f"hal_{name.lower()}") is not None]
ORDERED = [name for name in BACKENDS if name != "CPU"]  # there, threads run at once

SIGNATURE = "y: float32*, n: int32"
PYTHON = "def work(t, y, n):\n    if t[0] == 0:\n        y[0] = y[0] + n\n"


def recording() -> list[Any]:
    """The allocators and programs whose methods a profile has replaced."""
    found = [
        target
        for device in hal.concurrency.devices
        for target in (vars(device).get("allocator"), *device._loaded)
    ]
    return [one for one in found if one is not None and "_before_profile" in vars(one)]


@hal.kernel
def work(y: hal.Ptr[hal.float32], n: hal.int32) -> None:
    i = hal.global_idx(0)
    s = y[i]
    for _ in range(n):
        s = s * 0.999 + 1.0
    y[i] = s


def compiled(device: hal.Compiled) -> hal.Program:
    if device.family == "FAKE":
        return device.compile(hal.Source("work", PYTHON, SIGNATURE, language="python"))
    return device.compile(work)


@pytest.fixture(params=["FAKE", *BACKENDS])
def device(request: pytest.FixtureRequest) -> Iterator[hal.Compiled]:
    if request.param == "FAKE":
        hal.Device.register_plugin("FAKE", FakePlugin())
    try:
        opened = hal.Device[request.param]
    except hal.DeviceUnavailable as error:
        pytest.skip(str(error))
    with opened:
        yield opened


NONE = [pytest.param("", marks=pytest.mark.skip("no backend here"))]


@pytest.fixture(params=BACKENDS or NONE)
def real(request: pytest.FixtureRequest) -> Iterator[hal.Compiled]:
    try:
        opened = hal.Device[request.param]
    except hal.DeviceUnavailable as error:
        pytest.skip(str(error))
    with opened:
        yield opened


def everything(device: hal.Compiled) -> None:
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


def parts(device: hal.Compiled, program: hal.Program) -> list[dict[str, Any]]:
    device.allocator.statistics()  # closes the accounts that finalizers left open
    state = [dict(vars(part)) for part in (device, device.allocator, program)]
    for attributes in state:
        for account in ("_hits", "_misses", "_current", "_peak", "_held", "_cached", "allocs",
                        "last_event"):  # fmt: skip
            attributes.pop(account, None)
    return state


def test_F1_off_means_that_nothing_is_there(device: hal.Compiled) -> None:
    program = compiled(device)
    x = hal.Buffer.from_numpy(np.ones(64, "f4"), device)
    program(x, vals=(1,), threads=64)
    short = buffer_module._direct_nbytes
    before = parts(device, program)
    with hal.profile(), hal.profile():
        during = parts(device, program)
        assert buffer_module._direct_nbytes < 0
        everything(device)
    after = parts(device, program)
    assert after == before
    assert [list(part) for part in after] == [list(part) for part in before]
    assert all(after[1][name] is before[1][name] for name in before[1])
    assert all(after[2][name] is before[2][name] for name in before[2])
    assert set(during[1]) > set(before[1]) and set(during[2]) > set(before[2])
    assert buffer_module._direct_nbytes == short > 0
    assert events.open_profiles == ()
    assert not recording() and not instrumentation._clocks
    program(x, vals=(1,), threads=64)  # the fast path of before still works


def test_F1_a_program_first_launched_in_a_profile_launches_after_it(device: hal.Compiled) -> None:
    program, other = compiled(device), compiled(device)
    x = hal.zeros(64, hal.float32, device)
    assert program is other or device.family == "FAKE"
    with hal.profile() as profile:
        program(x, vals=(1,), threads=64)
    for _ in range(3):
        program(x, vals=(1,), threads=64)
    assert [event.kind for event in profile.events] == ["launch"]
    assert x.numpy()[0] > 3


def test_F1_devices_and_programs_made_while_it_is_on() -> None:
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


@pytest.mark.parametrize("device", ORDERED or NONE, indirect=True)
def test_F1_a_launch_is_not_waited_for_where_the_queue_tells_the_time(device: Any) -> None:
    if "oclgrind" in device.info.vendor["platform"].lower():
        pytest.skip("Oclgrind runs kernels in the calling thread")
    program = compiled(device)
    x = hal.zeros(256, hal.float32, device)
    program(x, vals=(1,), threads=256, wait=True)
    returned = []  # while the launch still ran; a busy machine may stop the caller for long
    for turns in (300_000, 300_000, 3_000_000, 10_000_000, 30_000_000):
        with hal.profile() as profile:
            program(x, vals=(turns,), threads=256)
            returned.append(not device.default_queue.record().done)
        assert [event.kind for event in profile.events] == ["launch"]
        if any(returned):
            return
    pytest.fail("each launch had ended when its call returned")


# -- bounds, ranges, several at once


def test_F1_memory_is_bounded_and_what_was_dropped_is_counted(fake: hal.Compiled) -> None:
    with hal.profile(limit=10) as profile:
        for n in range(25):
            with hal.profile_range(f"step {n}"):
                pass
        assert profile.dropped == 15
    assert [event.name for event in profile.events] == [f"step {n}" for n in range(15, 25)]
    assert profile.dropped == 15 and "10 events, 15 dropped" in repr(profile)
    with hal.profile(limit=100) as profile:
        threads = [
            threading.Thread(target=lambda: [hal.zeros(4, hal.int8, fake) for _ in range(200)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    # alloc, fill and free of each
    assert len(profile.events) == 100 and profile.dropped == 4 * 200 * 3 - 100


def test_F1_a_clock_is_stopped_when_the_last_profile_closes(fake: hal.Compiled) -> None:
    """The clock is stopped before the profile is read, with no lock held, and can be used again."""
    stopped: list[tuple[int, bool]] = []

    def look() -> None:
        free = session._lock.acquire(blocking=False)
        if free:
            session._lock.release()
        stopped.append((len(events.open_profiles), free))

    class Clock(HostClock):
        def stop(self) -> None:
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()

    clock = Clock(fake)
    fake._make_clock = lambda: clock  # type: ignore[method-assign]
    x = hal.zeros(64, hal.float32, fake)
    for turn in range(2):
        with hal.profile() as outer:
            with hal.profile() as inner:
                x.fill(1)
            x.fill(2)
            assert len(stopped) == turn
        assert stopped == [(0, True)] * (turn + 1)
        assert len(outer.events) == 2 and len(inner.events) == 1


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, None, 2**70])
def test_the_limit_is_a_number_of_events(limit: Any) -> None:
    with pytest.raises(hal.InvalidArgument, match="profile: limit must be a number of events"):
        hal.profile(limit)


def test_F1_ranges() -> None:
    with hal.profile_range("nobody looks"):
        pass
    with hal.profile() as profile:
        with hal.profile_range("outer"), pytest.raises(KeyError):
            with hal.profile_range("inner"):
                raise KeyError
    outer, inner = profile.events
    assert (outer.kind, outer.name, outer.device, outer.nbytes) == ("range", "outer", "", 0)
    assert isinstance(inner, hal.ProfileRangeEvent) and inner.name == "inner"
    assert outer.start_ns <= inner.start_ns <= inner.end_ns <= outer.end_ns


@pytest.mark.parametrize("name", [b"x", None, 3])
def test_the_name_of_a_range_is_text(name: Any) -> None:
    with hal.profile() as profile:
        with pytest.raises(hal.InvalidArgument, match="profile_range: the name is no text"):
            with hal.profile_range(name):
                pass
    assert profile.events == ()


def test_profiles_open_at_once_each_see_all(fake: hal.Compiled) -> None:
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
    with pytest.raises(hal.InvalidState, match="opened before.*hal.profile()"):
        outer.__enter__()
    assert events.open_profiles == ()


def test_a_profile_opened_twice_is_refused(fake: hal.Compiled) -> None:
    with hal.profile() as profile:
        for again in (profile, copy.copy(profile)):
            with pytest.raises(hal.InvalidState, match="opened before"), again:
                pass
        hal.empty(4, hal.int8, fake)
    assert len(profile.events) == 2
    started = hal.start_profile()
    with pytest.raises(hal.InvalidState, match="opened before"), started:
        pass
    hal.empty(4, hal.int8, fake)
    assert len(hal.finalize_profile()) == 2


def test_F1_what_the_collector_frees_is_seen(fake: hal.Compiled) -> None:
    def cycle() -> None:
        ring: list[Any] = [hal.empty(64, hal.int8, fake)]
        ring.append(ring)

    gc.collect()
    with hal.profile() as profile:
        cycle()
        gc.collect()
    assert [event.kind for event in profile.events] == ["alloc", "free"]
    assert fake.allocator.statistics().current == 0


def test_F1_memory_of_others_is_no_event(fake: hal.Compiled) -> None:
    other = fake.allocator.alloc(64)
    with hal.profile() as profile:
        x = hal.Buffer(fake, 64, hal.int8, hal.BufferSpec(external_ptr=other[0])).allocate()
        x.copyin(bytes(64))
        x.deallocate()
        fake.allocator.free(other, 64)
    assert [event.kind for event in profile.events] == ["copyin", "free"]


def test_what_fails_is_no_event(fake: Any) -> None:
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


def test_F1_on_and_off_beside_threads_that_work_loses_nothing(device: hal.Compiled) -> None:
    program = compiled(device)
    ending = threading.Event()
    wrong: list[Any] = []

    def run(seed: int) -> None:
        try:
            while not ending.is_set():
                x = hal.Buffer.from_numpy(np.full(64, seed, "f4"), device)
                program(x, vals=(0,), threads=64)
                y = hal.zeros(64, hal.float32, device).copy_from(x)
                assert y.numpy()[63] == seed
                x.deallocate()
        except BaseException as error:
            wrong.append(error)
            raise

    gc.collect()
    held = device.allocator.statistics().live
    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        with hal.profile(limit=50) as profile:
            ending.wait(0.01)
        assert all(event.start_ns <= event.end_ns for event in profile.events)
    ending.set()
    for thread in threads:
        thread.join(30)
    assert not wrong
    gc.collect()
    assert device.allocator.statistics().live == held
    assert events.open_profiles == () and not recording()


# -- the whole of a process


def test_start_and_finalize(fake: hal.Compiled) -> None:
    started = hal.start_profile()
    with pytest.raises(hal.InvalidState, match=r"finalize_profile\(\) first"):
        hal.start_profile()
    hal.empty(4, hal.int8, fake)
    found = hal.finalize_profile()
    hal.empty(4, hal.int8, fake)
    assert [event.kind for event in found] == ["alloc", "free"]
    assert hal.finalize_profile() is found and started.dropped == 0
    assert fake.log[-1] == "synchronize"  # type: ignore[attr-defined]
    assert hal.start_profile() is not started
    assert hal.finalize_profile() == ()


def test_F1_opening_a_profile_waits_for_queued_work(fake: Any) -> None:
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


def test_F1_HAL_PROFILE_records_from_the_first_device_to_the_end() -> None:
    text = AT_EXIT.format(tests=os.path.dirname(os.path.dirname(__file__)))
    for value, expected in (("1", "alloc fill True"), ("0", "True")):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", text],
            env=os.environ | {"HAL_PROFILE": value},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(expected) and "'synchronize', 'close'" in done.stdout


def test_HAL_PROFILE_is_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    hal.Device.register_plugin("FAKE", FakePlugin())
    monkeypatch.setenv("HAL_PROFILE", "maybe")
    with pytest.raises(hal.InvalidArgument, match="HAL_PROFILE.*expected 1, 0 or a file"):
        hal.Device["FAKE"]


def test_F1_a_program_goes_with_its_last_user(fake: hal.Compiled) -> None:
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
def test_F1_the_suite_passes_while_everything_is_profiled() -> None:
    """The recording methods behave as the real ones do."""
    folder = Path(__file__).parents[1]
    names = ("test_buffer.py", "test_program.py", "test_arrays.py", "test_allocator.py")
    tests = [path for name in names for path in folder.rglob(name) if path.parent.name != "testing"]
    assert len(tests) >= len(names)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=folder,
        env=os.environ | {"HAL_PROFILE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
