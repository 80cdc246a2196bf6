"""float16 and bfloat16, alone and by twos, and every conversion to and from floats."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from fractions import Fraction

import engine_numbers as exact
import pytest
from engine_numbers import F16, F32, F64, FORMATS, Format, edges, round_to_whole
from engine_runner import Engine, shared_engine
from engine_table import check, integer_edges, nbytes, rows_of, signed

HALVES = ("f16", "bf16")
MODES = ("rn", "rz", "rm", "rp")


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return shared_engine(tmp_path_factory)


def values(kind: str, count: int = 80) -> list[int]:
    form = FORMATS[kind]
    source = random.Random(kind)
    near = [
        (form.bias << form.fraction_bits) + source.randrange(-999, 999) for _ in range(count // 2)
    ]
    return edges(form) + near + [source.getrandbits(form.bits) for _ in range(count)]


def subtract(form: Format, a: int, b: int) -> int:
    return exact.add(form, a, b if form.is_nan(b) else b ^ form.sign)


OPERATIONS: dict[str, tuple[int, Callable[..., int]]] = {
    "add": (2, exact.add),
    "sub": (2, subtract),
    "mul": (2, exact.mul),
    "fma.rn": (3, exact.fma),
    "min": (2, lambda form, a, b: exact.extreme(form, a, b, False, False)),
    "max": (2, lambda form, a, b: exact.extreme(form, a, b, True, False)),
    "min.NaN": (2, lambda form, a, b: exact.extreme(form, a, b, False, True)),
    "max.NaN": (2, lambda form, a, b: exact.extreme(form, a, b, True, True)),
    "neg": (1, lambda form, a: a ^ form.sign),
    "abs": (1, lambda form, a: a & ~form.sign),
}


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_arithmetic(engine: Engine, name: str, kind: str) -> None:
    count, function = OPERATIONS[name]
    form = FORMATS[kind]
    letters = ", ".join(f"%{letter}" for letter in "abc"[:count])
    rows = rows_of(*[values(kind)] * count, most=700)
    check(
        engine,
        f"{name}.{kind} %x, {letters};",
        kind,
        [kind] * count,
        rows,
        lambda *row: function(form, *row),
    )

    def two(*row: int) -> int:
        low = function(form, *(value & 0xFFFF for value in row))
        return low | function(form, *(value >> 16 for value in row)) << 16

    pairs = [
        tuple(a | b << 16 for a, b in zip(row, other, strict=True))
        for row, other in itertools.pairwise(rows)
    ]
    check(engine, f"{name}.{kind}x2 %x, {letters};", f"{kind}x2", [f"{kind}x2"] * count, pairs, two)


def test_modifiers(engine: Engine) -> None:
    rows = rows_of(values("f16"), values("f16"))

    def saturated(bits: int) -> int:
        return 0 if F16.is_nan(bits) or bits & F16.sign else min(bits, 0x3C00)

    def flushed(a: int, b: int) -> int:
        return F16.flushed(exact.add(F16, F16.flushed(a), F16.flushed(b)))

    check(
        engine,
        "add.sat.f16 %x, %a, %b;",
        "f16",
        ["f16"] * 2,
        rows,
        lambda a, b: saturated(exact.add(F16, a, b)),
    )
    check(engine, "add.ftz.f16 %x, %a, %b;", "f16", ["f16"] * 2, rows, flushed)
    three = rows_of(values("f16"), values("f16"), values("f16"), most=700)

    def without_negative(bits: int) -> int:
        return 0 if bits & F16.sign else bits

    check(
        engine,
        "fma.rn.relu.f16 %x, %a, %b, %c;",
        "f16",
        ["f16"] * 3,
        three,
        lambda a, b, c: without_negative(exact.fma(F16, a, b, c)),
    )


# -- conversions


def narrowed(source: Format, target: Format, bits: int, mode: str) -> int:
    if source.is_nan(bits):
        return target.nan
    sign = target.sign if bits & source.sign else 0
    if source.is_infinite(bits):
        return sign | target.infinity
    return target.rounded(source.value(bits), mode, sign)


@pytest.mark.parametrize("mode", MODES)
def test_float64_to_float32(engine: Engine, mode: str) -> None:
    # Beside those of float64, numbers that float32 rounds: halfway, and next to it.
    rows = rows_of(
        values("f64")
        + [
            bits << 29 ^ near
            for bits in range(896 << 23, 896 << 23 | 9)
            for near in (0, 1 << 28, (1 << 28) - 1, (1 << 28) + 1)
        ]
    )
    rows += [((0x380 - 896 + 1023 << 52 | 1 << 28,)), (0x47EFFFFFEFFFFFFF,), (0x47EFFFFFF0000000,)]
    check(
        engine,
        f"cvt.{mode}.f32.f64 %x, %a;",
        "f32",
        ["f64"],
        rows,
        lambda a: narrowed(F64, F32, a, mode),
    )


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("mode", ["rn", "rz"])
def test_float32_to_halves(engine: Engine, kind: str, mode: str) -> None:
    form = FORMATS[kind]
    lost = F32.fraction_bits - form.fraction_bits
    around = [
        exact.F32.rounded(form.value(bits)) ^ near
        for bits in values(kind)
        if not form.is_nan(bits) and not form.is_infinite(bits)
        for near in (0, 1, 1 << (lost - 1), (1 << (lost - 1)) + 1)
    ]
    rows = rows_of(values("f32") + around)
    check(
        engine,
        f"cvt.{mode}.{kind}.f32 %x, %a;",
        kind,
        ["f32"],
        rows,
        lambda a: narrowed(F32, form, a, mode),
    )

    def without_negative(a: int) -> int:
        return 0 if a & F32.sign and not F32.is_nan(a) else narrowed(F32, form, a, mode)

    check(engine, f"cvt.{mode}.relu.{kind}.f32 %x, %a;", kind, ["f32"], rows, without_negative)
    pairs = [(a, b) for (a,), (b,) in itertools.pairwise(rows)]

    def packed(a: int, b: int) -> int:
        return narrowed(F32, form, a, mode) << 16 | narrowed(F32, form, b, mode)

    check(engine, f"cvt.{mode}.{kind}x2.f32 %x, %a, %b;", f"{kind}x2", ["f32"] * 2, pairs, packed)


def test_from_halves(engine: Engine) -> None:
    rows = rows_of(list(range(0, 1 << 16, 37)) + edges(F16))
    check(
        engine, "cvt.f32.f16 %x, %a;", "f32", ["f16"], rows, lambda a: narrowed(F16, F32, a, "rn")
    )
    numbers = [row for row in rows if not F16.is_nan(row[0])]
    check(
        engine,
        "cvt.f64.f16 %x, %a;",
        "f64",
        ["f16"],
        numbers,
        lambda a: narrowed(F16, F64, a, "rn"),
    )
    brain = FORMATS["bf16"]
    rows = rows_of(list(range(0, 1 << 16, 37)) + edges(brain))
    check(
        engine,
        "cvt.f32.bf16 %x, %a;",
        "f32",
        ["bf16"],
        rows,
        lambda a: narrowed(brain, F32, a, "rn"),
    )


def test_float32_to_float64(engine: Engine) -> None:
    rows = [(value,) for value in values("f32") if not F32.is_nan(value)]
    check(
        engine, "cvt.f64.f32 %x, %a;", "f64", ["f32"], rows, lambda a: narrowed(F32, F64, a, "rn")
    )


WHOLE = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}


@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
@pytest.mark.parametrize("mode", WHOLE)
def test_to_whole_numbers(engine: Engine, mode: str, kind: str) -> None:
    form = FORMATS[kind]
    near = [
        form.rounded(Fraction(number, 2))
        for number in (1, 3, 5, -1, -3, -5, 509, 511, -255, -257, 255, 256)
    ]
    ends = [
        form.rounded(Fraction(1 << bits)) + step
        for bits in (7, 8, 15, 16, 31, 32, 63, 64)
        for step in (-1, 0, 1)
    ]
    rows = rows_of(values(kind) + near + [bits for bits in ends if bits < form.infinity])

    def whole(a: int) -> Fraction | None:
        if form.is_nan(a) or form.is_infinite(a):
            return None
        size = round_to_whole(abs(form.value(a)), WHOLE[mode], bool(a & form.sign))
        return Fraction(-size if a & form.sign else size)

    for to in ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"):
        bits = 8 * nbytes(to)
        least, most = (
            (-(1 << bits - 1), (1 << bits - 1) - 1) if to[0] == "s" else (0, (1 << bits) - 1)
        )

        def converted(a: int, bits: int = bits, least: int = least, most: int = most) -> int:
            if form.is_nan(a):
                return 0 if form is not F64 and bits < 64 else 1 << bits - 1
            if form.is_infinite(a):
                return least if a & form.sign else most
            return max(least, min(most, int(whole(a) or 0)))

        check(engine, f"cvt.{mode}.{to}.{kind} %x, %a;", to, [kind], rows, converted)

    def rounded(a: int) -> int:
        if form.is_nan(a):
            return form.nan
        return (
            a if form.is_infinite(a) else form.rounded(whole(a) or Fraction(0), "rn", a & form.sign)
        )

    numbers = [row for row in rows if not (form is F64 and form.is_nan(row[0]))]
    check(engine, f"cvt.{mode}.{kind}.{kind} %x, %a;", kind, [kind], numbers, rounded)


@pytest.mark.parametrize("source", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
def test_from_whole_numbers(engine: Engine, source: str) -> None:
    size = random.Random(source)
    rows = rows_of(
        integer_edges(source)
        + [size.getrandbits(8 * nbytes(source)) >> size.randrange(40) for _ in range(99)]
    )
    for kind in ("f16", "f32", "f64"):
        form = FORMATS[kind]
        for mode in MODES:

            def converted(a: int, form: Format = form, mode: str = mode) -> int:
                return form.rounded(Fraction(signed(a, source)), mode)

            check(engine, f"cvt.{mode}.{kind}.{source} %x, %a;", kind, [source], rows, converted)


def test_conversions_with_modifiers(engine: Engine) -> None:
    rows = rows_of(values("f32"))

    def saturated(a: int) -> int:
        return 0 if F32.is_nan(a) or a & F32.sign else min(a, 0x3F800000)

    check(engine, "cvt.sat.f32.f32 %x, %a;", "f32", ["f32"], rows, saturated)
    check(
        engine,
        "cvt.ftz.f32.f32 %x, %a;",
        "f32",
        ["f32"],
        rows,
        lambda a: F32.nan if F32.is_nan(a) else F32.flushed(a),
    )
    check(
        engine,
        "cvt.rpi.ftz.s32.f32 %x, %a;",
        "s32",
        ["f32"],
        [(1,), (0x3F800001,), (0x80000001,)],
        lambda a: 2 if a == 0x3F800001 else 0,
    )
