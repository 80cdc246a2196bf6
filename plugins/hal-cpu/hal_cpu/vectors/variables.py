"""Write variables of a gang: what a thread sets and reads, under masks too."""

from __future__ import annotations

from functools import partial

from hal_cpu.vectors.arithmetic import of, scalar, stored
from hal_cpu.vectors.atomics import Atomics
from hal_cpu.vectors.text import Scoped
from hal_cpu.vectors.tree import If, Item, Loop, facts, jumps
from hal_cpu.vectors.value import Lanes, Value, wrapped
from hal_kernel.ir.uop import UOp, dtype_of


class Variables(Atomics):
    """Variables are memory of the function, of which LLVM makes registers."""

    def __init__(self, half: bool, fma: bool) -> None:
        super().__init__(half, fma)
        self.slots: dict[UOp, tuple[str, str]] = {}  # variable -> its slot and type
        self.outer_slots: dict[UOp, tuple[str, str]] = {}
        self.clearing: list[str] = []  # lines at the start of a body, which clear its variables
        self.env: Scoped[UOp, Value] = Scoped(self.log)  # variable -> what it holds here
        self.choosing = 0  # sides of IFs that are run without a branch

    def is_varying(self, node: UOp) -> bool:
        return self.w > 1 and node in self.shapes.varying

    def slot_of(self, variable: UOp) -> tuple[str, str]:
        found = self.slots.get(variable) or self.outer_slots.get(variable)
        if found is None:
            dtype, varying = dtype_of(variable), self.is_varying(variable)
            kind = of(stored(dtype), self.w) if varying else scalar(dtype)
            found = self.slots[variable] = self.slot(kind, "var"), kind
            if varying:  # or lanes that are off hold what the gang before left
                self.clearing.append(f"  store {kind} zeroinitializer, ptr {found[0]}")
            if self.pattern_of(variable):
                self.frame.append(f"  {found[0]}.base = alloca {scalar(dtype)}")
                self.frame.append(f"  {found[0]}.is = alloca i1")
        return found

    def pattern_of(self, variable: UOp) -> Lanes | None:
        """Return the pattern that an integer variable likely has."""
        stride = self.shapes.expected.get(variable) if self.w > 1 else None
        if not stride:
            return None
        return wrapped(dtype_of(variable), tuple(stride * n for n in self.linear))

    def on_SET(self, uop: UOp) -> None:
        variable, value = uop.src
        if variable.op == "SPILL":
            self._spill(variable, self.get(value))
        elif self.choosing:
            self.env.put(variable, self.get(value))
        else:
            blends = self.mask is not None and self._needs_blend(uop)
            self.assign(variable, self.get(value), blends)

    def assign(self, variable: UOp, value: Value, blends: bool) -> None:
        """Set a variable; one that `blends`, for the lanes that are on only."""
        if self.trying is not None and not self.shapes.is_inside(variable, self.trying):
            self.pure = False
        if not self.is_varying(variable):
            slot, kind = self.slot_of(variable)
            self.store(kind, value.base, slot)
        else:
            if blends:
                old, dtype = self.vec(self.held(variable)), value.dtype
                value = self.vector(dtype, self.masked(dtype, self.vec(value), old))
            self._keep(variable, value)
        self.env.put(variable, value)

    def _keep(self, variable: UOp, value: Value) -> None:
        """Store what a variable holds: as a pattern where it is one, and else as a vector."""
        slot, _ = self.slot_of(variable)
        pattern, is_so = self.pattern_of(variable), ""
        if pattern:
            if value.lanes == pattern:
                tests = self.missing(value.tests | self.fitting(value))
                is_so = self.conjunction(tests) or "true"
                self.store(scalar(value.dtype), value.base, f"{slot}.base")
            self.store("i1", is_so or "false", f"{slot}.is")
        if is_so == "true":
            return  # the vector follows from the base
        if is_so and self.mask is None:
            keep = partial(self._keep_vector, variable, value)
            self.either(is_so, lambda: None, keep, likely=True)
        else:
            self._keep_vector(variable, value)

    def _keep_vector(self, variable: UOp, value: Value) -> None:
        slot, kind = self.slot_of(variable)
        self.store(kind, self._as_stored(value.dtype, self.vec(value), self.w), slot)

    def on_GET(self, uop: UOp) -> None:
        (variable,) = uop.src
        if variable.op == "SPILL":
            self.values[uop] = self._unspilled(variable)
        else:
            self.values[uop] = self.held(variable)

    def held(self, variable: UOp) -> Value:
        """Return what a variable holds."""
        known = self.env.get(variable)
        if known is not None:
            return known
        slot, kind = self.slot_of(variable)
        dtype, loaded = dtype_of(variable), self.load(kind, slot)
        if not self.is_varying(variable):
            value = self.uniform(dtype, loaded)
        else:
            value = self.vector(dtype, self._as_value(dtype, loaded, self.w))
            pattern = self.pattern_of(variable)
            if pattern:
                base = self.load(scalar(dtype), f"{slot}.base")
                is_so = self.load("i1", f"{slot}.is")

                def exact() -> str:
                    lanes = self.per_lane(scalar(dtype), pattern)
                    whole = self.let(f"add {kind} {self.splat(scalar(dtype), base)}, {lanes}")
                    return self.let(f"select i1 {is_so}, {kind} {whole}, {kind} {loaded}")

                value = Value(dtype, base, pattern, frozenset({is_so}), exact, fits=True)
        self.env.put(variable, value)
        return value

    def forget(self, block: list[Item]) -> None:
        """Forget the values of variables that a block sets."""
        for variable in facts(block).sets:
            if variable in self.env:
                self.env.drop(variable)

    def _needs_blend(self, uop: UOp) -> bool:
        """Tell whether lanes that are off here may read the variable that is set, later."""
        path = self.shapes.paths.get(uop)
        if path is None:
            return True
        for n in range(len(path), 0, -1):
            item, side = path[n - 1]
            if isinstance(item, Loop):
                if item.node not in self.shapes.divergent:
                    continue
                if any(node.op == "CONTINUE" for node in facts(item).leaves):
                    return True
                return self.shapes.outlives(uop.src[0], path[:n])
            if isinstance(item, If) and item.node.src[0] in self.shapes.varying:
                other = item.sides[1 - side]
                leaves = len(other) == 1 and jumps(other)
                if not leaves or (isinstance(other[0], UOp) and other[0].op == "CONTINUE"):
                    return True
        return False

    # -- values that live across barriers, in arrays with an element for each thread of the block

    def _spill(self, spill: UOp, value: Value) -> None:
        dtype, at = dtype_of(spill), self._spilled(spill)
        kind = of(stored(dtype), self.w)
        vector = self._as_stored(dtype, self.vec(value), self.w)
        if self.mask is not None:  # no other thread changes it meanwhile
            old = self.let(f"load {kind}, ptr {at}, align {dtype.itemsize}")
            vector = self.select(self.bools(), kind, vector, old)
        self.line(f"store {kind} {vector}, ptr {at}, align {dtype.itemsize}")
        self.pure = False

    def _unspilled(self, spill: UOp) -> Value:
        dtype, at = dtype_of(spill), self._spilled(spill)
        kind = of(stored(dtype), self.w)
        loaded = self.let(f"load {kind}, ptr {at}, align {dtype.itemsize}")
        loaded = self._as_value(dtype, loaded, self.w)
        return self.uniform(dtype, loaded) if self.w == 1 else self.vector(dtype, loaded)

    def _spilled(self, spill: UOp) -> str:
        kind = stored(dtype_of(spill))
        return self.let(
            f"getelementptr inbounds {kind}, ptr {self.arrays[spill]}, i64 {self.thread}"
        )
