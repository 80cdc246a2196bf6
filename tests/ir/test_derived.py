"""Functions that the front end writes out: how far from the exact value, C99's special cases, and
the same on every device. Errors are in units in the last place of the result."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from columns import DTYPES, Array, errors, every, on_columns, scattered, specials

import hal_core as hal
from hal_core.dtypes import DTYPES as EVERY
from hal_core.dtypes import DType, float32, float64
from hal_kernel.interpreter import interpret
from hal_kernel.ir import Kernel
from hal_kernel.ir.math import DERIVED
from hal_kernel.ir.verify import verify
from hal_kernel.lang.mathematics import MATH

UNARY: dict[str, Callable[..., Array]] = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh,
    "atanh": np.arctanh, "cosh": np.cosh, "expm1": np.expm1, "log10": np.log10, "log1p": np.log1p,
    "sinh": np.sinh,
    "erf": np.vectorize(math.erf, otypes=[float]), "erfc": np.vectorize(math.erfc, otypes=[float]),
}  # fmt: skip
BINARY: dict[str, Callable[..., Array]] = {"hypot": np.hypot, "copysign": np.copysign}
EXACT = UNARY | BINARY
INTEGERS = [dtype for dtype in EVERY.values() if dtype.is_integer]
TESTS = {"isinf": np.isinf, "isfinite": np.isfinite}
LIMITS: dict[str, float] = {"acos": 2.5, "asin": 3, "sinh": 2.5, "erfc": 4.5}  # of the others 2


def kernel_of(name: str, dtype: DType) -> Kernel:
    function: Any = getattr(hal, name)
    made: Any
    if name in UNARY:

        @hal.kernel
        def unary(r: hal.Ptr[dtype], x: hal.ConstPtr[dtype]) -> None:  # type: ignore[valid-type]
            i = hal.global_idx(0)
            r[i] = function(x[i])

        made = unary
    else:

        @hal.kernel
        def binary(
            r: hal.Ptr[dtype],  # type: ignore[valid-type]
            x: hal.ConstPtr[dtype],  # type: ignore[valid-type]
            y: hal.ConstPtr[dtype],  # type: ignore[valid-type]
        ) -> None:
            i = hal.global_idx(0)
            r[i] = function(x[i], y[i])

        made = binary
    kernel: Kernel = made.lower()
    return kernel


def exact(name: str, dtype: DType, *columns: Array) -> Array:
    """In a wider float; Python has erf and erfc in float64 only, off by less than a unit."""
    wide = np.float64 if dtype is float32 or name in ("erf", "erfc") else np.longdouble
    with np.errstate(all="ignore"):
        return np.asarray(EXACT[name](*(column.astype(wide) for column in columns)))


def check(name: str, dtype: DType, *columns: Array, fused: bool = False) -> None:
    with np.errstate(all="ignore"):
        got = on_columns(kernel_of(name, dtype), columns, fused)
    expected = exact(name, dtype, *columns)
    units = errors(got, expected, dtype)
    worst = int(np.argmax(units))
    where = tuple(column[worst] for column in columns)
    assert units[worst] <= LIMITS.get(name, 2.0), (
        f"{name}{where} = {got[worst]!r}, exactly {expected[worst]!r}"
    )


def arguments(dtype: DType, seed: int) -> Array:
    """Of all sizes, and many where the functions bend."""
    random = np.random.default_rng(seed)
    ends = (1, 1.5, 6, 28, 90, 712)
    near = np.concatenate([random.uniform(-end, end, 8_000) for end in ends])
    around_one = 1 + random.choice([-1, 1], 4_000) * 2.0 ** random.uniform(-52, 0, 4_000)
    return np.concatenate([scattered(dtype, 15_000, seed), near, around_one, -around_one]).astype(
        dtype.to_numpy()
    )


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("fused", [False, True])
def test_float32_of_one_argument(name: str, fused: bool) -> None:
    values = np.concatenate([every(32771), arguments(float32, 1)])
    check(name, float32, values[:: 10 if fused else 1], fused=fused)


@pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 60, reason="no float here is wider than float64"
)
@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("fused", [False, True])
def test_float64_of_one_argument(name: str, fused: bool) -> None:
    check(name, float64, arguments(float64, 2)[:: 10 if fused else 1], fused=fused)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_of_two_arguments(name: str, dtype: DType) -> None:
    x = arguments(dtype, 3)
    random = np.random.default_rng(4)
    with np.errstate(all="ignore"):
        near = (x * random.uniform(0.1, 4, len(x))).astype(x.dtype)
    check(name, dtype, x, near)
    check(name, dtype, x, random.permutation(x))


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_special_arguments(name: str, dtype: DType) -> None:
    """Every pair, signs of zeros included, as C99's functions have it: numpy calls those."""
    values = specials(dtype)
    columns = [values]
    if name in BINARY:
        columns = [part.ravel() for part in np.meshgrid(values, values)]
    got = np.zeros_like(columns[0])
    interpret(kernel_of(name, dtype), got, *columns, threads=len(got), block=1)
    units = errors(got, exact(name, dtype, *columns), dtype)
    wrong = [(*(column[k] for column in columns), got[k]) for k in np.flatnonzero(units > 4.5)]
    assert not wrong


