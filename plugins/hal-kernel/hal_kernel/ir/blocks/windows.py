"""Count the loops over a window that moves with the thread by the iterations that threads share.

    for j in range(i - r, i + r + 1):         for k in range(2 * r + 1):
        total += x[j]                  ->         total += x[i - r + k]

Threads can run the loop on the right in step, and compilers unroll it where its size is a small
constant. It takes the place of the one on the left where neither the window's ends nor any sum on
the way to them wraps: an index on the right may not wrap, but the start of a range may. Otherwise
the loop runs as it was written. That is decided for the launch, by its least and its greatest
index, as by `4 * (int64(grid_dim * block_dim) - 1) <= 2**31 - 5`; for `k % w` by 0 and `w - 1`, for
a counter by the ends of its loop.
Where two indices are multiplied, as in `range(i * j, i * j + 3)`, each thread decides. Where the
size is a small constant, the IF that decides has the `arg` FITS, and `thread_bounds.py` takes it
off the loop over threads.

A loop over `range(max(i - r, 0), min(i + r + 1, n))` is the same, with a test of `0 <= j < n`. It
runs as it was written where the size is greater than `n`, and most tests would fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hal_core.dtypes import DType, bool_, int32, int64
from hal_kernel.ir.blocks.hoisting import is_common, is_shared
from hal_kernel.ir.blocks.sums import Sum, Sums, added
from hal_kernel.ir.fold.dead_code import without_dead
from hal_kernel.ir.uop import PURE, UOp

_ENDS = {"ENDRANGE", "ENDLOOP"}
_INDICES = ("thread_idx", "global_idx")
_SHORT = 16  # iterations, which compilers unroll
FITS = "fits"  # the argument of an IF that no usual launch fails
_NEVER = frozenset({"LOCAL", "PRINT"})  # a loop with one is not written twice


class _Window(NamedTuple):
    """A loop over a window."""

    first: UOp  # where the window begins, also if the loop begins later
    size: Sum
    sums: Sums  # with the values that the size is made of
    wrapping: tuple[Sum, ...]  # sums that may wrap
    ends: tuple[tuple[str, UOp], ...]  # how the loop's counter compares with numbers

    @property
    def is_simple(self) -> bool:
        """True if the loop is counted where it stands, and short if anything is to be decided."""
        if self.size.keys() == {()}:
            return not self.wrapping or abs(self.size[()]) <= _SHORT
        return not self.wrapping and not self.ends

    @property
    def has_extremes(self) -> bool:
        """True if no product has two factors that differ between threads."""
        moving = [_is_moving(value) for value in self.sums.values]
        return all(
            sum(moving[number] for number in numbers) < 2
            for total in self.wrapping
            for numbers in total
        )


def with_windows(uops: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """Return the nodes of a kernel with such loops counted for each thread."""
    simple = {loop: window for loop, window in _found(uops).items() if window.is_simple}
    if not simple:
        return uops
    made = _Counted(simple)
    made.copy(uops)
    return without_dead(made.made)


def with_wide_windows(uops: tuple[UOp, ...]) -> tuple[tuple[UOp, ...], list[UOp]]:
    """Return the nodes of a kernel with such loops counted for the launch, and the new RANGEs."""
    windows = {loop: window for loop, window in _found(uops).items() if not window.is_simple}
    if not windows:
        return uops, []
    made = _Counted(windows)
    ends = {node.src[0]: n for n, node in enumerate(uops) if node.op in _ENDS}
    done = 0  # nodes that are copied
    for place, node in enumerate(uops):
        if place < done or node not in ends:
            continue
        nest = uops[place : ends[node] + 1]
        made.made += uops[done:place]
        done = place + len(nest)
        even = node in windows or all(map(is_shared, node.src))
        if node.op == "RANGE" and even and not any(inner.op in _NEVER for inner in nest):
            made.add_nest(nest)
        else:
            made.made += nest
    return without_dead([*made.made, *uops[done:]]), made.loops


def _found(uops: tuple[UOp, ...]) -> dict[UOp, _Window]:
    loops = [node for node in uops if node.op == "RANGE"]
    return {loop: window for loop in loops if (window := window_of(loop)) is not None}


def window_of(loop: UOp) -> _Window | None:
    """Return what window a RANGE runs over; None if threads do not share its size."""
    (start, stop, step), dtype = loop.src, loop.dtype
    if start.op == "CONST" or is_shared(start) or dtype not in (int32, int64):
        return None
    sums = Sums()
    # An end of the window, and a test of the counter if the window is cut there.
    firsts: list[tuple[UOp, tuple[tuple[str, UOp], ...]]] = [(start, ())]
    lasts: list[tuple[UOp, tuple[tuple[str, UOp], ...]]] = [(stop, ())]
    if step.arg == 1 and start.op == "MAX":
        firsts += [(a, (("GE", b),)) for a, b in (start.src, start.src[::-1]) if _is_even(b)]
    if step.arg == 1 and stop.op == "MIN":
        lasts += [(a, (("LT", b),)) for a, b in (stop.src, stop.src[::-1]) if _is_even(b)]
    for first, low in firsts:
        for last, high in lasts:
            size = added(sums.of(last), sums.of(first), -1)
            totals = [*sums.parts_of(first), added(sums.of(first), size, 1), size]
            spans = [(total, *sums.span(total)) for total in totals]
            wrapping = tuple(
                [t for t, least, most in spans if not dtype.min <= least <= most <= dtype.max]
            )
            found = _Window(first, size, sums, wrapping, low + high)
            if size and _is_counted(found, loop):
                return found
    return None


def _is_counted(window: _Window, loop: UOp) -> bool:
    """Tell whether threads share a window's size, and the generated code can decide about it."""
    sums, size = window.sums, window.size
    if size.keys() == {()}:
        number = size[()] if loop.src[2].arg > 0 else -size[()]
        if not 0 < number <= (_SHORT if window.ends else 2**31 - 1):
            return False
    elif not all(map(_is_even, sums.made_of(size))):
        return False
    values = [value for total in window.wrapping for value in sums.made_of(total)]
    spans = [end for total in window.wrapping for end in sums.span(total)]
    if window.wrapping and (loop.dtype is not int32 or max(map(abs, spans)) >= 2**62):
        return False
    if window.is_simple:
        return all(_is_moving(value) or _is_even(value) for value in values)
    values += sums.made_of(window.size)
    ends = [end for _, end in window.ends]
    shared = all(is_shared(value) for value in (*values, *ends) if not _is_index(value))
    return window.has_extremes and shared and len(ends) != 1


