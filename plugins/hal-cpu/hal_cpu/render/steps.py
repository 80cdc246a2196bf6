"""Write the rows of which every c-th thread runs, in LLVM IR."""

from __future__ import annotations

from hal_core.dtypes import bool_, int32
from hal_cpu.render.quotients import Quotients
from hal_cpu.render.threads import Interval, Known, Place
from hal_cpu.render.values import literal
from hal_kernel.ir import UOp
from hal_kernel.ir.blocks.steps import Step, reads_below, step
from hal_kernel.ir.blocks.thread_bounds import bounds

_MOST_MASKED = 4  # threads to a step, up to which vectors with masks are faster than a loop


class Steps(Quotients):
    """Write rows."""

    def write_row(self, place: Place) -> None:
        """Write a row; if only every c-th thread of it runs, in steps of c."""
        found = step(place.row)
        if found is None or not (self.splits or found.divisor.op == "CONST"):
            super().write_row(place)
            return
        row, suffix = place.row, place.suffix
        whole, known = self._bound(place, row, bounds(row, False), None)
        for node in row.needed([found.divisor]):
            self.write(node)
            known[node] = self.values[node]
        multiple, less = self._multiple(found)
        if found.divisor.op == "CONST":
            self._write_steps(place, whole, known, found, multiple)
            return
        self.branch(self._is_sparse(found, multiple, less), f"steps{suffix}", f"masked{suffix}")
        self.label(f"steps{suffix}")
        self._write_steps(place, whole, known, found, multiple)
        self.jump(f"stepped{suffix}")
        self.label(f"masked{suffix}")
        if found.remainder.op != "AND":  # here the multiple is a power of two
            mask = UOp("STEP_MASK", int32, ())
            self.values[mask] = self.let(f"trunc i64 {less} to i32")
            number = UOp("AND", int32, (found.remainder.src[0], mask), None, found.test.line)
            self.same = {found.remainder: number}
        masked = place._replace(suffix=f".masked{suffix}", back=reads_below(row))
        self._write_threads(masked, whole, known)
        self.same = {}
        self.jump(f"stepped{suffix}")
        self.label(f"stepped{suffix}")

    def _multiple(self, found: Step) -> tuple[str, str]:
        """Return, as i64, the number of threads from one to the next, and that less 1."""
        value = found.divisor.arg if found.divisor.op == "CONST" else None
        if value is not None:
            multiple = value + 1 if found.remainder.op == "AND" else abs(value)
            return str(multiple), str(multiple - 1)
        wide = self.let(f"sext i32 {self.values[found.divisor]} to i64")
        if found.remainder.op == "AND":
            return self.let(f"add nsw i64 {wide}, 1"), wide
        size = self._call("@llvm.abs.i64", "i64", ["i64", "i1"], [wide, "false"])
        size = self._greatest(size, "1")  # a remainder by 0 is 0
        return size, self.let(f"sub nsw i64 {size}, 1")

    def _is_sparse(self, found: Step, multiple: str, less: str) -> str:
        """Return whether the row is run in steps: if these are long, or vectors would divide."""
        is_long = self.let(f"icmp sgt i64 {multiple}, {_MOST_MASKED}")
        both = self.let(f"and i64 {multiple}, {less}")
        if found.remainder.op == "AND":
            power = self.let(f"icmp eq i64 {both}, 0")
            return self.let(f"and i1 {is_long}, {power}")
        other = self.let(f"icmp ne i64 {both}, 0")
        return self.let(f"or i1 {is_long}, {other}")

    def _write_steps(
        self, place: Place, whole: Interval, known: Known, found: Step, multiple: str
    ) -> None:
        """Write the threads of an interval whose number is a multiple."""
        start, end = whole
        if start != "0" or found.added or found.number.arg[0] == "global_idx":
            thread, last = (
                at if at.isdigit() else self.let(f"zext i32 {at} to i64") for at in whole
            )
            number = self.let(f"add nsw i64 {thread}, {found.added}")
            if found.number.arg[0] == "global_idx":
                index = self.let(f"sext i32 {self.first[0]} to i64")
                number = self.let(f"add nsw i64 {number}, {index}")
            left = self.let(f"srem i64 {self.let(f'sub nsw i64 0, {number}')}, {multiple}")
            below = self.let(f"icmp slt i64 {left}, 0")
            more = self.let(f"add nsw i64 {left}, {multiple}")
            first = self.let(f"add nsw i64 {thread}, {self.select(below, 'i64', more, left)}")
            start = self.let(f"trunc i64 {self.least(first, last)} to i32")
        known = known | {found.test: literal(found.holds, bool_)}
        count = multiple if multiple.isdigit() else self.let(f"trunc i64 {multiple} to i32")
        few = place._replace(suffix=f".steps{place.suffix}", free=False, rare=True, step=count)
        self._write_threads(few, (start, end), known)
