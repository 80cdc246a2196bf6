"""Work in flight: failures, timeouts, a lost GPU, threads, what is left behind."""

import gc
import os
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from kernel_files import add
from metal_software import FOLDER

import hal_core as hal


@pytest.fixture
def opened(device, control):
    """A device of the test's own."""
    device.close()
    with hal.Device["METAL"] as made:
        yield made
        control.reset()


def alive(control):
    gc.collect()
    return control.alive()


# -- failures


@pytest.mark.parametrize(
    ("code", "says"),
    [(2, "it took too long"), (3, "memory that is not its own"), (8, "there was no memory"),
     (9, "was freed"), (11, "the GPU was removed"), (12, "stack was too small"),
     (77, "MTLCommandBufferErrorDomain 77")],
)  # fmt: skip
@pytest.mark.parametrize("wait", ["synchronize", "numpy", "wait=True", "asarray"])
def test_P9_a_failed_command_buffer_surfaces_at_the_next_wait(opened, control, code, says, wait):
    program, made = opened.compile(add), hal.zeros(4, hal.int32, opened)
    opened.synchronize()
    for _ in range(2):
        control.faults.append(control.Fault(code, "because"))
        program(made, vals=(1, 4), threads=4)
    waits = {
        "synchronize": opened.synchronize, "numpy": made.numpy, "asarray": lambda: np.asarray(made),
        "wait=True": lambda: program(made, vals=(0, 4), threads=4, wait=True),
    }  # fmt: skip
    with pytest.raises(hal.DeviceFault, match=r"launch of add failed") as caught:
        waits[wait]()
    assert says in str(caught.value) and "because" in str(caught.value)
    opened.synchronize()  # it was said once
    program(made, vals=(5, 4), threads=4)
    assert made.numpy().tolist() == [5] * 4


# -- many


@pytest.mark.parametrize("queued", [False, True])
def test_70_launches_in_flight(opened, control, queued):
    """Metal blocks at 64; the launch waits then, and what was launched is done in order."""
    program, made = opened.compile(add), hal.zeros(4, hal.int32, opened)
    queue = opened.queue() if queued else None
    opened.synchronize()
    control.go.clear()
    threading.Timer(0.3, control.go.set).start()
    for turn in range(70):
        program(made, vals=(turn, 4), threads=4, queue=queue)
    assert control.go.is_set()
    opened.synchronize()
    assert made.numpy().tolist() == [sum(range(70))] * 4


def test_a_second_thread_does_not_think_the_device_idle(opened, control):
    """While one thread waits, another one that reads must wait, too."""
    program, made = opened.compile(add), hal.zeros(4, hal.int32, opened)
    opened.synchronize()
    control.go.clear()
    program(made, vals=(3, 4), threads=4)
    assert not opened.synchronize(timeout=0.01) and not opened.default_queue.record().done
    first = threading.Thread(target=opened.synchronize)
    first.start()
    time.sleep(0.05)
    threading.Timer(0.1, control.go.set).start()
    assert made.numpy().tolist() == [3] * 4
    first.join()


def test_a_wait_for_work_that_was_queued_while_the_device_closed_ends(opened):
    """Closing waits, then forgets what is queued; another thread may have queued in between."""
    work = opened.submit("nothing", lambda commands: None)
    opened.pending.clear()
    assert opened.wait_for(work, 10) and work.done


def test_2000_launches_leave_nothing(opened, control):
    program, made = opened.compile(add), hal.zeros(4, hal.int32, opened)
    program(made, vals=(1, 4), threads=4)
    opened.synchronize()
    before = alive(control)
    for _ in range(2_000):
        program(made, vals=(1, 4), threads=4)
    assert made.numpy().tolist() == [2_001] * 4
    assert alive(control) == before
    assert len(opened.pending) == 0


