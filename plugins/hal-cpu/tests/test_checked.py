"""HAL_CHECK=1: a forbidden access is an exception that names the access, the line and the thread;
a correct kernel gives the same results as without."""

import inspect
import os
import re
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_files import copy
from run_python import printed
from unregistered import open_device

import hal_core as hal
from hal_cpu.allocator import CPUAllocator
from hal_cpu.checked.allocator import CheckedAllocator
from hal_cpu.device import CPUDevice
from hal_kernel.errors import FailedAssert, KernelFault, OutOfBounds
from hal_kernel.python.program import InterpretedProgram

LIVE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@hal.kernel
def gather(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], p: hal.ConstPtr[hal.int64]) -> None:
    i = hal.global_idx(0)
    y[i] = x[p[i]]


@hal.kernel
def scatter(y: hal.Ptr[hal.int32], p: hal.ConstPtr[hal.int64]) -> None:
    i = hal.global_idx(0)
    y[p[i]] = i


@hal.kernel
def sum_all(total: hal.Ptr[hal.int32]) -> None:
    total[0] += 1


@hal.kernel
def count(total: hal.Ptr[hal.int32]) -> None:
    hal.atomic_add(total, 0, 1)


@hal.kernel
def root(y: hal.Ptr[hal.float32]) -> None:
    i = hal.global_idx(0)
    assert y[i] >= 0, "a root of a negative number"
    y[i] = hal.sqrt(y[i])


@hal.kernel
def spin(y: hal.Ptr[hal.int32]) -> None:
    while y[0] < 10:
        y[0] = y[0] // 2


@hal.kernel
def places(order: hal.Ptr[hal.int32], taken: hal.Ptr[hal.int32]) -> None:
    order[hal.global_idx(0)] = hal.atomic_add(taken, 0, 1)


def ints(device, *numbers):
    return hal.Buffer.from_numpy(np.array(numbers, "i4"), device)


def floats(device, *numbers):
    return hal.Buffer.from_numpy(np.array(numbers, "f4"), device)


# -- faults, with what their text names; tests/interpreter has one of each kind

