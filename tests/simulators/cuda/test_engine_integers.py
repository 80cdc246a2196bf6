"""Integer instructions against Python's integers."""

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


@pytest.mark.parametrize("kind", ["pred", "b16", "b32", "b64"])
def test_logic(engine: Engine, kind: str) -> None:
    values = [0, 1] if kind == "pred" else integer_edges(kind)
    rows = rows_of(values, values)
    mask = 1 if kind == "pred" else (1 << 8 * nbytes(kind)) - 1
    check(engine, f"and.{kind} %x, %a, %b;", kind, [kind] * 2, rows, lambda a, b: a & b)
    check(engine, f"or.{kind} %x, %a, %b;", kind, [kind] * 2, rows, lambda a, b: a | b)
    check(engine, f"xor.{kind} %x, %a, %b;", kind, [kind] * 2, rows, lambda a, b: a ^ b)
    check(engine, f"not.{kind} %x, %a;", kind, [kind], rows_of(values), lambda a: ~a & mask)
    if kind != "pred":
        check(engine, f"cnot.{kind} %x, %a;", kind, [kind], rows_of(values), lambda a: a == 0)


@pytest.mark.parametrize("bits", WIDTHS)
def test_shifts(engine: Engine, bits: int) -> None:
    amounts = [0, 1, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 1 << 31, (1 << 32) - 1]
    rows = rows_of(integer_edges(f"u{bits}"), amounts)

    def right(a: int, b: int) -> int:
        return a >> min(b, bits)

    for kind, name, function in (
        (f"b{bits}", "shl", lambda a, b: a << min(b, bits)),
        (f"u{bits}", "shr", right),
        (f"b{bits}", "shr", right),
        (f"s{bits}", "shr", lambda a, b: signed(a, f"s{bits}") >> min(b, bits)),
    ):
        check(engine, f"{name}.{kind} %x, %a, %b;", kind, [kind, "u32"], rows, function)


@pytest.mark.parametrize("clamps", [False, True])
def test_funnel_shifts(engine: Engine, clamps: bool) -> None:
    values = integer_edges("b32")
    rows = rows_of(values, values, [0, 1, 7, 31, 32, 33, 255, (1 << 32) - 1])
    word = "clamp" if clamps else "wrap"

    def amount(c: int) -> int:
        return min(c, 32) if clamps else c & 31

    check(
        engine,
        f"shf.l.{word}.b32 %x, %a, %b, %c;",
        "b32",
        ["b32"] * 3,
        rows,
        lambda a, b, c: (b << 32 | a) << amount(c) >> 32,
    )
    check(
        engine,
        f"shf.r.{word}.b32 %x, %a, %b, %c;",
        "b32",
        ["b32"] * 3,
        rows,
        lambda a, b, c: (b << 32 | a) >> amount(c),
    )


@pytest.mark.parametrize("table", [0x00, 0x1A, 0x80, 0x96, 0xE8, 0xFE, 0xFF])
def test_any_function_of_three_bits(engine: Engine, table: int) -> None:
    values = integer_edges("b32")

    def looked_up(*row: int) -> int:
        places = range(32)
        index = [
            sum((value >> bit & 1) << shift for value, shift in zip(row, (2, 1, 0), strict=True))
            for bit in places
        ]
        return sum((table >> index[bit] & 1) << bit for bit in places)

    rows = rows_of(values, values, values, most=200)
    check(engine, f"lop3.b32 %x, %a, %b, %c, {table:#x};", "b32", ["b32"] * 3, rows, looked_up)


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_fields_are_taken_out(engine: Engine, kind: str) -> None:
    top = 8 * nbytes(kind) - 1

    def taken(a: int, start: int, length: int) -> int:
        start, length = start & 255, length & 255
        sign = a >> min(start + length - 1, top) & 1 if kind[0] == "s" and length else 0
        return sum(
            (a >> (start + bit) & 1 if bit < length and start + bit <= top else sign) << bit
            for bit in range(top + 1)
        )

    places = [0, 1, 4, 8, 31, 32, 33, 63, 64, 255, 256]
    rows = rows_of(integer_edges(kind), places, places)
    check(engine, f"bfe.{kind} %x, %a, %b, %c;", kind, [kind, "u32", "u32"], rows, taken)


@pytest.mark.parametrize("kind", ["b32", "b64"])
def test_fields_are_put_in(engine: Engine, kind: str) -> None:
    width = 8 * nbytes(kind)

    def put(a: int, b: int, start: int, length: int) -> int:
        start, length = start & 255, length & 255
        mask = ((1 << length) - 1) << start
        return (b & ~mask | a << start & mask) & ((1 << width) - 1)

    values, places = integer_edges(kind), [0, 1, 8, 31, 32, 64, 255, 256]
    rows = rows_of(values, values, places, places)
    check(engine, f"bfi.{kind} %x, %a, %b, %c, %d;", kind, [kind, kind, "u32", "u32"], rows, put)


