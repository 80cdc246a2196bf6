"""Write the parts of a row in which the quotients of a flat index stay the same, in LLVM IR."""

from __future__ import annotations

from collections.abc import Callable

from hal_core.ir import UOp
from hal_core.ir.blocks.groups import parts_of_nest
from hal_core.ir.blocks.parts import Walk
from hal_core.ir.blocks.quotients import Division, parts
from hal_core.ir.blocks.rows import Row
from hal_core.render.llvm.threads import Place, Threads

_LEAST_DIVISOR = 4  # threads of a part, for which a loop of its own costs less than divisions


class Quotients(Threads):
    """Write rows."""

    def write_row(self, place: Place) -> None:
        """Write a row in parts, in a loop over them; as a whole where a divisor is small."""
        found = parts(place.row) if self.splits else None
        if found is None:
            self.write_part(place)
            return
        self._write_in_parts(place, *found, _LEAST_DIVISOR, self.write_part, self.write_part)

    def write_nest(self, place: Place, nodes: list[UOp], lanes: int) -> None:
        """Write the groups of a row in parts; the loop over parts is around that of the kernel.

        Small divisors have parts too: else each thread would divide in each iteration.
        """
        found = parts_of_nest(place.row, nodes) if self.splits else None
        if found is None:
            self.write_groups_of_part(place, nodes, lanes)
            return
        self._write_in_parts(
            place, *found, 1,
            lambda part: self.write_groups_of_part(part, nodes, lanes),
            lambda row: self.write_threads_of_nest(
                nodes, row._replace(free=False, rare=True), row.interval, {}
            ),
        )  # fmt: skip

    def _write_in_parts(
        self, place: Place, row: Row, divisions: list[Division], least: int,
        write: Callable[[Place], None], write_whole: Callable[[Place], None],
    ) -> None:  # fmt: skip
        """Write a loop over the parts of a row; the row as a whole where a divisor is small."""
        walk, suffix = Walk(divisions, least), place.suffix
        needed = [*(d.divisor for d in divisions), *(d.number.offset for d in divisions)]
        self.values[walk.width], self.values[walk.first] = place.width, self.first[0]
        for node in (*place.row.needed([node for node in needed if node]), *walk.ahead.uops):
            self.write(node)
        if walk.usable is not None:
            self.branch(self.values[walk.usable.node], f"parts{suffix}", f"undivided{suffix}")
            self.label(f"parts{suffix}")
        start = self.open_loop(f"part{suffix}", "i32", "0", place.width, "slt")
        for node in walk.inside.uops:
            self.write(node)
        self.values.update({node: self.values[value] for node, value in walk.known.items()})
        end = self.values[walk.end]
        write(place._replace(row=row, suffix=f".part{suffix}", interval=(start, end)))
        for node in walk.behind.uops:
            self.write(node)
        self.loops[-1] = self.loops[-1]._replace(step=self.let(f"sub nsw i32 {end}, {start}"))
        self.close_loop()
        if walk.usable is not None:
            self.jump(f"divided{suffix}")
            self.label(f"undivided{suffix}")
            write_whole(place)
            self.jump(f"divided{suffix}")
            self.label(f"divided{suffix}")
