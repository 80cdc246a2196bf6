"""Comparisons, selection and conversions of integers."""

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


def number(kind: str, function: Callable[..., int]) -> Callable[..., int]:
    """The function of numbers as one of bits."""
    return lambda *row: function(*(signed(value, kind) for value in row))


COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_comparisons(engine: Engine, kind: str) -> None:
    values = integer_edges(kind)
    rows = rows_of(values, values)
    for name, function in COMPARISONS.items():
        check(
            engine,
            f"setp.{name}.{kind} %x, %a, %b;",
            "pred",
            [kind] * 2,
            rows,
            number(kind, function),
        )
    if kind[0] == "u":
        for name, like in (("lo", "lt"), ("ls", "le"), ("hi", "gt"), ("hs", "ge")):
            check(
                engine,
                f"setp.{name}.{kind} %x, %a, %b;",
                "pred",
                [kind] * 2,
                rows,
                COMPARISONS[like],
            )
    check(
        engine,
        f"set.lt.u32.{kind} %x, %a, %b;",
        "u32",
        [kind] * 2,
        rows,
        number(kind, lambda a, b: -(a < b)),
    )
    check(
        engine,
        f"set.ge.f32.{kind} %x, %a, %b;",
        "u32",
        [kind] * 2,
        rows,
        number(kind, lambda a, b: 0x3F800000 * (a >= b)),
    )


def test_comparisons_that_take_a_predicate(engine: Engine) -> None:
    values = integer_edges("s32")
    rows = rows_of(values, values, [0, 1])
    for name, join in (
        ("and", lambda r, c: r and c),
        ("or", lambda r, c: r or c),
        ("xor", lambda r, c: r != c),
    ):
        for mark in ("", "!"):

            def wanted(a: int, b: int, c: int, join=join, mark=mark) -> bool:  # type: ignore[no-untyped-def]
                return bool(join(signed(a, "s32") < signed(b, "s32"), bool(c) != bool(mark)))

            lines = f"setp.lt.{name}.s32 %x, %a, %b, {mark}%c;"
            check(engine, lines, "pred", ["s32", "s32", "pred"], rows, wanted)
            second = f".reg .pred %other;\nsetp.ge.{name}.s32 %other|%x, %a, %b, {mark}%c;"
            check(engine, second, "pred", ["s32", "s32", "pred"], rows, wanted)


@pytest.mark.parametrize(
    "kind", ["b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"]
)
def test_selection(engine: Engine, kind: str) -> None:
    values = integer_edges(f"b{8 * nbytes(kind)}")[::3]
    check(
        engine,
        f"selp.{kind} %x, %a, %b, %c;",
        kind,
        [kind, kind, "pred"],
        rows_of(values, values, [0, 1]),
        lambda a, b, c: a if c else b,
    )
    signs = [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]
    rows = rows_of(values, values, signs)
    check(
        engine,
        f"slct.{kind}.s32 %x, %a, %b, %c;",
        kind,
        [kind, kind, "s32"],
        rows,
        lambda a, b, c: a if c < 1 << 31 else b,
    )
    check(
        engine,
        f"slct.{kind}.f32 %x, %a, %b, %c;",
        kind,
        [kind, kind, "f32"],
        rows,
        lambda a, b, c: a if c in (0, 1, 1 << 31) else b,
    )


WHOLE = [f"{sign}{bits}" for sign in "us" for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("to", WHOLE)
@pytest.mark.parametrize("saturates", [False, True])
def test_conversions(engine: Engine, to: str, saturates: bool) -> None:
    bits = 8 * nbytes(to)
    least, most = (
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if to[0] == "s" else (0, (1 << bits) - 1)
    )
    for source in WHOLE:
        rows = rows_of(integer_edges(source))
        low, high = signed(1 << 8 * nbytes(source) - 1, source), (1 << 8 * nbytes(source)) - 1
        if saturates and least <= min(low, 0) and (high >> (source[0] == "s")) <= most:
            continue  # nothing to limit, and no such instruction
        word = ".sat" if saturates else ""

        def converted(a: int, source: str = source) -> int:
            value = signed(a, source)
            return max(least, min(most, value)) if saturates else value

        check(engine, f"cvt{word}.{to}.{source} %x, %a;", to, [source], rows, converted)


@pytest.mark.parametrize("to", ["u8", "s8", "u16", "s16", "u32", "s32"])
def test_a_wider_register_is_filled(engine: Engine, to: str) -> None:
    """With the sign, or with zeros."""
    rows = rows_of(integer_edges("u64"))
    check(engine, f"cvt.{to}.u64 %x, %a;", "u64", ["u64"], rows, lambda a: signed(a, to))
    width = 8 * nbytes(to)
    stored = f".local .b64 place;\nst.local.u{width} [place], %a;"
    lines = f"{stored}\nld.local.{to} %x, [place];"
    check(engine, lines, "u64", ["u64"], rows, lambda a: signed(a, to))
