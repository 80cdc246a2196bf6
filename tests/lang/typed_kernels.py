"""Everything of the kernel language that has types: mypy and pyright accept it as it is."""

from __future__ import annotations

import hal_core as hal


@hal.func
def clamp(v: hal.float32, low: hal.float32, high: hal.float32) -> hal.float32:
    return min(max(v, low), high)


@hal.func
def put(p: hal.Ptr[hal.float32], i: hal.int32, v: hal.float32) -> None:
    p[i] = clamp(v, hal.float32(0), hal.float32(1))


@hal.func
def first(p: hal.ConstPtr[hal.float32]) -> hal.float32:
    return p[0]


@hal.kernel(block=(16, 16))
def everything(
    y: hal.Ptr[hal.float32], h: hal.Ptr[hal.float16], b: hal.ConstPtr[hal.bfloat16],
    c: hal.Ptr[hal.int32], n: hal.int32, m: hal.int64,
) -> None:  # fmt: skip
    i = hal.thread_idx(0)
    j = hal.thread_idx(1)
    tile = hal.shared(hal.float32, (16, 17))
    line = hal.shared(hal.int32, 16)
    half = hal.shared(hal.float16, 16)
    tile[i, j] = y[i]
    tile[i, j] += 1
    line[i] = n
    half[i] = y[i]
    hal.barrier()
    put(tile, i, y[i])
    put(y, i, first(y) + first(tile))
    put(y, 0, clamp(y[i], 0, 1.5) + hal.subgroup_sum(y[i] if i < n else 0))
    old = hal.atomic_add(c, i, 1)
    hal.atomic_max(line, i, old)
    hal.atomic_add(tile, (i, 3), 0.5)
    hal.atomic_compare_exchange(line, m, 0, n)
    hal.atomic_store(tile, (i, 3), 0.5, hal.release)
    hal.atomic_store(line, i, hal.atomic_load(line, m, hal.acquire))
    total = hal.float32(0)
    for k in hal.unroll(4):
        total += y[k] * 2 + h[i] * b[k]
        total += hal.float32(k) * h[i]
        y[k] = k
        y[i + k] = h[i]
        h[i] = total
        h[i] = 2 * h[i]
        h[i] += y[i]
        half[k] += total
    own = hal.local(hal.float32, (2, 2))
    own[0, i] = total
    put(own, j, own[0, 0] + first(own))
    image = hal.view(y, (n, 4))
    image[i, 0] += image[i, 1] * 2
    row = y[i * 4 :]
    row[i] = first(row[1:])
    halves = hal.view(h, n)[2:]
    halves[i] = 2 * halves[i] + image[0, j]
    hal.atomic_add(image, (i, 2), 1)
    p, q = hal.load(y, i * 2, 2)
    r, s, t, u = hal.load(h, i * 4, 4)
    c0, c1, _, _, _, _, _, c7 = hal.load(c, i * 8, 8)
    hal.store(y, i * 4, p, q, r + s, t * u)
    hal.store(h, i * 2, p, 0.5)
    hal.store(c, i * 2, c0 + c1, c7)
    bits = hal.bitcast(hal.int32, total)
    c[i] = bits | old
    assert i < n and bits > 0, "text"
    while i < n:
        i += 1
        if i > 3:
            break
    y[i] = hal.float16(total)
    if 0 < i < n:
        return
    v = max(i, hal.int32(0))
    c[v] = min(i, n)
