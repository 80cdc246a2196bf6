"""Samples that together use every statement of the language, shared memory and atomics.

Sums are of whole numbers, so neither the order of threads nor contraction changes a result.
"""

# A type checker does not know the types of values in a kernel.
# mypy: disable-error-code="assignment, arg-type"

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

import hal_core as hal
from hal_kernel.lang.function import KernelFunction
from hal_testing.conformance.edges import Array, Tolerance


class Sample(NamedTuple):
    """A kernel and its arguments; `ulps`: array -> the units by which its elements may differ."""

    kernel: KernelFunction
    arrays: list[Array]
    vals: tuple[Any, ...]
    launch: dict[str, Any]
    ulps: Mapping[int, Tolerance] = {}
    needs: str = ""  # a capability


SAMPLES: dict[str, Callable[[np.random.Generator], Sample]] = {}


def sample(name: str) -> Sample:
    # Seeded by the name: the same data at each run, whichever other tests run.
    return SAMPLES[name](np.random.default_rng(zlib.crc32(name.encode())))


def _collect(make: Callable[[np.random.Generator], Sample]) -> None:
    """Add a sample to SAMPLES under the name of its kernel."""
    SAMPLES[make.__name__.strip("_")] = make


def _zeros(count: int) -> Array:
    return np.zeros(count, np.int32)


# -- shared memory and barriers


@hal.kernel(block=(64, 1, 1))
def prefix_sums(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32) -> None:
    """Compute prefix sums of each block; values of a thread live across barriers."""
    sums = hal.shared(hal.int32, 64)
    i = hal.global_idx(0)
    t = hal.thread_idx(0)
    own = x[i] if i < n else 0
    total = own
    sums[t] = total
    hal.barrier()
    reach = 1
    while reach < 64:
        before = sums[t - reach] if t >= reach else 0
        hal.barrier()  # all have read before one of them writes
        total += before
        sums[t] = total
        hal.barrier()
        reach *= 2
    if i < n:
        y[i] = (total - own) * 3 + sums[63]


@_collect
def _prefix_sums(random: np.random.Generator) -> Sample:
    x = random.integers(-1000, 1000, 333, np.int32)
    return Sample(prefix_sums, [_zeros(333), x], (333,), {"threads": 333})


@hal.kernel(block=(8, 4, 1))
def products(
    c: hal.Ptr[hal.float32], a: hal.ConstPtr[hal.float32], b: hal.ConstPtr[hal.float32],
    rows: hal.int32, inner: hal.int32, columns: hal.int32,
) -> None:  # fmt: skip
    """Multiply matrices by tiles that do not divide them."""
    left = hal.shared(hal.float32, (4, 9))
    right = hal.shared(hal.float32, (9, 8))
    tx = hal.thread_idx(0)
    ty = hal.thread_idx(1)
    x = hal.global_idx(0)
    y = hal.global_idx(1)
    total = 0.0
    for start in range(0, inner, 9):
        k = tx
        while k < 9:
            left[ty, k] = a[y * inner + start + k] if y < rows and start + k < inner else 0.0
            k += 8
        k = ty
        while k < 9:
            right[k, tx] = (
                b[(start + k) * columns + x] if x < columns and start + k < inner else 0.0
            )
            k += 4
        hal.barrier()
        for k2 in hal.unroll(9):
            total += left[ty, k2] * right[k2, tx]
        hal.barrier()
    if x < columns and y < rows:
        c[y * columns + x] = total


@_collect
def _products(random: np.random.Generator) -> Sample:
    rows, inner, columns = 13, 23, 19
    a = random.integers(-9, 9, rows * inner).astype(np.float32)
    b = random.integers(-9, 9, inner * columns).astype(np.float32)
    c = np.zeros(rows * columns, np.float32)
    return Sample(products, [c, a, b], (rows, inner, columns), {"threads": (columns, rows)})


