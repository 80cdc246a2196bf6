"""`@hal.kernel` functions from the front end to the device, against numpy."""

import sys
import time
from pathlib import Path

import numpy as np
import pytest

import hal_core as hal
from hal_opencl import driver
from hal_opencl.pocl import BlockRenderer


@hal.kernel
def divide(out: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], y: hal.ConstPtr[hal.float32]):
    i = hal.global_idx(0)
    out[i] = x[i] / y[i]


def without_barriers(constant):
    @hal.kernel
    def without(y: hal.Ptr[hal.float32], n: hal.int32):
        i = hal.global_idx(0)
        if i < n:
            value = y[i] + constant
            for _ in hal.unroll(4):
                value = hal.sin(value)
            y[i] = value

    return without


def with_barriers(constant):
    @hal.kernel
    def within(y: hal.Ptr[hal.float32], n: hal.int32):
        i = hal.global_idx(0)
        shared = hal.shared(hal.float32, 1024)
        total = y[i] + constant
        for k in hal.unroll(2):
            shared[hal.thread_idx(0)] = total
            hal.barrier()
            total = hal.sqrt(shared[k] + total)
            hal.barrier()
        y[i] = total

    return within


def machine_code():
    """Return the files with machine code in this process; PoCL writes one for each compilation."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return {line.split()[-1] for line in lines if line.endswith(".so")}


@pytest.mark.parametrize("make", [with_barriers, without_barriers])
def test_C_compile_compiles_and_the_first_launch_only_launches(device, make):
    """PoCL makes its machine code when a kernel first runs, which was inside the first launch.

    It makes other code for another size of groups, and for 65535 groups and more.
    """
    never_compiled = float(time.time_ns() % (1 << 24))  # PoCL has a cache of its own
    if not driver.has_old_pocl(device.hardware) or sys.platform != "linux":
        pytest.skip("of PoCL before version 4, on Linux")
    y = hal.zeros(64, hal.float32, device)
    device.synchronize()
    before = machine_code()
    program = device.compile(make(never_compiled))
    compiled = machine_code()
    assert compiled - before
    for block, blocks in (
        (64, 1), (32, 2), (1, 64), (1, 70_000 if make is without_barriers else 64),
    ):  # fmt: skip
        program(y, vals=(64,), threads=block * blocks, block=block)
    device.synchronize()
    assert machine_code() == compiled


@hal.kernel
def count_blocks(seen: hal.Ptr[hal.int32], blocks: hal.int32):
    b = hal.block_idx(0)
    if hal.thread_idx(0) == 0 and b < blocks and hal.grid_dim(0) == blocks:
        hal.atomic_add(seen, b, hal.block_idx(1) + 1)


@pytest.mark.parametrize("blocks", [1, 32768, 32769, 65536, 98305])
def test_P_every_block_of_a_wide_launch_runs_once(device, blocks):
    """On PoCL a work-item runs several blocks of such a launch."""
    seen = hal.zeros(blocks, hal.int32, device)
    device.compile(count_blocks)(seen, vals=(blocks,), grid=(blocks, 2), block=2)
    assert (seen.numpy() == 3).all()


@pytest.mark.parametrize(
    "bounds", [(2**31 - 8, 2**31 - 1, 3), (8 - 2**31, -(2**31), -5), (1, 8, 3)]
)
def test_short_loops_up_to_the_end_of_a_dtype_compile(device, bounds):
    """PoCL gets `#pragma unroll` before them, and takes it directly before `for` only."""
    start, stop, step = bounds

    @hal.kernel
    def count(y: hal.Ptr[hal.int32]):
        for k in range(start, stop, step):
            y[0] += k // 2

    y = hal.zeros(1, hal.int32, device)
    device.compile(count)(y, threads=1)
    total = sum(k // 2 for k in range(*bounds))
    assert y.numpy()[0] == (total + 2**31) % 2**32 - 2**31


@hal.kernel
def angles(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = hal.sin(x[i])
        y[n + i] = hal.cos(x[i])
        y[2 * n + i] = hal.tan(x[i])


def test_sin_cos_and_tan_are_within_two_units_of_any_angle(device):
    if not driver.is_pocl(device.hardware):
        pytest.skip("of the formulas that PoCL gets")
    rng = np.random.default_rng(4)
    bits = rng.integers(0, 1 << 32, 100_000, dtype="u4").view("f4")  # NaNs and infinities, too
    turns = (np.arange(1, 20_000) * (np.pi / 2)).astype("f4")
    near = np.concatenate([turns, np.nextafter(turns, np.float32(0)), -turns * np.float32(2.0**60)])
    ordinary = np.array([*rng.uniform(-100, 100, 50_000), 0.0, -0.0], "f4")
    x = np.concatenate([bits, near, ordinary])
    out = hal.zeros(3 * len(x), hal.float32, device)
    given = hal.Buffer.from_numpy(x, device=device)
    device.compile(angles)(out, given, vals=(len(x),), threads=len(x))
    with np.errstate(invalid="ignore"):
        wide = x.astype("f8")
    for got, function in zip(out.numpy().reshape(3, -1), (np.sin, np.cos, np.tan), strict=True):
        with np.errstate(invalid="ignore"):
            exact = function(wide)
        assert (np.isnan(got) == np.isnan(exact)).all()
        known = ~np.isnan(exact)
        unit = np.spacing(np.abs(exact[known]).astype("f4"))
        assert (np.abs(got[known] - exact[known]) / unit).max() <= 2
    assert np.signbit(out.numpy()[len(x) - 1]) and not np.signbit(out.numpy()[len(x) - 2])


def test_division_is_correctly_rounded_where_the_device_can(device):
    if not any("divide" in option for option in device.compiler._rendered):
        pytest.skip("the device divides float32 with an error of up to 2.5 ulp")
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, 5000)).astype("f4")
    out = hal.zeros(5000, hal.float32, device)
    buffers = [hal.Buffer.from_numpy(part, device=device) for part in (x, y)]
    device.compile(divide)(out, *buffers, threads=5000, block=50)
    assert (out.numpy() == x / y).all()


@pytest.mark.parametrize("short", [16, 17])
def test_short_loops_of_a_thread_are_written_out(short, device):
    """Threads are then the innermost loop, and become vectors: a product of tiles took 10 times.

    A loop around the loops over threads is none of a thread, and has no hint.
    """

    @hal.kernel(block=(16, 1, 1))
    def rows(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32]) -> None:
        tile = hal.shared(hal.float32, 32)
        t = hal.thread_idx(0)
        for _ in range(2):
            tile[t] = x[hal.global_idx(0)]
            tile[t + 16] = 1.0
            hal.barrier()
        total = hal.float32(0)
        for k in range(short):
            total += tile[k]
        y[hal.global_idx(0)] = total

    text = BlockRenderer().render(rows.lower())
    assert text.count("#pragma") == (short == 16)
    x, y = (
        hal.Buffer.from_numpy(np.arange(64, dtype="f4"), device),
        hal.zeros(64, hal.float32, device),
    )
    device.compile(rows)(y, x, grid=4)
    sums = [sum(range(b, b + 16)) + short - 16 for b in range(0, 64, 16)]
    assert y.numpy().tolist() == np.repeat(np.array(sums, "f4"), 16).tolist()
