"""Rewrite loops so that the threads of a block run them in lockstep, as lanes of a vector.

    t = hal.thread_idx(0)
    for k in range(t, n, 64):
        y[t] += x[k]

     0 PARAM 0                   |  0 PARAM 0
     1 PARAM 1                   |  1 PARAM 1
     2 PARAM 2                   |  2 PARAM 2
     3 SPECIAL ('thread_idx', 0) |  3 SPECIAL ('thread_idx', 0)
     4 CONST 64                  |  4 CONST 64
     5 RANGE %3 %2 %4 k          |  5 CONST 0
     6   LOAD %0 %3              |  6 RANGE %5 %2 %4 k
     7   LOAD %1 %5              |  7   SUB %2 %6
     8   ADD %6 %7               |  8   SPECIAL ('thread_idx', 0)
     9   STORE %0 %3 %8          |  9   LT %8 %7
    10 ENDRANGE %5               | 10   IF %9
                                 | 11     ADD %6 %8
                                 | 12     LOAD %0 %3
                                 | 13     LOAD %1 %11
                                 | 14     ADD %12 %13
                                 | 15     STORE %0 %3 %14
                                 | 16   ENDIF %10
                                 | 17 ENDRANGE %6

Compilers vectorise the innermost loop. If the kernel has a loop, the innermost one is the kernel's
and not the one over the threads. Iterations of the kernel's loop often depend on each other, as in
a sum, or stride through memory, while neighbouring threads access neighbouring elements. If all
threads agree on the iterations of such a loop, it is hoisted out of the loop over the threads
(nodes 6 and 7 on the right). Threads between two barriers may run in any order, so only the speed
changes.

Source: Jääskeläinen et al.: pocl, 2015, section 5.3 (horizontal inner-loop parallelization).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from math import prod
from typing import NamedTuple

from hal_core.dtypes import DType, bool_, float32, float64, int32
from hal_kernel.ir.blocks.hoisting import Hoisted, is_common
from hal_kernel.ir.blocks.nests import with_loops_outside, with_strides
from hal_kernel.ir.blocks.quotients import growths
from hal_kernel.ir.blocks.triangles import with_triangles
from hal_kernel.ir.blocks.windows import FITS, with_wide_windows
from hal_kernel.ir.loops import iterations, keeps_order, unrolled
from hal_kernel.ir.uop import ATOMIC_OPS, LEAVES, PURE, Kernel, UOp

_FEWEST_LANES = 4  # threads along x; with fewer, vectors gain nothing
_GUARD = 64  # most nodes before a guard's IF, because each region computes its condition again
# One element for all threads, or neighbours for neighbours, in either direction.
_VECTOR_STRIDES = frozenset({-1, 0, 1})
# Elements from a thread's to the next one's that lie on few lines of the cache, and such that
# vectors load and sort.
_NEAR, _SORTED = 16, 8
# More loops stay in their IFs and by their own ends: LLVM took 50 s, not 2, for a kernel of 120.
_MOST_WRITTEN = 16
_GATHERED = 4  # bytes of the smallest element that processors gather
# An operation whose result grows with a thread's number as its sources do, or as one of them.
_MOVES = frozenset({"ADD", "SUB", "CAST", "WHERE", "MIN", "MAX", "MOD"})
_NEVER = LEAVES | ATOMIC_OPS | {"LOOP", "FENCE"}  # a loop that contains one is not hoisted
# The ops that end the arithmetic at the start of a kernel.
_BEGINS = ATOMIC_OPS | {"IF", "RANGE", "LOOP", "LOAD", "STORE", "GET", "FENCE", "RETURN"}


class Lockstep(NamedTuple):
    """A rewritten kernel: its nodes, those to hoist, and its guards.

    A thread works only if all guards hold for it. `flat` are quotients and remainders of a flat
    index that cost nothing, if each region is run in parts of a row. `strides` are loops in which
    rows may be cut again. `leaves`: threads leave some of its loops one by one. `row_guards` is the
    region of `row_loops.py` with the guards, if nodes are hoisted for each row.
    """

    uops: tuple[UOp, ...]
    hoisted: tuple[UOp, ...] = ()
    guards: tuple[UOp, ...] = ()
    flat: frozenset[UOp] = frozenset()
    strides: frozenset[UOp] = frozenset()
    leaves: bool = False
    row_guards: tuple[UOp, ...] = ()


class Leaving(NamedTuple):
    """Nodes in which loops are rewritten that each thread leaves by itself: `leaving.py`."""

    uops: tuple[UOp, ...]
    together: list[UOp]  # the LOOPs that threads leave together, and the IFs behind them
    # LOOPs and BREAKs that hinder no lockstep of the loops around them, and VARs that count for all
    # threads together.
    alone: set[UOp]
    strides: Sequence[UOp] = ()  # loops of `nests.py` around them, in nodes without their guards
    guards: tuple[UOp, ...] = ()


def in_step(
    kernel: Kernel, in_parts: bool = False, leaving: Leaving | None = None
) -> Lockstep | None:
    """Return the kernel with its loops made ready for hoisting; None if no loop gains by it.

    `in_parts` cuts rows where quotients of a flat index change.
    """
    if kernel.block is not None and kernel.block[0] < _FEWEST_LANES:
        return None
    counted, windows = with_wide_windows(kernel.uops)
    few = sum(node.op == "RANGE" for node in kernel.uops) <= _MOST_WRITTEN
    even, triangles = with_triangles(kernel.uops) if few else (kernel.uops, [])
    ways: list[tuple[tuple[UOp, ...], list[UOp], Set[UOp]]] = [(kernel.uops, [], frozenset())]
    if leaving is not None and leaving.strides:
        uops, strides = leaving.uops, leaving.strides
        needed = [*leaving.together, *strides]
        if found := with_loops(uops, needed, False, strides, leaving.alone, leaving.guards):
            return found
    elif leaving is not None:
        ways.insert(0, (leaving.uops, leaving.together, leaving.alone))
    if windows:
        ways.insert(0, (counted, windows, frozenset()))
    elif triangles:
        ways.insert(0, (even, triangles, frozenset()))
    for nodes, needed, alone in ways:
        body, guards = without_guards(nodes)
        body, strides = with_strides(body, in_parts)
        moved, loops = with_loops_outside(body) if few else (body, [])
        for uops, more in ((moved, loops), (body, [])) if loops else ((body, []),):
            wanted = [*needed, *strides, *more]
            if not alone:  # a loop of `needed` may have become one of `more`
                wanted = [node for node in wanted if node in set(uops)]
            if wanted and (found := with_loops(uops, wanted, in_parts, strides, alone, guards)):
                return found
    return with_loops(kernel.uops, (), in_parts)


def with_loops(
    uops: tuple[UOp, ...], needed: Collection[UOp], in_parts: bool,
    strides: Collection[UOp] = (), alone: Set[UOp] = frozenset(), guards: tuple[UOp, ...] = (),
    shared: Set[UOp] = frozenset(),
) -> Lockstep | None:  # fmt: skip
    """Return the nodes with their loops ready; None if none gains by it, or not all of `needed`.

    `strides` are loops of `nests.py`, `alone` nodes of `leaving.py` that hinder no lockstep, and
    `guards` are conditions of IFs that are taken off already. `shared` are nodes that the threads
    of a row run together, with values that they share, if nodes are hoisted for each row.
    """
    short = unrolled(uops)
    if not (alone or shared) and all(node in short for node in uops if node.op == "RANGE"):
        return None
    uops, inner = without_guards(uops)
    guards += inner
    if not (alone or shared) and not _may_gain(uops, short):
        return None
    flat = growths(uops, strides) if in_parts else {}
    search = _Search(uops, short, flat, needed, alone, shared)
    loops = {loop for loop, first in search.outermost.items() if first not in search.refused}
    if not loops or not loops.issuperset(needed):
        return None
    # A loop that starts at the thread's index is rewritten to start at one number for all threads.
    made: list[UOp] = []
    new: dict[UOp, UOp] = {}
    rewritten: dict[UOp, _Rewritten] = {}
    hoisted: list[UOp] = []
    for node in uops:
        if node.op == "ENDRANGE" and node.src[0] in rewritten:
            loop, inside, _ = rewritten[node.src[0]]
            made += [UOp("ENDIF", None, (inside,)), UOp("ENDRANGE", None, (loop,))]
            continue
        sources = tuple([new.get(part, part) for part in node.src])
        first = first_of(node) if node in loops and node.op == "RANGE" else None
        if first is not None:
            rewritten[node] = _rewrite(node, sources[1:], first, made)
            new[node] = rewritten[node].counter
            # `n - j` of the rewritten loop is the same for all threads, too.
            hoisted += [rewritten[node].loop, rewritten[node].inside.src[0].src[1]]
            continue
        if sources != node.src:
            new[node] = UOp(node.op, node.dtype, sources, node.arg, node.line)
        made.append(new.get(node, node))
        if node in loops:
            hoisted.append(made[-1])
    divided, cut = (frozenset([new.get(n, n) for n in nodes]) for nodes in (flat, strides))
    return Lockstep(tuple(made), tuple(hoisted), guards, divided, cut, bool(alone))


def _may_gain(uops: tuple[UOp, ...], short: Collection[UOp]) -> bool:
    """Tell whether a search is worth its time: it refuses loops around or beside a _NEVER."""
    depth, long, never = 0, False, False  # of the outermost block
    for node in uops:
        op = node.op
        if op == "BARRIER":
            return True  # it hoists the blocks around it, and others are outermost
        if op in ("IF", "RANGE", "LOOP"):
            depth += 1
            long = long or (op == "RANGE" and node not in short)
        elif op in ("ENDIF", "ENDRANGE", "ENDLOOP"):
            depth -= 1
            if depth == 0:
                if long and not never:
                    return True
                long = never = False
        if depth and op in _NEVER:
            never = True
    return False


def without_guards(uops: tuple[UOp, ...]) -> tuple[tuple[UOp, ...], tuple[UOp, ...]]:
    """Return the body of a kernel that is all in one IF, and the conditions of such IFs."""
    guards: list[UOp] = []
    ops = {node.op for node in uops}
    while "BARRIER" not in ops:
        ahead = (node for node in uops[:_GUARD] if node.op in _BEGINS and not is_common(node))
        guard = next(ahead, None)
        if guard is None or guard.op != "IF":
            break
        last = uops[-1]
        if last.op != "ENDIF" or last.src[0] is not guard:
            break
        if "ELSE" in ops and any(node.op == "ELSE" and node.src[0] is guard for node in uops):
            break
        guards.append(guard.src[0])
        uops = tuple([node for node in uops[:-1] if node is not guard])
    return uops, tuple(guards)


class _Search:
    """Find the loops that can be hoisted and gain by it.

    A loop can be hoisted if all threads reach it and agree on its iterations. It gains if in one
    iteration neighbouring threads access neighbouring elements, or all threads the same one, so
    that vectors need no gather; or elements that the data choose, which no order brings together;
    or `x[c * i + k]` of a sum of floats, or of the place of a least element, whose iterations no
    compiler makes lanes of a vector.
    """

    def __init__(
        self,
        uops: tuple[UOp, ...],
        short: Collection[UOp],
        flat: Mapping[UOp, int],
        together: Collection[UOp],
        alone: Set[UOp],
        shared: Set[UOp],
    ) -> None:
        """Search a kernel; `flat` are quotients of a flat index, with their strides in a part.

        `short` are loops that compilers unroll, `together` LOOPs and IFs that all threads run,
        `alone` nodes that hinder no lockstep, and `shared` what the threads of a row agree on.
        """
        self.short, self.together, self.alone, self.shared = short, together, alone, shared
        self.hoisted = Hoisted(uops)
        self.flat = flat
        self.varies: set[UOp] = set()  # values that may differ between threads
        self.strides: dict[UOp, int] = {}  # integer -> its growth from a thread to the next along x
        self.open: list[UOp] = []  # IFs and loops around the node that are not hoisted already
        self.rare: set[UOp] = set()  # IFs of `windows.py` whose ELSE, which hardly runs, has begun
        self.outermost: dict[UOp, UOp] = {}  # loop that can be hoisted -> the outermost around it
        self.refused: set[UOp] = set()  # outermost loops that cannot be hoisted after all
        # An index, the outermost loop around it, and whether no processor gathers such elements.
        self.gathers: list[tuple[UOp, UOp, bool]] = []
        # An outermost loop, memory of which it loads what lies close together, how far apart, and
        # the number of such loads in one iteration.
        self.near: dict[tuple[UOp, UOp, int], int] = {}
        self.ordered: set[UOp] = set()  # outermost loops that set floats, whose sums have an order
        for node in uops:
            self._visit(node)
            self._follow(node)
        for (loop, memory, stride), loads in self.near.items():
            # Vectors sort narrow elements only if threads load all that lie between theirs.
            narrow = memory.dtype is not None and memory.dtype.itemsize < _GATHERED
            # Of other loops compilers make vectors along their iterations, which gather nothing.
            if stride <= _SORTED and loop not in self.refused and keeps_order(uops, loop):
                self.ordered.add(loop)
            if loop not in self.ordered or (narrow and loads < stride):
                self.refused.add(loop)
        sets: dict[UOp, list[UOp]] = {}  # variable -> its values
        for node in uops if self.gathers else ():
            if node.op == "SET":
                sets.setdefault(node.src[0], []).append(node.src[1])
        for index, loop, narrow in self.gathers:
            if loop not in self.refused and not self._is_chosen_by_data(index, sets, narrow):
                self.refused.add(loop)

    def _visit(self, node: UOp) -> None:
        """Keep `open` up to date, and decide which loops can be hoisted."""
        op = node.op
        if op in ("ENDRANGE", "ENDLOOP", "ENDIF"):
            if node.src[0] not in self.hoisted:
                self.open.pop()
        elif node not in self.hoisted and op == "RANGE":
            start, stop, _ = node.src
            agreed = stop not in self.varies and (start not in self.varies or first_of(node))
            # The body of a loop whose start varies goes into an IF, where nothing is hoisted.
            plain = self._is_plain()
            if agreed and plain and node not in self.short:
                self.outermost[node] = self.open[0] if self.open else node
            elif self.open and node not in self.short and self.rare.isdisjoint(self.open):
                self.refused.add(self.open[0])
            self.open.append(node)
        elif node not in self.hoisted and op in ("IF", "LOOP"):
            if node in self.together and self._is_plain():
                self.outermost[node] = self.open[0] if self.open else node
            self.open.append(node)
        elif op == "ELSE" and node.src[0].arg == FITS:
            self.rare.add(node.src[0])
        if self.open and op == "SET" and node.src[1].dtype in (float32, float64):
            self.ordered.add(self.open[0])
        if self.open and op in _NEVER and node not in self.alone and node not in self.shared:
            self.refused.add(self.open[0])
        is_access = op in ("LOAD", "STORE") and bool(self.open) and self.rare.isdisjoint(self.open)
        stride = self.strides.get(node.src[1]) if is_access else 0
        if is_access and stride not in _VECTOR_STRIDES:
            dtype = node.src[0].dtype
            narrow = dtype is not None and dtype.itemsize < _GATHERED
            # In loops that threads leave one by one, gathers take less time than the threads would.
            if not self.alone.isdisjoint(self.open):
                if narrow:
                    self.refused.add(self.open[0])
            elif op == "LOAD" and stride and abs(stride) <= (_SORTED if narrow else _NEAR):
                key = self.open[0], node.src[0], abs(stride)
                self.near[key] = self.near.get(key, 0) + prod(
                    iterations(block) for block in self.open if block in self.short
                )
            else:
                self.gathers.append((node.src[1], self.open[0], narrow))

    def _is_chosen_by_data(
        self, index: UOp, sets: Mapping[UOp, list[UOp]], by_variable: bool
    ) -> bool:
        """Tell whether only data keep an index from growing by at most 1 from thread to thread.

        `by_variable`: data that a variable holds, for which a thread alone would wait each time.
        """
        pending = [(index, False, by_variable)]
        seen = set[tuple[UOp, bool, bool]]()
        while pending:
            node, scaled, direct = found = pending.pop()
            stride = self.strides.get(node)
            if node.op == "LOAD" and direct:
                return False
            if found in seen or stride == 0 or node.op == "LOAD":
                continue
            seen.add(found)
            if node.op == "GET":
                pending += [(value, scaled, False) for value in sets.get(node.src[0], ())]
            elif stride is None and node.op in PURE:
                scaled = scaled or node.op not in _MOVES
                values = node.src[1:] if node.op == "WHERE" else node.src
                pending += [(value, scaled, direct) for value in values]
            elif scaled or stride not in _VECTOR_STRIDES:
                return False
        return True

    def _is_plain(self) -> bool:
        """Tell whether all threads run all iterations of the loops around the node."""
        return all(
            block in self.outermost and self.varies.isdisjoint(block.src[:1]) for block in self.open
        )

    def _follow(self, node: UOp) -> None:
        """Note whether the node's value varies between threads, and its stride."""
        op, sources = node.op, node.src
        if node in self.shared:
            self.strides[node] = 0
        elif op == "SPECIAL" and node.arg[0] in ("thread_idx", "global_idx"):
            self.varies.add(node)
            self.strides[node] = int(node.arg[1] == 0)
        elif ((op == "LOAD" or op in ATOMIC_OPS) and node not in self.hoisted) or (
            op == "GET" and node.src[0] not in self.hoisted and node.src[0] not in self.alone
        ):
            self.varies.add(node)
        elif op == "RANGE" or op in PURE:
            if not self.varies.isdisjoint(sources):
                self.varies.add(node)
            stride = self.flat.get(node)
            if stride is None:
                stride = _stride(node, [self.strides.get(source) for source in sources])
            if stride is not None:
                self.strides[node] = stride
        else:
            self.strides[node] = 0


