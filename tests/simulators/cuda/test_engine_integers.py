"""Integer arithmetic against Python's integers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from engine_runner import Engine, shared_engine
from engine_table import check, integer_edges, nbytes, rows_of, signed

WIDTHS = (16, 32, 64)
KINDS = [f"{sign}{bits}" for sign in "us" for bits in WIDTHS]


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return shared_engine(tmp_path_factory)


def truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def divided(a: int, b: int) -> int:
    return truncated(a, b) if b else -1  # hardware: all ones


def rest(a: int, b: int) -> int:
    return a - truncated(a, b) * b if b else a


def number(kind: str, function: Callable[..., int]) -> Callable[..., int]:
    """The function of numbers as one of bits."""
    return lambda *row: function(*(signed(value, kind) for value in row))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("add", lambda a, b: a + b),
        ("sub", lambda a, b: a - b),
        ("mul.lo", lambda a, b: a * b),
        ("min", min),
        ("max", max),
        ("div", divided),
        ("rem", rest),
    ],
)
def test_two_operands(engine: Engine, name: str, kind: str, function: Callable[..., int]) -> None:
    values = integer_edges(kind)
    check(
        engine,
        f"{name}.{kind} %x, %a, %b;",
        kind,
        [kind] * 2,
        rows_of(values, values),
        number(kind, function),
    )


@pytest.mark.parametrize("function", [min, max])
def test_extremes_that_are_not_negative(engine: Engine, function: Callable[..., int]) -> None:
    """NVRTC 13 makes one of max(max(a, b), 0)."""
    values = integer_edges("s32")
    rows, kinds = rows_of(values, values), ["s32"] * 2
    line = f"{function.__name__}.relu.s32 %x, %a, %b;"
    check(engine, line, "s32", kinds, rows, number("s32", lambda a, b: max(0, function(a, b))))


@pytest.mark.parametrize("kind", KINDS)
def test_high_halves(engine: Engine, kind: str) -> None:
    bits, values = 8 * nbytes(kind), integer_edges(kind)
    two, three = rows_of(values, values), rows_of(values, values, values)
    check(
        engine,
        f"mul.hi.{kind} %x, %a, %b;",
        kind,
        [kind] * 2,
        two,
        number(kind, lambda a, b: a * b >> bits),
    )
    check(
        engine,
        f"mad.hi.{kind} %x, %a, %b, %c;",
        kind,
        [kind] * 3,
        three,
        number(kind, lambda a, b, c: (a * b >> bits) + c),
    )
    check(
        engine,
        f"mad.lo.{kind} %x, %a, %b, %c;",
        kind,
        [kind] * 3,
        three,
        number(kind, lambda a, b, c: a * b + c),
    )
    check(
        engine,
        f"sad.{kind} %x, %a, %b, %c;",
        kind,
        [kind] * 3,
        three,
        number(kind, lambda a, b, c: abs(a - b) + c),
    )


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32"])
def test_wide_products(engine: Engine, kind: str) -> None:
    wide, values = f"{kind[0]}{16 * nbytes(kind)}", integer_edges(kind)

    def product(a: int, b: int) -> int:
        return signed(a, kind) * signed(b, kind)

    check(
        engine, f"mul.wide.{kind} %x, %a, %b;", wide, [kind] * 2, rows_of(values, values), product
    )
    rows = rows_of(values, values, integer_edges(wide))
    check(
        engine,
        f"mad.wide.{kind} %x, %a, %b, %c;",
        wide,
        [kind, kind, wide],
        rows,
        lambda a, b, c: product(a, b) + c,
    )


def test_saturation(engine: Engine) -> None:
    values = integer_edges("s32")

    def limited(value: int) -> int:
        return max(-(1 << 31), min((1 << 31) - 1, value))

    two, three = rows_of(values, values), rows_of(values, values, values)
    check(
        engine,
        "add.sat.s32 %x, %a, %b;",
        "s32",
        ["s32"] * 2,
        two,
        number("s32", lambda a, b: limited(a + b)),
    )
    check(
        engine,
        "sub.sat.s32 %x, %a, %b;",
        "s32",
        ["s32"] * 2,
        two,
        number("s32", lambda a, b: limited(a - b)),
    )
    check(
        engine,
        "mad.hi.sat.s32 %x, %a, %b, %c;",
        "s32",
        ["s32"] * 3,
        three,
        number("s32", lambda a, b, c: limited((a * b >> 32) + c)),
    )


@pytest.mark.parametrize("kind", ["s16", "s32", "s64"])
def test_one_operand(engine: Engine, kind: str) -> None:
    rows = rows_of(integer_edges(kind))
    check(engine, f"neg.{kind} %x, %a;", kind, [kind], rows, number(kind, lambda a: -a))
    check(engine, f"abs.{kind} %x, %a;", kind, [kind], rows, number(kind, abs))


@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_24_bits(engine: Engine, kind: str) -> None:
    values = integer_edges(kind)

    def low(value: int) -> int:
        value &= 0xFFFFFF
        return value - (1 << 24) if kind == "s32" and value >> 23 else value

    rows = rows_of(values, values)
    check(
        engine, f"mul24.lo.{kind} %x, %a, %b;", kind, [kind] * 2, rows, lambda a, b: low(a) * low(b)
    )
    check(
        engine,
        f"mul24.hi.{kind} %x, %a, %b;",
        kind,
        [kind] * 2,
        rows,
        lambda a, b: low(a) * low(b) >> 16,
    )
    rows = rows_of(values, values, values)
    check(
        engine,
        f"mad24.lo.{kind} %x, %a, %b, %c;",
        kind,
        [kind] * 3,
        rows,
        lambda a, b, c: low(a) * low(b) + c,
    )


@pytest.mark.parametrize("bits", [32, 64])
def test_carries_make_longer_numbers(engine: Engine, bits: int) -> None:
    """Two words of `bits` as one number."""
    kind = f"u{bits}"
    values = integer_edges(kind)
    rows = rows_of(values, values, values, values)

    def both(low: int, high: int) -> int:
        return high << bits | low

    for first, second, sign in (("add", "addc", 1), ("sub", "subc", -1)):
        lines = f"{first}.cc.{kind} %y, %a, %c;\n{second}.{kind} %x, %b, %d;"
        text = f".reg .b{bits} %y;\n{lines}"
        check(
            engine,
            text,
            kind,
            [kind] * 4,
            rows,
            lambda a, b, c, d, s=sign: both(a, b) + s * both(c, d) >> bits,
        )
    # a*b + c, all of it, and the carry of a second one into a third word
    lines = f".reg .b{bits} %y;\nmad.lo.cc.{kind} %y, %a, %b, %c;\nmadc.hi.{kind} %x, %a, %b, %d;"
    check(engine, lines, kind, [kind] * 4, rows, lambda a, b, c, d: (a * b + c >> bits) + d)


@pytest.mark.parametrize("a_kind", ["u32", "s32"])
@pytest.mark.parametrize("b_kind", ["u32", "s32"])
def test_dot_products(engine: Engine, a_kind: str, b_kind: str) -> None:
    def parts(value: int, bits: int, kind: str) -> list[int]:
        every = [value >> place & ((1 << bits) - 1) for place in range(0, 32, bits)]
        return [
            part - (1 << bits) if kind == "s32" and part >> (bits - 1) else part for part in every
        ]

    def dot(a: list[int], b: list[int], c: int) -> int:
        return sum(x * y for x, y in zip(a, b, strict=False)) + c

    values = integer_edges("u32")
    rows = rows_of(values, values, values[::4])
    types = ["b32"] * 3
    check(
        engine,
        f"dp4a.{a_kind}.{b_kind} %x, %a, %b, %c;",
        "b32",
        types,
        rows,
        lambda a, b, c: dot(parts(a, 8, a_kind), parts(b, 8, b_kind), c),
    )
    check(
        engine,
        f"dp2a.lo.{a_kind}.{b_kind} %x, %a, %b, %c;",
        "b32",
        types,
        rows,
        lambda a, b, c: dot(parts(a, 16, a_kind), parts(b, 8, b_kind), c),
    )
    check(
        engine,
        f"dp2a.hi.{a_kind}.{b_kind} %x, %a, %b, %c;",
        "b32",
        types,
        rows,
        lambda a, b, c: dot(parts(a, 16, a_kind), parts(b, 8, b_kind)[2:], c),
    )
