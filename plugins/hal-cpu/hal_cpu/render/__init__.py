"""Render LLVM IR for the CPU, in hal-cpu's calling convention, as text for LLVM 15 and later.

Names with a dot are the renderer's, names without are the user's parameters. The text names no
target: the backend sets triple and data layout.
"""

from __future__ import annotations

import re

from hal_core.dtypes import DTYPES, float64
from hal_cpu.render.columns import Columns
from hal_cpu.render.threads import AXES, BLOCKS
from hal_cpu.render.values import type_of
from hal_kernel.ir import Kernel, UOp
from hal_kernel.ir.blocks.columns import with_columns
from hal_kernel.ir.blocks.fission import split
from hal_kernel.ir.blocks.groups import WIDE, Registers
from hal_kernel.ir.blocks.plain import gathers, has_costly_branch, plain
from hal_kernel.ir.contraction import contracted
from hal_kernel.ir.expand import FUNCTIONS, expand
from hal_kernel.ir.loops import serial_sums
from hal_kernel.render.names import Names
from hal_kernel.render.renderer import Renderer, writers

_PARAMETERS = "ptr %hal.args, ptr %hal.launch, i64 %hal.first, i64 %hal.last"
_NUMBERS = re.compile(r"\d+|, !llvm.*")
PLAIN = ".plain"  # behind the name of the function that is a kernel's plain form
# The launch says which form of a kernel to run, if it has two.
_CHOICE = """\
define void @{name}({parameters}) {{
  %at = getelementptr i32, ptr %hal.launch, i64 6
  %form = load i32, ptr %at
  %is.plain = icmp ne i32 %form, 0
  br i1 %is.plain, label %plain, label %cut
plain:
  tail call void @{name}.plain(ptr %hal.args, ptr %hal.launch, i64 %hal.first, i64 %hal.last)
  ret void
cut:
  tail call void @{name}.cut(ptr %hal.args, ptr %hal.launch, i64 %hal.first, i64 %hal.last)
  ret void
}}
"""


class LLVMRenderer(Renderer):
    """Render LLVM IR with one exported function; everything else is internal.

    `half`: True if the processor converts float16 itself. Without it LLVM would call a library, so
    the text contains a conversion.
    `fma`: True if the processor has fused multiply-add, of which the formulas of math functions
    consist. Without it the functions of the C library are called.
    `both`: True to write kernels in both forms that `ir/blocks/plain.py` says, where they have two.
    The seventh number of a launch then says which to run: 0 for the one that is cut.
    `registers`: the processor's, half of which the variables of threads in lockstep fill.
    """

    name, language, subgroup = "LLVM IR", "llvm", 1
    dtypes = frozenset(DTYPES.values())

    def __init__(
        self, half: bool = False, fma: bool = True, both: bool = False,
        registers: Registers = WIDE,
    ) -> None:  # fmt: skip
        self.half, self.fma, self.both, self.registers = half, fma, both, registers

    def _render(self, kernel: Kernel) -> str:
        if kernel.contract and self.fma:
            apart = serial_sums(kernel.uops)  # which are summed by single threads, or not
            kernel = contracted(kernel, apart if apart and serial_sums(self._cut(kernel)) else ())
        cut, simple = kernel._replace(uops=self._cut(kernel)), plain(kernel) if self.both else None
        # Both forms have the same formulas: the C library's functions round otherwise.
        if simple is not None and self.fma:
            cut, simple = (expand(form, branches=False) for form in (cut, simple))
        elif self.fma:
            # LLVM makes no vectors of a loop of the kernel itself, and calls are faster there; only
            # the remainder of float64 is a formula, because libraries find it bit by bit.
            cut = expand(expand(cut, in_loops=False, branches=False), {"FMOD": (float64,)})
        elif simple is not None and {node.op for node in simple.uops} & FUNCTIONS.keys():
            simple = None
        first = _Module(cut, self.half)
        first.write_function()
        if simple is not None:
            second = _Module(simple, self.half, first)
            second.write_function()
            # Without the numbers in names, and what LLVM is told.
            a, b = (_NUMBERS.sub("", "\n".join(one.lines)) for one in (first, second))
            if second.one_by_one or a != b:
                return second.text(first)
        return first.text()

    def _cut(self, kernel: Kernel) -> tuple[UOp, ...]:
        return with_columns(split(kernel, grouped=True, registers=self.registers))


