"""Find simple forms of values in a gang: a scalar plus a constant for each lane.

    i = hal.global_idx(0)      x + (0, 1, 2, ...)
    k = min(i + 1, n - 1)      x + 1 + (0, 1, 2, ...)    where x + 8 <= n - 1
    i < n                      true in all lanes         where x + 7 < n
    i // w                     x // w                    where x % w + 7 < w
    i % 4                      0 + (0, 1, 2, 3, 0, ...)  where x % 4 == 0

Each form holds where scalar tests do, and costs a few scalar instructions for a whole gang.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hal_core.dtypes import DType, bool_, int32
from hal_cpu.vectors.arithmetic import OPPOSITE, SIGNED, scalar
from hal_cpu.vectors.lanes import LaneValues
from hal_cpu.vectors.value import NO_TESTS, Lanes, Tests, Value
from hal_kernel.ir.fold.constants import evaluate
from hal_kernel.ir.uop import UOp, dtype_of

Exact = Callable[[], str]


class Guesses(LaneValues):
    """Guess simple forms of values."""

    def derive(self, uop: UOp, values: Sequence[Value]) -> Value:
        """Return the value of an operation without effects."""
        dtype = dtype_of(uop)
        if not [value for value in values if not (value.is_flat and self.holds(value.tests))]:
            return self.uniform(dtype, self.operation(uop, [value.base for value in values], 1))

        def exact() -> str:
            return self.operation(uop, [self.vec(value) for value in values], self.w)

        if dtype.kind == "f":
            return self.vector(dtype, exact())
        guess = (self._guess_bool if dtype is bool_ else self._guess_number)(uop, values, exact)
        return guess if guess is not None else self.vector(dtype, exact())

    def fitting(self, value: Value) -> Tests:
        """Return the tests under which base + lanes does not wrap."""
        if value.fits or value.lanes is None or value.is_flat:
            return NO_TESTS
        low, high = min(value.lanes), max(value.lanes)
        dtype, kind, tests = value.dtype, scalar(value.dtype), set[str]()
        sign = "s" if dtype.kind == "i" else "u"
        if high > 0:
            tests.add(self.let(f"icmp {sign}le {kind} {value.base}, {int(dtype.max) - high}"))
        if low < 0:
            tests.add(self.let(f"icmp {sign}ge {kind} {value.base}, {int(dtype.min) - low}"))
        return frozenset(tests)

    def ends(self, value: Value) -> tuple[str, str]:
        """Return the least and the greatest lane of a pattern that does not wrap."""
        kind, lanes = scalar(value.dtype), value.lanes or self.zero
        low, high = (
            value.base if not far else self.let(f"add {kind} {value.base}, {far}")
            for far in (min(lanes), max(lanes))
        )
        return low, high

    def _guess_number(self, uop: UOp, values: Sequence[Value], exact: Exact) -> Value | None:
        op, dtype = uop.op, dtype_of(uop)
        if any(value.lanes is None for value in values if value.dtype is not bool_):
            return None
        if all(value.dtype.kind in "iu" and not value.base.startswith("%") for value in values):
            return self._known_numbers(uop, values, exact)
        if op in ("ADD", "SUB", "NEG", "MUL"):
            return self._guess_sum(uop, values, exact)
        if op == "CAST" and uop.src[0].dtype is not None and uop.src[0].dtype.kind in "iu":
            (a,) = values
            if a.dtype.itemsize < 4 or dtype.itemsize < 4:
                return None
            base = self.cast(a.dtype, dtype, a.base, 1)
            if dtype.itemsize <= a.dtype.itemsize:  # both wrap alike
                return Value(dtype, base, a.lanes, a.tests, exact)
            fits = a.dtype.kind == "u" or dtype.kind == "i"
            return Value(dtype, base, a.lanes, a.tests | self.fitting(a), exact, fits)
        if op in ("MIN", "MAX"):
            return self._guess_clamp(op, values, exact)
        if op == "WHERE":
            return self._guess_choice(dtype, values, exact)
        constant = int(uop.src[1].arg) if len(uop.src) > 1 and uop.src[1].op == "CONST" else None
        if op in ("SHR", "AND"):
            if constant is None:
                return None
            if op == "SHR" and 0 <= constant < 16:
                return self._guess_repeated("FLOORDIV", 1 << constant, values[0], exact)
            if op == "AND" and constant > 0 and constant & (constant + 1) == 0:
                return self._guess_repeated("MOD", constant + 1, values[0], exact)
            return None
        if op in ("FLOORDIV", "MOD", "TRUNCDIV", "TRUNCMOD"):
            a, b = values
            if constant is not None and 0 < constant <= self.w and min(a.lanes or (0,)) >= 0:
                return self._guess_repeated(op, constant, a, exact)
            return self._guess_quotient(op, a, b, exact)
        return None

    def _known_numbers(self, uop: UOp, values: Sequence[Value], exact: Exact) -> Value | None:
        """Return what is computed of numbers that are known for each lane, where tests hold."""
        numbers = [[int(value.base) + n for n in value.lanes or ()] for value in values]
        found = [evaluate(uop, [*lane]) for lane in zip(*numbers, strict=True)]
        tests = frozenset[str]().union(*(value.tests for value in values))
        lanes = tuple([int(number) for number in found if number is not None])
        whole = len(lanes) == self.w
        return Value(dtype_of(uop), "0", lanes, tests, exact, fits=True) if whole else None

    def _guess_sum(self, uop: UOp, values: Sequence[Value], exact: Exact) -> Value | None:
        op, dtype = uop.op, dtype_of(uop)
        kind, a = scalar(dtype), values[0]
        if op == "NEG":
            base = self.let(f"sub {kind} 0, {a.base}")
            return Value(dtype, base, multiplied(a.lanes, -1), a.tests, exact)
        b = values[1]
        tests = a.tests | b.tests
        if op != "MUL":
            lanes = added(op, a.lanes, b.lanes)
            return Value(
                dtype, self.let(f"{op.lower()} {kind} {a.base}, {b.base}"), lanes, tests, exact
            )
        for x, y, factor in ((a, b, uop.src[1]), (b, a, uop.src[0])):
            if factor.op == "CONST":
                base = self.let(f"mul {kind} {x.base}, {y.base}")
                return Value(dtype, base, multiplied(x.lanes, int(factor.arg)), x.tests, exact)
        if a.is_flat and b.is_flat:
            base = self.let(f"mul {kind} {a.base}, {b.base}")
            return Value(dtype, base, self.zero, tests, exact)
        return None

    def _guess_clamp(self, op: str, values: Sequence[Value], exact: Exact) -> Value | None:
        """Guess that a MIN or MAX with a uniform value is the other one in all lanes."""
        a, b = values if not values[0].is_flat else values[::-1]
        if a.is_flat or not b.is_flat:
            return None
        low, high = self.ends(a)
        sign, kind = "s" if a.dtype.kind == "i" else "u", scalar(a.dtype)
        order, end = ("le", high) if op == "MIN" else ("ge", low)
        test = self.let(f"icmp {sign}{order} {kind} {end}, {b.base}")
        tests = a.tests | b.tests | self.fitting(a) | {test}
        return Value(a.dtype, a.base, a.lanes, tests, exact, fits=True)

    def _guess_choice(self, dtype: DType, values: Sequence[Value], exact: Exact) -> Value | None:
        condition, a, b = values
        if condition.is_flat and a.lanes != b.lanes:
            if not a.is_flat and not b.is_flat:
                return None
            always, never = self._sides(condition)
            side, test = (b, never) if a.is_flat else (a, always)
            tests = side.tests | condition.tests | {test or ""}
            return Value(dtype, side.base, side.lanes, tests, exact, fits=side.fits)
        if condition.is_flat:
            base = self.select(condition.base, scalar(dtype), a.base, b.base)
            return Value(dtype, base, a.lanes, a.tests | b.tests | condition.tests, exact)
        side, test = (b, condition.never) if a.is_flat else (a, condition.always)
        if test is None:
            return None
        tests = side.tests | condition.tests | {test}
        return Value(dtype, side.base, side.lanes, tests, exact, fits=side.fits)

    def _guess_repeated(self, op: str, constant: int, a: Value, exact: Exact) -> Value | None:
        """Guess that the first lane is a multiple: quotients are shared, remainders repeat."""
        dtype, kind = a.dtype, scalar(a.dtype)
        if self.w % constant or a.lanes is None or min(a.lanes) < 0:
            return None
        is_power = constant & (constant - 1) == 0
        if is_power:
            rest = self.let(f"and {kind} {a.base}, {constant - 1}")
        else:
            rest = self.let(f"{'s' if dtype.kind == 'i' else 'u'}rem {kind} {a.base}, {constant}")
        tests = a.tests | self.fitting(a) | {self.let(f"icmp eq {kind} {rest}, 0")}
        if dtype.kind == "i" and (op.startswith("TRUNC") or not is_power):
            tests |= {self.let(f"icmp sge {kind} {a.base}, 0")}
        if op.endswith("MOD"):
            return Value(dtype, "0", tuple(n % constant for n in a.lanes), tests, exact, fits=True)
        # Not `sdiv exact`: tests of this value are joined with the one that it is a multiple, and a
        # value that is poison where it is none would be all of them.
        how = "sdiv" if dtype.kind == "i" else "udiv"
        base = self.let(f"{how} {kind} {a.base}, {constant}")
        return Value(dtype, base, tuple(n // constant for n in a.lanes), tests, exact, fits=True)

    def _guess_quotient(self, op: str, a: Value, b: Value, exact: Exact) -> Value | None:
        """Guess that all lanes have the same quotient by a uniform number."""
        if a.lanes is None or not b.is_flat:
            return None
        dtype, kind = a.dtype, scalar(a.dtype)
        sign = "s" if dtype.kind == "i" else "u"
        good = self.let(f"icmp {sign}gt {kind} {b.base}, 0")
        safe = self.select(good, kind, b.base, "1")
        if dtype is int32:  # by a reciprocal: the tests find where it is one off
            inverse = self.let(f"fdiv double 1.0, {self.let(f'sitofp i32 {safe} to double')}")
            x = self.let(f"sitofp i32 {a.base} to double")
            x = self.let(f"fadd double {self.let(f'fmul double {x}, {inverse}')}, 1.0e-10")
            quotient = self.let(f"fptosi double {x} to i32")
        else:
            quotient = self.let(f"udiv {kind} {a.base}, {safe}")
        rest = self.let(f"sub {kind} {a.base}, {self.let(f'mul {kind} {quotient}, {safe}')}")
        ends = [self.let(f"add {kind} {rest}, {far}") for far in (min(a.lanes), max(a.lanes))]
        tests = {good, *(self.let(f"icmp ult {kind} {end}, {safe}") for end in ends)}
        if sign == "s":  # below zero some quotients round to zero, others down
            tests.add(self.let(f"icmp sge {kind} {a.base}, {-min(0, *a.lanes)}"))
        tests |= a.tests | b.tests | self.fitting(a)
        if op.endswith("MOD"):
            return Value(dtype, rest, a.lanes, frozenset(tests), exact, fits=True)
        return Value(dtype, quotient, self.zero, frozenset(tests), exact)

    def _guess_bool(self, uop: UOp, values: Sequence[Value], exact: Exact) -> Value | None:
        op = uop.op
        if op in SIGNED:
            a, b = values
            return self._guess_comparison(op, a, b, exact) if a.dtype.kind in "iu" else None
        if op == "WHERE" and self.is_uniform(values[0]):
            condition, a, b = values
            always, never = (
                self.select(condition.base, "i1", x or "false", y or "false") if x or y else None
                for x, y in zip(self._sides(a), self._sides(b), strict=True)
            )
            return Value(bool_, tests=a.tests | b.tests, exact=exact, always=always, never=never)
        if op not in ("AND", "OR", "NOT"):
            return None
        if all(
            value.always is None and value.never is None and value.lanes is None for value in values
        ):
            return None
        tests = frozenset[str]().union(*(value.tests for value in values))
        always, never = self._sides(values[0])
        if op == "NOT":
            return Value(bool_, tests=tests, exact=exact, always=never, never=always)
        more, less = self._sides(values[1])
        if op == "AND":
            always, never = self._join("and", always, more), self._either(never, less)
        else:
            always, never = self._either(always, more), self._join("and", never, less)
        return Value(bool_, tests=tests, exact=exact, always=always, never=never)

    def _sides(self, value: Value) -> tuple[str | None, str | None]:
        """Return scalars that suffice for all lanes to be true, and false."""
        if value.is_flat:
            return value.base, self.let(f"xor i1 {value.base}, true")
        return value.always, value.never

    def _join(self, how: str, a: str | None, b: str | None) -> str | None:
        return None if a is None or b is None else self.let(f"{how} i1 {a}, {b}")

    def _either(self, a: str | None, b: str | None) -> str | None:
        return self.let(f"or i1 {a}, {b}") if a and b else a or b

    def _guess_comparison(self, op: str, a: Value, b: Value, exact: Exact) -> Value | None:
        if a.lanes is None or b.lanes is None:
            return None
        dtype, tests = a.dtype, a.tests | b.tests
        if a.lanes == b.lanes:
            if not a.is_flat:
                tests |= self.fitting(a) | self.fitting(b)
            return Value(bool_, self.compare(op, dtype, 1, a.base, b.base), self.zero, tests, exact)
        if not a.base.startswith("%") and not b.base.startswith("%"):
            self.require(tests)  # numbers that LLVM compares when it compiles
            return self.vector(bool_, exact())
        tests |= self.fitting(a) | self.fitting(b)
        (low, high), (least, most) = self.ends(a), self.ends(b)
        always: str | None
        never: str | None
        if op in ("EQ", "NE"):
            less = self.compare("LT", dtype, 1, high, least)
            apart = self.let(f"or i1 {less}, {self.compare('GT', dtype, 1, low, most)}")
            always, never = (apart, None) if op == "NE" else (None, apart)
        else:
            first, second = (
                ((high, least), (low, most)) if op in ("LT", "LE") else ((low, most), (high, least))
            )
            always = self.compare(op, dtype, 1, *first)
            never = self.compare(OPPOSITE[op], dtype, 1, *second)
        return Value(bool_, tests=tests, exact=exact, always=always, never=never)


def multiplied(lanes: Lanes | None, factor: int) -> Lanes:
    return tuple([n * factor for n in lanes or ()])


def added(op: str, a: Lanes | None, b: Lanes | None) -> Lanes:
    """Return the sum of two patterns, or for SUB their difference."""
    sign = 1 if op == "ADD" else -1
    return tuple([x + sign * y for x, y in zip(a or (), b or (), strict=True)])
