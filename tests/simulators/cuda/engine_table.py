"""One instruction on columns of operands: a thread a row."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

import numpy as np
from engine_runner import SCHEDULES, Engine

HEAD = ".version 8.6\n.target sm_90\n.address_size 64\n"
_NAMES = "abcdef"


def nbytes(kind: str) -> int:
    if kind == "pred":
        return 1
    return 4 if kind.endswith("x2") else int(kind.lstrip("busf")) // 8


def _register(kind: str) -> str:
    """What declares a register that takes values of `kind`."""
    return f"b{max(16, 8 * nbytes(kind))}"


def text_of(lines: str, gives: Sequence[str], takes: Sequence[str], before: str = "") -> str:
    """A kernel around `lines`, in which %a, %b ... are operands, and %x, %y results."""
    params = [f".param .u64 p{number}" for number in range(len(gives) + len(takes) + 1)]
    body = ["    mov.u32 %place, %tid.x;", "    mov.u32 %count, %ctaid.x;"]
    body += ["    mad.lo.u32 %place, %count, 256, %place;"]  # blocks have so many threads
    body += [f"    ld.param.u32 %count, [p{len(params) - 1}];"]
    body += ["    setp.ge.u32 %beyond, %place, %count;", "    @%beyond bra done;"]
    registers = [
        "    .reg .u32 %place, %count;\n    .reg .pred %beyond;\n    .reg .u64 %base, %at;"
    ]
    for number, kind in enumerate(takes):
        name, place = f"%{_NAMES[number]}", len(gives) + number
        registers.append(f"    .reg .{'pred' if kind == 'pred' else _register(kind)} {name};")
        body += [f"    ld.param.u64 %base, [p{place}];"]
        body += [f"    mad.wide.u32 %at, %place, {nbytes(kind)}, %base;"]
        if kind == "pred":
            registers.append(f"    .reg .b16 {name}0;")
            body += [f"    ld.global.u8 {name}0, [%at];", f"    setp.ne.u16 {name}, {name}0, 0;"]
        else:
            body += [
                f"    ld.global.{'u8' if nbytes(kind) == 1 else _register(kind)} {name}, [%at];"
            ]
    body += [f"    {line}" for line in lines.splitlines()]
    for number, kind in enumerate(gives):
        name = "%" + "xyz"[number]
        registers.append(f"    .reg .{'pred' if kind == 'pred' else _register(kind)} {name};")
        body += [f"    ld.param.u64 %base, [p{number}];"]
        body += [f"    mad.wide.u32 %at, %place, {nbytes(kind)}, %base;"]
        if kind == "pred":
            registers.append(f"    .reg .b16 {name}0;")
            body += [f"    selp.u16 {name}0, 1, 0, {name};", f"    st.global.u8 [%at], {name}0;"]
        else:
            body += [
                f"    st.global.{'u8' if nbytes(kind) == 1 else _register(kind)} [%at], {name};"
            ]
    params[-1] = params[-1].replace("u64", "u32")
    head = f"{HEAD}{before}.visible .entry table({', '.join(params)})\n{{\n"
    return head + "\n".join([*registers, *body, "done:", "    ret;", "}", ""])


def column(values: Sequence[int], kind: str) -> np.ndarray:
    size = nbytes(kind)
    return np.array([value % (1 << 8 * size) for value in values], f"u{size}")


def compute(
    engine: Engine,
    lines: str,
    gives: Sequence[str],
    takes: Sequence[str],
    rows: Sequence[Sequence[int]],
    *,
    before: str = "",
    schedule: str = SCHEDULES[0],
) -> list[tuple[int, ...]]:
    """The results of each row, as bits."""
    results = [np.zeros(len(rows), f"u{nbytes(kind)}") for kind in gives]
    columns = [column([row[k] for row in rows], kind) for k, kind in enumerate(takes)]
    text = text_of(lines, gives, takes, before)
    grid = (-(-len(rows) // 256), 1, 1)
    arguments = [*results, *columns, np.uint32(len(rows))]
    engine.run(text, "table", arguments, grid, (256, 1, 1), schedule=schedule)
    return list(zip(*(result.tolist() for result in results), strict=True))


def integer_edges(kind: str) -> list[int]:
    """Bits."""
    size = 8 * nbytes(kind)
    most = (1 << size) - 1
    values = {0, 1, 2, 3, 5, 7, 31, 32, 33, 63, 64, 100, most, most - 1, most // 2, most // 2 + 1}
    values |= {most // 3, most // 5 * 3, (1 << size // 2) - 1, 1 << size // 2, 0xFF & most}
    return sorted(value & most for value in values)


def signed(value: int, kind: str) -> int:
    """Bits as the number that `kind` makes of them."""
    size = 8 * nbytes(kind)
    value %= 1 << size
    return value - (1 << size) if kind[0] == "s" and value >> (size - 1) else value


def rows_of(*columns: Sequence[int], most: int = 1500) -> list[tuple[int, ...]]:
    """All combinations, or some of them."""
    every = list(itertools.product(*columns))
    return every if len(every) <= most else random.Random(7).sample(every, most)


def check(
    engine: Engine,
    lines: str,
    gives: str,
    takes: Sequence[str],
    rows: Sequence[Sequence[int]],
    expected: Callable[..., int],
) -> None:
    """`expected` takes and gives bits."""
    got = compute(engine, lines, [gives], takes, rows)
    wide = 8 * nbytes(gives)
    wrong = [
        f"{lines} of {[hex(value) for value in row]}: {result:#x}, not {want:#x}"
        for row, (result,) in zip(rows, got, strict=True)
        if result != (want := int(expected(*row)) % (1 << wide))
    ]
    if wrong:
        raise AssertionError("\n".join([f"{len(wrong)} of {len(rows)}", *wrong[:10]]))
