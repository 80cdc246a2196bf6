"""Functions that are written out as arithmetic, by the front end or for a language that lacks them:
how far from the exact value, and C99's special cases. Errors are in units in the last place.

The exact value is numpy's in a wider float.
"""

import math
from functools import cache

import numpy as np
import pytest
from columns import DTYPES, errors, every, on_columns, scattered, specials
from run_python import printed

import hal_core as hal
from hal_core.dtypes import DTYPES as EVERY
from hal_core.dtypes import float32, float64
from hal_kernel.interpreter import interpret
from hal_kernel.ir.expand import FUNCTIONS, expand
from hal_kernel.ir.math import DERIVED, FORMULAS
from hal_kernel.ir.verify import verify
from hal_kernel.lang.mathematics import MATH

UNARY = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh,
    "atan": np.arctan, "atanh": np.arctanh, "cos": np.cos, "cosh": np.cosh, "exp": np.exp,
    "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log10": np.log10, "log1p": np.log1p,
    "log2": np.log2, "sin": np.sin, "sinh": np.sinh, "tan": np.tan, "tanh": np.tanh,
    "erf": np.vectorize(math.erf, otypes=[float]), "erfc": np.vectorize(math.erfc, otypes=[float]),
}  # fmt: skip
BINARY = {
    "atan2": np.arctan2, "copysign": np.copysign, "fmod": np.fmod, "hypot": np.hypot,
    "pow": np.power,
}  # fmt: skip
EXACT = UNARY | BINARY
OPERATIONS = {name for name in EXACT if name.upper() in FORMULAS}  # of the IR, written out late
INTEGERS = [dtype for dtype in EVERY.values() if dtype.is_integer]
TESTS = {"isinf": np.isinf, "isfinite": np.isfinite}
LIMITS = {  # of the others 2
    "acos": 2.5, "asin": 3, "atan2": 2.5, "erfc": 4.5, "sinh": 2.5,
    ("tan", float64): 2.5,
}  # fmt: skip
# Python has erf and erfc in float64 only, off by less than a unit.
NARROW = ("erf", "erfc")
# numpy's float64 functions lose digits of large angles on some machines.
ANGLES = ("sin", "cos", "tan")
IS_WIDER = np.finfo(np.longdouble).nmant >= 60


@cache
def lowered(name, dtype):
    function, is_binary = getattr(hal, name), name in BINARY

    @hal.kernel
    def one(r: hal.Ptr[dtype], x: hal.ConstPtr[dtype], y: hal.ConstPtr[dtype]) -> None:
        i = hal.global_idx(0)
        if is_binary:
            r[i] = function(x[i], y[i])
        else:
            r[i] = function(x[i])

    return one.lower()


@cache
def kernel_of(name, dtype):
    return expand(lowered(name, dtype), {name.upper(): DTYPES})


def compute(name, dtype, *columns, fused=False):
    """Return the results of whole columns. `fused`: sums of products are rounded once."""
    parts = [np.array_split(column, 1 + (len(column) >> 15)) for column in columns]
    kernel = kernel_of(name, dtype)
    with np.errstate(all="ignore"):
        return np.concatenate([on_columns(kernel, p, fused) for p in zip(*parts, strict=True)])


def exact(name, dtype, *columns, wide=np.longdouble):
    if name in NARROW or (dtype is float32 and name not in ANGLES):
        wide = np.float64
    with np.errstate(all="ignore"):
        return np.asarray(EXACT[name](*(column.astype(wide) for column in columns)))


def check(name, dtype, *columns, fused=False):
    if not IS_WIDER and (dtype is float64 or name in ANGLES):
        pytest.skip("no float here is wider than float64")
    got = compute(name, dtype, *columns, fused=fused)
    expected = exact(name, dtype, *columns)
    units = errors(got, expected, dtype)
    worst = int(np.argmax(units))
    limit = LIMITS.get((name, dtype), LIMITS.get(name, 2.0))
    where = tuple(column[worst] for column in columns)
    assert units[worst] <= limit, f"{name}{where} = {got[worst]!r}, exactly {expected[worst]!r}"


