"""Arithmetic of floats against exact fractions, in every rounding mode."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import engine_numbers as exact
import numpy as np
import pytest
from engine_numbers import F32, F64, FORMATS, Format, edges
from engine_runner import Engine, shared_engine
from engine_table import check, compute, rows_of

MODES = ("rn", "rz", "rm", "rp")
WIDE = ("f32", "f64")


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return shared_engine(tmp_path_factory)


def some(form: Format, count: int = 60) -> list[int]:
    """Any bits, and numbers near one another, whose sums cancel."""
    source = random.Random(form.bits)
    near = [
        (form.bias << form.fraction_bits) + source.randrange(-99, 99) for _ in range(count // 3)
    ]
    return near + [source.getrandbits(form.bits) for _ in range(count)]


def operands(kind: str, count: int) -> list[tuple[int, ...]]:
    form = FORMATS[kind]
    values = [value for value in edges(form) if not payload(form, value)]
    most = 800
    return rows_of(*[values] * count, most=most) + rows_of(*[some(form)] * count, most=most // 2)


def payload(form: Format, bits: int) -> bool:
    """A NaN with a payload: float64 keeps it, which is tested apart."""
    return form.is_nan(bits) and form is F64


def of(kind: str, function: Callable[..., int], mode: str = "rn") -> Callable[..., int]:
    form = FORMATS[kind]
    return lambda *row: (
        F64.nan if any(payload(form, x) for x in row) else function(form, *row, mode)
    )


def same(kind: str, rows: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    return [row for row in rows if not any(payload(FORMATS[kind], value) for value in row)]


def subtract(form: Format, a: int, b: int, mode: str) -> int:
    return exact.add(form, a, b if form.is_nan(b) else b ^ form.sign, mode)


TWO = {"add": exact.add, "sub": subtract, "mul": exact.mul, "div": exact.div}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("name", TWO)
def test_two_operands(engine: Engine, name: str, kind: str, mode: str) -> None:
    rows = same(kind, operands(kind, 2))
    check(
        engine,
        f"{name}.{mode}.{kind} %x, %a, %b;",
        kind,
        [kind] * 2,
        rows,
        of(kind, TWO[name], mode),
    )
    if mode == "rn" and name != "div":
        check(engine, f"{name}.{kind} %x, %a, %b;", kind, [kind] * 2, rows, of(kind, TWO[name]))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", WIDE)
def test_fused_multiply_add(engine: Engine, kind: str, mode: str) -> None:
    rows = same(kind, operands(kind, 3))
    check(
        engine,
        f"fma.{mode}.{kind} %x, %a, %b, %c;",
        kind,
        [kind] * 3,
        rows,
        of(kind, exact.fma, mode),
    )
    check(
        engine,
        f"mad.{mode}.{kind} %x, %a, %b, %c;",
        kind,
        [kind] * 3,
        rows[:50],
        of(kind, exact.fma, mode),
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", WIDE)
def test_one_operand(engine: Engine, kind: str, mode: str) -> None:
    rows = same(kind, operands(kind, 1))

    def reciprocal(form: Format, a: int, mode: str) -> int:
        return exact.div(form, form.bias << form.fraction_bits, a, mode)

    check(engine, f"sqrt.{mode}.{kind} %x, %a;", kind, [kind], rows, of(kind, exact.sqrt, mode))
    check(engine, f"rcp.{mode}.{kind} %x, %a;", kind, [kind], rows, of(kind, reciprocal, mode))


def test_the_payload_of_a_float64(engine: Engine) -> None:
    rows = [(0x7FF8000000000123, 0x3FF0000000000000), (0x3FF0000000000000, 0xFFF0000000000001)]
    for name in TWO:
        got = compute(engine, f"{name}.rn.f64 %x, %a, %b;", ["f64"], ["f64"] * 2, rows)
        assert got == [(0x7FF8000000000123,), (0xFFF8000000000001,)]


@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
def test_ftz_and_sat(engine: Engine, name: str) -> None:
    count = 3 if name == "fma" else 2
    rows = operands("f32", count)
    function = exact.fma if name == "fma" else TWO[name]
    letters = ", ".join(f"%{letter}" for letter in "abc"[:count])

    def flushed(*row: int) -> int:
        return F32.flushed(function(F32, *map(F32.flushed, row), "rn"))

    def saturated(bits: int) -> int:
        return 0 if F32.is_nan(bits) or bits & F32.sign else min(bits, 0x3F800000)

    mode = ".rn" if name == "fma" else ""
    types = ["f32"] * count
    check(engine, f"{name}{mode}.ftz.f32 %x, {letters};", "f32", types, rows, flushed)
    check(
        engine,
        f"{name}{mode}.sat.f32 %x, {letters};",
        "f32",
        types,
        rows,
        lambda *row: saturated(function(F32, *row, "rn")),
    )
    check(
        engine,
        f"{name}{mode}.ftz.sat.f32 %x, {letters};",
        "f32",
        types,
        rows,
        lambda *row: saturated(flushed(*row)),
    )


@pytest.mark.parametrize("kind", WIDE)
def test_least_and_largest(engine: Engine, kind: str) -> None:
    rows = same(kind, operands(kind, 2))
    form = FORMATS[kind]
    for name, largest in (("min", False), ("max", True)):

        def wanted(a: int, b: int, nan: bool = False, largest: bool = largest) -> int:
            return exact.extreme(form, a, b, largest, nan)

        check(engine, f"{name}.{kind} %x, %a, %b;", kind, [kind] * 2, rows, wanted)
        if kind == "f32":
            check(
                engine,
                f"{name}.NaN.f32 %x, %a, %b;",
                kind,
                [kind] * 2,
                rows,
                lambda a, b, w=wanted: w(a, b, True),
            )
            check(
                engine,
                f"{name}.ftz.f32 %x, %a, %b;",
                kind,
                [kind] * 2,
                rows,
                lambda a, b, w=wanted: w(F32.flushed(a), F32.flushed(b)),
            )


@pytest.mark.parametrize("kind", WIDE)
def test_signs(engine: Engine, kind: str) -> None:
    form = FORMATS[kind]
    rows = operands(kind, 1)
    check(engine, f"neg.{kind} %x, %a;", kind, [kind], rows, lambda a: a ^ form.sign)
    check(engine, f"abs.{kind} %x, %a;", kind, [kind], rows, lambda a: a & ~form.sign)
    check(
        engine,
        f"copysign.{kind} %x, %a, %b;",
        kind,
        [kind] * 2,
        operands(kind, 2),
        lambda a, b: b & ~form.sign | a & form.sign,
    )
    if kind == "f32":
        check(
            engine, "neg.ftz.f32 %x, %a;", kind, [kind], rows, lambda a: form.flushed(a) ^ form.sign
        )


PROPERTIES: dict[str, Callable[[Format, int], bool]] = {
    "finite": lambda form, a: not form.is_nan(a) and not form.is_infinite(a),
    "infinite": lambda form, a: form.is_infinite(a),
    "number": lambda form, a: not form.is_nan(a),
    "notanumber": lambda form, a: form.is_nan(a),
    "normal": lambda form, a: 1 << form.fraction_bits <= a & ~form.sign < form.infinity,
    "subnormal": lambda form, a: form.is_subnormal(a),
}  # fmt: skip


@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("name", PROPERTIES)
def test_properties(engine: Engine, name: str, kind: str) -> None:
    form = FORMATS[kind]
    check(
        engine,
        f"testp.{name}.{kind} %x, %a;",
        "pred",
        [kind],
        operands(kind, 1),
        lambda a: PROPERTIES[name](form, a),
    )


COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a < b or a > b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "equ": lambda a, b: not (a < b or a > b), "neu": lambda a, b: a != b,
    "ltu": lambda a, b: not a >= b, "leu": lambda a, b: not a > b,
    "gtu": lambda a, b: not a <= b, "geu": lambda a, b: not a < b,
    "num": lambda a, b: a == a and b == b, "nan": lambda a, b: a != a or b != b,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons(engine: Engine, name: str, kind: str) -> None:
    form = FORMATS[kind]

    def wanted(a: int, b: int) -> bool:
        return COMPARISONS[name](form.python(a), form.python(b))

    check(engine, f"setp.{name}.{kind} %x, %a, %b;", "pred", [kind] * 2, operands(kind, 2), wanted)
    if kind == "f32":
        check(
            engine,
            f"set.{name}.u32.f32 %x, %a, %b;",
            "u32",
            [kind] * 2,
            operands(kind, 2),
            lambda a, b: -wanted(a, b),
        )
        check(
            engine,
            f"setp.{name}.ftz.f32 %x, %a, %b;",
            "pred",
            [kind] * 2,
            operands(kind, 2),
            lambda a, b: wanted(F32.flushed(a), F32.flushed(b)),
        )


APPROXIMATIONS: dict[str, Callable[..., Any]] = {
    "sqrt": np.sqrt, "rcp": lambda a: 1 / a, "rsqrt": lambda a: 1 / np.sqrt(a), "sin": np.sin,
    "cos": np.cos, "lg2": np.log2, "ex2": np.exp2, "tanh": np.tanh,
}  # fmt: skip


@pytest.mark.parametrize("name", APPROXIMATIONS)
def test_approximations(engine: Engine, name: str) -> None:
    """Computed as well as can be: far within what the ISA allows."""
    values = [value for value in [*edges(F32), *some(F32, 300)] if not F32.is_nan(value)]
    got = compute(
        engine, f"{name}.approx.f32 %x, %a;", ["f32"], ["f32"], [(value,) for value in values]
    )
    with np.errstate(all="ignore"):
        wanted = APPROXIMATIONS[name](np.array(values, "u4").view("f4").astype("f8")).astype("f4")
    result = np.array([bits for (bits,) in got], "u4").view("f4")
    np.testing.assert_allclose(result, wanted, rtol=2e-7, atol=1e-45)
    np.testing.assert_array_equal(np.signbit(result[wanted == 0]), np.signbit(wanted[wanted == 0]))


def test_gross_approximations_of_float64(engine: Engine) -> None:
    """The lower half of the result is 0; 20 bits of it are right."""
    values = [value for value in some(F64, 300) if 0x10 << 52 < value & ~F64.sign < 0x7E0 << 52]
    for name, function in (("rcp", lambda a: 1 / a), ("rsqrt", lambda a: 1 / math.sqrt(abs(a)))):
        rows = [(value & ~F64.sign if name == "rsqrt" else value,) for value in values]
        got = compute(engine, f"{name}.approx.ftz.f64 %x, %a;", ["f64"], ["f64"], rows)
        for (value,), (result,) in zip(rows, got, strict=True):
            assert result & 0xFFFFFFFF == 0
            assert F64.python(result) == pytest.approx(function(F64.python(value)), rel=2**-19)
