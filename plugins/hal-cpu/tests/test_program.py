"""Launches, with the GIL held, released or split: every thread once, arguments as given."""

import contextlib
import gc
import os
import threading
import time
from ctypes import c_int64
from types import SimpleNamespace

import numpy as np
import pytest
from ctrl_c import Scene, press_everywhere
from mapped import rights_at

import hal_core as hal
from hal_cpu import processor
from hal_cpu.compilers.llvm import LLVMCompiler
from hal_cpu.in_flight import TrackedLaunch
from hal_cpu.program import AdaptiveLaunch, CPUProgram

pytestmark = [pytest.mark.results, pytest.mark.lowest, pytest.mark.quick]

ordinary = pytest.mark.skipif(
    os.environ.get("HAL_CHECK") == "1", reason="of machine code that runs in this process"
)


@hal.kernel
def slow(y: hal.Ptr[hal.float64], rounds: hal.int32) -> None:
    i = hal.global_idx(0)
    total = hal.float64(0.0)
    for k in range(rounds):
        total = total + hal.sin(hal.float64(k + i))
    y[i] = total


RAW = """
define void @raw(ptr %args, ptr %launch, i64 %first, i64 %last) {
  %out = load ptr, ptr %args
  %b = getelementptr i8, ptr %out, i64 8
  store i64 %first, ptr %out
  store i64 %last, ptr %b
  %p = getelementptr i8, ptr %out, i64 16
  call void @llvm.memcpy.p0.p0.i64(ptr %p, ptr %launch, i64 24, i1 false)
  %q = getelementptr i8, ptr %out, i64 40
  %r = getelementptr i8, ptr %args, i64 8
  call void @llvm.memcpy.p0.p0.i64(ptr %q, ptr %r, i64 88, i1 false)
  ret void
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


def binary(text, name, signature, **fields):
    source = hal.Source(name, text, signature, language="llvm", rendered=True)
    image = LLVMCompiler().compile(source)
    interface = source.interface._replace(**fields)
    return hal.Binary(image, "elf", processor.machine(), interface)


def test_the_calling_convention_byte_by_byte(device):
    """The kernel copies its raw arguments and the launch, eight bytes for each parameter."""
    kinds = [
        "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32",
        "float64",
    ]  # fmt: skip
    signature = "out: uint8*, " + ", ".join(f"{kind}_: {kind}" for kind in kinds)
    program = device.load(binary(RAW, "raw", signature))
    values = [True, -1, 200, -300, 60000, -70000, 2**32 - 1, -(2**62), 2**64 - 1, 1.5, -2.5]
    out = hal.Buffer(device, 128, hal.uint8).fill(0)
    program(out, vals=values, grid=(2, 3, 4), block=(5, 6, 7))
    raw = out.numpy()
    assert raw[:16].view(np.int64).tolist() == [0, 24]
    assert raw[16:40].view(np.int32).tolist() == [2, 3, 4, 5, 6, 7]
    for slot, (kind, value) in enumerate(zip(kinds, values, strict=True)):
        start = 40 + 8 * slot
        dtype = np.dtype(kind)
        assert raw[start : start + dtype.itemsize].view(dtype)[0] == dtype.type(value), kind


def test_launches_that_splitting_makes_slower_stay_on_one_core(monkeypatch):
    """Beside busy processes all threads may have to run on one core."""
    clock, ran, takes = [0.0], list[str](), {"one": 0.0, "all": 0.0}
    monkeypatch.setattr("hal_cpu.program.perf_counter", lambda: clock[0])

    def run(*args):
        ran.append("one")
        clock[0] += takes["one"]

    def split(*args):
        ran.append("all")
        clock[0] += takes["all"]

    pool = SimpleNamespace(run=split)
    measured = AdaptiveLaunch(run, pool, [], False)

    def launches(one, split, count):
        takes.update(one=one, all=split)
        del ran[:]
        for _ in range(count):
            measured(b"", None, c_int64(), c_int64())
        return ran

    assert launches(100e-6, 60e-6, 4) == ["one", "one", "all", "all"]
    assert launches(100e-6, 900e-6, 1) == ["all"]  # one slow launch may be chance
    assert launches(100e-6, 60e-6, 9) == ["all"] * 9
    found = launches(100e-6, 140e-6, 1000)  # busy: both threads on one core
    assert found[:3] == ["all", "all", "one"] and 3 < found.count("all") < 30
    assert launches(100e-6, 60e-6, 200)[-100:] == ["all"] * 100  # quiet again
    # A kernel that takes longer because of its data: one launch on one core shows it.
    assert launches(800e-6, 500e-6, 100).count("one") == 1
    # Long launches are not kept on one core for long.
    launches(20e-3, 12e-3, 8)
    assert launches(20e-3, 30e-3, 2)[-1] == "all"
    assert launches(20e-3, 12e-3, 9).count("one") == 2
    always = AdaptiveLaunch(run, pool, [], True)
    takes.update(one=1e-3, all=9.0)
    ran.clear()
    for _ in range(9):
        always(b"", None, c_int64(), c_int64())
    assert ran == ["all"] * 9


@ordinary
def test_the_gil_is_free_during_a_long_kernel(device, releases_the_gil):
    program = device.compile(slow)
    y = hal.Buffer(device, 1, hal.float64).allocate()
    program(y, vals=(1,), grid=1, block=1)
    assert releases_the_gil(lambda: program(y, vals=(2_000_000,), grid=1, block=1), 1000)


def test_P10_unloading_frees_the_code(own_device):
    program = own_device.load(binary(RAW, "raw", "out: uint8*"))
    assert isinstance(program, CPUProgram) and program.code is not None
    address = program.code.address
    out = hal.Buffer(own_device, 256, hal.uint8)
    program(out, grid=1, block=1)
    assert "x" in rights_at(address)
    program.unload()
    gc.collect()
    assert "x" not in rights_at(address)
    with pytest.raises(hal.InvalidState):
        program(out, grid=1, block=1)


def begun(device, work):
    """Return a thread whose work is in flight by now."""
    thread, end = None, time.monotonic() + 30
    while not device.in_flight.work:
        assert time.monotonic() < end
        if thread is None or not thread.is_alive():  # that one ended between two looks
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
        time.sleep(0.0002)
    return thread


@pytest.mark.parametrize("wait", ["synchronize", "close"])
@pytest.mark.parametrize("kind", ["launch", "fill"])
def test_P8_work_in_flight_on_other_threads_is_waited_for(own_device, wait, kind):
    """The kernel wrote on behind the close."""
    program = own_device.compile(slow)
    y = hal.zeros(2 if kind == "launch" else 8 << 20, hal.float64, own_device)
    written = np.asarray(y)
    work = {
        "launch": lambda: program(y, vals=(1_000_000,), grid=2, block=1),
        "fill": lambda: y.fill(1.5),
    }
    thread = begun(own_device, work[kind])
    getattr(own_device, wait)()
    assert written.all()
    thread.join()


def test_P8_a_wait_with_a_limit_ends_before_the_launch(own_device):
    program = own_device.compile(slow)
    y = hal.zeros(2, hal.float64, own_device)
    thread = begun(own_device, lambda: program(y, vals=(3_000_000,), grid=2, block=1))
    assert own_device.synchronize(0.001) is False
    assert own_device.synchronize(60) is True
    assert np.asarray(y).all()
    thread.join()


def test_a_wait_in_the_middle_of_the_threads_own_launch_returns(own_device):
    """A signal handler may wait there; the launch cannot end before it does."""
    waits = []

    def run(*args):
        with own_device.in_flight.using(1000):
            waits.append(own_device.synchronize())

    TrackedLaunch(run, own_device.in_flight)(b"arguments", None, None, None)
    assert waits == [True]


def test_P1_a_binary_of_another_format(device):
    made = binary(RAW, "raw", "out: uint8*")
    with pytest.raises(hal.CompileError, match=r"loads elf and macho, not 'uops' on CPU\. Load"):
        device.load(made._replace(format="uops"))


@pytest.mark.parametrize("profiled", [False, True])
def test_A7_ctrl_c_while_memory_in_flight_is_freed(own_device, profiled):
    """The block goes back once, when no work uses it any more: not twice, and not never."""
    allocator, in_flight = own_device.allocator, own_device.in_flight
    options = hal.BufferSpec(nolru=profiled)

    def scene():
        x = hal.Buffer(own_device, 64, hal.uint8, options).allocate()
        address = x._buf

        def work():
            with in_flight.using(1), in_flight.using(address):
                TrackedLaunch(lambda *_: None, in_flight)(b"arguments", None, None, None)
                x.deallocate()
                gone = not x.is_allocated
                assert not gone or address in allocator._live, "freed under the work that uses it"

        def check(heard):
            assert not in_flight.work
            was_freed = not x.is_allocated
            facts = allocator.statistics()  # raises for a block that came back twice
            assert facts.live == (not was_freed) and not in_flight.freed
            if not was_freed:
                x.deallocate()
            assert allocator.statistics().live == 0

        return Scene(work, check)

    with hal.profile() if profiled else contextlib.nullcontext():
        assert press_everywhere(scene, 1000) > 50  # every place
