"""Write the control flow of a gang: IFs and loops, under masks where its threads part.

if x[i] > 0:          all lanes: one side; none: the other; else both, each with a mask
while z < limit:      without a mask while all lanes are in the loop, then with one
"""

from __future__ import annotations

from typing import NamedTuple

from hal_cpu.vectors.arithmetic import of, scalar
from hal_cpu.vectors.shapes import lanes_leave
from hal_cpu.vectors.tree import If, Item, Loop, jumps, nodes_of, walk
from hal_cpu.vectors.value import Tests, Value
from hal_cpu.vectors.variables import Variables
from hal_kernel.ir.uop import ATOMIC_OPS, LEAVES, UOp, dtype_of

CHEAP = 24  # nodes that are computed for all lanes rather than behind a test
_TOGETHER = "all lanes while all are in, then masked"
_ACCESSES = ATOMIC_OPS | {"LOAD", "STORE", "FAR", "FENCE"}


class Frame(NamedTuple):
    """A loop that is open, or the whole body of a gang: where its lanes go on."""

    end: str  # labels
    step: str
    next: str = ""  # slot: the mask of the next iteration; "" if all lanes leave together
    active: str = ""  # slot: the mask of the lanes that are in this one


class Counted(NamedTuple):
    """A RANGE that is open: the slot of its counter, the counter and its end."""

    slot: str
    at: str
    stop: str


class Cost(NamedTuple):
    nodes: int
    is_hard: bool  # it has loops or jumps
    accesses: bool  # it accesses memory


