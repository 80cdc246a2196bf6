"""Write the regions in which one thread runs the threads of a short row, in LLVM IR."""

from __future__ import annotations

from hal_cpu.render.steps import Steps
from hal_cpu.render.threads import BLOCKS
from hal_kernel.ir import UOp
from hal_kernel.ir.blocks.rows import Row


class Columns(Steps):
    """Write regions, the short rows of which may be loops of one thread."""

    rare = False  # True for a region that usual launches do not run, behind its COLUMNS

    def on_COLUMNS(self, uop: UOp) -> None:
        """Begin what is run by blocks that follow each other along an axis behind short ones."""
        (numbers, loops), axis = uop.arg, len(uop.arg[0])
        tests: list[str] = []
        for short, number in enumerate(numbers):
            tests.append(self.let(f"icmp eq i32 {self.specials['grid_dim', short]}, 1"))
            tests.append(self.let(f"icmp sge i32 {self.specials['block_dim', short]}, {number}"))
        usable = tests[0]
        for test in tests[1:]:
            usable = self.let(f"and i1 {usable}, {test}")
        last, block = self.specials["grid_dim", axis], self.specials["block_idx", axis]
        in_column = self.let(f"zext i32 {self.let(f'sub nsw i32 {last}, {block}')} to i64")
        left = self.let(f"sub nsw i64 %hal.last, %{BLOCKS}")
        blocks = self.least(left, in_column)
        step = self.select(usable, "i64", blocks, self.loops[-1].step)
        self.loops[-1] = self.loops[-1]._replace(step=step)
        self.rows = self.select(usable, "i64", blocks, "1")
        self.branch(usable, "columns", "rows")
        self.label("columns")
        self.before = self.first, self.specials, self.width
        few = self.let(f"trunc i64 {blocks} to i32")
        self.width = self.let(f"mul nsw i32 {few}, {self.specials['block_dim', axis]}", "%column.x")
        self.first, dims = list(self.first), [self.specials["block_dim", n] for n in range(3)]
        for sizes in (self.first, dims):
            sizes[0], sizes[axis] = sizes[axis], sizes[0]
        for place in (axis, 1)[:loops]:  # where the axes that loops run are now
            self.first[place], dims[place] = "0", "1"
        self.specials = {**self.specials, **{("block_dim", n): d for n, d in enumerate(dims)}}

    def on_ENDCOLUMNS(self, uop: UOp) -> None:
        """End it; what follows runs the blocks of all other launches."""
        self.first, self.specials, self.width = self.before
        self.jump(f"{BLOCKS}.step")
        self.label("rows")
        self.rare = True

    def write_region(self, threads: UOp, nodes: list[UOp]) -> None:
        """Write a region; kept small where it is rare."""
        if not self.rare:
            super().write_region(threads, nodes)
            return
        place = self._open_rows(False, Row(nodes))._replace(rare=True)
        self._write_threads(place, place.interval, {})
        self._close_rows()