def arguments(dtype, seed):
    """Of all sizes, and many where the functions bend."""
    random = np.random.default_rng(seed)
    ends = (1, 1.5, 6, 28, 90, 760, 1080)
    near = np.concatenate([random.uniform(-end, end, 8_000) for end in ends])
    around_one = 1 + random.choice([-1, 1], 4_000) * 2.0 ** random.uniform(-52, 0, 4_000)
    return np.concatenate([scattered(dtype, 15_000, seed), near, around_one, -around_one]).astype(
        dtype.to_numpy()
    )


def near_multiples_of_half_pi(count, seed):
    """float64 that are next to a multiple, of all sizes: what a reduction loses digits with."""
    random = np.random.default_rng(seed)
    half_pi = np.longdouble("1.57079632679489661923132169163975144")
    small = np.arange(1, 2000) * half_pi
    large = np.floor(random.uniform(1, 2, count) * 2.0 ** random.integers(10, 60, count)) * half_pi
    # two that are famous for how near they are
    famous = [6381956970095103.0 * 2.0**797, 5.319372648326541e255]
    return np.concatenate([small.astype(float), large.astype(float), famous])


# One in `step` of some 90,000 arguments; where sums of products are fused many are fractions.
SOME = pytest.mark.parametrize(
    ("step", "fused"), [(3, False), (15, True), pytest.param(1, False, marks=pytest.mark.full)]
)


@pytest.mark.parametrize("name", UNARY)
@SOME
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_of_one_argument(name, step, fused, dtype):
    more = every(32771) if dtype is float32 else near_multiples_of_half_pi(3_000, 2)
    check(name, dtype, np.concatenate([more, arguments(dtype, 1)])[::step], fused=fused)


@pytest.mark.parametrize("name", sorted(BINARY.keys() - {"fmod"}))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@SOME
def test_of_two_arguments(name, dtype, step, fused):
    x = arguments(dtype, 3)[::step]
    random = np.random.default_rng(4)
    with np.errstate(all="ignore"):
        near = (x * random.uniform(0.1, 4, len(x))).astype(x.dtype)
        bounded = (random.uniform(-760, 720, len(x)) / np.log(np.abs(x))).astype(x.dtype)
    for y in (near, random.permutation(x), bounded):  # the last for powers that are finite
        check(name, dtype, x, y, fused=fused)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fmod_is_exact(dtype):
    x, y = scattered(dtype, 4000, 8), scattered(dtype, 4000, 9)
    got = np.zeros_like(x)
    interpret(kernel_of("fmod", dtype), got, x, y, threads=len(x), block=1)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, np.fmod(x, y))


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_special_arguments(name, dtype):
    """Every pair, signs of zeros included, as C99's functions have it: numpy calls those."""
    values = specials(dtype)
    columns = [part.ravel() for part in np.meshgrid(values, values)]
    got = np.zeros_like(columns[0])
    interpret(kernel_of(name, dtype), got, *columns, threads=len(got), block=1)
    given = columns if name in BINARY else columns[:1]
    wide = np.float64 if name in OPERATIONS else np.longdouble
    units = errors(got, exact(name, dtype, *given, wide=wide), dtype)
    limit = max(3, LIMITS.get(name, 2.0))
    wrong = [(*(column[k] for column in given), got[k]) for k in np.flatnonzero(units > limit)]
    assert not wrong


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "sin", "pow"])
def test_the_fast_evaluation_is_the_interpreters(name):
    """The tests above compute on columns; that is what the nodes mean."""
    x, y = np.abs(scattered(float64, 400, 10)), scattered(float64, 400, 11)
    got = np.zeros_like(x)
    interpret(kernel_of(name, float64), got, x, y, threads=len(x), block=1)
    np.testing.assert_array_equal(got, compute(name, float64, x, y))


