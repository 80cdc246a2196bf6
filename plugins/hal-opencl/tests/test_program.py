"""Launches on a real platform."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hal_core as hal
from hal_opencl import driver
from hal_opencl.driver import cl

pytestmark = [pytest.mark.results, pytest.mark.quick]

Rendered = Callable[[str, str, str], hal.Program]

LIVE = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])

# In the renderer's convention. Every thread adds one to a place of its own.
COUNT = """
__kernel void count(__global int *hits_base, long hits_offset, int nx, int ny, int nz) {
    __global int *hits = (__global int *)((__global char *)hits_base + hits_offset);
    int x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
    if (x < nx && y < ny && z < nz) hits[(z * ny + y) * nx + x] += 1;
}
"""
TYPES = """
__kernel void types(__global double *out_base, long out_offset, uchar flag, char a, uchar b,
                    short c, ushort d, int e, uint f, long g, ulong h, float i, double j) {
    __global double *out = (__global double *)((__global char *)out_base + out_offset);
    out[0] = flag; out[1] = a; out[2] = b; out[3] = c; out[4] = d; out[5] = e; out[6] = f;
    out[7] = g; out[8] = h; out[9] = i; out[10] = j;
}
"""


def test_P1_the_named_entry_is_launched(device: hal.Compiled) -> None:
    text = "".join(
        f"__kernel void {name}(__global int *x) {{ x[0] = {value}; }}\n"
        for name, value in (("first", 1), ("second", 2), ("third", 3))
    )
    x = hal.zeros(1, hal.int32, device)
    for name, value in (("third", 3), ("first", 1), ("second", 2)):
        device.compile(hal.Source(name, text, "x: int32*", language="opencl"))(x, threads=1)
        assert x.numpy()[0] == value


@LIVE
@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 4), st.data())
def test_P6_every_thread_runs_exactly_once(
    device: hal.Compiled, rendered: Rendered, x: int, y: int, z: int, data: st.DataObject
) -> None:
    program = rendered("count", "hits: int32*, nx: int32, ny: int32, nz: int32", COUNT)
    block = tuple(data.draw(st.integers(1, most)) for most in (8, 4, 2))
    hits = hal.zeros(x * y * z, hal.int32, device)
    program(hits, vals=(x, y, z), threads=(x, y, z), block=block)
    assert (hits.numpy() == 1).all()
    grid = tuple(-(-n // b) for n, b in zip((x, y, z), block, strict=True))
    program(hits, vals=(x, y, z), grid=grid, block=block)
    assert (hits.numpy() == 2).all()


@hal.kernel
def count_up(hits: hal.Ptr[hal.int32], n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        hits[i] += 1


@pytest.mark.parametrize(("grid", "of_each"), [(1, 1), (100, 1), (65, 2), (4099, 16), (40_000, 16)])
def test_P6_a_work_item_is_several_short_blocks(
    device: hal.Compiled, monkeypatch: pytest.MonkeyPatch, grid: int, of_each: int
) -> None:
    """Beginning a work-item takes as long as many threads, so few blocks have one each."""
    program = device.compile(count_up)
    if not program._whole_blocks:  # type: ignore[attr-defined]
        pytest.skip("blocks are work-groups here")
    units = 1 if grid == 65 else 2
    monkeypatch.setattr(device, "info", device.info._replace(compute_units=units))
    geometry = program._geometry((grid, 1, 1), (256, 1, 1), 0)
    assert geometry.items == (-(-grid // of_each),)
    hits = hal.zeros(grid * 256, hal.int32, device)
    program(hits, vals=(grid * 256,), grid=grid, block=256, wait=True)
    assert (hits.numpy() == 1).all()


def test_P5_zero_launches_nothing_and_limits_name_value_and_limit(
    device: hal.Compiled, saxpy: hal.Program
) -> None:
    y, x = hal.zeros(4, hal.float32, device), hal.empty(4, hal.float32, device).fill(1)
    assert saxpy(y, x, vals=(1.0, 4), grid=(0, 1), block=4) is None
    assert saxpy(y, x, vals=(1.0, 4), threads=0, wait=True) == 0.0
    assert y.numpy().tolist() == [0] * 4
    most = device.info.limits.max_block_threads
    with pytest.raises(hal.InvalidArgument, match=rf"{most + 1}.*limit {most}"):
        saxpy(y, x, vals=(1.0, 4), grid=1, block=most + 1)
    saxpy(y, x, vals=(1.0, 4), grid=1, block=most)
    assert y.numpy().tolist() == [1] * 4


def test_P3_every_dtype_of_value_arrives(device: hal.Compiled, rendered: Rendered) -> None:
    if "fp64" not in device.info.capabilities:
        pytest.skip("the device has no float64")
    names = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
    names += ["float32", "float64"]
    signature = ", ".join(f"v{i}: {name}" for i, name in enumerate(names))
    program = rendered("types", f"out: float64*, {signature}", TYPES)
    out = hal.zeros(11, hal.float64, device)
    low = [hal.dtypes.DTYPES[name].min for name in names]
    high = [hal.dtypes.DTYPES[name].max for name in names]
    for vals in (low, high, [True, -1, 255, -2, 65535, -3, 2**32 - 1, -4, 2**63, 0.5, -0.25]):
        vals = [bool(vals[0]), *vals[1:]]
        program(out, vals=tuple(vals), threads=1)
        assert out.numpy().tolist() == [float(value) for value in vals]
    program(out, vals=(*vals[:9], float("inf"), float("nan")), threads=1)
    assert out.numpy()[9] == np.inf
    assert np.isnan(out.numpy()[10])


def test_P4_wait_gives_seconds_and_otherwise_the_call_returns_at_once(
    hardware: hal.Compiled,
) -> None:
    text = """__kernel void busy(__global float *x, int n) {
        float s = x[get_global_id(0)];
        for (int i = 0; i < n; i++) s = s * 0.999f + 1.0f;
        x[get_global_id(0)] = s;
    }"""
    program = hardware.compile(hal.Source("busy", text, "x: float32*, n: int32", language="opencl"))
    x, n = hal.zeros(64, hal.float32, hardware), 300_000
    seconds = program(x, vals=(n,), threads=64, wait=True)
    assert isinstance(seconds, float)
    assert 0 < seconds < 60
    gate = cl.UserEvent(hardware.context)
    try:
        cl.enqueue_barrier(hardware.commands, wait_for=[gate])
        for _ in range(20):
            assert program(x, vals=(n,), threads=64) is None
    finally:
        gate.set_status(cl.command_execution_status.COMPLETE)
    hardware.synchronize()


@LIVE
@given(st.lists(st.tuples(st.sampled_from("lfcvt"), st.integers(0, 3)), max_size=12))
def test_P8_work_happens_in_the_order_of_the_calls(
    device: hal.Compiled, rendered: Rendered, steps: list[tuple[str, int]]
) -> None:
    text = """__kernel void step(__global int *x_base, long x_offset, int k) {
        __global int *x = (__global int *)((__global char *)x_base + x_offset);
        int i = get_global_id(0);
        x[i] = x[i] * 3 + k;
    }"""
    program = rendered("step", "x: int32*, k: int32", text)
    x, other = (hal.zeros(16, hal.int32, device) for _ in range(2))
    mine, theirs = np.zeros(16, "i4"), np.zeros(16, "i4")
    for kind, number in steps:
        if kind == "l":
            program(x, vals=(number,), threads=16, block=4)
            mine = mine * 3 + number
        elif kind == "v":
            program(x[number:], vals=(number,), threads=16 - number, block=1)
            mine[number:] = mine[number:] * 3 + number
        elif kind == "f":
            x[:8].fill(number)
            mine[:8] = number
        elif kind == "c":
            x.copyin(theirs)
            mine = theirs.copy()
        else:
            other.copy_from(x)
            theirs = mine.copy()
    assert (x.numpy() == mine).all()
    assert (other.numpy() == theirs).all()


# -- views


@LIVE
@given(st.integers(0, 60), st.integers(1, 40))
def test_V3_rendered_kernels_take_views_at_any_element(
    device: hal.Compiled, rendered: Rendered, start: int, size: int
) -> None:
    program = rendered("count", "hits: int32*, nx: int32, ny: int32, nz: int32", COUNT)
    base = hal.zeros(100, hal.int32, device)
    program(base[start : start + size], vals=(size, 1, 1), threads=size)
    expected = np.zeros(100, "i4")
    expected[start : start + size] = 1
    assert (base.numpy() == expected).all()


def test_V3_source_kernels_take_aligned_views_and_refuse_others(
    device: hal.Compiled, saxpy: hal.Program
) -> None:
    step = device.info.limits.view_alignment // 4
    base = hal.zeros(4 * step, hal.float32, device)
    one = hal.empty(4, hal.float32, device).fill(1)
    for _ in range(3):
        saxpy(base[2 * step : 2 * step + 4], one, vals=(1.0, 4), threads=4)
    expected = np.zeros(4 * step, "f4")
    expected[2 * step : 2 * step + 4] = 3
    assert (base.numpy() == expected).all()
    if step > 1:
        with pytest.raises(hal.InvalidArgument, match=f"multiple of {4 * step} bytes"):
            saxpy(base[1:5], one, vals=(1.0, 4), threads=4)


SHIFT = """
__kernel void shift(__global int *y_base, long y_offset, int by,
                    __global const float *x_base, long x_offset) {
    __global int *y = (__global int *)((__global char *)y_base + y_offset);
    __global const float *x = (__global const float *)((__global const char *)x_base + x_offset);
    y[get_global_id(0)] = (int)x[get_global_id(0)] + by;
}
"""


@LIVE
@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 40))
def test_V3_source_kernels_that_ask_for_offsets_take_any_view(
    device: hal.Compiled, to: int, start: int, size: int
) -> None:
    signature = "y: int32*, by: int32, x: const float32*"
    program = device.compile(hal.Source("shift", SHIFT, signature, language="opencl", offsets=True))
    y = hal.zeros(100, hal.int32, device)
    x = hal.Buffer.from_numpy(np.arange(100, dtype="f4"), device)
    for _ in range(2):  # the second launch takes the short way
        program(y[to : to + size], x[start : start + size], vals=(7,), threads=size)
    expected = np.zeros(100, "i4")
    expected[to : to + size] = np.arange(start, start + size) + 7
    assert (y.numpy() == expected).all()


@pytest.mark.parametrize(
    ("text", "offsets", "why"),
    [
        (SHIFT, False, r"takes 5 arguments.*gives 3.*offsets=True"),
        ("__kernel void shift(__global int *y, int by, __global const float *x) {}", True,
         r"takes 3 arguments.*gives 5.*offsets=True"),
        (SHIFT.replace("long x_offset", "int x_offset"), True,
         r"argument 4 of the kernel is int.*the byte offset of x"),
    ],
)  # fmt: skip
def test_P2_offsets_that_the_kernel_does_not_have(
    device: hal.Compiled, text: str, offsets: bool, why: str
) -> None:
    signature = "y: int32*, by: int32, x: const float32*"
    kernel = hal.Source("shift", text, signature, language="opencl", offsets=offsets)
    with pytest.raises(hal.CompileError, match=why):
        device.compile(kernel)


def test_V1_V4_a_view_of_a_view_sees_what_the_base_sees(device: hal.Compiled) -> None:
    base = hal.Buffer(device, 32, hal.int32).copyin(np.arange(32, dtype="i4"))
    inner = base[4:28][3:10]
    assert (inner.base, inner.offset) == (base, 28)
    assert inner.numpy().tolist() == list(range(7, 14))
    inner.fill(-1)
    assert base.numpy().tolist() == [*range(7), *[-1] * 7, *range(14, 32)]
    base.fill(5)
    assert inner.numpy().tolist() == [5] * 7
    with pytest.raises(hal.InvalidArgument, match="beyond the end"):
        base.view(33, hal.int32)


def test_B3_empty_buffers_are_passed_as_null(device: hal.Compiled, rendered: Rendered) -> None:
    program = rendered("count", "hits: int32*, nx: int32, ny: int32, nz: int32", COUNT)
    program(hal.Buffer(device, 0, hal.int32), vals=(0, 0, 0), threads=8)
    device.synchronize()


# -- refusals


def test_P2_wrong_arguments_are_named(device: hal.Compiled, saxpy: hal.Program) -> None:
    y, x = hal.zeros(4, hal.float32, device), hal.zeros(4, hal.float32, device)
    wrong = hal.zeros(4, hal.int32, device)
    for bufs, vals, why in (
        ((y,), (1.0, 4), "number of buffers"),
        ((y, wrong), (1.0, 4), "'x' has the wrong dtype"),
        ((y, x), (1.0,), "number of vals"),
        ((y, x), (1.0, 2**40), "'n' is out of range"),
        ((y, x), (1.0, 0.5), "'n' is a float"),
    ):
        with pytest.raises(hal.InvalidArgument, match=why):
            saxpy(*bufs, vals=vals, threads=4)
    x.deallocate()
    with pytest.raises(hal.InvalidState, match="freed"):
        saxpy(y, x, vals=(1.0, 4), threads=4)


def test_V5_P2_a_view_of_freed_memory_is_refused(device: hal.Compiled, saxpy: hal.Program) -> None:
    y, x = hal.zeros(8, hal.float32, device), hal.zeros(8, hal.float32, device)
    view = x[:4]
    saxpy(y, view, vals=(1.0, 4), threads=4)
    x.deallocate()
    hal.empty(8, hal.float32, device)
    with pytest.raises(hal.InvalidState, match="freed"):
        saxpy(y, view, vals=(1.0, 4), threads=4)


def test_P11_facts_are_those_of_the_kernel(device: hal.Compiled) -> None:
    text = """__kernel __attribute__((reqd_work_group_size(4, 1, 1))) void tile(__global int *x) {
        __local int t[32];
        t[get_local_id(0)] = x[get_global_id(0)];
        barrier(CLK_LOCAL_MEM_FENCE);
        x[get_global_id(0)] = t[3 - get_local_id(0)];
    }"""
    kernel = hal.Source("tile", text, "x: int32*", language="opencl", block=(4, 1, 1))
    program = device.compile(kernel)
    assert program.info.max_block_threads
    assert program.info.max_block_threads <= device.info.limits.max_block_threads
    x = hal.Buffer(device, 8, hal.int32).copyin(np.arange(8, dtype="i4"))
    program(x, threads=8)
    assert x.numpy().tolist() == [3, 2, 1, 0, 7, 6, 5, 4]


def test_X1_one_program_from_many_threads(hardware: hal.Compiled, saxpy: hal.Program) -> None:
    """A kernel object holds the arguments of a launch: sharing one would mix them up."""
    device = hardware
    wrong: list[int] = []
    one = hal.empty(64, hal.float32, device).fill(1)

    def work(number: int) -> None:
        mine = hal.zeros(64, hal.float32, device)
        for _ in range(50):
            saxpy(mine, one, vals=(float(number), 64), threads=64)
        if (mine.numpy() != 50 * number).any():
            wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_launch_in_the_middle_of_a_launch_leaves_its_arguments_alone(
    device: hal.Compiled, saxpy: hal.Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finalizers and signal handlers launch in the middle of another launch."""
    y, other = (hal.zeros(64, hal.float32, device) for _ in range(2))
    one = hal.empty(64, hal.float32, device).fill(1)
    to_come, setters = [other], driver.argument_setters

    def watched(kernel: Any) -> tuple[Callable[..., None], Callable[..., None]]:
        set_memory, set_numbers = setters(kernel)

        def come_in(arguments: object) -> None:
            set_numbers(arguments)
            if to_come:
                program(to_come.pop(), one, vals=(10.0, 32), threads=64)

        return set_memory, come_in

    program = device.load(saxpy.binary)
    with monkeypatch.context() as patch:
        patch.setattr(driver, "argument_setters", watched)
        program(y, one, vals=(2.0, 64), threads=64)
    assert not to_come
    assert y.numpy().tolist() == [2] * 64
    assert other.numpy().tolist() == [10] * 32 + [0] * 32
