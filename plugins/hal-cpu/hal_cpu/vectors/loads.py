"""Write loads of a gang."""

from __future__ import annotations

from hal_cpu.vectors.arithmetic import mangled, of, scalar, stored
from hal_cpu.vectors.memory import Index, Memory, described
from hal_cpu.vectors.value import Value
from hal_kernel.ir.uop import UOp, dtype_of

_PAGE = 4096


class Loads(Memory):
    """Load for each lane."""

    def on_LOAD(self, uop: UOp) -> None:
        self.values[uop] = self._loaded(uop)

    def _loaded(self, uop: UOp) -> Value:
        dtype, kind = dtype_of(uop), stored(dtype_of(uop))
        found = self._found(uop)
        if found is not None and self.require(found.tests):
            if self._is_bundled(uop):
                self.note(uop, f"part of one load at stride {self.bundles[uop].stride}")
                return self.vector(dtype, self._part_of_wide(uop, kind, found))
            low, high = min(found.lanes), max(found.lanes)
            if low == high and (uop.src[0].op != "LOCAL" or self.w == 1):
                self.note(uop, "uniform: one scalar")
                at = self.address(uop, self._plus(found.base, low))
                value = self.let(f"load {kind}, ptr {at}", self.least)
                return self.uniform(dtype, self._as_value(dtype, value, 1))
            if self._is_near(found.lanes) and (
                self.mask is None or self._is_linear(found.lanes) or uop.src[0].op == "LOCAL"
            ):
                self.note(uop, described(found.lanes, self.mask is not None))
                return self.vector(dtype, self._near(uop, kind, found))
        elif found is not None and (
            self._is_near(found.lanes) if self.mask is None else self._is_linear(found.lanes)
        ):
            self.note(uop, f"{described(found.lanes)}, or gathered where a test fails")
            return self.vector(dtype, self._near_or_gathered(uop, kind, found))
        self.note(uop, "gathered: an address for each lane")
        return self.vector(dtype, self._gathered(uop, kind))

    def _near(self, uop: UOp, kind: str, found: Index) -> str:
        """Load neighbours as one vector, and shuffle it if they are not in order."""
        low, n = min(found.lanes), self.w
        at = self.address(uop, self._plus(found.base, low))
        lanes, dtype = tuple(lane - low for lane in found.lanes), dtype_of(uop)
        align, vector = f"align {dtype.itemsize}", of(kind, n)
        if lanes != self.linear:
            span = max(lanes) + 1
            whole = self.let(f"load {of(kind, span)}, ptr {at}, {align}", self.least)
            order = f"{of('i32', n)} {self.per_lane('i32', lanes)}"
            value = self.let(
                f"shufflevector {of(kind, span)} {whole}, {of(kind, span)} poison, {order}"
            )
        elif self.mask is None or uop.src[0].op == "LOCAL":
            value = self.let(f"load {vector}, ptr {at}, {align}", self.least)
        elif dtype.itemsize >= self.least_masked:
            name = f"@llvm.masked.load.{mangled(kind, n)}.p0"
            kinds = ["ptr", "i32", of("i1", n), vector]
            operands = [at, str(dtype.itemsize), self.hidden_mask(), "zeroinitializer"]
            value = self.call(name, vector, kinds, operands, self.least)
        else:
            value = self._small(kind, at)
        return self._as_value(dtype, value, n)

    def _small(self, kind: str, at: str) -> str:
        """Load small elements under a mask: all of them where that crosses no page."""
        n, vector, bools = self.w, of(kind, self.w), self.bools()
        slot = self.slot(vector, "small")
        offset = self.let(f"and i64 {self.let(f'ptrtoint ptr {at} to i64')}, {_PAGE - 1}")
        fits = self.let(f"icmp ule i64 {offset}, {_PAGE - n * int(kind[1:]) // 8}")

        def whole() -> None:
            self.store(vector, self.let(f"load {vector}, ptr {at}, align 1"), slot)

        def copy(lane: str) -> None:
            value = self.load(kind, self.let(f"getelementptr {kind}, ptr {at}, i64 {lane}"))
            self.store(kind, value, self.let(f"getelementptr {kind}, ptr {slot}, i64 {lane}"))

        def parts() -> None:
            self.store(vector, "zeroinitializer", slot)
            self.each_lane(bools, copy)

        self.either(fits, whole, parts, likely=True)
        return self.load(vector, slot)

    def _part_of_wide(self, uop: UOp, kind: str, found: Index) -> str:
        """Return a member's part of one load that all members of its bundle share."""
        bundle, n = self.bundles[uop], self.w
        low, high = min(bundle.offsets), max(bundle.offsets)
        wide = of(kind, bundle.stride * (n - 1) + high - low + 1)
        whole, own = self.cache.get(bundle), bundle.offset(uop)
        size = dtype_of(uop).itemsize
        if whole is None:
            at = self._first_of(uop, found, low - own)
            whole = self.let(f"load {wide}, ptr {at}, align {size}", self.least)
            self.cache.put(bundle, whole)
        lanes = [own - low + bundle.stride * lane for lane in self.linear]
        order = f"{of('i32', n)} {self.per_lane('i32', lanes)}"
        part = self.let(f"shufflevector {wide} {whole}, {wide} poison, {order}")
        return self._as_value(dtype_of(uop), part, n)

    def _near_or_gathered(self, uop: UOp, kind: str, found: Index) -> str:
        """Load neighbours where tests hold, and gather elsewhere."""
        vector = of(scalar(dtype_of(uop)), self.w)
        slot = self.slot(vector, "either")
        self.either(
            self.conjunction(self.missing(found.tests)),
            lambda: self.store(vector, self._near(uop, kind, found), slot),
            lambda: self.store(vector, self._gathered(uop, kind), slot),
            likely=True,
        )
        return self.load(vector, slot)

    def _gathered(self, uop: UOp, kind: str) -> str:
        """Load an element for each lane.

        Where the processor has no masks for it, lanes that are off load what the first one does.
        """
        n, dtype = self.w, dtype_of(uop)
        index, bools = self._vector_index(uop), self.bools()
        if self.mask is not None and (not self.has_gathers or dtype.itemsize < 4):
            first = self.call(
                f"@llvm.cttz.i{n}", f"i{n}", [f"i{n}", "i1"], [self.as_bits(bools), "true"]
            )
            shared = self.let(f"extractelement {of('i64', n)} {index}, i{n} {first}")
            index = self.select(bools, of("i64", n), index, self.splat("i64", shared))
            bools = "splat (i1 true)"
        base = self.arrays[uop.src[0]]
        at = self.let(f"getelementptr inbounds {kind}, ptr {base}, {of('i64', n)} {index}")
        name = f"@llvm.masked.gather.{mangled(kind, n)}.v{n}p0"
        kinds = [of("ptr", n), "i32", of("i1", n), of(kind, n)]
        operands = [at, str(dtype.itemsize), bools, "zeroinitializer"]
        return self._as_value(dtype, self.call(name, of(kind, n), kinds, operands), n)