def _stride(node: UOp, sources: list[int | None]) -> int | None:
    """Return by how much the value grows from a thread to the next along x; None: not constant."""
    if node.op == "RANGE":  # the stride of its start, because the step is the same for all threads
        return sources[0] if sources[1] == 0 else None
    if not any(sources) and None not in sources:
        return 0
    first, second = (*sources, 0)[:2]
    if first is None or second is None:
        return None
    if node.op == "MUL":
        for factor, stride in zip(node.src, (second, first), strict=True):
            if factor.op == "CONST":
                return stride * int(factor.arg)
        return None
    if node.op in ("ADD", "SUB"):
        return first + second if node.op == "ADD" else first - second
    return first if node.op == "CAST" and node.dtype is not None and node.dtype.is_integer else None


def first_of(loop: UOp) -> tuple[str, int] | None:
    """Return the index along x that a loop starts at, and the constant that is added to it.

    `range(hal.thread_idx(0) + 3, n)` gives `("thread_idx", 3)`; None for any other start.
    """
    start, _, step = loop.src
    if loop.dtype is not int32 or step.arg < 1:
        return None
    more = 0
    if start.op == "ADD" and start.src[1].op == "CONST" and 0 <= start.src[1].arg < 1 << 16:
        start, more = start.src[0], start.src[1].arg
    if start.op != "SPECIAL" or start.arg not in (("thread_idx", 0), ("global_idx", 0)):
        return None
    return None if more and start.arg[0] == "global_idx" else (start.arg[0], more)


