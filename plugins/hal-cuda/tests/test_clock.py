"""F1: events of the stream on the host's clock."""

import contextlib
import gc
import os
import signal
import threading
from time import perf_counter_ns, sleep

import numpy as np
import pytest
from simulator import SYSTEM

import hal_core as hal
from hal_testing.conformance.kernels import add_one

SLACK_NS = 2_000_000  # a loaded machine may look at its clock so much later
QUEUED = {"fill", "copy", "copyin", "copyout", "launch"}
SLOW = 0.05  # seconds that a slowed kernel takes


@hal.kernel
def astray(y: hal.Ptr[hal.int32], where: hal.int64) -> None:
    y[where + hal.int64(hal.global_idx(0))] = 1


@pytest.fixture
def y(device):
    return hal.Buffer(device, 1000, hal.int32).allocate().fill(0)


@pytest.fixture
def launch(device, y):
    """Count the driver calls of a launch after the first."""
    program = device.compile(add_one)
    program(y, vals=(0,), threads=1)
    device.synchronize()
    return lambda **how: program(y, vals=(1000,), threads=1000, **how)


def of_events(calls):
    return {name: n for name, n in calls.items() if "Event" in name or name == "cuStreamCreate"}


# -- what it costs


def test_F1_without_a_profile_no_event_is_asked_for(device, y, launch, simulator):
    def everything():
        before = simulator.all_calls()
        launch()
        y.fill(3)
        y.view(100).copy_from(y.view(100, offset=2000))
        y.copyin(bytes(4000))
        y.copyout(bytearray(4000))
        return simulator.calls_since(before)

    expected = everything()
    assert of_events(expected) == {}
    with hal.profile():
        assert of_events(everything()) != {}
    assert everything() == expected


def test_F1_a_launch_is_three_calls_and_not_waited_for(device, launch, simulator):
    simulator.delay("cuLaunchKernel", SLOW)
    with hal.profile() as profile:
        launch()
        found = []
        for _ in range(3):  # a sample of the clock may be due in one
            before = simulator.all_calls()
            launch()
            found.append(simulator.calls_since(before))
    assert {"cuLaunchKernel": 1, "cuEventRecord": 2} in found
    assert all(event.end_ns - event.start_ns >= SLOW * 1e9 for event in profile.events)
    assert len(profile.events) == 4


# -- what is left, and what goes wrong


def live(simulator):
    gc.collect()
    return simulator.live()


