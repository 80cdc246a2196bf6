"""Logic, shifts and fields of bits against Python's integers."""

from __future__ import annotations

import pytest
from engine_runner import Engine, shared_engine
from engine_table import check, integer_edges, nbytes, rows_of, signed

WIDTHS = (16, 32, 64)


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return shared_engine(tmp_path_factory)


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
    modes = {
        "f4e": "3210 4321 5432 6543",
        "b4e": "5670 6701 7012 0123",
        "rc8": "0000 1111 2222 3333",
        "ecl": "3210 3211 3222 3333",
        "ecr": "0000 1110 2210 3210",
        "rc16": "1010 3232 1010 3232",
    }
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
