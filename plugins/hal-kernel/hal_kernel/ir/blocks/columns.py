"""Run the threads of a short row as a loop of one thread, and make the next axis that of vectors.

    c, i = hal.global_idx(0), hal.global_idx(1)     i = hal.global_idx(0)
    if c < 3 and i < n:                             if i < n:
        y[3 * i + c] = x[i] + s[c]            ->        for c in range(3):
                                                            y[3 * i + c] = x[i] + s[c]

A loop over three threads makes no vectors, and takes longer to begin than to run. On the right the
loop over x is unrolled, and the one over `i` makes vectors. This is done where a guard compares the
index along x, or those along x and y, with a small constant, in kernels that know their global
index only. Other launches than those with one block along these axes, of no fewer threads than the
constant, run the kernel as it was written.

| op | src | arg | meaning |
| --- | --- | --- | --- |
| COLUMNS | | numbers, loops | `numbers` of threads along the first axes; loops run so many axes |
| ENDCOLUMNS | its COLUMNS | | the end of its region, in which x is the axis behind these |
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from hal_core.dtypes import DType, bool_, int32
from hal_kernel.ir.blocks.lockstep import without_guards
from hal_kernel.ir.blocks.rows import MIRRORED, OPPOSITE
from hal_kernel.ir.blocks.thread_bounds import joins_blocks, parts_of
from hal_kernel.ir.loops import FUNCTIONS, unrolled
from hal_kernel.ir.uop import ATOMIC_OPS, UOp

Test = tuple[UOp, bool]  # a condition, and what it must be

_MOST = 8  # threads of a row that a loop runs; compilers unroll no longer loops with a store
# Longer regions stay as they are: LLVM took 8 s, not 0.9, for one of 159 nodes and four loops.
_MOST_NODES = 100
# Operations of a row in all iterations. Where its threads load the same element, another one in
# each row, LLVM unrolls about 1000 of them, and a loop is faster than gathers of vectors along y.
_MOST_OPERATIONS, _MOST_SHARING = 300, 950
_NEVER = ATOMIC_OPS | {"FENCE", "LOCAL", "PRINT", "RETURN"}
_INDICES = [("global_idx", axis) for axis in range(3)]


def with_columns(uops: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """Return the nodes of a kernel in regions, with COLUMNS ahead of a region that gains."""
    tests = [node for node in uops if node.op in MIRRORED]
    if not any(_width(test, holds) for test in tests for holds in (True, False)):
        return uops
    if not joins_blocks(uops):
        return uops
    first = next(n for n, node in enumerate(uops) if node.op == "THREADS")
    body, guards = without_guards(uops[first + 1 : -1])
    indices = {node.arg for node in uops if node.op == "SPECIAL"}
    if not indices.issubset(_INDICES) or any(node.op in _NEVER for node in body):
        return uops
    if len(body) > _MOST_NODES:
        return uops
    held = list(parts_of(guards))
    widths = sorted(filter(None, [_width(test, holds) for test, holds in held]), reverse=True)
    least = dict(widths)  # of an axis the least comes last
    axis = 0  # that of vectors: the first behind those with such a guard, or the last
    while axis in least and axis < len(indices) - 1:
        axis += 1
    if not axis or _INDICES[axis] not in indices:
        return uops
    numbers = tuple(least[short] for short in range(axis))
    along, across = _moving(body, range(axis)), _moving(body, (axis,))
    shares = any(node.op == "LOAD" and node in across and node not in along for node in body)
    shares = shares and all(node.op not in FUNCTIONS for node in body)
    most = _MOST_SHARING if shares else _MOST_OPERATIONS
    made = _Columns(body, held, axis, numbers)
    while not unrolled(tuple(made.uops), most).issuperset(made.loops):
        made = _Columns(body, held, axis, numbers[: len(made.loops) - 1])
    opened = UOp("COLUMNS", None, (), (numbers, len(made.loops)))
    threads = UOp("THREADS", None, (), uops[first].arg)
    ends = UOp("ENDTHREADS", None, (threads,)), UOp("ENDCOLUMNS", None, (opened,))
    return (*uops[:first], opened, threads, *made.uops, *ends, *uops[first:])


def _width(test: UOp, holds: bool) -> tuple[int, int] | None:
    """Return an axis, and along it the number of threads that a test of an index lets through.

    None if a loop does not run so many.
    """
    if test.op not in MIRRORED:
        return None
    op, (index, end) = test.op, test.src
    if index.op == "CONST":
        op, index, end = MIRRORED[op], end, index
    if index.op != "SPECIAL" or index.arg not in _INDICES or end.op != "CONST":
        return None
    op = op if holds else OPPOSITE[op]
    number = end.arg + (op == "LE")
    return (index.arg[1], number) if op in ("LT", "LE") and 1 < number <= _MOST else None


def _moving(body: tuple[UOp, ...], axes: Collection[int]) -> set[UOp]:
    """Return the values that differ between threads along some axes."""
    moves = set[UOp]()
    for node in body:
        if (node.op == "SPECIAL" and node.arg[1] in axes) or not moves.isdisjoint(node.src):
            moves.add(node)
    return moves


class _Columns:
    """The nodes of a region in which one thread runs those of the first axes, in loops."""

    def __init__(
        self, body: tuple[UOp, ...], tests: list[Test], axis: int, numbers: tuple[int, ...]
    ) -> None:
        """Write a region whose vectors are along `axis`, with loops of `numbers` iterations."""
        self.body, self.uops = body, list[UOp]()
        self.new: dict[UOp, UOp] = {}
        self.axis, self.short = axis, len(numbers)
        self.loops: list[UOp] = []  # for each of these axes: its RANGE
        moves = _moving(body, range(self.short))
        limits = {test for test in tests if (_width(*test) or (3, 0))[0] < self.short}
        opened = self._open([test for test in tests if test[0] not in moves])
        zero, one = (self._add("CONST", int32, arg=number) for number in (0, 1))
        for number in reversed(numbers):
            end = self._add("CONST", int32, arg=number)
            self.loops.insert(0, self._add("RANGE", int32, zero, end, one, arg="column"))
        opened += [("ENDRANGE", loop) for loop in reversed(self.loops)]
        opened += self._open([test for test in tests if test[0] in moves and test not in limits])
        self._copy(body)
        for op, block in reversed(opened):
            self._add(op, None, block)

    def _open(self, tests: list[Test]) -> list[tuple[str, UOp]]:
        """Write IFs of tests; return what ends each of them."""
        needed = {test for test, _ in tests}
        for node in reversed(self.body):
            if node in needed:
                needed.update(node.src)
        self._copy([node for node in self.body if node in needed])
        opened: list[tuple[str, UOp]] = []
        for test, holds in tests:
            found = self.new[test] if holds else self._add("NOT", bool_, self.new[test])
            opened.append(("ENDIF", self._add("IF", None, found)))
        return opened

    def _copy(self, nodes: Iterable[UOp]) -> None:
        """Write nodes that are not there yet."""
        for node in nodes:
            if node in self.new:
                continue
            arg = node.arg
            if node.op == "SPECIAL":
                if arg[1] < self.short:
                    self.new[node] = self.loops[arg[1]]
                    continue
                arg = _INDICES[{0: self.axis, self.axis: 0}.get(arg[1], arg[1])]
            sources = [self.new.get(source, source) for source in node.src]
            self.new[node] = self._add(node.op, node.dtype, *sources, arg=arg, line=node.line)

    def _add(
        self, op: str, dtype: DType | None, *src: UOp, arg: object = None, line: int = 0
    ) -> UOp:
        self.uops.append(UOp(op, dtype, src, arg, line))
        return self.uops[-1]
