"""Programs beside a library's own functions: numpy's product and sums, scipy's filters."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import hal_core as hal
from bench.measure import OURS, SETTLED, Effort, Task, call, compare
from bench.report import Missing, Row, beside

SIZE = 1024  # rows and columns of the matrices
WIDE, DEEP, HIGH = 64, 128, 16  # a block: columns, products at a time, threads along y
TALL = 8  # rows of each thread
COUNT = 1 << 20
BLOCK, ROUNDS = 256, 16  # a block sums up so many rows of its threads
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "edges.py"
Array = hal.Ptr[hal.float32]
Input = hal.ConstPtr[hal.float32]


@hal.kernel(block=(WIDE, HIGH, 1))
def multiply(c: Array, a: Input, b: Input, n: hal.int32):
    """Each thread computes eight elements of a column, which stay in registers.

    All threads along x read the same elements of `a`, so only `b` goes through shared memory.
    """
    right = hal.shared(hal.float32, (DEEP, WIDE))
    x = hal.thread_idx(0)
    y = hal.thread_idx(1)
    column = hal.global_idx(0)
    row = hal.global_idx(1) * TALL
    c0 = hal.float32(0)
    c1 = hal.float32(0)
    c2 = hal.float32(0)
    c3 = hal.float32(0)
    c4 = hal.float32(0)
    c5 = hal.float32(0)
    c6 = hal.float32(0)
    c7 = hal.float32(0)
    for first in range(0, n, DEEP):
        for k in range(DEEP // HIGH):
            right[k * HIGH + y, x] = b[(first + k * HIGH + y) * n + column]
        hal.barrier()
        for k in range(DEEP):
            v = right[k, x]
            c0 += a[row * n + first + k] * v
            c1 += a[(row + 1) * n + first + k] * v
            c2 += a[(row + 2) * n + first + k] * v
            c3 += a[(row + 3) * n + first + k] * v
            c4 += a[(row + 4) * n + first + k] * v
            c5 += a[(row + 5) * n + first + k] * v
            c6 += a[(row + 6) * n + first + k] * v
            c7 += a[(row + 7) * n + first + k] * v
        hal.barrier()
    place = row * n + column
    c[place] = c0
    c[place + n] = c1
    c[place + 2 * n] = c2
    c[place + 3 * n] = c3
    c[place + 4 * n] = c4
    c[place + 5 * n] = c5
    c[place + 6 * n] = c6
    c[place + 7 * n] = c7


@hal.kernel(block=(BLOCK, 1, 1))
def scan_blocks(
    y: hal.Ptr[hal.int32], totals: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32]
) -> None:
    """Sum up within each block; zeros in front of both arrays serve the first threads."""
    old = hal.shared(hal.int32, 2 * BLOCK)
    new = hal.shared(hal.int32, 2 * BLOCK)
    t = hal.thread_idx(0)
    own = BLOCK + t
    total = hal.int32(0)
    old[t] = 0
    new[t] = 0
    for k in range(ROUNDS):
        i = (hal.block_idx(0) * ROUNDS + k) * BLOCK + t
        old[own] = x[i]
        hal.barrier()
        for step in hal.unroll(0, 8, 2):
            new[own] = old[own] + old[own - (1 << step)]
            hal.barrier()
            old[own] = new[own] + new[own - (2 << step)]
            hal.barrier()
        y[i] = old[own] + total
        total += old[2 * BLOCK - 1]
        hal.barrier()
    if t == 0:
        totals[hal.block_idx(0)] = total


@hal.kernel
def scan_totals(totals: hal.Ptr[hal.int32], n: hal.int32) -> None:
    if hal.global_idx(0) == 0:
        total = hal.int32(0)
        for k in range(n):
            own = totals[k]
            totals[k] = total
            total += own


@hal.kernel(block=(BLOCK, 1, 1))
def add_totals(y: hal.Ptr[hal.int32], totals: hal.ConstPtr[hal.int32]) -> None:
    own = totals[hal.block_idx(0)]
    for k in range(ROUNDS):
        y[(hal.block_idx(0) * ROUNDS + k) * BLOCK + hal.thread_idx(0)] += own


def rows(effort: Effort) -> Iterator[Row | Missing]:
    yield product(effort)
    yield scan(effort)
    yield edges(effort)


def product(effort: Effort) -> Row:
    device, generator = hal.Device["CPU"], np.random.default_rng(0)
    a, b = (generator.random((SIZE, SIZE), dtype=np.float32) for _ in "ab")
    left, right = (hal.Buffer.from_numpy(matrix.reshape(-1), device) for matrix in (a, b))
    c, out = hal.empty(SIZE * SIZE, hal.float32, device), np.empty_like(a)
    program, grid = device.compile(multiply), (SIZE // WIDE, SIZE // (TALL * HIGH))
    block = (WIDE, HIGH)

    def ours() -> None:
        program(c, left, right, vals=(SIZE,), grid=grid, block=block, wait=True)

    ours()
    if not np.allclose(c.numpy((SIZE, SIZE)), a @ b, rtol=1e-3):
        raise ValueError("the product is wrong")
    tasks = {OURS: call(ours), "numpy": call(lambda: np.matmul(a, b, out=out))}
    what = f"matmul {SIZE} float32 with register tiles, beside numpy's"
    return beside(what, compare(tasks, _long(effort), SETTLED), "numpy", 0.5)


def scan(effort: Effort) -> Row:
    device, generator = hal.Device["CPU"], np.random.default_rng(0)
    given = generator.integers(-100, 100, COUNT).astype("i4")
    x, y = hal.Buffer.from_numpy(given, device), hal.empty(COUNT, hal.int32, device)
    blocks = COUNT // (BLOCK * ROUNDS)
    totals, out = hal.empty(blocks, hal.int32, device), np.empty_like(given)
    first, second, third = map(device.compile, (scan_blocks, scan_totals, add_totals))

    def ours() -> None:
        first(y, totals, x, grid=blocks, block=BLOCK)
        second(totals, vals=(blocks,), threads=1)
        third(y, totals, grid=blocks, block=BLOCK, wait=True)

    ours()
    if not np.array_equal(y.numpy(), np.cumsum(given, dtype="i4")):
        raise ValueError("the sums are wrong")
    tasks = {OURS: call(ours), "np.cumsum": call(lambda: np.cumsum(given, dtype="i4", out=out))}
    what = f"scan of {COUNT >> 20} Mi int32, beside np.cumsum"
    return beside(what, compare(tasks, _long(effort)), "np.cumsum", 0.5)


def edges(effort: Effort) -> Row | Missing:
    """Measure the example on one thread; scipy computes the same from the same pixels."""
    what = "edges example on one thread, beside scipy.ndimage"
    if not EXAMPLE.exists():
        return Missing(what, "examples/edges.py is not beside bench")
    try:
        example, ndimage = _example(), importlib.import_module("scipy.ndimage")
    except ModuleNotFoundError as error:
        return Missing(what, f"not installed ({error.name})")
    photograph = example.load_sample_image("china.jpg")
    with one_thread() as device:
        return beside(what, compare({
            OURS: _edges(device, example, photograph),
            "scipy": _scipy_edges(ndimage, photograph, example.weights().astype("f4")),
        }, _long(effort)), "scipy", 3.0)  # fmt: skip


def _example() -> Any:
    spec = importlib.util.spec_from_file_location("edges", EXAMPLE)
    if spec is None or spec.loader is None:
        raise ImportError(f"{EXAMPLE} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules["edges"] = module  # where its classes look for annotations
    spec.loader.exec_module(module)
    return module


def _edges(device: hal.Compiled, example: Any, photograph: Any) -> Task:
    height, width = photograph.shape[:2]
    count, whole = height * width, (width, height)
    rgb = hal.Buffer.from_numpy(photograph.reshape(-1), device)
    bell = hal.Buffer.from_numpy(example.weights().astype("f4"), device)
    plain, lines, blurred, found = (hal.empty(count, hal.float32, device) for _ in range(4))
    grey, blur, sobel = map(device.compile, example.KERNELS)

    def run() -> None:
        grey(plain, rgb, vals=(count,), threads=count)
        blur(lines, plain, bell, vals=(width, height, 1, 0), threads=whole)
        blur(blurred, lines, bell, vals=(width, height, 0, 1), threads=whole)
        sobel(found, blurred, vals=(width, height), threads=whole, wait=True)

    return call(run)


def _scipy_edges(ndimage: Any, photograph: Any, weights: Any) -> Task:
    shades = (np.array([0.299, 0.587, 0.114]) / 255).astype("f4")

    def run() -> None:
        blurred = photograph @ shades
        for axis in (1, 0):
            blurred = ndimage.correlate1d(blurred, weights, axis=axis, mode="nearest")
        across, down = (ndimage.sobel(blurred, axis=axis, mode="nearest") for axis in (1, 0))
        np.sqrt(across * across + down * down)

    return call(run)


@contextmanager
def one_thread() -> Iterator[hal.Compiled]:
    """Open the CPU with one thread; it reads their number when it makes them."""
    hal.Device["CPU"].close()
    os.environ["HAL_CPU_THREADS"] = "1"
    try:
        yield hal.Device["CPU"]
    finally:
        del os.environ["HAL_CPU_THREADS"]
        hal.Device["CPU"].close()


def _long(effort: Effort) -> Effort:
    """Return fewer and longer rounds."""
    return Effort(max(5, effort.rounds // 4), 5 * effort.seconds)
