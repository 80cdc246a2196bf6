"""Variables with one known value, and loops that count by themselves, keep what a kernel does."""

from __future__ import annotations

import numpy as np
import pytest

import hal_core as hal
from hal_kernel.interpreter import interpret
from hal_kernel.ir.blocks.counting import with_ranges
from hal_kernel.ir.blocks.returns import without_returns
from hal_kernel.ir.blocks.running import with_products
from hal_kernel.ir.blocks.values import with_values
from hal_kernel.ir.fold import fold
from hal_kernel.ir.verify import verify

# mypy: disable-error-code="no-untyped-def"

Ints, Given = hal.Ptr[hal.int32], hal.ConstPtr[hal.int32]
KERNELS: dict[str, tuple[hal.KernelFunction, int]] = {}


def counts(loops: int):
    """Add a kernel in which so many loops become loops over a range."""

    def add(function):
        kernel = hal.kernel(function)
        KERNELS[kernel.name] = kernel, loops
        return kernel

    return add


@counts(1)
def upwards(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    j = 0
    while j < n - i:
        y[i] += x[j] * j
        j += 1


@counts(1)
def downwards(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    j = n
    while n // 2 < j:
        j -= 1
        y[i] += j


@counts(2)
def nested(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    j = 0
    total = 0
    while n > j:
        k = j
        while not k >= 4:
            total += x[k]
            k = 1 + k
        j += 1
    y[i] = total + 100 * j


@counts(2)
def by_more_than_one(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    j = i
    while j < 7:
        y[i] += x[j] + 10 * j
        j += 3
    k = 6
    while k >= 0:
        y[i] += 100 * k
        k -= 4
    y[i] += 1000 * j + 10000 * k


@counts(0)
def by_steps_that_may_wrap(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    j = 2**31 - 7
    while j < 2**31 - 2:
        y[i] += 1
        j += 4  # to 2**31 - 3, and then below 0
        if j < 0:
            break
    k = 0
    while k < n:
        y[i] += x[k]
        k += 3


@counts(1)
def by_steps_up_to_the_last_number(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    j = 2**31 - 10
    while j < 2**31 - 3:
        y[i] += j & 7
        j += 3


@counts(0)
def by_steps_beyond_the_last_number(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    j = 2**31 - 10
    while j < 2**31 - 2:
        y[i] += j & 7
        j += 3
        j = min(j, 2**31 - 1)


@counts(1)
def continues(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    for k in range(3):
        j = k
        while j < n:
            j += 1
            if x[j % 7] < 0:
                continue
            y[i] += j
        if j == 5:
            continue
        y[i] += 1000


@counts(1)
def read_behind(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    j = 3
    if n > 2:
        j = 1
    while j < n:
        y[i] += x[j]
        j += 1
    y[i] += 100 * j


@counts(0)
def by_two(y: Ints, x: Given, n: hal.int32):
    j = 0
    while j < n:
        y[hal.global_idx(0)] += j
        j += 2


@counts(2)
def up_to_a_limit(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    j = -2
    while j <= n - i:
        y[i] += x[abs(j) % 7] * j
        j += 1
    k = n
    while i - 3 <= k:
        y[i] = 3 * y[i] + k
        k -= 1
    y[i] += 100 * j + 1000 * k


@counts(0)
def up_to_a_limit_or_a_return(y: Ints, x: Given, n: hal.int32):
    j = 0
    while j <= n:
        y[hal.global_idx(0)] += j
        if j == 3:
            return
        j += 1


@counts(2)
def a_window_by_steps(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    j = i - n
    while j < i + n + 1:
        y[i] = 3 * y[i] + j
        j += 4
    k = i + 5
    while k >= i:
        y[i] = 3 * y[i] + k
        k -= 2
    y[i] += 100 * j + 1000 * k


@counts(0)
def a_window_by_threes(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    j = i - n
    while j < i + n:
        y[i] += j
        j += 3


@counts(0)
def from_a_value_before(y: Ints, x: Given, n: hal.int32):
    j = 2
    while j * j < n:
        j += 1
    before = j
    j = 0
    while j < 3:
        y[hal.global_idx(0)] += j
        j = before + 1
    j = 0
    while before < 2:
        j += 1
    y[hal.global_idx(0)] += 10 * j


@counts(0)
def by_minus_the_least(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    j = -5
    while j < 0:
        y[i] += j
        j -= -2147483648
    wide = hal.int64(-7)
    while wide < 0:
        y[i] += hal.int32(wide)
        wide -= -9223372036854775808


@counts(0)
def moving_end(y: Ints, x: Given, n: hal.int32):
    j = 0
    end = n
    while j < end:
        y[hal.global_idx(0)] += j
        end = end - 1
        j += 1


@counts(0)
def sometimes(y: Ints, x: Given, n: hal.int32):
    j = 0
    while j < n:
        if y[hal.global_idx(0)] > 20:
            j += 1
        y[hal.global_idx(0)] += 7


@counts(1)
def may_break(y: Ints, x: Given, n: hal.int32):
    j = 0
    while j < n:
        if y[hal.global_idx(0)] > 20:
            break
        y[hal.global_idx(0)] += 7
        j += 1


@counts(1)
def reads_what_it_left_with(y: Ints, x: Given, n: hal.int32):
    j = hal.global_idx(0)
    while j < n:
        if x[j] == 7 or x[j] < -9:
            break
        j += 1
    y[hal.global_idx(0)] = j


@counts(0)
def may_break_at_the_greatest(y: Ints, x: Given, n: hal.int32):
    j = 0
    while j <= n:
        if y[hal.global_idx(0)] > 20:
            break
        y[hal.global_idx(0)] += 7
        j += 1


@counts(1)
def leaves_behind_its_step(y: Ints, x: Given, n: hal.int32):
    j = 0
    while j < n:
        j += 1
        if x[j] > 3:
            break
    y[hal.global_idx(0)] = j


@counts(0)
def set_again(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    j = i
    j += 1
    if j < n:
        j = j * 2
    else:
        y[i] = j
        j = 7
    y[i] += j
    for k in range(2):
        y[i] += 10 * j
        j = k - j
        y[i] += j


RUNNING: dict[str, tuple[hal.KernelFunction, int]] = {}


def grows(variables: int):
    """Add a kernel of which so many variables are left when indices are products of counters."""

    def add(function):
        kernel = hal.kernel(function)
        RUNNING[kernel.name] = kernel, variables
        return kernel

    return add


@grows(1)
def columns(y: Ints, x: Given, n: hal.int32):
    c = hal.global_idx(0)
    total = 0
    for _ in range(n % 3):
        total += x[c]
        c += n % 4
    y[hal.global_idx(0)] = total


@grows(0)
def by_while(y: Ints, x: Given, n: hal.int32):
    c = hal.global_idx(0)
    j = n % 3
    while j < n:
        y[hal.global_idx(0)] += x[abs(c) % 7] + c * j
        c = c - 3
        j += 1


@grows(1)
def read_behind_the_loop(y: Ints, x: Given, n: hal.int32):
    c = hal.uint32(4294967290)
    for _ in range(2, n):
        y[hal.global_idx(0)] += hal.int32(c // hal.uint32(3))
        c += hal.uint32(5)
    y[hal.global_idx(0)] ^= hal.int32(c)


@grows(2)
def in_two_loops(y: Ints, x: Given, n: hal.int32):
    c = hal.int64(hal.global_idx(0))
    d = 7
    for j in range(n):
        for _ in range(j):
            y[hal.global_idx(0)] += hal.int32(c) * d
            c += hal.int64(n)
        d = 11 + d
        c += hal.int64(2)
    y[hal.global_idx(0)] += hal.int32(c) - d


@grows(1)
def breaks(y: Ints, x: Given, n: hal.int32):
    c = 1
    for j in range(n):
        if x[j] < 0:
            break
        c += 5
    y[hal.global_idx(0)] += c


@grows(3)
def not_by_one_number(y: Ints, x: Given, n: hal.int32):
    a = 1
    b = 1
    c = 1
    for j in range(n):
        a += hal.global_idx(0)
        b += j
        y[hal.global_idx(0)] += a * b + c
        if x[j] > 2:
            c += 1


@grows(1)
def read_with_the_next_value(y: Ints, x: Given, n: hal.int32):
    c = 1
    for _ in range(0, n, 2):
        c += n
    d = c
    for j in range(n):
        d += 3
        if x[j] > 2:
            y[hal.global_idx(0)] += d + c


@pytest.mark.parametrize("name", KERNELS)
def test_a_rewritten_kernel_does_the_same(name: str) -> None:
    function, loops = KERNELS[name]
    kernel = fold(function.lower())
    uops = with_ranges(with_values(without_returns(kernel.uops)))
    made = kernel._replace(uops=uops)
    verify(made)
    ranges = [sum(node.op == "RANGE" for node in k.uops) for k in (kernel, made)]
    assert ranges[1] - ranges[0] == loops
    x = np.array([3, -1, 4, 1, -5, 9, 2], np.int32)
    for n in (8 - 2**31, -3, 0, 1, 2, 3, 5, 7):
        got, expected = np.full((2, 4), 3, np.int32)
        if name == "downwards" and n < -9:
            continue  # 2**30 iterations
        for one, array in ((made, got), (kernel, expected)):
            interpret(one, array, x, vals=(n,), grid=2, block=2)
        np.testing.assert_array_equal(got, expected, str(n))


@pytest.mark.parametrize("name", RUNNING)
def test_an_index_that_grows_is_a_product(name: str) -> None:
    function, variables = RUNNING[name]
    kernel = fold(function.lower())
    made = kernel._replace(uops=with_products(with_ranges(with_values(kernel.uops))))
    verify(made)
    assert sum(node.op == "VAR" for node in made.uops) == variables
    x = np.array([3, -1, 4, 1, -5, 9, 2], np.int32)
    for n in (-3, 0, 1, 2, 3, 5, 7):
        got, expected = np.full((2, 4), 3, np.int32)
        for one, array in ((made, got), (kernel, expected)):
            interpret(one, array, x, vals=(n,), grid=2, block=2)
        np.testing.assert_array_equal(got, expected, str(n))


def test_a_variable_is_read_only_where_its_value_is_not_known() -> None:
    uops = with_values(fold(KERNELS["set_again"][0].lower()).uops)
    assert sum(node.op == "GET" for node in uops) == 3  # behind the IF, and in the loop before it
