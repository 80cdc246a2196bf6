"""Write loops in which threads stride over data as loops that all threads of a block run in step.

    j = hal.global_idx(1)                 for q in range(rows):
    while j < h:                              first = start + q * down       # of the block
        i = hal.global_idx(0)                 for p in range(columns):
        while i < w:                              left = begin + p * across
            y[j, i] = 2.0 * x[j, i]   ->          if thread_idx(1) < h - first:
            i += across                               if thread_idx(0) < w - left:
        j += down                                         y[j, i] = 2.0 * x[j, i]

Where `j + down` would wrap, or `down` is 0 or negative, `rows` is 0 and the loops run as they were
written, in an IF that follows. The work ahead of an inner loop and behind it has IFs of its own; a
value that crosses from one to another becomes a variable, or is computed again: all threads compute
what cannot fail, and where rows are cut into parts, each IF computes quotients, which cost nothing.
An IF around such loops, and its ELSE, become IFs in them. So does an IF around any loop, if it
likely holds for most threads.
"""

from __future__ import annotations

from typing import NamedTuple

from hal_core.dtypes import DType, bool_, int32, int64
from hal_kernel.ir.blocks.hoisting import is_shared
from hal_kernel.ir.blocks.nest_parts import Nest, Part, test_of
from hal_kernel.ir.blocks.rows import MIRRORED
from hal_kernel.ir.blocks.strides import Stride
from hal_kernel.ir.uop import PURE, UOp

# Nodes that do nothing where no other uses them.
_VALUES = PURE | {"CONST", "SPECIAL", "GET", "LOAD"}
_ENDS = {"ENDRANGE", "ENDLOOP", "ENDIF"}


def with_strides(
    uops: tuple[UOp, ...], in_parts: bool = False
) -> tuple[tuple[UOp, ...], list[UOp]]:
    """Return the nodes with such loops as RANGEs, and these RANGEs.

    `in_parts`: rows are cut where quotients of a flat index change.
    """
    if not any(node.op == "LOOP" for node in uops):
        return uops, []
    ends = {node.src[0]: n for n, node in enumerate(uops) if node.op in _ENDS}
    made: list[UOp] = []
    loops: list[UOp] = []
    done = 0  # nodes that `made` has, or has replaced
    for place, node in enumerate(uops):
        if node.op in ("LOOP", "RANGE", "IF") and place >= done:
            found = Nest(uops, place, ends, in_parts)
            if found.is_simple():
                made += uops[done:place]
                loops += _Written(found, made).loops
                done = ends[node] + 1
    return (*made, *uops[done:]), loops


def with_loops_outside(uops: tuple[UOp, ...]) -> tuple[tuple[UOp, ...], list[UOp]]:
    """Return the nodes with RANGEs outside of the IFs around them, and the outermost RANGEs.

    if i < n:                            t = 0.0
        t = 0.0                          for k in range(m):
        for k in range(m):       ->          if i < n:
            t += w[k] * x[i + k]                 t += w[k] * x[i + k]
        y[i] = t                         if i < n:
                                             y[i] = t
    """
    depth, inside = 0, False  # of IFs; whether a RANGE stands in one
    for node in uops:
        depth += (node.op == "IF") - (node.op == "ENDIF")
        inside = inside or (depth > 0 and node.op == "RANGE")
    if not inside:
        return uops, []
    ends = {node.src[0]: n for n, node in enumerate(uops) if node.op in _ENDS}
    made: list[UOp] = []
    loops: list[UOp] = []
    done = 0
    for place, node in enumerate(uops):
        if node.op in ("RANGE", "IF") and place >= done:
            found = Nest(uops, place, ends, False)
            if found.has_loop_in_if():
                made += uops[done:place]
                loops += _Written(found, made).loops
                done = ends[node] + 1
    return (*made, *uops[done:]), loops


class _Counted(NamedTuple):
    """The numbers of a stride that are computed ahead of the outermost loop."""

    limit: UOp
    step: UOp
    first: UOp  # where the first thread of a block starts
    iterations: UOp  # of the block, at most


