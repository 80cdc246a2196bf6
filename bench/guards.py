"""Spellings of a guard and clamps on the CPU that cost the same, and a stencil."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import hal_core as hal
from bench.measure import OURS, SETTLED, Effort, Task, call, compare
from bench.peers import Peers
from bench.report import Missing, Row, beside

COUNT = 32 << 10  # elements: y and x lie in the cache, and one thread runs them
WIDTH, HEIGHT = 1024, 32  # the same number of elements
FACTOR = 1e-9
ALPHA = 0.1
Array = hal.Ptr[hal.float32]
Input = hal.ConstPtr[hal.float32]


@hal.kernel
def below(y: Array, x: Input, a: hal.float32, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = a * x[i] + y[i]


@hal.kernel
def early_return(y: Array, x: Input, a: hal.float32, n: hal.int32):
    i = hal.global_idx(0)
    if i >= n:
        return
    y[i] = a * x[i] + y[i]


@hal.kernel
def chained(y: Array, x: Input, a: hal.float32, n: hal.int32):
    i = hal.global_idx(0)
    if 0 < i < n - 1:
        y[i] = a * x[i] + y[i]


@hal.kernel
def negated(y: Array, x: Input, a: hal.float32, n: hal.int32):
    i = hal.global_idx(0)
    if not (i < 1 or i > n - 2):
        y[i] = a * x[i] + y[i]


@hal.kernel
def by_vectors(y: Array, x: Input, a: hal.float32, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        p, q, r, s = hal.load(x, 4 * i, 4)
        t, u, v, w = hal.load(y, 4 * i, 4)
        hal.store(y, 4 * i, a * p + t, a * q + u, a * r + v, a * s + w)


@hal.kernel
def by_range(y: Array, x: Input, a: hal.float32, n: hal.int32):
    for i in range(hal.global_idx(0), n, hal.grid_dim(0) * hal.block_dim(0)):
        y[i] = a * x[i] + y[i]


@hal.kernel
def four_each(y: Array, x: Input, a: hal.float32, n: hal.int32):
    i = hal.global_idx(0)
    for k in range(4):
        if 4 * i + k < n:
            y[4 * i + k] = a * x[4 * i + k] + y[4 * i + k]


@hal.kernel
def column_sums(y: Array, x: Input, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    if i < w:
        total = hal.float32(0)
        for j in range(h):
            total += x[j * w + i]
        y[i] = total


SPELLINGS = {
    "if i >= n: return": early_return,
    "if 0 < i < n - 1": chained,
    "if not (i < 1 or i > n - 2)": negated,
}


@hal.kernel
def positive(y: Array, x: Input, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    if i < w * h and x[i] > 0.0:
        y[i] = x[i] + x[i]


@hal.kernel
def selected(y: Array, x: Input, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    if i < w * h:
        y[i] = x[i] + x[i] if x[i] > 0.0 else y[i]


@hal.kernel
def padded(y: Array, x: Input, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        total = hal.float32(0)
        for k in range(-3, 4):
            total += x[j * (w + 6) + i + 3 + k]
        y[j * w + i] = total


@hal.kernel
def clamped(y: Array, x: Input, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        total = hal.float32(0)
        for k in range(-3, 4):
            total += x[j * w + min(max(i + k, 0), w - 1)]  # type: ignore[operator]
        y[j * w + i] = total


@hal.kernel
def heat(y: Array, x: Input, a: hal.float32, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if 0 < i < w - 1 and 0 < j < h - 1:
        c = j * w + i
        y[c] = x[c] + a * (x[c - 1] + x[c + 1] + x[c - w] + x[c + w] - 4.0 * x[c])


def rows(effort: Effort) -> Iterator[Row | Missing]:
    base = "if i < n"
    tasks = {base: _ours(below, COUNT, (FACTOR, COUNT), COUNT)}
    for name, kernel in SPELLINGS.items():
        tasks[name] = _ours(kernel, COUNT, (FACTOR, COUNT), COUNT)
    tasks["hal.load of 4"] = _ours(by_vectors, COUNT, (FACTOR, COUNT // 4), COUNT // 4)
    tasks["4 a thread, if 4 * i + k < n"] = _ours(four_each, COUNT, (FACTOR, COUNT), COUNT // 4)
    times = compare(tasks, effort)
    for name in [*tasks][1:]:
        yield beside(f"saxpy of 32 Ki, {name}", times, base, 0.87, ours=name)
    yield _beside("store where x[i] > 0", positive, selected, "as a select", 0.87, effort)
    yield _beside("blur of 7, clamped index", clamped, padded, "padded image", 0.67, effort)
    for width, height in ((768, 512), (4096, 2048)):
        long = effort._replace(rounds=effort.rounds // 3, seconds=5 * effort.seconds)
        yield from stencil(width, height, long)


def _beside(
    what: str, kernel: hal.KernelFunction, other: hal.KernelFunction, name: str, target: float,
    effort: Effort,
) -> Row:  # fmt: skip
    size = (WIDTH + 6) * HEIGHT
    vals, threads = (WIDTH, HEIGHT), (WIDTH, HEIGHT)
    tasks = {k.name: _ours(k, size, vals, threads) for k in (kernel, other)}
    times = compare(tasks, effort)
    return beside(what, times, other.name, target, name=name, ours=kernel.name)


def stencil(width: int, height: int, effort: Effort) -> Iterator[Row | Missing]:
    """Measure a step of the heat equation beside numba's, on all cores."""
    what = f"heat equation, {width} x {height}, beside numba's"
    peers = Peers(numba=lambda: numba_heat(width, height))
    times = compare({OURS: our_heat(width, height)} | peers.tasks, effort, SETTLED)
    if "numba" not in peers.tasks:
        yield Missing(what, str(peers.results(times)["numba"]))
        return
    yield beside(what, times, "numba", 1.0)


def _ours(
    kernel: hal.KernelFunction, size: int, vals: tuple[object, ...], threads: int | tuple[int, int]
) -> Task:
    y, x = (hal.Buffer.from_numpy(np.ones(size, "f4"), device="CPU") for _ in "yx")
    names = {"program": hal.Device["CPU"].compile(kernel), "y": y, "x": x, "v": vals, "t": threads}
    return Task("program(y, x, vals=v, threads=t)", names)  # it returns when the work is done


def our_heat(width: int, height: int) -> Task:
    return _ours(heat, width * height, (ALPHA, width, height), (width, height))


def numba_heat(width: int, height: int) -> Task:
    import numba

    def step(y, x, a):
        for j in numba.prange(1, x.shape[0] - 1):
            for i in range(1, x.shape[1] - 1):
                around = x[j, i - 1] + x[j, i + 1] + x[j - 1, i] + x[j + 1, i]
                y[j, i] = x[j, i] + a * (around - np.float32(4) * x[j, i])

    compiled = numba.njit(parallel=True)(step)
    y, x = np.ones((2, height, width), np.float32)
    compiled(y, x, np.float32(ALPHA))
    return call(lambda: compiled(y, x, np.float32(ALPHA)))
