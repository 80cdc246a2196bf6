"""Kernels that several chapters launch."""

# The dtypes in annotations are variables here.
# mypy: disable-error-code="valid-type"

from __future__ import annotations

from functools import cache

import hal_core as hal
from hal_kernel.lang.function import KernelFunction


@cache
def copier(dtype: hal.DType) -> KernelFunction:
    """Make a kernel that copies elements of any dtype: y[i] = x[i]."""

    @hal.kernel
    def copies(y: hal.Ptr[dtype], x: hal.ConstPtr[dtype], n: hal.int32) -> None:
        i = hal.global_idx(0)
        if i < n:
            y[i] = x[i]

    return copies


@hal.kernel
def count_up(y: hal.Ptr[hal.int32], start: hal.int32, n: hal.int32) -> None:
    """Store y[i] = start + i."""
    i = hal.global_idx(0)
    if i < n:
        y[i] = start + i


@hal.kernel
def add_one(y: hal.Ptr[hal.int32], n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] = y[i] + 1


@hal.kernel
def doubled(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] = 2.0 * x[i]


@hal.kernel
def slowly(y: hal.Ptr[hal.int32], turns: hal.int32, n: hal.int32) -> None:
    """Store y[i] = turns after that many steps; no compiler can tell that they never lead to 0."""
    i = hal.global_idx(0)
    if i < n:
        x = hal.uint32(i) + 1
        for _ in range(turns):
            # xorshift32, which maps only 0 to 0.
            x ^= x << 13
            x ^= x >> 17
            x ^= x << 5
        y[i] = turns if x != 0 else -1


# -- which threads run


@hal.kernel
def visit(seen: hal.Ptr[hal.int32], who: hal.Ptr[hal.int32], total: hal.Ptr[hal.int32]) -> None:
    """Let every thread, surplus ones too, count itself at its own element and store its indices."""
    width = hal.block_dim(0) * hal.grid_dim(0)
    height = hal.block_dim(1) * hal.grid_dim(1)
    place = hal.global_idx(0) + width * (hal.global_idx(1) + height * hal.global_idx(2))
    hal.atomic_add(seen, place, 1)
    hal.atomic_add(total, 0, 1)
    # Twelve numbers of each thread.
    k = place * 12
    who[k] = hal.thread_idx(0)
    who[k + 1] = hal.thread_idx(1)
    who[k + 2] = hal.thread_idx(2)
    who[k + 3] = hal.block_idx(0)
    who[k + 4] = hal.block_idx(1)
    who[k + 5] = hal.block_idx(2)
    who[k + 6] = hal.block_dim(0)
    who[k + 7] = hal.block_dim(1)
    who[k + 8] = hal.block_dim(2)
    who[k + 9] = hal.grid_dim(0)
    who[k + 10] = hal.grid_dim(1)
    who[k + 11] = hal.grid_dim(2)


@hal.kernel
def add_plainly(y: hal.Ptr[hal.int32], first: hal.int32) -> None:
    """Add without atomics or a guard, so that a thread that runs twice, or never, shows."""
    i = hal.global_idx(0)
    y[i] = y[i] * 2 + first + i


@hal.kernel(block=(6, 5, 1))
def tiled(y: hal.Ptr[hal.int32]) -> None:
    """Use a fixed block and 120 bytes of shared memory."""
    tile = hal.shared(hal.int32, (5, 6))
    tile[hal.thread_idx(1), hal.thread_idx(0)] = hal.global_idx(0)
    hal.barrier()
    # The block is 6 threads wide.
    place = hal.global_idx(0) + hal.grid_dim(0) * 6 * hal.global_idx(1)
    y[place] = tile[4 - hal.thread_idx(1), 5 - hal.thread_idx(0)]


@hal.kernel
def triple(y: hal.Ptr[hal.int32], add: hal.int32, n: hal.int32) -> None:
    """Store y[i] = 3 * y[i] + add, which shows the order of two launches."""
    i = hal.global_idx(0)
    if i < n:
        y[i] = 3 * y[i] + add


# -- arguments


@cache
def keeper(dtype: hal.DType) -> KernelFunction:
    """Make a kernel that stores its value: y[0] = v."""

    @hal.kernel
    def keeps(y: hal.Ptr[dtype], v: dtype) -> None:
        y[hal.global_idx(0)] = v

    return keeps


@cache
def all_keeper(signed: hal.DType, unsigned: hal.DType) -> KernelFunction:
    """Make a kernel with values of every width between its pointers, all differently aligned.

    The first pointer receives the first value, and so on; two values are of the given dtypes.
    """

    @hal.kernel
    def keep_all(
        a: hal.int8, p: hal.Ptr[hal.int8], b: unsigned, q: hal.Ptr[unsigned], c: hal.bool_,
        d: hal.float32, r: hal.Ptr[hal.bool_], s: hal.Ptr[hal.float32], e: hal.int16, f: signed,
        t: hal.Ptr[hal.int16], u: hal.Ptr[signed], g: hal.uint8, v: hal.Ptr[hal.uint8],
        h: hal.uint32, w: hal.Ptr[hal.uint32], x: hal.Ptr[hal.int32], k: hal.int32, m: hal.uint16,
        y: hal.Ptr[hal.uint16],
    ) -> None:  # fmt: skip
        p[0] = a
        q[0] = b
        r[0] = c
        s[0] = d
        t[0] = e
        u[0] = f
        v[0] = g
        w[0] = h
        x[0] = k
        y[0] = m

    return keep_all
