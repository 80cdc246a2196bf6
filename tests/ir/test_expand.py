"""Math functions written out as arithmetic: how far from the exact value, and C99's special cases.

The exact value is numpy's in a wider float. Errors are in units in the last place of the result.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from columns import DTYPES, Array, errors, every, on_columns, scattered, specials
from run_python import printed

from hal_core.dtypes import DType, float32, float64, int32
from hal_core.signature import Signature
from hal_kernel.interpreter import interpret
from hal_kernel.ir import Kernel, UOp
from hal_kernel.ir.expand import FUNCTIONS, expand
from hal_kernel.ir.math import FORMULAS
from hal_kernel.ir.verify import verify

FLOATS = (float32, float64)

EXACT: dict[str, Callable[..., Array]] = {
    "EXP": np.exp, "EXP2": np.exp2, "LOG": np.log, "LOG2": np.log2, "SIN": np.sin, "COS": np.cos,
    "TAN": np.tan, "TANH": np.tanh, "ATAN": np.arctan, "ATAN2": np.arctan2, "POW": np.power,
    "FMOD": np.fmod,
}  # fmt: skip
UNARY = [op for op in EXACT if op not in ("ATAN2", "POW", "FMOD")]
LIMITS: dict[tuple[str, DType], float] = {
    ("ATAN2", float32): 2.5,
    ("ATAN2", float64): 2.5,
    ("TAN", float64): 2.5,
}
WIDER = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 60, reason="no float here is wider than float64"
)


def kernel_of(op: str, dtype: DType, line: int = 7, turns: int = 1) -> Kernel:
    """r[i] = op(x[i], y[i]), inside a loop."""
    names = ["x", "y"] if op in ("ATAN2", "POW", "FMOD") else ["x"]
    text = ", ".join(f"{name}: const {dtype.name}*" for name in names)
    signature = Signature.parse("k", f"r: {dtype.name}*, {text}")
    params = [UOp("PARAM", dtype, (), position) for position in range(len(names) + 1)]
    index = UOp("SPECIAL", int32, (), ("global_idx", 0))
    zero, one = UOp("CONST", int32, (), 0), UOp("CONST", int32, (), 1)
    stop = UOp("CONST", int32, (), turns)
    loop = UOp("RANGE", int32, (zero, stop, one), "k")
    loads = [UOp("LOAD", dtype, (param, index)) for param in params[1:]]
    result = UOp(op, dtype, tuple(loads), None, line)
    store = UOp("STORE", None, (params[0], index, result))
    end = UOp("ENDRANGE", None, (loop,))
    front = (*params, index, zero, one, stop, loop)
    return Kernel("k", signature, (*front, *loads, result, store, end))


def compute(op: str, dtype: DType, *columns: Array, fused: bool = False) -> Array:
    """`op` written out, on whole columns. `fused`: sums of products are rounded once."""
    kernel = expand(kernel_of(op, dtype), {op: FLOATS})
    parts = [columns] if len(columns[0]) < 1 << 16 else zip(
        *(np.array_split(column, len(column) >> 15) for column in columns), strict=True
    )  # fmt: skip
    with np.errstate(all="ignore"):
        return np.concatenate([on_columns(kernel, part, fused) for part in parts])


def exact(op: str, dtype: DType, *columns: Array) -> Array:
    # numpy's float64 functions lose digits of large angles on some machines
    plenty = dtype is float32 and op not in ("SIN", "COS", "TAN")
    wide = np.float64 if plenty else np.longdouble
    with np.errstate(all="ignore"):
        return np.asarray(EXACT[op](*(column.astype(wide) for column in columns)))


def check(op: str, dtype: DType, *columns: Array, fused: bool = False) -> None:
    got = compute(op, dtype, *columns, fused=fused)
    expected = exact(op, dtype, *columns)
    units = errors(got, expected, dtype)
    worst = int(np.argmax(units))
    limit = LIMITS.get((op, dtype), 2.0)
    where = tuple(column[worst] for column in columns)
    assert units[worst] <= limit, f"{op}{where} = {got[worst]!r}, exactly {expected[worst]!r}"


def near_multiples_of_half_pi(count: int, seed: int) -> Array:
    """float64 that are next to a multiple, of all sizes: what a reduction loses digits with."""
    random = np.random.default_rng(seed)
    half_pi = np.longdouble("1.57079632679489661923132169163975144")
    small = np.arange(1, 2000) * half_pi
    large = np.floor(random.uniform(1, 2, count) * 2.0 ** random.integers(10, 60, count)) * half_pi
    # two that are famous for how near they are
    famous = [6381956970095103.0 * 2.0**797, 5.319372648326541e255]
    return np.concatenate([small.astype(float), large.astype(float), famous])


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("fused", [False, True])
def test_float32_of_one_argument(op: str, fused: bool) -> None:
    if op in ("SIN", "COS", "TAN") and np.finfo(np.longdouble).nmant < 60:
        pytest.skip("no float here is wider than float64")
    check(op, float32, every(32771 if not fused else 655373), fused=fused)


@WIDER
@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("fused", [False, True])
def test_float64_of_one_argument(op: str, fused: bool) -> None:
    x = np.concatenate([scattered(float64, 20_000, 1), near_multiples_of_half_pi(3_000, 2)])
    low = np.random.default_rng(3).uniform(-760, 760, 6_000)
    some = slice(None, None, 10 if fused else 1)  # fused, many are worked out by fractions
    for column in (x, low, low * (1080 / 760)):
        check(op, float64, column[some], fused=fused)


@WIDER
@pytest.mark.parametrize("op", ["ATAN2", "POW"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("fused", [False, True])
def test_of_two_arguments(op: str, dtype: DType, fused: bool) -> None:
    random = np.random.default_rng(4)
    a, b = (scattered(dtype, 2_000 if fused else 20_000, seed) for seed in (5, 6))
    check(op, dtype, a, b, fused=fused)
    with np.errstate(all="ignore"):
        near = (a * random.uniform(0.1, 4, len(a))).astype(a.dtype)
        bounded = (random.uniform(-760, 720, len(a)) / np.log(np.abs(a))).astype(a.dtype)
    check(op, dtype, a, near if op == "ATAN2" else bounded, fused=fused)


@pytest.mark.parametrize("op", EXACT)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_special_arguments(op: str, dtype: DType) -> None:
    """Every pair, signs of zeros included, as C99's functions have it: numpy calls those."""
    values = specials(dtype)
    columns = [values] if op in UNARY else [part.ravel() for part in np.meshgrid(values, values)]
    got = np.zeros_like(columns[0])
    kernel = expand(kernel_of(op, dtype), {op: FLOATS})
    interpret(kernel, got, *columns, threads=len(got), block=1)
    with np.errstate(all="ignore"):
        expected = EXACT[op](*(column.astype(np.float64) for column in columns))
    units = errors(got, np.asarray(expected), dtype)
    wrong = [(*(column[k] for column in columns), got[k]) for k in np.flatnonzero(units > 3)]
    assert not wrong


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fmod_is_exact(dtype: DType) -> None:
    x, y = scattered(dtype, 4000, 8), scattered(dtype, 4000, 9)
    got = np.zeros_like(x)
    interpret(expand(kernel_of("FMOD", dtype)), got, x, y, threads=len(x), block=1)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, np.fmod(x, y))


