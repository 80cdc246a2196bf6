"""Kernels that compute with their index: two sizes `w` and `h`, or two numbers near the limits."""

import hal_core as hal

P, C = hal.Ptr, hal.ConstPtr
I32, U8, L = hal.int32, hal.uint8, hal.int64
Numbers, Inputs = P[I32], C[I32]
SHAPED = []
LIMITED = []


def shaped(function):
    """Add a kernel whose `x` has 3 * w * h elements and more."""
    SHAPED.append(hal.kernel(function))
    return SHAPED[-1]


def limited(function):
    """Add a kernel whose `x` has 64 elements, for any `w` and `h`."""
    LIMITED.append(hal.kernel(function))
    return LIMITED[-1]


@shaped
def neighbours(y: Numbers, x: Inputs, w: I32, h: I32):
    k = hal.global_idx(0)
    if k < w * h:
        i = k % w
        j = k // w
        ahead = i + 2
        if ahead >= w:
            ahead -= w
        if ahead >= w:
            ahead = 0
        y[k] = x[(j - 1 + h) % h * w + (i - 1 + w) % w] + 3 * x[j * w + (i - j % 4 + w) % w]
        y[k] += 5 * x[(j + 1) % h * w + ahead] + 7 * x[min(max(i + j - 3, 0), w - 1)]
        y[k] += 9 * x[(k - w) % (w * h)] + (k - 5) // w * 3 + (x[k - 1] if i > 0 else 7)
        if 0 < i < w - 1 and 0 < j < h - 1:
            y[k] += x[k + 1] - x[k - 1] + x[k - w] + x[k + w]


@shaped
def clamped_in_64_bits(y: Numbers, x: Inputs, w: L, h: L):
    p = hal.int64(hal.global_idx(0))
    if p < w * h:
        j = p // w
        i = p - j * w
        total = 0
        for b in hal.unroll(3):
            jj = j + b - 1
            if jj < 0:
                jj = hal.int64(0)
            if jj >= h:
                jj = h - 1
            for a in range(3):
                ii = i + hal.int64(a) - 1
                if ii < 0:
                    ii = hal.int64(0)
                elif ii > w - 1:
                    ii = w - 1
                total += (3 * b + a) * x[jj * w + ii]
        y[p] = total + 7 * x[j * w + (i - h) % w]


