"""Every operation of the IR against Python's integers, fractions and math."""

import math
from itertools import product

import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_operation import compute
from oracles import COMPUTED, FLOATS, INTEGERS, numbers, same

from hal_core.dtypes import bool_, float32, float64, int8, uint8
from hal_kernel.interpreter.operations import OPERATIONS
from hal_kernel.ir.rules import SOURCE_COUNTS
from hal_kernel.ir.uop import BINARY, BITWISE, COMPARISON, UNARY

INTEGER_OPS = sorted({*oracles.INTEGER, *oracles.BITS, "SHL", "SHR", "NOT"})
MATH = {
    "SQRT": math.sqrt, "RSQRT": lambda x: 1 / math.sqrt(x), "EXP": math.exp,
    "EXP2": math.exp2, "LOG": math.log, "LOG2": math.log2, "SIN": math.sin,
    "COS": math.cos, "TAN": math.tan, "TANH": math.tanh, "ATAN": math.atan,
    "ATAN2": math.atan2, "POW": math.pow, "FMOD": math.fmod,
}  # fmt: skip
EXACT = ("SQRT", "FMOD")
WHOLE = ("FLOOR", "CEIL", "TRUNC", "ROUND")
# Where Python's math raises: a pole, or no real result.
POLES = {
    ("LOG", 0.0): -math.inf, ("LOG2", 0.0): -math.inf, ("RSQRT", 0.0): math.inf,
}  # fmt: skip


def check(op, sources, target, rows, oracle):
    for row, got in zip(rows, compute(op, sources, target, rows), strict=True):
        expected = oracle(*row)
        assert same(got, expected), f"{op} of {row} in {target}: {got!r}, not {expected!r}"


def rows(op, dtype):
    return list(product(numbers(dtype), repeat=SOURCE_COUNTS[op]))


def test_every_operation_is_here():
    tested = {*INTEGER_OPS, *MATH, *WHOLE, *COMPARISON, "DIV", "FMA", "ISNAN", "WHERE"}
    assert tested == set(OPERATIONS) == UNARY | BINARY | COMPARISON | {"WHERE", "FMA"}


@pytest.mark.parametrize("dtype", INTEGERS, ids=repr)
@pytest.mark.parametrize("op", INTEGER_OPS)
def test_integers(op, dtype):
    check(
        op, [dtype] * SOURCE_COUNTS[op], dtype, rows(op, dtype),
        lambda *values: oracles.integer(op, dtype, *values),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [int8, uint8], ids=repr)
@pytest.mark.parametrize("op", ["FLOORDIV", "MOD", "TRUNCDIV", "TRUNCMOD", "MUL", "SHL", "SHR"])
def test_all_pairs_of_bytes(op, dtype):
    every = range(int(dtype.min), int(dtype.max) + 1)
    check(
        op, [dtype] * 2, dtype, list(product(every, repeat=2)),
        lambda a, b: oracles.integer(op, dtype, a, b),
    )  # fmt: skip


@pytest.mark.parametrize("op", [*sorted(BITWISE), "NOT"])
def test_bools(op):
    count = SOURCE_COUNTS[op]
    oracle = (lambda a: not a) if op == "NOT" else oracles.BITS[op]
    check(op, [bool_] * count, bool_, rows(op, bool_), oracle)


@pytest.mark.parametrize("dtype", COMPUTED, ids=repr)
@pytest.mark.parametrize("op", sorted(COMPARISON))
def test_comparisons(op, dtype):
    check(op, [dtype] * 2, bool_, rows(op, dtype), oracles.COMPARISONS[op])


@pytest.mark.parametrize("dtype", COMPUTED, ids=repr)
def test_where(dtype):
    choices = [(c, a, b) for c in (False, True) for a, b in rows("ADD", dtype)]
    check("WHERE", [bool_, dtype, dtype], dtype, choices, lambda c, a, b: a if c else b)


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
@pytest.mark.parametrize("op", ["ADD", "SUB", "MUL", "DIV", "FMA"])
def test_reals(op, dtype):
    count = SOURCE_COUNTS[op]
    some = rows(op, dtype) if count == 2 else list(product(numbers(dtype)[::5], repeat=3))
    check(op, [dtype] * count, dtype, some, lambda *v: oracles.real(op, dtype, *v))


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
def test_signs_and_choices_of_reals(dtype):
    def minimum(a, b):
        return b if b < a else a

    def maximum(a, b):
        return b if b > a else a

    check("MIN", [dtype] * 2, dtype, rows("MIN", dtype), minimum)
    check("MAX", [dtype] * 2, dtype, rows("MAX", dtype), maximum)
    check("NEG", [dtype], dtype, rows("NEG", dtype), lambda a: -a)
    check("ABS", [dtype], dtype, rows("ABS", dtype), abs)
    check("ISNAN", [dtype], bool_, rows("ISNAN", dtype), math.isnan)


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
@pytest.mark.parametrize("op", WHOLE)
def test_whole_numbers(op, dtype):
    check(op, [dtype], dtype, rows(op, dtype), lambda value: oracles.whole(op, value))


