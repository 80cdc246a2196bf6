"""Render LLVM IR for the CPU, in hal-cpu's calling convention, as text for LLVM 15 and later.

Names with a dot are the renderer's, names without are the user's parameters. The text names no
target: the backend sets triple and data layout.
"""

from __future__ import annotations

from hal_core.dtypes import DTYPES, bool_, float32, float64, int32
from hal_core.ir import Kernel, UOp
from hal_core.ir.blocks.fission import block_threads, split
from hal_core.ir.blocks.thread_bounds import Limit, bounds, joins_blocks
from hal_core.ir.expand import expand
from hal_core.render.llvm.control import Blocks
from hal_core.render.llvm.values import literal, type_of
from hal_core.render.names import Names
from hal_core.render.renderer import Renderer, dtype_of, writers

_AXES = "xyz"
_BLOCKS = "each.block"  # the loop over the blocks of this call
_PARAMETERS = "ptr %hal.args, ptr %hal.launch, i64 %hal.first, i64 %hal.last"


# The math functions whose formulas LLVM vectorises, which is faster than calls of the library, and
# compiles in a short time.
_FORMULAS = {
    **dict.fromkeys(("EXP", "EXP2", "LOG", "LOG2", "TANH", "ATAN", "ATAN2"), (float32, float64)),
    **dict.fromkeys(("SIN", "COS", "TAN"), (float32,)),
}


class LLVMRenderer(Renderer):
    """Render LLVM IR with one exported function; everything else is internal.

    `half`: True if the processor converts float16 itself. Without it LLVM would call a library, so
    the text contains a conversion.
    `fma`: True if the processor has fused multiply-add, of which the formulas of math functions
    consist. Without it the functions of the C library are called.
    """

    name, language = "LLVM IR", "llvm"
    dtypes = frozenset(DTYPES.values())

    def __init__(self, half: bool = False, fma: bool = True) -> None:
        self.half, self.fma = half, fma

    def _render(self, kernel: Kernel) -> str:
        cut = kernel._replace(uops=split(kernel))
        if self.fma:
            # Vectorised, formulas are faster. A thread's own loop is not, and calls are faster.
            cut = expand(cut, _FORMULAS, in_loops=False)
        return _Module(cut, self.half).whole()