def test_opening_and_closing_leaves_nothing(opened, control):
    opened.close()
    before = alive(control)
    for _ in range(5):
        with hal.Device["METAL"] as device:
            made = hal.zeros(100, hal.int32, device)
            device.compile(add)(made, vals=(1, 100), threads=100)
            made.view(10, hal.int32, 40).fill(3)
        del made, device
        assert alive(control) == before


# -- each message fails


def steps(device, queue):
    """Do everything that sends messages; return what is computed."""
    device.libraries.clear()
    program = device.compile(add.lower())
    made, other = (hal.Buffer(device, 64, hal.int32).allocate() for _ in range(2))
    made.fill(0)
    other.copy_from(made)
    program(other, vals=(5, 64), threads=64)
    program(other, vals=(5, 64), threads=64, wait=True)
    if queue:
        beside = device.queue()
        program(other, vals=(5, 64), threads=64, queue=beside)
        device.queue().wait(beside.record()).record().wait()
        beside.close()
    return other.numpy().tolist()


@pytest.mark.parametrize("queue", [False, True])
def test_each_selector_fails_at_each_of_its_turns(opened, control, queue, monkeypatch):
    monkeypatch.setenv("HAL_CCACHE", "0")
    expected = steps(opened, queue)
    opened.synchronize()
    control.messages.clear()
    assert steps(opened, queue) == expected
    opened.synchronize()
    sent = {name: min(count, 12) for name, count in control.messages.items()}
    sent = {name: count for name, count in sent.items() if name not in _NEVER_FAIL}
    assert len(sent) >= 10
    opened.allocator.free_cache()
    before = alive(control)
    for name, count in sent.items():
        for turn in range(1, count + 1):
            opened.allocator.free_cache()  # so that memory is asked for anew
            control.fail(name, turn)
            try:
                assert steps(opened, queue) == expected
            except hal.HalError as error:
                said = str(error)
                assert "METAL" in said and re.search(r"gave nothing|fails on request", said), said
            control._failures.clear()
            opened.synchronize()
            gc.collect()
    opened.libraries.clear()
    assert steps(opened, queue) == expected
    opened.synchronize()  # the device keeps queues that it has not seen idle
    opened.libraries.clear()
    opened.allocator.free_cache()
    left = alive(control) - before
    assert not left, left


# Reading a number or a state cannot fail, nor can the end of an encoder.
_NEVER_FAIL = {
    "status", "error", "domain", "code", "localizedDescription", "endEncoding", "contents",
    "respondsToSelector:", "GPUStartTime", "GPUEndTime", "maxTotalThreadsPerThreadgroup",
    "threadExecutionWidth", "staticThreadgroupMemoryLength", "init", "functionNames",
    "setLanguageVersion:", "setMathMode:", "setSignaledValue:",
}  # fmt: skip


# -- the end


QUEUED = "queue = device.queue(); program(y, vals=(1, 64), threads=64, queue=queue)"


@pytest.mark.parametrize("lines", ["", QUEUED])
@pytest.mark.usefixtures("control")
def test_R15_the_interpreter_exits_with_work_in_flight(device, lines):
    code = f"""
import numpy as np, hal_core as hal, metal_control
metal_control.seconds = 0.02
scale = hal.Source("add", '''#include <metal_stdlib>
using namespace metal;
kernel void add(device int *y [[buffer(0)]], constant int &a [[buffer(1)]],
                constant int &n [[buffer(2)]], uint i [[thread_position_in_grid]]) {{
    y[i] += a;
}}''', "y: int32*, a: int32, n: int32", language="metal")
device = hal.Device["METAL"]
program, y = device.compile(scale), hal.zeros(64, hal.int32, device)
for _ in range(10):
    program(y, vals=(1, 64), threads=64)
{lines}
print("ended")
"""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("SIM_", "HAL_"))}
    own = {
        name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ
    }  # zig needs it
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
        env={**own, "PYTHONPATH": str(FOLDER), **kept},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")
