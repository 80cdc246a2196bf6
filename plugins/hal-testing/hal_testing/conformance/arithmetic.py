"""Make kernels for one dtype: every operation, every cast, every math function."""

from __future__ import annotations

from functools import cache

import numpy as np

import hal_core as hal
from hal_kernel.interpreter.casts import stored_as
from hal_kernel.lang.function import KernelFunction
from hal_testing.conformance import edges
from hal_testing.conformance.language import Sample

# mypy: disable-error-code="valid-type, no-untyped-call, arg-type, var-annotated"

# Rows of results that a kernel writes, n elements each. A device may round the last two rows of
# floats, a quotient and a square root, in its own way.
INTEGER_ROWS, FLOAT_ROWS, ROUNDED_ROWS = 20, 18, 2


@hal.func
def compared(p, q):  # type: ignore[no-untyped-def]
    """Set one bit for each comparison that is true."""
    bits = 1 if p < q else 0
    bits += 2 if p <= q else 0
    bits += 4 if p == q else 0
    bits += 8 if p != q else 0
    bits += 16 if p > q else 0
    bits += 32 if p >= q else 0
    return bits


@cache
def integer_operations(dtype: hal.DType) -> KernelFunction:
    @hal.kernel
    def operations(
        y: hal.Ptr[dtype], a: hal.ConstPtr[dtype], b: hal.ConstPtr[dtype], n: hal.int32
    ) -> None:
        i = hal.global_idx(0)
        if i < n:
            p, q = a[i], b[i]
            y[i] = p + q
            y[n + i] = p - q
            y[2 * n + i] = p * q
            y[3 * n + i] = p // q
            y[4 * n + i] = p % q
            y[5 * n + i] = p & q
            y[6 * n + i] = p | q
            y[7 * n + i] = p ^ q
            y[8 * n + i] = p << q
            y[9 * n + i] = p >> q
            y[10 * n + i] = min(p, q)
            y[11 * n + i] = max(p, q)
            y[12 * n + i] = ~p
            y[13 * n + i] = -p
            y[14 * n + i] = abs(p)
            # The addition must not run, or not show, where it is not chosen.
            y[15 * n + i] = p if p < q else q + 1
            y[16 * n + i] = p**2
            y[17 * n + i] = dtype(compared(p, q))
            y[18 * n + i] = hal.truncdiv(p, q)
            y[19 * n + i] = hal.truncmod(p, q)

    return operations


@cache
def float_operations(dtype: hal.DType) -> KernelFunction:
    """Make a kernel of every float operation; only some drivers round the last rows exactly."""

    @hal.kernel(contract=False)
    def operations(
        y: hal.Ptr[dtype], a: hal.ConstPtr[dtype], b: hal.ConstPtr[dtype], n: hal.int32
    ) -> None:
        i = hal.global_idx(0)
        if i < n:
            p, q = a[i], b[i]
            y[i] = p + q
            y[n + i] = p - q
            y[2 * n + i] = p * q
            y[3 * n + i] = min(p, q)
            y[4 * n + i] = max(p, q)
            y[5 * n + i] = -p
            y[6 * n + i] = abs(p)
            y[7 * n + i] = hal.floor(p)
            y[8 * n + i] = hal.ceil(p)
            y[9 * n + i] = hal.trunc(p)
            y[10 * n + i] = round(p)
            y[11 * n + i] = hal.fmod(p, q)
            y[12 * n + i] = hal.fma(p, q, p)
            # Rounded twice: `contract=False` forbids the fma that the row above asks for.
            y[13 * n + i] = p * q + p
            y[14 * n + i] = dtype(compared(p, q))
            y[15 * n + i] = 1 if hal.isnan(p) else 0
            y[16 * n + i] = p / q
            y[17 * n + i] = hal.sqrt(p)

    return operations


@hal.kernel
def bool_operations(
    y: hal.Ptr[hal.bool_], a: hal.ConstPtr[hal.bool_], b: hal.ConstPtr[hal.bool_], n: hal.int32
) -> None:
    i = hal.global_idx(0)
    if i < n:
        p, q = a[i], b[i]
        y[i] = p & q
        y[n + i] = p | q
        y[2 * n + i] = p ^ q
        y[3 * n + i] = not p
        # Values of bools in memory are 0 and 1 only, whatever an expression computes.
        y[4 * n + i] = (p and q) or not (p or q)
        y[5 * n + i] = p == q
        y[6 * n + i] = p < q
        y[7 * n + i] = q if p else p


