"""Write the parts of a row in which the quotients of a flat index stay the same, in LLVM IR."""

from __future__ import annotations

from collections.abc import Callable

from hal_core.geometry import MOST_ADDED
from hal_core.ir import UOp
from hal_core.ir.blocks.groups import parts_of_nest
from hal_core.ir.blocks.quotients import Division, is_remainder, parts
from hal_core.ir.blocks.rows import Counted, Row
from hal_core.render.llvm.threads import Place, Threads
from hal_core.render.llvm.values import type_of
from hal_core.render.renderer import dtype_of

_LEAST_DIVISOR = 4  # threads of a part, for which a loop of its own costs less than divisions


class Quotients(Threads):
    """Write rows."""

    def write_row(self, place: Place) -> None:
        """Write a row in parts, in a loop over them; as a whole where a divisor is small."""
        found = parts(place.row) if self.splits else None
        if found is None:
            self.write_part(place)
            return
        row, divisions = found
        large = self._are_large(place, divisions, _LEAST_DIVISOR)
        if large is None:
            self._write_loop_of_parts(place, row, divisions, self.write_part)
            return
        suffix = place.suffix
        self.branch(large, f"parts{suffix}", f"undivided{suffix}")
        self.label(f"parts{suffix}")
        self._write_loop_of_parts(place, row, divisions, self.write_part)
        self.jump(f"divided{suffix}")
        self.label(f"undivided{suffix}")
        self.write_part(place)
        self.jump(f"divided{suffix}")
        self.label(f"divided{suffix}")

    def write_nest(self, place: Place, nodes: list[UOp], lanes: int) -> None:
        """Write the groups of a row in parts; the loop over parts is around that of the kernel.

        Small divisors have parts too: else each thread would divide in each iteration.
        """
        found = parts_of_nest(place.row, nodes) if self.splits else None
        if found is None:
            self.write_groups_of_part(place, nodes, lanes)
            return
        row, divisions = found
        suffix = place.suffix
        positive = self._are_large(place, divisions, 1) or "true"
        self.branch(positive, f"parts{suffix}", f"undivided{suffix}")
        self.label(f"parts{suffix}")
        self._write_loop_of_parts(
            place, row, divisions, lambda part: self.write_groups_of_part(part, nodes, lanes)
        )
        self.jump(f"divided{suffix}")
        self.label(f"undivided{suffix}")
        self.write_threads_of_nest(nodes, place._replace(free=False, rare=True), place.interval, {})
        self.jump(f"divided{suffix}")
        self.label(f"divided{suffix}")

    def _write_loop_of_parts(
        self, place: Place, row: Row, divisions: list[Division], write: Callable[[Place], None]
    ) -> None:
        """Write a loop over the parts of a row, with the region as it is for a part."""
        suffix = place.suffix
        start = self.open_loop(f"part{suffix}", "i32", "0", place.width, "slt")
        thread, end = self._wide_thread(start), self._wide_thread(place.width)
        for division in divisions:
            end = self.least(end, self._divide(division, thread))
        last = self.let(f"trunc i64 {end} to i32")
        self.loops[-1] = self.loops[-1]._replace(step=self.let(f"sub nsw i32 {last}, {start}"))
        write(place._replace(row=row, suffix=f".part{suffix}", interval=(start, last)))
        self.close_loop()

    def _are_large(self, place: Place, divisions: list[Division], least: int) -> str | None:
        """Return whether all divisors are `least` or more, and all dividends from 0 to a limit.

        None: both are known without a test.
        """
        offsets = [d.number.offset for d in divisions if not is_remainder(d.number)]
        needed = [*(d.divisor for d in divisions), *(node for node in offsets if node)]
        for node in place.row.needed(needed):
            self.write(node)
        checks: list[str] = []
        for division in divisions:
            if division.divisor.op != "CONST":
                checks.append(self.let(f"icmp sge i64 {self._divisor(division)}, {least}"))
            if division.number.offset in offsets and division.number.offset is not None:
                first = self._first(division.number)
                last = self.let(f"add i64 {first}, {self._wide_thread(place.width)}")
                checks.append(self.let(f"icmp sge i64 {first}, 0"))
                # So that `k % w + 1` does not wrap either: `is_remainder` says so.
                checks.append(self.let(f"icmp sle i64 {last}, {2**31 - MOST_ADDED}"))
        large = checks[0] if checks else None
        for check in checks[1:]:
            large = self.let(f"and i1 {large}, {check}")
        return large

    def _wide_thread(self, thread: str) -> str:
        return thread if thread.isdigit() else self.let(f"zext i32 {thread} to i64")

    def _wide_node(self, node: UOp) -> str:
        """Return the value of an integer of 32 bits or more as i64."""
        if node.op == "CONST":
            return str(node.arg)
        dtype, value = dtype_of(node), self.values[node]
        if dtype.itemsize == 8:
            return value
        return self.let(f"{'sext' if dtype.kind == 'i' else 'zext'} i32 {value} to i64")

    def _divisor(self, division: Division) -> str:
        return self._wide_node(division.divisor)

    def _first(self, number: Counted) -> str:
        """Return, as i64, a number along x for thread 0 of the row."""
        first = str(number.least)
        if number.number.arg[0] == "global_idx":
            first = self.let(f"add i64 {self._index()}, {first}")
        if number.offset is not None:
            times = self.let(f"mul i64 {self._wide_node(number.offset)}, {number.times[0]}")
            first = self.let(f"add i64 {times}, {first}")
        return first

    def _divide(self, division: Division, thread: str) -> str:
        """Write a quotient for this thread; return, as i64, the first thread that has another."""
        number = self.let(f"add i64 {self._first(division.number)}, {thread}")
        divisor = self._divisor(division)
        quotient = self.let(f"udiv i64 {number}, {divisor}")
        behind = self.let(f"urem i64 {number}, {divisor}")
        kind = type_of(dtype_of(division.quotient))
        self.values[division.quotient] = (
            quotient if kind == "i64" else self.let(f"trunc i64 {quotient} to {kind}")
        )
        first = self.let(f"sub i64 {thread}, {behind}")  # thread for which the remainder is 0
        start = first
        if division.number.number.arg[0] == "global_idx":
            start = self.let(f"add i64 {first}, {self._index()}")
        self.values[division.start] = self.let(f"trunc i64 {start} to i32")
        return self.let(f"add i64 {first}, {divisor}")

    def _index(self) -> str:
        """Return, as i64, the global index of the first thread of the row."""
        return self.let(f"sext i32 {self.first[0]} to i64")
