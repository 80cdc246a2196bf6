"""Write atomic operations of a gang, lane by lane."""

from __future__ import annotations

from collections.abc import Callable

from hal_core.dtypes import DType
from hal_cpu.vectors.arithmetic import mangled, of, scalar
from hal_cpu.vectors.stores import Stores
from hal_cpu.vectors.value import Value
from hal_kernel.ir.uop import UOp, array_of, dtype_of

_WHOLE = {
    "ADD": "add", "MIN": "min", "MAX": "max", "AND": "and", "OR": "or", "XOR": "xor",
    "EXCHANGE": "xchg",
}  # fmt: skip


class Atomics(Stores):
    """Change memory for one lane after the other, in their order."""

    def on_ATOMIC(self, uop: UOp) -> None:
        dtype = dtype_of(uop)
        kind, how = scalar(dtype), _WHOLE[uop.arg]
        is_shared = array_of(uop.src[0]).op == "SHARED"
        if how in ("min", "max") and dtype.kind == "u":
            how = f"u{how}"
        elif how == "add" and dtype.is_float:
            how = "fadd"

        if self._is_joined(uop, is_shared):
            self._join_lanes(uop, how, is_shared)
            return

        def change(place: str, given: list[str]) -> str:
            if not is_shared:
                return self.let(f"atomicrmw {how} ptr {place}, {kind} {given[0]} monotonic")
            # A plain update is enough: one thread of the host runs all threads of a block.
            old = self.load(kind, place)
            self.store(kind, self._updated(uop.arg, dtype, old, given[0]), place)
            return old

        self._one_by_one(uop, uop.src[2:], change)

    def _is_joined(self, uop: UOp, is_shared: bool) -> bool:
        """Tell whether all lanes change one element, and none asks what it was.

        In memory of other threads too the sum of a float would round otherwise.
        """
        if self.w == 1 or uop in self.used or uop.arg == "EXCHANGE":
            return False
        found = self.index(uop.src[1])
        one = found is not None and not any(found.lanes) and self.require(found.tests)
        return one and (is_shared or not dtype_of(uop).is_float)

    def _join_lanes(self, uop: UOp, how: str, is_shared: bool) -> None:
        """Change an element once by what all lanes that are on give."""
        self.note(uop, "one for all lanes: atomic")
        dtype, n, found = dtype_of(uop), self.w, self.index(uop.src[1])
        kind, vector = scalar(dtype), self.vec(self.get(uop.src[2]))
        if self.mask is not None:
            neutral = _neutral(uop.arg, dtype)
            vector = self.masked(dtype, vector, self.constant(neutral, dtype))
        at = self.address(uop, found.base if found else "")
        name, lanes = f"@llvm.vector.reduce.{how}.{mangled(kind, n)}", of(kind, n)
        if dtype.is_float:  # in the order of the lanes
            old = self.load(kind, at)
            self.store(kind, self.call(name, kind, [kind, lanes], [old, vector]), at)
        else:
            name = name.replace(".min.", ".smin.").replace(".max.", ".smax.")
            given = self.call(name, kind, [lanes], [vector])
            if is_shared:
                self.store(kind, self._updated(uop.arg, dtype, self.load(kind, at), given), at)
            else:
                self.let(f"atomicrmw {how} ptr {at}, {kind} {given} monotonic")
        self.pure = False

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
        given = [self._of_lane(value) for value in values]
        is_used = uop in self.used
        slot = self.slot(of(kind, self.w), "old") if is_used else ""
        if is_used:
            self.store(of(kind, self.w), "zeroinitializer", slot)

        def each(lane: str) -> None:
            at = self.let(f"getelementptr inbounds {kind}, ptr {pointer}, i64 {index_of(lane)}")
            old = change(at, [value(lane) for value in given])
            if is_used:
                self.store(kind, old, self.let(f"getelementptr {kind}, ptr {slot}, i64 {lane}"))

        self.each_lane(self.bools(), each)
        if is_used:
            self.values[uop] = self.vector(dtype, self.load(of(kind, self.w), slot))
        self.pure = False

    def _of_lane(self, value: Value) -> Callable[[str], str]:
        """Return a function that gives a value in one lane, by the lane's number."""
        if self.is_uniform(value):
            return lambda lane: value.base
        return self.spread(scalar(value.dtype), self.vec(value))


def _neutral(how: str, dtype: DType) -> float:
    """Return what a lane gives that changes nothing."""
    if dtype.is_float:
        return -0.0
    if how == "AND":
        return -1 if dtype.kind == "i" else int(dtype.max)
    return {"MIN": int(dtype.max), "MAX": int(dtype.min)}.get(how, 0)
