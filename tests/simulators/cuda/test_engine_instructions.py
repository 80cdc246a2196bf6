"""Single instructions give what the PTX ISA says, where a renderer may believe something else."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from engine_runner import Engine
from engine_table import check, compute, integer_edges, nbytes, rows_of, signed

Number = Callable[..., int]
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


# On numbers. Division by zero: all ones, as hardware does.
TWO: dict[str, Number] = {
    "add": operator.add, "sub": operator.sub, "mul.lo": operator.mul, "min": min, "max": max,
    "div": lambda a, b: truncated(a, b) if b else -1,
    "rem": lambda a, b: a - truncated(a, b) * b if b else a,
}  # fmt: skip
INTEGERS = [f"{sign}{bits}" for sign in "us" for bits in (16, 32, 64)]


@pytest.mark.parametrize("kind", INTEGERS)
def test_integers(engine: Engine, kind: str) -> None:
    bits, values = 8 * nbytes(kind), integer_edges(kind)
    two = rows_of(values, values)
    three = rows_of(values, values, values)

    def number(function: Number) -> Number:
        return lambda *row: function(*(signed(value, kind) for value in row))

    for name, function in TWO.items():
        check(engine, f"{name}.{kind} %x, %a, %b;", kind, [kind] * 2, two, number(function))
    high = number(lambda a, b: a * b >> bits)
    check(engine, f"mul.hi.{kind} %x, %a, %b;", kind, [kind] * 2, two, high)
    sums = number(lambda a, b, c: a * b + c)
    check(engine, f"mad.lo.{kind} %x, %a, %b, %c;", kind, [kind] * 3, three, sums)
    for name, compares in COMPARISONS.items():
        line = f"setp.{name}.{kind} %x, %a, %b;"
        check(engine, line, "pred", [kind] * 2, two, number(compares))
    if bits < 64:
        wide = f"{kind[0]}{2 * bits}"
        line = f"mul.wide.{kind} %x, %a, %b;"
        check(engine, line, wide, [kind] * 2, two, number(operator.mul))
    for to in (f"{sign}{size}" for sign in "us" for size in (8, 16, 32, 64)):
        line, rows = f"cvt.{to}.{kind} %x, %a;", rows_of(values)
        check(engine, line, to, [kind], rows, number(lambda a: a))


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_shifts_beyond_a_width_give_what_is_left(engine: Engine, bits: int) -> None:
    amounts = [0, 1, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 1 << 31, (1 << 32) - 1]
    rows = rows_of(integer_edges(f"u{bits}"), amounts)
    shifts: dict[str, Number] = {
        f"shl.b{bits}": lambda a, b: a << min(b, bits),
        f"shr.u{bits}": lambda a, b: a >> min(b, bits),
        f"shr.s{bits}": lambda a, b: signed(a, f"s{bits}") >> min(b, bits),
    }
    for name, function in shifts.items():
        kind = name[4:]
        check(engine, f"{name} %x, %a, %b;", kind, [kind, "u32"], rows, function)


# -- floats, against numpy


def floats(kind: str) -> np.ndarray[Any, Any]:
    """Zeros, subnormals, ones, the largest and their neighbours, halves, infinities, NaN."""
    of = FLOATS[kind]
    facts = np.finfo(of)
    sizes = np.array([0, facts.smallest_subnormal, facts.tiny, 0.5, 1, 1.5, 2.5, 300.7, facts.max])
    with np.errstate(all="ignore"):
        near = np.nextafter(sizes.astype(of), of(9))
    every = np.concatenate([sizes.astype(of), near, [of(np.inf)]])
    return np.concatenate([every, -every, [of(np.nan)]])


def same_floats(
    engine: Engine, line: str, gives: str, takes: list[str], function: Callable[..., Any]
) -> None:
    grid = np.meshgrid(*(floats(kind) for kind in takes))
    columns = [column.ravel() for column in grid]
    bits = [column.view(f"u{column.itemsize}").tolist() for column in columns]
    got = compute(engine, line, gives, takes, list(zip(*bits, strict=True)))
    result = np.array(got, f"u{nbytes(gives)}")
    with np.errstate(all="ignore"):
        expected = np.asarray(function(*columns))
    if gives in FLOATS:
        result, expected = result.view(FLOATS[gives]), expected.astype(FLOATS[gives])
        number = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(result[number]), np.signbit(expected[number]))
    np.testing.assert_array_equal(result, expected.astype(result.dtype), line)


@pytest.mark.parametrize("kind", FLOATS)
def test_floats(engine: Engine, kind: str) -> None:
    two = [kind] * 2
    for name in ("add", "sub", "mul"):
        function = getattr(operator, name)
        same_floats(engine, f"{name}.rn.{kind} %x, %a, %b;", kind, two, function)
    same_floats(engine, f"neg.{kind} %x, %a;", kind, [kind], operator.neg)
    same_floats(engine, f"abs.{kind} %x, %a;", kind, [kind], abs)
    # A comparison with NaN holds in those with u, and in no other.
    for name, compares in COMPARISONS.items():

        def ordered(a: Any, b: Any, compares: Any = compares) -> Any:
            return compares(a, b) & ~np.isnan(a) & ~np.isnan(b)

        def either(a: Any, b: Any, compares: Any = compares) -> Any:
            return compares(a, b) | np.isnan(a) | np.isnan(b)

        same_floats(engine, f"setp.{name}.{kind} %x, %a, %b;", "pred", two, ordered)
        same_floats(engine, f"setp.{name}u.{kind} %x, %a, %b;", "pred", two, either)
    if kind == "f16":
        return
    same_floats(engine, f"div.rn.{kind} %x, %a, %b;", kind, two, operator.truediv)
    same_floats(engine, f"sqrt.rn.{kind} %x, %a;", kind, [kind], np.sqrt)
    same_floats(engine, f"min.{kind} %x, %a, %b;", kind, two, fmin)
    whole = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
    for name, rounds in whole.items():
        same_floats(engine, f"cvt.{name}.{kind}.{kind} %x, %a;", kind, [kind], rounds)


def fmin(a: Any, b: Any) -> Any:
    """The number where one side is NaN, and -0 before +0."""
    return np.where((a == b) & np.signbit(a), a, np.fmin(a, b))


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("to", ["u8", "s16", "u32", "s32", "s64"])
def test_floats_beyond_an_integer_give_its_ends(engine: Engine, kind: str, to: str) -> None:
    bits = 8 * nbytes(to)
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if to[0] == "s" else (0, (1 << bits) - 1)
    bits_of = f"u{nbytes(kind)}"
    rows = [(int(value.view(bits_of)),) for value in floats(kind) if not np.isnan(value)]

    def converted(given: int) -> int:
        value = float(np.array(given, bits_of).view(FLOATS[kind]))
        return max(
            least, min(most, int(value) if np.isfinite(value) else 2**65 * int(np.sign(value)))
        )

    check(engine, f"cvt.rzi.{to}.{kind} %x, %a;", to, [kind], rows, converted)


@pytest.mark.parametrize(
    ("to", "source"), [("f16", "f32"), ("f32", "f16"), ("f32", "f64"), ("f64", "f32")]
)
def test_floats_of_another_width(engine: Engine, to: str, source: str) -> None:
    mode = ".rn" if nbytes(to) < nbytes(source) else ""
    same_floats(
        engine, f"cvt{mode}.{to}.{source} %x, %a;", to, [source], lambda a: a.astype(FLOATS[to])
    )
