"""Machine code in checked mode: a fault in the child process is an exception in this one."""

import ctypes
import gc
import os
import signal
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from ctrl_c import Place, Scene, play
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from in_threads import results
from kernel_files import copy
from mapped import mappings
from run_python import printed
from unregistered import open_device

import hal_core as hal
from hal_core.errors import DeviceFault
from hal_cpu.checked import child_process
from hal_cpu.checked.native import NativeProgram
from hal_cpu.compilers.c import C_COMPILERS
from hal_kernel.errors import KernelFault, OutOfBounds

LIVE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXT = """
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
void {name}(const hal_thread *t, float *y, const float *x, int32_t n) {{
    int64_t i = hal_global_idx(t, 0);
    {body}
}}
"""


@pytest.fixture(autouse=True)
def c_compiler():
    if not any(row.command() for row in C_COMPILERS.values()):
        pytest.skip("no C compiler is installed: pip install ziglang")


def source(body, name="probe"):
    text = TEXT.format(name=name, body=body)
    return hal.Source(name, text, "y: float32*, x: const float32*, n: int32", language="c")


def given_floats(device, size):
    x = hal.Buffer.from_numpy(np.arange(size, dtype="f4"), device)
    return hal.Buffer.from_numpy(np.full(size, -1, "f4"), device), x


_others = set()  # children that other tests of the process keep


def _of_process():
    found = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(FileNotFoundError):  # its thread has ended meanwhile
            found.update(path.read_text().split())
    return found


@pytest.fixture(autouse=True)
def without_others():
    _others.clear()
    _others.update(_of_process())


def children():
    """Return whether this test has a child, running or not waited for."""
    return bool(_of_process() - _others)