T0, T1, T8 = (f"thread ({i}, 0, 0) of block (0, 0, 0)" for i in (0, 1, 8))
FAULTS = {
    "a read beyond the end": (
        copy, "y[i] = x[i]", lambda d: (floats(d, *range(9)), floats(d, *range(8))),
        {"threads": 9},
        (OutOfBounds, f"out of bounds: a read of 'x' by {T8} (got 8; limit 0 to 7)"),
    ),
    "memory that nothing has written": (
        copy, "y[i] = x[i]",
        lambda d: (hal.empty(4, hal.float32, d), hal.empty(4, hal.float32, d)), {"threads": 4},
        (KernelFault, f"a read of element 0 of 'x', which nothing has written, by {T0}"),
    ),
    "an assert": (
        root, "assert", lambda d: (floats(d, 4, -1, 9),), {"threads": 3},
        (FailedAssert, f"a root of a negative number, in {T1}"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_P9_a_fault_says_kernel_line_argument_index_and_thread(checked, name):
    kernel, mark, make, launch, (error, text) = FAULTS[name]
    program, buffers = checked.compile(kernel), make(checked)
    for wait in (False, True):
        with pytest.raises(error) as caught:
            program(*buffers, **launch, wait=wait)
        assert type(caught.value) is error
        lines, start = inspect.getsourcelines(kernel.__wrapped__)
        line = next(i for i, text in enumerate(lines, start) if mark in text)
        where = f"kernel {kernel.name}, line {line}: "
        assert str(caught.value).startswith(where)
        assert text in str(caught.value) and " on CPU." in str(caught.value)
    again = ints(checked, 0)  # and the device is as usable as before
    checked.compile(count)(again, threads=100)
    assert again.numpy().tolist() == [100]


def test_the_traceback_of_a_fault_leaves_out_the_interpreter(checked):
    """Seven frames of ours stood between the launch and the text."""
    with pytest.raises(hal.OutOfBounds) as raised:
        checked.compile(sum_all)(hal.Buffer(checked, 0, hal.int32), threads=1)
    here, *inside = [place.path for place in raised.traceback]
    assert str(here) == __file__ and len(inside) <= 4
    assert not [path for path in inside if "interpreter" in str(path)]


def test_a_loop_that_does_not_end():
    with open_device(HAL_CHECK="1", HAL_CPU_CHECK_SECONDS="0.2") as device:
        start = time.monotonic()
        with pytest.raises(KernelFault, match=r"does not end.*limit 0\.2 s.*_CHECK_SECONDS"):
            device.compile(spin)(ints(device, 5), threads=1)
        assert 0.2 < time.monotonic() - start < 20


# -- views


@LIVE
@given(data=st.data())
def test_an_index_raises_exactly_if_it_is_outside_of_the_view(checked, data):
    """Draw views at any offset, for reads and writes; nothing outside of a view is changed."""
    size = data.draw(st.integers(1, 60))
    first = data.draw(st.integers(0, size))
    length = data.draw(st.integers(0, size - first))
    indices = data.draw(st.lists(st.integers(-3, length + 3), min_size=1, max_size=6, unique=True))
    reads = data.draw(st.booleans())
    inside = all(0 <= index < length for index in indices)
    whole = hal.Buffer.from_numpy(np.arange(100, 100 + size, dtype="i4"), checked)
    view = whole[first : first + length]
    p = hal.Buffer.from_numpy(np.array(indices, "i8"), checked)
    out = hal.zeros(len(indices), hal.int32, checked)
    kernel, buffers = (gather, (out, view, p)) if reads else (scatter, (view, p))
    try:
        checked.compile(kernel)(*buffers, threads=len(indices))
    except OutOfBounds as error:
        assert not inside
        assert error.got == next(i for i in indices if not 0 <= i < length)
        assert repr("x" if reads else "y") in str(error)
    else:
        assert inside
        if reads:
            assert out.numpy().tolist() == [100 + first + index for index in indices]
    expected = np.arange(100, 100 + size)
    if not reads and inside:
        expected[[first + index for index in indices]] = np.arange(len(indices))
    assert whole.numpy().tolist() == expected.tolist()


# -- order


def test_another_order_of_threads_shows_what_depends_on_it(checked):
    def order(device):
        found = hal.empty(200, hal.int32, device)
        device.compile(places)(found, ints(device, 0), threads=200, block=40)
        return found.numpy().tolist()

    assert order(checked) == list(range(200))
    with open_device(HAL_CHECK="1", HAL_CPU_CHECK_SEED="3") as device:
        shuffled = order(device)
        assert sorted(shuffled) == list(range(200)) and shuffled != list(range(200))
        assert order(device) == shuffled


# -- when it is on


def test_ordinary_devices_know_nothing_of_it(device):
    if os.environ.get("HAL_CHECK") == "1":
        pytest.skip("these tests run under HAL_CHECK=1")
    assert type(device) is CPUDevice and type(device.allocator) is CPUAllocator
    assert device.compilers[0].name == "llvm"


_IMPORTED = """
import sys
import hal_core as hal
hal.zeros(4, hal.float32, "CPU").fill(2).numpy()
signature = hal.Signature.parse("nothing", "n: int32")
hal.Device["CPU"].compile(hal.Kernel("nothing", signature, ()))(vals=(1,), threads=1)
print([name for name in sys.modules if {*name.split(".")} & {*sys.argv[1:]}])
"""


@pytest.mark.parametrize(
    ("check", "others"),
    [("0", ["hal_testing", "checked"]), ("1", ["pytest", "hypothesis", "llvmlite"])],
)
def test_a_mode_imports_nothing_of_the_other_and_no_test_tools(check, others):
    assert printed(_IMPORTED, *others, HAL_CHECK=check) == "[]\n"


def test_the_setting_is_read_when_a_device_is_opened(checked, monkeypatch):
    monkeypatch.setenv("HAL_CHECK", "0")
    assert type(checked.allocator) is CheckedAllocator
    assert isinstance(checked.compile(copy), InterpretedProgram)
    assert checked.compile(copy).pair == "checked"


@pytest.mark.parametrize(
    ("name", "text"), [("SECONDS", "0"), ("SECONDS", "soon"), ("SEED", "-1"), ("SEED", "x")]
)
def test_settings_that_cannot_be_read(name, text):
    with pytest.raises(hal.InvalidArgument, match=f"HAL_CPU_CHECK_{name}: expected .*It means: "):
        open_device(HAL_CHECK="1", **{f"HAL_CPU_CHECK_{name}": text})


# -- programs


def test_P1_bytes_that_are_not_the_kernel_are_refused(checked):
    whole = checked.compile(copy).binary
    cut = [whole.image[:end] for end in range(len(whole.image))]
    changed = whole.image.replace(b"float32", b"float64")
    for image in (*cut, changed, whole.image + b"\n", b"\xff\xfe"):
        with pytest.raises(hal.CompileError, match=r"load copy: .*(not a binary|damaged)"):
            checked.load(whole._replace(image=image))
    with pytest.raises(hal.CompileError, match=r"load other: .*another kernel, copy"):
        other = whole.interface._replace(signature=whole.signature._replace(name="other"))
        checked.load(whole._replace(interface=other))
    assert checked.load(whole).signature == copy.signature


def test_C5_a_listing_can_be_a_source(checked):
    text = checked.compile(count).source

    def source(text, **options):
        return hal.Source("count", text, "total: int32*", language="uops", **options)

    total = ints(checked, 0)
    checked.compile(source(text))(total, threads=5)
    assert total.numpy().tolist() == [5]
    with pytest.raises(hal.CompileError, match="compile count: not a valid listing") as caught:
        checked.compile(source(text.replace("ATOMIC", "ATOM!C")))
    assert caught.value.line and "ATOM!C" in str(caught.value)
    with pytest.raises(hal.CompileError, match="another kernel, copy"):
        checked.compile(source(checked.compile(copy).source))
    with pytest.raises(hal.Unsupported, match="mean nothing to a listing"):
        checked.compile(source(text, defines={"N": 1}))


def test_dynamic_shared_memory_is_refused(checked):
    with pytest.raises(hal.Unsupported, match=r"launch count: .*shared memory they declare"):
        checked.compile(count)(ints(checked, 0), threads=1, shared=16)


def test_disassembly_is_the_listing(checked):
    program = checked.compile(copy)
    text = checked.compiler.disassemble(program.binary.image)
    assert text == program.source and re.search(r"STORE .*; line \d+", text)
