"""Write the parts of a row in which the quotients of a flat index stay the same, in LLVM IR."""

from __future__ import annotations

from collections.abc import Callable

from hal_core.dtypes import int32, uint8, uint32
from hal_cpu.render.bundles import Bundles
from hal_cpu.render.threads import Place
from hal_cpu.render.values import type_of
from hal_kernel.ir import UOp
from hal_kernel.ir.blocks.divisions import by_product, by_wide_product
from hal_kernel.ir.blocks.groups import parts_of_nest
from hal_kernel.ir.blocks.parts import Walk, with_inverses
from hal_kernel.ir.blocks.quotients import (
    INDICES,
    QUOTIENTS,
    Cut,
    divisor_size,
    is_moderate,
    least_part,
    parts,
)
from hal_kernel.ir.uop import dtype_of

_GROWS = frozenset({"SPECIAL", "ADD", "SUB", "MUL", "CAST"})
_LARGEST = 1 << 16


class Quotients(Bundles):
    """Write rows."""

    def write_row(self, place: Place) -> None:
        """Write a row in parts, in a loop over them; with products where a divisor is small."""
        least = least_part(place.row)
        cut = parts(place.row, least) if self.splits else None
        # Parts have no bundles, which gain more where all that a part shares is what it loads.
        few = cut and all(node.op in QUOTIENTS and divisor_size(node) for node in cut.divided)
        if cut is None or (few and self.bundle_of(place)):
            self.write_part(place)
            return
        rare = place._replace(free=False, rare=True)
        self._write_in_parts(place, cut, self.write_part, lambda: self.write_part(rare), least)

    def write_nest(self, place: Place, nodes: list[UOp], lanes: int) -> None:
        """Write the groups of a row in parts; the loop over parts is around that of the kernel.

        Small divisors have parts too: else each thread would divide in each iteration.
        """
        cut = parts_of_nest(place.row, nodes) if self.splits else None
        if cut is None:
            self.write_groups_of_part(place, nodes, lanes)
            return
        rare = place._replace(free=False, rare=True)
        self._write_in_parts(
            place, cut, lambda part: self.write_groups_of_part(part, nodes, lanes),
            lambda: self.write_rest_of_nest(nodes, rare, place.interval, {}), 0,
        )  # fmt: skip

    def _write_in_parts(
        self, place: Place, cut: Cut, write: Callable[[Place], None],
        write_undivided: Callable[[], None], least: int,
    ) -> None:  # fmt: skip
        """Write a loop over the parts of a row, and what is run where there are none.

        Where a part has fewer threads than `least`, vectors divide.
        """
        walk, suffix = Walk(cut, least), place.suffix
        self.values[walk.width], self.values[walk.first] = place.width, self.first[0]
        for node in (*place.row.needed(cut.needed()), *walk.ahead.uops):
            self.write(node)
        if walk.usable is not None:
            self.branch(self.values[walk.usable.node], f"usable{suffix}", f"undivided{suffix}")
            self.label(f"usable{suffix}")
        self.divisors = set(cut.divisors)
        if walk.long is not None:
            self.branch(self.values[walk.long.node], f"parts{suffix}", f"products{suffix}")
            self.label(f"products{suffix}")
            row = with_inverses(place.row, (*cut.divided, *cut.others))
            self.write_part(place._replace(row=row, suffix=f".products{suffix}"))
            self.jump(f"divided{suffix}")
            self.label(f"parts{suffix}")
        start = self.open_loop(f"part{suffix}", "i32", "0", place.width, "slt")
        for node in walk.inside.uops:
            self.write(node)
        self.values.update({node: self.values[value] for node, value in walk.known.items()})
        end = self.values[walk.end]
        write(place._replace(row=cut.row, suffix=f".part{suffix}", interval=(start, end)))
        for node in walk.behind.uops:
            self.write(node)
        self.loops[-1] = self.loops[-1]._replace(step=self.let(f"sub nsw i32 {end}, {start}"))
        self.close_loop()
        self.divisors.clear()
        if walk.usable is not None:
            self.jump(f"divided{suffix}")
            self.label(f"undivided{suffix}")
            write_undivided()
            self.jump(f"divided{suffix}")
            self.label(f"divided{suffix}")

    def on_AND(self, uop: UOp) -> None:
        """Write the low bits of a number along x with a mask that LLVM does not know.

        LLVM takes low bits in an index for a number that grows, and makes vectors for rows in which
        these do not wrap: for none.
        """
        hides = self.splits and uop in self.differing and uop.dtype in INDICES
        size, number = (divisor_size(uop) if hides else 0), uop.src[0]
        if number.op not in _GROWS or not size or not 1 < size <= _LARGEST or size & (size - 1):
            self.values[uop] = self.value(uop)
            return
        kind, grid = type_of(dtype_of(uop)), self.specials["grid_dim", 0]
        zero = self.let(f"ashr i32 {grid}, 31")
        if kind == "i64":
            zero = self.let(f"sext i32 {zero} to i64")
        mask = self.let(f"or {kind} {zero}, {size - 1}")
        self.values[uop] = self.let(f"and {kind} {self.values[number]}, {mask}")
        accesses = (node.src[0] for node in self.uops if node.op in ("LOAD", "STORE"))
        of_bytes = (dtype_of(memory).itemsize == 1 for memory in accesses)
        if number.op == "SPECIAL" and size <= 256 and any(of_bytes):
            self.low.add(uop)

    def on_MOD(self, uop: UOp) -> None:
        if not self._by_product(uop):
            self.on_AND(uop)

    def on_FLOORDIV(self, uop: UOp) -> None:
        if not self._by_product(uop):
            self.values[uop] = self.value(uop)

    def value(self, uop: UOp) -> str:
        """Return a value; make of some a number of which LLVM knows nothing.

        Where LLVM 22 finds that lanes of a vector load one element, or neighbours, it computes the
        address in the first lane only. If that lane is not in the IF it does not divide, and the
        others load from anywhere. Numbers that a row shares are divided ahead of its loop. In some
        loops it takes `k & 3` for neighbours in any vector of them.
        """
        self.values[uop] = super().value(uop)
        return self._unknown(uop) if uop in self.hidden else self.values[uop]

    def _unknown(self, uop: UOp) -> str:
        """Return a number of which LLVM does not know that it is the value of `uop`."""
        value, kind, dtype = self.values[uop], type_of(dtype_of(uop)), dtype_of(uop)
        if dtype.is_float:
            bits = f"i{8 * dtype.itemsize}"
            value = self.let(f"bitcast {kind} {value} to {bits}")
        else:
            bits = kind
        zero = self.hidden_zero()
        if bits != "i32":
            zero = self.let(f"{'sext' if bits == 'i64' else 'trunc'} i32 {zero} to {bits}")
        value = self.let(f"or {bits} {value}, {zero}")
        return self.let(f"bitcast {bits} {value} to {kind}") if dtype.is_float else value

    def _by_product(self, uop: UOp) -> bool:
        """Write a division by a number that a row shares as a product; tell whether it gains.

        A loop of a thread by itself is no vector: there a processor divides as fast.
        """
        number, divisor = uop.src
        vector = self.access and not self.endless and self.loops[-1].name == self.frame_loop
        shared = divisor.op != "CONST" and divisor not in self.differing
        if not vector or not shared or number not in self.differing:
            return False
        moderate = is_moderate(uop, self.divisors)
        if uop.dtype not in (int32, uint32) and not moderate:
            return False
        for node in (made := by_wide_product(uop) if moderate else by_product(uop)):
            self.write(node)
        self.values[uop] = self.values[made[-1]]
        return True

    def on_EQ(self, uop: UOp) -> None:
        """Write a comparison; low bits of an index with a constant as bytes.

        Vectors of bytes have a vector of bits then, not of numbers.
        """
        number, end = uop.src
        if end.op != "CONST" or number not in self.low or not 0 <= end.arg < 256:
            self.values[uop] = self.value(uop)
            return
        size = (divisor_size(number) or 0) - 1
        low = self.let(f"trunc i32 {self.specials['thread_idx', 0]} to i8")
        if number.src[0].arg[0] == "global_idx":
            low = self.let(f"add i8 {low}, {self.let(f'trunc i32 {self.first[0]} to i8')}")
        zero = self.let(f"ashr i32 {self.specials['grid_dim', 0]}, 31")
        mask = self.let(f"or i8 {self.let(f'trunc i32 {zero} to i8')}, {size}")
        low = self.let(f"and i8 {low}, {mask}")
        self.values[uop] = self._compare(uop.op, uint8, low, str(end.arg))

    on_NE = on_LT = on_LE = on_GT = on_GE = on_EQ
