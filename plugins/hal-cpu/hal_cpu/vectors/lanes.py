"""Values of a gang, what is known of them where the writer stands, and masks.

A mask is an integer for each lane that is all ones or zero, which any processor keeps in vectors.
"""

from __future__ import annotations

from collections.abc import Sequence

from hal_core.dtypes import DType
from hal_cpu.vectors.arithmetic import number, of, scalar, typed
from hal_cpu.vectors.functions import Functions
from hal_cpu.vectors.text import Scoped
from hal_cpu.vectors.value import Lanes, Tests, Value
from hal_kernel.ir.uop import UOp

_PARTED = "where lanes part"


class LaneValues(Functions):
    """Values of a gang of `w` threads."""

    w: int
    zero: Lanes
    linear: Lanes

    def __init__(self, half: bool, fma: bool) -> None:
        super().__init__(half, fma)
        self.set_width(1)
        self.mask: str | None = None  # of the threads that run what is written; None: all do
        self.pure = True  # nothing was stored, so that the gang may start again
        self.again = ""  # the label where it does
        self.guessed = False  # something goes there
        self.notes: dict[UOp, str] = {}  # what becomes of accesses, IFs and loops: `explain`
        self.noting = ""  # what is noted where lanes are no matter; "": nothing is
        self.reset()

    def note(self, node: UOp, how: str) -> None:
        """Note how a node is written: first, as for all lanes, and then where they part."""
        how = how if self.w > 1 else self.noting
        first = self.notes.setdefault(node, how) if self.noting else how
        if how != first and _PARTED not in first:
            rest = how.removeprefix(f"{first}, ").removeprefix("or ")
            self.notes[node] = f"{first}; {_PARTED}: {rest}"

    def set_width(self, w: int) -> None:
        self.w, self.zero, self.linear = w, (0,) * w, tuple(range(w))

    def reset(self) -> None:
        """Forget all that is known."""
        self.cache = Scoped(self.log)
        self.true: Scoped[str, bool] = Scoped(self.log)  # tests that hold here

    def uniform(self, dtype: DType, base: str, fits: bool = False) -> Value:
        return Value(dtype, base, self.zero, fits=fits)

    def vector(self, dtype: DType, vector: str) -> Value:
        """Return a value of which nothing is known but its vector."""
        return Value(dtype, vector=vector)

    def holds(self, tests: Tests) -> bool:
        return not tests or self.true.keys() >= tests

    def is_uniform(self, value: Value) -> bool:
        return value.is_flat and self.holds(value.tests)

    def vec(self, value: Value) -> str:
        """Return the exact vector of a value."""
        name = value.vector or self.cache.get(value)
        if name is None:
            if value.lanes is not None and self.holds(value.tests):
                kind = scalar(value.dtype)
                name = self.splat(kind, value.base)
                if not value.is_flat:
                    name = self.let(
                        f"add {of(kind, self.w)} {name}, {self.per_lane(kind, value.lanes)}"
                    )
            elif value.exact is not None:
                name = value.exact()
            else:
                raise RuntimeError("no form of this value holds here")
            self.cache.put(value, name)
        return name

    def splat(self, kind: str, value: str) -> str:
        """Return a vector that has a scalar in all lanes."""
        if self.w == 1:
            return value
        if not value.startswith("%"):
            return f"splat ({kind} {value})"
        vector = of(kind, self.w)
        first = self.let(f"insertelement {vector} poison, {kind} {value}, i64 0")
        zeros = f"<{self.w} x i32> zeroinitializer"
        return self.let(f"shufflevector {vector} {first}, {vector} poison, {zeros}")

    def per_lane(self, kind: str, numbers: Sequence[int]) -> str:
        """Return a constant vector."""
        return "<" + ", ".join(f"{kind} {n}" for n in numbers) + ">"

    def conjunction(self, tests: Tests) -> str:
        """Return a scalar that is true if all tests hold; "" without tests."""
        whole = ""
        for test in sorted(tests):
            whole = self.let(f"and i1 {whole}, {test}") if whole else test
        return whole

    def missing(self, tests: Tests) -> Tests:
        return frozenset(test for test in tests if test not in self.true)

    def require(self, tests: Tests) -> bool:
        """Go on only where tests hold, if the gang may start again; else tell whether they do."""
        missing = self.missing(tests)
        if not missing:
            return True
        if self.mask is not None or not self.pure or self.w == 1:
            return False
        go = f"go.{self.number()}"
        self.branch(self.conjunction(missing), go, self.again, likely=True)
        self.guessed = True
        self.label(go)
        for test in missing:
            self.true.put(test, True)
        return True

    @property
    def mask_kind(self) -> str:
        return of("i32", self.w)

    def as_mask(self, bools: str) -> str:
        return self.let(f"sext <{self.w} x i1> {bools} to {self.mask_kind}")

    def bools(self) -> str:
        """Return the mask here as a vector of i1."""
        if self.mask is None:
            return "splat (i1 true)"
        key = ("bools", self.mask)
        name = self.cache.get(key)
        if name is None:
            name = self.let(f"icmp ne {self.mask_kind} {self.mask}, zeroinitializer")
            self.cache.put(key, name)
        return name

    def as_bits(self, bools: str) -> str:
        """Return a vector of i1 as an integer, with a bit for each lane."""
        return self.let(f"bitcast <{self.w} x i1> {bools} to i{self.w}")

    def any(self, mask: str) -> str:
        """Return whether any lane of a mask is on."""
        bools = self.let(f"icmp ne {self.mask_kind} {mask}, zeroinitializer")
        return self.let(f"icmp ne i{self.w} {self.as_bits(bools)}, 0")

    def inverse(self, mask: str) -> str:
        return self.let(f"xor {self.mask_kind} {mask}, splat (i32 -1)")

    def masked(self, dtype: DType, new: str, old: str) -> str:
        """Return new values for the lanes that are on, and the old ones for the others."""
        return self.select(self.bools(), typed(dtype, self.w), new, old)

    def constant(self, value: float, dtype: DType) -> str:
        return number(value, dtype, self.w)
