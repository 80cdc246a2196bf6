"""Kernels for the vectoriser, each with data of a size."""

from collections import namedtuple

import numpy as np

import hal_core as hal
from hal_cpu import processor
from hal_cpu.vectors import LLVMRenderer
from hal_cpu.vectors.width import Registers
from hal_kernel.ir import Kernel
from hal_kernel.ir.writing import source_of

AVX2 = Registers(16, 32)
F, I16, I32, U8, L = hal.float32, hal.int16, hal.int32, hal.uint8, hal.int64
P, C = hal.Ptr, hal.ConstPtr
CASES = []
# `made(size, generator)` returns arrays, values and the geometry for so many elements.
Case = namedtuple("Case", "kernel made")


def case(outputs=("f4",), inputs=("f4",), scale=1, threads=None):
    """Add a kernel of outputs, inputs and the size to the cases."""

    def made(size, generator):
        arrays = []
        for dtype in (*outputs, *inputs):
            count = scale * size
            if np.dtype(dtype).kind == "f":
                arrays.append((generator.random(count) * 4 - 2).astype(dtype))
            elif np.dtype(dtype).kind == "b":
                arrays.append(generator.random(count) < 0.5)
            else:
                arrays.append(generator.integers(0, 100, count).astype(dtype))
        geometry = threads(size) if threads else {"grid": -(-size // 32) + 1, "block": 32}
        return arrays, (size,), geometry

    def add(function):
        CASES.append(Case(hal.kernel(function), made))
        return CASES[-1].kernel

    return add


@case()
def interior(y: P[F], x: C[F], n: I32):
    i = hal.global_idx(0)
    if 0 < i < n - 1:
        y[i] = x[i - 1] + x[i + 1]


@case()
def clamped(y: P[F], x: C[F], n: I32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = x[max(i - 1, 0)] + x[min(i + 1, n - 1)]


@case()
def wrapped(y: P[F], x: C[F], n: I32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = x[(i + 1) % n] - x[(i - 1 + n) % n]


@case(scale=5)
def flat_index(y: P[F], x: C[F], n: I32):
    k = hal.global_idx(0)
    if k < 5 * n:
        y[k] = x[k] * hal.float32(k // n) + hal.float32(k % n)


@case(["u1"], ["u1"])
def returned(y: P[U8], x: C[U8], n: I32):
    i = hal.global_idx(0)
    if i >= n:
        return
    y[i] = x[i]
    if x[i] < 30:
        return
    if x[i] < 60:
        if i % 3 == 1:
            return
        y[i] = 1
    y[i] += 2


@case(["u4"], ["u4"])
def drawn(y: P[hal.uint32], x: C[hal.uint32], n: I32):
    i = hal.global_idx(0)
    if i < n:
        state = x[i]  # the loop inside alone uses it, and goes on with it in its next turn
        for _ in range(3):
            while True:
                state = state * 1664525 + 1013904223
                if state >> 24 < 100:
                    y[i] += state
                    break


@case(["i4"], ["i4"])
def turned(y: P[I32], x: C[I32], n: I32):
    """The ends of the range wrap around in some threads."""
    i = hal.global_idx(0)
    if i < n:
        turns = 0
        for _ in range(i - n // 2 + 2147483640, i - n // 2 + 2147483644):
            turns += 1
        y[i] = turns + x[i]


@case(["i4"], ["i4"])
def up_to_the_limit(y: P[I32], x: C[I32], n: I32):
    """Counters of threads that have left a range wrap around."""
    i = hal.global_idx(0)
    if i < n:
        end, total = n | 2147483647, 0
        for k in range(end - n - 9 + i, end, 3):
            total += k & 3
        for k in range(end - n - 9 + i, end):
            if k > n:
                total += x[i]
        y[i] = total


@case(["i4"], ["i4"])
def ring(y: P[I32], x: C[I32], n: I32):
    i = hal.global_idx(0)
    if i < n:
        held = hal.local(I32, 2)
        held[0] = held[1] = 0
        for k in range(8):
            held[k & 1] += 1
            if i + k < n:
                y[i] += held[k & 1] * x[i + k]


@case(scale=3)
def colours(y: P[F], x: C[F], n: I32):
    i = hal.global_idx(0)
    if i < n:
        r, g, b = x[3 * i], x[3 * i + 1], x[3 * i + 2]
        y[3 * i] = g
        y[3 * i + 2] = r + b
        y[3 * i + 1] = r - g


@case(scale=4)
def fours(y: P[F], x: C[F], n: I32):
    i = hal.global_idx(0)
    if i < n:
        p, q, r, s = hal.load(x, 4 * i, 4)
        hal.store(y, 4 * i, s, r, p + q, q)


@case(scale=4)
def four_each(y: P[F], x: C[F], n: I32):
    i = hal.global_idx(0)
    for k in range(4):
        if 4 * i + k < 4 * n - 3:
            y[4 * i + k] = 2.0 * x[4 * i + k] + y[4 * i + k]


@case(["u1"], ["u1"], scale=16)
def sums_of_sixteen(y: P[U8], x: C[U8], n: I32):
    i = hal.global_idx(0)
    if i < n:
        total = 0
        for k in range(16):
            total = 3 * total + I32(x[16 * i + k])
        y[i] = U8(total & 255)


@case(scale=8)
def sums_of_eight_until_the_end(y: P[F], x: C[F], n: I32):
    i = hal.global_idx(0)
    total = F(0)
    for k in range(8):
        if 8 * i + k < 8 * n - 3:
            total = 0.5 * total + x[8 * i + k]
    if i < n:
        y[i] = total


@case(scale=3)
def three_until_the_end(y: P[F], x: C[F], n: I32):
    i = hal.global_idx(0)
    for k in hal.unroll(3):
        j = 3 * i + k
        if j >= 3 * n - 1:
            return
        y[j] = x[j] + 0.5


@case(scale=2)
def one_behind_the_other(y: P[F], x: C[F], n: I32):
    i = hal.global_idx(0)
    if i < n:
        last = y[2 * i + 1]
        y[2 * i] = x[2 * i]
        y[2 * i + 1] = y[2 * i] + x[2 * i + 1] + last


@case(["i2"], ["i2", "i2"], scale=2)
def interleaved(y: P[I16], a: C[I16], b: C[I16], n: I32):
    i = hal.global_idx(0)
    if i < n:
        y[2 * i] = a[i] + b[i]
        y[2 * i + 1] = b[i]


@case(["i2", "i2"], ["i2"], scale=2)
def parted(y: P[I16], z: P[I16], x: C[I16], n: I32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = x[2 * i]
        z[i] = x[2 * i + 1]


DIGITS = tuple(np.uint8(ord(digit)) for digit in "0123456789abcdef")


@case(["u1"], ["u1"], scale=2)
def digits(y: P[U8], x: C[U8], n: I32):
    i = hal.global_idx(0)
    if i < n:
        y[2 * i] = DIGITS[I32(x[i] >> 4)]
        y[2 * i + 1] = DIGITS[I32(x[i] & 15)]


@case(scale=3)
def backwards(y: P[F], x: C[F], n: I32):
    i = hal.global_idx(0)
    if i < n:
        y[3 * i] = x[3 * i + 2]
        y[3 * i + 1] = x[3 * i + 1]
        y[3 * i + 2] = x[3 * i]


@case(["f4"], ["f4", "f4"], scale=2)
def halves_in_a_loop(y: P[F], x: C[F], z: C[F], n: I32):
    """An iteration is written twice, and an index comes after the first access of its line."""
    i = hal.global_idx(0)
    for _ in range(3):
        if i < n:
            y[2 * i] = x[2 * i]
            y[2 * i + 1] = z[i // 2]


@case(["i4"], ["i4"], scale=3)
def cancelled(y: P[I32], x: C[I32], n: I32):
    """The index of one store is that of the others, and no pattern."""
    i = hal.global_idx(0)
    if i < n:
        t = x[i]
        y[3 * i] = 5
        y[3 * i + 1 + t - t] = 7
        y[3 * i + 2] = 8


@case(["f4", "i4"], ["f4"])
def two_ways(y: P[F], z: P[I32], x: C[F], n: I32):
    i = hal.global_idx(0)
    if i < n:
        if x[i] > 0.0:
            y[i] = hal.sqrt(x[i])
        else:
            y[i] = -x[i]
        k = 0
        if x[i] > 1.0:
            for j in range(i % 5):
                k += j
        elif x[i] > 0.5:
            k = 100 // (i % 7 + 1)
        z[i] = k


@case(["f4", "f4"], ["f4"])
def one_apart(y: P[F], z: P[F], x: C[F], n: I32):
    """The lanes part behind a store, where a test knows for one side only that all go there."""
    i = hal.global_idx(0)
    if i < n:
        z[i] = x[i]
        a = b = x[i] + 1.0
        if i == n // 2:
            a = x[i] * 3.0 + x[n - 1 - i]
        if i != n // 2:
            z[i] = 3.0
        else:
            b = x[i] * 3.0 + x[n - 1 - i]
        y[i] = a + 2.0 * b


@case(["i4"], ["f4"])
def leaves(y: P[I32], x: C[F], n: I32):
    i = hal.global_idx(0)
    if i < n:
        v = x[i]
        steps = 0
        while True:
            steps += 1
            if steps % 3 == 0:
                continue
            v = v * 1.5 + 0.1
            if v > 10.0 or steps > 40:
                break
            if v < -10.0:
                y[i] = -steps
                return
        y[i] = steps


@case()
def sums(y: P[F], x: C[F], n: I32):
    i = hal.global_idx(0)
    if i < n:
        total = 0.0
        for k in range(max(i - 3, 0), min(i + 4, n)):
            total += x[k]
        y[i] = total


@case()
def sixteen_sums(y: P[F], x: C[F], n: I32):
    i = hal.global_idx(0)
    if i < n:
        a = b = c = d = e = f = g = h = hal.float32(0)
        for k in range(n):
            v = x[k] * x[i]
            a, b, c, d = a + v, b - a, c + b, d + c
            e, f, g, h = e + d, f * 0.5 + e, g * 0.25 + f, h + g * 0.125
        y[i] = a + 0.5 * b + 0.1 * c + 0.01 * d + 0.01 * e + 0.01 * f + 0.01 * g + 0.001 * h


@case(["i4"], ["i4"])
def steps_of_three(y: P[I32], x: C[I32], n: I32):
    i = hal.global_idx(0)
    if i < n:
        total = 0
        for k in range(i, n, 3):
            total += x[k]
        for k in range(n - 1, i // 2, -2):
            total -= x[k]
        for k in range(2147483000 + i % 3, 2147483646, 500):
            total += k % 11
        y[i] = total


@case(threads=lambda size: {"grid": 2, "block": 8})
def grid_stride(y: P[F], x: C[F], n: I32):
    for i in range(hal.global_idx(0), n, hal.grid_dim(0) * hal.block_dim(0)):
        y[i] = x[i] + 1.0
    k = hal.global_idx(0)
    while k < n:
        y[k] += x[k % n] * hal.float32(k // 3)
        k += 16


@case(["i4", "u4", "i4"], ["i4"])
def joined(a: P[I32], b: P[hal.uint32], c: P[I32], x: C[I32], n: I32):
    i = hal.global_idx(0)
    if i < n:
        hal.atomic_add(a, 0, x[i])
        hal.atomic_max(b, n - 1, hal.uint32(x[i]))
        if x[i] % 3 == 0:
            hal.atomic_min(c, 0, x[i] - 50)
            hal.atomic_xor(c, n // 2, i)


@case(threads=lambda size: {"grid": -(-size // 40), "block": 40}, scale=40)
def sums_in_shared(y: P[F], x: C[F], n: I32):
    total = hal.shared(hal.float32, 2)
    t = hal.thread_idx(0)
    i = hal.block_idx(0) * 40 + t
    if t < 2:
        total[t] = 0.0
    hal.barrier()
    hal.atomic_add(total, 0, x[i])
    if x[i] > 0.5:
        hal.atomic_add(total, 1, x[i])
    hal.barrier()
    y[i] = total[0] + total[1] * x[i]


@case(["i4"], ["i4"])
def sparse_rows(y: P[I32], x: C[I32], n: I32):
    i = hal.global_idx(0)
    if i < n:
        total = 0
        for k in range(x[i] % n, n):
            total += x[x[k] % n]
        y[i] = total


@case(["f4"], ["f2", "u1", "?"])
def narrow(y: P[F], a: C[hal.float16], b: C[U8], c: C[hal.bool_], n: I32):
    i = hal.global_idx(0)
    if i < n:
        v = hal.float32(a[i])
        if c[i]:
            v = v * hal.float32(b[i])
        if v > 3.0 and not c[n - 1 - i]:
            v = hal.float32(hal.uint8(v * 7.0))
        y[i] = v


@case(["i8"], ["i8", "i4"])
def divided(y: P[L], x: C[L], z: C[I32], n: L):
    i = hal.int64(hal.global_idx(0))
    if i < n:
        d = hal.int64(z[i] % 7 - 3)
        q = z[i] // (z[n - 1 - i] % 5 - 2) + z[i] % 13 if z[i] > 50 else -z[i] // 3
        y[i] = x[i] // d + x[i] % 6 + hal.int64(q) if d != 0 else hal.int64(z[i]) << (i % 9)


@case()
def own_array(y: P[F], x: C[F], n: I32):
    t = hal.local(hal.float32, 6)
    i = hal.global_idx(0)
    if i < n:
        for k in range(6):
            t[k] = x[(i + k) % n]
        for k in range(i % 6):
            t[k] += t[(k + i) % 6]
        y[i] = t[0] + t[i % 6]


@hal.func
def first_above(limit: I32):
    for k in hal.unroll(3):
        if k > limit:
            return k
    return hal.int32(7)


@case(["f4", "i4"])
def kepler(y: P[F], z: P[I32], x: C[F], n: I32):
    i = hal.global_idx(0)
    if i < n:
        e = x[i]
        d = hal.float32(1)
        k = 0
        while abs(d) > 0.00001 and k < 30:
            d = (e - 0.5 * hal.sin(e) - x[i]) / (1.0 - 0.5 * hal.cos(e))
            e -= d
            k += 1
        y[i] = e
        z[i] = first_above(hal.int32(x[i]))


@case(["i4"], ["i4"])
def far_away(y: P[I32], x: C[I32], n: I32):
    """A thread that has left, or a guard that does not hold: loads from where no memory is."""
    i = hal.global_idx(0)
    if i < n:
        j = i
        steps = 0
        while j >= 0:
            j = min(x[j], n - 1) if min(x[j], n - 1) > j else -2_000_000_000
            steps += 1
        at = x[i] * 2_000_000 if x[i] % 5 != 0 else i
        for s in range(n & 3):
            if 0 <= at < n:
                while x[at] > s:
                    at = at // 2
                    if at < 3:
                        break
                steps += at + s
        y[i] = steps


@case(["i4"], ["i4"])
def several_ways_out(y: P[I32], x: C[I32], n: I32):
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
                if a > 500:
                    a -= 300
                    if a % 7 == 0:
                        return
                k += 1
            k += 1
            if k > 150:
                y[i] = -k
                break
            a += k & 1
        y[i] += a * 10000 + k


@case(["i4"], ["i4", "i4"], threads=lambda size: {"grid": -(-size // 16) + 1, "block": 16})
def staged(y: P[I32], x: C[I32], sizes: C[I32], n: I32):
    count = min(sizes[0], n)
    t = hal.thread_idx(0)
    tile = hal.shared(hal.int32, 16)
    i = hal.global_idx(0)
    tile[t] = x[i] if i < count else 0
    hal.barrier()
    step = 1
    while step < 16:
        if t % (2 * step) == 0:
            tile[t] += tile[t + step]
        hal.barrier()
        step *= 2
    if i < count:
        y[i] = tile[15 - t] + count


@case(["u8", "i4"], ["u8"])
def bits(y: P[hal.uint64], z: P[I32], x: C[hal.uint64], n: I32):
    i = hal.global_idx(0)
    if i < n:
        rest = x[i]
        count = 0
        while rest != 0:
            count += hal.int32(hal.ctz(rest))
            rest &= rest - 1
        y[i] = rest + x[n - 1 - i] * 3
        z[i] = count


@case(["i4"], ["i4"], threads=lambda size: {"grid": size, "block": 1})
def all_return_from_a_loop(y: P[I32], x: C[I32], n: I32):
    i = hal.global_idx(0)
    steps = n % 7
    while True:
        steps += 1
        if steps > 3:
            break
        y[i] = steps
        return
    if x[i] < 30:
        return
    y[i] = 50


@case(["i4", "i4"], [], threads=lambda size: {"grid": 1, "block": size})
def read_before_it_is_set(y: P[I32], z: P[I32], n: I32):
    i = hal.global_idx(0)
    last = i
    if y[i] > 50:
        old = z[i]
        z[i] = 2
        last = old
    y[i] = last


@hal.kernel
def takes_turns(y: P[I32], n: I32):
    i = hal.global_idx(0)
    while hal.atomic_load(y, 0) != i:
        pass
    hal.atomic_store(y, 0, i + 1)


@hal.kernel
def behind_the_first(y: P[F], x: C[F], n: I32):
    i = hal.global_idx(0)
    if i < n:
        y[4 * i] = 1.0
        y[4 * i + 1] = x[4 * i + 1] + x[4 * i + 2]
        y[4 * i + 2] = 2.0
        y[4 * i + 3] = 3.0


@hal.kernel
def behind_the_first_in_turns(y: P[F], x: C[F], n: I32):
    i = hal.global_idx(0)
    for k in range(n % 7):
        y[4 * i] = hal.float32(k)
        y[4 * i + 1] = x[4 * i + 1] + x[4 * i + 2]
        y[4 * i + 2] = 2.0
        y[4 * i + 3] = 3.0


@hal.kernel(block=(5, 1, 1))
def narrowed(y: P[hal.bfloat16], z: P[L], x: C[hal.uint64]):
    own = hal.local(hal.float16, 6)
    unused = hal.shared(hal.uint16, 5)
    unused[hal.thread_idx(0)] = 1
    i = hal.global_idx(0)
    for k in hal.unroll(6):
        own[k] = 3.5
    y[10 + i] += 3
    z[i] = 1 + hal.int64(hal.bool_(y[i]) or hal.bool_(x[2]))


def compiled(kernel, width, registers=None):
    device = hal.Device["CPU"]
    registers = registers or (AVX2 if width else Registers(*processor.vector_registers()))
    renderer = LLVMRenderer(processor.has_half(), processor.has_fma(), registers, width)
    lowered = kernel if isinstance(kernel, Kernel) else kernel.lower()
    return device.compile(source_of(lowered, device, renderer))