class _Module(Blocks):
    """The text of one kernel that was split into regions."""

    def __init__(self, kernel: Kernel, half: bool) -> None:
        super().__init__(kernel.contract, half, block_threads(kernel))
        self.kernel, self.uops = kernel, kernel.uops
        self.spills = any(uop.op == "SPILL" for uop in self.uops)
        self.bounds = bounds(self.uops)
        self.known: dict[UOp, bool] = {}  # conditions, with what they are in the loop over threads
        self.early: set[UOp] = set()  # nodes that were written ahead of their place
        names = Names(frozenset())
        self.params = [names.take(param.name) for param in kernel.signature.params]
        self.specials: dict[tuple[str, int], str] = {}
        self.first: list[str] = []  # for each axis: the global index of the block's first thread
        self.joined = joins_blocks(self.uops)
        self.row = ""  # the threads of a row of joined blocks
        self.regions = 0
        self.metadata: list[str] = []

    def whole(self) -> str:
        self._enter()
        for uop in self.uops:
            if uop in self.known:
                self.values[uop] = literal(self.known[uop], bool_)
            elif uop not in self.early:
                self._write(uop)
        self.close_loop()
        self.line("ret void")
        head = f"define void @{self.kernel.name}({_PARAMETERS}) {{"
        parts = [*self.declarations, "", *self.helpers.values(), head, "hal.entry:"]
        parts += [*self.frame, *self.lines, "}", *(["", *self.metadata] if self.metadata else [])]
        return "\n".join(parts).lstrip("\n") + "\n"

    def _write(self, uop: UOp) -> None:
        writer = _WRITERS.get(uop.op)
        if writer is not None:
            writer(self, uop)
        else:
            self.values[uop] = self.value(uop, [self.values[source] for source in uop.src])

    def on_PARAM(self, uop: UOp) -> None:
        self.values[uop] = f"%{self.params[uop.arg]}"

    def on_SPECIAL(self, uop: UOp) -> None:
        self.values[uop] = self.specials[uop.arg]

    def on_ASSERT(self, uop: UOp) -> None:
        """Write nothing: only the interpreter tests it."""

    # -- the frame: arguments, the loop over blocks, the loops over threads

    def _enter(self) -> None:
        """Load the arguments and the launch, and open the loop over blocks."""
        for param, name in zip(self.kernel.signature.params, self.params, strict=True):
            slot = self.let(f"getelementptr i8, ptr %hal.args, i64 {8 * param.position}")
            if param.is_pointer:
                self.let(f"load ptr, ptr {slot}", f"%{name}")
            elif param.dtype.kind == "b":
                byte = self.let(f"load i8, ptr {slot}")
                self.let(f"icmp ne i8 {byte}, 0", f"%{name}")
            else:
                self.let(f"load {type_of(param.dtype)}, ptr {slot}", f"%{name}")
        dims = ["grid.dim.x", "grid.dim.y", "grid.dim.z"]
        fixed = self.kernel.block
        for axis in range(3):
            if fixed is None:
                dims.append(f"block.dim.{_AXES[axis]}")
            else:
                self.specials["block_dim", axis] = str(fixed[axis])
        for position, name in enumerate(dims):
            slot = self.let(f"getelementptr i32, ptr %hal.launch, i64 {position}")
            kind = "grid_dim" if position < 3 else "block_dim"
            self.specials[kind, position % 3] = self.let(f"load i32, ptr {slot}", f"%{name}")
        self._enter_block()

    def _enter_block(self) -> None:
        """Open the loop over blocks, and compute the block's indices in the grid."""
        wide = [self.let(f"zext i32 {self.specials['grid_dim', axis]} to i64") for axis in (0, 1)]
        block = self.open_loop(_BLOCKS, "i64", "%hal.first", "%hal.last", "slt")
        self.frame_loop = _BLOCKS
        rows = self.let(f"sdiv i64 {block}, {wide[0]}")
        places = (
            self.let(f"srem i64 {block}, {wide[0]}"),
            self.let(f"srem i64 {rows}, {wide[1]}"),
            self.let(f"sdiv i64 {rows}, {wide[1]}"),
        )
        for axis, place in enumerate(places):
            index = self.let(f"trunc i64 {place} to i32", f"%block.{_AXES[axis]}")
            self.specials["block_idx", axis] = index
            dim = self.specials["block_dim", axis]
            self.first.append(self.let(f"mul nsw i32 {index}, {dim}"))
        if self.joined:
            # One loop runs all blocks of this call that follow in the row.
            left = self.let(f"sub nsw i64 %hal.last, {block}")
            in_row = self.let(f"sub nsw i64 {wide[0]}, {places[0]}")
            blocks = self._call("@llvm.smin.i64", "i64", ["i64"] * 2, [left, in_row])
            self.loops[-1] = self.loops[-1]._replace(step=blocks)
            few = self.let(f"trunc i64 {blocks} to i32")
            self.row = self.let(f"mul nsw i32 {few}, {self.specials['block_dim', 0]}", "%row.x")

    def on_THREADS(self, uop: UOp) -> None:
        # Three loops, over z, y and x.
        suffix = f".{self.regions}" if self.regions else ""
        self.regions += 1
        row = "0"
        for axis in (2, 1, 0):
            dim, name = self.specials["block_dim", axis], f"thread.{_AXES[axis]}{suffix}"
            dim = self.row if axis == 0 and self.joined else dim
            start, end = self._bounds_of_x(uop, dim) if axis == 0 else ("0", dim)
            thread = self.open_loop(name, "i32", start, end, "slt")
            self.specials["thread_idx", axis] = thread
            # The launch checks that it fits int32. Without nsw LLVM would not vectorise.
            place = f"add nsw i32 {self.first[axis]}, {thread}"
            self.specials["global_idx", axis] = self.let(place, f"%global.{_AXES[axis]}{suffix}")
            if self.spills:
                row = self._number_of_thread(row, dim, thread)
        self.thread, self.frame_loop = row, name
        self.access = ""
        if uop.arg:
            # The metadata says that iterations of the loop over x do not depend on each other.
            group = len(self.metadata)
            self.metadata += [
                f"!{group} = distinct !{{}}",
                f'!{group + 1} = !{{!"llvm.loop.parallel_accesses", !{group}}}',
                f"!{group + 2} = distinct !{{!{group + 2}, !{group + 1}}}",
            ]
            self.access = f", !llvm.access.group !{group}"

    def _bounds_of_x(self, region: UOp, dim: str) -> tuple[str, str]:
        """Return the start and the end of the loop over x: the threads that do anything."""
        found = self.bounds.get(region)
        if found is None:
            return "0", dim
        for node in found.early:
            self._write(node)
        self.early.update(found.early)
        self.known.update(found.known)
        start, end = "0", self.let(f"zext i32 {dim} to i64")
        for limit in found.limits:
            at = self._place_of_limit(limit)
            if limit.op in ("LT", "LE", "EQ"):
                after = at if limit.op == "LT" else self.let(f"add nsw i64 {at}, 1")
                end = self._call("@llvm.smin.i64", "i64", ["i64"] * 2, [end, after])
            if limit.op in ("GT", "GE", "EQ"):
                first = self.let(f"add nsw i64 {at}, 1") if limit.op == "GT" else at
                start = self._call("@llvm.smax.i64", "i64", ["i64"] * 2, [start, first])
        for condition, holds in found.rows:
            runs = self.values[condition]
            end = self.select(runs, "i64", *((end, "0") if holds else ("0", end)))
        # Both fit int32 then, and a start after the end is the end.
        end = self._call("@llvm.smax.i64", "i64", ["i64"] * 2, [end, "0"])
        if start != "0":
            start = self._call("@llvm.smin.i64", "i64", ["i64"] * 2, [start, end])
            start = self.let(f"trunc i64 {start} to i32")
        return start, self.let(f"trunc i64 {end} to i32")

    def _place_of_limit(self, limit: Limit) -> str:
        """Return, as i64, the number in its row of the thread whose index equals the limit."""
        at = self.values[limit.end]
        if dtype_of(limit.end) is int32:
            at = self.let(f"sext i32 {at} to i64")
        else:  # far outside of any row, and the sums below do not wrap
            at = self._call("@llvm.smin.i64", "i64", ["i64"] * 2, [at, str(1 << 40)])
            at = self._call("@llvm.smax.i64", "i64", ["i64"] * 2, [at, str(-(1 << 40))])
        if limit.added:
            at = self.let(f"sub nsw i64 {at}, {limit.added}")
        if limit.number.arg[0] == "global_idx":
            first = self.let(f"sext i32 {self.first[0]} to i64")
            at = self.let(f"sub nsw i64 {at}, {first}")
        return at

    def _number_of_thread(self, row: str, dim: str, thread: str) -> str:
        """Return row * dim + thread, the index of the thread among all up to this axis."""
        wide = self.let(f"zext i32 {thread} to i64")
        if row == "0":
            return wide
        width = dim if dim.isdigit() else self.let(f"zext i32 {dim} to i64")
        skipped = self.let(f"mul nuw nsw i64 {row}, {width}")
        return self.let(f"add nuw nsw i64 {skipped}, {wide}")

    def on_ENDTHREADS(self, uop: UOp) -> None:
        free = uop.src[0].arg
        self.close_loop(f", !llvm.loop !{len(self.metadata) - 1}" if free else "")
        self.close_loop()
        self.close_loop()
        self.access, self.thread, self.frame_loop = "", "", _BLOCKS


_WRITERS = writers(_Module)