@shaped
def in_space(y: Numbers, x: Inputs, w: I32, h: I32):
    k = hal.global_idx(0)
    if k >= w * h:
        return
    rest = k % (w * 2)
    y[k] = 1000 * (k // (w * 2)) + 100 * (rest // w) + x[rest % w] + k // (k // w + 40)
    if rest % w < w - 2:
        y[k] += 5 + hal.int32(hal.uint32(k) // hal.uint32(w))


WEIGHTS = (3, 1, 4, 1, 5)


@shaped
def few_elements(y: Numbers, x: Inputs, w: I32, h: I32):
    """Neighbours load one element, of arrays and of a table."""
    i = hal.global_idx(0)
    if i < w * h:
        y[i] = x[i] * WEIGHTS[i % 5] - x[hal.int32(hal.uint32(i) % hal.uint32(5))]
        y[i] += x[i >> 3] + 3 * x[hal.truncdiv(i, 2)] + hal.int32(x[i // 8] & (128 >> (i & 7)) != 0)


@shaped
def windows(y: Numbers, x: Inputs, w: I32, h: I32):
    i = hal.global_idx(0)
    if i < w:
        total = 0.0
        for j in range(4 * i + h, 4 * i + h + 4):
            total = total * 0.5 + hal.float32(x[j & 7])
        for j in range(i * (hal.block_idx(0) + h), i * (hal.block_idx(0) + h) + 3):
            total = max(total, hal.float32(x[j & 7]))
            if total > 40.0:
                break
        for j in range(max(i - h, 0), min(w, i + h + 1)):
            total += hal.float32(x[j] * (j % 7))
        y[i] = hal.int32(total)


@shaped
def counted_down(y: Numbers, x: Inputs, w: I32, h: I32):
    for k in range(w * h - 1 - hal.global_idx(0), -1, -hal.grid_dim(0) * hal.block_dim(0)):
        y[k] = x[k // w] * 10 + x[k % w]


@shaped
def up_to_a_limit(y: Numbers, x: Inputs, w: I32, h: I32):
    i = hal.global_idx(0)
    if i < w * h:
        j = -2
        while j <= h - i:
            y[i] += x[abs(j) % 3] * j
            j += 1
        k = h
        while i - 3 <= k:
            y[i] = 3 * y[i] + k
            k -= 1
        y[i] += 100 * j + 1000 * k


@shaped
def short_rows(y: Numbers, x: Inputs, w: I32, h: I32):
    c, i = hal.global_idx(1), hal.global_idx(0)
    if not c > 2 and i < w:
        total = 0
        for k in range(3):
            total += x[k] * x[3 * i + c] + k
        y[3 * i + c] = x[c * w + min(i + 1, w - 1)] * (i // 7) + i % 7 if x[i] > 0 else total


@shaped
def records(y: P[U8], x: C[U8], w: I32, h: I32):
    """Low bits of an index are compared; elements of other dtypes lie some bytes apart."""
    i = hal.global_idx(0)
    if i < w:
        c = i % 4
        t = hal.int64(hal.thread_idx(0)) & 7
        v = 255 - x[i] if c != 3 else x[i]
        if c == 0 or t > 5 or c >= 300 or c < -1:
            v ^= 64
        if 1 < c <= 2 and i & 255 != 9:
            v += hal.uint8(c)
        if hal.uint32(c) > 2 or hal.int64(c) < 1:
            v ^= 2
        y[i] = v
    if i < w // 12:
        y[w + i] = x[12 * i + 4] - x[12 * i]


@shaped
def one_store_of_a_chain(y: P[U8], x: C[U8], w: I32, h: I32):
    i = hal.global_idx(0)
    whole = hal.bitcast(hal.int16, y)
    if i < w // 2:
        v = hal.int16(x[i]) - 60
        if v > 9:
            whole[i] = 1
        elif v < -9:
            whole[i] = -1
        else:
            whole[i] = 0


@shaped
def where_data_say(y: Numbers, x: Inputs, w: I32, h: I32):
    """LLVM 22 computed addresses in lanes that do not run the IF."""
    i = hal.global_idx(0)
    if i < w * h:
        total = 0
        for k in range(hal.thread_idx(0) & 15):
            if x[i] > 10:
                total = total * 3 + x[k % w]
            if x[k & 1] > 20:
                total += x[i + (k & 3)] + x[i + hal.int32(hal.uint8(k + 3) & 3)] * 3
            total += k
        y[i] = total


@limited
def wide_sums(y: Numbers, x: Inputs, w: L, h: L):
    k = hal.int64(hal.global_idx(0))
    i = (k - h) % w
    y[k] = hal.int32((k + h) % w) + hal.int32((k + h + 5) // w) + hal.int32((k - 3 * h) % w)
    if i + 40 < 100:
        y[k] += x[(k % w - h + w) % w & 63] + x[(k - 1 + h) % h & 63]
    if k + h < w:
        y[k] += x[min(max(k + h - 1, 0), 63)] + x[(k + h) % 64]


@limited
def rolled(y: Numbers, x: Inputs, w: I32, h: I32):
    i = hal.global_idx(0)
    y[i] = x[(i - h + w) % w & 63] + 100 * x[(i % w + w + h) % w & 63] + 7 * x[(i + w + 5) % 8]
    ii = i - h
    if ii < 0:
        ii += w
    if ii >= w:
        ii -= w
    y[i] += 3 * x[ii & 63] + x[min(max(i - w * h, 0), 63)] + x[min(max(i - i // w * h, 0), 63)]
    k = i + 2 + h - 3
    if k < w or w == k + 5:
        y[i] += 1
    elif k >= 3:
        y[i] += 2 + min(k, w)


@limited
def divided(y: Numbers, x: Inputs, w: I32, h: I32):
    k = hal.global_idx(0) + h
    i = (k - 1) % w
    if i + 40 < 100:
        y[hal.global_idx(0)] = x[(k - 1) // w & 63]
    y[hal.global_idx(0)] += k // w + 3 * (k % w) + h // w * 5 + x[k & 63] // w + k * 40503 % 7


@limited
def guarded(y: Numbers, x: Inputs, w: I32, h: I32):
    """Sums of the guards wrap, and products leave int64."""
    i = hal.global_idx(0)
    for q in range(3):
        j = hal.block_idx(0) * 128 + h + hal.thread_idx(0) + q * 32
        if j < w:
            y[i] += x[j & 63]
        if w > i * h + q or (i & -4) + h < w:
            y[i] += 5
    k = hal.int64(i + w)
    y[i] += (1 if k >> 63 > 1 else 2) + (3 if k // (2**63 - 1) > 1 or k & -(2**62) > 1 else 0)
    y[i] += x[min(max(i + (h * 2000000000) * (w * 2000000000), 0), 63)]


@limited
def ends(y: Numbers, x: Inputs, w: I32, h: I32):
    """Loops whose end wraps in some threads, or in all; a stride of which three wrap."""
    i = hal.global_idx(0)
    total = 0
    for k in range(w - 5, w + i):
        total = total * 3 + (k & 7)
        if k - w > 90:
            break
    for k in range(w - 8, min(w - i, w + 4)):
        total = total * 5 + (k & 7)
    j = i
    while j < w and total & 15 != 3:
        total = total * 3 + x[j & 63]
        j += 1431655786
    y[i] = total


@shaped
def made_of_itself(y: Numbers, x: Inputs, w: I32, h: I32):
    """Numbers that are made of themselves 26 times: each was looked at for every way to it."""
    k = hal.global_idx(0)
    power, more, less, found = k // w, k, k, k % w
    for _ in hal.unroll(26):
        power *= power
        more += more
        less += less
    if more < less:
        more = less + 1
    v = hal.uint16(x[k // w & 63])
    root = hal.uint16(0)
    for _ in range(16):
        if (root + hal.uint16(1)) * (root + hal.uint16(1)) <= v:
            root += hal.uint16(1)
    y[k] = power + more + found + hal.int32(root)
