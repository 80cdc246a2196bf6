"""Python numbers as constants of a dtype: numpy is the second opinion."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_files import IMPORTS, load

import hal_core as hal
from hal_core import dtypes
from hal_core.dtypes import DTYPES
from hal_kernel.interpreter import interpret
from hal_kernel.interpreter.operations import OPERATIONS
from hal_kernel.lang.constants import FOLDS, convert, fit, fold
from hal_kernel.lang.mathematics import MATH

INTEGERS = [dtype for dtype in DTYPES.values() if dtype.is_integer]
FLOATS = [DTYPES[name] for name in ("float16", "float32", "float64")]
EDGES = st.sampled_from([0, 1, *(1 << bits for bits in (7, 8, 24, 31, 32, 53, 63, 64, 128, 2000))])
INTS = st.one_of(st.integers(-300, 300), st.builds(lambda a, b, s: s * (a + b), EDGES,
                 st.integers(-2, 2), st.sampled_from((1, -1))))  # fmt: skip


@given(INTS, st.sampled_from(INTEGERS))
def test_an_integer_is_held_exactly_or_not_at_all(value, dtype):
    limits = np.iinfo(dtype.to_numpy())
    fits = limits.min <= value <= limits.max
    assert fit(value, dtype) == (value if fits else None)


@given(INTS, st.sampled_from(FLOATS))
def test_an_integer_as_float_is_exact(value, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy warns where a cast overflows
        try:
            rounded = float(np.float64(value).astype(dtype.to_numpy()))
        except OverflowError:
            rounded = math.inf
    exact = math.isfinite(rounded) and int(rounded) == value
    assert fit(value, dtype) == (value if exact else None)


@given(st.floats(), st.sampled_from(FLOATS))
def test_a_float_rounds_but_not_to_infinity(value, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rounded = float(np.float64(value).astype(dtype.to_numpy()))
    got = fit(value, dtype)
    if math.isinf(rounded) and not math.isinf(value):
        assert got is None
    else:
        assert got is not None and (got == value or math.isnan(value))


@given(st.floats(), st.sampled_from([*INTEGERS, dtypes.bool_]))
def test_a_float_is_no_integer_constant(value, dtype):
    assert fit(value, dtype) is None


@given(st.floats(-1e6, 1e6), st.sampled_from(INTEGERS))
def test_a_cast_cuts_towards_zero(value, dtype):
    assert convert(value, dtype) == fit(math.trunc(value), dtype)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [(math.nan, dtypes.int32, None), (math.inf, dtypes.int64, None), (-0.5, dtypes.uint8, 0),
     (2, dtypes.bool_, True), (0.0, dtypes.bool_, False), (True, dtypes.int8, 1),
     (10**400, dtypes.float64, None), (16777217, dtypes.float32, 16777217.0),
     (math.inf, dtypes.float32, math.inf), (3.4028235e38, dtypes.float32, 3.4028235e38)],
)  # fmt: skip
def test_casts_at_the_edges(value, dtype, expected):
    got = convert(value, dtype)
    assert got == expected and type(got) is type(expected)


@given(st.sampled_from(list(FOLDS)), st.integers(-50, 50), st.integers(-50, 50))
def test_folding_is_pythons(symbol, left, right):
    if symbol in ("is", "is not"):
        return
    try:
        expected = eval(f"({left}) {symbol} ({right})")
    except (ArithmeticError, ValueError) as error:
        with pytest.raises(type(error)):
            fold(symbol, left, right)
    else:
        try:
            assert fold(symbol, left, right) == expected
        except OverflowError:
            assert abs(expected).bit_length() > 128  # refused before it is computed


@pytest.mark.parametrize(("symbol", "left", "right"), [("<<", 1, 10**9), ("**", 10**9, 10**9)])
def test_enormous_numbers_are_not_computed(symbol, left, right):
    with pytest.raises(OverflowError, match="bits"):
        fold(symbol, left, right)


@pytest.mark.parametrize("x", [2.5, -2.5, 0.3, -0.3, -0.0, 3.0])
@pytest.mark.parametrize("function", ["round", "hal.floor", "hal.ceil", "hal.trunc"])
def test_rounded_constants_are_floats_with_the_sign_of_the_rounded(function, x, tmp_path):
    text = f"""
@hal.kernel
def f(y: hal.Ptr[hal.float64], x: hal.float64) -> None:
    v = {function}({x!r})
    y[0] = {function}({x!r})
    y[1] = {function}(x)
    y[2] = hal.float64(v / 2)  # v is a float
"""
    y = np.zeros(3)
    interpret(load(tmp_path, IMPORTS + text).f, y, vals=(x,), threads=1)
    assert y[0].tobytes() == y[1].tobytes()


def test_python_computes_math_of_constants(tmp_path):
    text = """
N = 24

@hal.kernel
def f(y: hal.Ptr[hal.float64]) -> None:
    y[0] = math.sqrt(2.0) + math.gcd(N, 36) + math.log2(N // 3)
    y[math.ceil(0.5)] = -math.inf if math.isfinite(N) else 0.0
"""
    y = np.zeros(2)
    interpret(load(tmp_path, IMPORTS + text).f, y, threads=1)
    assert y.tolist() == [math.sqrt(2.0) + 12 + 3, -math.inf]


@given(INTS.filter(lambda v: abs(v) < 2**31), INTS.filter(lambda v: 0 < abs(v) < 2**31))
def test_division_of_numbers_towards_zero(a, b):
    """Numbers give what `operations` give for typed values."""
    folded = [MATH[function].fold(a, b) for function in (hal.truncdiv, hal.truncmod)]
    wide = [np.array([value], np.int64) for value in (a, b)]
    assert folded == [OPERATIONS[op](*wide)[0] for op in ("TRUNCDIV", "TRUNCMOD")]
    assert folded[0] * b + folded[1] == a and abs(folded[1]) < abs(b)


@hal.kernel
def powers(y: hal.Ptr[hal.float64], z: hal.Ptr[hal.int32], x: hal.float64, n: hal.int32) -> None:
    for k in hal.unroll(2, 9):
        y[k] = x**k
        z[k] = n**k
    y[9] = x**3.0
    y[10] = x**9


@pytest.mark.parametrize(("x", "n"), [(1.5, 3), (-2.0, -7), (0.0, 0), (1e200, 2**31 - 1)])
def test_constant_powers_from_2_to_8_are_products(x, n):
    """`pow` took 15 times as long in float64, and integers have none."""
    ops = [node.op for node in powers.lower().uops]
    assert ops.count("POW") == 1  # x ** 9
    y, z = np.zeros(11), np.zeros(9, "i4")
    interpret(powers, y, z, vals=(x, n), threads=1)
    with np.errstate(over="ignore"):
        expected = np.power(x, np.array([*range(2, 9), 3, 9], "f8"))
        np.testing.assert_allclose(y[2:], expected, rtol=8 * 2.0**-53)
    assert z[2:].tolist() == [(n**k + 2**31) % 2**32 - 2**31 for k in range(2, 9)]
