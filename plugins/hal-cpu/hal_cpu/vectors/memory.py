"""Write accesses of a gang to memory.

    x[k * n]         uniform     one scalar
    x[i + 1]         linear      one vector
    x[i % 4 + i]     pattern     one vector and a shuffle
    x[index[i]]      gathered    an address for each lane

An access under a mask touches nothing that no lane of the mask accesses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from hal_core.dtypes import DType, bool_, int32, int64
from hal_cpu.vectors.arithmetic import literal, of, scalar, stored
from hal_cpu.vectors.bundles import Bundle, Extent
from hal_cpu.vectors.guesses import Guesses, added, multiplied
from hal_cpu.vectors.text import Scoped
from hal_cpu.vectors.value import NO_TESTS, Lanes, Tests, Value
from hal_kernel.ir.uop import UOp, dtype_of

SPAN = 4  # vectors that one access reads at most to shuffle one


class Index(NamedTuple):
    """An index in 64 bits: `base` + `lanes`, where tests hold."""

    base: str
    lanes: Lanes
    tests: Tests


class Memory(Guesses):
    """Addresses, indices and lanes one by one."""

    def __init__(self, half: bool, fma: bool) -> None:
        super().__init__(half, fma)
        self.values: dict[UOp, Value] = {}  # of the gang that is written
        self.outer: dict[UOp, Value] = {}  # of what runs once for a block
        self.arrays: dict[UOp, str] = {}  # memory -> its pointer
        self.indices: Scoped[UOp, Index | None] = Scoped(self.log)
        self.bundles: dict[UOp, Bundle] = {}
        self.widest = 1  # threads of the largest gangs
        self.decided: Scoped[tuple[Extent, ...], bool] = Scoped(self.log)  # whether they lie apart
        self.deferred: dict[UOp, str] = {}  # members of a bundle -> the vectors they store
        self.long: dict[Value, str] = {}  # values whose base is known in 64 bits
        self.used: set[UOp] = set()  # nodes that others take as a source
        self.false = ""  # a bool of which LLVM does not know that it is false
        self.least_masked = 4  # bytes of the elements for which a processor has masked accesses
        self.has_gathers = False  # of 4 and 8 bytes, with a mask
        self.thread = ""  # number in its block of the first thread of the gang, in 64 bits

    def hidden_mask(self) -> str:
        """Return the mask here, for an access, as bools of which LLVM knows nothing.

        LLVM 22 moves a masked load behind stores, to where a choice by the same mask uses it. Of a
        mask that it knows to have one lane it makes a store of a wider element, where the values
        were narrowed: what lies behind in memory is overwritten.
        """
        kind = of("i1", self.w)
        return self.let(f"or {kind} {self.bools()}, {self.splat('i1', self.false)}")

    def get(self, node: UOp) -> Value:
        """Return the value of a node."""
        value = self.values.get(node)
        if value is None:
            outer = self.outer[node]
            value = self.values[node] = self.uniform(outer.dtype, outer.base, fits=True)
        return value

    def index(self, node: UOp) -> Index | None:
        """Return an index as a pattern, or None.

        An index that overflows int32 is undefined, so its sums are computed in 64 bits.
        """
        pending = [node]  # not by recursion: sums may be long
        while pending:
            one = pending[-1]
            is_sum = one.dtype in (int32, int64) and one.op in ("ADD", "SUB", "MUL")
            rest = [source for source in one.src if source not in self.indices] if is_sum else []
            if one not in self.indices and rest:
                pending += rest
                continue
            pending.pop()
            if one not in self.indices:
                self.indices.put(one, self._index(one))
        return self.indices[node]

    def _index(self, node: UOp) -> Index | None:
        if node.op == "CONST":
            return Index(str(int(node.arg)), self.zero, NO_TESTS)
        if node.dtype in (int32, int64) and node.op in ("ADD", "SUB", "MUL"):
            a, b = map(self.index, node.src)
            if a is None or b is None:
                return None
            tests = a.tests | b.tests
            if node.op != "MUL":
                base = self.let(f"{node.op.lower()} i64 {a.base}, {b.base}")
                return Index(base, added(node.op, a.lanes, b.lanes), tests)
            for x, y, factor in ((a, b, node.src[1]), (b, a, node.src[0])):
                if any(y.lanes) or (factor.op != "CONST" and any(x.lanes)):
                    continue
                lanes = multiplied(x.lanes, int(factor.arg) if factor.op == "CONST" else 0)
                return Index(self.let(f"mul i64 {x.base}, {y.base}"), lanes, tests)
            return None
        value = self.get(node)
        if value.lanes is None:
            return None
        if value in self.long:
            return Index(self.long[value], value.lanes, value.tests)
        return Index(
            self.in_64_bits(value.dtype, value.base), value.lanes, value.tests | self.fitting(value)
        )

    def in_64_bits(self, dtype: DType, value: str, n: int = 1) -> str:
        if dtype.itemsize == 8:
            return value
        how = "sext" if dtype.kind == "i" else "zext"
        return self.let(f"{how} {of(scalar(dtype), n)} {value} to {of('i64', n)}")

    def address(self, uop: UOp, offset: str) -> str:
        """Return the address of one element, by its index in 64 bits."""
        if isinstance(uop.arg, tuple) and uop.arg[0]:
            offset = self.let(f"add i64 {offset}, {uop.arg[0]}")
        kind = stored(dtype_of(uop.src[0]))
        return self.let(
            f"getelementptr inbounds {kind}, ptr {self.arrays[uop.src[0]]}, i64 {offset}"
        )

    def _found(self, uop: UOp) -> Index | None:
        """Return the index of an access as a pattern, or None."""
        found = self.index(uop.src[1])
        if uop.src[0].op != "LOCAL" or self.w == 1 or found is None:
            return found
        if any(found.lanes):
            return None
        # Each element of a thread's own array has a place for each lane.
        base = self.let(f"mul i64 {found.base}, {self.w}")
        return Index(base, self.linear, found.tests)

    def _vector_index(self, uop: UOp) -> str:
        """Return the indices of all lanes as a vector of 64-bit integers."""
        node, n = uop.src[1], self.w
        wide = self.in_64_bits(dtype_of(node), self.vec(self.get(node)), n)
        if uop.src[0].op == "LOCAL":
            own = self.let(f"mul {of('i64', n)} {wide}, splat (i64 {n})")
            return self.let(f"add {of('i64', n)} {own}, {self.per_lane('i64', self.linear)}")
        if isinstance(uop.arg, tuple) and uop.arg[0]:
            return self.let(f"add {of('i64', n)} {wide}, splat (i64 {uop.arg[0]})")
        return wide

    def _plus(self, base: str, more: int) -> str:
        return self.let(f"add i64 {base}, {more}") if more else base

    def _as_value(self, dtype: DType, value: str, n: int) -> str:
        """Return what was loaded as a value: a byte as a bool."""
        if dtype is not bool_:
            return value
        zero = "0" if n == 1 else "zeroinitializer"
        return self.let(f"icmp ne {of('i8', n)} {value}, {zero}")

    def _is_linear(self, lanes: Lanes) -> bool:
        low = lanes[0]
        return self.w > 1 and lanes == tuple(low + n for n in self.linear)

    def _is_near(self, lanes: Lanes) -> bool:
        """Tell whether one load reads all lanes, with little between them."""
        return 0 < max(lanes) - min(lanes) < SPAN * self.w

    def _is_bundled(self, uop: UOp) -> bool:
        """Tell whether an access is done with its bundle, which its first member decides."""
        bundle = self.bundles.get(uop)
        if bundle is None or self.mask is not None or self.w == 1:
            return False
        if bundle.apart and self.w < self.widest:  # a gang whose test has failed comes here
            return False
        if bundle.apart and bundle.apart not in self.decided:
            tests = self._lie_apart(bundle.apart)
            self.decided.put(bundle.apart, tests is not None and self.require(tests))
        return self.decided.get(bundle.apart, True)

    def _lie_apart(self, extents: Sequence[Extent]) -> Tests | None:
        """Return the tests that no extent overlaps one that is stored, unless they are the same.

        None if an index is no pattern.
        """
        tests, places = set[str](), list[str]()
        ends: list[tuple[int, int]] = []  # of each in bytes, from its place
        for one in extents:
            found, dtype = self.index(one.access.src[1]), dtype_of(one.access.src[0])
            if found is None:
                return None
            kind, size = stored(dtype), dtype.itemsize
            at = f"getelementptr {kind}, ptr {self.arrays[one.access.src[0]]}, i64 {found.base}"
            place = self.let(f"ptrtoint ptr {self.let(at)} to i64")
            places.append(self.let(f"sub i64 {place}, {one.own * size}"))
            low, high = min(found.lanes) + one.low, max(found.lanes) + one.high + 1
            ends.append((low * size, high * size))
            tests |= found.tests
        for n, one in enumerate(extents):
            for m, other in enumerate(extents[:n]):
                if not (one.is_stored or other.is_stored):
                    continue
                far = self.let(f"sub i64 {places[n]}, {places[m]}")
                behind = self.let(f"icmp sge i64 {far}, {ends[m][1] - ends[n][0]}")
                ahead = self.let(f"icmp sle i64 {far}, {ends[m][0] - ends[n][1]}")
                test = self.let(f"or i1 {behind}, {ahead}")
                if one.terms == other.terms:
                    test = self.let(f"or i1 {test}, {self.let(f'icmp eq i64 {far}, 0')}")
                tests.add(test)
        return frozenset(tests)

    def _first_of(self, uop: UOp, found: Index, more: int) -> str:
        """Return the address of the element that lies `more` behind that of the first lane."""
        return self.address(uop, self._plus(found.base, min(found.lanes) + more))

    def _as_stored(self, dtype: DType, value: str, n: int) -> str:
        return self.let(f"zext {of('i1', n)} {value} to {of('i8', n)}") if dtype is bool_ else value

    def spread(self, kind: str, vector: str) -> Callable[[str], str]:
        """Return a function that gives one lane of a vector, by the lane's number."""
        slot = self.slot(of(kind, self.w), "lanes")
        self.store(of(kind, self.w), vector, slot)
        return lambda lane: self.load(
            kind, self.let(f"getelementptr {kind}, ptr {slot}, i64 {lane}")
        )

    def each_lane(self, bools: str, write: Callable[[str], None]) -> None:
        """Write a loop over the lanes that are on, in their order."""
        place, n = self.number(), self.w
        all_on = bools.startswith("splat")
        kind = "i64" if all_on else f"i{n}"
        left = self.slot(kind, "left")
        self.store(kind, "0" if all_on else self.as_bits(bools), left)
        self.open_loop(f"each.{place}")
        bits = lane = self.load(kind, left)
        if not all_on:
            self.branch(self.let(f"icmp ne i{n} {bits}, 0"), f"one.{place}", f"none.{place}")
            self.label(f"one.{place}")
            lane = self.call(f"@llvm.cttz.i{n}", f"i{n}", [f"i{n}", "i1"], [bits, "true"])
            if n < 64:
                lane = self.let(f"zext i{n} {lane} to i64")
        mark = len(self.log)
        write(lane)
        self.log.back(mark)
        if all_on:
            rest = self.let(f"add nuw nsw i64 {lane}, 1")
            self.store(kind, rest, left)
            more = self.let(f"icmp ult i64 {rest}, {n}")
            self.branch(more, f"each.{place}", f"none.{place}")
        else:
            rest = self.let(f"and i{n} {bits}, {self.let(f'add i{n} {bits}, -1')}")
            self.store(kind, rest, left)
            self.jump(f"each.{place}")
        self.close_loop()
        self.label(f"none.{place}")

    def on_TABLE(self, uop: UOp) -> None:
        (_, values), dtype = uop.arg, dtype_of(uop)
        kind, name = stored(dtype), f"@hal.table.{self.number()}"
        elements = (
            f"{kind} {int(value) if dtype is bool_ else literal(value, dtype)}" for value in values
        )
        text = f"internal constant [{len(values)} x {kind}] [{', '.join(elements)}], align 16"
        self.declarations[f"{name} = {text}"] = None
        self.arrays[uop] = name

    def on_VIEW(self, uop: UOp) -> None:
        self.arrays[uop] = self.arrays[uop.src[0]]  # pointers have no type

    def either(
        self, test: str, write: Callable[[], None], other: Callable[[], None] | None = None,
        likely: bool = False,
    ) -> None:  # fmt: skip
        """Write one piece of the text for where a test holds, and another, or none, for elsewhere.

        What either of them knows is not known behind them.
        """
        place = self.number()
        self.branch(test, f"so.{place}", f"{'not' if other else 'join'}.{place}", likely)
        for name, piece in (("so", write), ("not", other)):
            if piece is not None:
                self.label(f"{name}.{place}")
                mark = len(self.log)
                piece()
                self.log.back(mark)
                self.jump(f"join.{place}")
        self.label(f"join.{place}")


def described(lanes: Lanes, masked: bool = False) -> str:
    """Return what an access of a pattern is."""
    steps = {b - a for a, b in pairwise(lanes)}
    step = steps.pop() if len(steps) == 1 else 0
    how = "linear: one vector" if step == 1 else f"stride {step}: a vector and a shuffle"
    how = how if step else "pattern: a vector and a shuffle"
    return f"{how}, under a mask" if masked else how