class Control(Variables):
    """Write trees of nodes."""

    def __init__(self, half: bool) -> None:
        super().__init__(half)
        self.frames: list[Frame] = []

    # -- blocks

    def block(self, block: list[Item]) -> None:
        for place, item in enumerate(block):
            if self.left:
                return
            self._item(item)
            rest = block[place + 1 :]
            if self.w > 1 and rest and not self.left and lanes_leave(item, self.shapes):
                self._rest_of_block(rest)
                return

    def _item(self, item: Item) -> None:
        if isinstance(item, If):
            self.write_if(item)
        elif isinstance(item, Loop):
            self._loop(item)
        elif isinstance(item, UOp):
            self.node(item)

    def node(self, uop: UOp) -> None:
        writer = getattr(self, f"on_{uop.op}", None)
        if writer is not None:
            writer(uop)
        elif uop.op in LEAVES:
            self._leave_block(uop)
        else:
            self.values[uop] = self.derive(uop, [self.get(source) for source in uop.src])

    def _rest_of_block(self, rest: list[Item]) -> None:
        """Write what stands behind an item that some lanes have left, for the others."""
        active = self.load(self.mask_kind, self._masked_frame().active)
        mask = self.mask
        self.mask = active if mask is None else self.let(f"and {self.mask_kind} {mask}, {active}")
        place = self.number()
        self.branch(self.any(self.mask), f"rest.{place}", f"none.{place}")
        self.label(f"rest.{place}")
        marks = self.enter()
        self.block(rest)
        self.leave(marks)
        self.forget(rest)
        self.jump(f"none.{place}")
        self.label(f"none.{place}")

    def _masked_frame(self) -> Frame:
        """Return the innermost frame that lanes may leave one by one."""
        return next(frame for frame in reversed(self.frames) if frame.active)

    def on_VAR(self, uop: UOp) -> None:
        """Nothing: `slot_of` declares a variable that is used."""

    # -- leaving

    def _leave_block(self, uop: UOp) -> None:
        if uop.op == "RETURN":
            if self.w == 1 or self.mask is None or not self.shapes.returns_vary:
                self.jump(self.frames[0].end)
                return
            for frame in self.frames:
                self._clear(frame)
            return
        frame = self.frames[-1]
        if not frame.active:  # all lanes leave together
            self.jump(frame.end if uop.op == "BREAK" else frame.step)
        else:
            self._clear(frame, stays=uop.op == "CONTINUE")

    def _clear(self, frame: Frame, stays: bool = False) -> None:
        """Take the lanes that are on here out of a frame; `stays`: out of this iteration only."""
        others = self.inverse(self.mask or "")
        for slot in (frame.active,) if stays else (frame.next, frame.active):
            if slot:
                old = self.load(self.mask_kind, slot)
                self.store(self.mask_kind, self.let(f"and {self.mask_kind} {old}, {others}"), slot)

    # -- IFs

    def write_if(self, item: If) -> None:
        condition = self.get(item.node.src[0])
        cost = self._cost([item])
        if self.choosing or (
            self.w > 1 and not cost.is_hard and not cost.accesses and cost.nodes < CHEAP
            and not self.is_uniform(condition)
        ):  # fmt: skip
            self.note(item.node, "both sides run, lanes choose")
            self._choose(item, condition)
        elif self.is_uniform(condition):
            self.note(item.node, "uniform: a branch")
            self._branch_for_all(item, condition.base)
        elif self.mask is not None:
            self.note(item.node, "masked, within a mask")
            self._if_under_mask(item, condition)
        elif condition in self.mixed and not cost.is_hard:
            self.note(item.node, "both sides run, each under its mask")
            self._both_sides(item, condition)
        elif condition.is_flat and self.require(condition.tests):
            self.note(item.node, "uniform, as tested once a gang: a branch")
            self._branch_for_all(item, condition.base)
        elif (condition.always or condition.never) and self.require(condition.tests):
            ends = "the gang starts again" if self.pure else "masked"
            self.note(item.node, f"tested once a gang: all lanes, or none, else {ends}")
            self._part(item, condition, condition.always, condition.never, self.pure)
        else:
            self.note(item.node, "masked unless all lanes agree")
            self._part_by_bits(item, condition, cost)

    def _branch_for_all(self, item: If, condition: str) -> None:
        place = self.number()
        self.branch(condition, f"then.{place}", f"else.{place}")
        pure = self.pure
        after = True
        for name, side in zip(("then", "else"), item.sides, strict=True):
            self.label(f"{name}.{place}")
            self.pure = pure
            self._scoped(side, f"fi.{place}")
            after = after and self.pure
        self.pure = after
        self.label(f"fi.{place}")

    def _scoped(self, side: list[Item], end: str) -> None:
        """Write a block that the text may go past, up to a label."""
        marks, mask = self.enter(), self.mask
        self.block(side)
        self.leave(marks)
        self.mask = mask
        self.forget(side)
        self.jump(end)

    def _under(self, mask: str, side: list[Item]) -> None:
        """Write a block for some of the lanes, without a branch around it."""
        marks, outer = self.enter(), self.mask
        self.mask = mask
        self.block(side)
        self.mask = outer
        self.leave(marks)
        self.forget(side)

    def _both_sides(self, item: If, condition: Value) -> None:
        """Write both sides with masks that are known: each has some lanes."""
        mask = self.as_mask(self.vec(condition))
        for side, one in zip(item.sides, (mask, self.inverse(mask)), strict=True):
            if side:
                self._under(one, side)

    def _part_by_bits(self, item: If, condition: Value, cost: Cost) -> None:
        """Write an IF of which only the vector of its condition is known."""
        bools, n = self.vec(condition), self.w
        bits = self.as_bits(bools)
        then, other = item.sides
        if not cost.is_hard and cost.nodes < CHEAP and not other:  # likely for few lanes
            place = self.number()
            some = self.let(f"icmp ne i{n} {bits}, 0")
            self.branch(some, f"some.{place}", f"fi.{place}")
            self.label(f"some.{place}")
            self._under(self.as_mask(bools), then)
            self.jump(f"fi.{place}")
            self.label(f"fi.{place}")
            return
        always, never = self.let(f"icmp eq i{n} {bits}, -1"), self.let(f"icmp eq i{n} {bits}, 0")
        self._part(item, condition, always, never, restarts=False)

    def _part(
        self, item: If, condition: Value, always: str | None, never: str | None, restarts: bool
    ) -> None:
        """Write an IF for three cases: all lanes go one way, or the other, or both.

        In the last one the gang starts again if it `restarts`.
        """
        place, pure, after = self.number(), self.pure, True
        for test, name, side in ((always, "all", item.sides[0]), (never, "none", item.sides[1])):
            if test is not None:
                self.branch(
                    test, f"{name}.{place}", f"not.{name}.{place}", restarts and name == "all"
                )
                self.label(f"{name}.{place}")
                self.pure = pure
                marks = self.enter()
                self.true.put(test, True)
                self.block(side)
                self.leave(marks)
                self.mask = None
                self.forget(side)
                self.jump(f"fi.{place}")
                after = after and self.pure
                self.label(f"not.{name}.{place}")
        self.pure = pure
        if restarts:
            self.jump(self.again)
            self.guessed = True
        else:
            marks = self.enter()
            mask = self.as_mask(self.vec(condition))
            for name, side, one in (
                ("then", item.sides[0], mask), ("else", item.sides[1], self.inverse(mask)),
            ):  # fmt: skip
                if side:  # it may have no lane, as the tests only suffice
                    self._if_any(one, f"{name}.{place}", side)
            self.leave(marks)
            self.jump(f"fi.{place}")
            after = after and self.pure
        self.pure = after
        self.label(f"fi.{place}")

    def _if_any(self, mask: str, name: str, side: list[Item]) -> None:
        """Write a block for some of the lanes, which may be none."""
        self.branch(self.any(mask), f"{name}.some", f"{name}.end")
        self.label(f"{name}.some")
        self._under(mask, side)
        self.jump(f"{name}.end")
        self.label(f"{name}.end")

    def _if_under_mask(self, item: If, condition: Value) -> None:
        place, over = self.number(), ""
        then, other = item.sides
        marks = self.enter()
        if condition.never and self.holds(condition.tests) and not other:
            over = f"fi.{place}"
            self.branch(condition.never, over, f"in.{place}")
            self.label(f"in.{place}")
        mask = self.as_mask(self.vec(condition))
        for name, side, one in (("then", then, mask), ("else", other, "")):
            if not side:
                continue
            one = self.let(f"and {self.mask_kind} {self.mask}, {one or self.inverse(mask)}")
            cost = self._cost(side)
            alone = len(side) == 1 and jumps(side)
            if not alone and (cost.accesses or cost.is_hard or cost.nodes > CHEAP):
                self._if_any(one, f"{name}.{place}", side)
            else:
                self._under(one, side)
        self.leave(marks)
        self.forget(then)
        self.forget(other)
        if over:
            self.jump(over)
            self.label(over)

    def _choose(self, item: If, condition: Value) -> None:
        """Run both sides, and choose what they set."""
        found: list[dict[UOp, Value]] = []
        self.choosing += 1
        for side in item.sides:
            mark = self.env.mark()
            for part in side:
                self._item(part)
            sets = [node.src[0] for node in nodes_of(side) if node.op == "SET"]
            found.append({variable: self.env[variable] for variable in sets})
            self.env.back(mark)
        self.choosing -= 1
        for variable in {**found[0], **found[1]}:
            if not (self.is_varying(variable) or self.is_uniform(condition)):
                continue  # its home is one of the sides
            a, b = (side.get(variable) or self.held(variable) for side in found)
            dtype = dtype_of(variable)
            get = UOp("GET", dtype, (variable,))
            chosen = UOp("WHERE", dtype, (item.node.src[0], get, get))
            value = self.derive(chosen, [condition, a, b])
            if self.choosing:
                self.env.put(variable, value)
            else:
                self.assign(variable, value, blends=True)

    def _cost(self, block: list[Item]) -> Cost:
        nodes, is_hard, accesses = 0, False, False
        for item, _ in walk(block):
            if isinstance(item, Loop):
                is_hard = True
            elif isinstance(item, UOp):
                is_hard |= item.op in LEAVES
                accesses |= item.op in _ACCESSES or (
                    item.op in ("SET", "GET") and item.src[0].op == "SPILL"
                )
                nodes += 1
        return Cost(nodes, is_hard, accesses)

    # -- loops

    def _loop(self, item: Loop) -> None:
        node, place = item.node, self.number()
        if any(_is_effect(part) for part in nodes_of(item.body)):
            self.pure = False
        self.forget(item.body)
        if self.is_varying_loop(node):
            staggered = node in self.shapes.staggered
            self.note(node, _TOGETHER if staggered else "masked: lanes leave it one by one")
            self._loop_by_lanes(item, place)
        elif node.op == "LOOP":
            self.note(node, "uniform: all lanes leave it together")
            self._endless(item, place)
        else:
            start, stop = (self.get(source) for source in node.src[:2])
            if (
                start.lanes is not None
                and start.lanes == stop.lanes
                and self.require(
                    start.tests | stop.tests | self.fitting(start) | self.fitting(stop)
                )
            ):
                self.note(node, "uniform: all lanes run it alike")
                self._counted(item, place, start, stop)
            else:
                self.note(node, _TOGETHER)
                self._loop_by_lanes(item, place)
        self.forget(item.body)

    def is_varying_loop(self, node: UOp) -> bool:
        return self.w > 1 and node in self.shapes.divergent

    def _endless(self, item: Loop, place: int) -> None:
        self.jump(f"step.{place}")
        self.label(f"step.{place}")
        self._body(item, Frame(f"end.{place}", f"step.{place}"))
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
        starts_again = self.w > 1 and self.mask is None and not self.pure
        if not starts_again or any(isinstance(part, Loop) for part, _ in walk(body)):
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
        counted = self.open_range(item.node, place, start, stop)
        self._body(item, Frame(f"end.{place}", f"step.{place}"))
        self.close_range(item.node, place, counted)

    def open_range(self, node: UOp, place: int, start: Value, stop: Value) -> Counted:
        """Begin a RANGE with a scalar for its counter; its body follows, and jumps to its step."""
        dtype, kind = dtype_of(node), scalar(dtype_of(node))
        slot = self.slot(kind, "count")
        self.store(kind, start.base, slot)
        order = "LT" if int(node.src[2].arg) > 0 else "GT"
        some = self.compare(order, dtype, 1, start.base, stop.base)
        self.branch(some, f"body.{place}", f"end.{place}")
        self.label(f"body.{place}")
        at = self.load(kind, slot)
        self.values[node] = Value(dtype, at, start.lanes, fits=True)
        return Counted(slot, at, stop.base)

    def close_range(self, node: UOp, place: int, counted: Counted) -> None:
        """Write the step of a RANGE, and its end."""
        dtype, kind, step = dtype_of(node), scalar(dtype_of(node)), int(node.src[2].arg)
        slot, at, stop = counted
        self.label(f"step.{place}")
        if abs(step) == 1:
            wraps = "nsw " if dtype.kind == "i" else "nuw " if step > 0 else ""
            following = self.let(f"add {wraps}{kind} {at}, {step}")
            more = self.compare("LT" if step > 0 else "GT", dtype, 1, following, stop)
        else:  # the step after the last may take the counter out of its dtype
            following = self.let(f"add {kind} {at}, {step}")
            ends = (stop, at) if step > 0 else (at, stop)
            left = self.let(f"sub {kind} {ends[0]}, {ends[1]}")
            more = self.let(f"icmp ugt {kind} {left}, {abs(step)}")
        self.store(kind, following, slot)
        self.branch(more, f"body.{place}", f"end.{place}")
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
        self.store(kind, mask or f"splat (i{self.mask_bits} -1)", frame.next)
        self.jump(f"loop.{place}")
        self.label(f"loop.{place}")
        marks = self.enter()
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
        self.leave(marks)
        self.jump(f"loop.{place}")
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
        self.jump(f"all.{place}")
        self.label(f"all.{place}")
        marks = self.enter()
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
        self.leave(marks)
        self.jump(f"all.{place}")
        self._end_of_all(item, place, gone)

    def _end_of_all(self, item: Loop, place: int, gone: str) -> None:
        """Go past the loop with a mask if all lanes are gone."""
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
        if abs(step) > 1:  # no step leaves the dtype
            how, end = (
                ("min", int(dtype.max) - step) if step > 0 else ("max", int(dtype.min) - step)
            )
            bound = self.call(f"@llvm.{sign}{how}.{kind}", kind, [kind] * 2, [bound, str(end)])
        self.jump(f"all.{place}")
        self.label(f"all.{place}")
        marks = self.enter()
        at = self.load(kind, counter.slot)
        more = self.compare("LT" if step > 0 else "GT", dtype, 1, at, bound)
        gone = self.compare("GE" if step > 0 else "LE", dtype, 1, at, last)
        self.branch(more, f"all.in.{place}", f"all.end.{place}")
        self.label(f"all.in.{place}")
        self.values[node] = Value(dtype, at, start.lanes, fits=True)
        self._body(item, Frame(f"all.end.{place}", f"all.step.{place}"))
        self.label(f"all.step.{place}")
        self.store(kind, self.let(f"add {kind} {at}, {step}"), counter.slot)
        self.leave(marks)
        self.jump(f"all.{place}")
        self._end_of_all(item, place, gone)