FAULTS = {
    "read": (
        "if (i < n) y[i] = x[i + n];",
        r"SIGSEGV at 0x[0-9a-f]+, out of bounds of 'x' \(got 1024; limit 0 to 1023\) on CPU\. "
        r"Guard the access, if \(i < n\): threads= rounds up to whole blocks\.",
    ),
    "write": ("y[i + n] = 1;", r"SIGSEGV at .*, out of bounds of 'y' \(got 1024; limit 0 to 1023"),
    "wild": ("*(volatile int *)4096 = 1;", r"SIGSEGV at 0x1000 on CPU\. Look at its indices"),
    "division": ("y[0] = 3 / (n - 1024);", r"it ended with SIGFPE on CPU\. Look at its divisions"),
    "trap": ("__builtin_trap();", r"it ended with SIG(ILL|TRAP) on CPU\. Look for __builtin_trap"),
    "abort": ("abort();", r"it ended with SIGABRT on CPU\. Look for abort\(\) and for an assert"),
    "exit": ("exit(3);", r"it exited the process, with status 3 on CPU\. Return from the kernel\."),
    "kill": ("raise(9);", r"it ended with SIGKILL on CPU\. Look for who sends it"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_P9_a_native_fault_is_an_exception_that_names_the_program(checked, name):
    """The failed launch changes no memory, and the next one works."""
    body, text = FAULTS[name]
    body = body if "raise" not in body else "extern int raise(int); raise(9);"
    y, x = given_floats(checked, 1024)
    program = checked.compile(source(body))
    for wait in (False, True):
        with pytest.raises(DeviceFault, match="kernel probe: " + text) as caught:
            program(y, x, vals=(1024,), threads=1024, wait=wait)
        assert type(caught.value) is DeviceFault
    assert not children()
    assert (y.numpy() == -1).all()
    checked.compile(source("y[i] = 2 * x[i];"))(y, x, vals=(1024,), threads=1024)
    assert y.numpy().tolist() == (2 * np.arange(1024)).tolist()


def test_a_kernel_that_hangs_is_ended():
    checked = open_device(HAL_CHECK="1", HAL_CPU_CHECK_SECONDS="0.3")
    y, x = given_floats(checked, 4)
    hang = checked.compile(source("for (volatile int k = 0; k >= 0;) ;"))
    with pytest.raises(DeviceFault, match=r"it does not end.*limit 0\.3 s.*_CHECK_SECONDS"):
        hang(y, x, vals=(4,), threads=4)
    assert not children()
    checked.close()


# -- accessible memory that is not the argument's


@LIVE
@given(data=st.data())
def test_a_write_raises_exactly_if_it_is_outside_of_the_view(checked, data):
    """Draw any view: writes ahead of a fault, or outside of the view, are not copied back."""
    size = data.draw(st.integers(1, 40))
    first = data.draw(st.integers(0, size - 1))
    length = data.draw(st.integers(1, size - first))
    index = data.draw(st.integers(-first - 4, size - first + 4))
    whole, x = given_floats(checked, size)
    program = checked.compile(source("y[n] = 5;"))
    expected = np.full(size, -1, "f4")
    try:
        program(whole[first : first + length], x, vals=(index,), threads=1)
    except (OutOfBounds, DeviceFault) as error:
        assert not 0 <= index < length
        assert error.got == index and "of 'y'" in str(error)
    else:
        assert 0 <= index < length
        expected[first + index] = 5
    assert whole.numpy().tolist() == expected.tolist()


@pytest.mark.parametrize("type", ["double", "int8_t"])
def test_an_update_outside_changes_the_guard_bytes(checked, type):
    y, x = given_floats(checked, 4)
    body = f"if (i == 0) {{ {type} *p = ({type} *)(y + 4); *p += 1; }}"
    with pytest.raises(OutOfBounds, match="a write of 'y'"):
        checked.compile(source(body))(y, x, vals=(4,), threads=1)


def test_a_write_of_a_const_argument(checked):
    y, x = given_floats(checked, 8)
    with pytest.raises(KernelFault, match=r"a write of 'x', which is const \(got 3; limit 0 to 7"):
        checked.compile(source("((float *)x)[3] = 1;"))(y, x, vals=(8,), threads=1)
    assert x.numpy().tolist() == list(range(8))


def test_one_buffer_twice_and_views_that_overlap(checked):
    y, _ = given_floats(checked, 8)
    program = checked.compile(source("if (i < n) y[i] = x[i] + i;"))
    program(y[2:6], y[0:4], vals=(4,), threads=4)
    assert y.numpy().tolist() == [-1, -1, -1, 0, 1, 3, -1, -1]
    program(y, y, vals=(8,), threads=8)
    assert y.numpy().tolist() == [-1, 0, 1, 3, 5, 8, 5, 6]


def test_memory_of_others_is_written_back(checked):
    array = np.zeros(6, "f4")
    wrapped, (_, x) = hal.Buffer.from_dlpack(array, checked), given_floats(checked, 6)
    checked.compile(source("if (i < n) y[i] = x[i];"))(wrapped, x, vals=(6,), threads=6)
    assert array.tolist() == list(range(6))
    checked.compile(source("if (i < n) y[i] = x[i];"))(wrapped, wrapped, vals=(6,), threads=6)
    assert array.tolist() == list(range(6))


def test_empty_buffers(checked):
    y, x = given_floats(checked, 4)
    nothing = hal.empty(0, hal.float32, checked)
    checked.compile(source("if (i < n) y[i] = 3;"))(y, nothing, vals=(4,), threads=4)
    assert y.numpy().tolist() == [3] * 4
    checked.compile(source("if (0) y[i] = 3;"))(nothing, x, vals=(4,), threads=4)


def test_what_a_kernel_wrote_counts_as_written(checked):
    y, (_, x) = hal.empty(8, hal.float32, checked), given_floats(checked, 8)
    checked.compile(source("y[i] = x[i];"))(y[:4], x, vals=(4,), threads=4)
    checked.compile(copy)(x[:4], y[:4], threads=4)
    with pytest.raises(KernelFault, match="element 4 of 'x', which nothing has written"):
        checked.compile(copy)(x, y, threads=8)


def test_a_freed_block_is_named(checked):
    y, x = given_floats(checked, 1024)
    gone = hal.empty(1024, hal.float32, checked)
    address, number = int(gone._buf), gone._buf.block.number
    del gone
    text = f"long long where = {address}; *(float *)where = 1;"
    with pytest.raises(DeviceFault, match=f"in the freed block {number} of 4096 bytes"):
        checked.compile(source(text))(y, x, vals=(1,), threads=1)


# -- rendered kernels, and the process around


def test_CPU_CC_still_chooses_machine_code(checked, monkeypatch):
    @hal.kernel
    def fill(y: hal.Ptr[hal.float32], n: hal.int32) -> None:
        i = hal.global_idx(0)
        y[i + n] = 7.0

    monkeypatch.setenv("CPU_CC", "llvm")
    program, y = checked.compile(fill), hal.empty(1000, hal.float32, checked)
    assert isinstance(program, NativeProgram)
    program(y, vals=(0,), grid=10, block=100)
    assert (y.numpy() == 7).all()
    with pytest.raises(DeviceFault, match=r"kernel fill: SIGSEGV at .* out of bounds of 'y'"):
        program(y, vals=(500,), grid=10, block=100)


def test_a_write_beside_a_freed_block_is_raised_by_the_next_launch(checked):
    y, x = given_floats(checked, 4)
    program = checked.compile(source("y[i] = x[i];"))
    gone = hal.empty(100, hal.uint8, checked)
    ctypes.memset(gone._buf + 100, 1, 1)
    gone.deallocate()
    with pytest.raises(DeviceFault, match="a write after the end of block"):
        program(y, x, vals=(4,), threads=4)
    program(y, x, vals=(4,), threads=4)
    assert y.numpy().tolist() == [0, 1, 2, 3]


def test_a_stack_that_runs_out_in_any_thread(checked):
    """The signal handler needs a stack of its own, also outside of the first thread."""
    y, x = given_floats(checked, 4)
    # From its end on, page for page: far below the stack there may be other memory.
    down = "for (long k = (200l << 20) - 1; k >= 0; k -= 4096) many[k] = 1; y[0] = many[7];"
    program = checked.compile(source(f"volatile char many[200 << 20]; {down}"))
    with pytest.raises(DeviceFault, match=r"^kernel probe: SIGSEGV at 0x"):
        results(lambda: program(y, x, vals=(4,), threads=4))


def test_launches_of_several_threads(checked):
    """Each thread launches on its part of one buffer; the writes of others are no fault."""
    whole, x = given_floats(checked, 64)
    program = checked.compile(source("for (int k = 0; k < n; k++) y[k] += x[k];"))

    def work(part):
        view = whole[16 * part : 16 * part + 16]
        for _ in range(6):
            program(view, x, vals=(16,), threads=1)

    results(*(partial(work, part) for part in range(4)))
    assert whole.numpy().tolist() == [6 * k - 1 for k in range(16)] * 4
    assert not children()


def test_a_small_stack_is_no_hindrance(checked):
    y, x = given_floats(checked, 4)
    program = checked.compile(source("volatile char big[200 << 10]; big[i] = 1; y[i] = big[i];"))
    before = threading.stack_size(128 << 10)
    try:
        results(lambda: program(y, x, vals=(4,), threads=4))
    finally:
        threading.stack_size(before)
    assert y.numpy().tolist() == [1] * 4


def test_nothing_is_left_of_launches(checked):
    y, x = given_floats(checked, 4)
    program = checked.compile(source("y[i] += x[i];"))
    program(y, x, vals=(4,), threads=4)
    gc.collect()
    before = len(os.listdir("/proc/self/fd")), len(mappings())
    for _ in range(25):
        program(y, x, vals=(4,), threads=4)
    gc.collect()
    after = len(os.listdir("/proc/self/fd")), len(mappings())
    assert after[0] <= before[0] and after[1] < before[1] + 20
    assert y.numpy().tolist() == [26 * k - 1 for k in range(4)]


def test_a_program_that_ignores_its_children(checked):
    """The system does not say how a child ended, but the child's own report does."""
    y, x = given_floats(checked, 4)
    good = checked.compile(source("y[i] = x[i];"))
    bad = checked.compile(source("*(volatile int *)4096 = 1;", "bad"))
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        good(y, x, vals=(4,), threads=4)
        with pytest.raises(DeviceFault, match="SIGSEGV at 0x1000"):
            bad(y, x, vals=(4,), threads=4)
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert y.numpy().tolist() == [0, 1, 2, 3]


def test_ctrl_c_in_a_launch_leaves_no_child(checked):
    y, x = given_floats(checked, 4)
    program = checked.compile(source("y[i] = x[i];"))

    def pressed(number):
        place = Place(number, (child_process.__file__,))
        play(Scene(lambda: program(y, x, vals=(4,), threads=4), lambda _: None), place)
        assert not children(), place.where
        return place.seen

    pressed(-1)
    places = pressed(-1)
    assert [pressed(number) for number in range(places)]


def test_no_process_to_be_had(checked, monkeypatch):
    y, x = given_floats(checked, 4)
    monkeypatch.setattr(child_process, "_forking_function", lambda: lambda *_: -1)
    with pytest.raises(DeviceFault, match=r"the system grants no process.*Look at ulimit -u"):
        checked.compile(source("y[i] = x[i];"))(y, x, vals=(4,), threads=4)


_PRINTS = r"""
import ctypes
import hal_core as hal
text = r'''
#include <stdio.h>
void probe(const hal_thread *t, float *y) {
    int64_t i = hal_global_idx(t, 0);
    if (i == 1) printf("thread %d\n", (int)i);
}
'''
device = hal.Device["CPU"]
program = device.compile(hal.Source("probe", text, "y: float32*", language="c"))
ctypes.CDLL(None).printf(b"before\n")
for _ in range(2):
    program(hal.zeros(4, hal.float32, device), threads=4)
"""


def test_what_a_kernel_prints_is_printed_once():
    """Text in the buffer of C's stdout at the fork is not printed by both processes."""
    assert printed(_PRINTS, HAL_CHECK="1", PYTHONUNBUFFERED="") == "before\nthread 1\nthread 1\n"


_SCRIPT = """
import faulthandler, os, signal, sys, threading, time
import numpy as np
import hal_core as hal
from hal_core import DeviceFault
faulthandler.enable()
os.register_at_fork(after_in_child=lambda: os.write(2, b"a handler of Python ran"))
text = '''
void probe(const hal_thread *t, float *y) {{ {body} }}
'''
device = hal.Device["CPU"]
program = device.compile(hal.Source("probe", text, "y: float32*", language="c"))
y = hal.zeros(4, hal.float32, device)
{before}
try:
    program(y, threads=4)
except {error} as error:
    print(type(error).__name__)
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no children")
print("whole")
"""
_INTERRUPT = """
def interrupt():
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
"""


@pytest.mark.parametrize(
    ("body", "error", "before"),
    [
        ("y[1 << 20] = 1; y[4] = 1; y[-1 << 20] = 1; __builtin_trap();", "DeviceFault", ""),
        ("for (volatile int k = 0; k >= 0;) ;", "KeyboardInterrupt", _INTERRUPT),
    ],
    ids=["segfault", "interrupt"],
)
def test_the_process_survives(body, error, before):
    """Python's fault handlers print nothing, and its handlers of a fork do not run."""
    code = _SCRIPT.format(body=body, error=error, before=before)
    said = printed(code, HAL_CHECK="1", HAL_CPU_CHECK_SECONDS="30")
    assert said.split("\n") == [error, "no children", "whole", ""]
