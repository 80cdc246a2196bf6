"""Threads on their way through a kernel.

They are lanes of numpy arrays and step together under masks. What threads do between two barriers
has no order in the language, so any order is right as long as nothing races.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hal_core.dtypes import DType
from hal_core.errors import FailedAssert
from hal_core.interpreter.atomics import exchange_each
from hal_core.interpreter.casts import stored_as
from hal_core.interpreter.lanes import Lanes
from hal_core.interpreter.memory import Access, Memory
from hal_core.interpreter.prepared import Script, Step
from hal_core.interpreter.races import Shadow
from hal_core.ir import UOp

Array = npt.NDArray[Any]


class Patience(NamedTuple):
    """How long the loops of a launch may take: turns of blocks that go together, and a time."""

    turns: int
    until: float = math.inf  # of time.monotonic
    seconds: float = math.inf  # which that were
    how: str = ""  # with what a user allows more


_LOOK_AT_THE_CLOCK = 16  # turns


class Run:
    """Some blocks on their way through a kernel.

    `active` are the lanes that are at this place; the others went another way, wait for these at
    the end of a block or loop, or have returned.
    """

    def __init__(
        self,
        script: Script,
        lanes: Lanes,
        arguments: dict[int, Array],
        memories: dict[int, Memory],
        races: bool,
        patience: Patience,
    ) -> None:
        self.kernel, self.lanes, self.arguments = script.kernel, lanes, arguments
        self.device, self.patience = script.device, patience
        self.memories = dict(memories)
        self.watched = script.written if races else frozenset()
        self.values: list[Any] = [None] * len(script.kernel.uops)
        self.turns = 0
        self.returned = np.zeros(lanes.size, bool)
        self.continued = self.returned  # lanes that wait for the next turn of the innermost loop
        self.nobody = self.returned
        self._go_on(np.ones(lanes.size, bool))

    def _go_on(self, active: Array) -> None:
        self.active = active
        (self.running,) = active.nonzero()  # their numbers
        self.all = len(self.running) == self.lanes.size

    def block(self, steps: list[Step]) -> None:
        values = self.values
        for step in steps:
            if step.compute is not None:
                values[step.place] = step.compute(*[values[place] for place in step.sources])
            else:
                STATEMENTS[step.node.op](self, step)
                if not len(self.running):
                    return

    # -- values

    def constant(self, step: Step) -> None:
        dtype = _stored(step.node)
        value = float(step.node.arg) if dtype.kind == "f" else step.node.arg
        self.values[step.place] = np.array([value]).astype(dtype)

    def param(self, step: Step) -> None:
        self.values[step.place] = self.arguments.get(step.node.arg)  # None of a pointer

    def special(self, step: Step) -> None:
        self.values[step.place] = self.lanes.special(*step.node.arg)

    def declare(self, step: Step) -> None:
        self.values[step.place] = np.zeros(1, _stored(step.node))

    def set(self, step: Step) -> None:
        variable, value = step.sources
        new, old = self.values[value], self.values[variable]
        self.values[variable] = new if self.all else np.where(self.active, new, old)

    def get(self, step: Step) -> None:
        self.values[step.place] = self.values[step.sources[0]]

    # -- control flow

    def branch(self, step: Step) -> None:
        condition, before = self.values[step.sources[0]], self.active
        self._go_on(before & condition)
        if len(self.running):
            self.block(step.body)
        after, others = self.active, before & ~condition
        if step.other and others.any():
            self._go_on(others)
            self.block(step.other)
            others = self.active
        self._go_on(after | others)

    def count(self, step: Step) -> None:
        """A RANGE. How many turns a thread takes is known before the first, as in Python."""
        start, stop, by = (self.values[place] for place in step.sources)
        self.values[step.place] = start
        turns = _turns(start, stop, step.node.src[2].arg)

        def next_turn(done: int) -> Array:
            if done:
                self.values[step.place] = self.values[step.place] + by
            more: Array = turns > np.uint64(done)
            return more

        self._loop(step, next_turn)

    def repeat(self, step: Step) -> None:
        """A LOOP: until all threads have left."""
        self._loop(step, lambda done: np.True_)

    def _loop(self, step: Step, next_turn: Callable[[int], Any]) -> None:
        entered, outer, done = self.active, self.continued, 0
        self._go_on(entered & next_turn(0))
        while len(self.running):
            self._count_turn(step)
            self.continued = self.nobody
            self.block(step.body)
            done += 1
            self._go_on((self.active | self.continued) & next_turn(done))
        self.continued = outer
        self._go_on(entered & ~self.returned)

    def _count_turn(self, step: Step) -> None:
        self.turns += 1
        patience = self.patience
        if self.turns > patience.turns:
            self._access(step).fault(
                "the kernel does not end: its loops have taken too many turns",
                "Look whether the loop is left, or allow more with turns=.",
                limit=patience.turns,
            )
        if self.turns % _LOOK_AT_THE_CLOCK == 0 and monotonic() > patience.until:
            self._access(step).fault(
                "the kernel does not end: its loops have taken too long",
                f"Look whether the loop is left, or allow more {patience.how}.",
                limit=f"limit {patience.seconds:g} s",
            )

    def leave(self, step: Step) -> None:
        """A BREAK: the lanes are back behind the loop."""
        self._go_on(self.nobody)

    def skip(self, step: Step) -> None:
        self.continued = self.continued | self.active
        self._go_on(self.nobody)

    def end(self, step: Step) -> None:
        """A RETURN."""
        self.returned = self.returned | self.active
        self._go_on(self.nobody)

    def barrier(self, step: Step) -> None:
        missing = self.lanes.missing(self.active)
        if len(missing):
            lane = missing[0]
            why = "has returned" if self.returned[lane] else "went another way"
            who = self.lanes.name(self.lanes.threads[lane])
            self._access(step).fault(
                f"a barrier that not all threads of a block reach: {who} {why}",
                "Move the barrier to where all threads come along, and put under if only the work.",
            )
        self.lanes.epochs = self.lanes.epochs + self.active

    def claim(self, step: Step) -> None:
        """An ASSERT."""
        fails = self.active & ~self.values[step.sources[0]]
        if fails.any():
            who = self.lanes.name(self.lanes.threads[int(fails.argmax())])
            message = step.node.arg or "an assert does not hold"
            operation = self._access(step).operation
            raise FailedAssert(operation, f"{message}, in {who}", device=self.device)

    # -- memory

    def share(self, step: Step) -> None:
        name, size = step.node.arg
        elements = np.zeros(size * self.lanes.blocks, _stored(step.node))
        shadow = Shadow(len(elements)) if id(step.node) in self.watched else None
        written = np.zeros(len(elements), np.uint8)
        self.memories[step.place] = Memory(name, elements, size, written, shadow)

    def load(self, step: Step) -> None:
        memory, places = self._places(step)
        self._give(step, memory.elements[places])

    def store(self, step: Step) -> None:
        memory, places = self._places(step)
        memory.elements[places] = self._each(step.sources[2])

    def change(self, step: Step) -> None:
        """An ATOMIC or a CAS."""
        memory, places = self._places(step)
        given = [self._each(place) for place in step.sources[2:]]
        kind = step.node.arg if step.node.op == "ATOMIC" else "CAS"
        self._give(step, exchange_each(kind, memory.elements, places, *given))

    def _places(self, step: Step) -> tuple[Memory, Array]:
        memory, access = self.memories[step.sources[0]], self._access(step)
        index = self._each(step.sources[1])
        wide = None if step.wide is None else self._running(step.wide(self.values))
        places = memory.places(access, index, wide)
        memory.watch(access, places)
        return memory, places

    def _each(self, place: int) -> Array:
        """The value in every running lane."""
        return self._running(self.values[place])

    def _running(self, value: Array) -> Array:
        if len(value) == self.lanes.size:
            return value if self.all else value[self.running]
        return np.broadcast_to(value, self.running.shape)

    def _give(self, step: Step, found: Array) -> None:
        """Makes a value of what the running lanes have found."""
        if not self.all:
            everywhere = np.zeros(self.lanes.size, found.dtype)
            everywhere[self.running] = found
            found = everywhere
        self.values[step.place] = found

    def _access(self, step: Step) -> Access:
        return Access(self.kernel.name, step.node, self.lanes, self.running, self.device)


def _turns(start: Array, stop: Array, step: int) -> Array:
    """len(range(start, stop, step)), which can be more than the dtype holds."""
    low, high = (start, stop) if step > 0 else (stop, start)
    distance = high.astype(np.uint64) - low.astype(np.uint64)
    turns = (distance - np.uint64(1)) // np.uint64(abs(step)) + np.uint64(1)
    return np.where(high > low, turns, np.uint64(0))


def _stored(node: UOp) -> np.dtype[Any]:
    dtype: DType = node.dtype  # type: ignore[assignment]  # verify has checked
    return stored_as(dtype)


STATEMENTS: dict[str, Callable[[Run, Step], None]] = {
    "CONST": Run.constant,
    "PARAM": Run.param,
    "SPECIAL": Run.special,
    "VAR": Run.declare,
    "SET": Run.set,
    "GET": Run.get,
    "IF": Run.branch,
    "RANGE": Run.count,
    "LOOP": Run.repeat,
    "BREAK": Run.leave,
    "CONTINUE": Run.skip,
    "RETURN": Run.end,
    "BARRIER": Run.barrier,
    "ASSERT": Run.claim,
    "SHARED": Run.share,
    "LOAD": Run.load,
    "STORE": Run.store,
    "ATOMIC": Run.change,
    "CAS": Run.change,
}