@hal.kernel(block=(4, 3, 2))
def settle(
    y: hal.Ptr[hal.int64], x: hal.ConstPtr[hal.int16], turns: hal.ConstPtr[hal.uint8]
) -> None:
    """Use barriers in a loop whose end is read from memory, in three dimensions."""
    cells = hal.shared(hal.int64, (2, 3, 4))
    a = hal.thread_idx(0)
    b = hal.thread_idx(1)
    c = hal.thread_idx(2)
    block = hal.block_idx(0) + hal.grid_dim(0) * (hal.block_idx(1) + 2 * hal.block_idx(2))
    place = 24 * block + a + 4 * (b + 3 * c)
    cells[c, b, a] = hal.int64(x[place])
    for turn in range(hal.int32(turns[block])):
        hal.barrier()
        beside = cells[c, b, (a + 1) % 4] - cells[(c + turn) % 2, (b + 2) % 3, a]
        hal.barrier()
        if beside % 2 == 0:
            cells[c, b, a] += beside
        if turns[block] > 3:
            hal.barrier()
            cells[c, b, a] += hal.int64(turn)
    y[place] = cells[c, b, a]


@_collect
def _settle(random: np.random.Generator) -> Sample:
    x = random.integers(-(2**15), 2**15, 24 * 12, np.int16)
    turns = np.array([0, 1, 2, 3, 4, 5, 6, 7, 1, 5, 0, 2], np.uint8)
    y = np.zeros(24 * 12, np.int64)
    return Sample(settle, [y, x, turns], (), {"grid": (3, 2, 2), "block": (4, 3, 2)})


# -- atomics


@hal.kernel
def histogram(bins: hal.Ptr[hal.uint32], x: hal.ConstPtr[hal.uint8], n: hal.int32) -> None:
    """Count in shared memory, then add up the counts of all blocks by atomics."""
    counts = hal.shared(hal.uint32, 256)
    t = hal.thread_idx(0)
    size = hal.block_dim(0)
    k = t
    while k < 256:
        counts[k] = 0
        k += size
    hal.barrier()
    i = hal.global_idx(0)
    if i < n:
        hal.atomic_add(counts, hal.int32(x[i]), 1)
    hal.barrier()
    k = t
    while k < 256:
        if counts[k] > 0:
            hal.atomic_add(bins, k, counts[k])
        k += size


@_collect
def _histogram(random: np.random.Generator) -> Sample:
    x = (random.random(3000) ** 3 * 256).astype(np.uint8)
    return Sample(histogram, [np.zeros(256, np.uint32), x], (3000,), {"threads": 3000, "block": 32})


@hal.kernel
def extremes(
    s: hal.Ptr[hal.int32], u: hal.Ptr[hal.uint32], f: hal.Ptr[hal.float32],
    bits: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32,
) -> None:  # fmt: skip
    """Apply every atomic operation of 32 bits; all threads use the same elements."""
    i = hal.global_idx(0)
    if i >= n:
        return
    v = x[i]
    hal.atomic_add(s, 0, v)
    hal.atomic_min(s, 1, v)
    hal.atomic_max(s, 2, v)
    hal.atomic_add(u, 0, hal.uint32(v))
    hal.atomic_min(u, 1, hal.uint32(v))
    hal.atomic_max(u, 2, hal.uint32(v))
    hal.atomic_and(u, 4, hal.uint32(v) | 4)
    hal.atomic_or(u, 5, hal.uint32(v) & 1)
    hal.atomic_xor(u, 6, hal.uint32(v))
    hal.atomic_and(s, 4, v | -(1 << 31))
    hal.atomic_or(s, 5, v & 6)
    hal.atomic_xor(s, 6, v)
    hal.atomic_add(f, 0, hal.float32(v % 8))
    # Each thread stores the same value, as any of them may be the last.
    hal.atomic_exchange(f, 1, hal.float32(n))
    hal.atomic_exchange(s, 3, n)
    # One thread turns 0 into 17. If any sees another value, the sum in u[0] shows it.
    old = hal.atomic_compare_exchange(u, 3, 0, 17)
    if old != 0 and old != 17:
        hal.atomic_add(u, 0, 1)
    # The largest float, kept by compare-and-exchange of its bits until no thread has a larger one.
    seen = hal.atomic_load(bits, 0)
    mine = hal.float32(abs(v % 1000))
    while hal.bitcast(hal.float32, seen) < mine:
        found = hal.atomic_compare_exchange(bits, 0, seen, hal.bitcast(hal.int32, mine))
        if found == seen:
            break
        seen = found