def _is_even(node: UOp) -> bool:
    """Tell whether threads in step agree on a value."""
    if is_common(node):
        return True
    return (node.op == "RANGE" or node.op in PURE) and all(map(_is_even, node.src))


def _is_index(node: UOp) -> bool:
    return node.op == "SPECIAL" and node.arg[0] in _INDICES


def _is_moving(node: UOp) -> bool:
    """Tell whether a value is an index, or its quotient or remainder by a shared number."""
    if node.op not in ("MOD", "FLOORDIV") or node.dtype is not int32:
        return _is_index(node)
    number, divisor = node.src
    return _is_moving(number) and _is_even(divisor)


class _Counted:
    """Nodes that are written anew: `made`, and in it the new RANGEs that were windows."""

    def __init__(self, windows: dict[UOp, _Window]) -> None:
        self.windows = windows
        self.line = 0  # of the loop that is written
        self.made: list[UOp] = []
        self.loops: list[UOp] = []
        self.new: dict[UOp, UOp] = {}
        self.ranges: dict[UOp, UOp] = {}  # a window's loop -> its new RANGE
        self.sizes: dict[UOp, UOp] = {}  # a window's loop -> its size, if computed ahead
        self.opened: dict[UOp, UOp | None] = {}  # a window's loop -> the IF around its body

    def copy(self, nodes: Sequence[UOp], anew: bool = False) -> None:
        """Write nodes with windows counted; `anew` makes each of them a new node."""
        ends = {node.src[0]: n for n, node in enumerate(nodes) if node.op in _ENDS}
        skipped = 0
        for place, node in enumerate(nodes):
            loop = node.src[0] if node.src else node
            if place < skipped:
                continue
            if node in self.windows and node not in self.sizes and self.windows[node].wrapping:
                skipped = ends[node] + 1
                self._decide(nodes[place:skipped], anew)
            elif node in self.windows:
                self._open(node)
            elif loop in self.opened and node.op in ("ENDRANGE", "BREAK", "CONTINUE"):
                block = self.opened[loop]
                if block is not None and node.op == "ENDRANGE":
                    self._add("ENDIF", None, block)
                self._add(node.op, None, self.ranges[loop])
            else:
                sources = tuple([self.new.get(source, source) for source in node.src])
                if anew or sources != node.src:
                    self.new[node] = UOp(node.op, node.dtype, sources, node.arg, node.line)
                self.made.append(self.new.get(node, node))

    def _decide(self, nest: Sequence[UOp], anew: bool) -> None:
        """Write a loop counted, and as it was for threads for which a sum wraps."""
        loop, before = nest[0], dict(self.new)
        self.line = loop.line
        self.sizes[loop] = self._size(loop, self._now)
        tests: list[UOp] = []
        for total in self.windows[loop].wrapping:
            if self.windows[loop].has_extremes:
                low, high = self._extremes(loop, total, self._now, tests)
            else:
                low = high = self._wide(loop, total, self._now)
            tests += self._within(loop, total, low, high)
        block = self._add("IF", None, self._all(tests), arg=FITS)
        self.copy(nest, anew=True)
        self._add("ELSE", None, block)
        plain = _Counted({})
        plain.made, plain.new = self.made, before
        plain.copy(nest, anew)
        self._add("ENDIF", None, block)
        self.new = dict(before)

    def add_nest(self, nest: Sequence[UOp]) -> None:
        """Write a nest counted, then as it was for a launch that it may not be counted for."""
        root, windows = nest[0], [node for node in nest if node in self.windows]
        if not windows:
            self.made += nest
            return
        self.line, inside = root.line, set(nest)

        def ahead(node: UOp) -> UOp:
            if node not in inside:
                return node
            return self._add(node.op, node.dtype, *map(ahead, node.src), arg=node.arg)

        tests: list[UOp] = []
        for loop in windows:
            window = self.windows[loop]
            self.sizes[loop] = self._size(loop, ahead)
            for total in window.wrapping:
                tests += self._within(loop, total, *self._extremes(loop, total, ahead, tests))
            if window.ends:
                low, high = (ahead(end) for _, end in window.ends)
                most = self._add("SUB", loop.dtype, high, low)
                tests.append(self._add("LE", bool_, self.sizes[loop], most))
        holds = self._all(tests)
        if root in self.windows:
            none = self._add("CONST", root.dtype, arg=0)
            self.sizes[root] = self._add("WHERE", root.dtype, holds, self.sizes[root], none)
            self.copy(nest, anew=True)
        else:
            end = self._add("WHERE", root.dtype, holds, root.src[1], root.src[0])
            self.new[root] = self._add(
                "RANGE", root.dtype, root.src[0], end, root.src[2], arg=root.arg
            )
            self.copy(nest[1:], anew=True)
        block = self._add("IF", None, self._add("NOT", bool_, holds))
        self.made += nest
        self._add("ENDIF", None, block)

    def _open(self, loop: UOp) -> None:
        """Write the start of a loop over a window, and the tests of its counter."""
        window, dtype, step = self.windows[loop], loop.dtype, self._now(loop.src[2])
        self.line = loop.line
        size = self.sizes.get(loop) or self._size(loop, self._now)
        zero = self._add("CONST", dtype, arg=0)
        self.ranges[loop] = self._add("RANGE", dtype, zero, size, step, arg=loop.arg)
        self.loops.append(self.ranges[loop])
        counter = self._add("ADD", dtype, self._now(window.first), self.ranges[loop])
        self.new[loop] = counter
        tests = [self._add(op, bool_, counter, self._now(end)) for op, end in window.ends]
        self.opened[loop] = self._add("IF", None, self._all(tests)) if tests else None

    def _now(self, node: UOp) -> UOp:
        return self.new.get(node, node)

    def _add(self, op: str, dtype: DType | None, *src: UOp, arg: object = None) -> UOp:
        self.made.append(UOp(op, dtype, src, arg, self.line))
        return self.made[-1]

    def _all(self, tests: list[UOp]) -> UOp:
        holds = tests[0]
        for test in tests[1:]:
            holds = self._add("AND", bool_, holds, test)
        return holds

    # -- sums

    def _size(self, loop: UOp, given: Callable[[UOp], UOp]) -> UOp:
        window = self.windows[loop]
        return window.sums.written(window.size, window.first.dtype or int32, self._add, given)

    def _wide(self, loop: UOp, total: Sum, given: Callable[[UOp], UOp]) -> UOp:
        """Write a sum of int32 in int64, where it does not wrap."""

        def wide(node: UOp) -> UOp:
            return self._add("CAST", int64, given(node))

        return self.windows[loop].sums.written(total, int64, self._add, wide)

    def _within(self, loop: UOp, total: Sum, low: UOp, high: UOp) -> list[UOp]:
        """Write tests that a sum, which is from `low` to `high`, does not wrap."""
        least, most = self.windows[loop].sums.span(total)
        tests: list[UOp] = []
        if least < int32.min:
            tests.append(self._add("GE", bool_, low, self._number(int(int32.min))))
        if most > int32.max:
            tests.append(self._add("LE", bool_, high, self._number(int(int32.max))))
        return tests

    def _extremes(
        self, loop: UOp, total: Sum, given: Callable[[UOp], UOp], tests: list[UOp]
    ) -> tuple[UOp, UOp]:
        """Write the least and the greatest value of a sum in any thread of the launch.

        Appends what must hold for them to `tests`.
        """
        values = self.windows[loop].sums.values
        shared: Sum = {}
        by_value: dict[UOp, Sum] = {}  # a value with extremes -> what it is multiplied by
        for numbers, times in total.items():
            moving = [number for number in numbers if _is_moving(values[number])]
            moving += [number for number in numbers if values[number].op == "RANGE"]
            into = by_value.setdefault(values[moving[0]], {}) if moving else shared
            into[tuple(number for number in numbers if number not in moving[:1])] = times
        low = high = self._wide(loop, shared, given)
        for value, factor in by_value.items():
            times_ = self._wide(loop, factor, given)
            ends = [self._add("MUL", int64, times_, end) for end in self._ends(value, given, tests)]
            low = self._add("ADD", int64, low, self._add("MIN", int64, *ends))
            high = self._add("ADD", int64, high, self._add("MAX", int64, *ends))
        return low, high

    def _ends(self, value: UOp, given: Callable[[UOp], UOp], tests: list[UOp]) -> tuple[UOp, UOp]:
        """Write the least and the greatest value of a counter, or of what `_is_moving` names."""
        one = self._number(1)
        if value.op == "RANGE":
            start, stop = (self._add("CAST", int64, given(end)) for end in value.src[:2])
            if value.src[2].arg > 0:
                return start, self._add("SUB", int64, stop, one)
            return self._add("ADD", int64, stop, one), start
        if not _is_index(value):
            number, divisor = value.src
            count = self._add("CAST", int64, given(divisor))
            tests.append(self._add("GE", bool_, count, one))
            if value.op == "FLOORDIV":
                return self._ends(number, given, tests)
        else:
            kind, axis = value.arg
            count = self._add("SPECIAL", int32, arg=("block_dim", axis))
            if kind == "global_idx":
                blocks = self._add("SPECIAL", int32, arg=("grid_dim", axis))
                count = self._add("MUL", int32, blocks, count)
            count = self._add("CAST", int64, count)
        return self._number(0), self._add("SUB", int64, count, one)

    def _number(self, value: int) -> UOp:
        return self._add("CONST", int64, arg=value)
