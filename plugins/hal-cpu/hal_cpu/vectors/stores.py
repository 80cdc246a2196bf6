"""Write stores of a gang."""

from __future__ import annotations

from functools import partial

from hal_cpu.vectors.arithmetic import mangled, of, stored
from hal_cpu.vectors.loads import Loads
from hal_cpu.vectors.memory import Index, described
from hal_cpu.vectors.shapes import Shapes
from hal_cpu.vectors.tree import Loop
from hal_kernel.ir.uop import UOp, dtype_of


class Stores(Loads):
    """Store for each lane."""

    shapes: Shapes
    trying: Loop | None = None  # the loop of which an iteration may start again

    def on_STORE(self, uop: UOp) -> None:
        value = self.get(uop.src[2])
        dtype, n = value.dtype, self.w
        kind, found = stored(dtype), self._found(uop)
        known = found is not None and self.require(found.tests)
        if found is not None and known and not any(found.lanes) and self.is_uniform(value):
            self.note(uop, "uniform: one scalar")
            self.store(kind, self._as_stored(dtype, value.base, 1), self.address(uop, found.base))
        else:
            vector = self._as_stored(dtype, self.vec(value), n)
            if found is not None and (known or self.deferred) and self._is_bundled(uop):
                self.note(uop, f"part of one store at stride {self.bundles[uop].stride}")
                self._store_bundle(uop, kind, vector, found)
                return
            if found is not None and not known and self._is_linear(found.lanes):
                self.note(uop, f"{described(found.lanes)}, or lane by lane where a test fails")
                self.either(
                    self.conjunction(self.missing(found.tests)),
                    partial(self._store_vector, uop, kind, vector, found),
                    partial(self._store_vector, uop, kind, vector, None),
                    likely=True,
                )
            else:
                linear = known and found is not None and self._is_linear(found.lanes)
                how = described(self.linear, self.mask is not None) if linear else "lane by lane"
                self.note(uop, how)
                self._store_vector(uop, kind, vector, found if known else None)
        self.pure = self.pure and self._is_written_anew(uop.src[0])

    def _is_written_anew(self, array: UOp) -> bool:
        """Tell whether what starts again here also writes all of an array before it reads it."""
        around = [item for item, _ in self.shapes.paths.get(array, ())]
        return array.op == "LOCAL" and (self.trying is None or self.trying in around)

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
        n, bools = self.w, self.bools()

        def some() -> None:
            if size >= self.least_masked:
                kinds = [of(kind, n), "ptr", "i32", of("i1", n)]
                name = f"@llvm.masked.store.{mangled(kind, n)}.p0"
                self.run(name, kinds, [vector, at, str(size), self.hidden_mask()])
                return
            value_of = self.spread(kind, vector)

            def write(lane: str) -> None:
                to = self.let(f"getelementptr inbounds {kind}, ptr {at}, i64 {lane}")
                self.store(kind, value_of(lane), to)

            self.each_lane(bools, write)

        full = self.let(f"icmp eq i{n} {self.as_bits(bools)}, -1")
        whole = f"store {of(kind, n)} {vector}, ptr {at}, align {size}"
        self.either(full, lambda: self.line(whole), some)

    def _scatter(self, uop: UOp, kind: str, vector: str) -> None:
        """Store an element for each lane that is on, in their order."""
        index_of = self.spread("i64", self._vector_index(uop))
        value_of, base = self.spread(kind, vector), self.arrays[uop.src[0]]

        def write(lane: str) -> None:
            place = f"getelementptr inbounds {kind}, ptr {base}, i64 {index_of(lane)}"
            self.store(kind, value_of(lane), self.let(place))

        self.each_lane(self.bools(), write)

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