class _Counter:
    """The counter of a RANGE that lanes leave one by one: a scalar where it is a pattern."""

    def __init__(self, writer: Control, item: Loop) -> None:
        self.writer, self.node = writer, (node := item.node)
        self.dtype = dtype_of(node)
        self.start, self.stop = (writer.get(source) for source in node.src[:2])
        self.step, self.kind = int(node.src[2].arg), scalar(self.dtype)
        starts = self.start.tests | writer.fitting(self.start)
        self.is_scalar = self.start.lanes is not None and writer.require(starts)
        self.vector = of(self.kind, writer.w)
        self.type = self.kind if self.is_scalar else self.vector
        first = self.start.base if self.is_scalar else writer.vec(self.start)
        # Lanes that leave in the middle of the loop are no concern of a loop of all.
        leaves = any(part.op in LEAVES for part in nodes_of(item.body))
        self.together = (
            self.is_scalar and not leaves and self.stop.lanes is not None
            and writer.require(self.stop.tests | writer.fitting(self.stop))
        )  # fmt: skip
        self.slot = writer.slot(self.type, "count")
        writer.store(self.type, first, self.slot)
        self.last = writer.vec(self.stop)
        self.at = self.at_vector = ""

    def enter_iteration(self) -> str:
        """Write the counter of an iteration; return which lanes have not passed their end."""
        writer = self.writer
        self.at = writer.load(self.type, self.slot)
        if self.is_scalar:
            value = Value(self.dtype, self.at, self.start.lanes, fits=True)
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


def _is_effect(node: UOp) -> bool:
    """Tell whether a node changes what stays when its gang starts again."""
    if node.op == "SET":
        return node.src[0].op == "SPILL"
    if node.op == "STORE":
        return node.src[0].op != "LOCAL"
    return node.op in ATOMIC_OPS and node.op != "ATOMICLOAD"


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
    if any(node.op in LEAVES for node in nodes_of(test.sides[stays])):
        return None
    return [part for part in item.body[:place] if isinstance(part, UOp)], test, stays


def _is_late(node: UOp) -> bool:
    return node.op in ("SET", "STORE") or node.op in ATOMIC_OPS
