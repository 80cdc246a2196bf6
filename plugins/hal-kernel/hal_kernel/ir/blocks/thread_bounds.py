"""Find the conditions that bound the loop over the threads of a region along x.

    for t in range(block):              for t in range(1, min(block, n - 1)) if j > 0 else ():
        if 0 < t < n - 1 and j > 0: ->      y[t] = x[t - 1] + x[t + 1]
            y[t] = x[t - 1] + x[t + 1]

Threads that would do nothing are not run, and a loop without a test is vectorised without masks.
A condition that is the same for all threads of a row decides whether the row runs. One that
compares a number that grows with a thread's index along x with a value that is the same for the row
is a start or an end of the loop. Any other stays where it is.

For languages of the C family, `with_bounds` writes both as nodes of the list of `fission`:

     0 PARAM 0                     |  0 PARAM 0
     1 PARAM 1                     |  1 PARAM 1
     2 THREADS True                |  2 ROWS
     3   SPECIAL ('thread_idx', 0) |  3   CONST 0
     4   LT %3 %1                  |  4   SPECIAL ('block_dim', 0)
     5   IF %4                     |  5   CONST 0
     6     CONST 1                 |  6   CAST %4
     7     STORE %0 %3 %6          |  7   CAST %1
     8   ENDIF %5                  |  8   MIN %6 %7
     9 ENDTHREADS %2               |  9   MAX %8 %5
                                   | 10   CAST %9
                                   | 11   THREADS %3 %10 True
                                   | 12     SPECIAL ('thread_idx', 0)
                                   | 13     CONST 1
                                   | 14     STORE %0 %12 %13
                                   | 15   ENDTHREADS %11
                                   | 16 ENDROWS %2

A guard that `solving` solves holds for threads whose steps do not wrap: those for which one may
wrap run the region as it was, in a second THREADS of the row. Rows that `quotients` cuts are
written in a LOOP over their parts, with THREADS in it.

| op | src | meaning |
| --- | --- | --- |
| ROWS | | each row of the block runs the nodes up to ENDROWS |
| THREADS | start, end | the threads of the row from start up to end run the region |
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from hal_core.dtypes import DType, bool_, int32, int64
from hal_kernel.ir.blocks.parts import Walk, with_inverses
from hal_kernel.ir.blocks.quotients import Cut, is_remainder, least_part, parts
from hal_kernel.ir.blocks.rows import MOST_NODES, MOST_REGIONS, OPPOSITE, Limit, Row
from hal_kernel.ir.blocks.windows import FITS
from hal_kernel.ir.uop import ATOMIC_OPS, UOp

_EFFECTS = ATOMIC_OPS | {
    "IF", "RANGE", "LOOP", "LOAD", "GET", "SET", "STORE", "FENCE", "RETURN",
}  # fmt: skip
_JOINS = frozenset({"AND", "OR", "NOT"})
_BEYOND = 1 << 40  # beyond any thread


class Bounds(NamedTuple):
    """Limits of the threads of a region that have any effect. The others need not run."""

    limits: list[Limit]
    rows: list[tuple[UOp, bool]]  # conditions that are the same for a row, and what they must be
    known: dict[UOp, bool]  # all these conditions, which need no test in the loop
    wrapping: list[Limit]  # threads beyond all `limits` that run the region as it was written
    solving: list[UOp]  # new nodes that `limits` and `wrapping` need, in order

    def needed(
        self, row: Row, more: Sequence[Limit] = (), solving: Sequence[UOp] = ()
    ) -> list[UOp]:
        """Return the nodes of a region that these limits, and more of them, depend on, in order."""
        nodes = [condition for condition, _ in self.rows]
        for limit in (*self.limits, *more):
            nodes += [node for node in (limit.end, limit.offset) if node]
        sources = (source for node in (*self.solving, *solving) for source in node.src)
        return row.needed([*nodes, *sources])


def bounds(row: Row, solves: bool = True) -> Bounds:
    """Return the bounds of a region; `solves` allows `wrapping`, for which it is written again."""
    found = Bounds([], [], {}, [], [])
    for test, holds in conditions(row):
        if test not in row.differing:
            found.rows.append((test, holds))
            found.known[test] = holds
            continue
        compared = row.comparison(test)
        if compared is not None and (compared[1].offset is None or is_remainder(compared[1])):
            op, number, end = compared
            op = op if holds else OPPOSITE[op]
            if op != "NE" and number.least == number.most:
                base, offset, added = number[:3]
                found.limits.append(Limit(base, offset, added, op, end, number.times[0]))
                found.known[test] = holds
        elif solves:
            _solve(found, row, test, holds)
    for node in row.nodes:  # and what is made of them
        if solves and node.op == "IF" and node.arg == FITS:
            _add_fit(found, row, node.src[0])
        elif node.op in _JOINS:
            values = {found.known.get(source) for source in node.src}
            if len(values) == 1 and None not in values:
                found.known[node] = values != {node.op == "NOT"}
    return found


def _solve(found: Bounds, row: Row, test: UOp, holds: bool) -> None:
    from hal_kernel.ir.blocks.solving import solved  # few kernels need it; its import takes long

    sides = row.sides(test)
    if sides is None:
        return
    op, number, end = sides
    solution = solved(row, op if holds else OPPOSITE[op], number, end)
    if solution is not None:
        found.limits.extend(solution.limits)
        found.wrapping.extend(solution.wrapping)
        found.solving.extend(solution.nodes)
        found.known[test] = holds


def _add_fit(found: Bounds, row: Row, test: UOp) -> None:
    """Take a test that a row shares for true; all its threads are `wrapping` where it fails."""
    if test in row.differing or test in found.known:
        return
    most, none = (UOp("CONST", int64, (), number, test.line) for number in (2**31, 0))
    end = UOp("WHERE", int64, (test, most, none), None, test.line)
    index = UOp("SPECIAL", int32, (), ("thread_idx", 0))
    found.limits.append(Limit(index, None, 0, "LT", end))
    found.wrapping.append(Limit(index, None, 0, "GE", end))
    found.solving.extend((most, none, end))
    found.known[test] = True


def conditions(row: Row) -> Iterator[tuple[UOp, bool]]:
    """Return what must hold for a thread to have an effect: conditions and what they must be."""
    guards: list[UOp] = []  # of the IFs that enclose all effects, from the outermost inwards
    with_else = {node.src[0] for node in row.nodes if node.op == "ELSE"}
    # Nobody but the thread itself sees a variable that is declared in the region.
    starts = (
        node
        for node in row.nodes
        if node.op in _EFFECTS and not (node.op in ("GET", "SET") and node.src[0] in row.inside)
    )
    # Each effect must be an IF that the last node not yet paired closes: nothing stands beside it.
    for block, end in zip(starts, reversed(row.nodes), strict=False):
        if block.op != "IF" or block in with_else or end.op != "ENDIF" or end.src[0] is not block:
            break
        guards.append(block.src[0])
    return parts_of(guards, row.differing)


def parts_of(
    guards: Iterable[UOp], differing: Collection[UOp] | None = None, hold: bool = True
) -> Iterator[tuple[UOp, bool]]:
    """Yield conditions, and what they must be for all of `guards` to be `hold`.

    With `differing`, a condition that is not in it has no parts.
    """
    pending = [(guard, hold) for guard in guards]
    seen = set(pending)
    while pending:
        test, holds = pending.pop()
        parts: list[tuple[UOp, bool]] = []
        if differing is not None and test not in differing:
            yield test, holds
        elif test.op == "NOT":
            parts = [(test.src[0], not holds)]
        elif test.op == ("AND" if holds else "OR"):
            parts = [(part, holds) for part in test.src]
        else:
            yield test, holds
        pending += [part for part in parts if part not in seen]
        seen.update(parts)


def with_bounds(uops: Sequence[UOp]) -> tuple[UOp, ...]:
    """Return nodes that were split into regions, with the bounds of each written as nodes."""
    few = len(uops) <= MOST_NODES and sum(node.op == "THREADS" for node in uops) <= MOST_REGIONS
    made: list[UOp] = []
    region: list[UOp] = []
    for node in uops:
        if region or node.op == "THREADS":
            region.append(node)
        else:
            made.append(node)
        if node.op == "ENDTHREADS":
            made += _Bounded(region, few).uops
            region = []
    return tuple(made)


class _Bounded:
    """The nodes of one region, from ROWS to ENDROWS."""

    def __init__(self, region: Sequence[UOp], cuts: bool) -> None:
        """Write the region; `cuts` allows parts of a row, for which it is written several times."""
        self.threads, *nodes, _ = region
        row, opened = Row(nodes), UOp("ROWS", None, ())
        self.uops = [opened]
        self.solves = cuts  # guards, whose region is then written twice
        self.made: dict[UOp, UOp] = {}  # node -> what it is here
        self.interval: tuple[UOp, UOp] | None = None  # None: the whole row
        least = least_part(row)
        cut = parts(row, least) if cuts else None
        if cut is None:
            self._add_row(row)
        else:
            self._add_cut(row, cut, Walk(cut, least))
        self.uops.append(UOp("ENDROWS", None, (opened,)))

    def _add_cut(self, row: Row, cut: Cut, walk: Walk) -> None:
        """Add the parts of a row; where these are short, the row with products."""
        shared = [n for n in row.nodes if n.op == "SPECIAL" and n not in row.differing]
        needed = row.needed([*cut.needed(), *shared])
        self.made[walk.width] = self._new("SPECIAL", int32, arg=("block_dim", 0))
        self.made[walk.first] = self._first()
        self._copy((*needed, *walk.ahead.uops))
        opened: list[UOp] = []
        for test in (walk.usable, walk.long):
            if test is not None:
                opened.append(UOp("IF", None, (self.made[test.node],)))
                self.uops.append(opened[-1])
        self._add_parts(cut, walk)
        if walk.long is not None:
            self.uops.append(UOp("ELSE", None, (opened[-1],)))
            self._add_row(with_inverses(row, (*cut.divided, *cut.others)))
            self.uops.append(UOp("ENDIF", None, (opened.pop(),)))
        if walk.usable is not None:
            self.uops.append(UOp("ELSE", None, (opened[-1],)))
            self._add_row(row)
            self.uops.append(UOp("ENDIF", None, (opened.pop(),)))

    def _add_parts(self, cut: Cut, walk: Walk) -> None:
        outer, self.made = self.made, dict(self.made)
        variable, loop = UOp("VAR", int32, (), "start"), UOp("LOOP", None, ())
        zero = self._new("CONST", int32, arg=0)
        self.uops += [variable, UOp("SET", None, (variable, zero)), loop]
        start = self._new("GET", int32, variable)
        opened = UOp("IF", None, (self._new("GE", bool_, start, self.made[walk.width]),))
        self.uops += [opened, UOp("BREAK", None, (loop,)), UOp("ENDIF", None, (opened,))]
        self._copy(walk.inside.uops)
        self.made.update({node: self.made[value] for node, value in walk.known.items()})
        end = self.made[walk.end]
        self._add_row(cut.row, (start, end))
        self._copy(walk.behind.uops)
        self.uops += [UOp("SET", None, (variable, end)), UOp("ENDLOOP", None, (loop,))]
        self.made = outer

    def _add_row(self, row: Row, interval: tuple[UOp, UOp] | None = None) -> None:
        """Add the loop over the threads of a row, or of an interval of it."""
        outer, self.made, self.interval = self.made, dict(self.made), interval
        found = bounds(row, self.solves)
        self._copy((*found.needed(row), *found.solving))
        self._add_threads(row, self._start_and_end(found), found.known)
        if found.wrapping:  # the threads from the first on that meets any of these limits
            first, end = self._whole()
            start = self._new("CAST", int64, end)
            for limit in found.wrapping:  # each says GE
                start = self._new("MIN", int64, start, self._place(limit))
            start = self._new("MAX", int64, start, self._new("CAST", int64, first))
            self._add_threads(row, (self._new("CAST", int32, start), end), {})
        self.made = outer

    def _add_threads(self, row: Row, interval: tuple[UOp, UOp], known: dict[UOp, bool]) -> None:
        """Add the loop over the threads of an interval, for which `known` holds."""
        outer, self.made = self.made, dict(self.made)
        inner = UOp("THREADS", None, interval, self.threads.arg)
        self.uops.append(inner)
        self._add_rest(row.nodes, known)
        self.uops.append(UOp("ENDTHREADS", None, (inner,)))
        self.made = outer

    def _copy(self, nodes: Iterable[UOp]) -> None:
        """Add nodes that are not there yet."""
        for node in nodes:
            if node not in self.made:
                sources = tuple([self.made.get(source, source) for source in node.src])
                self.made[node] = UOp(node.op, node.dtype, sources, node.arg, node.line)
                self.uops.append(self.made[node])

    def _first(self) -> UOp:
        """Return the global index of the row's first thread."""
        sources = (self._new("SPECIAL", int32, arg=(k, 0)) for k in ("block_idx", "block_dim"))
        return self._new("MUL", int32, *sources)

    def _new(self, op: str, dtype: DType, *sources: UOp, arg: object = None) -> UOp:
        self.uops.append(UOp(op, dtype, sources, arg))
        return self.uops[-1]

    def _whole(self) -> tuple[UOp, UOp]:
        if self.interval is not None:
            return self.interval
        zero = self._new("CONST", int32, arg=0)
        return zero, self._new("SPECIAL", int32, arg=("block_dim", 0))

    def _start_and_end(self, found: Bounds) -> tuple[UOp, UOp]:
        """Return, as int32, the first thread of a row that runs and the one after the last."""
        start, end = self._whole()
        if found.limits:
            start, end = self._within(found.limits, start, end)
        for test, holds in found.rows:
            sides = (end, start) if holds else (start, end)
            end = self._new("WHERE", int32, self.made.get(test, test), *sides)
        return start, end

    def _within(self, limits: list[Limit], zero: UOp, width: UOp) -> tuple[UOp, UOp]:
        """Return the same for threads within the limits; the part may be empty."""
        if zero.op == "CONST":
            start = none = self._new("CONST", int64, arg=0)
        else:
            start = none = self._new("CAST", int64, zero)
        end = self._new("CAST", int64, width)
        for limit in limits:
            at = self._place(limit)
            if limit.op in ("LT", "LE", "EQ"):
                end = self._new("MIN", int64, end, at if limit.op == "LT" else self._after(at))
            if limit.op in ("GT", "GE", "EQ"):
                first = self._after(at) if limit.op == "GT" else at
                start = self._new("MAX", int64, start, first)
        end = self._new("MAX", int64, end, none)
        if start is not none:
            zero = self._new("CAST", int32, self._new("MIN", int64, start, end))
        return zero, self._new("CAST", int32, end)

    def _after(self, at: UOp) -> UOp:
        return self._new("ADD", int64, at, self._new("CONST", int64, arg=1))

    def _place(self, limit: Limit) -> UOp:
        """Return, as int64, the number in its row of the thread at which a limit is met."""
        if limit.end.op == "CONST":
            at = self._new("CONST", int64, arg=max(-_BEYOND, min(limit.end.arg, _BEYOND)))
        else:
            at = self._new("CAST", int64, self.made.get(limit.end, limit.end))
            if limit.end.dtype is not int32:  # the sums below do not wrap
                at = self._new("MIN", int64, at, self._new("CONST", int64, arg=_BEYOND))
                at = self._new("MAX", int64, at, self._new("CONST", int64, arg=-_BEYOND))
        if limit.added:
            at = self._new("SUB", int64, at, self._new("CONST", int64, arg=limit.added))
        if limit.offset is not None:
            offset = self._new("CAST", int64, self.made[limit.offset])
            times = self._new("CONST", int64, arg=limit.times)
            at = self._new("SUB", int64, at, self._new("MUL", int64, offset, times))
        if limit.number.arg[0] == "global_idx":
            at = self._new("SUB", int64, at, self._new("CAST", int64, self._first()))
        return at

    def _add_rest(self, nodes: Sequence[UOp], known: dict[UOp, bool]) -> None:
        """Add the work of a thread, without the tests that hold."""
        halved = {node.src[0] for node in nodes if node.op == "ELSE"}
        always = {n for n in nodes if n.op == "IF" and n not in halved and known.get(n.src[0])}
        gone = known.keys() | always | {n for n in nodes if always.intersection(n.src)}
        rest = [node for node in nodes if node not in gone and node not in self.made]
        for test in dict.fromkeys(part for node in rest for part in node.src if part in known):
            self.made[test] = self._new("CONST", bool_, arg=known[test])
        self._copy(rest)


def joins_blocks(uops: tuple[UOp, ...]) -> bool:
    """Tell whether blocks that are neighbours along x may run as one, with longer loops.

    A thread then knows its global index only, and nothing is kept for each block.
    """
    starts = (n for n, node in enumerate(uops) if node.op in ("THREADS", "ROW_GROUPS"))
    first = next(starts, None)
    if first is None:  # the kernel does nothing but loads that nobody reads
        return False
    others = (node.arg[0] for node in uops if node.op == "SPECIAL")
    kept = ("SPILL",) if uops[first].op == "ROW_GROUPS" else ()  # by each group for itself
    return (
        all(node.op in ("PARAM", "TABLE", "CONST", *kept) for node in uops[:first])
        and uops[-1].op in ("ENDTHREADS", "ENDROW_GROUPS")
        and uops[-1].src[0] is uops[first]
        and not any(kind in ("thread_idx", "block_idx") for kind in others)
    )
