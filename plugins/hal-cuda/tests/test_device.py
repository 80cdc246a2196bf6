"""Devices: enumeration, contexts that other libraries change, many threads, closing."""

import gc
import sys
import threading
import time
from functools import partial

import pytest

import hal_core as hal
from hal_testing.conformance.kernels import add_one


def _everything(device):
    """Return each operation that may come first after another library changed the context."""
    program = device.compile(add_one)
    y = hal.Buffer(device, 1000, hal.int32).allocate().fill(0)
    wide = hal.Buffer(device, 20_000, hal.float64).allocate()
    there = hal.Buffer(hal.Device["CUDA:1"], 1000, hal.int32).allocate().fill(0)
    large = bytes(3 << 20)
    staged = hal.Buffer(device, len(large), hal.uint8).allocate()
    program(y, vals=(1000,), threads=1000)

    def fresh():
        made = hal.Buffer(device, 999, hal.int32, hal.BufferSpec(nolru=True)).allocate().fill(1)
        program(made, vals=(999,), threads=999)
        assert set(made.numpy().tolist()) == {2}
        made.deallocate()

    def loaded():
        again = device.load(program.binary)
        again(y, vals=(1000,), threads=1000)

    return [
        lambda: program(y, vals=(1000,), threads=1000),
        lambda: program(y, vals=(1000,), threads=1000, wait=True), lambda: y.copyin(bytes(4000)),
        lambda: staged.copyin(large), lambda: staged.copyout(bytearray(large)),
        lambda: y.copyout(bytearray(4000)), lambda: y.fill(3), lambda: wide.fill(1.1),
        lambda: y.copy_from(there), lambda: there.copy_from(y),
        lambda: y.view(100).copy_from(y.view(100, offset=2000)), lambda: device.synchronize(),
        lambda: device.synchronize(timeout=5),
        lambda: hal.Buffer(device, 50, hal.int32, hal.BufferSpec(host=True)).allocate().fill(0),
        fresh, loaded,
    ]  # fmt: skip


@pytest.mark.parametrize("other", ["none", "another device"])
def test_a_context_that_others_change_is_made_current_again(device, simulator, other):
    handle_owner = None if other == "none" else hal.Device["CUDA:1"].context
    handle = 0 if handle_owner is None else int(handle_owner)
    for work in _everything(device):
        hal.Buffer(device, 4, hal.int32).allocate().fill(0)  # ours is current, and known to be
        simulator.set_context(handle)
        work()
        device.synchronize()


def test_a_launch_that_fails_for_a_reason_of_its_own_is_no_endless_try(device, simulator):
    program = device.compile(add_one)
    y = hal.Buffer(device, 10, hal.int32).allocate().fill(0)
    program(y, vals=(10,), threads=10)
    for code in (1, 201, 400, 701):
        simulator.fail("cuLaunchKernel", code)
        with pytest.raises(hal.HalError, match=r"launch add_one: cuLaunchKernel failed.*CUDA"):
            program(y, vals=(10,), threads=10)
    program(y, vals=(10,), threads=10)
    assert set(y.numpy().tolist()) == {2}


def _hold_at(call, inside, go_on):
    """Stop this thread, a fifth of a second at most, at its next return from that C function."""

    def come_in(_frame, event, called):
        if event == "c_return" and getattr(called, "__name__", "") == call:
            sys.setprofile(None)
            inside.set()
            go_on.wait(0.2)

    sys.setprofile(come_in)


@pytest.mark.parametrize("end", ["close", "unload"])
@pytest.mark.parametrize("timed", [False, True])
def test_P10_a_launch_under_way_ends_before_its_handles_are_destroyed(
    device, simulator, end, timed
):
    device.close()
    opened = hal.Device["CUDA"]
    program = opened.compile(add_one)
    y = hal.Buffer(opened, 100, hal.int32).allocate().fill(0)
    program(y, vals=(100,), threads=100)
    inside, go_on = threading.Event(), threading.Event()
    raised = []
    stale = simulator.stale()

    def work():
        _hold_at("pack_into", inside, go_on)
        try:
            program(y, vals=(100,), threads=100, wait=timed)
        except hal.InvalidState as error:
            raised.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert inside.wait(60)
    (opened.close if end == "close" else program.unload)()
    go_on.set()
    thread.join(60)
    assert not thread.is_alive()
    assert simulator.stale() == stale
    assert all("closed" in str(error) or "unloaded" in str(error) for error in raised), raised


def test_P10_a_launch_that_is_interrupted_by_its_end_is_refused(device, simulator):
    """A signal handler may close the device in the middle of a launch: nobody can wait for it."""
    device.close()
    opened = hal.Device["CUDA"]
    program = opened.compile(add_one)
    y = hal.Buffer(opened, 100, hal.int32).allocate().fill(0)
    program(y, vals=(100,), threads=100)
    stale = simulator.stale()

    def come_in(_frame, event, called):
        if event == "c_return" and getattr(called, "__name__", "") == "pack_into":
            sys.setprofile(None)
            opened.close()

    sys.setprofile(come_in)
    try:
        with pytest.raises(hal.InvalidState, match=r"launch add_one: the device is closed"):
            program(y, vals=(100,), threads=100)
    finally:
        sys.setprofile(None)
    assert simulator.stale() == stale


def _errors_while(end, work):
    """Return the texts of what four threads that do `work` all the time raise after `end`."""
    raised = []
    running = threading.Barrier(5)

    def repeat():
        try:
            for _ in range(4):
                work()
            running.wait(60)
            # `end` waits for what is queued by then, which takes a slow machine many turns.
            limit = time.monotonic() + 60
            while time.monotonic() < limit:
                work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=repeat, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    running.wait(60)
    end()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert {type(error) for error in raised} == {hal.InvalidState}, raised
    return {str(error) for error in raised}