@cache
def casts(source: hal.DType) -> KernelFunction:
    """Make a kernel that casts to every dtype of up to 32 bits."""

    @hal.kernel
    def convert(
        b: hal.Ptr[hal.bool_], i8: hal.Ptr[hal.int8], i16: hal.Ptr[hal.int16],
        i32: hal.Ptr[hal.int32], u8: hal.Ptr[hal.uint8], u16: hal.Ptr[hal.uint16],
        u32: hal.Ptr[hal.uint32], h: hal.Ptr[hal.float16], f: hal.Ptr[hal.float32],
        x: hal.ConstPtr[source], n: hal.int32,
    ) -> None:  # fmt: skip
        i = hal.global_idx(0)
        if i < n:
            v = x[i]
            b[i] = hal.bool_(v)
            i8[i] = hal.int8(v)
            i16[i] = hal.int16(v)
            i32[i] = hal.int32(v)
            u8[i] = hal.uint8(v)
            u16[i] = hal.uint16(v)
            u32[i] = hal.uint32(v)
            f[i] = hal.float32(v)
            h[i] = hal.float32(v)  # rounded by the store: no value in a kernel is a float16

    return convert


CAST_TARGETS = (
    hal.bool_, hal.int8, hal.int16, hal.int32, hal.uint8, hal.uint16, hal.uint32, hal.float16,
    hal.float32,
)  # fmt: skip


@cache
def caster(source: hal.DType, target: hal.DType) -> KernelFunction:
    @hal.kernel
    def convert(y: hal.Ptr[target], x: hal.ConstPtr[source], n: hal.int32) -> None:
        i = hal.global_idx(0)
        if i < n:
            y[i] = target(x[i])

    return convert


@cache
def carrier(dtype: hal.DType) -> KernelFunction:
    """Make a kernel that reverses every 32 elements in shared memory."""

    @hal.kernel(block=(32, 1, 1))
    def carries(y: hal.Ptr[dtype], x: hal.ConstPtr[dtype]) -> None:
        tile = hal.shared(dtype, 32)
        tile[hal.thread_idx(0)] = x[hal.global_idx(0)]
        hal.barrier()
        y[hal.global_idx(0)] = tile[31 - hal.thread_idx(0)]

    return carries


@cache
def narrower(dtype: hal.DType) -> KernelFunction:
    """Make a kernel that rounds to a 16-bit float, by a store and by an explicit cast."""

    @hal.kernel
    def narrows(
        y: hal.Ptr[dtype], z: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], n: hal.int32
    ) -> None:
        i = hal.global_idx(0)
        if i < n:
            y[i] = x[i]
            z[i] = dtype(x[i])

    return narrows


def sample_of_operations(dtype: hal.DType) -> Sample:
    a, b = edges.pairs(edges.operands(dtype))
    n, ulps = len(a), {}
    if dtype is hal.bool_:
        kernel, rows = bool_operations, 8
    elif dtype.is_integer:
        kernel, rows = integer_operations(dtype), INTEGER_ROWS
    else:
        kernel, rows = float_operations(dtype), FLOAT_ROWS
        ulps = {0: np.repeat([0] * (rows - ROUNDED_ROWS) + [3] * ROUNDED_ROWS, n)}
    y = np.zeros(rows * n, stored_as(dtype))
    return Sample(kernel, [y, a, b], (n,), {"threads": n}, ulps)


def sample_of_casts(source: hal.DType) -> Sample:
    x = edges.numbers(source)
    made = [np.zeros(len(x), stored_as(dtype)) for dtype in CAST_TARGETS]
    return Sample(casts(source), [*made, x], (len(x),), {"threads": len(x)})


def samples_of_wide_casts(source: hal.DType) -> list[Sample]:
    """Return a cast to each dtype of 64 bits: a device may lack some of them."""
    x, targets = edges.numbers(source), (hal.int64, hal.uint64, hal.float64)
    return [
        Sample(caster(source, target), [np.zeros(len(x), target.to_numpy()), x], (len(x),),
               {"threads": len(x)})
        for target in targets
    ]  # fmt: skip
