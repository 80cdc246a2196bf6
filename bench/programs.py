"""Programs of several kinds beside the same loops compiled by numba, on all cores.

Numba has `fastmath`, as its users write it. So it may sum in any order and approximate a division,
while kernels keep their order and may only join a multiply with an add. In N-body that is
another computation: the estimate of `1 / sqrt(x)` is a quarter of the time. So its twin sums in any
order, and rounds roots and quotients as the kernel does; numba with estimates stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

import hal_core as hal
from bench.kernels import Array, Input
from bench.measure import OURS, SETTLED, Effort, Task, call, compare
from bench.peers import Peers
from bench.report import Missing, Row, beside

with suppress(ModuleNotFoundError):  # the twins are then not called
    import numba

BODIES, TILE, SOFTENING = 4096, 256, 1e-3
WIDTH, HEIGHT = 1024, 512  # of images
ROWS, IN_ROW = 1 << 15, 16  # of a sparse matrix
Numbers = Any  # a numpy array


class Example(NamedTuple):
    """A program, as a kernel and as a function for numba; both write the first array."""

    what: str
    kernel: hal.KernelFunction
    twin: Callable[..., None]
    arrays: tuple[Numbers, ...]
    vals: tuple[Any, ...]
    threads: int | tuple[int, int]
    exact: bool = False  # numba too rounds roots and quotients


def rows(effort: Effort) -> Iterator[Row | Missing]:
    filters = [filtering(radius) for radius in (1, 2, 3)]
    plates = heat_of(768, 512), heat_of(4096, 2048)
    for example in (*plates, n_body(), *filters, sparse()):
        yield beside_numba(example, effort)


def beside_numba(example: Example, effort: Effort) -> Row | Missing:
    what = f"{example.what}, beside numba's"
    results: dict[str, Numbers] = {}
    peers = Peers(numba=lambda: _numba(example, results))
    if example.exact:
        loose = example._replace(exact=False)
        peers.tasks |= Peers(numba_with_estimates=lambda: _numba(loose, {})).tasks
    if "numba" not in peers.tasks:
        return Missing(what, peers.reasons["numba"])
    ours = on("CPU", example, results)
    if not np.allclose(results["CPU"], results["numba"], rtol=1e-3, atol=1e-4):
        raise ValueError(f"{example.what}: the results differ")
    long = Effort(max(5, effort.rounds // 4), 5 * effort.seconds)
    times = compare({OURS: ours} | peers.tasks, long, SETTLED)
    others = {name: times.typical(name) for name in peers.tasks if name != "numba"}
    return beside(what, times, "numba", 1.0, peers=others)


def on(name: str, example: Example, results: dict[str, Numbers]) -> Task:
    """Make a task that launches the kernel and waits; its result goes into `results`.

    A device's name, or "numba" for the twin.
    """
    if name == "numba":
        return _numba(example, results)
    device = hal.Device[name]
    buffers = [hal.Buffer.from_numpy(array.reshape(-1), device) for array in example.arrays]
    program, vals, threads = device.compile(example.kernel), example.vals, example.threads
    program(*buffers, vals=vals, threads=threads, wait=True)
    results[name] = buffers[0].numpy(example.arrays[0].shape)

    def run() -> None:
        program(*buffers, vals=vals, threads=threads)
        device.synchronize()

    return call(run)


def _numba(example: Example, results: dict[str, Numbers]) -> Task:
    import numba

    arrays = [array.copy() for array in example.arrays]
    fastmath = {"contract", "reassoc", "nsz"} if example.exact else True
    compiled = numba.njit(parallel=True, fastmath=fastmath)(example.twin)
    vals = [np.float32(value) if isinstance(value, float) else value for value in example.vals]
    compiled(*arrays, *vals)
    results["numba"] = arrays[0]
    return call(lambda: compiled(*arrays, *vals))


def _random(*shape: int, seed: int = 0) -> Numbers:
    return np.random.default_rng(seed).random(shape, dtype=np.float32)


# -- N-body: the acceleration of each body


@hal.kernel(block=(TILE, 1, 1))
def accelerate(a: Array, p: Input, n: hal.int32, soft: hal.float32):
    """Read x, y, z and the mass of all bodies, one after the other, in tiles."""
    near = hal.shared(hal.float32, (4, TILE))
    i = hal.global_idx(0)
    t = hal.thread_idx(0)
    x = p[i]
    y = p[n + i]
    z = p[2 * n + i]
    ax = hal.float32(0)
    ay = hal.float32(0)
    az = hal.float32(0)
    for first in range(0, n, TILE):
        for c in hal.unroll(4):
            near[c, t] = p[c * n + first + t]
        hal.barrier()
        for k in range(TILE):
            dx = near[0, k] - x
            dy = near[1, k] - y
            dz = near[2, k] - z
            inverse = hal.rsqrt(dx * dx + dy * dy + dz * dz + soft)
            pull = near[3, k] * inverse * inverse * inverse
            ax += dx * pull
            ay += dy * pull
            az += dz * pull
        hal.barrier()
    a[i] = ax
    a[n + i] = ay
    a[2 * n + i] = az


def n_body() -> Example:
    def twin(a, p, n, soft):
        for i in numba.prange(n):
            x, y, z = p[0, i], p[1, i], p[2, i]
            ax = ay = az = np.float32(0)
            for k in range(n):
                dx, dy, dz = p[0, k] - x, p[1, k] - y, p[2, k] - z
                inverse = np.float32(1) / np.sqrt(dx * dx + dy * dy + dz * dz + soft)
                pull = p[3, k] * inverse * inverse * inverse
                ax += dx * pull
                ay += dy * pull
                az += dz * pull
            a[0, i], a[1, i], a[2, i] = ax, ay, az

    arrays = np.zeros((3, BODIES), "f4"), _random(4, BODIES)
    what = f"N-body, {BODIES} bodies"
    return Example(what, accelerate, twin, arrays, (BODIES, SOFTENING), BODIES, exact=True)


# -- the heat equation


@hal.kernel
def heat(y: Array, x: Input, a: hal.float32, w: hal.int32, h: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if 0 < i < w - 1 and 0 < j < h - 1:
        c = j * w + i
        y[c] = x[c] + a * (x[c - 1] + x[c + 1] + x[c - w] + x[c + w] - 4.0 * x[c])


def heat_of(width: int, height: int) -> Example:
    """Make one step of a plate of this size."""

    def twin(y, x, a, w, h):
        for j in numba.prange(1, h - 1):
            for i in range(1, w - 1):
                around = x[j, i - 1] + x[j, i + 1] + x[j - 1, i] + x[j + 1, i]
                y[j, i] = x[j, i] + a * (around - np.float32(4) * x[j, i])

    y, x = np.ones((2, height, width), "f4")
    what, size = f"heat equation, {width} x {height}", (width, height)
    return Example(what, heat, twin, (y, x), (0.1, *size), size)


# -- images


def filtering(radius: int) -> Example:
    size = 2 * radius + 1

    @hal.kernel
    def weigh(y: Array, x: Input, weights: Input, w: hal.int32, h: hal.int32):
        i = hal.global_idx(0)
        j = hal.global_idx(1)
        if radius <= i < w - radius and radius <= j < h - radius:
            total = hal.float32(0)
            for dj in range(size):
                for di in range(size):
                    total += weights[dj * size + di] * x[(j + dj - radius) * w + i + di - radius]
            y[j * w + i] = total

    def twin(y, x, weights, w, h):
        for j in numba.prange(radius, h - radius):
            for i in range(radius, w - radius):
                total = np.float32(0)
                for dj in range(size):
                    for di in range(size):
                        total += weights[dj, di] * x[j + dj - radius, i + di - radius]
                y[j, i] = total

    arrays = np.zeros((HEIGHT, WIDTH), "f4"), _random(HEIGHT, WIDTH), _random(size, size, seed=1)
    what = f"{size} x {size} filter, {WIDTH} x {HEIGHT}"
    return Example(what, weigh, twin, arrays, (WIDTH, HEIGHT), (WIDTH, HEIGHT))


# -- a sparse matrix


@hal.kernel
def sparse_rows(
    y: Array,
    x: Input,
    values: Input,
    columns: hal.ConstPtr[hal.int32],
    starts: hal.ConstPtr[hal.int32],
    n: hal.int32,
):
    i = hal.global_idx(0)
    if i < n:
        total = hal.float32(0)
        for k in range(starts[i], starts[i + 1]):
            total += values[k] * x[columns[k]]
        y[i] = total


def sparse() -> Example:
    def twin(y, x, values, columns, starts, n):
        for i in numba.prange(n):
            total = np.float32(0)
            for k in range(starts[i], starts[i + 1]):
                total += values[k] * x[columns[k]]
            y[i] = total

    random = np.random.default_rng(0)
    lengths = random.integers(IN_ROW // 2, 3 * IN_ROW // 2 + 1, ROWS)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype("i4")
    columns = random.integers(0, ROWS, starts[-1]).astype("i4")
    arrays = np.zeros(ROWS, "f4"), _random(ROWS), _random(len(columns)), columns, starts
    what = f"CSR product, {ROWS} rows of about {IN_ROW}"
    return Example(what, sparse_rows, twin, arrays, (ROWS,), ROWS)
