"""The amount of a shift may have another dtype than the number that is shifted."""

import numpy as np
import pytest

import hal_core as hal
from hal_kernel.interpreter import interpret

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def make(dtype, by):
    @hal.kernel
    def shifts(
        left: hal.Ptr[dtype], right: hal.Ptr[dtype], x: hal.ConstPtr[dtype], k: hal.ConstPtr[by]
    ) -> None:
        i = hal.global_idx(0)
        left[i] = x[i] << k[i]
        right[i] = x[i]
        right[i] >>= k[i]

    return shifts


@pytest.mark.parametrize("by", INTEGERS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_only_the_low_bits_of_an_amount_count(dtype, by):
    rng, kind, amounts = np.random.default_rng(1), np.iinfo(dtype), np.iinfo(by)
    x = rng.integers(kind.min, kind.max, 256, dtype, endpoint=True)
    k = rng.integers(amounts.min, amounts.max, 256, by, endpoint=True)
    left, right = np.zeros_like(x), np.zeros_like(x)
    interpret(make(getattr(hal, dtype), getattr(hal, by)), left, right, x, k, threads=256)
    masked = [int(amount) & (kind.bits - 1) for amount in k]
    assert right.tolist() == [int(n) >> m for n, m in zip(x, masked, strict=True)]
    wrapped = [(int(n) << m) % 2**kind.bits for n, m in zip(x, masked, strict=True)]
    assert left.view(f"u{left.itemsize}").tolist() == wrapped


def test_a_number_is_shifted_in_the_dtype_of_its_amount():
    @hal.kernel
    def powers(y: hal.Ptr[hal.uint64], k: hal.ConstPtr[hal.uint64]) -> None:
        i = hal.global_idx(0)
        y[i] = 1 << k[i]

    y = np.zeros(64, "u8")
    interpret(powers, y, np.arange(64, dtype="u8"), threads=64)
    assert y.tolist() == [1 << k for k in range(64)]