@pytest.mark.parametrize("kind", ["b32", "b64"])
def test_counting(engine: Engine, kind: str) -> None:
    width, rows = 8 * nbytes(kind), rows_of(integer_edges(kind))
    check(engine, f"popc.{kind} %x, %a;", "u32", [kind], rows, lambda a: bin(a).count("1"))
    check(engine, f"clz.{kind} %x, %a;", "u32", [kind], rows, lambda a: width - a.bit_length())
    check(
        engine, f"brev.{kind} %x, %a;", kind, [kind], rows, lambda a: int(f"{a:0{width}b}"[::-1], 2)
    )
    for sign in "us":
        whole = f"{sign}{width}"

        def found(a: int, whole: str = whole) -> int:
            value = signed(a, whole)
            return (value if value >= 0 else ~value).bit_length() - 1

        check(engine, f"bfind.{whole} %x, %a;", "u32", [whole], rows, found)
        check(
            engine,
            f"bfind.shiftamt.{whole} %x, %a;",
            "u32",
            [whole],
            rows,
            lambda a, f=found: -1 if f(a) < 0 else width - 1 - f(a),
        )


def test_masks_and_extensions(engine: Engine) -> None:
    amounts = [0, 1, 5, 31, 32, 33, 64, (1 << 32) - 1]
    rows = rows_of(amounts, amounts)
    check(
        engine,
        "bmsk.clamp.b32 %x, %a, %b;",
        "b32",
        ["b32"] * 2,
        rows,
        lambda a, b: ((1 << min(b, 32)) - 1) << min(a, 32),
    )
    check(
        engine,
        "bmsk.wrap.b32 %x, %a, %b;",
        "b32",
        ["b32"] * 2,
        rows,
        lambda a, b: ((1 << (b & 31)) - 1) << (a & 31),
    )
    rows = rows_of(integer_edges("u32"), amounts)

    def extended(a: int, bits: int, sign: bool) -> int:
        if not bits:
            return 0
        low = a & ((1 << bits) - 1)
        return low - (1 << bits) if sign and low >> (bits - 1) else low

    check(
        engine,
        "szext.clamp.s32 %x, %a, %b;",
        "s32",
        ["s32", "u32"],
        rows,
        lambda a, b: extended(a, min(b, 32), True),
    )
    check(
        engine,
        "szext.wrap.u32 %x, %a, %b;",
        "u32",
        ["u32", "u32"],
        rows,
        lambda a, b: extended(a, b & 31, False),
    )


def test_bytes_are_permuted(engine: Engine) -> None:
    def permuted(a: int, b: int, c: int) -> int:
        every, result = (b << 32 | a).to_bytes(8, "little"), 0
        for place in range(4):
            choice = c >> 4 * place & 15
            byte = every[choice & 7]
            result |= ((0xFF if byte >> 7 else 0) if choice & 8 else byte) << 8 * place
        return result

    rows = rows_of(
        [0x33221100, 0x80FF7F01],
        [0x77665544, 0xF0E0D0C0],
        [0x3210, 0x7654, 0x0123, 0xFEDC, 0x8899, 0x12345678],
    )
    check(engine, "prmt.b32 %x, %a, %b, %c;", "b32", ["b32"] * 3, rows, permuted)
    modes = {"f4e": "3210 4321 5432 6543", "b4e": "5670 6701 7012 0123", "rc8": "0000 1111 2222 3333",
             "ecl": "3210 3211 3222 3333", "ecr": "0000 1110 2210 3210", "rc16": "1010 3232 1010 3232"}  # fmt: skip
    rows = rows_of([0x33221100], [0x77665544], [0, 1, 2, 3, 7])
    for mode, selectors in modes.items():
        table = [int(selector, 16) for selector in selectors.split()]
        check(
            engine,
            f"prmt.b32.{mode} %x, %a, %b, %c;",
            "b32",
            ["b32"] * 3,
            rows,
            lambda a, b, c, t=table: permuted(a, b, t[c & 3]),
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
    lines = f".reg .b64 %at2;\nmov.b64 %at2, %a;\n.local .b64 place;\nst.local.u{width} [place], %at2;\nld.local.{to} %x, [place];"
    check(engine, lines, "u64", ["u64"], rows, lambda a: signed(a, to))
