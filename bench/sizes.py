"""Sizes of arrays: as large as the device handles in a short time, at most what fills a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

import hal_core as hal
from bench.kernels import Array, Input, saxpy

TILE = 16


@hal.kernel(block=(TILE, TILE, 1))
def matmul(c: Array, a: Input, b: Input, n: hal.int32):
    left = hal.shared(hal.float32, (TILE, TILE))
    right = hal.shared(hal.float32, (TILE, TILE))
    x = hal.thread_idx(0)
    y = hal.thread_idx(1)
    column = hal.global_idx(0)
    row = hal.global_idx(1)
    total = hal.float32(0)
    for tile in range(n // TILE):
        left[y, x] = a[row * n + tile * TILE + x]
        right[y, x] = b[(tile * TILE + y) * n + column]
        hal.barrier()
        for k in range(TILE):
            total += left[y, k] * right[k, x]
        hal.barrier()
    c[row * n + column] = total


MIB = 1 << 20
FULL = 256 * MIB  # bytes of one array: more than any cache holds
LARGEST_MATRIX = 4096
MATRICES = 3  # how many sizes, each twice the one before
QUICK_SECONDS, SECONDS = 0.01, 0.25  # limits of one launch
QUICK_COPY = 4 * MIB


class Sizes(NamedTuple):
    """The chosen sizes. Units: bytes of an array or copy; rows of a square matrix."""

    array: int
    copies: tuple[int, ...]
    matrices: tuple[int, ...]

    @property
    def note(self) -> str:
        """A note of the sizes that were reduced; empty if none was."""
        wanted = readable(FULL), readable(FULL), str(LARGEST_MATRIX)
        given = readable(self.array), readable(self.copies[-1]), str(self.matrices[-1])
        what = ("arrays", "copies", "matrices")
        smaller = [
            f"{name} up to {less} in the place of {full}"
            for name, less, full in zip(what, given, wanted, strict=True)
            if less != full
        ]
        return f"Sizes were made smaller: {', '.join(smaller)}." if smaller else ""


def readable(nbytes: int) -> str:
    return f"{nbytes // MIB} MiB" if nbytes >= MIB else f"{nbytes // 1024} KiB"


def choose(device: hal.Compiled, quick: bool) -> Sizes:
    seconds = QUICK_SECONDS if quick else SECONDS
    room = device.info.memory_nbytes // 8
    arrays = (4096 << step for step in range(0, 17, 2))
    array = _largest((n for n in arrays if n <= room), 4, seconds, lambda n: _array(device, n))
    tiled = (TILE << step for step in range(9))
    matrix = _largest(tiled, 8, seconds, lambda size: multiplication(device, size)[0])
    copy = min(QUICK_COPY if quick else FULL, room)
    copies = sorted({4096, min(MIB, copy), copy})
    matrices = (matrix >> step for step in reversed(range(MATRICES)))
    return Sizes(array, tuple(copies), tuple(size for size in matrices if size >= TILE))


def _largest(
    sizes: Iterator[int], growth: int, seconds: float, make: Callable[[int], Callable[[], object]]
) -> int:
    """Return the last size that should take at most `seconds`, judged by the size before it."""
    size = next(sizes)
    while (larger := next(sizes, 0)) and growth * _spent(make(size)) <= seconds:
        size = larger
    return size


def _spent(run: Callable[[], object]) -> float:
    run()  # a first run, which compiles, loads and allocates
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _array(device: hal.Compiled, nbytes: int) -> Callable[[], object]:
    y, x = (hal.empty(nbytes // 4, hal.float32, device).fill(1) for _ in "yx")
    program, n = device.compile(saxpy), nbytes // 4
    return lambda: program(y, x, vals=(1.0, n), threads=n, wait=True)


def multiplication(
    device: hal.Compiled, size: int
) -> tuple[Callable[[], object], Callable[[], bool]]:
    """Return our tiled product of two square matrices, and a check of a few of its rows."""
    random = np.random.default_rng(0)
    a, b = (random.random((size, size), dtype=np.float32) for _ in "ab")
    left, right = (hal.Buffer.from_numpy(matrix.reshape(-1), device) for matrix in (a, b))
    c, program = hal.empty(size * size, hal.float32, device), device.compile(matmul)

    def right_rows() -> bool:
        rows = random.integers(0, size, 4)
        return bool(np.allclose(c.numpy((size, size))[rows], a[rows] @ b, rtol=1e-3))

    return (
        lambda: program(c, left, right, vals=(size,), threads=(size, size), wait=True),
        right_rows,
    )
