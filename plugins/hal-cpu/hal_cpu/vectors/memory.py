"""Write accesses of a gang to memory.

    x[k * n]         uniform     one scalar
    x[i + 1]         linear      one vector
    x[i % 4 + i]     pattern     one vector and a shuffle
    x[index[i]]      gathered    an address for each lane

An access under a mask touches nothing that no lane of the mask accesses.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from hal_core.dtypes import DType, bool_, int32, int64
from hal_cpu.vectors.arithmetic import literal, mangled, of, scalar, stored
from hal_cpu.vectors.bundles import Bundle
from hal_cpu.vectors.guesses import Guesses
from hal_cpu.vectors.text import Scoped
from hal_cpu.vectors.value import NO_TESTS, Lanes, Tests, Value
from hal_kernel.ir.uop import UOp, array_of, dtype_of

_WHOLE = {
    "ADD": "add", "MIN": "min", "MAX": "max", "AND": "and", "OR": "or", "XOR": "xor",
    "EXCHANGE": "xchg",
}  # fmt: skip
_PAGE = 4096
SPAN = 4  # vectors that one access reads at most to shuffle one


class Index(NamedTuple):
    """An index in 64 bits: `base` + `lanes`, where tests hold."""

    base: str
    lanes: Lanes
    tests: Tests


class Memory(Guesses):
    """Write loads, stores and atomics of a gang."""

    def __init__(self, half: bool) -> None:
        super().__init__(half)
        self.values: dict[UOp, Value] = {}  # of the gang that is written
        self.outer: dict[UOp, Value] = {}  # of what runs once for a block
        self.arrays: dict[UOp, str] = {}  # memory -> its pointer
        self.indices: Scoped[UOp, Index] = Scoped()
        self.bundles: dict[UOp, Bundle] = {}
        self.decided: dict[tuple[UOp, ...], bool] = {(): True}  # whether memories lie apart
        self.deferred: dict[UOp, str] = {}  # members of a bundle -> the vectors they store
        self.long: dict[Value, str] = {}  # values whose base is known in 64 bits
        self.thread = ""  # number in its block of the first thread of the gang, in 64 bits

    def get(self, node: UOp) -> Value:
        """Return the value of a node."""
        value = self.values.get(node)
        if value is None:
            outer = self.outer[node]
            value = self.values[node] = self.uniform(outer.dtype, outer.base, fits=True)
        return value

    # -- indices

    def index(self, node: UOp) -> Index | None:
        """Return an index as a pattern, or None.

        An index that overflows int32 is undefined, so its sums are computed in 64 bits.
        """
        found = self.indices.get(node)
        if found is None:
            found = self._index(node)
            if found is not None:
                self.indices.put(node, found)
        return found

    def _index(self, node: UOp) -> Index | None:
        if node.op == "CONST":
            return Index(str(node.arg), self.zero, NO_TESTS)
        if node.dtype in (int32, int64) and node.op in ("ADD", "SUB", "MUL"):
            a, b = map(self.index, node.src)
            if a is None or b is None:
                return None
            tests = a.tests | b.tests
            if node.op != "MUL":
                sign = 1 if node.op == "ADD" else -1
                lanes = tuple(x + sign * y for x, y in zip(a.lanes, b.lanes, strict=True))
                base = self.let(f"{node.op.lower()} i64 {a.base}, {b.base}")
                return Index(base, lanes, tests)
            for x, y, factor in ((a, b, node.src[1]), (b, a, node.src[0])):
                if any(y.lanes) or (factor.op != "CONST" and any(x.lanes)):
                    continue
                times = int(factor.arg) if factor.op == "CONST" else 0
                lanes = tuple(n * times for n in x.lanes)
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

    def _own(self, found: Index | None) -> Index | None:
        """Return the index of a thread's own array, of which each element has a place per lane."""
        if found is None or any(found.lanes):
            return None
        base = self.let(f"mul i64 {found.base}, {self.w}")
        return Index(base, self.linear, found.tests)

    def _found(self, uop: UOp) -> Index | None:
        found = self.index(uop.src[1])
        return self._own(found) if uop.src[0].op == "LOCAL" and self.w > 1 else found

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

    # -- loads

    def on_LOAD(self, uop: UOp) -> None:
        self.values[uop] = self._loaded(uop)

    def _loaded(self, uop: UOp) -> Value:
        dtype, kind = dtype_of(uop), stored(dtype_of(uop))
        found = self._found(uop)
        if found is not None and self.require(found.tests):
            if self._is_bundled(uop, found):
                self.note(uop, f"part of one load at stride {self.bundles[uop].stride}")
                return self.vector(dtype, self._part_of_wide(uop, kind, found))
            low, high = min(found.lanes), max(found.lanes)
            if low == high and (uop.src[0].op != "LOCAL" or self.w == 1):
                self.note(uop, "uniform: one scalar")
                value = self.load(kind, self.address(uop, self._plus(found.base, low)))
                return self.uniform(dtype, self._as_value(dtype, value, 1))
            if self._is_near(found.lanes) and (
                self.mask is None or self._is_linear(found.lanes) or uop.src[0].op == "LOCAL"
            ):
                self.note(uop, _described(found.lanes, self.mask is not None))
                return self.vector(dtype, self._near(uop, kind, found))
        elif found is not None and (
            self._is_near(found.lanes) if self.mask is None else self._is_linear(found.lanes)
        ):
            self.note(uop, f"{_described(found.lanes)}, or gathered where a test fails")
            return self.vector(dtype, self._near_or_gathered(uop, kind, found))
        self.note(uop, "gathered: an address for each lane")
        return self.vector(dtype, self._gathered(uop, kind))

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

    def _near(self, uop: UOp, kind: str, found: Index) -> str:
        """Load neighbours as one vector, and shuffle it if they are not in order."""
        low, n = min(found.lanes), self.w
        at = self.address(uop, self._plus(found.base, low))
        lanes, dtype = tuple(lane - low for lane in found.lanes), dtype_of(uop)
        align, vector = f"align {dtype.itemsize}", of(kind, n)
        if lanes != self.linear:
            span = max(lanes) + 1
            whole = self.let(f"load {of(kind, span)}, ptr {at}, {align}")
            order = f"{of('i32', n)} {self.per_lane('i32', lanes)}"
            value = self.let(
                f"shufflevector {of(kind, span)} {whole}, {of(kind, span)} poison, {order}"
            )
        elif self.mask is None or uop.src[0].op == "LOCAL":
            value = self.let(f"load {vector}, ptr {at}, {align}")
        elif dtype.itemsize >= 4:
            name = f"@llvm.masked.load.{mangled(kind, n)}.p0"
            kinds = ["ptr", "i32", of("i1", n), vector]
            operands = [at, str(dtype.itemsize), self.bools(), "zeroinitializer"]
            value = self.call(name, vector, kinds, operands)
        else:
            value = self._small(kind, at)
        return self._as_value(dtype, value, n)

    def _small(self, kind: str, at: str) -> str:
        """Load small elements under a mask: all of them where that crosses no page."""
        n, vector, place = self.w, of(kind, self.w), self.number()
        slot = self.slot(vector, "small")
        offset = self.let(f"and i64 {self.let(f'ptrtoint ptr {at} to i64')}, {_PAGE - 1}")
        fits = self.let(f"icmp ule i64 {offset}, {_PAGE - n * int(kind[1:]) // 8}")
        self.branch(fits, f"page.{place}", f"pages.{place}", likely=True)
        self.label(f"page.{place}")
        self.store(vector, self.let(f"load {vector}, ptr {at}, align 1"), slot)
        self.jump(f"loaded.{place}")
        self.label(f"pages.{place}")
        self.store(vector, "zeroinitializer", slot)
        bools = self.let(f"icmp ne {self.mask_kind} {self.mask}, zeroinitializer")

        def copy(lane: str) -> None:
            value = self.load(kind, self.let(f"getelementptr {kind}, ptr {at}, i64 {lane}"))
            self.store(kind, value, self.let(f"getelementptr {kind}, ptr {slot}, i64 {lane}"))

        self.each_lane(bools, copy)
        self.jump(f"loaded.{place}")
        self.label(f"loaded.{place}")
        return self.load(vector, slot)

    def _is_bundled(self, uop: UOp, found: Index) -> bool:
        """Tell whether an access is done with its bundle, which its first member decides."""
        bundle = self.bundles.get(uop)
        if bundle is None or self.mask is not None or self.w == 1:
            return False
        if bundle.apart not in self.decided:
            self.decided[bundle.apart] = self.require(self._lie_apart(uop, bundle, found))
        return self.decided[bundle.apart]

    def _lie_apart(self, uop: UOp, bundle: Bundle, found: Index) -> Tests:
        """Return the tests that the memories of a bundle are the same, or do not overlap here."""
        kind = stored(dtype_of(uop.src[0]))
        nbytes = 2 * bundle.stride * self.w * dtype_of(uop.src[0]).itemsize
        places: list[str] = []
        for memory in bundle.apart:
            at = f"getelementptr {kind}, ptr {self.arrays[memory]}, i64 {found.base}"
            places.append(self.let(f"ptrtoint ptr {self.let(at)} to i64"))
        tests: list[str] = []
        for n, a in enumerate(places):
            for b in places[:n]:
                far = self.let(f"sub i64 {a}, {b}")
                size = self.call("@llvm.abs.i64", "i64", ["i64", "i1"], [far, "false"])
                apart = self.let(f"icmp uge i64 {size}, {nbytes}")
                same = self.let(f"icmp eq i64 {far}, 0")
                tests.append(self.let(f"or i1 {apart}, {same}"))
        return frozenset(tests)

    def _part_of_wide(self, uop: UOp, kind: str, found: Index) -> str:
        """Return a member's part of one load that all members of its bundle share."""
        bundle, n = self.bundles[uop], self.w
        low, high = min(bundle.offsets), max(bundle.offsets)
        wide = of(kind, bundle.stride * (n - 1) + high - low + 1)
        whole, own = self.cache.get(bundle), bundle.offset(uop)
        size = dtype_of(uop).itemsize
        if whole is None:
            at = self._first_of(uop, found, low - own)
            whole = self.let(f"load {wide}, ptr {at}, align {size}")
            self.cache.put(bundle, whole)
        lanes = [own - low + bundle.stride * lane for lane in self.linear]
        order = f"{of('i32', n)} {self.per_lane('i32', lanes)}"
        part = self.let(f"shufflevector {wide} {whole}, {wide} poison, {order}")
        return self._as_value(dtype_of(uop), part, n)

    def _first_of(self, uop: UOp, found: Index, more: int) -> str:
        """Return the address of the element that lies `more` behind that of the first lane."""
        return self.address(uop, self._plus(found.base, min(found.lanes) + more))

    def _store_bundle(self, uop: UOp, kind: str, vector: str, found: Index) -> None:
        """Store the vectors of a bundle with its last member, one between the other."""
        bundle, n = self.bundles[uop], self.w
        self.deferred[uop] = vector
        if uop is not bundle.members[-1]:
            return
        low, size = min(bundle.offsets), dtype_of(uop.src[0]).itemsize
        order = sorted(bundle.members, key=bundle.offset)
        parts, width = [self.deferred.pop(member) for member in order], n
        while len(parts) > 1:  # joined in pairs
            if len(parts) % 2:
                parts.append("poison")
            numbers = self.per_lane("i32", range(2 * width))
            parts = [
                self.let(
                    f"shufflevector {of(kind, width)} {a}, {of(kind, width)} {b}, "
                    f"{of('i32', 2 * width)} {numbers}"
                )
                for a, b in zip(parts[::2], parts[1::2], strict=True)
            ]
            width *= 2
        count = bundle.stride * n
        lanes = [k % bundle.stride * n + k // bundle.stride for k in range(count)]
        joined = of(kind, width)
        mixed = self.let(
            f"shufflevector {joined} {parts[0]}, {joined} poison, "
            f"{of('i32', count)} {self.per_lane('i32', lanes)}"
        )
        at = self._first_of(uop, found, low - bundle.offset(uop))
        self.line(f"store {of(kind, count)} {mixed}, ptr {at}, align {size}")
        self.pure = False

    def _near_or_gathered(self, uop: UOp, kind: str, found: Index) -> str:
        """Load neighbours where tests hold, and gather elsewhere."""
        place, vector = self.number(), of(scalar(dtype_of(uop)), self.w)
        slot = self.slot(vector, "either")
        tests = self.missing(found.tests)
        self.branch(self.conjunction(tests), f"near.{place}", f"far.{place}", likely=True)
        for name, how in (("near", self._near), ("far", None)):
            self.label(f"{name}.{place}")
            marks = self.enter()
            value = how(uop, kind, found) if how else self._gathered(uop, kind)
            self.store(vector, value, slot)
            self.leave(marks)
            self.jump(f"join.{place}")
        self.label(f"join.{place}")
        return self.load(vector, slot)

    def _gathered(self, uop: UOp, kind: str) -> str:
        """Load an element for each lane; lanes that are off load what the first one does."""
        n, dtype = self.w, dtype_of(uop)
        index = self._vector_index(uop)
        if self.mask is not None:
            bits = self.as_bits(self.bools())
            first = self.call(f"@llvm.cttz.i{n}", f"i{n}", [f"i{n}", "i1"], [bits, "true"])
            shared = self.let(f"extractelement {of('i64', n)} {index}, i{n} {first}")
            index = self.select(self.bools(), of("i64", n), index, self.splat("i64", shared))
        base = self.arrays[uop.src[0]]
        at = self.let(f"getelementptr inbounds {kind}, ptr {base}, {of('i64', n)} {index}")
        name = f"@llvm.masked.gather.{mangled(kind, n)}.v{n}p0"
        kinds = [of("ptr", n), "i32", of("i1", n), of(kind, n)]
        operands = [at, str(dtype.itemsize), "splat (i1 true)", "poison"]
        return self._as_value(dtype, self.call(name, of(kind, n), kinds, operands), n)

    # -- stores

    def on_STORE(self, uop: UOp) -> None:
        value = self.get(uop.src[2])
        dtype, n = value.dtype, self.w
        kind, found = stored(dtype), self._found(uop)
        known = found is not None and self.require(found.tests)
        is_local = uop.src[0].op == "LOCAL"
        if found is not None and known and not any(found.lanes) and self.is_uniform(value):
            self.note(uop, "uniform: one scalar")
            self.store(kind, self._as_stored(dtype, value.base, 1), self.address(uop, found.base))
        else:
            vector = self._as_stored(dtype, self.vec(value), n)
            if found is not None and (known or self.deferred) and self._is_bundled(uop, found):
                self.note(uop, f"part of one store at stride {self.bundles[uop].stride}")
                self._store_bundle(uop, kind, vector, found)
                return
            if found is not None and not known and self._is_linear(found.lanes):
                self.note(uop, f"{_described(found.lanes)}, or lane by lane where a test fails")
                self._store_near_or_apart(uop, kind, vector, found)
            else:
                linear = known and found is not None and self._is_linear(found.lanes)
                how = _described(self.linear, self.mask is not None) if linear else "lane by lane"
                self.note(uop, how)
                self._store_vector(uop, kind, vector, found if known else None)
        self.pure = self.pure and is_local

    def _as_stored(self, dtype: DType, value: str, n: int) -> str:
        return self.let(f"zext {of('i1', n)} {value} to {of('i8', n)}") if dtype is bool_ else value

    def _store_near_or_apart(self, uop: UOp, kind: str, vector: str, found: Index) -> None:
        """Store neighbours as one vector where tests hold, and lane by lane elsewhere."""
        place, tests = self.number(), self.missing(found.tests)
        self.branch(self.conjunction(tests), f"near.{place}", f"far.{place}", likely=True)
        for name, known in (("near", found), ("far", None)):
            self.label(f"{name}.{place}")
            marks = self.enter()
            self._store_vector(uop, kind, vector, known)
            self.leave(marks)
            self.jump(f"join.{place}")
        self.label(f"join.{place}")

    def _store_vector(self, uop: UOp, kind: str, vector: str, found: Index | None) -> None:
        size, n = dtype_of(uop.src[0]).itemsize, self.w
        if found is not None and self._is_linear(found.lanes):
            at = self.address(uop, self._plus(found.base, found.lanes[0]))
            if self.mask is None:
                self.line(f"store {of(kind, n)} {vector}, ptr {at}, align {size}")
            else:
                self._store_masked(kind, vector, at, size)
        elif found is not None and self.mask is None:
            for lane, far in enumerate(found.lanes):
                value = self.lane(kind, vector, n, lane)
                self.store(kind, value, self.address(uop, self._plus(found.base, far)))
        else:
            self._scatter(uop, kind, vector)

    def _store_masked(self, kind: str, vector: str, at: str, size: int) -> None:
        place, n = self.number(), self.w
        bools = self.bools()
        full = self.let(f"icmp eq i{n} {self.as_bits(bools)}, -1")
        self.branch(full, f"full.{place}", f"some.{place}")
        self.label(f"full.{place}")
        self.line(f"store {of(kind, n)} {vector}, ptr {at}, align {size}")
        self.jump(f"over.{place}")
        self.label(f"some.{place}")
        if size >= 4:
            kinds = [of(kind, n), "ptr", "i32", of("i1", n)]
            name = f"@llvm.masked.store.{mangled(kind, n)}.p0"
            self.run(name, kinds, [vector, at, str(size), bools])
        else:
            value_of = self.spread(kind, vector)

            def write(lane: str) -> None:
                to = self.let(f"getelementptr inbounds {kind}, ptr {at}, i64 {lane}")
                self.store(kind, value_of(lane), to)

            self.each_lane(bools, write)
        self.jump(f"over.{place}")
        self.label(f"over.{place}")

    def _scatter(self, uop: UOp, kind: str, vector: str) -> None:
        """Store an element for each lane that is on, in their order."""
        index_of = self.spread("i64", self._vector_index(uop))
        value_of, base = self.spread(kind, vector), self.arrays[uop.src[0]]

        def write(lane: str) -> None:
            place = f"getelementptr inbounds {kind}, ptr {base}, i64 {index_of(lane)}"
            self.store(kind, value_of(lane), self.let(place))

        self.each_lane(self.bools(), write)

    # -- lane by lane

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
        left = self.slot(f"i{n}", "left")
        self.store(f"i{n}", "-1" if bools.startswith("splat") else self.as_bits(bools), left)
        self.jump(f"each.{place}")
        self.label(f"each.{place}")
        bits = self.load(f"i{n}", left)
        self.branch(self.let(f"icmp ne i{n} {bits}, 0"), f"one.{place}", f"none.{place}")
        self.label(f"one.{place}")
        lane = self.call(f"@llvm.cttz.i{n}", f"i{n}", [f"i{n}", "i1"], [bits, "true"])
        if n < 64:
            lane = self.let(f"zext i{n} {lane} to i64")
        marks = self.enter()
        write(lane)
        self.leave(marks)
        rest = self.let(f"and i{n} {bits}, {self.let(f'add i{n} {bits}, -1')}")
        self.store(f"i{n}", rest, left)
        self.jump(f"each.{place}")
        self.label(f"none.{place}")

    # -- atomics

    def on_ATOMIC(self, uop: UOp) -> None:
        dtype = dtype_of(uop)
        kind, how = scalar(dtype), _WHOLE[uop.arg]
        is_shared = array_of(uop.src[0]).op == "SHARED"
        if how in ("min", "max") and dtype.kind == "u":
            how = f"u{how}"
        elif how == "add" and dtype.is_float:
            how = "fadd"

        def change(place: str, given: list[str]) -> str:
            if not is_shared:
                return self.let(f"atomicrmw {how} ptr {place}, {kind} {given[0]} monotonic")
            # A plain update is enough: one thread of the host runs all threads of a block.
            old = self.load(kind, place)
            self.store(kind, self._updated(uop.arg, dtype, old, given[0]), place)
            return old

        self._one_by_one(uop, uop.src[2:], change)

    def _updated(self, how: str, dtype: DType, old: str, given: str) -> str:
        """Return the new value of an element that an atomic operation changes."""
        if how == "EXCHANGE":
            return given
        if how in ("MIN", "MAX"):
            return self.least_or_greatest(how, dtype, 1, old, given)
        how = "fadd" if dtype.is_float else _WHOLE[how]
        return self.let(f"{how} {scalar(dtype)} {old}, {given}")

    def on_CAS(self, uop: UOp) -> None:
        kind, is_shared = scalar(dtype_of(uop)), array_of(uop.src[0]).op == "SHARED"

        def change(place: str, given: list[str]) -> str:
            expected, desired = given
            if is_shared:
                old = self.load(kind, place)
                same = self.let(f"icmp eq {kind} {old}, {expected}")
                self.store(kind, self.select(same, kind, desired, old), place)
                return old
            orders = "monotonic monotonic"
            both = self.let(f"cmpxchg ptr {place}, {kind} {expected}, {kind} {desired} {orders}")
            return self.let(f"extractvalue {{ {kind}, i1 }} {both}, 0")

        self._one_by_one(uop, uop.src[2:], change)

    def on_ATOMICLOAD(self, uop: UOp) -> None:
        if array_of(uop.src[0]).op == "SHARED":
            self.on_LOAD(uop)
            return
        dtype, order = dtype_of(uop), uop.arg.replace("relaxed", "monotonic")
        kind, align = scalar(dtype), f"align {dtype.itemsize}"
        pure = self.pure  # a load may be done again
        self._one_by_one(
            uop, (), lambda at, _: self.let(f"load atomic {kind}, ptr {at} {order}, {align}")
        )
        self.pure = pure

    def on_ATOMICSTORE(self, uop: UOp) -> None:
        if array_of(uop.src[0]).op == "SHARED":
            self.on_STORE(uop)
            return
        dtype, order = dtype_of(uop.src[2]), uop.arg.replace("relaxed", "monotonic")
        kind, align = scalar(dtype), f"align {dtype.itemsize}"

        def change(place: str, given: list[str]) -> str:
            self.line(f"store atomic {kind} {given[0]}, ptr {place} {order}, {align}")
            return ""

        self._one_by_one(uop, uop.src[2:], change)

    def on_FENCE(self, uop: UOp) -> None:
        self.line("fence acq_rel")

    def _one_by_one(
        self, uop: UOp, sources: tuple[UOp, ...], change: Callable[[str, list[str]], str]
    ) -> None:
        """Do an atomic operation for each lane that is on, in their order."""
        self.note(uop, "lane by lane: atomic")
        values = [self.get(source) for source in sources]
        memory, dtype = uop.src[0], dtype_of(uop.src[0])
        if self.w == 1:
            index = self.index(uop.src[1])
            base = index.base if index else ""
            old = change(self.address(uop, base), [value.base for value in values])
            if uop.dtype is not None:
                self.values[uop] = self.uniform(dtype, old)
            self.pure = False
            return
        kind, pointer = scalar(dtype), self.arrays[memory]
        index_of = self.spread("i64", self._vector_index(uop))
        given = [self.spread(scalar(value.dtype), self.vec(value)) for value in values]
        slot = self.slot(of(kind, self.w), "old")
        self.store(of(kind, self.w), "zeroinitializer", slot)

        def each(lane: str) -> None:
            at = self.let(f"getelementptr inbounds {kind}, ptr {pointer}, i64 {index_of(lane)}")
            old = change(at, [value(lane) for value in given])
            if old:
                self.store(kind, old, self.let(f"getelementptr {kind}, ptr {slot}, i64 {lane}"))

        self.each_lane(self.bools(), each)
        if uop.dtype is not None:
            self.values[uop] = self.vector(dtype, self.load(of(kind, self.w), slot))
        self.pure = False

    # -- memory of the kernel

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

    # -- blocks

    def enter(self) -> tuple[int, ...]:
        """Begin a block of the text: what is written in it is not known behind it."""
        return self.cache.mark(), self.true.mark(), self.indices.mark()

    def leave(self, marks: tuple[int, ...]) -> None:
        self.cache.back(marks[0])
        self.true.back(marks[1])
        self.indices.back(marks[2])


def _described(lanes: Lanes, masked: bool = False) -> str:
    """Return what an access of a pattern is."""
    steps = {b - a for a, b in pairwise(lanes)}
    step = steps.pop() if len(steps) == 1 else 0
    how = "linear: one vector" if step == 1 else f"stride {step}: a vector and a shuffle"
    how = how if step else "pattern: a vector and a shuffle"
    return f"{how}, under a mask" if masked else how
