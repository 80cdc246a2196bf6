"""Kernels whose guards are spelt in several ways, and a stencil beside numba's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import hal_core as hal
from bench.measure import OURS, SETTLED, Effort, Task, call, compare
from bench.peers import Peers
from bench.report import Missing, Row, beside

COUNT = 32 << 10  # elements: y and x lie in the cache, and one thread runs them
WIDTH, HEIGHT = 1024, 32  # the same number of elements
ALPHA = 0.1
Array = hal.Ptr[hal.float32]
Input = hal.ConstPtr[hal.float32]


@hal.kernel
def below(y: Array, x: Input, a: hal.float32, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = a * x[i] + y[i]


@hal.kernel
def by_range(y: Array, x: Input, a: hal.float32, n: hal.int32):
    for i in range(hal.global_idx(0), n, hal.grid_dim(0) * hal.block_dim(0)):
        y[i] = a * x[i] + y[i]


@hal.kernel
def column_sums(y: Array, x: Input, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    if i < w:
        total = hal.float32(0)
        for j in range(h):
            total += x[j * w + i]
        y[i] = total


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
def heat(y: Array, x: Input, a: hal.float32, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if 0 < i < w - 1 and 0 < j < h - 1:
        c = j * w + i
        y[c] = x[c] + a * (x[c - 1] + x[c + 1] + x[c - w] + x[c + w] - 4.0 * x[c])


def rows(effort: Effort) -> Iterator[Row | Missing]:
    for width, height in ((768, 512), (4096, 2048)):
        long = effort._replace(rounds=effort.rounds // 3, seconds=5 * effort.seconds)
        yield from stencil(width, height, long)


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