@_collect
def _extremes(random: np.random.Generator) -> Sample:
    x = random.integers(-(2**31), 2**31, 1000, np.int32)
    signed = np.array([0, 0, 0, 0, -1, 0, 0], np.int32)
    unsigned = np.array([0, 2**32 - 1, 0, 0, 2**32 - 1, 0, 0], np.uint32)
    arrays = [signed, unsigned, np.zeros(2, "f4"), _zeros(1), x]
    return Sample(extremes, arrays, (1000,), {"threads": 1000, "block": 48})


@hal.kernel
def wide_extremes(
    s: hal.Ptr[hal.int64], u: hal.Ptr[hal.uint64], x: hal.ConstPtr[hal.int64], n: hal.int32
) -> None:
    i = hal.global_idx(0)
    if i < n:
        hal.atomic_add(s, 0, x[i])
        hal.atomic_min(s, 1, x[i])
        hal.atomic_max(s, 2, x[i])
        hal.atomic_exchange(s, 3, hal.int64(n))
        hal.atomic_add(u, 0, hal.uint64(x[i]))
        hal.atomic_min(u, 1, hal.uint64(x[i]))
        hal.atomic_max(u, 2, hal.uint64(x[i]))
        hal.atomic_compare_exchange(u, 3, 0, 1 << 40)


@_collect
def _wide_extremes(random: np.random.Generator) -> Sample:
    x = random.integers(-(2**63), 2**63, 700, np.int64)
    arrays = [np.zeros(4, np.int64), np.array([0, 2**64 - 1, 0, 0], np.uint64), x]
    launch = {"threads": 700, "block": 64}
    return Sample(wide_extremes, arrays, (700,), launch, needs="int64_atomics")


@hal.kernel(block=(32, 1, 1))
def flags(
    seen: hal.Ptr[hal.int32], raised: hal.Ptr[hal.uint32], f: hal.Ptr[hal.float32],
    data: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32,
) -> None:  # fmt: skip
    """Load and store atomically in each order; whoever sees a flag sees what it stands for."""
    own = hal.shared(hal.int32, 32)
    i, b, t = hal.global_idx(0), hal.block_idx(0), hal.thread_idx(0)
    hal.atomic_store(own, t, hal.atomic_load(x, i))
    hal.atomic_store(f, 0, hal.float32(n))  # all threads store the same number
    hal.barrier()
    seen[i] = hal.atomic_load(own, 31 - t)
    if t == 0:
        data[b] = b + 1
        hal.atomic_store(raised, b, 1, hal.release)
    for k in range(n):
        if hal.atomic_load(raised, k, hal.acquire) == 1 and data[k] != k + 1:
            seen[i] = -1  # any block may be ahead of any other, and none may be seen half done


@_collect
def _flags(random: np.random.Generator) -> Sample:
    x = random.integers(-(2**31), 2**31, 5 * 32, np.int32)
    arrays = [_zeros(5 * 32), np.zeros(5, np.uint32), np.zeros(1, "f4"), _zeros(5), x]
    return Sample(flags, arrays, (5,), {"grid": 5})


@hal.kernel
def total_by_subgroups(s: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32) -> None:
    """Add up in subgroups, which gives the same whatever their size is."""
    i = hal.global_idx(0)
    v = x[i] if i < n else hal.int32(0)
    sum, last = hal.subgroup_sum(v), hal.subgroup_inclusive_sum(v)
    votes = hal.popcount(hal.ballot(v > 0))
    before = hal.shuffle(last, max(hal.subgroup_lane() - 1, 0))
    if hal.subgroup_lane() == 0:
        hal.atomic_add(s, 0, sum)
        hal.atomic_add(s, 1, hal.int32(votes))
    elif last != before + v:
        hal.atomic_add(s, 2, 1)


@_collect
def _total_by_subgroups(random: np.random.Generator) -> Sample:
    x = random.integers(-1000, 1000, 700, np.int32)
    launch = {"threads": 700, "block": 96}
    return Sample(total_by_subgroups, [np.zeros(3, np.int32), x], (700,), launch, needs="subgroups")


# -- control


@hal.kernel
def wander(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32) -> None:
    """Nest loops and leave them by break, continue and return, differently in each thread."""
    i = hal.global_idx(0)
    if i >= n:
        return
    total = hal.int32(0)
    for a in range(x[i] % 7, x[n - 1 - i] % 11, 2):
        if a == 4:
            continue
        elif a > 8:  # noqa: RET507  # both ways are in the language
            break
        for b in range(a + 5, -3, -2):
            if b == i % 5:
                continue
            k = 0
            while True:
                k += 1
                if k * k > b + i % 17:
                    break
                if k == 9:
                    y[i] = -total
                    return
            total = total * 3 + k
    for a in range(3, 3):
        total = a
    y[i] = total if 0 <= total < 100000 or x[i] < 0 else total % 1000 - i


