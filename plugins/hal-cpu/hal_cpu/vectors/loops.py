"""Write the loops of a gang: while all lanes are in, and then with a mask.

for k in range(n):        uniform: a scalar counts
for k in range(i, n):     while all lanes are in it without a mask, then with one
while z < limit:          likewise, where it begins with its test
"""

from __future__ import annotations

from typing import NamedTuple

from hal_cpu.vectors.arithmetic import of, scalar
from hal_cpu.vectors.branches import CHEAP, Branches, Frame
from hal_cpu.vectors.tree import If, Item, Loop, facts
from hal_cpu.vectors.value import Tests, Value
from hal_kernel.ir.uop import ATOMIC_OPS, UOp, dtype_of

_TOGETHER = "all lanes while all are in, then masked"


class Counted(NamedTuple):
    """A RANGE that is open: the slot of its counter, the counter and its end, in 64 bits."""

    slot: str
    at: str
    stop: str


class Loops(Branches):
    """Write loops."""

    def write_loop(self, item: Loop) -> None:
        node, place = item.node, self.number()
        if facts(item).has_effects:
            self.pure = False
        self.forget(item.body)
        divergent = node in self.shapes.divergent
        if node.op == "RANGE" and not (divergent and facts(item).leaves) and self._is_alike(node):
            self.note(node, "uniform: all lanes run it alike")
            self._counted(item, place, *map(self.get, node.src[:2]))
        elif node.op == "LOOP" and not divergent:
            self.note(node, "uniform: all lanes leave it together")
            self._endless(item, place)
        else:
            staggered = not divergent or node in self.shapes.staggered
            self.note(node, _TOGETHER if staggered else "masked: lanes leave it one by one")
            self._loop_by_lanes(item, place)
        self.forget(item.body)

    def _is_alike(self, node: UOp) -> bool:
        """Tell whether all lanes run a RANGE equally often, by tests if need be."""
        start, stop = map(self.get, node.src[:2])
        if start.lanes is None or start.lanes != stop.lanes:
            return False
        fits = self.fitting(start) | self.fitting(stop)
        return self.require(start.tests | stop.tests | fits)

    def _endless(self, item: Loop, place: int) -> None:
        self.open_loop(f"step.{place}")
        self._body(item, Frame(f"end.{place}", f"step.{place}"))
        self.close_loop()
        self.label(f"end.{place}")

    def _body(self, item: Loop, frame: Frame) -> None:
        self.frames.append(frame)
        self._iteration(item, item.body, frame.step)
        self.frames.pop()

    def _iteration(self, item: Loop, body: list[Item], step: str) -> None:
        """Write an iteration up to the label `step`.

        Where the gang cannot start again, the iteration can: what it guesses is tested ahead of its
        effects, and it is written a second time without guesses.
        """
        if self.mask is not None or self.pure or facts(body).loops:
            self._scoped(body, step)
            return
        outside = self.again, self.trying, self.guessed
        self.again = f"exactly.{self.number()}"
        self.trying, self.pure, self.guessed = item, True, False
        self._scoped(body, step)
        again, guessed = self.again, self.guessed
        self.again, self.trying, self.guessed = outside
        self.pure = False
        if guessed:
            self.label(again)
            self._scoped(body, step)

    def _counted(self, item: Loop, place: int, start: Value, stop: Value) -> None:
        """Write a RANGE that all lanes run alike."""
        # A long iteration, or one with a mask, gains nothing, and LLVM would take long for copies.
        unrolls = self.mask is None and facts(item.body).nodes < CHEAP
        counted = self.open_range(item.node, place, start, stop, unrolls)
        if not facts(item.body).changes:
            self.least -= 1  # memory stays as it is in the loop
        self._body(item, Frame(f"end.{place}", f"step.{place}"))
        self.close_range(item.node, place, counted)

    def open_range(
        self, node: UOp, place: int, start: Value, stop: Value, unrolls: bool = True
    ) -> Counted:
        """Begin a RANGE with a scalar for its counter; its body follows, and jumps to its step."""
        dtype, slot = dtype_of(node), self.slot("i64", "count")
        first, last = (self.in_64_bits(dtype, end.base) for end in (start, stop))
        self.store("i64", first, slot)
        order = "LT" if int(node.src[2].arg) > 0 else "GT"
        some = self.compare(order, dtype, 1, start.base, stop.base)
        self.branch(some, f"enter.{place}", f"end.{place}")
        self.label(f"enter.{place}")
        self.open_loop(f"body.{place}", unrolls)
        at = self.load("i64", slot)
        narrow = at if dtype.itemsize == 8 else self.let(f"trunc i64 {at} to {scalar(dtype)}")
        self.values[node] = value = Value(dtype, narrow, start.lanes, fits=True)
        self.long[value] = at
        return Counted(slot, at, last)

    def close_range(self, node: UOp, place: int, counted: Counted) -> None:
        """Write the step of a RANGE, and its end."""
        dtype, step = dtype_of(node), int(node.src[2].arg)
        slot, at, stop = counted
        self.label(f"step.{place}")
        if dtype.itemsize < 8 or (dtype.kind == "i" and step == 1):
            following = self.let(f"add nsw i64 {at}, {step}")
            more = self.let(f"icmp s{'lt' if step > 0 else 'gt'} i64 {following}, {stop}")
        else:  # the step after the last may take the counter out of its dtype
            following = self.let(f"add i64 {at}, {step}")
            ends = (stop, at) if step > 0 else (at, stop)
            left = self.let(f"sub i64 {ends[0]}, {ends[1]}")
            more = self.let(f"icmp ugt i64 {left}, {abs(step)}")
        self.store("i64", following, slot)
        self.branch(more, f"body.{place}", f"end.{place}")
        self.close_loop()
        self.label(f"end.{place}")

    def _loop_by_lanes(self, item: Loop, place: int) -> None:
        """Write a loop that lanes leave one by one: while all are in it, then with a mask."""
        node, mask, kind = item.node, self.mask, self.mask_kind
        frame = Frame(
            f"end.{place}", f"step.{place}", self.slot(kind, "next"), self.slot(kind, "active")
        )
        counter = _Counter(self, item) if node.op == "RANGE" else None
        if mask is None and counter is None:
            self._while_all(item, place)
        elif mask is None and counter is not None and counter.together:
            self._range_of_all(item, place, counter)
        self.store(kind, mask or "splat (i32 -1)", frame.next)
        self.open_loop(f"loop.{place}")
        mark = len(self.log)
        inside = self.load(kind, frame.next)
        if counter is not None:
            inside = self.let(f"and {kind} {inside}, {self.as_mask(counter.enter_iteration())}")
            self.store(kind, inside, frame.next)
        self.store(kind, inside, frame.active)
        self.branch(self.any(inside), f"body.{place}", f"end.{place}")
        self.label(f"body.{place}")
        self.mask = inside
        self._body(item, frame)
        self.label(frame.step)
        if counter is not None:
            counter.advance(frame.next)
        self.log.back(mark)
        self.jump(f"loop.{place}")
        self.close_loop()
        self.label(f"end.{place}")
        self.mask = mask

    def _while_all(self, item: Loop, place: int) -> None:
        """Write the iterations of a LOOP that begins with its test, while all lanes stay.

        Behind them comes the loop with a mask, unless all lanes leave at once.
        """
        found = _test_of(item)
        if found is None:
            return
        head, test, stays = found
        self.pure = False
        self.open_loop(f"all.{place}")
        mark = len(self.log)
        for node in head:
            self.node(node)
        condition = self.get(test.node.src[0])
        tests, others = (self._agree(condition, truth == (stays == 0)) for truth in (True, False))
        gone = self.conjunction(self.missing(others)) or "true"
        whole = self.conjunction(self.missing(tests)) or "true"
        self.branch(whole, f"all.in.{place}", f"all.end.{place}")
        self.label(f"all.in.{place}")
        for one in tests:
            self.true.put(one, True)
        self._iteration(item, test.sides[stays], f"all.step.{place}")
        self.label(f"all.step.{place}")
        self._end_of_all(item, place, mark, gone)

    def _end_of_all(self, item: Loop, place: int, mark: int, gone: str) -> None:
        """Go to the next iteration; behind the last, past the loop with a mask if none is left."""
        self.log.back(mark)
        self.jump(f"all.{place}")
        self.close_loop()
        self.label(f"all.end.{place}")
        self.branch(gone, f"end.{place}", f"some.{place}", likely=True)
        self.label(f"some.{place}")
        self.forget(item.body)

    def _agree(self, condition: Value, truth: bool) -> Tests:
        """Return the tests under which a condition has this truth in all lanes."""
        known = condition.always if truth else condition.never
        if condition.is_flat:
            known = condition.base if truth else self.let(f"xor i1 {condition.base}, true")
        if known is not None:
            return frozenset({known}) | condition.tests
        bits = self.as_bits(self.vec(condition))
        return frozenset({self.let(f"icmp eq i{self.w} {bits}, {'-1' if truth else '0'}")})

    def _range_of_all(self, item: Loop, place: int, counter: _Counter) -> None:
        """Write the iterations of a RANGE that all lanes take part in."""
        node, dtype = item.node, counter.dtype
        kind, step, start, stop = counter.kind, counter.step, counter.start, counter.stop
        apart = [b - a for a, b in zip(start.lanes or (), stop.lanes or (), strict=True)]
        ends = (max(apart), min(apart)) if step < 0 else (min(apart), max(apart))
        sign = "s" if dtype.kind == "i" else "u"
        bound, last = stop.base, stop.base
        for n, far in enumerate(ends):
            if far:
                name = f"@llvm.{sign}{'add' if far > 0 else 'sub'}.sat.{kind}"
                moved = self.call(name, kind, [kind] * 2, [stop.base, str(abs(far))])
                bound, last = (moved, last) if n == 0 else (bound, moved)
        if abs(step) > 1:  # no step takes a lane out of the dtype
            low, high = int(dtype.min), int(dtype.max)
            far = (max if step > 0 else min)(0, *(start.lanes or ()))
            how, end = "min" if step > 0 else "max", (high if step > 0 else low) - step - far
            end = min(max(end, low), high)
            bound = self.call(f"@llvm.{sign}{how}.{kind}", kind, [kind] * 2, [bound, str(end)])
        self.open_loop(f"all.{place}")
        mark = len(self.log)
        at = self.load(kind, counter.slot)
        more = self.compare("LT" if step > 0 else "GT", dtype, 1, at, bound)
        gone = self.compare("GE" if step > 0 else "LE", dtype, 1, at, last)
        self.branch(more, f"all.in.{place}", f"all.end.{place}")
        self.label(f"all.in.{place}")
        self.values[node] = Value(dtype, at, start.lanes, fits=True)
        self._body(item, Frame(f"all.end.{place}", f"all.step.{place}"))
        self.label(f"all.step.{place}")
        self.store(kind, self.let(f"add {kind} {at}, {step}"), counter.slot)
        self._end_of_all(item, place, mark, gone)