class _Module(Columns):
    """The text of one kernel that was split into regions; or its plain form, behind `other`."""

    def __init__(self, kernel: Kernel, half: bool, other: _Module | None = None) -> None:
        super().__init__(kernel, half)
        self.kernel = kernel
        names = Names(frozenset())
        # No other name begins so.
        self.params = [f"arg.{names.take(param.name)}" for param in kernel.signature.params]
        if other is not None:
            self.one_by_one = has_costly_branch(kernel) or gathers(kernel)
            self.splits, self.count = False, other.count
            self.declarations, self.helpers = {**other.declarations}, {**other.helpers}
            self.metadata, self.facts = [*other.metadata], {**other.facts}
            self.variants = {**other.variants}

    def write_function(self) -> None:
        """Write the body of the function."""
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

    def text(self, other: _Module | None = None) -> str:
        """Return the whole text; with `other`, of a function that chooses between both forms."""
        kept = [f"ptr {name}" for names in self.variants.values() for name in names]
        if kept:  # until the loops are vectors nothing calls them
            used = f"appending global [{len(kept)} x ptr] [{', '.join(kept)}]"
            self.declarations[f'@llvm.compiler.used = {used}, section "llvm.metadata"'] = None
        name, parts = self.kernel.name, [*self.declarations, "", *self.helpers.values()]
        if other is None:
            parts += self._function(f"void @{name}")
        else:
            parts.append(_CHOICE.format(name=name, parameters=_PARAMETERS))
            parts += other._function(f"internal void @{name}.cut", " noinline")
            parts += self._function(f"internal void @{name}{PLAIN}", " noinline")
        parts += ["", *self.metadata] if self.metadata else []
        return "\n".join(parts).lstrip("\n") + "\n"

    def _function(self, name: str, attributes: str = "") -> list[str]:
        head = f"define {name}({_PARAMETERS}){attributes} {{"
        return [head, "hal.entry:", *self.frame, *self.lines, "}"]

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
        """Open the loop over blocks, which counts the block's indices in the grid."""
        sizes = [self.specials["grid_dim", axis] for axis in (0, 1)]
        wide = [self.let(f"zext i32 {size} to i64") for size in sizes]
        # Divided by also in a call without blocks, whose grid may be empty.
        wide = [self._greatest(size, "1") for size in wide]
        rows = self.let(f"sdiv i64 %hal.first, {wide[0]}")
        starts = (
            self.let(f"srem i64 %hal.first, {wide[0]}"),
            self.let(f"srem i64 {rows}, {wide[1]}"),
            self.let(f"sdiv i64 {rows}, {wide[1]}"),
        )
        last_row = self.let(f"sdiv i64 %hal.last, {wide[0]}") if self.joined else ""
        names = [f"{BLOCKS}.{axis}" for axis in AXES]
        others = list(zip(names, starts, strict=True))
        block = self.open_loop(BLOCKS, "i64", "%hal.first", "%hal.last", "slt", others=others)
        self.loops[-1] = self.loops[-1]._replace(
            advance_others=lambda: self._advance_block(names, wide)
        )
        self.frame_loop = BLOCKS
        places = [f"%{name}" for name in names]
        for axis, place in enumerate(places):
            index = self.let(f"trunc i64 {place} to i32", f"%block.{AXES[axis]}")
            self.specials["block_idx", axis] = index
            dim = self.specials["block_dim", axis]
            self.first.append(self.let(f"mul nsw i32 {index}, {dim}"))
        if self.joined:
            self._join_blocks(block, places, wide, last_row)

    def _join_blocks(self, block: str, places: list[str], sizes: list[str], last_row: str) -> None:
        """Make a row of this call's blocks that follow in it, and a loop along y of whole rows.

        `last_row`: the row of the grid in which the call ends.
        """
        left = self.let(f"sub nsw i64 %hal.last, {block}")
        in_row = self.let(f"sub nsw i64 {sizes[0]}, {places[0]}")
        self.blocks = self.least(left, in_row)
        self.width = self._times(self.blocks, self.specials["block_dim", 0], "%row.x")
        step = self.blocks
        if not self.has_columns:  # which join blocks along another axis
            above = self.let(f"mul nsw i64 {places[2]}, {sizes[1]}")
            above = self.let(f"add nsw i64 {above}, {places[1]}")
            whole = self.least(
                self.let(f"sub nsw i64 {last_row}, {above}"),
                self.let(f"sub nsw i64 {sizes[1]}, {places[1]}"),
            )
            begins = self.let(f"icmp eq i64 {places[0]}, 0")
            self.rows = self._greatest(self.select(begins, "i64", whole, "1"), "1")
            self.height = self._times(self.rows, self.specials["block_dim", 1], "%rows.y")
            step = self.let(f"mul nsw i64 {step}, {self.rows}")
        self.loops[-1] = self.loops[-1]._replace(step=step)

    def _times(self, blocks: str, size: str, name: str) -> str:
        """Return the threads of so many blocks along an axis."""
        few = self.let(f"trunc i64 {blocks} to i32")
        return self.let(f"mul nsw i32 {few}, {size}", name)

    def _advance_block(self, names: list[str], sizes: list[str]) -> None:
        """Advance the block's indices: divisions would take as long as a short row.

        A step stays in its row, or ends it and goes `rows` on; where the grid is one row high,
        these lie along z.
        """
        x, y, z = names
        end = self.let(f"add nsw i64 %{x}, {self.blocks}")
        is_over = self.let(f"icmp sge i64 {end}, {sizes[0]}")
        self.let(f"select i1 {is_over}, i64 0, i64 {end}", f"%{x}.next")
        end = self.let(f"add nsw i64 %{y}, {self.select(is_over, 'i64', self.rows, '0')}")
        is_over = self.let(f"icmp sge i64 {end}, {sizes[1]}")
        self.let(f"select i1 {is_over}, i64 0, i64 {end}", f"%{y}.next")
        is_one = self.let(f"icmp eq i64 {sizes[1]}, 1")
        step = self.select(is_one, "i64", end, self.let(f"zext i1 {is_over} to i64"))
        self.let(f"add nsw i64 %{z}, {step}", f"%{z}.next")


_WRITERS = writers(_Module)
_WRITES_REGION = {
    "ENDTHREADS": _Module.write_region,
    "ENDGROUPS": _Module.write_groups,
    "ENDROW_GROUPS": _Module.write_row_groups,
}
