"""Find loops that a few threads run to their end before the next few begin.

    for k in range(n):                       for first in range(0, threads, 64):
        for t in range(threads):      ->         for k in range(n):
            total[t] += x[k] * y[t]                  for t in range(first, first + 64):
                                                         total[t] += x[k] * y[t]

The variables of these threads then stay in vector registers, and are not stored and loaded in each
iteration. A loop without variables that divides a flat index is run so, too: its row is cut in
parts once, not in each iteration. Such a loop has no barrier and does nothing but run one region.
In the list of nodes GROUPS and ENDGROUPS enclose it:

| op | src | arg | meaning |
| --- | --- | --- | --- |
| GROUPS | | int | so many threads along x run all that follows, then the next |
| ENDGROUPS | its GROUPS | | the end of what they run |
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from hal_kernel.ir.blocks.middle import guessed, middle
from hal_kernel.ir.blocks.quotients import Cut, parts
from hal_kernel.ir.blocks.rows import MOST_NODES, MOST_NODES_IN_PARTS, MOST_REGIONS, Row
from hal_kernel.ir.blocks.thread_bounds import bounds
from hal_kernel.ir.uop import PURE, UOp

_ENDS = frozenset({"ENDRANGE", "ENDLOOP", "ENDIF"})
_LEAVING = frozenset({"LOOP", "ENDLOOP", "SET", "IF", "BREAK", "ENDIF"})
_AROUND = PURE | {"CONST", "GET", "LOAD", "RANGE", "ENDRANGE", "THREADS", "ENDTHREADS"}
MOST_LANES, FEWEST_LANES = 128, 16
_MOST_LEAVING = 32


class Registers(NamedTuple):
    """The vector registers of a processor."""

    number: int = 32
    nbytes: int = 64  # of each


WIDE = Registers()  # of AVX-512


def in_groups(uops: Sequence[UOp], registers: Registers) -> list[UOp]:
    """Return the nodes of a kernel that was split, its BARRIERs among them, with groups marked."""
    made: list[UOp] = []
    end: UOp | None = None  # the last node that a group runs
    group = UOp("GROUPS", None)
    for place, node in enumerate(uops):
        if end is None and node.op in ("RANGE", "LOOP"):
            nest = _block(uops[place:], node)
            lanes = _lanes(nest, registers)
            if lanes:
                group, end = UOp("GROUPS", None, (), lanes), nest[-1]
                if node.op == "LOOP":  # and the IF of the threads that are left
                    left = next(n for n in uops[place + len(nest) :] if n.op == "IF")
                    end = _block(uops, left)[-1]
                made.append(group)
        made.append(node)
        if node is end:
            made.append(UOp("ENDGROUPS", None, (group,)))
            end = None
    return made


def region_of(nest: Sequence[UOp]) -> list[UOp]:
    """Return the nodes of the region in a nest of loops, without THREADS and ENDTHREADS."""
    ops = [node.op for node in nest]
    return list(nest[ops.index("THREADS") + 1 : ops.index("ENDTHREADS")])


def parts_of_nest(row: Row, nest: Iterable[UOp]) -> Cut | None:
    """Return the region of a nest of loops as it is for a part of the row; None without parts.

    The loop over parts stands around those of the nest, so what these compute divides no row.
    """
    changing = set(nest).difference(row.nodes)
    for node in row.nodes:
        if not changing.isdisjoint(node.src):
            changing.add(node)
    return parts(row, changing=changing)


def _block(uops: Sequence[UOp], node: UOp) -> Sequence[UOp]:
    """Return the nodes from the one that opens a block to the one that ends it."""
    ends = (n for n, last in enumerate(uops) if last.op in _ENDS and last.src[0] is node)
    return uops[uops.index(node) : next(ends) + 1]


def after_loop(nest: Sequence[UOp]) -> tuple[list[UOp], list[UOp]]:
    """Return what threads do each by itself in the nest of a LOOP, without and with its IF."""
    if nest[0].op != "LOOP":
        return [], []
    behind = list(nest[len(_block(nest, nest[0])) :])
    ops = [node.op for node in behind]
    return behind[ops.index("THREADS") : ops.index("ENDTHREADS") + 1], behind


def _lanes(nest: Sequence[UOp], registers: Registers) -> int:
    """Return the number of threads of a group, a power of two; 0 if the loop is left as it is."""
    around, inside = [], False
    for node in nest:
        inside = inside and node.op != "ENDTHREADS"
        if not inside:
            around.append(node)
        inside = inside or node.op == "THREADS"
    regions = [node for node in around if node.op == "THREADS"]
    known = _AROUND | _LEAVING if nest[0].op == "LOOP" else _AROUND
    if len(regions) != 1 or not regions[0].arg or any(node.op not in known for node in around):
        return 0
    region = region_of(nest)
    if nest[0].op == "LOOP" and not any(node.op == "COUNT" for node in region):
        return 0
    spills = {node.src[0] for node in region if node.op in ("GET", "SET")}
    spills = {node for node in spills if node.op == "SPILL"}
    row = Row(region)
    cut = parts_of_nest(row, nest)
    run = row if cut is None else cut.row
    if not (_bound_ahead(row, around) and _bound_ahead(run, around)):
        return 0
    if nest[0].op != "LOOP" and middle(run, guessed(run, bounds(run).known)) is not None:
        return 0
    if not spills and cut is None:
        return 0
    if nest[0].op == "RANGE":
        return fitting(MOST_LANES, spills, registers)
    # The fewer threads run such a loop together, the more often is it run with some that have left.
    return fitting(_MOST_LEAVING, spills, WIDE)


def fitting(lanes: int, spills: Iterable[UOp], registers: Registers) -> int:
    """Return the number of threads, at most `lanes`, whose variables fill half of the registers.

    It is no less than what one register has of float32.
    """
    nbytes = sum(node.dtype.itemsize for node in spills if node.dtype)
    room = registers.number * registers.nbytes // 2
    while lanes * nbytes > room and 4 * lanes > registers.nbytes:
        lanes //= 2
    return lanes


def _bound_ahead(row: Row, around: Sequence[UOp]) -> bool:
    """Tell whether a row has bounds that no loop around it changes."""
    limits = bounds(row)
    used = {source for node in limits.needed(row) for source in node.src}
    used |= {source for node in limits.solving for source in node.src}
    used |= {node for limit in limits.limits for node in (limit.end, limit.offset) if node}
    used |= {test for test, _ in limits.rows}
    return used.isdisjoint(around)


def counts_in_groups(uops: Sequence[UOp]) -> bool:
    """Tell whether each region with a COUNT is run by a few threads at a time."""
    grouped = False
    for node in uops:
        grouped = (grouped or node.op == "GROUPS") and node.op != "ENDGROUPS"
        if node.op == "COUNT" and not grouped:
            return False
    return True


def runs_in_parts(uops: Sequence[UOp], strides: Collection[UOp]) -> bool:
    """Tell whether each region may cut its rows.

    It is short and, outside of groups and of `strides`, runs once.
    """
    grouped, inside, length = False, False, 0
    for node in uops:
        grouped = (grouped or node.op == "GROUPS") and node.op != "ENDGROUPS"
        inside = (inside or node.op == "THREADS") and node.op != "ENDTHREADS"
        length = length + 1 if inside else 0
        if length > MOST_NODES_IN_PARTS:
            return False
        repeats = node.op in ("RANGE", "LOOP", "IF") and node not in strides
        if repeats and not grouped and not inside:
            return False
    return len(uops) <= MOST_NODES and sum(node.op == "THREADS" for node in uops) <= MOST_REGIONS
