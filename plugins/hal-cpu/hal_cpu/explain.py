"""`hal explain`: show how LLVM's text of a kernel is written: its gangs, loops, branches, accesses.

A *gang* is some threads that are neighbours along x, which are written as vectors.
"""

from __future__ import annotations

import argparse
import linecache
from textwrap import dedent
from typing import Any, NamedTuple

from hal_core.cli import output
from hal_core.errors import HalError, InvalidArgument
from hal_core.signature import Signature
from hal_cpu import processor
from hal_cpu.vectors import LLVMRenderer
from hal_cpu.vectors.gangs import Gangs
from hal_cpu.vectors.tree import walk
from hal_cpu.vectors.width import Registers
from hal_kernel.cli.kernels import FORMS, AnyKernel, KernelFile, lowered
from hal_kernel.ir import Kernel
from hal_kernel.ir.uop import UOp, array_of, atomic_name
from hal_kernel.lang.function import KernelFunction

HELP = "Show how the CPU runs the loops, branches and accesses of a kernel."

_KINDS = {
    "RANGE": "loop", "LOOP": "loop", "IF": "branch", "LOAD": "load", "STORE": "store",
    "SHUFFLE": "shuffle", "BALLOT": "ballot",
}  # fmt: skip


class Row(NamedTuple):
    """Nodes of one line that are alike; its fields are the keys of a row of `--json`."""

    line: int  # of the file; 0 for none
    text: str  # of that line
    region: int  # between two barriers, from 1; 0: outside of all, as loops around barriers are
    kind: str  # loop, branch, load, store, shuffle, ballot, or atomic and what it does
    name: str  # of the memory; "" where there is none
    how: str
    times: int = 1


class Explained(NamedTuple):
    """One kernel as it is written; its fields are the keys of a kernel of `--json`."""

    kernel: str
    file: str
    width: int  # threads of a gang
    rest_width: int  # of those behind the last whole gang of a row
    why: str  # threads run one by one; "" if they do not
    subgroup: int  # threads of a subgroup, which is a gang; 0: the kernel uses none
    regions: int  # one more than barriers part
    rows: list[Row]


class NotingRenderer(LLVMRenderer):
    """The renderer of LLVM's text for this processor, which keeps what it wrote last."""

    written: Gangs

    def __init__(self) -> None:
        registers = Registers(*processor.vector_registers())
        super().__init__(processor.has_half(), processor.has_fma(), registers)

    def _render(self, kernel: Kernel) -> str:
        self.written = self.gangs(kernel)
        return self.written.text()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", metavar="FILE[:KERNEL]", help=FORMS)
    parser.add_argument("--json", action="store_true", help="Print JSON, for programs to read.")


def run(options: argparse.Namespace) -> int:
    file = KernelFile(options.kernel)
    found: dict[str, Explained | str] = {}
    for name, kernel in file.chosen().items():
        try:
            found[name] = explained(name, kernel)
        except HalError as error:
            if file.wanted:
                raise
            found[name] = str(error)  # the other kernels of the file are explained all the same
    if options.json:
        output.write_json([record(name, one) for name, one in found.items()], options)
    else:
        for one in found.values():
            show(one)
    return 1 if any(isinstance(one, str) for one in found.values()) else 0


def explained(name: str, kernel: AnyKernel) -> Explained:
    """Return how a kernel is written.

    Raises: InvalidArgument for a text, and for a kernel of another front end; KernelSyntaxError.
    """
    read = lowered(kernel) if isinstance(kernel, KernelFunction | Kernel) else None
    if not isinstance(read, Kernel):
        problem = "only kernels of @hal.kernel are explained; others run as they are written"
        raise InvalidArgument(f"explain {name}", problem, got=type(kernel).__name__)
    renderer, file = NotingRenderer(), ""
    renderer.render(read)
    if isinstance(kernel, KernelFunction):
        file = kernel.__wrapped__.__code__.co_filename
    gangs = renderer.written
    whole, few, why = gangs.widths
    regions = max(regions_of(gangs).values())
    subgroup = whole if gangs.by_subgroup else 0
    return Explained(name, file, whole, few, why, subgroup, regions, rows(gangs, file))


def rows(gangs: Gangs, file: str) -> list[Row]:
    """Return a row for each line and kind of node, in the order of the lines."""
    region_of = regions_of(gangs)
    found: dict[Row, int] = {}
    for node, how in gangs.notes.items():
        text = linecache.getline(file, node.line).rstrip() if file else ""
        kind, name = _named(node, gangs.kernel.signature)
        row = Row(node.line, text, region_of[node], kind, name, how)
        found[row] = found.get(row, 0) + 1
    counted = [row._replace(times=count) for row, count in found.items()]
    return sorted(counted, key=lambda row: row.line)


def regions_of(gangs: Gangs) -> dict[UOp, int]:
    """Return the region of each node, of those that the writer made, too."""
    found: dict[UOp, int] = {}
    region = regions = 0
    for node in gangs.kernel.uops:
        if node.op == "THREADS":
            region = regions = regions + 1
        found[node] = region
        if node.op == "ENDTHREADS":
            region = 0
    for opened, body in gangs.bodies.items():
        for item, _ in walk(body):
            found[item if isinstance(item, UOp) else item.node] = found[opened]
    return found


def _named(node: UOp, signature: Signature) -> tuple[str, str]:
    """Return the kind of a node, and the name of the memory that it accesses."""
    if node.op in ("RANGE", "LOOP", "IF", "SHUFFLE", "BALLOT"):
        return _KINDS[node.op], ""
    memory = array_of(node.src[0])
    name = signature.params[memory.arg].name if memory.op == "PARAM" else memory.arg[0]
    return _KINDS.get(node.op) or f"atomic {atomic_name(node).lower()}", name


def record(name: str, found: Explained | str) -> dict[str, Any]:
    """Return what a program reads of one kernel."""
    if isinstance(found, str):
        return {"kernel": name, "error": found}
    rows = [{**row._asdict(), "text": row.text.strip()} for row in found.rows]
    return {**found._asdict(), "rows": rows}


def show(found: Explained | str) -> None:
    """Print what people read of one kernel."""
    console = output.console()
    if isinstance(found, str):
        console.print(found)
        return
    if found.width == 1:
        console.print(f"{found.kernel}: threads run one by one: {found.why}")
    else:
        rest = f", of {found.rest_width} behind the last of a row"
        rest = rest if found.rest_width < found.width else ""
        word = "subgroups" if found.subgroup else "gangs"
        console.print(f"{found.kernel}: {word} of {found.width} threads{rest}")
    parted = ("region",) if found.regions > 1 else ()
    table = output.table(("line", "source", "what", "how it is written"), ("", *parted))
    texts, shown = dedent("\n".join(row.text for row in found.rows)).split("\n"), 0
    for row, text in zip(found.rows, texts, strict=False):  # no rows have one text
        first = ("", "") if row.line == shown else (str(row.line), text)
        what, count = f"{row.kind} {row.name}".strip(), f"x{row.times}" if row.times > 1 else ""
        table.add_row(*first, what, row.how, count, *[str(row.region)] * len(parted))
        shown = row.line
    console.print(table)