def python_math(op, *values):
    """Return Python's result, or that of IEEE 754 where Python raises."""
    if (op, abs(values[0])) in POLES:
        pole = POLES[op, abs(values[0])]
        return math.copysign(pole, values[0]) if op == "RSQRT" else pole
    if op == "RSQRT" and values[0] == math.inf:
        return 0.0
    try:
        return MATH[op](*values)
    except OverflowError:
        return -math.inf if op == "POW" and values[0] < 0 and _is_odd(values[1]) else math.inf
    except ValueError:
        if op == "POW" and values[0] == 0:  # to a negative power
            return math.copysign(math.inf, values[0]) if _is_odd(values[1]) else math.inf
        return math.nan


def _is_odd(value):
    return value.is_integer() and value % 2 == 1


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
@pytest.mark.parametrize("op", MATH)
def test_math(op, dtype):
    """float32 is rounded once: within a bit over half a unit of what float64 gives."""
    some = rows(op, dtype)
    count = SOURCE_COUNTS[op]
    for row, got in zip(some, compute(op, [dtype] * count, dtype, some), strict=True):
        expected = python_math(op, *row)
        told = f"{op} of {row} in {dtype}: {got!r}, not {expected!r}"
        if not math.isfinite(got) or not math.isfinite(expected) or got == 0:
            tiny = abs(expected) <= 2.0 ** (oracles.FORMATS[dtype.name][1] - 23)
            large = abs(expected) > dtype.max and math.isinf(got) and got * expected > 0
            zero = got == 0 and tiny and math.copysign(1, got) == math.copysign(1, expected)
            assert same(got, expected) or large or zero, told
            continue
        significand, least, _ = oracles.FORMATS[dtype.name]
        unit = 2.0 ** (max(math.frexp(got)[1] - 1, least) - significand + 1)
        allowed = 0 if op == "FMOD" else 0.501 if dtype is float32 or op in EXACT else 1
        assert abs(got - expected) <= allowed * unit, told


# -- one rounding


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
def test_fma_rounds_once(dtype):
    """Products lie halfway between two numbers, and a far smaller addend decides."""
    bits = oracles.FORMATS[dtype.name][0]
    a, b = 2.0 ** (bits // 2) + 1, 2.0 ** (bits - bits // 2) + 1  # needs one bit too many
    scales = [2.0**k for k in (-40, -3, 0, 5, 40)]
    some = [
        (sign * a * scale, b * scale, tiny * scale**2)
        for sign in (1.0, -1.0)
        for scale in scales
        for tiny in (0.0, 2.0**-60, -(2.0**-60), 2.0**-20, 0.5, -0.5)
    ]
    some += [(2.0**-80, 2.0**-69, tiny) for tiny in (0.0, 2.0**-149, -(2.0**-149))]
    check("FMA", [dtype] * 3, dtype, some, lambda *v: oracles.real("FMA", dtype, *v))


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
@given(data=st.data())
def test_fma_of_any_floats(dtype, data):
    number = st.floats(width=8 * dtype.itemsize)
    some = data.draw(st.lists(st.tuples(number, number, number), min_size=1))
    check("FMA", [dtype] * 3, dtype, some, lambda *v: oracles.real("FMA", dtype, *v))


@pytest.mark.parametrize("scale", [0, -300, 300, -520, 505])
def test_fma_of_what_nearly_cancels(scale):
    """The sum has few digits of the product left, or lies next to the middle of two floats."""
    random = np.random.default_rng(5)
    a, b = np.ldexp(random.uniform(0.5, 1, (2, 1500)) * random.choice([-1, 1], (2, 1500)), scale)
    with np.errstate(all="ignore"):
        c = -(a * b) * (1 + random.integers(-3, 4, 1500) * 2.0 ** -random.integers(1, 60, 1500))
        far = a * b * 2.0 ** random.integers(-60, 60, 1500)
    some = [*zip(a, b, c, strict=True), *zip(a, b, far, strict=True)]
    check("FMA", [float64] * 3, float64, some, lambda *v: oracles.real("FMA", float64, *v))
