"""Write the loops over the threads of a block, around each region, in LLVM IR."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from hal_core.dtypes import bool_, int32
from hal_cpu.render.control import NOT_UNROLLED, Blocks
from hal_cpu.render.values import literal
from hal_kernel.ir import Kernel, UOp
from hal_kernel.ir.blocks.bundles import Bundle
from hal_kernel.ir.blocks.compiler_faults import doubling, hidden_parts
from hal_kernel.ir.blocks.groups import FEWEST_LANES, after_loop, region_of
from hal_kernel.ir.blocks.independence import stores_last
from hal_kernel.ir.blocks.middle import Middle, beyond, guessed, inside, middle
from hal_kernel.ir.blocks.row_loops import ahead_of_groups
from hal_kernel.ir.blocks.rows import (
    MOST_NODES,
    MOST_REGIONS,
    Limit,
    Row,
    computes_with_index,
    shared_loads,
)
from hal_kernel.ir.blocks.thread_bounds import Bounds, bounds, joins_blocks
from hal_kernel.ir.blocks.unrolling import written_out
from hal_kernel.ir.loops import filling
from hal_kernel.ir.uop import dtype_of

AXES = "xyz"
BLOCKS = "each.block"  # the loop over the blocks of this call
_MOST_UNROLLED = 50  # regions
_FEW_LANES = 16, 8, 4, 1  # threads of the groups behind those of a row
_LONG = 128  # threads: from here on masked loads cost more than two loops for the rims


Interval = tuple[str, str]  # threads of a row: from the first up to the second
Known = dict[UOp, str]  # node -> its value in the loop that is being written


class Place(NamedTuple):
    """A region that is being written, inside its loops over z and y."""

    free: bool  # its threads may be interleaved
    row: Row
    suffix: str  # of the labels
    number: str  # of the row, among the rows of the block; empty if a group has its own SPILLs
    width: str  # threads of the row
    interval: Interval  # the threads that are written
    first: str = ""  # the thread that the loop along x begins with, if it is not 0
    base: str = ""  # the global index of that thread, from which threads count then
    rare: bool = False  # the loop along x is kept small, and loops in it
    step: str = "1"  # of the loop along x
    back: bool = False  # the loop along x begins with the last thread
    bundle: Bundle | None = None  # what the loop along x runs, instead of threads


class Threads(Blocks):
    """Write regions. `specials` and `first` are filled in by the loop over blocks."""

    def __init__(self, kernel: Kernel, half: bool) -> None:
        super().__init__(half, kernel.most_threads)
        self.uops = kernel.uops
        ops = [uop.op for uop in self.uops]
        if "ROW_GROUPS" in ops:
            self.block_threads = self.uops[ops.index("ROW_GROUPS")].arg
        self.spills = "SPILL" in ops
        self.specials: dict[tuple[str, int], str] = {}
        self.first: list[str] = []  # for each axis: the global index of the block's first thread
        self.has_columns = "COLUMNS" in ops
        self.joined = self.has_columns or joins_blocks(self.uops)
        self.blocks = self.rows = "1"  # that one iteration of the loop over blocks runs
        self.width = ""  # threads in a row of joined blocks
        self.height = ""  # rows of threads in joined rows of blocks
        self.regions = 0
        regions = ops.count("THREADS")
        self.splits = len(self.uops) <= MOST_NODES and regions <= MOST_REGIONS
        # LLVM takes long for the code of many loops that it wrote out.
        self.unrolls = regions <= _MOST_UNROLLED
        self.fixed = kernel.block is not None
        self.one_by_one = False  # True: threads are no lanes of vectors
        self.hidden: set[UOp] = set()  # numbers by which LLVM must not find neighbours
        self.divisors: set[UOp] = set()  # of int64, that are known to be from 1 to 2**31
        self.low: set[UOp] = set()  # low bits of an index that are compared as bytes
        self.filling = filling(self.uops)

    def write(self, uop: UOp) -> None:
        """Write one node."""
        raise NotImplementedError

    def write_region(self, threads: UOp, nodes: list[UOp]) -> None:
        """Write a region in loops over z, y and x, without the threads that have no effect."""
        row = Row(written_out(nodes) if threads.arg else nodes)
        place = self._open_rows(threads.arg, row)
        self.write_row(place)
        self._close_rows()

    def write_row(self, place: Place) -> None:
        """Write the threads of a row; a subclass cuts the row into parts."""
        self.write_part(place)

    def write_part(self, place: Place) -> None:
        """Write a part of a row within its bounds."""
        row = place.row
        guards = bounds(row, self.splits)
        inner: Middle | None = None
        write: Callable[[Place, Interval, Known, Middle], None] = self._write_middle_and_rims
        if self.splits:
            guess = guessed(row, guards.known)
            inner = middle(row, guess) or beyond(row, guards.known)
            if inner is None and (inner := inside(row, guess)) is not None:
                # Most rows of a single block lie within the limits as a whole.
                write = self._write_long_in_three if self.joined else self._write_twice
        whole, known = self._bound(place, row, guards, inner)
        if inner is None:
            self.write_whole(place, whole, known)
        else:
            write(place, whole, known, inner)
        if guards.wrapping:
            self._write_threads(
                self._wrapping_place(place), self._wrapping_threads(place, guards), {}
            )

    def write_whole(self, place: Place, whole: Interval, known: Known) -> None:
        """Write the threads of a part that is not cut further; a subclass makes bundles of them."""
        self._write_threads(place, whole, known)

    def write_groups(self, groups: UOp, nodes: list[UOp]) -> None:
        """Write loops around one region: `groups.arg` threads run them to their end, then the next.

        Threads behind the last whole group run them together; a LOOP each by itself.
        """
        place = self._open_rows(True, Row(region_of(nodes)))
        self.write_nest(place, nodes, groups.arg)
        self._close_rows()

    def write_nest(self, place: Place, nodes: list[UOp], lanes: int) -> None:
        """Write the groups of a row; a subclass cuts the row into parts."""
        self.write_groups_of_part(place, nodes, lanes)

    def write_groups_of_part(self, place: Place, nodes: list[UOp], lanes: int) -> None:
        """Write the groups of a part of a row, and the threads behind the last whole group."""
        row = place.row
        guards = bounds(row, self.splits)
        (start, end), known = self._bound(place, row, guards, None)
        if nodes[0].op == "LOOP":
            self._write_leaving(place, nodes, lanes, (start, end), known)
        else:
            whole = self.let(f"and i32 {self.let(f'sub nsw i32 {end}, {start}')}, {-lanes}")
            last = self.let(f"add nsw i32 {start}, {whole}")
            first = self.open_loop(f"group{place.suffix}", "i32", start, last, "slt", str(lanes))
            group = place._replace(suffix=f".group{place.suffix}", first=first)
            self.write_threads_of_nest(nodes, group, ("0", str(lanes)), known)
            self.close_loop()
            rest = place._replace(suffix=f".rest{place.suffix}")
            self.write_threads_of_nest(nodes, rest, (last, end), known)
        if guards.wrapping:
            self.write_rest_of_nest(
                nodes, self._wrapping_place(place), self._wrapping_threads(place, guards), {}
            )

    def write_row_groups(self, groups: UOp, nodes: list[UOp]) -> None:
        """Write all that the threads of each row do: `row_loops.py`."""
        place = self._open_rows(True, Row(region_of(nodes)))
        row, suffix = place.row, place.suffix
        interval, _ = self._bound(place, row, bounds(row, solves=False), None)
        body = nodes[len(row.nodes) + 2 :]  # behind the region of the guards
        shared = ahead_of_groups(body)
        ahead, body = body[:shared], body[shared:]
        if ahead:
            # If the row has no thread, nothing may be loaded.
            some = self.let(f"icmp slt i32 {interval[0]}, {interval[1]}")
            self.branch(some, f"row{suffix}", f"row{suffix}.end")
            self.label(f"row{suffix}")
            for node in ahead:
                self.write(node)
        place = place._replace(suffix=f".{self.number()}", interval=interval)
        if body[0].op == "THREADS" and body[-1].src == (body[0],):  # a region alone
            self.write_part(place._replace(free=body[0].arg, row=Row(body[1:-1])))
        else:
            self.write_groups_of_row(place._replace(number=""), body, groups.arg)
        if ahead:
            self.jump(f"row{suffix}.end")
            self.label(f"row{suffix}.end")
        self._close_rows()

    def write_groups_of_row(self, place: Place, body: list[UOp], lanes: int) -> None:
        """Write several regions, and what stands between them, for groups of a row."""
        start, end = place.interval
        for count in (lanes, *(few for few in _FEW_LANES if few < lanes)):
            whole = self.let(f"and i32 {self.let(f'sub nsw i32 {end}, {start}')}, {-count}")
            last = self.let(f"add nsw i32 {start}, {whole}")
            name = f"group.{count}{place.suffix}"
            first = self.open_loop(name, "i32", start, last, "slt", str(count))
            base = self.let(f"add nsw i32 {self.first[0]}, {first}")
            region: list[UOp] | None = None
            for node in body:
                if node.op == "THREADS":
                    region, free = [], node.arg
                elif node.op == "ENDTHREADS" and region is not None:
                    suffix = f".{self.number()}"
                    group = place._replace(suffix=suffix, first=first, base=base)
                    group = group._replace(free=free, row=Row(region))
                    self._write_threads(group, ("0", str(count)), {})
                    self.access, self.thread, self.frame_loop = "", "", BLOCKS
                    region = None
                elif region is not None:
                    region.append(node)
                else:
                    self.write(node)
            self.close_loop()
            start = last

    def _write_leaving(
        self, place: Place, nodes: list[UOp], lanes: int, interval: Interval, known: Known
    ) -> None:
        """Write groups of threads, and behind each the threads that did not leave their LOOP.

        Fewer than `FEWEST_LANES` threads run no LOOP together: all of them are left.
        """
        alone, behind = after_loop(nodes)
        inner, suffix = nodes[: len(nodes) - len(behind)], place.suffix
        running = next(node.src[0] for node in region_of(inner) if node.op == "COUNT")
        first = self.open_loop(f"group{suffix}", "i32", *interval, "slt")
        all_left = self.let(f"sub nsw i32 {interval[1]}, {first}")
        counts: list[str] = []
        for count in dict.fromkeys((lanes, FEWEST_LANES)):
            name = f"{count}{suffix}"
            enough = self.let(f"icmp sge i32 {all_left}, {count}")
            self.branch(enough, f"group.{name}", f"fewer.{name}")
            self.label(f"group.{name}")
            group = place._replace(suffix=f".group.{name}", first=first)
            self.write_threads_of_nest(inner, group, ("0", str(count)), known)
            counts.append(f"[ {count}, %{self.block} ]")
            self.jump(f"left{suffix}")
            self.label(f"fewer.{name}")
        self.line(f"store i32 1, ptr {self.values[running]}")
        counts.append(f"[ {all_left}, %{self.block} ]")
        self.jump(f"left{suffix}")
        self.label(f"left{suffix}")
        size = self.let(f"phi i32 {', '.join(counts)}")
        left = place._replace(suffix=f".left{suffix}", first=first, row=Row(region_of(alone)))
        self.write_threads_of_nest(behind, left, ("0", size), {})
        self.loops[-1] = self.loops[-1]._replace(step=size)
        self.close_loop()

    def write_rest_of_nest(
        self, nodes: list[UOp], place: Place, interval: Interval, known: Known
    ) -> None:
        """Write what threads do that no group runs: of a LOOP, what each does by itself."""
        alone, _ = after_loop(nodes)
        if alone:
            place, known = place._replace(row=Row(region_of(alone))), {}
        self.write_threads_of_nest(alone or nodes, place, interval, known)

    def write_threads_of_nest(
        self, nodes: list[UOp], place: Place, interval: Interval, known: Known
    ) -> None:
        inside = False
        for node in nodes:
            if node.op == "THREADS":
                inside = True
                self._write_threads(place, interval, known)
                self.access, self.thread, self.frame_loop = "", "", BLOCKS
            elif node.op == "ENDTHREADS":
                inside = False
            elif not inside:
                self.write(node)

    def _open_rows(self, free: bool, row: Row) -> Place:
        """Open the loops over z and y."""
        suffix = f".{self.regions}" if self.regions else ""
        self.regions += 1
        number = "0"
        for axis in (2, 1):
            thread = self._open(axis, suffix, "0", self._rows_along(axis))
            number = self._number(number, self.specials["block_dim", axis], thread)
        uses_y = ("global_idx", 1) in [node.arg for node in row.nodes]
        if uses_y and not free and not stores_last(row.nodes, apart=True):
            # LLVM would ask once, ahead of all rows, whether what it stores may be the same, and so
            # make no vectors of rows that lie in between each other.
            hidden = self.let(f"or i32 {self.specials['global_idx', 1]}, {self.hidden_zero()}")
            self.specials["global_idx", 1] = hidden
        width = self.width if self.joined else self.specials["block_dim", 0]
        return Place(free, row, suffix, number, width, ("0", width))

    def hidden_zero(self) -> str:
        """Return a zero of which LLVM does not know what it is."""
        return self.let(f"ashr i32 {self.specials['grid_dim', 0]}, 31")  # no grid is negative

    def _close_rows(self) -> None:
        for axis in (1, 2):
            if self._rows_along(axis) != "1":
                self.close_loop()
        self.access, self.thread, self.frame_loop = "", "", BLOCKS

    def _rows_along(self, axis: int) -> str:
        """Return the number of threads along z, or y, that a region is written for."""
        return self.height if axis == 1 and self.height else self.specials["block_dim", axis]

    def _bound(
        self, place: Place, row: Row, guards: Bounds, inner: Middle | None
    ) -> tuple[Interval, Known]:
        """Write the nodes that a row's bounds need; return its threads and known values."""
        more = (inner.limits, inner.solving) if inner else ((), ())
        early = guards.needed(row, *more)
        for node in (*early, *guards.solving, *more[1]):
            self.write(node)
        known = {node: self.values[node] for node in early}
        known.update({node: literal(holds, bool_) for node, holds in guards.known.items()})
        whole = self.within(guards.limits, place.interval)
        for condition, holds in guards.rows:
            sides = (whole[1], whole[0]) if holds else whole
            whole = whole[0], self.select(self.values[condition], "i32", *sides)
        return whole, known

    def _write_long_in_three(
        self, place: Place, whole: Interval, known: Known, inner: Middle
    ) -> None:
        """Write a row as middle and rims if the middle has `_LONG` threads or more.

        Else write it as one loop: more loops cost time.
        """
        interval = self.within(inner.limits, whole)
        count = self.let(f"sub nsw i32 {interval[1]}, {interval[0]}")
        some = self.let(f"icmp sge i32 {count}, {_LONG}")
        self.branch(some, f"long{place.suffix}", f"short{place.suffix}")
        self.label(f"long{place.suffix}")
        self._write_middle_and_rims(place, whole, known, inner, interval)
        self.jump(f"over{place.suffix}")
        self.label(f"short{place.suffix}")
        self._write_threads(place, whole, known)
        self.jump(f"over{place.suffix}")
        self.label(f"over{place.suffix}")

    def _write_middle_and_rims(
        self, place: Place, whole: Interval, known: Known, inner: Middle,
        interval: Interval | None = None,
    ) -> None:  # fmt: skip
        """Write the middle of a row, then its rims: the threads ahead of it and behind it.

        `interval` is the middle, if its limits are written already.
        """
        interval = interval or self.within(inner.limits, whole)
        self.same = inner.same
        decided = {node: literal(holds, bool_) for node, holds in inner.known.items()}
        self._write_threads(
            place._replace(suffix=f".middle{place.suffix}"), interval, known | decided
        )
        self.same = {}
        self.write_rims(place, whole, interval, known)

    def write_rims(self, place: Place, whole: Interval, middle: Interval, known: Known) -> None:
        """Write the threads of a row ahead of its middle, and behind it."""
        rim = self.open_loop(f"rim{place.suffix}", "i32", "0", "2", "slt")
        ahead = self.let(f"icmp eq i32 {rim}, 0")
        start = self.select(ahead, "i32", whole[0], middle[1])
        interval = start, self.select(ahead, "i32", middle[0], whole[1])
        self._write_threads(place._replace(suffix=f".rim{place.suffix}"), interval, known)
        self.close_loop(self.loop_facts(self.fact(NOT_UNROLLED)))

    def _write_twice(self, place: Place, whole: Interval, known: Known, inner: Middle) -> None:
        """Write a row for the case that it lies within the limits, and for any other case."""
        interval = self.within(inner.limits, whole)
        ends = [
            self.let(f"icmp eq i32 {a}, {b}")
            for a, b in zip(interval, whole, strict=True)
            if a != b
        ]
        both = ends[0] if len(ends) == 1 else self.let(f"and i1 {', '.join(ends)}")
        self.branch(both, f"inside{place.suffix}", f"outside{place.suffix}")
        self.label(f"inside{place.suffix}")
        self.same = inner.same
        decided = {node: literal(holds, bool_) for node, holds in inner.known.items()}
        self._write_threads(place._replace(suffix=f".inside{place.suffix}"), whole, known | decided)
        self.same = {}
        self.jump(f"over{place.suffix}")
        self.label(f"outside{place.suffix}")
        self._write_threads(place, whole, known)
        self.jump(f"over{place.suffix}")
        self.label(f"over{place.suffix}")

    def _wrapping_place(self, place: Place) -> Place:
        """Return the place of threads whose guards wrap, which no real launch has."""
        return place._replace(suffix=f".far{place.suffix}", free=False, rare=True)

    def _wrapping_threads(self, place: Place, guards: Bounds) -> Interval:
        starts = [self.within([limit], place.interval)[0] for limit in guards.wrapping]
        first = starts[0]
        for start in starts[1:]:
            first = self._call("@llvm.smin.i32", "i32", ["i32"] * 2, [first, start])
        return first, place.interval[1]

    def _write_threads(self, place: Place, interval: Interval, known: Known) -> None:
        """Write the loop over x, for these threads of a row."""
        holds = [node for node, value in known.items() if value == literal(True, bool_)]
        loads = shared_loads(place.row, holds) if place.free else []
        if loads:
            # If the interval has no thread, nothing may be loaded.
            some = self.let(f"icmp slt i32 {interval[0]}, {interval[1]}")
            self.branch(some, f"row{place.suffix}", f"row{place.suffix}.end")
            self.label(f"row{place.suffix}")
        self.hidden = set(hidden_parts(place.row, holds))
        self.rolled = set() if place.free else doubling(place.row, holds)
        if place.rare:
            self.rolled = {node for node in place.row.nodes if node.op == "RANGE"}
        shared = self.hidden - place.row.differing
        for node in (ahead := dict.fromkeys([*loads, *place.row.needed(shared)])):
            self.write(node)
        known = known | {node: self.values[node] for node in ahead}
        first = place.first
        if place.back:
            last = self.let(f"add nsw i32 {interval[0]}, {interval[1]}")
            first = self.let(f"sub nsw i32 {last}, 1")
        step, back, base = place.step, place.back, place.base
        # A loop that begins with another thread, or belongs to a part of a row, is soon over.
        whole = step == "1" and not (first or base or self.spills) and place.interval[0] == "0"
        if whole and computes_with_index(place.row, known):
            thread = self._open_counted(place.suffix, *interval)
        else:
            thread = self._open(0, place.suffix, *interval, first, step, back, base)
        self.frame_loop, self.differing = self.loops[-1].name, place.row.differing
        if self.spills:
            own = thread if place.number else f"%{self.loops[-1].name}"
            self.thread = self._number(place.number or "0", place.width, own)
        later = place.free and (self.fixed or not place.number) and self.unrolls
        facts = [self.fact(NOT_UNROLLED)] if later or place.rare or not self.unrolls else []
        if later:
            facts.append(self._unrolled_as_vectors())
        if place.free:
            # The metadata says that iterations of the loop over x do not depend on each other.
            group = self.add_metadata("distinct !{{}}")
            facts.append(self.add_metadata(f'!{{{{!"llvm.loop.parallel_accesses", {group}}}}}'))
            self.access = f", !llvm.access.group {group}"
        if place.rare or self.one_by_one:
            facts.append(self.fact('!{{!"llvm.loop.vectorize.enable", i1 false}}'))
        self.write_nodes(place, thread, known)
        self.close_loop(self.loop_facts(*facts) if facts else "")
        if loads:
            self.jump(f"row{place.suffix}.end")
            self.label(f"row{place.suffix}.end")

    def write_nodes(self, place: Place, thread: str, known: Known) -> None:
        """Write the nodes of a row, in the loop over its threads."""
        for node in place.row.nodes:
            if node in known:
                self.values[node] = known[node]
            elif node in self.same:
                if self.same[node] not in self.values:
                    self.write(self.same[node])
                self.values[node] = self.values[self.same[node]]
            else:
                self.write(node)

    def _unrolled_as_vectors(self) -> str:
        """Return metadata for LLVM: unroll this loop only after it was vectorised.

        Unrolled earlier, a loop over few threads becomes single elements. LLVM then joins them to
        vectors that lie across those that were stored, and Intel's processors wait for such stores.
        """
        whole = self.fact('!{{!"llvm.loop.unroll.runtime.disable"}}')
        once = self.fact('!{{!"llvm.loop.isvectorized", i32 1}}')
        return self.fact(f'!{{{{!"llvm.loop.vectorize.followup_vectorized", {whole}, {once}}}}}')

    def _open(
        self, axis: int, suffix: str, start: str, end: str, first: str = "", step: str = "1",
        back: bool = False, base: str = "",
    ) -> str:  # fmt: skip
        """Open the loop over one axis; return the index in it.

        It counts from thread `first` on, or back from it; `base` is the global index of that one.
        """
        name = f"thread.{AXES[axis]}{suffix}"
        # Without the loop LLVM has one less to analyse, in each of perhaps a hundred regions.
        if axis and end == "1":
            thread = "0"
        elif step == "1":
            thread = self.open_loop(name, "i32", start, end, "slt")
        else:  # the step from the last thread may leave int32
            thread = self.open_loop(name, "i32", start, end, "ult", step, "add nuw")
        counted = thread
        if first:
            thread = self.let(f"{'sub' if back else 'add'} nsw i32 {first}, {thread}")
        self.specials["thread_idx", axis] = thread
        # The launch checks that the index fits int32. Without nsw LLVM would not vectorise.
        numbers = (base, counted) if base else (self.first[axis], thread)
        index = f"add nsw i32 {', '.join(numbers)}"
        self.specials["global_idx", axis] = self.let(index, f"%global.{AXES[axis]}{suffix}")
        return thread

    def _open_counted(self, suffix: str, start: str, end: str) -> str:
        """Open the loop over x with a counter for the global index; return the thread's index.

        LLVM widens indices to 64 bits. A counter it narrows again in vectors, but no sum with one.
        """
        name, index = f"thread.x{suffix}", f"global.x{suffix}"
        first = self.let(f"add nsw i32 {self.first[0]}, {start}")
        thread = self.open_loop(name, "i32", start, end, "slt", others=[(index, first)])
        following = partial(self.let, f"add nsw i32 %{index}, 1", f"%{index}.next")
        self.loops[-1] = self.loops[-1]._replace(advance_others=following)
        self.specials["thread_idx", 0], self.specials["global_idx", 0] = thread, f"%{index}"
        return thread

    def _number(self, row: str, dim: str, thread: str) -> str:
        """Return row * dim + thread, the number of the thread among all up to this axis."""
        if not self.spills:
            return "0"
        wide = self.let(f"sext i32 {thread} to i64")
        if row == "0":
            return wide
        width = dim if dim.isdigit() else self.let(f"zext i32 {dim} to i64")
        skipped = self.let(f"mul nuw nsw i64 {row}, {width}")
        return self.let(f"add nuw nsw i64 {skipped}, {wide}")

    # -- limits along x

    def within(self, limits: list[Limit], interval: Interval) -> Interval:
        """Return the threads of an interval that are within the limits.

        A result that would begin after its end is empty, and lies within the given interval.
        """
        if not limits:
            return interval
        first, last = (
            place if place.isdigit() else self.let(f"zext i32 {place} to i64") for place in interval
        )
        start, end = first, last
        for limit in limits:
            at = self._place_of(limit)
            if limit.op in ("LT", "LE", "EQ"):
                after = at if limit.op == "LT" else self.let(f"add nsw i64 {at}, 1")
                end = self.least(end, after)
            if limit.op in ("GT", "GE", "EQ"):
                after = self.let(f"add nsw i64 {at}, 1") if limit.op == "GT" else at
                start = self._greatest(start, after)
        if end != last:
            end = self._greatest(end, first)
        if start != first:
            start = self.let(f"trunc i64 {self.least(start, end)} to i32")
        end = interval[1] if end == last else self.let(f"trunc i64 {end} to i32")
        return interval[0] if start == first else start, end

    def _place_of(self, limit: Limit) -> str:
        """Return, as i64, the number in its row of the thread at which a limit is met."""
        if limit.end.op == "CONST":
            at = str(max(-_BEYOND, min(_BEYOND, limit.end.arg)))
        elif dtype_of(limit.end) is int32:
            at = self.let(f"sext i32 {self.values[limit.end]} to i64")
        else:  # the sums below do not wrap
            at = self.least(self._greatest(self.values[limit.end], str(-_BEYOND)), str(_BEYOND))
        if limit.added:
            at = self.let(f"sub nsw i64 {at}, {limit.added}")
        if limit.offset is not None:
            offset = self.values[limit.offset]
            if dtype_of(limit.offset) is int32:
                offset = self.let(f"sext i32 {offset} to i64")
            else:
                offset = self.least(self._greatest(offset, str(-_BEYOND)), str(_BEYOND))
            if limit.times != 1:
                offset = self.let(f"mul nsw i64 {offset}, {limit.times}")
            at = self.let(f"sub nsw i64 {at}, {offset}")
        if limit.number.arg[0] == "global_idx":
            first = self.let(f"sext i32 {self.first[0]} to i64")
            at = self.let(f"sub nsw i64 {at}, {first}")
        return at

    def least(self, a: str, b: str) -> str:
        return self._call("@llvm.smin.i64", "i64", ["i64"] * 2, [a, b])

    def _greatest(self, a: str, b: str) -> str:
        return self._call("@llvm.smax.i64", "i64", ["i64"] * 2, [a, b])


_BEYOND = 1 << 40  # beyond any thread
