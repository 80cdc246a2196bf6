"""Render LLVM IR for the CPU, in hal-cpu's calling convention, as text for LLVM 15 and later.

Names with a dot are the renderer's, names without are the user's parameters. The text names no
target: the backend sets triple and data layout.
"""

from __future__ import annotations

from hal_core.dtypes import DTYPES, float64
from hal_core.ir import Kernel, UOp
from hal_core.ir.blocks.columns import with_columns
from hal_core.ir.blocks.fission import split
from hal_core.ir.expand import expand
from hal_core.render.llvm.columns import Columns
from hal_core.render.llvm.threads import AXES, BLOCKS
from hal_core.render.llvm.values import type_of
from hal_core.render.names import Names
from hal_core.render.renderer import Renderer, writers

_PARAMETERS = "ptr %hal.args, ptr %hal.launch, i64 %hal.first, i64 %hal.last"


class LLVMRenderer(Renderer):
    """Render LLVM IR with one exported function; everything else is internal.

    `half`: True if the processor converts float16 itself. Without it LLVM would call a library, so
    the text contains a conversion.
    `fma`: True if the processor has fused multiply-add, of which the formulas of math functions
    consist. Without it the functions of the C library are called.
    """

    name, language, subgroup = "LLVM IR", "llvm", 1
    dtypes = frozenset(DTYPES.values())

    def __init__(self, half: bool = False, fma: bool = True) -> None:
        self.half, self.fma = half, fma

    def _render(self, kernel: Kernel) -> str:
        cut = kernel._replace(uops=with_columns(split(kernel, grouped=True)))
        if self.fma:
            # LLVM vectorises the loop over threads, where formulas are faster than calls. A loop of
            # the kernel itself is not vectorised, and calls are faster there; only the remainder of
            # float64 is a formula everywhere, because libraries find it bit by bit.
            cut = expand(cut, in_loops=False, branches=False)
            cut = expand(cut, {"FMOD": (float64,)})
        return _Module(cut, self.half).whole()


class _Module(Columns):
    """The text of one kernel that was split into regions."""

    def __init__(self, kernel: Kernel, half: bool) -> None:
        super().__init__(kernel, half)
        self.kernel = kernel
        names = Names(frozenset())
        self.params = [names.take(param.name) for param in kernel.signature.params]

    def whole(self) -> str:
        self._enter()
        ends = {uop.src[0]: n for n, uop in enumerate(self.uops) if uop.op in _WRITES_REGION}
        place = 0
        while place < len(self.uops):
            uop = self.uops[place]
            end = ends.get(uop)
            if end is None:
                self.write(uop)
            else:
                nodes, place = list(self.uops[place + 1 : end]), end
                _WRITES_REGION[self.uops[end].op](self, uop, nodes)
            place += 1
        self.close_loop()
        self.line("ret void")
        head = f"define void @{self.kernel.name}({_PARAMETERS}) {{"
        kept = [f"ptr {name}" for names in self.variants.values() for name in names]
        if kept:  # until the loops are vectors nothing calls them
            used = f"appending global [{len(kept)} x ptr] [{', '.join(kept)}]"
            self.declarations[f'@llvm.compiler.used = {used}, section "llvm.metadata"'] = None
        parts = [*self.declarations, "", *self.helpers.values(), head, "hal.entry:"]
        parts += [*self.frame, *self.lines, "}", *(["", *self.metadata] if self.metadata else [])]
        return "\n".join(parts).lstrip("\n") + "\n"

    def write(self, uop: UOp) -> None:
        writer = _WRITERS.get(uop.op)
        if writer is not None:
            writer(self, uop)
        else:
            self.values[uop] = self.value(uop)

    def on_PARAM(self, uop: UOp) -> None:
        self.values[uop] = f"%{self.params[uop.arg]}"

    def on_SPECIAL(self, uop: UOp) -> None:
        self.values[uop] = self.specials[uop.arg]

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
                dims.append(f"block.dim.{AXES[axis]}")
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
        block = self.open_loop(BLOCKS, "i64", "%hal.first", "%hal.last", "slt")
        self.frame_loop = BLOCKS
        rows = self.let(f"sdiv i64 {block}, {wide[0]}")
        places = (
            self.let(f"srem i64 {block}, {wide[0]}"),
            self.let(f"srem i64 {rows}, {wide[1]}"),
            self.let(f"sdiv i64 {rows}, {wide[1]}"),
        )
        for axis, place in enumerate(places):
            index = self.let(f"trunc i64 {place} to i32", f"%block.{AXES[axis]}")
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
            self.width = self.let(f"mul nsw i32 {few}, {self.specials['block_dim', 0]}", "%row.x")


_WRITERS = writers(_Module)
_WRITES_REGION = {
    "ENDTHREADS": _Module.write_region,
    "ENDGROUPS": _Module.write_groups,
    "ENDROW_GROUPS": _Module.write_row_groups,
}
