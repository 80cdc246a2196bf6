"""Loops, branches, variables, the order of reads and writes, and which threads run."""

import itertools
import math

import numpy as np
import pytest
from builder import Builder
from slices import usual
from toolchains import TOOLCHAINS, NativeToolchain

import hal_core as hal
from hal_core.dtypes import DTYPES, float32
from hal_kernel.interpreter import interpret

RANGED = [DTYPES[name] for name in ("int8", "uint8", "int32", "int64")]
NATIVE = [name for name, made in TOOLCHAINS.items() if issubclass(made, NativeToolchain)]


@pytest.mark.parametrize("dtype", usual(RANGED, "int8", "int64"), ids=str)
@pytest.mark.parametrize("constant", [False, True])
def test_range_counts_as_python_does(toolchain, dtype, constant):
    """Also where one step more would leave the dtype, and where there is no turn at all."""
    low, high = int(dtype.min), int(dtype.max)
    cases = [
        (start, stop, step)
        for start, stop, step in (
            (0, 10, 1), (3, 3, 1), (5, 2, 1), (0, 10, 3), (10, 0, -1), (10, -1, -1), (10, 0, -4),
            (high - 5, high, 1), (high - 5, high, 2), (high - 5, high, 100), (high, high, 7),
            (low + 5, low, -1), (low + 5, low, -2), (low + 5, low, -100), (low, high, high // 3),
            (high, low, -(high // 3)), (0, 1, high),
        )
        if low <= min(start, stop) and (low < 0 or step > 0)
    ]  # fmt: skip
    b = Builder("ranges", f"r: int64*, bounds: const {dtype.name}*")
    for number, (start, stop, step) in enumerate(cases):
        ends = [
            b.const(value, dtype) if constant else b.load("bounds", b.const(2 * number + position))
            for position, value in enumerate((start, stop))
        ]
        total = b.var("total", b.const(0, DTYPES["int64"]))
        turn = b.var("turn", b.const(1, DTYPES["int64"]))
        k = b.range(*ends, b.const(step, dtype))
        # the sum tells the counters, the factor their order
        wide = b.cast(k, DTYPES["int64"])
        b.set(total, b.op("ADD", b.get(total), b.op("MUL", wide, b.get(turn))))
        b.set(turn, b.op("ADD", b.get(turn), b.const(1, DTYPES["int64"])))
        b.end(k)
        b.store("r", b.const(number), b.get(total))
    got = np.zeros(len(cases), np.int64)
    bounds = np.array([case[:2] for case in cases], dtype.to_numpy()).reshape(-1)
    toolchain.run(b.kernel(), {"r": got, "bounds": bounds})
    for case, total in zip(cases, got.tolist(), strict=True):
        expected = sum(k * turn for turn, k in enumerate(range(*case), 1))
        assert total == (expected + (1 << 63)) % (1 << 64) - (1 << 63), (case, constant)


@hal.kernel
def steps_known_late(
    r: hal.Ptr[hal.int64], bounds: hal.ConstPtr[hal.int32], far: hal.ConstPtr[hal.int64],
    n: hal.int32, m: hal.int32,
):  # fmt: skip
    i = hal.global_idx(0)
    if i < n:
        total = hal.int64(0)
        turn = hal.int64(1)
        for k in range(bounds[3 * i], bounds[3 * i + 1], bounds[3 * i + 2]):
            if k % 5 == 3:
                continue
            total += hal.int64(k) * turn
            turn += 1
        r[i] = total
    elif i - n < m:
        total = hal.int64(0)
        turn = hal.int64(1)
        c = 3 * (i - n)
        for k in range(far[c], far[c + 1], far[c + 2]):
            total += k * turn
            turn += 1
        r[i] = total


def test_a_range_whose_step_is_known_at_run_time_counts_as_python_does(toolchain):
    """Also up to the last number, and not at all where the step is 0."""
    cases = []
    for low, high in ((-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1)):
        cases.append([
            (0, 10, 1), (3, 3, 1), (5, 2, 1), (2, 5, -1), (0, 10, 3), (10, 0, -1), (10, -1, -4),
            (high - 5, high, 1), (high - 5, high, 2), (high - 5, high, 100), (high - 4, high, high),
            (low + 5, low, -1), (low + 5, low, -2), (low + 5, low, low), (low, high, high),
            (high, low, low), (high, low, -high), (7, 9, 0), (9, 7, 0),
        ])  # fmt: skip
    near, far = cases
    arrays = {"bounds": np.array(near, "i4").ravel(), "far": np.array(far, "i8").ravel()}
    got = np.zeros(len(near) + len(far), np.int64)
    launch = {"r": got, **arrays, "n": len(near), "m": len(far)}
    toolchain.run(steps_known_late.lower(), launch, grid=(5, 1, 1), block=(8, 1, 1))
    for number, ((start, stop, step), total) in enumerate(
        zip(near + far, got.tolist(), strict=True)
    ):
        counted = range(start, stop, step) if step else ()
        kept = [k for k in counted if number >= len(near) or k % 5 != 3]
        expected = sum(k * turn for turn, k in enumerate(kept, 1))
        assert total == (expected + (1 << 63)) % (1 << 64) - (1 << 63), (start, stop, step)


@hal.kernel
def steps_by_the_launch(
    r: hal.Ptr[hal.int64], bounds: hal.ConstPtr[hal.int32], far: hal.ConstPtr[hal.int64],
    n: hal.int32, m: hal.int32,
):  # fmt: skip
    i = hal.global_idx(0)
    threads = hal.grid_dim(0) * hal.block_dim(0)
    total = hal.int64(0)
    if i < n:
        for k in range(bounds[2 * i], bounds[2 * i + 1], hal.grid_dim(0)):
            total += total + hal.int64(k)
        for k in range(bounds[2 * i], bounds[2 * i + 1], threads):
            total += total + hal.int64(k)
        for k in range(bounds[2 * i], bounds[2 * i + 1], 3 * hal.block_dim(0)):
            total += total + hal.int64(k)
        for k in range(bounds[2 * i], bounds[2 * i + 1], hal.block_dim(0) * (1 << 29)):
            total += total + hal.int64(k)  # the step wraps to 0: no loop without end
        r[i] = total
    elif i - n < m:
        c = 2 * (i - n)
        wide = hal.int64(hal.grid_dim(0)) * hal.int64(hal.block_dim(0))
        for k in range(far[c], far[c + 1], wide):
            total += total + k
        r[i] = total


def test_a_step_that_is_the_size_of_the_launch_counts_up(toolchain):
    """Count as Python does, with no test of the sign of the step."""
    grid, block = 5, 8
    near = [(0, 100), (3, 3), (5, 2), (-90, 7), (2**31 - 50, 2**31 - 1), (-(2**31), 90 - 2**31)]
    far = [(0, 100), (2**63 - 90, 2**63 - 1), (7, -7)]
    arrays = {"bounds": np.array(near, "i4").ravel(), "far": np.array(far, "i8").ravel()}
    got = np.zeros(len(near) + len(far), np.int64)
    kernel = steps_by_the_launch.lower()
    signs = [n for n in kernel.uops if n.op == "LT" and n.src[1].op == "CONST"]
    assert signs == [] and all(n.src[1].op == "GET" for n in kernel.uops if n.op == "GT")
    launch = {"r": got, **arrays, "n": len(near), "m": len(far)}
    toolchain.run(kernel, launch, grid=(grid, 1, 1), block=(block, 1, 1))
    for number, ((start, stop), found) in enumerate(zip(near + far, got.tolist(), strict=True)):
        total = 0
        steps = (grid, grid * block, 3 * block, 1 << 32) if number < len(near) else (grid * block,)
        for step in steps:
            for k in range(start, stop, step):
                total = 2 * total + k
        assert found == (total + (1 << 63)) % (1 << 64) - (1 << 63), (start, stop)


def test_a_step_of_zero_is_named_in_checked_mode():
    arrays = np.zeros(1, "i8"), np.array([0, 5, 0], "i4"), np.zeros(3, "i8")
    with pytest.raises(hal.FailedAssert, match="the step of range is 0"):
        interpret(steps_known_late, *arrays, vals=(1, 0), threads=1)


def specials_kernel(block=None):
    b = Builder("specials", "r: int32*, seen: int32*")
    place = {}
    for kind in ("global_idx", "block_idx", "thread_idx", "block_dim", "grid_dim"):
        place[kind] = [b.special(kind, axis) for axis in range(3)]
    x, y, z = place["global_idx"]
    width = b.op("MUL", place["grid_dim"][0], place["block_dim"][0])
    height = b.op("MUL", place["grid_dim"][1], place["block_dim"][1])
    line = b.op("ADD", b.op("MUL", b.op("ADD", b.op("MUL", z, height), y), width), x)
    b.store("seen", line, b.op("ADD", b.load("seen", line), b.const(1)))
    for number, special in enumerate(itertools.chain(*place.values())):
        slot = b.op("ADD", b.op("MUL", line, b.const(15)), b.const(number))
        b.store("r", slot, special)
    return b


@pytest.mark.parametrize("name", NATIVE)
def test_a_part_of_the_grid_runs_those_blocks_only(name, tmp_path_factory):
    toolchain = TOOLCHAINS[name](tmp_path_factory.mktemp(name))
    if toolchain.missing:
        pytest.skip(toolchain.missing)
    grid, block = (3, 2, 2), (2, 1, 1)
    kernel = specials_kernel().kernel()
    function = toolchain.function(kernel)
    blocks = math.prod(grid)
    for first, last in ((0, 0), (0, 1), (4, 9), (11, 12), (0, blocks), (7, 7), (9, 4)):
        got, seen = np.zeros((24, 5, 3), np.int32), np.zeros(24, np.int32)
        slots = np.array([got.ctypes.data, seen.ctypes.data], np.uint64)
        launch = np.array([*grid, *block], np.int32)
        function(slots.ctypes.data, launch.ctypes.data, first, last)
        ran = {bx + grid[0] * (by + grid[1] * bz) for bx, by, bz in got[seen > 0][:, 1].tolist()}
        assert ran == set(range(first, last))
        assert seen.sum() == 2 * max(0, last - first)


INTEGERS = [dtype for dtype in DTYPES.values() if dtype.is_integer]
INDICES = {"uint8": 199, "uint16": 40000}  # unsigned ones are not negative


@pytest.mark.parametrize("dtype", usual(INTEGERS, "int8", "uint16", "uint64"), ids=str)
def test_indices_of_every_width(toolchain, dtype):
    b = Builder("indices", f"r: float32*, x: const float32*, at: const {dtype.name}*")
    i = b.index()
    b.store("r", i, b.load("x", b.load("at", i)))
    x, got = np.arange(50000, dtype=np.float32), np.zeros(4, np.float32)
    at = np.array([127, 1, 0, INDICES.get(dtype.name, 5)], dtype.to_numpy())
    toolchain.run(b.kernel(), {"r": got, "x": x, "at": at}, grid=(4, 1, 1))
    assert got.tolist() == at.tolist()


def test_one_buffer_for_two_parameters(toolchain):
    """No `restrict`: y[i] = 2 * x[i] with x being y."""
    b = Builder("twice", "y: float32*, x: const float32*, n: int32")
    i = b.index()
    guard = b.if_(b.op("LT", i, b.params["n"]))
    b.store("y", i, b.op("ADD", b.op("MUL", b.const(2, float32), b.load("x", i)), b.load("y", i)))
    b.end(guard)
    x = np.arange(100, dtype=np.float32)
    if isinstance(toolchain, NativeToolchain):  # PoCL's buffers are copies here
        toolchain.run(b.kernel(), {"y": x, "x": x, "n": 100}, grid=(2, 1, 1), block=(64, 1, 1))
        np.testing.assert_array_equal(x, 3 * np.arange(100, dtype=np.float32))
    y = np.zeros(100, np.float32)
    toolchain.run(b.kernel(), {"y": y, "x": x, "n": 90}, grid=(2, 1, 1), block=(64, 1, 1))
    np.testing.assert_array_equal(y, np.where(np.arange(100) < 90, 2 * x, 0))


def test_a_chain_of_four_hundred_elif(toolchain):
    """Compilers of the C family give up at 256 nested brackets."""
    b = Builder("chain", "r: int32*, x: const int32*")
    i, blocks = b.index(), []
    result = b.var("result", b.const(-1))
    for number in range(400):
        blocks.append(b.if_(b.op("EQ", b.load("x", i), b.const(number))))
        b.set(result, b.const(2 * number))
        b.else_(blocks[-1])
    b.set(result, b.const(7))
    for block in reversed(blocks):
        b.end(block)
    b.store("r", i, b.get(result))
    got = np.zeros(4, np.int32)
    toolchain.run(b.kernel(), {"r": got, "x": np.array([0, 3, 399, 400], np.int32)}, (4, 1, 1))
    assert got.tolist() == [0, 6, 798, 7]
