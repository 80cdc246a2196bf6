"""Loops that threads leave one by one give what each thread gives alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from builder import Builder
from toolchains import LLVM

import hal_core as hal
from hal_kernel.interpreter import interpret

# mypy: disable-error-code="no-untyped-def"
Floats = hal.Ptr[hal.float32]
Numbers = hal.Ptr[hal.int32]
Inputs = hal.ConstPtr[hal.int32]


@hal.kernel(contract=False)
def orbit(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        cr = hal.float32(x[i]) * 0.005 - 1.5
        zr = hal.float32(0)
        zi = hal.float32(0)
        k = 0
        while k < 300 and zr * zr + zi * zi < 4.0:
            zr, zi = zr * zr - zi * zi + cr, 2.0 * zr * zi + 0.05
            k += 1
        y[i] = k + hal.int32(100.0 * zr)


@hal.kernel
def rounds(y: Numbers, x: Inputs, n: hal.int32):
    """The number of iterations is what the thread loads; it may be negative."""
    i = hal.global_idx(0)
    if i >= n:
        return
    total = hal.float32(i)
    for k in range(x[i]):
        total = total * 0.5 + hal.float32(k)
    y[i] = hal.int32(total)


@hal.kernel
def down(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        left = x[i]
        for k in range(n, -n, -1):
            left -= k
            if left < 0:
                break
            left -= 1
        y[i] = left


@hal.kernel
def near_the_end(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        last = 0
        for k in range(2147483647 - 200, 2147483647):
            if k > 2147483400 + x[i]:
                break
            last = k ^ i
        for k in range(-2147483647 + 200, -2147483647 - 1, -1):
            if k < x[i] - 2147483500:
                break
            last += k & 3
        y[i] = last


@hal.kernel
def without_a_sign(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        state = hal.uint32(x[i])
        wide = hal.int64(0)
        for k in range(hal.int64(2**62), hal.int64(2**62) + hal.int64(n)):
            state = state * hal.uint32(1664525) + hal.uint32(77)
            wide += hal.int64(state) * k
            if state >> hal.uint32(27) == hal.uint32(3):
                break
        y[i] = hal.int32(state) ^ hal.int32(wide >> hal.int64(7))


@hal.kernel
def chained(y: Numbers, x: Inputs, n: hal.int32):
    """A thread that has left would load from where no memory is."""
    i = hal.global_idx(0)
    if i < n:
        j = i
        steps = 0
        while j >= 0:
            j = min(x[j], n - 1) if min(x[j], n - 1) > j else -2_000_000_000
            steps += 1
        y[i] = steps


@hal.kernel
def searched(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        low = 0
        high = n
        while low < high:
            middle = (low + high) // 2
            if middle * 3 < x[i]:
                low = middle + 1
            else:
                high = middle
        y[i] = low


@hal.kernel
def guarded_load(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        j = i
        while j < n and x[j] > 20:
            j += 1 if j + 1 < n else 1_900_000_000 - j
        y[i] = j - i


@hal.kernel
def several_ways_out(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        a = x[i]
        k = 0
        while True:
            a += 3
            if a % 2 == 0:
                a = a // 2
                if a < 9:
                    k += 1000
                    break
                k += 2
            else:
                if k > 40:
                    k += 5000
                    break
                if a > 500:
                    a -= 300
                    if a % 7 == 0:
                        break
                    k += 1
                k += 1
            k += 1
            if k > 150:
                break
            a += k & 1
        y[i] = a * 10000 + k


@hal.kernel
def rejected(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        state = hal.uint32(x[i])
        place = 0
        taken = 0
        while taken < 60:
            state = state * hal.uint32(1664525) + hal.uint32(1013904223)
            if state >> hal.uint32(30) == hal.uint32(3):
                continue
            taken += 1
            place += 1 if state >> hal.uint32(31) == hal.uint32(0) else -1
            if place > 6:
                break
        y[i] = place * 1000 + taken


@hal.kernel
def samples(y: Numbers, x: Inputs, n: hal.int32):
    """A loop inside of one that all threads share, with a variable that both change."""
    i = hal.global_idx(0)
    if i < n:
        total = hal.float32(0)
        value = hal.float32(x[i])
        for s in range(n & 31):
            value += hal.float32(s)
            while value > 1.0:
                value *= 0.75
                total += value
        y[i] = hal.int32(total * 16.0)


@hal.kernel
def twice(y: Numbers, x: Inputs, n: hal.int32):
    """Two such loops, stores ahead and behind, and a short loop inside."""
    i = hal.global_idx(0)
    if i < n:
        a = x[i]
        y[i] = a
        k = 0
        while a > 3:
            for d in range(3):
                a = a * 3 // 4 if a > d else a
                if a == 7:
                    break
            k += 1
        b = x[i] + k
        while b * b > 50:
            b = b * 7 // 8
            k += b & 1
        y[n + i] = k * 100 + a + b + y[i]


@hal.kernel
def some_threads(y: Numbers, x: Inputs, n: hal.int32):
    """The guard is a condition on data."""
    i = hal.global_idx(0)
    if i < n and x[i] % 3 != 0:
        a = x[i]
        while a > 10:
            a -= 1 + (a >> 3)
        y[i] = a


@hal.kernel(block=(64, 1, 1))
def between_barriers(y: Numbers, x: Inputs, n: hal.int32):
    tile = hal.shared(hal.int32, 64)
    t = hal.thread_idx(0)
    i = hal.global_idx(0)
    tile[t] = x[i] if i < n else 0
    hal.barrier()
    at = t
    count = 0
    while tile[at] > 20 and count < 100:
        at = (at + tile[at]) & 63
        count += 1
    hal.barrier()
    tile[t] = count
    hal.barrier()
    if i < n:
        y[i] = tile[63 - t] * 100 + at


@hal.kernel
def two_dimensions(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < n and j < 2:
        a = x[i] + j
        while a > 5:
            a = a * 5 // 7
        y[j * n + i] = a


@hal.kernel
def flat(y: Numbers, x: Inputs, n: hal.int32):
    k = hal.global_idx(0)
    if k < n:
        i = k % 37
        j = k // 37
        a = x[k] + i
        while a > j:
            a -= 1 + (a >> 2)
        y[k] = a * 64 + i


@hal.kernel
def in_a_branch(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        a = x[i]
        if a & 1 == 0:
            while a > 3:
                a -= 2
        y[i] = a


@hal.kernel
def in_both_branches(y: Numbers, x: Inputs, n: hal.int32):
    """Use behind a loop a value from ahead of it; one side has a branch of its own."""
    i = hal.global_idx(0)
    if i < n:
        a = x[i]
        b = a // (n + 1)
        if a & 3 != 0:
            c = x[x[i] % n] * 3
            d = a // (c + 1)
            while a > b:
                a -= 1 + (a >> 3) + (d & 1)
            y[i] = a + c
        else:
            if a > 40:
                y[i] = a
                while a > 6:
                    a = a * 5 // 7
            b += 2
        y[n + i] = a * 1000 + b


@hal.kernel
def behind_a_return(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i >= n:
        return
    if x[i] <= 0:
        y[i] = -1
        return
    a = hal.float32(x[i])
    k = 0
    while a > 2.0:
        a = a * 0.75
        if x[i] == 77:
            k -= 100
            break
        k += 1
    if k > 20:
        return
    while a < 900.0:
        a = a * 1.5
        k += 1
    y[i] = k * 100 + hal.int32(a)


@hal.kernel
def loads_that_a_branch_guards(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        at = x[i] * 2_000_000 if x[i] % 5 != 0 else i
        for s in range(n & 3):
            if 0 <= at < n:
                while x[at] > s:
                    at = at // 2
                    if at < 3:
                        break
                y[i] = at + s
            elif n > 20:
                while at > 20:
                    at = at // 3


@hal.kernel
def returns(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        a = x[i]
        while a > 3:
            a -= 2
            if a & 32 != 0:
                return
        y[i] = a


@hal.kernel
def found_by_return(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        for k in range(n):
            if x[k] * 3 == x[i] + k:
                y[n + i] = x[k]
                y[i] = k
                return
            if k - 40 > i:
                return
        y[i] = -1


@hal.kernel
def stores_ahead_of_break(y: Numbers, x: Inputs, n: hal.int32):
    """Two ways out that store, in a loop that all threads share and an if on data."""
    i = hal.global_idx(0)
    if i < n:
        y[i] = -1
        total = 0
        for s in range(n & 3):
            if x[i] & 1 == 0:
                a = x[i] + s
                k = 0
                while a > 3:
                    b = a * 3
                    a -= 1 + (a >> 2)
                    if b % 7 == s:
                        y[i] = b + k
                        total += y[i] & 7
                        break
                    k += 1
                    if k > 8:
                        y[n + i] = k * 10 + s
                        break
                total += a
        y[i] = y[i] * 100 + total


@hal.kernel
def stores_and_goes_on(y: Numbers, x: Inputs, n: hal.int32):
    """The variable that is set ahead of the break is read in the loop, in another it is not."""
    i = hal.global_idx(0)
    if i < n:
        a = x[i]
        last = 0
        for k in range(90):
            if a < 10 + k:
                last = k + a
                break
            a -= 1 + last
        kept = 0
        while last < 400:
            if last % 11 == 3:
                kept = last
                last = 500
                break
            last += 1
        y[i] = last * 1000 + kept + a


@hal.kernel
def divides(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        a = x[i]
        b = i + 1
        while b != 0:
            a, b = b, a % b
        y[i] = a


@hal.kernel
def divides_in_branches(y: Numbers, x: Inputs, n: hal.int32):
    """Divisors of zero, in threads that divide and in those that do not."""
    i = hal.global_idx(0)
    if i < n:
        a = x[i] * 7_000_001 + 3
        b = (i & 7) - 3
        k = 0
        while a > 2 or a < -2:
            if b != 0:
                a = a // (b + 5) + a % b
                k += b & 1
            else:
                a = a // 2 + a % b - a // b - a // -3
            k += 1
            if k > 40:
                break
            b = k % (b + 4) - 2
        y[i] = a * 50 + k


@hal.kernel
def places_that_wrap(y: Numbers, x: Inputs, n: hal.int32):
    """Indices are computed in 64 bits, where `k * 40503 * 65536` does not wrap."""
    i = hal.global_idx(0)
    if i < n:
        k = x[i]
        size = max(n, 1)
        while k < 300:
            k = k * 2 + 1 + (x[(k * 40503 * 65536) % size] & 3)
            if k < -9:
                break
        y[i] = k


@hal.kernel
def strided(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    while i < 2 * n:
        a = x[min(i, n - 1)]
        b = a + i
        k = 0
        while k < 90 and a > 3:
            a -= 1 + (a >> 4)
            k += 1
        if k & 1 == 0:
            b += k
        y[i] = a * 100 + b
        i += hal.grid_dim(0) * hal.block_dim(0)


@hal.kernel
def strided_down(y: Numbers, x: Inputs, n: hal.int32):
    """Loads that only running threads may do, two such loops, and work ahead of the stride."""
    first = x[0]
    if n > 20:
        step = hal.grid_dim(0) * hal.block_dim(0)
        for i in range(2 * n - 1 - hal.global_idx(0), -1, -step):
            j = i % n
            y[i] = first
            for k in range(60):
                if x[j] < 4 * k:
                    y[i] = k + j
                    break
                j = min(x[j], n - 1)
            while j >= 0:
                j = min(x[j], n - 1) if min(x[j], n - 1) > j else -2_000_000_000
                first += 1
            y[i] += first


@hal.kernel
def strided_both_ways(y: Numbers, x: Inputs, n: hal.int32):
    j = hal.global_idx(1)
    while j < 2:
        for i in range(hal.global_idx(0), n, hal.grid_dim(0) * hal.block_dim(0)):
            a = x[i] + j
            if a % 3 != 0:
                while a > 5:
                    a = a * 5 // 7
            y[j * n + i] = a
        j += hal.grid_dim(1) * hal.block_dim(1)


KERNELS = [
    orbit, rounds, down, near_the_end, without_a_sign, chained, searched, guarded_load,
    several_ways_out,
    rejected, samples, twice, between_barriers, two_dimensions, flat,
    some_threads, in_a_branch, in_both_branches, behind_a_return, loads_that_a_branch_guards,
    returns, found_by_return, stores_ahead_of_break, stores_and_goes_on,
    divides, divides_in_branches, places_that_wrap, strided, strided_down, strided_both_ways,
]  # fmt: skip


def inputs(n: int) -> dict[str, Any]:
    random = np.random.default_rng(n)
    numbers = random.integers(0, 300, n).astype("i4")
    rare = np.zeros(n, "i4")
    rare[n // 2 :: 50] = 290
    return {"random": numbers, "equal": np.full(n, 77, "i4"), "rare": rare, "negative": -numbers}


def shapes(kernel: Any, n: int) -> list[tuple[Any, Any]]:
    blocks = [(64, 1, 1), (5, 1, 1), (50, 1, 1), (128, 1, 1)]
    if kernel is between_barriers:
        blocks = [(64, 1, 1)]
    elif kernel in (two_dimensions, strided_both_ways):
        blocks = [(64, 1, 1), (16, 2, 1), (1, 3, 1)]
    deep = 2 if kernel in (two_dimensions, strided_both_ways) else 1
    return [((max(1, -(-n // block[0])), deep, 1), block) for block in blocks]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_threads_leave_one_by_one(llvm: LLVM, kernel: Any) -> None:
    lowered = kernel.lower()
    function = llvm.function(lowered)
    for n in (0, 15, 33, 200):
        for name, x in inputs(n).items():
            x = np.concatenate([x, np.zeros(1, "i4")])
            for grid, block in shapes(kernel, n):
                y, expected = np.full((2, 2 * n + 1), 5, "i4")
                llvm.call(function, lowered, {"y": y, "x": x, "n": n}, grid, block)
                interpret(kernel, expected, x, vals=(n,), grid=grid, block=block)
                np.testing.assert_array_equal(y, expected, f"{name}, {n} in {block}")


@hal.kernel
def roots(y: Floats, x: hal.ConstPtr[hal.float32], n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        r = x[i]
        for _ in range(60):
            s = 0.5 * (r + x[i] / r) + 0.001 * r * r
            if abs(s - r) <= 0.0001 * s:
                break
            r = s
        y[i] = r


@hal.kernel
def kepler(y: Floats, x: hal.ConstPtr[hal.float32], n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        e = x[i]
        d = hal.float32(1)
        k = 0
        while abs(d) > 0.00001 and k < 30:
            d = (e - 0.5 * hal.sin(e) - x[i]) / (1.0 - 0.5 * hal.cos(e))
            e -= d + 0.001 * hal.exp(-e)
            k += 1
        y[i] = e


@hal.kernel
def wide(y: hal.Ptr[hal.float64], x: hal.ConstPtr[hal.float64], n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        e = x[i]
        k = 0
        while hal.fmod(e * 7.0, 1.0) > 0.1 and k < 40:
            e = hal.sin(1.0e9 * e) + hal.cos(e) + e if k == 3 else 0.9 * e + hal.pow(e, 0.25)
            k += 1
        y[i] = e


@pytest.mark.parametrize("kernel", [roots, kepler, wide], ids=lambda kernel: kernel.name)
def test_what_a_thread_computes_does_not_depend_on_the_others(llvm: LLVM, kernel: Any) -> None:
    lowered = kernel.lower()
    function = llvm.function(lowered)
    random = np.random.default_rng(3)
    kind = "f8" if kernel is wide else "f4"
    x = (random.random(256) * 6 + 0.1).astype(kind)
    alone = np.zeros_like(x)
    for i in range(x.size):  # a single thread runs by itself
        arguments = {"y": alone[i : i + 1], "x": x[i : i + 1], "n": 1}
        llvm.call(function, lowered, arguments, (1, 1, 1), (1, 1, 1))
    for order in (np.arange(256), np.argsort(x), random.permutation(256)):
        y = np.zeros_like(x)
        llvm.call(function, lowered, {"y": y, "x": x[order], "n": 256}, (2, 1, 1), (128, 1, 1))
        np.testing.assert_array_equal(y.view("u1"), alone[order].view("u1"))


@hal.kernel
def stores(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        a = x[i]
        while a > 3:
            a -= 2
            y[i] = a


@hal.kernel
def counts(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        a = x[i]
        while a > 3:
            a -= 2
            hal.atomic_add(y, 0, 1)


@hal.kernel
def divides_wide(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        a = hal.int64(x[i])
        b = hal.int64(i + 1)
        while b != hal.int64(0):
            a, b = b, a % b
        y[i] = hal.int32(a)


@hal.kernel
def loops_inside(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        a = x[i]
        while a > 3:
            for k in range(n):
                a -= k & 1
            a -= 1
        y[i] = a


@hal.kernel
def adds(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        total = 0
        for k in range(x[i] % n):
            total += x[k]
        y[i] = total


@hal.kernel
def steps_by_three(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        a = 0
        for k in range(0, n, 3):
            if k > x[i]:
                break
            a += k
        y[i] = a


@hal.func
def first_above(limit: hal.int32):
    for k in hal.unroll(3):
        if k > limit:
            return k
    return hal.int32(7)


@hal.kernel
def ends_at_once(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = first_above(x[i])


@hal.kernel
def ends_at_once_in_a_range(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        total = hal.float32(1)
        for k in range(x[i]):
            if x[i] > 900:
                break
            total = total * 0.5 + hal.float32(k + x[i])
            break
        y[i] = hal.int32(total)


@hal.kernel
def starts_in_a_branch(y: Numbers, x: Inputs, n: hal.int32):
    """Start the loop at a value that is known in the branch only."""
    i = hal.global_idx(0)
    if i < n:
        total = 0
        if x[i] > 90:
            for k in range(x[i] // 2, x[i] + 5):
                if k > 200:
                    break
                total += k
        y[i] = total


@hal.kernel
def asks_in_a_branch(y: Numbers, x: Inputs, n: hal.int32):
    """Ask in the outer branch only if a thread runs the loop."""
    i = hal.global_idx(0)
    if i < n:
        total = 0
        if x[i] > 90:
            total = 1
            if x[x[i] % n] > 50:
                k = x[i]
                while True:
                    total += k
                    if k < 20:
                        break
                    k = k * 2 // 3
        y[i] = total


LEFT_ALONE = [
    stores, counts, divides_wide, loops_inside, adds,
    steps_by_three, ends_at_once,
    ends_at_once_in_a_range, starts_in_a_branch, asks_in_a_branch,
]  # fmt: skip


@pytest.mark.parametrize("kernel", LEFT_ALONE, ids=lambda kernel: kernel.name)
def test_other_loops(llvm: LLVM, kernel: Any) -> None:
    lowered = kernel.lower()
    n = 70
    x = inputs(n)["random"]
    y, expected = np.full((2, n), 5, "i4")
    llvm.run(lowered, {"y": y, "x": x, "n": n}, (2, 1, 1), (64, 1, 1))
    interpret(kernel, expected, x, vals=(n,), grid=2, block=64)
    np.testing.assert_array_equal(y, expected)


@hal.kernel
def beside_a_stride(y: Numbers, x: Inputs, n: hal.int32):
    """Threads stride in one branch; in the other they leave a loop in a branch on data."""
    if n < 10:
        k = hal.thread_idx(0)
        while k < n:
            k += n
    else:
        if x[3] > 5:
            j = n
            while x[15] <= 1 and j < 8:
                j += 1
            hal.atomic_add(y, 0, 1)


def test_a_search_beside_a_stride(llvm: LLVM) -> None:
    y, x = np.zeros(1, "i4"), np.full(16, 9, "i4")
    llvm.run(beside_a_stride.lower(), {"y": y, "x": x, "n": 11}, (1, 1, 1), (64, 1, 1))
    assert y[0] == 64


@hal.kernel
def half_by_break(y: hal.Ptr[hal.float16], x: hal.ConstPtr[hal.float16], n: hal.int32):
    i = hal.global_idx(0)
    for k in range(n - i):
        if x[i] < hal.float32(k):
            y[i] = abs(x[7])
            break


def test_elements_of_16_bits_that_are_stored_ahead_of_a_break(llvm: LLVM) -> None:
    x = np.arange(64, dtype="f2") / 3
    y, expected = np.zeros((2, 64), "f2")
    llvm.run(half_by_break.lower(), {"y": y, "x": x, "n": 64}, (1, 1, 1), (64, 1, 1))
    interpret(half_by_break, expected, x, vals=(64,), grid=1, block=64)
    np.testing.assert_array_equal(y, expected)


@hal.kernel
def first_place(y: Numbers, x: hal.ConstPtr[hal.uint8], n: hal.int32):
    i = hal.global_idx(0)
    found = n
    for k in range(n):
        if x[i * n + k] == 7:
            found = k
            break
    y[i] = found


def test_threads_search_their_own_bytes(llvm: LLVM) -> None:
    lowered = first_place.lower()
    x = np.random.default_rng(3).integers(0, 30, (64, 40)).astype("u1")
    y = np.full(64, -1, "i4")
    llvm.run(lowered, {"y": y, "x": x, "n": 40}, (1, 1, 1), (64, 1, 1))
    assert y.tolist() == [[*row.tolist(), 7].index(7) for row in x]


@hal.kernel
def sparse_product(
    y: hal.Ptr[hal.float64],
    x: hal.ConstPtr[hal.float64],
    values: hal.ConstPtr[hal.float64],
    columns: hal.ConstPtr[hal.int32],
    starts: hal.ConstPtr[hal.int32],
    n: hal.int32,
):
    i = hal.global_idx(0)
    if i < n:
        total = hal.float64(0)
        for k in range(starts[i], starts[i + 1]):
            total += values[k] * x[columns[k]]
        y[i] = total


@hal.kernel
def padded_product(
    y: hal.Ptr[hal.float64],
    x: hal.ConstPtr[hal.float64],
    values: hal.ConstPtr[hal.float64],
    columns: hal.ConstPtr[hal.int32],
    starts: hal.ConstPtr[hal.int32],
    n: hal.int32,
):
    i = hal.global_idx(0)
    if i < n:
        total = hal.float64(0)
        for k in range(40):
            column = columns[i * 40 + k]
            if column < 0:
                break
            total += values[i * 40 + k] * x[column]
        y[i] = total


@pytest.mark.parametrize("kernel", [sparse_product, padded_product], ids=lambda k: k.name)
def test_products_of_sparse_and_padded_matrices(llvm: LLVM, kernel: hal.Kernel) -> None:
    lowered = kernel.lower()
    n, random = 70, np.random.default_rng(8)
    counts = random.integers(0, 40, n)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype("i4")
    columns = random.integers(0, n, n * 40).astype("i4")
    if kernel is padded_product:
        columns.reshape(n, 40)[np.arange(40) >= counts[:, None]] = -1
    values, x, y = random.random(n * 40), random.random(n), np.zeros(n)
    llvm.run(
        lowered,
        {"y": y, "x": x, "values": values, "columns": columns, "starts": starts, "n": n},
        (2, 1, 1),
        (64, 1, 1),
    )
    firsts = np.arange(n) * 40 if kernel is padded_product else starts[:n]
    expected = [
        sum((values[k] * x[columns[k]] for k in range(first, first + count)), np.float64(0))
        for first, count in zip(firsts, counts, strict=True)
    ]
    np.testing.assert_allclose(y, expected, rtol=1e-13)


@hal.kernel
def next_seven(y: Numbers, x: hal.ConstPtr[hal.int32], n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        k = 0
        while k < 50 and i + k < n and x[i + k] != 7:
            k += 1
        y[i] = k


@hal.kernel
def next_seven_back(y: Numbers, x: hal.ConstPtr[hal.int32], n: hal.int32):
    i = hal.global_idx(0)
    if i < n and x[i] != 9:
        found = -1
        for k in range(i, max(i - 50, -1), -1):
            if x[k] == 7:
                found = k
                break
        y[i] = found


@pytest.mark.parametrize("kernel", [next_seven, next_seven_back], ids=lambda k: k.name)
def test_threads_search_from_their_own_elements(llvm: LLVM, kernel: hal.Kernel) -> None:
    lowered = kernel.lower()
    function = llvm.function(lowered)
    random = np.random.default_rng(3)
    for n in (0, 1, 15, 16, 33, 130, 200):
        for common in (3, 30, 3000):
            x = np.where(random.integers(0, common, n + 1) == 0, 7, random.integers(8, 12, n + 1))
            x = x.astype("i4")
            for grid, block in shapes(kernel, n):
                y, expected = np.full((2, n + 1), 5, "i4")
                llvm.call(function, lowered, {"y": y, "x": x, "n": n}, grid, block)
                interpret(kernel, expected, x, vals=(n,), grid=grid, block=block)
                np.testing.assert_array_equal(y, expected, f"{common}, {n} in {block}")


def divided(op: str, a: int, b: int) -> int:
    if b == 0:
        return 0
    quotient = a // b if op in ("FLOORDIV", "MOD") else int(math.copysign(abs(a) // abs(b), a * b))
    return quotient if op.endswith("DIV") else a - quotient * b


@pytest.mark.parametrize("dtype", [hal.int32, hal.uint32, hal.int16, hal.uint8], ids=str)
@pytest.mark.parametrize("op", ["FLOORDIV", "MOD", "TRUNCDIV", "TRUNCMOD"])
def test_vectors_divide_as_a_thread_does(llvm: LLVM, op: str, dtype: hal.DType) -> None:
    """A loop of one or two iterations."""
    b = Builder("divided", f"y: {dtype}*, x: const {dtype}*, d: const {dtype}*")
    i = b.index()
    result, k = b.var("result", b.const(0, dtype)), b.var("k", b.const(0))
    number, divisor = b.load("x", i), b.load("d", i)
    loop = b.loop()
    with b.when(b.op("GE", b.get(k), b.op("ADD", b.const(1), b.op("AND", i, b.const(1))))):
        b.break_(loop)
    b.set(result, b.op(op, number, divisor))
    b.set(k, b.op("ADD", b.op("MUL", b.get(k), b.const(2)), b.const(1)))
    b.end(loop)
    b.store("y", i, b.get(result))
    kernel = b.kernel()
    least, most = int(dtype.min), int(dtype.max)
    ends = [least, least + 1, least + 2, most, most - 1, most - 2, most // 2, most // 3]
    few = [value for value in (-7, -3, -2, -1, 0, 1, 2, 3, 7, 10) if value >= least]
    pairs = [(number, divisor) for number in ends + few for divisor in ends + few]
    random = np.random.default_rng(5)
    drawn = random.integers(least, most, (1200, 2), endpoint=True).tolist()
    # Just below, at and above a multiple of the divisor.
    near = [
        (p * q + more, q)
        for p, q in random.integers(1, 46_000, (600, 2)).tolist()
        for more in (-1, 0, 1)
    ]
    pairs += [*map(tuple, drawn), *((p, q) for p, q in near if p <= most and q <= most)]
    pairs = pairs[: len(pairs) // 64 * 64]
    kind = np.dtype(str(dtype))
    x, d = (np.array(side, kind) for side in zip(*pairs, strict=True))
    y = np.zeros(len(pairs), kind)
    llvm.run(kernel, {"y": y, "x": x, "d": d}, (len(pairs) // 64, 1, 1), (64, 1, 1))
    expected = np.array([divided(op, p, q) for p, q in pairs]).astype(kind)
    np.testing.assert_array_equal(y, expected)


@hal.kernel
def strides_and_searches(y: Numbers, x: Inputs, n: hal.int32):
    total = hal.float32(0)
    for k in range(hal.global_idx(0), n, hal.grid_dim(0) * hal.block_dim(0)):
        total += hal.float32(x[k])
    steps = 0
    while steps < 40 and total < 1000.0:
        total = total * 1.5 + 3.0
        steps += 1
    y[hal.global_idx(0)] = steps


def test_threads_stride_beside_a_loop_that_they_leave(llvm: LLVM) -> None:
    lowered = strides_and_searches.lower()
    for n in (0, 5, 64, 1000):
        x = np.random.default_rng(n).integers(-99, 99, n + 1).astype("i4")
        y, expected = np.full((2, 128), 5, "i4")
        llvm.run(lowered, {"y": y, "x": x, "n": n}, (2, 1, 1), (64, 1, 1))
        interpret(strides_and_searches, expected, x, vals=(n,), grid=2, block=64)
        np.testing.assert_array_equal(y, expected, str(n))


@hal.kernel
def searches_in_two_ifs(y: Numbers, x: Inputs, n: hal.int32):
    i = hal.global_idx(0)
    if x[i] < 0:
        return
    if i == 0 or x[i] != x[i - 1]:
        k = i
        while k > 0 and x[k - 1] != x[i]:
            k -= 1
        y[i] = k
    if x[i] > n:
        y[i] += 100


def test_the_inner_of_two_ifs_around_a_search_has_its_condition(llvm: LLVM) -> None:
    """It was asked where the outer IF had not computed it, and the text did not compile."""
    lowered = searches_in_two_ifs.lower()
    x = np.random.default_rng(0).integers(-1, 4, 128).astype("i4")
    y, expected = np.full((2, 128), 5, "i4")
    llvm.run(lowered, {"y": y, "x": x, "n": 2}, (2, 1, 1), (64, 1, 1))
    interpret(searches_in_two_ifs, expected, x, vals=(2,), grid=2, block=64)
    np.testing.assert_array_equal(y, expected)