@pytest.mark.parametrize("end", ["close", "unload"])
def test_P10_ending_while_others_launch_gives_them_errors_of_ours(device, simulator, end):
    stale = simulator.stale()
    for _ in range(3):
        opened = hal.Device["CUDA"]
        program = opened.load(opened.compile(add_one).binary)
        y = hal.Buffer(opened, 100, hal.int32).allocate().fill(0)
        raised = _errors_while(
            opened.close if end == "close" else program.unload,
            partial(program, y, vals=(100,), threads=100),
        )
        assert all(("closed" if end == "close" else "unloaded") in text for text in raised), raised
    assert simulator.stale() == stale


def test_a_program_goes_with_its_last_reference_though_its_kernel_runs(device, simulator):
    y = hal.Buffer(device, 100, hal.int32).allocate().fill(0)
    binary = device.compile(add_one).binary
    device.load(binary)  # what went before is unloaded here
    gc.collect()
    device.synchronize()
    device.load(binary)
    modules = simulator.live()["modules"]
    gc.disable()
    try:
        for _ in range(5):
            simulator.delay("cuLaunchKernel", 0.02)
            program = device.load(binary)
            program(y, vals=(100,), threads=100)
            del program
            simulator.clear()
        device.load(binary)
        assert simulator.live()["modules"] <= modules + 1
    finally:
        gc.enable()
    assert set(y.numpy().tolist()) == {5}


def _refused_when_lost(program, y):
    device = program.device
    return [
        lambda: program(y, vals=(100,), threads=100),
        lambda: program(y, vals=(100,), threads=100, wait=True), lambda: y.fill(1),
        lambda: y.copyin(bytes(400)), lambda: y.numpy(),
        lambda: hal.Buffer(device, 5000, hal.int32).allocate(), lambda: device.load(program.binary),
    ]  # fmt: skip


@pytest.mark.parametrize("code", [700, 716, 719, 702])
def test_P9_a_fault_of_a_kernel_is_raised_at_the_next_wait(device, simulator, code):
    device.close()
    with hal.Device["CUDA"] as opened:
        y = hal.Buffer(opened, 100, hal.int32).allocate().fill(0)
        program = opened.compile(add_one)
        simulator.fail("run", code)
        program(y, vals=(100,), threads=100)
        with pytest.raises(hal.DeviceFault, match=r"wait: cu.*add_one.*on CUDA.*open it again"):
            opened.synchronize()
        for work in _refused_when_lost(program, y):
            with pytest.raises(hal.DeviceFault, match="context is lost"):
                work()
        with pytest.raises(hal.DeviceFault):
            opened.close()
    again = hal.Device["CUDA"]
    fresh = hal.Buffer(again, 100, hal.int32).allocate().fill(0)
    again.compile(add_one)(fresh, vals=(100,), threads=100)
    assert set(fresh.numpy().tolist()) == {1}
    del y, work  # of the lost context: nobody's memory is freed for it
    gc.collect()
    assert set(fresh.numpy().tolist()) == {1}


def test_P9_a_fault_that_outlives_its_context_says_to_restart_the_process(device, simulator):
    """CUDA documents that nothing less ends a fault."""
    device.close()
    opened = hal.Device["CUDA"]
    y = hal.Buffer(opened, 100, hal.int32).allocate().fill(0)
    program = opened.compile(add_one)
    simulator.keep_faults(True)
    try:
        simulator.fail("run", 700)
        program(y, vals=(100,), threads=100)
        with pytest.raises(hal.DeviceFault, match=r"restart the process.*open it again"):
            opened.close()
        for _ in range(2):
            with pytest.raises(
                hal.DeviceFault, match=r"open: .*CUDA\..* if there is none, restart the"
            ):
                hal.Device["CUDA"]
    finally:
        simulator.keep_faults(False)
    assert hal.zeros(3, hal.int32, hal.Device["CUDA"]).numpy().tolist() == [0, 0, 0]


def test_copying_while_another_closes_gives_errors_of_ours(device, simulator):
    stale = simulator.stale()
    for _ in range(3):
        opened, other = hal.Device["CUDA"], hal.Device["CUDA:1"]
        y, there = (hal.Buffer(one, 100, hal.int32).allocate() for one in (opened, other))

        def copy(y=y, there=there):
            y.copyin(bytes(400)).fill(2)
            there.copy_from(y)
            y.copyout(bytearray(400))

        raised = _errors_while(opened.close, copy)
        assert all("closed" in text for text in raised), raised
    assert simulator.stale() == stale


def test_freeing_while_another_closes_finds_the_stream_or_needs_none(device, simulator):
    """Pytest fails the test if a `__del__` raises."""
    device.close()
    gc.collect()
    clean = simulator.live()
    no_cache = hal.BufferSpec(nolru=True)
    for _ in range(10):
        opened = hal.Device["CUDA"]
        allocator = opened.allocator
        running = threading.Barrier(4)

        def work():
            made = [hal.Buffer(opened, 9, hal.int32, no_cache).allocate() for _ in range(300)]  # noqa: B023
            running.wait(60)  # noqa: B023
            while made:
                made.pop()

        threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        running.wait(60)
        opened.close()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        allocator.free_cache()  # a finalizer leaves its block to the next call
    gc.collect()
    assert {**simulator.live(), "abandoned": 0} == {**clean, "abandoned": 0}
