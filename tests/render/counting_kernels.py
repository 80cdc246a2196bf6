"""Kernels whose variables count, or in which a test of the index guards what threads do."""

from __future__ import annotations

import hal_core as hal

# mypy: disable-error-code="no-untyped-def"

Ints, Given = hal.Ptr[hal.int32], hal.ConstPtr[hal.int32]
KERNELS: list[hal.KernelFunction] = []


def kernel(function) -> hal.KernelFunction:
    KERNELS.append(hal.kernel(function))
    return KERNELS[-1]


@kernel
def upwards(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    j = 0
    while j < n - i:
        y[i] += x[j] * j
        j += 1


@kernel
def downwards(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    j = n
    while n // 2 < j:
        j -= 1
        y[i] += j


@kernel
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


@kernel
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


@kernel
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


@kernel
def by_steps_up_to_the_last_number(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    j = 2**31 - 10
    while j < 2**31 - 3:
        y[i] += j & 7
        j += 3


@kernel
def by_steps_beyond_the_last_number(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    j = 2**31 - 10
    while j < 2**31 - 2:
        y[i] += j & 7
        j += 3
        j = min(j, 2**31 - 1)


@kernel
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


@kernel
def read_behind(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    j = 3
    if n > 2:
        j = 1
    while j < n:
        y[i] += x[j]
        j += 1
    y[i] += 100 * j


@kernel
def by_two(y: Ints, x: Given, n: hal.int32):
    j = 0
    while j < n:
        y[hal.global_idx(0)] += j
        j += 2


@kernel
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


@kernel
def up_to_a_limit_or_a_return(y: Ints, x: Given, n: hal.int32):
    j = 0
    while j <= n:
        y[hal.global_idx(0)] += j
        if j == 3:
            return
        j += 1


@kernel
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


@kernel
def a_window_by_threes(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    j = i - n
    while j < i + n:
        y[i] += j
        j += 3


@kernel
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


@kernel
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


@kernel
def moving_end(y: Ints, x: Given, n: hal.int32):
    j = 0
    end = n
    while j < end:
        y[hal.global_idx(0)] += j
        end = end - 1
        j += 1


@kernel
def sometimes(y: Ints, x: Given, n: hal.int32):
    j = 0
    while j < n:
        if y[hal.global_idx(0)] > 20:
            j += 1
        y[hal.global_idx(0)] += 7


@kernel
def may_break(y: Ints, x: Given, n: hal.int32):
    j = 0
    while j < n:
        if y[hal.global_idx(0)] > 20:
            break
        y[hal.global_idx(0)] += 7
        j += 1


@kernel
def reads_what_it_left_with(y: Ints, x: Given, n: hal.int32):
    j = hal.global_idx(0)
    while j < n:
        if x[j] == 7 or x[j] < -9:
            break
        j += 1
    y[hal.global_idx(0)] = j


@kernel
def may_break_at_the_greatest(y: Ints, x: Given, n: hal.int32):
    j = 0
    while j <= n:
        if y[hal.global_idx(0)] > 20:
            break
        y[hal.global_idx(0)] += 7
        j += 1


@kernel
def leaves_behind_its_step(y: Ints, x: Given, n: hal.int32):
    j = 0
    while j < n:
        j += 1
        if x[j] > 3:
            break
    y[hal.global_idx(0)] = j


@kernel
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


@kernel
def columns(y: Ints, x: Given, n: hal.int32):
    c = hal.global_idx(0)
    total = 0
    for _ in range(n % 3):
        total += x[c]
        c += n % 4
    y[hal.global_idx(0)] = total


@kernel
def by_while(y: Ints, x: Given, n: hal.int32):
    c = hal.global_idx(0)
    j = n % 3
    while j < n:
        y[hal.global_idx(0)] += x[abs(c) % 7] + c * j
        c = c - 3
        j += 1


@kernel
def read_behind_the_loop(y: Ints, x: Given, n: hal.int32):
    c = hal.uint32(4294967290)
    for _ in range(2, n):
        y[hal.global_idx(0)] += hal.int32(c // hal.uint32(3))
        c += hal.uint32(5)
    y[hal.global_idx(0)] ^= hal.int32(c)


@kernel
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


@kernel
def breaks(y: Ints, x: Given, n: hal.int32):
    c = 1
    for j in range(n):
        if x[j] < 0:
            break
        c += 5
    y[hal.global_idx(0)] += c


@kernel
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


@kernel
def read_with_the_next_value(y: Ints, x: Given, n: hal.int32):
    c = 1
    for _ in range(0, n, 2):
        c += n
    d = c
    for j in range(n):
        d += 3
        if x[j] > 2:
            y[hal.global_idx(0)] += d + c


@kernel
def below(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = x[i % 3] + 1


@kernel
def leaves(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    if n <= i:
        return
    y[i] = 2


@kernel
def interior(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    if 0 < i < n - 1 and n > 2:
        y[i] += x[0] + 3


@kernel
def from_one_on(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0) + 1
    if i <= n and x[1] > -9:
        y[i - 1] = i


@kernel
def only_one(y: Ints, x: Given, n: hal.int32):
    if hal.global_idx(0) - 2 == n:
        y[hal.global_idx(0)] = 5


@kernel
def of_the_block(y: Ints, x: Given, n: hal.int32):
    if hal.thread_idx(0) >= n and hal.block_idx(0) == 1:
        y[hal.global_idx(0)] = 6


@kernel
def in_64_bits(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    if hal.int64(i) < hal.int64(n) * 3:
        y[i] = 7


@kernel
def with_another_side(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = 8
    else:
        y[i] = 9


@kernel
def used_again(y: Ints, x: Given, n: hal.int32):
    i = hal.global_idx(0)
    few = i < n
    if few:
        y[i] = 10 if few else 11