@pytest.mark.parametrize("name", TESTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_gives_a_bool(name: str, dtype: DType) -> None:
    function: Any = getattr(hal, name)

    @hal.kernel
    def tell(r: hal.Ptr[hal.bool_], x: hal.ConstPtr[dtype]) -> None:  # type: ignore[valid-type]
        i = hal.global_idx(0)
        r[i] = function(x[i])

    values = specials(dtype)
    got = np.zeros(len(values), bool)
    interpret(tell, got, values, threads=len(values), block=1)
    assert got.tolist() == TESTS[name](values).tolist()


def _trailing(x: int, width: int) -> int:
    return (x & -x).bit_length() - 1 if x else width


BITS: dict[str, Callable[[int, int], int]] = {
    "popcount": lambda x, width: x.bit_count(),
    "clz": lambda x, width: width - x.bit_length(),
    "ctz": _trailing,
}


@pytest.mark.parametrize("name", BITS)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_functions_of_bits(name: str, dtype: DType) -> None:
    function: Any = getattr(hal, name)

    @hal.kernel
    def count(r: hal.Ptr[dtype], x: hal.ConstPtr[dtype]) -> None:  # type: ignore[valid-type]
        i = hal.global_idx(0)
        r[i] = function(x[i])

    width = 8 * dtype.itemsize
    raw = np.random.default_rng(1).bytes(4096) + bytes(64) + bytes([255]) * 64
    single = np.array([1 << k for k in range(width)], f"u{dtype.itemsize}")
    columns = [np.frombuffer(raw, single.dtype), single, single - 1, ~single]
    x = np.concatenate(columns) if width > 8 else np.arange(256, dtype=np.uint8)
    got = np.zeros(len(x), dtype.to_numpy())
    interpret(count, got, x.view(dtype.to_numpy()), threads=len(x), block=1)
    assert got.tolist() == [BITS[name](value, width) for value in x.tolist()]


@pytest.mark.parametrize("name", EXACT)
def test_numbers_are_computed_by_python(name: str) -> None:
    function: Any = getattr(hal, name)
    numbers = (1.25,) if name == "acosh" else (0.75, -2.0)[: 1 + (name in BINARY)]

    @hal.kernel
    def of_numbers(r: hal.Ptr[hal.float64]) -> None:
        if len(numbers) == 2:
            r[0] = function(numbers[0], numbers[1])
        else:
            r[0] = function(numbers[0])

    got = np.zeros(1)
    interpret(of_numbers, got, threads=1)
    assert got[0] == getattr(math, name)(*numbers)
    assert len(of_numbers.lower().uops) < 6


@pytest.mark.parametrize("name", EXACT)
def test_what_is_written_out_is_plain(name: str) -> None:
    kernel = kernel_of(name, float32)
    verify(kernel)
    assert {node.op for node in kernel.uops} <= {
        "PARAM", "SPECIAL", "LOAD", "STORE", "CONST", "ADD", "SUB", "MUL", "DIV", "FMA", "SQRT",
        "NEG", "ABS", "MIN", "MAX", "LT", "GT", "GE", "EQ", "WHERE", "AND", "OR", "SHL", "SHR",
        "CAST", "BITCAST",
    }  # fmt: skip


def test_every_function_without_an_operation_has_a_formula() -> None:
    derived = {function.op for function in MATH.values() if function.derived}
    assert derived == set(DERIVED) == {name.upper() for name in (*EXACT, *TESTS, *BITS)}