def test_F1_nothing_is_left_in_the_driver(device, launch, simulator):
    """Also of events that nobody reads, and of work that failed."""
    clean = live(simulator)
    for limit in (1, 1000):
        with hal.profile(limit) as profile:
            for _ in range(10):
                launch()
            with hal.profile_range("last"):
                pass
            assert live(simulator) != clean
        assert live(simulator) == clean
        assert len(profile.events) == min(limit, 11)
    with hal.profile() as profile:
        with pytest.raises(ZeroDivisionError):
            device.clock.measure(lambda: 1 // 0)
        launch()
    assert live(simulator) == clean and len(profile.events) == 1


@pytest.mark.parametrize("lost", [False, True])
def test_F1_events_are_read_after_the_device_was_closed(device, simulator, lost):
    device.close()
    clean = live(simulator)
    with hal.profile() as profile:
        opened = hal.Device["CUDA"]
        x = hal.Buffer(opened, 1 << 20, hal.float32).allocate().fill(1)
        y = hal.Buffer(opened, 1 << 20, hal.float32).copy_from(x)
        assert np.all(y.numpy() == 1)
        programs = opened.compile(add_one), opened.compile(astray)
        z = hal.Buffer(opened, 100, hal.int32).allocate()
        programs[lost](z, vals=(1 << 40,) if lost else (100,), threads=100)
        with pytest.raises(hal.DeviceFault) if lost else contextlib.nullcontext():
            opened.close()
        del x, y, z, programs
    kinds = [event.kind for event in profile.events if event.kind in QUEUED]
    assert kinds == ["fill", "copy", "copyout", "launch"]
    assert all(0 < event.seconds < 60 for event in profile.events if event.kind in QUEUED)
    after = live(simulator)
    assert {**after, "abandoned": 0} == {**clean, "abandoned": 0}


CALLS = [
    "cuStreamCreate", "cuEventCreate", "cuEventRecord", "cuEventSynchronize", "cuEventElapsedTime",
    "cuEventDestroy", "cuStreamDestroy",
]  # fmt: skip


@pytest.mark.parametrize("nth", [1, 2, 3, 6, 7, 8])
@pytest.mark.parametrize("call", CALLS)
def test_F1_a_call_for_an_event_that_fails_costs_no_work(device, y, launch, simulator, call, nth):
    y.fill(0)
    begin = perf_counter_ns()
    with hal.profile() as profile:
        simulator.fail(call, 999, nth)
        for _ in range(3):
            launch()
        profile.events
        y.copyout(seen := bytearray(4000))
        launch()
    simulator.clear()
    assert set(np.frombuffer(seen, "i4").tolist()) == {3}
    assert [event.kind for event in profile.events] == ["launch"] * 3 + ["copyout", "launch"]
    for event in profile.events:
        assert begin - SLACK_NS <= event.start_ns < event.end_ns <= perf_counter_ns() + SLACK_NS
    device.synchronize()
    assert set(y.numpy().tolist()) == {4}
    device.close()
    assert live(simulator)["events"] == 0
    with hal.profile() as again:
        hal.zeros(100, hal.int32, hal.Device["CUDA"]).numpy()
    assert [event.kind for event in again.events].count("copyout") == 1
    assert live(simulator)["events"] == 0


@pytest.mark.skipif(SYSTEM, reason="a real driver keeps the fault as long as the process lives")
def test_P9_in_a_profile_too_a_fault_surfaces_at_the_next_wait_with_the_programs_name(device, y):
    program = device.compile(astray)
    with hal.profile() as profile:
        program(y, vals=(1 << 40,), threads=1)
        with pytest.raises(hal.DeviceFault, match=r"ILLEGAL_ADDRESS.*astray"):
            for _ in range(2):
                device.synchronize()
    assert [event.kind for event in profile.events] == ["launch"]
    with pytest.raises(hal.DeviceFault):
        device.close()


def test_F1_another_context_that_became_current_is_no_hindrance(device, launch, simulator):
    clean = live(simulator)
    for context in (0, hal.Device["CUDA:1"].context):
        for begun in (False, True):
            with hal.profile() as profile:
                if begun:
                    launch()
                simulator.set_context(int(getattr(context, "handle", context)))
                launch()  # the first of a profile takes a sample of the clock
                simulator.set_context(int(getattr(context, "handle", context)))
                assert all(event.seconds > 0 for event in profile.events)
            assert len(profile.events) == 1 + begun
    simulator.set_context(0)
    hal.Device["CUDA:1"].close()
    assert live(simulator)["events"] == clean["events"]


def test_F1_others_launch_while_one_waits_for_what_it_reads(device, launch, simulator):
    simulator.delay("cuLaunchKernel", 0.6)
    with hal.profile() as profile:
        launch()
        reader = threading.Thread(target=lambda: profile.events)
        reader.start()
        sleep(0.05)
        launch()
        assert reader.is_alive(), "the launch waited for the reader"
        reader.join(60)
    assert len(profile.events) == 2


@pytest.mark.parametrize("unread", [False, True])
def test_F1_a_forked_child_reads_without_the_driver_and_its_parents_locks(device, launch, unread):
    forked, held = threading.Event(), threading.Event()

    def hold():
        with device.clock._lock:
            held.set()
            forked.wait(60)

    with hal.profile() as profile:
        launch()
        if not unread:
            assert profile.events[0].seconds > 0
        holder = threading.Thread(target=hold)
        holder.start()
        held.wait(60)
        child = os.fork()
        if not child:
            signal.alarm(30)  # ends a child that hangs
            code = 1
            with contextlib.suppress(BaseException):
                (event,) = profile.events
                profile.__exit__(None, None, None)
                code = 0 if event.seconds > 0 and profile.events == (event,) else 2
            os._exit(code)
        forked.set()
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        holder.join(60)
    assert len(profile.events) == 1
