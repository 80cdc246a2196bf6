"""`@hal.kernel` functions from the front end to the device, against numpy."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hal_core as hal
from hal_opencl import driver

LIVE = settings(
    deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@hal.kernel
def saxpy(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], a: hal.float32, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = a * x[i] + y[i]


@hal.kernel
def row_sums(out: hal.Ptr[hal.int32], m: hal.ConstPtr[hal.int32], rows: hal.int32, cols: hal.int32):
    r = hal.global_idx(0)
    if r < rows:
        total = hal.int32(0)
        for c in range(cols):
            total += m[r * cols + c] // 3
        out[r] = total


@hal.kernel
def divide(out: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], y: hal.ConstPtr[hal.float32]):
    i = hal.global_idx(0)
    out[i] = x[i] / y[i]


@LIVE
@given(st.integers(1, 300), st.integers(0, 50), st.sampled_from([None, 1, 7, 64]))
def test_saxpy_on_views_at_any_offset(
    device: hal.Compiled, n: int, start: int, block: int | None
) -> None:
    rng = np.random.default_rng(n)
    base = rng.integers(-50, 50, n + start + 3).astype("f4")
    x = rng.integers(-50, 50, n).astype("f4")
    y = hal.Buffer.from_numpy(base, device=device)
    view = y[start : start + n]
    device.compile(saxpy)(
        view, hal.Buffer.from_numpy(x, device=device), vals=(2.0, n), threads=n, block=block
    )
    base[start : start + n] += 2 * x
    assert (y.numpy() == base).all()


@LIVE
@given(st.integers(1, 9), st.integers(0, 9))
def test_loops_and_floor_division(device: hal.Compiled, rows: int, cols: int) -> None:
    m = np.random.default_rng(rows).integers(-100, 100, (rows, cols)).astype("i4")
    out = hal.zeros(rows, hal.int32, device)
    program = device.compile(row_sums)
    program(out, hal.Buffer.from_numpy(m, device=device), vals=(rows, cols), threads=rows)
    assert (out.numpy() == (m // 3).sum(1)).all()


def test_C_compile_compiles_and_the_first_launch_only_launches(device: hal.Compiled) -> None:
    """PoCL makes its machine code when a kernel first runs, which was inside the first launch."""
    never_compiled = float(time.time_ns() % (1 << 24))  # PoCL has a cache of its own

    @hal.kernel
    def with_barriers(y: hal.Ptr[hal.float32]):
        i = hal.global_idx(0)
        shared = hal.shared(hal.float32, 1024)
        total = y[i] + never_compiled
        for k in hal.unroll(2):
            shared[hal.thread_idx(0)] = total
            hal.barrier()
            total = hal.sqrt(shared[k] + total)
            hal.barrier()
        y[i] = total

    if not driver.is_pocl(device.hardware):
        pytest.skip("of PoCL")
    y = hal.zeros(64, hal.float32, device)
    device.synchronize()
    start = time.perf_counter()
    program = device.compile(with_barriers)
    compiled = time.perf_counter()
    program(y, threads=64)
    device.synchronize()
    launched = time.perf_counter()
    assert launched - compiled < (compiled - start) / 8


def test_a_block_inside_of_the_bound_runs_without_the_test_of_each_thread(
    device: hal.Compiled,
) -> None:
    """PoCL runs a block as a loop and takes the first test out of it."""
    if not driver.is_pocl(device.hardware):
        pytest.skip("of PoCL")
    text = device.compile(saxpy).source
    last = "(int)(((uint)block_x * block_dim_x) + ((uint)block_dim_x - 1))"
    assert f"({last} < n) | (global_x < n)" in text


def test_division_is_correctly_rounded_where_the_device_can(device: hal.Compiled) -> None:
    if not any("divide" in option for option in device.compiler._rendered):
        pytest.skip("the device divides float32 with an error of up to 2.5 ulp")
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, 5000)).astype("f4")
    out = hal.zeros(5000, hal.float32, device)
    buffers = [hal.Buffer.from_numpy(part, device=device) for part in (x, y)]
    device.compile(divide)(out, *buffers, threads=5000, block=50)
    assert (out.numpy() == x / y).all()


def test_a_launch_in_the_middle_of_many_knows_its_arguments(device: hal.Compiled) -> None:
    """The second launch of a shape skips the checks; it does the same as the first."""
    y = hal.zeros(10, hal.float32, device)
    x = hal.zeros(10, hal.float32, device).fill(1)
    program = device.compile(saxpy)
    for times in range(1, 6):
        program(y, x, vals=(1.0, 10), threads=10)
        assert y.numpy().tolist() == [times] * 10
    program(x, y, vals=(0.5, 10), threads=10)
    assert x.numpy().tolist() == [3.5] * 10
