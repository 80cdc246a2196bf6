"""Write the control flow of a gang: IFs and loops, under masks where its threads part.

if x[i] > 0:          all lanes: one side; none: the other; else both, each with a mask
while z < limit:      without a mask while all lanes are in the loop, then with one
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hal_cpu.vectors.shapes import lanes_leave
from hal_cpu.vectors.subgroups import Subgroups
from hal_cpu.vectors.tree import CHANGES, Facts, If, Item, Loop, facts, jumps
from hal_cpu.vectors.value import Value
from hal_kernel.ir.uop import LEAVES, UOp, dtype_of

CHEAP = 24  # nodes that are computed for all lanes rather than behind a test


class Frame(NamedTuple):
    """A loop that is open, or the whole body of a gang: where its lanes go on."""

    end: str  # labels
    step: str
    next: str = ""  # slot: the mask of the next iteration; "" if all lanes leave together
    active: str = ""  # slot: the mask of the lanes that are in this one


class Branches(Subgroups):
    """Write trees of nodes, and IFs."""

    def __init__(self, half: bool, fma: bool) -> None:
        super().__init__(half, fma)
        self.frames: list[Frame] = []
        self.writers: Mapping[str, Callable[[Any, UOp], None]] = {}

    def block(self, block: list[Item]) -> None:
        for place, item in enumerate(block):
            if isinstance(item, UOp):
                self.node(item)
                continue
            self._item(item)
            if item is not block[-1] and lanes_leave(item, self.shapes):
                self._rest_of_block(block[place + 1 :])
                return

    def _item(self, item: Item) -> None:
        if isinstance(item, If):
            self.write_if(item)
        elif isinstance(item, Loop):
            self.write_loop(item)
        elif isinstance(item, UOp):
            self.node(item)

    def node(self, uop: UOp) -> None:
        op, values = uop.op, self.values
        if op in self.writers:
            self.writers[op](self, uop)
            self.changes += op in CHANGES
        elif op in LEAVES:
            self._leave_block(uop)
        else:
            operands = [values[one] if one in values else self.get(one) for one in uop.src]
            values[uop] = self.derive(uop, operands)

    def _rest_of_block(self, rest: list[Item]) -> None:
        """Write what stands behind an item that some lanes have left, for the others."""
        # They have left the innermost frame that lanes may leave one by one.
        frame = next(frame for frame in reversed(self.frames) if frame.active)
        active = self.load(self.mask_kind, frame.active)
        mask = self.mask
        self.mask = active if mask is None else self.let(f"and {self.mask_kind} {mask}, {active}")
        self._if_any(self.mask, rest)

    def on_VAR(self, uop: UOp) -> None:
        """Nothing: `slot_of` declares a variable that is used."""

    def _leave_block(self, uop: UOp) -> None:
        if uop.op == "RETURN":
            together = not any(map(self.shapes.differs, self.shapes.paths[uop]))
            if self.w == 1 or self.mask is None or together:
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

    def write_if(self, item: If) -> None:
        condition = self.get(item.node.src[0])
        cost = facts(item)
        if self.choosing or (
            not cost.is_hard and not cost.accesses and cost.nodes < CHEAP
            and not self.is_uniform(condition)
        ):  # fmt: skip
            self.note(item.node, "both sides run, lanes choose")
            self._choose(item, condition)
            return
        if self.is_uniform(condition):
            self.note(item.node, "uniform: a branch")
            self._branch_for_all(item, condition.base)
        elif self.mask is not None:
            self.note(item.node, "masked, within a mask")
            self._if_under_mask(item, condition)
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
        for side in item.sides:
            self.forget(side)

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
        mark, mask = len(self.log), self.mask
        self.block(side)
        self.log.back(mark)
        self.mask = mask
        self.jump(end)

    def _under(self, mask: str, side: list[Item]) -> None:
        """Write a block for some of the lanes, without a branch around it."""
        mark, outer = len(self.log), self.mask
        self.mask = mask
        self.block(side)
        self.mask = outer
        self.log.back(mark)
        self.forget(side)

    def _part_by_bits(self, item: If, condition: Value, cost: Facts) -> None:
        """Write an IF of which only the vector of its condition is known."""
        bools, n = self.vec(condition), self.w
        bits = self.as_bits(bools)
        then, other = item.sides
        if not cost.is_hard and cost.nodes < CHEAP and not other:  # likely for few lanes
            some = self.let(f"icmp ne i{n} {bits}, 0")
            self.either(some, lambda: self._under(self.as_mask(bools), then))
            return
        always, never = self.let(f"icmp eq i{n} {bits}, -1"), self.let(f"icmp eq i{n} {bits}, 0")
        self._part(item, condition, always, never, restarts=False, exact=True)

    def _part(
        self, item: If, condition: Value, always: str | None, never: str | None, restarts: bool,
        exact: bool = False,
    ) -> None:  # fmt: skip
        """Write an IF for three cases: all lanes go one way, or the other, or both.

        In the last one the gang starts again if it `restarts`. `exact`: each side has a lane then.
        """
        place, pure, after = self.number(), self.pure, True
        for test, name, side in ((always, "all", item.sides[0]), (never, "none", item.sides[1])):
            if test is not None:
                self.branch(
                    test, f"{name}.{place}", f"not.{name}.{place}", restarts and name == "all"
                )
                self.label(f"{name}.{place}")
                self.pure = pure
                mark = len(self.log)
                self.true.put(test, True)
                self.block(side)
                self.log.back(mark)
                self.mask = None
                self.jump(f"fi.{place}")
                after = after and self.pure
                self.label(f"not.{name}.{place}")
        self.pure = pure
        if restarts:
            self.jump(self.again)
            self.guessed = True
        else:
            mark = len(self.log)
            mask = self.as_mask(self.vec(condition))
            for side, one in zip(item.sides, (mask, self.inverse(mask)), strict=True):
                if not side:
                    continue
                if exact:
                    self._under(one, side)
                else:  # it may have no lane, as the tests only suffice
                    self._if_any(one, side)
            self.log.back(mark)
            self.jump(f"fi.{place}")
            after = after and self.pure
        self.pure = after
        self.label(f"fi.{place}")

    def _if_any(self, mask: str, side: list[Item]) -> None:
        """Write a block for some of the lanes, which may be none."""
        self.either(self.any(mask), lambda: self._under(mask, side))
        self.forget(side)

    def _if_under_mask(self, item: If, condition: Value) -> None:
        place, over = self.number(), ""
        then, other = item.sides
        mark = len(self.log)
        if condition.never and self.holds(condition.tests) and not other:
            over = f"fi.{place}"
            self.branch(condition.never, over, f"in.{place}")
            self.label(f"in.{place}")
        mask = self.as_mask(self.vec(condition))
        for side, one in ((then, mask), (other, "")):
            if not side:
                continue
            one = self.let(f"and {self.mask_kind} {self.mask}, {one or self.inverse(mask)}")
            cost = facts(side)
            alone = len(side) == 1 and jumps(side)
            if not alone and (cost.accesses or cost.is_hard or cost.nodes > CHEAP):
                self._if_any(one, side)
            else:
                self._under(one, side)
        self.log.back(mark)
        if over:
            self.jump(over)
            self.label(over)

    def _choose(self, item: If, condition: Value) -> None:
        """Run both sides, and choose what they set."""
        found: list[dict[UOp, Value]] = []
        self.choosing += 1
        for side in item.sides:
            sets = facts(side).sets
            held = [self.env.get(variable) for variable in sets]
            for part in side:
                self._item(part)
            # What is set in an inner IF may be known there only: its home is one of its sides.
            found.append({known: self.env[known] for known in sets if known in self.env})
            for variable, value in zip(sets, held, strict=True):
                if variable in self.env:
                    self.env.drop(variable)
                if value is not None:
                    self.env.put(variable, value)
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
                self.assign(variable, value, blends=self.mask is not None)

    def write_loop(self, item: Loop) -> None:
        raise NotImplementedError