class _Written:
    """A nest, written behind the nodes `made`: as RANGEs, then as it was."""

    def __init__(self, nest: Nest, made: list[UOp]) -> None:
        self.nest, self.made = nest, made
        self.loops: list[UOp] = []
        self.new: dict[UOp, UOp] = {}
        self.kept: dict[UOp, UOp] = {}  # a value -> the variable that keeps it for other parts
        self.conditions: dict[UOp, UOp | None] = {}  # a stride -> what holds for its threads
        self.open = 0  # loops
        self.holds = self._number(True, bool_)  # no index wraps
        self.counted = {loop: self._count(stride) for loop, stride in nest.strides.items()}
        pending = [nest.root.src[0]] if nest.root.op == "IF" and not nest.strides else []
        while pending:  # no thread of a block runs the loops where what all share does not hold
            test = pending.pop()
            if is_shared(test):
                self.holds = self._add("AND", self.holds, test, dtype=bool_)
            elif test.op == "AND" and test.dtype is bool_:
                pending += test.src
        for node in nest.whole:  # in order, so that the same kernel gives the same text
            if node in nest.bare and not nest.is_free(node) and node.op != "VAR":
                self.kept[node] = self._add("VAR", dtype=node.dtype, arg=node.op.lower())
        for part in nest.parts:
            if isinstance(part, Part):
                self._write(part)
            elif part.op in _ENDS:
                self._add("ENDRANGE", self.new[part.src[0]], dtype=None)
                self.open -= 1
            else:
                self._open(part)
        if not nest.strides:
            return
        wraps = self._add("IF", self._add("NOT", self.holds, dtype=bool_), dtype=None)
        if nest.root in nest.strides:
            root = nest.strides[nest.root]
            self._add("SET", root.index, root.start, dtype=None)
        made += nest.whole
        self._add("ENDIF", wraps, dtype=None)

    def _add(
        self, op: str, *src: UOp, dtype: DType | None = int64, arg: object = None, line: int = 0
    ) -> UOp:
        self.made.append(UOp(op, dtype, src, arg, line or self.nest.root.line))
        return self.made[-1]

    def _number(self, value: int | bool, dtype: DType = int64) -> UOp:
        return self._add("CONST", dtype=dtype, arg=value)

    def _require(self, op: str, first: UOp, second: UOp) -> None:
        test = self._add(op, first, second, dtype=bool_)
        self.holds = self._add("AND", self.holds, test, dtype=bool_)

    def _ahead(self, node: UOp) -> UOp:
        """Return a value that threads share as it is ahead of the nest."""
        if node not in self.nest.inside:
            return node
        sources = map(self._ahead, node.src)
        return self._add(node.op, *sources, dtype=node.dtype, arg=node.arg, line=node.line)

    def _count(self, stride: Stride) -> _Counted:
        """Write how many iterations a stride has at most, and the tests that no sum wraps."""
        limit, step = self._ahead(stride.limit), self._ahead(stride.step)
        if stride.negated:
            step = self._add("NEG", step, dtype=stride.dtype)
        first = self._first(stride)
        end, wide, start = (self._cast(value, int64) for value in (limit, step, first))
        most = self._number(2**31 - 1 if stride.dtype is int32 else 2**62)
        if step.op != "CONST" or not 0 < step.arg < 2**31:
            self._require("GT", wide, self._number(0))
            self._require("LE", wide, most)
        more = self._add("SUB", wide, self._number(1 if stride.op in ("LT", "GT") else 0))
        width = self._number(0)
        if stride.thread is not None and not stride.near:
            size = self._add("SPECIAL", dtype=int32, arg=("block_dim", stride.thread.arg[1]))
            width = self._add("CAST", size)
        if not stride.up:  # the last step ends at -1 - most or above, what is left fits
            self._require("GE", end, self._number(-1))
            self._require("LE", start, self._add("SUB", most, self._number(2)))
            self._require("GE", start, self._add("SUB", width, most))
            if stride.dtype is int64:
                end = self._add("MIN", end, most)
            whole = self._add("SUB", start, end)
        else:
            self._require("LE", end, self._add("SUB", most, more))
            if not stride.near:
                self._require("GE", start, self._number(0))
                self._require("LE", start, self._add("SUB", most, width))
            if stride.dtype is int64:
                end = self._add("MAX", end, self._number(-1))
            whole = self._add("SUB", end, start)
        count = self._add("FLOORDIV", self._add("ADD", whole, more), wide)
        count = self._add("MAX", count, self._number(0))
        if stride.dtype is int64:
            self._require("LE", count, self._number(2**31 - 1))
        return _Counted(limit, step, first, count)

    def _first(self, stride: Stride) -> UOp:
        """Write where the first thread of a block starts."""
        dtype = stride.dtype
        added, taken = (list(map(self._ahead, part)) for part in (stride.added, stride.taken))
        if stride.thread is not None and stride.thread.arg[0] == "global_idx":
            axis = stride.thread.arg[1]
            sources = (
                self._add("SPECIAL", dtype=int32, arg=(kind, axis))
                for kind in ("block_idx", "block_dim")
            )
            index = self._cast(self._add("MUL", *sources, dtype=int32), dtype)
            (added if stride.up else taken).append(index)
        first = added[0] if added else self._number(0, dtype)
        for part in added[1:]:
            first = self._add("ADD", first, part, dtype=dtype)
        for part in taken:
            first = self._add("SUB", first, part, dtype=dtype)
        return first

    def _cast(self, value: UOp, dtype: DType) -> UOp:
        return value if value.dtype is dtype else self._add("CAST", value, dtype=dtype)

    def _open(self, loop: UOp) -> None:
        """Write the start of a loop, and the index of a stride."""
        stride = self.nest.strides.get(loop)
        outermost = self.open == 0
        self.open += 1
        if stride is None:
            start, stop, step = map(self._ahead, loop.src)
            if outermost:
                stop = self._add("WHERE", self.holds, stop, start, dtype=loop.dtype)
            self.new[loop] = self._add("RANGE", start, stop, step, dtype=loop.dtype, arg=loop.arg)
            if outermost:
                self.loops.append(self.new[loop])
            return
        counted, dtype = self.counted[loop], stride.dtype
        count = counted.iterations
        if outermost:
            count = self._add("WHERE", self.holds, count, self._number(0))
        bounds = self._number(0, int32), self._cast(count, int32), self._number(1, int32)
        counter = self._add("RANGE", *bounds, dtype=int32, arg=stride.index.arg)
        self.loops.append(counter)
        self.new[loop] = counter
        adds = "ADD" if stride.up else "SUB"
        moved = self._add("MUL", self._cast(counter, dtype), counted.step, dtype=dtype)
        start = self._add(adds, counted.first, moved, dtype=dtype)
        self.conditions[loop] = None
        if stride.thread is not None:
            ends = (counted.limit, start) if stride.up else (start, counted.limit)
            left = self._add("SUB", *ends, dtype=dtype)
            thread = self._add("SPECIAL", dtype=int32, arg=("thread_idx", stride.thread.arg[1]))
            thread = self._cast(thread, dtype)
            op = stride.op if stride.up else MIRRORED[stride.op]
            self.conditions[loop] = self._add(op, thread, left, dtype=bool_)
            start = self._add(adds, start, thread, dtype=dtype)
        self.new[stride.index] = start

    def _write(self, part: Part) -> None:
        """Write a part: what others need of it, then the rest in IFs."""
        bare, again = self.nest.bare, self.nest.again
        indices = {stride.index for stride in self.nest.strides.values()}
        rest: list[UOp] = []
        for node in part.nodes:
            if node in bare and node not in self.kept:
                self._copy(node)
            elif node not in again and not (node.op == "SET" and node.src[0] in indices):
                rest.append(node)  # the loops count the indices
        if all(node.op in _VALUES and node not in self.kept for node in rest):
            return
        own = set(part.nodes)
        opened: list[UOp] = []
        for block in part.around:
            condition = self._condition(block, own)
            if condition is not None:
                opened.append(self._add("IF", condition, dtype=None))
        for source in dict.fromkeys(source for node in rest for source in node.src):
            self._find(source, own)
        for node in rest:
            self._copy(node)
            if node in self.kept:
                self._add("SET", self.kept[node], self.new[node], dtype=None)
        for block in reversed(opened):
            self._add("ENDIF", block, dtype=None)
        for node in (*self.kept, *again):  # the next part has its own
            self.new.pop(node, None)

    def _condition(self, block: UOp, own: set[UOp]) -> UOp | None:
        """Return what holds for the threads that run a block; None if it does for all."""
        if block in self.nest.strides:
            return self.conditions[block]
        test = test_of(block)
        self._find(test, own)
        condition = self.new.get(test, test)
        if block.op == "ELSE":
            condition = self._add("NOT", condition, dtype=bool_)
        if self.nest.root in (block, *block.src) and self.nest.strides:
            condition = self._add("AND", self.holds, condition, dtype=bool_)
        return condition

    def _find(self, node: UOp, own: set[UOp]) -> None:
        """Compute a value of another part again, or read its variable."""
        if node in self.nest.again:
            if node not in self.new:
                for source in node.src:
                    self._find(source, own)
                self._copy(node)
        elif node in self.kept and node not in own:
            self.new[node] = self._add("GET", self.kept[node], dtype=node.dtype)

    def _copy(self, node: UOp) -> None:
        """Write a node with the sources that it has here."""
        index = node.op == "GET" and self.new.get(node.src[0])
        if index and any(node.src[0] is s.index for s in self.nest.strides.values()):
            self.new[node] = index
            return
        sources = [self.new.get(source, source) for source in node.src]
        self.new[node] = self._add(
            node.op, *sources, dtype=node.dtype, arg=node.arg, line=node.line
        )
