"""Run the loops of a kernel for a few threads of a row that agree on their iterations.

    i = hal.global_idx(0)                   for each row, with its number j:
    j = hal.global_idx(1)                       for first in range(0, threads, 64):
    if i < w and j < h:                             start, stop = off[j], off[j + 1]
        total = 0                                   for t in range(first, first + 64):
        for k in range(off[j], off[j + 1]):             total[t] = 0
            total += x[ids[k] * w + i]      ->      for k in range(start, stop):
        y[j * w + i] = total                            n = ids[k] * w
                                                        for t in range(first, first + 64):
                                                            total[t] += x[n + t]
                                                    for t in range(first, first + 64):
                                                        y[j * w + t] = total[t]

`lockstep.py` hoists what all threads of a block agree on. Here the threads of a row do, those of
the block that differ along x only: on what they load where the row says, and on when they leave a
loop. Each thread does what it did, in the same order; and what they load at one index no other of
them stores, without a race. The guards of the kernel bound the threads of a row ahead of all else,
so a row without a thread in them loads nothing.

In the list of nodes ROW_GROUPS and ENDROW_GROUPS enclose all regions, and what is hoisted. The
first region has the guards only: the threads that get into all its IFs run what follows.

| op | src | arg | meaning |
| --- | --- | --- | --- |
| ROW_GROUPS | | int | groups of at most so many threads of a row each run what follows |
| ENDROW_GROUPS | its ROW_GROUPS | | the end of what they run |
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hal_kernel.ir.blocks.groups import MOST_LANES, Registers, fitting
from hal_kernel.ir.blocks.hoisting import is_common
from hal_kernel.ir.blocks.lockstep import Lockstep, with_loops, without_guards
from hal_kernel.ir.blocks.quotients import parts
from hal_kernel.ir.blocks.region import enclosed
from hal_kernel.ir.blocks.rows import ALONG_X, Row
from hal_kernel.ir.blocks.strides import Stride
from hal_kernel.ir.blocks.thread_bounds import bounds
from hal_kernel.ir.blocks.windows import FITS
from hal_kernel.ir.loops import unrolled
from hal_kernel.ir.uniformity import Uniformity
from hal_kernel.ir.uop import CLOSES, OPENS, PURE, Kernel, UOp

_MOST_NODES = 250  # of a kernel: it is written five times, for groups of several sizes
_FEWEST = 8  # threads that run a row together
_LOOPS = frozenset({"RANGE", "LOOP"})
_KNOWN = PURE | {
    "PARAM", "TABLE", "VIEW", "CONST", "SPECIAL", "VAR", "GET", "SET", "LOAD", "STORE", "IF",
    "ELSE", "ENDIF", "RANGE", "ENDRANGE", "LOOP", "ENDLOOP", "BREAK", "CONTINUE",
}  # fmt: skip


def in_rows(kernel: Kernel) -> Lockstep | None:
    """Return a kernel with nodes to hoist for each row; None if no loop gains by it."""
    uops, block = kernel.uops, kernel.block
    if len(uops) > _MOST_NODES or (block is not None and block[0] < _FEWEST):
        return None
    ops = {node.op for node in uops}
    if ops.isdisjoint(_LOOPS) or not ops <= _KNOWN or any(node.arg == FITS for node in uops):
        return None
    short = unrolled(uops)
    long = {node for node in uops if node.op in _LOOPS} - short
    along: set[UOp] = set()  # what differs along x, if all threads run it
    for node in uops if long else ():
        if node.arg in ALONG_X or not along.isdisjoint(node.src):
            along.add(node)
            if node.op == "SET":
                along.add(node.src[0])
    uops, guards = without_guards(uops)
    if not long or not _gains(uops, along, short):
        return None
    ends = {node.src[0]: place for place, node in enumerate(uops) if node.op in CLOSES}
    # `nests.py` counts the iterations of loops in which threads stride over data.
    if any(n.op == "LOOP" and Stride.of(uops, place, ends) for place, n in enumerate(uops)):
        return None
    if parts(Row([node for node in uops if not is_common(node)])):
        return None
    agreed = Uniformity(kernel._replace(uops=uops), of_row=True, loops=long)
    apart = agreed.varying | agreed.divided | agreed.split_loops.keys()
    if not long.isdisjoint(apart) or not _gains(uops, apart, short):
        return None
    region = guard_region(kernel.uops, guards)
    shared = {node for node in uops if node not in apart}
    blocks, inside = hoisted_for_rows(uops, shared, short)
    found = with_loops(uops, blocks, False, shared=shared) if region else None
    if region is None or found is None or found.uops != uops:
        return None
    return found._replace(hoisted=(*found.hoisted, *inside), row_guards=region)


def _gains(uops: Sequence[UOp], apart: Collection[UOp], short: Collection[UOp]) -> bool:
    """Tell whether a loop or an IF in it depends on data that the threads of a row share.

    Or whether nothing in a loop differs between them. `apart` is what they do not agree on.
    """
    data: set[UOp] = set()  # what loads and variables say, for the whole row
    opened: list[UOp] = []
    idle: set[UOp] = set()  # loops in which nothing differs
    for node in uops:
        op, src = node.op, node.src
        if op in ("ENDIF", "ENDRANGE", "ENDLOOP"):
            if opened.pop() in idle:
                return True
        elif op == "STORE" or (op in ("LOAD", "SET") and node in apart):
            idle.difference_update(opened)
            repeated = any(block.op in _LOOPS and block not in short for block in opened)
            if repeated and not data.isdisjoint(opened):
                return True
        elif op == "BREAK":
            if src[0] not in short and not any(block in apart for block in opened):
                return True
        elif node not in apart and (op in ("LOAD", "GET") or not data.isdisjoint(src)):
            data.update(() if is_common(node) else (node,))
        if op == "IF" or op in _LOOPS:
            opened.append(node)
            if op != "IF" and node not in short:
                idle.add(node)
    return False


def in_row_groups(guards: Sequence[UOp], body: Sequence[UOp], registers: Registers) -> list[UOp]:
    """Return the regions of a kernel, and what is hoisted, in groups."""
    spills = {node.src[0] for node in body if node.op == "SET" and node.src[0].op == "SPILL"}
    group = UOp("ROW_GROUPS", None, (), fitting(MOST_LANES, spills, registers))
    return [group, *guards, *body, UOp("ENDROW_GROUPS", None, (group,))]


def ahead_of_groups(body: Sequence[UOp]) -> int:
    """Return the number of nodes at the start that run once for a row.

    They are hoisted, and set no variable that is set again behind them.
    """
    count = depth = 0
    places = {node.src[0]: n for n, node in enumerate(body) if node.op == "SET"}  # the last ones
    last = 0  # place up to which nodes have to run, if these do
    for place, node in enumerate(body):
        if node.op == "THREADS":
            break
        depth += (node.op in OPENS) - (node.op in CLOSES)
        last = max(last, places[node.src[0]] if node.op == "SET" else 0)
        if not depth and last <= place:
            count = place + 1
    return count


def repeats_vectors(uops: Sequence[UOp]) -> bool:
    """Tell whether threads may be interleaved in all regions that loops repeat.

    False if the one with the guards is the only region.
    """
    depth = 0  # loops that are open, in regions too
    if sum(node.op == "THREADS" for node in uops) < 2:
        return False
    for node in uops:
        depth += (node.op in ("RANGE", "LOOP")) - (node.op in ("ENDRANGE", "ENDLOOP"))
        if node.op == "THREADS" and depth and not node.arg:
            return False
    return True


def hoisted_for_rows(
    uops: tuple[UOp, ...], shared: set[UOp], short: set[UOp]
) -> tuple[list[UOp], list[UOp]]:
    """Return the loops and IFs to hoist, and the loads and variables in them and around them.

    An IF that loads nothing for a thread, and stores nothing, stays where it is in a loop.
    """
    blocks: dict[UOp, None] = {}
    inside: list[UOp] = []
    opened: list[UOp] = []
    kept: set[UOp] = set()  # variables that are set where nothing is hoisted
    for node in uops:
        op = node.op
        if op in ("ENDIF", "ENDRANGE", "ENDLOOP"):
            opened.pop()
        plain = short.isdisjoint(opened) and shared.issuperset(opened)
        is_loop = op in ("RANGE", "LOOP") and node not in short
        if plain and (is_loop or op == "STORE" or (op == "LOAD" and node not in shared)):
            blocks.update(dict.fromkeys(opened))
        if is_loop:
            blocks[node] = None
        if plain and node in shared and op in ("LOAD", "VAR"):
            inside.append(node)
        elif op == "SET" and not plain:
            kept.add(node.src[0])
        if op in ("IF", "RANGE", "LOOP"):
            opened.append(node)
    return list(blocks), [node for node in inside if node not in kept]


def guard_region(uops: Sequence[UOp], guards: Sequence[UOp]) -> tuple[UOp, ...] | None:
    """Return a region with these guards; None if they do not all bound the threads of a row."""
    tests = [UOp("IF", None, (guard,)) for guard in guards]
    ends = [UOp("ENDIF", None, (test,)) for test in reversed(tests)]
    needed = Row([node for node in uops if not is_common(node)]).needed(guards)
    copies: dict[UOp, UOp] = {}
    for node in (*needed, *tests, *ends):
        sources = tuple([copies.get(source, source) for source in node.src])
        copies[node] = UOp(node.op, node.dtype, sources, node.arg, node.line)
    nodes = list(copies.values())
    found = bounds(Row(nodes), solves=False)
    few = any(limit.end.op == "CONST" and limit.end.arg <= _FEWEST for limit in found.limits)
    if few or any(node.op == "IF" and node.src[0] not in found.known for node in nodes):
        return None
    return tuple(enclosed(nodes, ()))