class _Counter:
    """The counter of a RANGE that lanes leave one by one: a scalar where it is a pattern."""

    def __init__(self, writer: Loops, item: Loop) -> None:
        self.writer, self.node = writer, (node := item.node)
        self.dtype = dtype_of(node)
        self.start, self.stop = (writer.get(source) for source in node.src[:2])
        self.step, self.kind = int(node.src[2].arg), scalar(self.dtype)
        starts = self.start.tests | writer.fitting(self.start)
        self.is_scalar = self.start.lanes is not None and writer.require(starts)
        self.vector = of(self.kind, writer.w)
        self.type = self.kind if self.is_scalar else self.vector
        first = self.start.base if self.is_scalar else writer.vec(self.start)
        self.fits = self.is_scalar and self._has_room()
        # Lanes that leave in the middle of the loop are no concern of a loop of all.
        leaves = bool(facts(item).leaves)
        self.together = (
            self.is_scalar and not leaves and self.stop.lanes is not None
            and writer.require(self.stop.tests | writer.fitting(self.stop))
        )  # fmt: skip
        self.slot = writer.slot(self.type, "count")
        writer.store(self.type, first, self.slot)
        self.last = writer.vec(self.stop)
        self.at = self.at_vector = ""

    def _has_room(self) -> bool:
        """Tell whether lanes that have left do not wrap around before the last one has."""
        first, last = self.start.lanes or (), self.stop.lanes
        if last is None or self.start.is_flat:
            return self.start.is_flat
        far = max(first) - min(first) + abs(self.step) + max(map(abs, last))
        room = Value(self.dtype, self.stop.base, (far if self.step > 0 else -far,))
        is_known = 2 * far < int(self.dtype.max)
        return is_known and self.writer.require(self.stop.tests | self.writer.fitting(room))

    def enter_iteration(self) -> str:
        """Write the counter of an iteration; return which lanes have not passed their end."""
        writer = self.writer
        self.at = writer.load(self.type, self.slot)
        if self.is_scalar:
            value = Value(self.dtype, self.at, self.start.lanes, fits=self.fits)
        else:
            value = writer.vector(self.dtype, self.at)
        writer.values[self.node] = value
        self.at_vector = writer.vec(value)
        return writer.compare(
            "LT" if self.step > 0 else "GT", self.dtype, writer.w, self.at_vector, self.last
        )

    def advance(self, following: str) -> None:
        """Go on to the next iteration; `following` is the slot of its mask."""
        writer, step = self.writer, str(self.step)
        if abs(self.step) > 1:  # the step after the last may take the counter out of its dtype
            ends = (self.last, self.at_vector) if self.step > 0 else (self.at_vector, self.last)
            left = writer.let(f"sub {self.vector} {ends[0]}, {ends[1]}")
            far = writer.constant(abs(self.step), self.dtype)
            more = writer.as_mask(writer.let(f"icmp ugt {self.vector} {left}, {far}"))
            kind = writer.mask_kind
            old = writer.load(kind, following)
            writer.store(kind, writer.let(f"and {kind} {old}, {more}"), following)
        by = step if self.is_scalar else writer.splat(self.kind, step)
        writer.store(self.type, writer.let(f"add {self.type} {self.at}, {by}"), self.slot)


def _test_of(item: Loop) -> tuple[list[UOp], If, int] | None:
    """Return how a LOOP begins that tests first: nodes, its IF, and the side that stays."""
    place = next(
        (n for n, part in enumerate(item.body) if not isinstance(part, UOp) or _is_late(part)),
        len(item.body),
    )
    test = item.body[place] if place == len(item.body) - 1 else None
    if not isinstance(test, If):
        return None
    breaks = [
        len(side) == 1 and isinstance(side[0], UOp) and side[0].op == "BREAK" for side in test.sides
    ]
    if breaks.count(True) != 1:
        return None
    stays = breaks.index(False)
    if facts(test.sides[stays]).leaves:
        return None
    return [part for part in item.body[:place] if isinstance(part, UOp)], test, stays


def _is_late(node: UOp) -> bool:
    return node.op in ("SET", "STORE") or node.op in ATOMIC_OPS
