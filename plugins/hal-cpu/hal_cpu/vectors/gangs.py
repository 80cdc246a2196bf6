"""Write a kernel for gangs: its arguments, the loop over blocks, the threads of each region.

for each row of threads:
    x = first
    while x < end:
        ON   W threads, without a mask; everything is guessed to have its usual shape
             a guess fails before anything is stored: the same threads start again in the next
        FEW  as ON, with the threads of one vector; not in long kernels
        MIX  with a mask; nothing is guessed
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hal_core.dtypes import bool_, int32
from hal_core.errors import Unsupported
from hal_cpu.compilers.llvm import ALL_PASSES
from hal_cpu.vectors.arithmetic import literal, of, scalar, stored
from hal_cpu.vectors.branches import Frame
from hal_cpu.vectors.bundles import bundles
from hal_cpu.vectors.coarse import with_merged_guards
from hal_cpu.vectors.flat import Flat
from hal_cpu.vectors.rows import limits, needed
from hal_cpu.vectors.shapes import Shapes
from hal_cpu.vectors.text import METADATA, Scoped
from hal_cpu.vectors.tree import Item, Loop, facts, nested, settle, walk
from hal_cpu.vectors.value import Value
from hal_cpu.vectors.width import DEEP, WIDE, Registers, Widths, fit, is_deep, subgroup_of, widths
from hal_kernel.ir.uop import SUBGROUP, TOGETHER, Kernel, UOp, dtype_of
from hal_kernel.render.renderer import writers

_PARAMETERS = "ptr %hal.args, ptr %hal.launch, i64 %hal.first, i64 %hal.last"
_ALONE = 4  # threads behind the last gang of a row that run a short body one by one
_SHORT = 48  # nodes
_LONG = 256  # beyond it LLVM's time for one more body is not worth what it saves in the last gangs
_MANY = 12  # vectors of a row; a shorter one loses more by a mask than it gains
_PADDING = 64  # elements behind an array that whole vectors may read


class _Region(NamedTuple):
    """A region: the work of each thread between two barriers."""

    uops: Sequence[UOp]
    body: list[Item]  # the same as a tree; empty if it is nested too deep for one


class Gangs(Flat):
    """The text of one kernel."""

    def __init__(
        self, kernel: Kernel, half: bool, fma: bool, registers: Registers,
        width: int | None = None,
    ) -> None:  # fmt: skip
        """`width`: threads of a gang; None to choose."""
        super().__init__(half, fma)
        self.kernel, self.writers = kernel, _WRITERS
        self.used = {source for node in kernel.uops for source in node.src}
        self.least_masked = 1 if registers == WIDE else 4
        self.has_gathers = registers.nbytes >= 32
        ops = [node.op for node in kernel.uops]
        specials = {node.arg[0] for node in kernel.uops if node.op == "SPECIAL"}
        self.by_subgroup = not (TOGETHER.isdisjoint(ops) and specials.isdisjoint(SUBGROUP))
        self.across_rows = self.by_subgroup and (not kernel.block or kernel.block[1:] != (1, 1))
        self.joined = not self.by_subgroup and _joins_blocks(ops, specials)
        deep = is_deep(kernel.uops)
        if deep and self.by_subgroup:
            problem = "it uses subgroups, and blocks are nested too deep for vectors"
            raise Unsupported(f"render kernel {kernel.name!r}", problem, limit=DEEP.why)
        root, self.bodies = ([], {}) if deep else nested(kernel.uops)
        for body in self.bodies.values():
            settle(body)
        self.shapes = Shapes(root, self.across_rows)
        row = kernel.block[0] if kernel.block and not self.joined else None
        self.widths = DEEP if deep else widths(kernel.uops, self.shapes, registers, row)
        if self.by_subgroup:
            width = width or subgroup_of(registers)
        if width is not None and not deep:
            self.widths = Widths(width, width)
        if self.widths.whole > 1:
            bodies = self.bodies.values() if self.shapes.strided else ()
            merged = [item for body in bodies for item in with_merged_guards(body, self.shapes)]
            loops = [item.node for item, _ in walk(merged) if isinstance(item, Loop)]
            self.notes = dict.fromkeys(loops, "written out: each iteration by itself")
            self.shapes = Shapes(root, self.across_rows) if merged else self.shapes
            self.bundles = bundles(self.shapes)
            if width is None:
                self.widths = fit(self.widths, self.bundles.values(), registers)
            self.widest = self.widths.whole
        self.params: list[str] = []
        self.specials: dict[tuple[str, int], Value] = {}
        self.first: list[str] = []  # for each axis: the global index of the row's first thread
        self.sizes: list[str] = []  # for each axis: the threads that a region is written for
        self.local_arrays: dict[UOp, str] = {}

    def text(self) -> str:
        """Return the whole text."""
        self._enter_function()
        self.frames, self.noting = [Frame("blocks", "blocks")], "once a block"
        self.flat(self.kernel.uops)
        self.jump("blocks")
        self.close_loop()
        self.label("done")
        self.line("ret void")
        name = self.kernel.name
        # LLVM forwards what is stored in arrays of the kernel, and joins shuffles back and forth.
        mixed = any(bundle.apart for bundle in self.bundles.values())
        arrays = any("alloca [" in line for line in self.frame)
        parts = [ALL_PASSES] if arrays or mixed else []
        parts += [*self.declarations, "", *self.helpers.values()]
        parts += [f"define void @{name}({_PARAMETERS}) {{", "hal.entry:"]
        parts += [*self.frame, *self.whole(), "}", METADATA]
        return "\n".join(parts).lstrip("\n")

    # -- the function

    def _enter_function(self) -> None:
        for param in self.kernel.signature.params:
            at = self.let(f"getelementptr i8, ptr %hal.args, i64 {8 * param.position}")
            if param.is_pointer:
                self.params.append(self.load("ptr", at))
            elif param.dtype is bool_:
                self.params.append(self.let(f"icmp ne i8 {self.load('i8', at)}, 0"))
            else:
                self.params.append(self.load(scalar(param.dtype), at))
        dims = list[str]()
        for position in range(6):
            fixed = self.kernel.block[position - 3] if self.kernel.block and position > 2 else None
            if fixed is None:
                at = self.let(f"getelementptr i32, ptr %hal.launch, i64 {position}")
                dim = self.load("i32", at)
                wide = self.let(f"zext i32 {dim} to i64")
            else:
                dim = wide = str(fixed)
            if position == 0:  # no grid is negative
                self.false = self.let(f"icmp slt i32 {dim}, 0")
            dims.append(wide)
            name = "grid_dim" if position < 3 else "block_dim"
            value = self.uniform(int32, dim, fits=True)
            self.specials[name, position % 3] = value
            self.long[value] = wide
        self._enter_block(dims)

    def _enter_block(self, dims: list[str]) -> None:
        """Open the loop over blocks; an iteration runs one, or those that follow in its row."""
        gx, gy, _, *block = dims
        # Divided by also in a call without blocks, whose grid may be empty.
        wide = [self.call("@llvm.umax.i64", "i64", ["i64"] * 2, [dim, "1"]) for dim in (gx, gy)]
        row = self.let(f"udiv i64 %hal.first, {wide[0]}")
        starts = [
            "%hal.first",
            self.let(f"urem i64 %hal.first, {wide[0]}"),
            self.let(f"urem i64 {row}, {wide[1]}"),
            self.let(f"udiv i64 {row}, {wide[1]}"),
        ]
        slots = [self.slot("i64", "block") for _ in starts]
        for slot, start in zip(slots, starts, strict=True):
            self.store("i64", start, slot)
        self.open_loop("blocks")
        at, *places = [self.load("i64", slot) for slot in slots]
        self.branch(self.let(f"icmp slt i64 {at}, %hal.last"), "block", "done")
        self.label("block")
        blocks = "1"
        if self.joined:
            left = self.let(f"sub i64 %hal.last, {at}")
            in_row = self.let(f"sub i64 {gx}, {places[0]}")
            blocks = self.call("@llvm.smin.i64", "i64", ["i64"] * 2, [left, in_row])
        self._advance_block(slots, at, places, blocks, dims)
        for axis, place in enumerate(places):
            value = self.uniform(int32, self.let(f"trunc i64 {place} to i32"), fits=True)
            self.specials["block_idx", axis] = value
            self.long[value] = place
            self.first.append(self.let(f"mul nuw nsw i64 {place}, {block[axis]}"))
        self.sizes = list(block)
        if self.joined:
            self.sizes[0] = self.let(f"mul nuw nsw i64 {blocks}, {block[0]}")
        elif self.across_rows:  # the whole block is one row
            rows = self.let(f"mul nuw nsw i64 {block[1]}, {block[2]}")
            self.sizes = [self.let(f"mul nuw nsw i64 {block[0]}, {rows}"), "1", "1"]

    def _advance_block(
        self, slots: list[str], at: str, places: list[str], blocks: str, dims: list[str]
    ) -> None:
        """Store the indices of the next block: divisions would take as long as a short row."""
        self.store("i64", self.let(f"add i64 {at}, {blocks}"), slots[0])
        step = blocks
        for axis in (0, 1):
            end = self.let(f"add i64 {places[axis]}, {step}")
            over = self.let(f"icmp uge i64 {end}, {dims[axis]}")
            self.store("i64", self.select(over, "i64", "0", end), slots[axis + 1])
            step = self.let(f"zext i1 {over} to i64")
        self.store("i64", self.let(f"add i64 {places[2]}, {step}"), slots[3])

    # -- nodes

    def on_CONST(self, uop: UOp) -> None:
        dtype = dtype_of(uop)
        self.values[uop] = self.uniform(dtype, literal(uop.arg, dtype), fits=True)

    def on_PARAM(self, uop: UOp) -> None:
        if self.kernel.signature.params[uop.arg].is_pointer:
            self.arrays[uop] = self.params[uop.arg]
        else:
            self.values[uop] = self.uniform(dtype_of(uop), self.params[uop.arg], fits=True)

    def on_SPECIAL(self, uop: UOp) -> None:
        value = self.specials[uop.arg]
        if not value.is_flat or len(value.lanes or ()) == self.w:
            self.values[uop] = value
            return
        known = self.values[uop] = self.uniform(int32, value.base, fits=True)
        if value in self.long:
            self.long[known] = self.long[value]

    def on_SHARED(self, uop: UOp) -> None:
        # One array serves all blocks of this call, which run one after the other.
        self.arrays[uop] = self._array(uop, uop.arg[1])

    def on_SPILL(self, uop: UOp) -> None:
        self.arrays[uop] = self._array(uop, self.kernel.most_threads + _PADDING)

    def on_LOCAL(self, uop: UOp) -> None:
        if uop not in self.local_arrays:  # which each body uses
            self.local_arrays[uop] = self._array(uop, uop.arg[1] * self.widths.whole)
        self.arrays[uop] = self.local_arrays[uop]

    def _array(self, uop: UOp, count: int) -> str:
        return self.slot(f"[{count} x {stored(dtype_of(uop))}]", "array", align=64)

    # -- regions

    def threads(self, node: UOp, uops: Sequence[UOp]) -> None:
        """Write the loops over the rows of threads, and over the gangs of each."""
        region, place = _Region(uops, self.bodies.get(node, [])), self.number()
        noting, self.noting = self.noting, ""
        outside = self.cache, self.true, self.env, self.indices, self.values, self.slots
        frames, specials = self.frames, dict(self.specials)
        self.outer, self.outer_slots = {**self.values}, {**self.slots}
        after = f"after.{place}"
        rows = [self._open_rows(axis, place, end) for axis, end in ((2, after), (1, f"z.{place}"))]
        self._gangs(region, place, rows)
        self.close_loop()
        self.close_loop()
        self.label(after)
        self.cache, self.true, self.env, self.indices, self.values, self.slots = outside
        self.frames, self.specials = frames, specials
        self.set_width(1)
        self.mask, self.noting = None, noting

    def _open_rows(self, axis: int, place: int, end: str) -> str:
        """Open the loop over z or y; return the index of the row along it."""
        name, slot = "xyz"[axis], self.slot("i64", "row")
        self.store("i64", "0", slot)
        self.open_loop(f"{name}.{place}")
        at = self.load("i64", slot)
        more = self.let(f"icmp ult i64 {at}, {self.sizes[axis]}")
        self.branch(more, f"{name}.in.{place}", end)
        self.label(f"{name}.in.{place}")
        self.store("i64", self.let(f"add nuw nsw i64 {at}, 1"), slot)
        self._special("thread_idx", axis, at)
        self._special("global_idx", axis, self.let(f"add nuw nsw i64 {self.first[axis]}, {at}"))
        return at

    def _special(self, name: str, axis: int, wide: str, linear: bool = False) -> None:
        """Set an index from 64 bits; launches check that it fits 32."""
        lanes = self.linear if linear else self.zero
        narrow = self.let(f"trunc nsw i64 {wide} to i32")
        value = Value(int32, narrow, lanes, fits=True)
        self.specials[name, axis] = value
        self.long[value] = wide

    def _gangs(self, region: _Region, place: int, rows: list[str]) -> None:
        """Write the loop over the gangs of a row, with each of the bodies."""
        whole, few, _ = self.widths
        size, slot = self.sizes[0], self.slot("i64", "x")
        row = self.let(f"mul i64 {rows[0]}, {self.sizes[1]}")
        row = self.let(f"mul i64 {self.let(f'add i64 {row}, {rows[1]}')}, {size}")
        start, end = self._with_work(region, size)
        self.store("i64", self._in_line(start, end), slot)
        self.open_loop(f"x.{place}")
        x = self.load("i64", slot)
        rest = self.let(f"sub nsw i64 {end}, {x}")
        thread = self.let(f"add i64 {row}, {x}")
        bodies = [("on", whole)]
        if whole > 1:
            bodies += [("few", few)] if few < whole and facts(region.body).nodes <= _LONG else []
            bodies.append(("mix", few))
        labels = [f"{name}.{place}" for name, _ in bodies]
        alone = f"alone.{place}" if whole > 1 and self._is_short(region) else ""
        self.branch(
            self.let(f"icmp sge i64 {rest}, {whole}"), f"begin.{labels[0]}", f"rest.{place}", True
        )
        self.label(f"rest.{place}")
        if whole > 1:
            self._choose_rest(rest, place, labels[1], alone)
        else:
            self.jump(f"y.{place}")
        for n, (name, width) in enumerate(bodies):
            self.set_width(width)
            self.again = labels[n + 1] if n + 1 < len(labels) else ""
            if name == "few":
                self.label(labels[n])
                enough = self.let(f"icmp sge i64 {rest}, {width}")
                self.branch(enough, f"begin.{labels[n]}", self.again)
            self.label(labels[n] if name == "mix" else f"begin.{labels[n]}")
            self.noting = "one thread at a time" if name != "few" else ""  # what `explain` shows
            noted, self.notes = self.notes, {}
            self._body_of(region, x, rest if name == "mix" else "", thread, f"next.{labels[n]}")
            self.label(f"next.{labels[n]}")
            self.store("i64", self.let(f"add nuw nsw i64 {x}, {width}"), slot)
            self.jump(f"x.{place}")
            self.notes, self.noting = {**self.notes, **noted}, ""
        self.close_loop()
        if alone:
            self._write_alone(region, place, row, end, slot)

    def _write_alone(self, region: _Region, place: int, row: str, end: str, slot: str) -> None:
        """Write the loop over the last threads of a row, one by one."""
        self.set_width(1)
        self.label(f"alone.{place}")
        self.open_loop(f"one.{place}")
        x = self.load("i64", slot)
        self._body_of(region, x, "", self.let(f"add i64 {row}, {x}"), f"next.one.{place}")
        self.label(f"next.one.{place}")
        following = self.let(f"add nuw nsw i64 {x}, 1")
        self.store("i64", following, slot)
        more = self.let(f"icmp slt i64 {following}, {end}")
        self.branch(more, f"one.{place}", f"y.{place}")
        self.close_loop()

    def _choose_rest(self, rest: str, place: int, few: str, alone: str) -> None:
        """Go to the body for the threads behind the last gang of a row, or to the next row."""
        some = self.let(f"icmp sgt i64 {rest}, 0")
        self.branch(some, f"some.{place}", f"y.{place}")
        self.label(f"some.{place}")
        if alone:
            self.branch(self.let(f"icmp sgt i64 {rest}, {_ALONE}"), few, alone)
        else:
            self.jump(few)

    def _with_work(self, region: _Region, size: str) -> tuple[str, str]:
        """Return the first thread of a row that may have work, and the one behind the last."""
        start, end, mark = "0", size, len(self.log)
        if self.by_subgroup:  # whose first thread is the first lane
            return start, end
        self._special("thread_idx", 0, "0")
        self._special("global_idx", 0, self.first[0])
        for limit in limits(region.body, self.shapes):
            nodes = needed(limit, self.outer)
            if nodes is None:
                continue
            for node in nodes:
                self.node(node)
            linear = self.index(limit.linear)
            if linear is None:
                continue
            at = self.let(
                f"sub i64 {self.in_64_bits(int32, self.get(limit.end).base)}, {linear.base}"
            )
            last = self.let(f"add i64 {linear.base}, {size}")
            # Where the index wraps, which no real launch has, no thread is left out.
            fits = [
                self.let(f"icmp sge i64 {linear.base}, {int(int32.min)}"),
                self.let(f"icmp sle i64 {last}, {int(int32.max)}"),
            ]
            known = self.let(f"and i1 {fits[0]}, {fits[1]}")
            after = self.let(f"add i64 {at}, 1")
            if limit.op in ("LT", "LE", "EQ"):
                bound = self.select(known, "i64", at if limit.op == "LT" else after, size)
                end = self.call("@llvm.smin.i64", "i64", ["i64"] * 2, [end, bound])
            if limit.op in ("GT", "GE", "EQ"):
                bound = self.select(known, "i64", after if limit.op == "GT" else at, "0")
                start = self.call("@llvm.smax.i64", "i64", ["i64"] * 2, [start, bound])
        self.log.back(mark)
        self.values = dict(self.outer)
        return start, end

    def _in_line(self, start: str, end: str) -> str:
        """Return the thread at which the gangs of a row begin.

        A long row begins up to a vector ahead of its first thread with work, so that no vector lies
        across two lines of the cache. The guards fail there, so the first gang has a mask.
        """
        few = self.widths.few
        if start == "0" or few == 1:
            return start
        ahead = self.let(f"and i64 {self.let(f'add i64 {self.first[0]}, {start}')}, {few - 1}")
        long = self.let(f"icmp sgt i64 {self.let(f'sub i64 {end}, {start}')}, {_MANY * few}")
        first = self.let(f"sub i64 {start}, {self.select(long, 'i64', ahead, '0')}")
        return self.call("@llvm.smax.i64", "i64", ["i64"] * 2, [first, "0"])

    def _body_of(self, region: _Region, x: str, rest: str, thread: str, end: str) -> None:
        """Write what a gang does; `rest`: the threads that are left, of which a mask is made."""
        self.reset()
        self.indices, self.env = Scoped(self.log), Scoped(self.log)
        self.values, self.slots, self.deferred = {}, {}, {}
        self.decided, self.clearing = Scoped(self.log), []
        self.parts += [self.lines, self.clearing]
        self.lines = []
        self.thread, self.pure, self.choosing = thread, True, 0
        self.mask, left = None, str(self.w)
        if rest:
            left = self.call("@llvm.smin.i64", "i64", ["i64"] * 2, [rest, str(self.w)])
            count = self.splat("i8", self.let(f"trunc i64 {left} to i8"))
            lanes = self.per_lane("i8", self.linear)
            self.mask = self.as_mask(self.let(f"icmp ult {of('i8', self.w)} {lanes}, {count}"))
        self._special("thread_idx", 0, x, linear=True)
        self._special(
            "global_idx", 0, self.let(f"add nuw nsw i64 {self.first[0]}, {x}"), linear=True
        )
        if self.by_subgroup:
            self._number_lanes(x, left)
        alive = ""
        if self.w > 1 and self.shapes.returns_vary:
            alive = self.slot(self.mask_kind, "alive")
            self.store(self.mask_kind, self.mask or "splat (i32 -1)", alive)
        self.frames = [Frame(end, end, active=alive)]
        mark = len(self.log)
        if self.w == 1:
            self.flat(region.uops)
        else:
            self.block(region.body)
        self.log.back(mark)
        self.jump(end)

    def _is_short(self, region: _Region) -> bool:
        """Tell whether a few threads run a body sooner one by one than with a mask."""
        found = facts(region.body)
        return found.nodes <= _SHORT and not found.loops and not self.by_subgroup

    def _number_lanes(self, x: str, left: str) -> None:
        """Set the indices of a gang that is a subgroup, from the number of its first thread.

        Where its threads are guessed to be neighbours along x, those of a block with more rows may
        not be.
        """
        self.specials["subgroup_lane", 0] = Value(int32, "0", self.linear, fits=True)
        own = self.let(f"lshr i64 {x}, {self.w.bit_length() - 1}")
        for name, wide in (("idx", own), ("threads", left)):
            narrow = self.let(f"trunc i64 {wide} to i32")
            self.specials[f"subgroup_{name}", 0] = self.uniform(int32, narrow, fits=True)
        if not self.across_rows:
            return
        any_, rest = UOp("SPECIAL", int32), self.specials["thread_idx", 0]
        for axis in range(3):
            dim, place = self.specials["block_dim", axis], rest
            size = self.uniform(int32, dim.base, fits=True)
            if axis < 2:
                place = self.derive(UOp("MOD", int32, (any_, any_)), (rest, size))
                rest = self.derive(UOp("FLOORDIV", int32, (any_, any_)), (rest, size))
            first = self.uniform(int32, self.let(f"trunc i64 {self.first[axis]} to i32"))
            index = self.derive(UOp("ADD", int32, (any_, any_)), (first, place))
            index.fits = True  # as launches check
            self.specials["thread_idx", axis], self.specials["global_idx", axis] = place, index


def _joins_blocks(ops: list[str], specials: set[str]) -> bool:
    """Tell whether blocks that are neighbours along x may run as one row of threads.

    A thread then knows its global index only, and nothing is kept for each block.
    """
    alone = ops.count("THREADS") == 1 and ops[-1] == "ENDTHREADS"
    own = not specials.isdisjoint(("thread_idx", "block_idx"))
    return alone and not own and "SHARED" not in ops and "SPILL" not in ops


_WRITERS = writers(Gangs)