@pytest.mark.parametrize("op", ["EXP", "LOG", "TANH", "SIN", "POW"])
def test_the_fast_evaluation_is_the_interpreters(op: str) -> None:
    """The tests above compute on columns; that is what the nodes mean."""
    x = scattered(float64, 400, 10)
    columns = [x] if op in UNARY else [np.abs(x), scattered(float64, 400, 11)]
    got = np.zeros_like(x)
    interpret(expand(kernel_of(op, float64)), got, *columns, threads=len(x), block=1)
    np.testing.assert_array_equal(got, compute(op, float64, *columns))


@pytest.mark.parametrize("op", EXACT)
def test_what_is_not_named_stays(op: str) -> None:
    kernel = kernel_of(op, float32)
    assert expand(kernel, {}) is kernel
    assert expand(kernel, dict.fromkeys(set(EXACT) - {op}, FLOATS)) is kernel
    assert expand(kernel, dict.fromkeys(EXACT, (float64,))) is kernel


@pytest.mark.parametrize("op", EXACT)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_kernel_around_is_the_same(op: str, dtype: DType) -> None:
    kernel = kernel_of(op, dtype)
    position = next(k for k, node in enumerate(kernel.uops) if node.op == op)
    done = expand(kernel)
    verify(done)
    assert (done.name, done.signature) == (kernel.name, kernel.signature)
    assert done.uops[:position] == kernel.uops[:position]
    *written, store, end = done.uops[position:]
    assert end is kernel.uops[-1]
    assert (store.op, store.src[:2]) == ("STORE", kernel.uops[-2].src[:2])
    assert {node.line for node in written} == {7}
    assert not {node.op for node in written} & set(FORMULAS)


def test_every_function_that_has_a_formula_is_tested() -> None:
    assert set(FORMULAS) == set(EXACT) == set(FUNCTIONS)


def test_formulas_are_imported_only_for_kernels_that_need_them() -> None:
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
