"""One instruction on columns of operands: a thread a row."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

import numpy as np
from engine_runner import Engine

HEAD = ".version 8.6\n.target sm_90\n.address_size 64\n"
_NAMES = "abcdef"


def nbytes(kind: str) -> int:
    if kind == "pred":
        return 1
    return int(kind.lstrip("busf")) // 8


def _register(kind: str) -> str:
    """What declares a register that takes values of `kind`."""
    return f"b{max(16, 8 * nbytes(kind))}"


def text_of(line: str, gives: str, takes: Sequence[str]) -> str:
    """A kernel around an instruction, in which %a, %b ... are operands, and %x is the result."""
    params = [f".param .u64 p{number}" for number in range(len(takes) + 1)]
    params.append(f".param .u32 p{len(params)}")
    body = ["    mov.u32 %place, %tid.x;", "    mov.u32 %count, %ctaid.x;"]
    body += ["    mad.lo.u32 %place, %count, 256, %place;"]  # blocks have so many threads
    body += [f"    ld.param.u32 %count, [p{len(params) - 1}];"]
    body += ["    setp.ge.u32 %beyond, %place, %count;", "    @%beyond bra done;"]
    registers = [
        "    .reg .u32 %place, %count;\n    .reg .pred %beyond;\n    .reg .u64 %base, %at;"
    ]
    for name, kind in zip(_NAMES, takes, strict=False):
        registers.append(f"    .reg .{_register(kind)} %{name};")
        body += _address(_NAMES.index(name) + 1, kind)
        body += [f"    ld.global.{'u8' if nbytes(kind) == 1 else _register(kind)} %{name}, [%at];"]
    registers.append(f"    .reg .{'pred' if gives == 'pred' else _register(gives)} %x;")
    body += [f"    {line}", *_address(0, gives)]
    if gives == "pred":
        registers.append("    .reg .b16 %x0;")
        body += ["    selp.u16 %x0, 1, 0, %x;", "    st.global.u8 [%at], %x0;"]
    else:
        body += [f"    st.global.{'u8' if nbytes(gives) == 1 else _register(gives)} [%at], %x;"]
    head = f"{HEAD}.visible .entry table({', '.join(params)})\n{{\n"
    return head + "\n".join([*registers, *body, "done:", "    ret;", "}", ""])


def _address(number: int, kind: str) -> list[str]:
    """Lines that give the address of the thread's element of a parameter."""
    return [
        f"    ld.param.u64 %base, [p{number}];",
        f"    mad.wide.u32 %at, %place, {nbytes(kind)}, %base;",
    ]


def compute(
    engine: Engine, line: str, gives: str, takes: Sequence[str], rows: Sequence[Sequence[int]]
) -> list[int]:
    """The result of each row, as bits."""
    result = np.zeros(len(rows), f"u{nbytes(gives)}")
    columns = [
        np.array([row[k] % (1 << 8 * nbytes(kind)) for row in rows], f"u{nbytes(kind)}")
        for k, kind in enumerate(takes)
    ]
    arguments, grid = [result, *columns, np.uint32(len(rows))], (-(-len(rows) // 256), 1, 1)
    engine.run(text_of(line, gives, takes), "table", arguments, grid, (256, 1, 1))
    numbers: list[int] = result.tolist()
    return numbers


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
    line: str,
    gives: str,
    takes: Sequence[str],
    rows: Sequence[Sequence[int]],
    expected: Callable[..., int],
) -> None:
    """`expected` takes and gives bits."""
    got = compute(engine, line, gives, takes, rows)
    wide = 8 * nbytes(gives)
    wrong = [
        f"{line} of {[hex(value) for value in row]}: {result:#x}, not {want:#x}"
        for row, result in zip(rows, got, strict=True)
        if result != (want := int(expected(*row)) % (1 << wide))
    ]
    if wrong:
        raise AssertionError("\n".join([f"{len(wrong)} of {len(rows)}", *wrong[:10]]))
