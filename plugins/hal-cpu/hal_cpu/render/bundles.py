"""Write the loop over bundles of threads that load one element, in LLVM IR."""

from __future__ import annotations

from hal_core.dtypes import int32
from hal_cpu.render.threads import Interval, Known, Place, Threads
from hal_cpu.render.values import literal, type_of
from hal_kernel.ir.blocks.bundles import Bundle, bundle
from hal_kernel.ir.blocks.quotients import REMAINDERS
from hal_kernel.ir.uop import dtype_of

_LONG = 64  # threads of a row: from here on bundles gain more than the rest of the row costs


class Bundles(Threads):
    """Write rows, the threads of which may be run in bundles."""

    def write_whole(self, place: Place, whole: Interval, known: Known) -> None:
        """Write the threads of a row: whole bundles of them, if it is long, and what is around."""
        suffix, found = place.suffix, self.bundle_of(place)
        if found is None:
            self._write_threads(place, whole, known)
            return
        some = self.let(f"icmp sge i32 {self.let(f'sub nsw i32 {whole[1]}, {whole[0]}')}, {_LONG}")
        is_global = found.number.arg[0] == "global_idx"
        first = "0"
        if found.multiples:  # of the last thread's number they must fit int32
            if is_global:
                first = self.let(f"sext i32 {self.first[0]} to i64")
            end = self.let(f"add nsw i64 {self.let(f'zext i32 {whole[1]} to i64')}, {first}")
            most = min((int32.max - added) // by for by, added, _ in found.multiples.values())
            some = self.let(f"and i1 {some}, {self.let(f'icmp sle i64 {end}, {most}')}")
        self.branch(some, f"long{suffix}", f"short{suffix}")
        self.label(f"long{suffix}")
        if is_global and first == "0":
            first = self.let(f"sext i32 {self.first[0]} to i64")
        bundles: list[str] = []
        threads: list[str] = []
        for thread, up in zip(whole, (found.size - 1, 0), strict=True):
            number = self.let(f"add nsw i64 {self.let(f'zext i32 {thread} to i64')}, {first}")
            number = self.let(f"add nsw i64 {number}, {up}")
            quotient = self.let(f"udiv i64 {number}, {found.size}")
            number = self.let(f"mul nsw i64 {quotient}, {found.size}")
            bundles.append(self.let(f"trunc i64 {quotient} to i32"))
            threads.append(
                self.let(f"trunc i64 {self.let(f'sub nsw i64 {number}, {first}')} to i32")
            )
        together = place._replace(suffix=f".bundles{suffix}", bundle=found)
        self._write_threads(together, (bundles[0], bundles[1]), known)
        rims = place._replace(free=False, rare=True)
        self.write_rims(rims, whole, (threads[0], threads[1]), known)
        self.jump(f"over{suffix}")
        self.label(f"short{suffix}")
        self._write_threads(place, whole, known)
        self.jump(f"over{suffix}")
        self.label(f"over{suffix}")

    def bundle_of(self, place: Place) -> Bundle | None:
        """Return the bundles of a row, which parts of a row and short ones have not."""
        width = place.width
        is_long = place.interval == ("0", width) and not (width.isdigit() and int(width) < _LONG)
        may = is_long and place.free and self.splits and not self.spills
        return bundle(place.row) if may else None

    def write_nodes(self, place: Place, thread: str, known: Known) -> None:
        """Write the nodes of a row, in a loop over bundles for each thread of one."""
        found = place.bundle
        if found is None:
            super().write_nodes(place, thread, known)
            return
        others = ("thread_idx", 0), ("global_idx", 0)
        own, other = others if found.number.arg[0] == "thread_idx" else others[::-1]
        how = "add" if own[0] == "thread_idx" else "sub"
        start = self.let(f"mul nsw i32 {thread}, {found.size}")
        wide = self.let(f"sext i32 {thread} to i64")
        self.low.difference_update(found.remainders, found.multiples)
        for lane in range(found.size):
            number = self.specials[own] = self.let(f"add nsw i32 {start}, {lane}")
            self.specials[other] = self.let(f"{how} nsw i32 {number}, {self.first[0]}")
            same = {
                node: wide if type_of(dtype_of(node)) == "i64" else thread
                for node in found.quotients
            }
            same |= {node: literal(lane, dtype_of(node)) for node in found.remainders}
            for node, (factor, added, divisor) in found.multiples.items():
                quotient, remainder = divmod(factor * lane + added, divisor)
                if node.op in REMAINDERS:
                    same[node] = literal(remainder, dtype_of(node))
                    continue
                kind = type_of(dtype_of(node))
                counter = wide if kind == "i64" else thread
                times = self.let(f"mul nsw {kind} {counter}, {factor * found.size // divisor}")
                same[node] = self.let(f"add nsw {kind} {times}, {quotient}")
            super().write_nodes(place, thread, known | same)
