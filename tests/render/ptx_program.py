"""PTX text taken apart: the subset that the renderer writes, and nothing beside it."""

from __future__ import annotations

import re
from typing import NamedTuple

_ENTRY = re.compile(
    r"\.version \d\.\d\n\.target sm_\d+\n\.address_size 64\n\n(?P<tables>(?:\.const .*\n)*)"
    r"\.visible \.entry (?P<name>\w+)\(\n(?P<params>[^)]*)\)\n(?P<bound>\.\w+ [\d, ]+)\n"
    r"\{\n(?P<body>.*)\}\n",
    re.S,
)
_PARAM = re.compile(r"    \.param \.(\w+) (\w+)")
_REGISTERS = re.compile(r"    \.reg \.(\w+) (%[a-z]+)<(\d+)>;")
_ARRAY = re.compile(r"    \.(shared|local) \.align 16 \.b8 (\$\w+)\[(\d+)\];")
_TABLE = re.compile(r"\.const \.align 16 \.(\w+) (\$\w+)\[(\d+)\] = \{(.*)\};")
_COMMA = re.compile(r", (?![^{]*\})")  # not those between the registers of a vector
_LABEL = re.compile(r"(\$\w+):")
_INSTRUCTION = re.compile(r"    (?:@(?P<guard>!?%p\d+) )?(?P<name>[a-z][\w.]*)(?: (?P<rest>.+))?;")


class Instruction(NamedTuple):
    guard: str  # "", "%p1" or "!%p1"
    name: str
    operands: tuple[str, ...]
    text: str


class Program:
    """One entry: its parameters, registers, shared arrays and instructions."""

    def __init__(self, text: str) -> None:
        found = _ENTRY.fullmatch(text)
        if found is None:
            raise ValueError("not the text of one kernel")
        self.name, self.bound = found["name"], found["bound"]
        self.params: dict[str, str] = {}
        for line in found["params"].replace(",\n", "\n").splitlines():
            kind, name = _matched(_PARAM, line)
            self.params[name] = kind
        self.registers: dict[str, str] = {}
        self.arrays: dict[str, dict[str, int]] = {"shared": {}, "local": {}}
        self.tables: dict[str, tuple[str, list[str]]] = {}  # name -> the kind, the numbers
        for line in found["tables"].splitlines():
            kind, name, count, values = _matched(_TABLE, line)
            self.tables[name] = kind, values.split(", ")
            if len(self.tables[name][1]) != int(count):
                raise ValueError(f"not {count} numbers: {line!r}")
        self.labels: dict[str, int] = {}
        self.code: list[Instruction] = []
        for line in found["body"].splitlines():
            self._line(line)
        # Where a stretch of text ends: at a label, for other threads may come along there.
        self.leaders = frozenset(self.labels.values())
        for instruction in self.code:
            if instruction.name == "bra" and instruction.operands[0] not in self.labels:
                raise ValueError(f"no label {instruction.operands[0]}")

    def check_block(self, block: tuple[int, int, int]) -> None:
        kind, sizes = self.bound.split(" ", 1)
        extents = tuple(map(int, sizes.split(",")))
        most = extents[0] * extents[1] * extents[2]
        fits = block == extents if kind == ".reqntid" else block[0] * block[1] * block[2] <= most
        if not fits:
            raise ValueError(f"a block of {block}, but {self.bound}")

    def _line(self, line: str) -> None:
        if not line:
            return
        if line.startswith("    .reg"):
            kind, prefix, count = _matched(_REGISTERS, line)
            self.registers |= {f"{prefix}{number}": kind for number in range(int(count))}
        elif line.startswith(("    .shared", "    .local")):
            space, name, nbytes = _matched(_ARRAY, line)
            self.arrays[space][name] = int(nbytes)
        elif line.startswith("$"):
            (name,) = _matched(_LABEL, line)
            if name in self.labels:
                raise ValueError(f"a second label {name}")
            self.labels[name] = len(self.code)
        else:
            guard, name, rest = _matched(_INSTRUCTION, line)
            operands = tuple(_COMMA.split(rest)) if rest else ()
            self.code.append(Instruction(guard or "", name, operands, line.strip()))


def _matched(pattern: re.Pattern[str], line: str) -> tuple[str, ...]:
    found = pattern.fullmatch(line)
    if found is None:
        raise ValueError(f"cannot be read: {line!r}")
    return found.groups()