@pytest.mark.parametrize("name", TESTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_gives_a_bool(name, dtype):
    function = getattr(hal, name)

    @hal.kernel
    def tell(r: hal.Ptr[hal.bool_], x: hal.ConstPtr[dtype]) -> None:
        i = hal.global_idx(0)
        r[i] = function(x[i])

    values = specials(dtype)
    got = np.zeros(len(values), bool)
    interpret(tell, got, values, threads=len(values), block=1)
    assert got.tolist() == TESTS[name](values).tolist()


BITS = {
    "popcount": lambda x, width: x.bit_count(),
    "clz": lambda x, width: width - x.bit_length(),
    "ctz": lambda x, width: (x & -x).bit_length() - 1 if x else width,
}


@pytest.mark.parametrize("name", BITS)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_functions_of_bits(name, dtype):
    width = 8 * dtype.itemsize
    raw = np.random.default_rng(1).bytes(4096) + bytes(64) + bytes([255]) * 64
    single = np.array([1 << k for k in range(width)], f"u{dtype.itemsize}")
    columns = [np.frombuffer(raw, single.dtype), single, single - 1, ~single]
    x = np.concatenate(columns) if width > 8 else np.arange(256, dtype=np.uint8)
    given, got = x.view(dtype.to_numpy()), np.zeros(len(x), dtype.to_numpy())
    interpret(lowered(name, dtype), got, given, given, threads=len(x), block=1)
    assert got.tolist() == [BITS[name](value, width) for value in x.tolist()]


@pytest.mark.parametrize("name", EXACT)
def test_numbers_are_computed_by_python(name):
    function = getattr(hal, name)
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


@pytest.mark.parametrize("name", sorted(EXACT.keys() - OPERATIONS))
def test_what_the_front_end_writes_out_is_plain(name):
    kernel = lowered(name, float32)
    verify(kernel)
    assert {node.op for node in kernel.uops} <= {
        "PARAM", "SPECIAL", "LOAD", "STORE", "CONST", "ADD", "SUB", "MUL", "DIV", "FMA", "SQRT",
        "NEG", "ABS", "MIN", "MAX", "LT", "GT", "GE", "EQ", "WHERE", "AND", "OR", "SHL", "SHR",
        "CAST", "BITCAST",
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(OPERATIONS))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_operation_is_written_out_where_it_stands_and_only_where_it_is_named(name, dtype):
    kernel, op = lowered(name, dtype), name.upper()
    for others in ({}, dict.fromkeys(FORMULAS.keys() - {op}, DTYPES)):
        assert expand(kernel, others) is kernel
    (other,) = {*DTYPES} - {dtype}
    assert expand(kernel, dict.fromkeys(FORMULAS, (other,))) is kernel
    position = next(k for k, node in enumerate(kernel.uops) if node.op == op)
    done = expand(kernel)
    verify(done)
    assert (done.name, done.signature) == (kernel.name, kernel.signature)
    assert done.uops[:position] == kernel.uops[:position]
    *written, store = done.uops[position:]
    assert (store.op, store.src[:2]) == ("STORE", kernel.uops[-1].src[:2])
    assert {node.line for node in written} == {kernel.uops[position].line}
    assert not {node.op for node in written} & set(FORMULAS)


def test_every_function_that_has_a_formula_is_tested():
    assert set(FORMULAS) == {name.upper() for name in OPERATIONS} == set(FUNCTIONS)
    derived = {function.op for function in MATH.values() if function.derived}
    others = {name.upper() for name in (*EXACT, *TESTS, *BITS) if name not in OPERATIONS}
    assert derived == set(DERIVED) == others


def test_formulas_are_imported_only_for_kernels_that_need_them():
    code = """
import sys
from hal_kernel.ir import Kernel, UOp
from hal_core.signature import Signature
from hal_core.dtypes import float32
from hal_kernel.ir.expand import expand
one = UOp("CONST", float32, (), 1.0)
for op in "SQRT", "EXP":
    expand(Kernel("k", Signature.parse("k", ""), (one, UOp(op, float32, (one,)))))
    print("hal_kernel.ir.math" in sys.modules)
"""
    assert printed(code) == "False\nTrue\n"