@_collect
def _wander(random: np.random.Generator) -> Sample:
    x = random.integers(-(2**31), 2**31, 500, np.int32)
    return Sample(wander, [_zeros(500), x], (500,), {"threads": 500, "block": 64})


@hal.kernel
def guarded(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32) -> None:
    """Skip operands as Python would: `and`, `or` and `if else` guard indices beyond the memory."""
    i = hal.global_idx(0)
    # Beyond the array for every i but 8: a device that reads x[far] anyway may fault.
    far = (i - 8) * 100_000_000
    if i < n and (i < 8 or x[i - 8] > 0) and not (far > 0 and i < 8 and x[far] == 0):
        y[i] = x[i] if i % 3 != 0 or x[i] < 0 else (x[i - 1] if i > 0 else 7)


@_collect
def _guarded(random: np.random.Generator) -> Sample:
    x = random.integers(-5, 5, 37, np.int32)
    return Sample(guarded, [_zeros(37), x], (37,), {"threads": 64, "block": 64})


# -- functions


@hal.func
def clamp(x: hal.float32, low: hal.float32, high: hal.float32) -> hal.float32:
    if x < low:
        x = low
    return min(x, high)


@hal.func
def change(p: hal.Ptr[hal.float32], i: hal.int32, how, times) -> None:  # type: ignore[no-untyped-def]
    for _ in range(times):
        p[i] = how(p[i] * 2.0, -50, 99)


@hal.kernel(block=(16, 1, 1))
def applied(y: hal.Ptr[hal.float32], n: hal.int32) -> None:
    """Pass a function to a function, with device memory and with shared memory."""
    own = hal.shared(hal.float32, 16)
    i = hal.global_idx(0)
    t = hal.thread_idx(0)
    own[t] = hal.float32(i - 20)
    change(own, t, clamp, 1 + t % 3)
    if i < n:
        change(y, i, clamp, 2)
        y[i] += clamp(own[t], -40, 40)


@_collect
def _applied(random: np.random.Generator) -> Sample:
    y = random.integers(-30, 30, 50).astype(np.float32)
    return Sample(applied, [y], (50,), {"threads": 50})


# -- reads under a condition, and memory seen as other dtypes


@hal.kernel
def gated(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32) -> None:
    """Add neighbours; those beyond the ends count as -1 and as the number itself."""
    i = hal.global_idx(0)
    if i < n:
        y[i] = hal.load_if(i > 0, x, i - 1, -1) + hal.load_if(i + 1 < n, x, i + 1, x[i])


@_collect
def _gated(random: np.random.Generator) -> Sample:
    x = random.integers(-99, 99, 77).astype(np.int32)
    return Sample(gated, [_zeros(77), x], (77,), {"threads": 77})


@hal.kernel(block=(16, 1, 1))
def views(
    y: hal.Ptr[hal.any_], x: hal.ConstPtr[hal.uint32], h: hal.Ptr[hal.float16], n: hal.int32
) -> None:
    """See device and shared memory as other dtypes, atomics included, and float16 as bits."""
    tile = hal.shared(hal.uint8, 64)
    i = hal.global_idx(0)
    t = hal.thread_idx(0)
    hal.bitcast(hal.uint32, tile)[t] = hal.load_if(i < n, x, i, 7)
    hal.barrier()
    if i < n:
        upper = hal.int64(hal.bitcast(hal.int16, x)[2 * i + 1])
        hal.bitcast(hal.int64, y)[i] = upper * 256 + hal.int64(tile[4 * t + 1])
        hal.atomic_add(hal.bitcast(hal.uint32, y), 2 * n, 1)
        h[i] = hal.bitcast(hal.float16, hal.bitcast(hal.uint16, h[i]) ^ 0x8000)


@_collect
def _views(random: np.random.Generator) -> Sample:
    x = random.integers(0, 1 << 32, 40, np.uint32)
    h = random.standard_normal(40).astype(np.float16)
    return Sample(views, [np.zeros(41 * 8, np.uint8), x, h], (40,), {"threads": 40})