class _Rewritten(NamedTuple):
    """A loop that started at the thread's index, and now starts at that of the first thread."""

    loop: UOp
    inside: UOp  # the IF that leaves out threads beyond the end
    counter: UOp  # the value of the original loop's counter


def _rewrite(
    loop: UOp, bounds: tuple[UOp, ...], first: tuple[str, int], made: list[UOp]
) -> _Rewritten:
    """Write `for k in range(t + c, n, s)` as `for j in range(c, n, s): if t < n - j: k = j + t`."""

    def add(op: str, *src: UOp, dtype: DType | None = int32, arg: object = None) -> UOp:
        made.append(UOp(op, dtype, src, arg, loop.line))
        return made[-1]

    kind, more = first
    if kind == "thread_idx":
        start = add("CONST", arg=more)
    else:
        start = add("MUL", *(add("SPECIAL", arg=(name, 0)) for name in ("block_idx", "block_dim")))
    counted = add("RANGE", start, *bounds, arg=loop.arg)
    left = add("SUB", bounds[0], counted)  # not n < j + t, which could wrap
    thread = add("SPECIAL", arg=("thread_idx", 0))
    inside = add("IF", add("LT", thread, left, dtype=bool_), dtype=None)
    return _Rewritten(counted, inside, add("ADD", counted, thread))
