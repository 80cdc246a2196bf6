"""Execute a kernel's statements for several blocks at a time, all their threads in lockstep.

Threads are lanes of numpy arrays and step together under masks. For `if t < 2: x = 1` in a block of
four threads:

    t         0  1  2  3
    active    1  1  1  1     before the IF
    active    1  1  0  0     in its body: x is set in these lanes
    active    1  1  1  1     after the ENDIF

The language defines no order between threads except at barriers, so without a race this order is as
right as any.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hal_core.dtypes import DType
from hal_kernel.errors import FailedAssert
from hal_kernel.interpreter.atomics import exchange_each
from hal_kernel.interpreter.casts import stored_as
from hal_kernel.interpreter.lanes import Lanes
from hal_kernel.interpreter.memory import Access, Memory, check_aligned, check_bounds
from hal_kernel.interpreter.order import Order
from hal_kernel.interpreter.overlap import ShadowPart
from hal_kernel.interpreter.prepared import PreparedKernel, Step
from hal_kernel.interpreter.printing import Printer
from hal_kernel.interpreter.races import Shadow
from hal_kernel.ir import UOp
from hal_kernel.ir.uop import is_bound, is_fence, is_gated

Array = npt.NDArray[Any]


class LoopLimits(NamedTuple):
    """Limits of the loops of a launch: iterations and time."""

    turns: int  # iterations of all loops of the blocks that are executed together
    until: float = math.inf  # a time of time.monotonic
    seconds: float = math.inf  # from the launch to `until`, for the error
    instead: str = ""  # what a user may do about the time, for the error


_CHECK_TIME_EVERY = 16  # iterations


class Executor:
    """The state of some blocks in the middle of a kernel.

    `active` is the mask of the lanes that execute the current step; the others took another branch,
    wait at the end of a block or loop, or have returned.
    """

    def __init__(
        self, kernel: PreparedKernel, lanes: Lanes, arguments: dict[int, Array],
        memories: dict[int, Memory], races: bool, limits: LoopLimits, printer: Printer,
        order: Order | None = None,
    ) -> None:  # fmt: skip
        self.kernel, self.lanes, self.arguments = kernel, lanes, arguments
        # A copy, to which each group of blocks adds shared arrays of its own.
        self.memories, self.limits, self.printer = dict(memories), limits, printer
        self.order = order or Order()
        self.watched = kernel.written if races else frozenset()
        # The value of each node; behind them, those of variables of indices in 64 bits.
        self.values: list[Any] = [None] * (2 * len(kernel.uops))
        self.turns = 0
        self.returned = np.zeros(lanes.size, bool)
        self.continued = self.returned  # lanes that wait for the innermost loop's next iteration
        self.no_lane = self.returned  # masks are never changed in place, so these may share one
        self._activate(np.ones(lanes.size, bool))

    def _activate(self, active: Array) -> None:
        """Make these the active lanes."""
        self.active = active
        (self.running,) = active.nonzero()  # the indices of the active lanes
        self.all = len(self.running) == self.lanes.size

    def block(self, steps: list[Step]) -> None:
        """Execute the steps of a body, or of the whole kernel, while any lane is active."""
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
        self.values[step.place] = self.arguments.get(step.node.arg)  # None for a pointer

    def special(self, step: Step) -> None:
        self.values[step.place] = self.lanes.special(*step.node.arg)

    def declare(self, step: Step) -> None:
        self.values[step.place] = np.zeros(1, _stored(step.node))
        self.values[step.place + len(self.kernel.uops)] = np.zeros(1, np.int64)

    def set(self, step: Step) -> None:
        variable, value = step.sources
        given = {variable: self.values[value]}
        if step.node.src[0] in self.kernel.wide:
            wide = step.wide_index
            new = wide(self.values) if wide else self.values[value].astype(np.int64)
            given[variable + len(self.kernel.uops)] = new
        for place, new in given.items():
            old = self.values[place]
            self.values[place] = new if self.all else np.where(self.active, new, old)

    def get(self, step: Step) -> None:
        variable, behind = step.sources[0], len(self.kernel.uops)
        self.values[step.place] = self.values[variable]
        self.values[step.place + behind] = self.values[variable + behind]

    # -- control flow

    def branch(self, step: Step) -> None:
        condition, before = self.values[step.sources[0]], self.active
        self._activate(before & condition)
        if len(self.running):
            self.block(step.body)
        after, others = self.active, before & ~condition
        if step.other and others.any():
            self._activate(others)
            self.block(step.other)
            others = self.active
        self._activate(after | others)

    def count(self, step: Step) -> None:
        """Execute a RANGE. Each lane's iterations are counted before the first, as Python does."""
        start, stop, by = (self.values[place] for place in step.sources)
        self.values[step.place] = start
        # len(range(start, stop, by)) in unsigned 64 bits: it can be more than the dtype holds.
        low, high = (start, stop) if step.node.src[2].arg > 0 else (stop, start)
        distance = high.astype(np.uint64) - low.astype(np.uint64)
        one, stride = np.uint64(1), np.uint64(abs(step.node.src[2].arg))
        iterations = np.where(high > low, (distance - one) // stride + one, np.uint64(0))

        def next_iteration(done: int) -> Array:
            if done:
                self.values[step.place] = self.values[step.place] + by
            more: Array = iterations > np.uint64(done)
            return more

        self._loop(step, next_iteration)

    def repeat(self, step: Step) -> None:
        """Execute a LOOP, until all lanes have left it."""
        self._loop(step, lambda done: np.True_)

    def _loop(self, step: Step, next_iteration: Callable[[int], Any]) -> None:
        """Execute iterations while `next_iteration(iterations done)` has lanes that run another."""
        limits, entered, outer, done = self.limits, self.active, self.continued, 0
        self._activate(entered & next_iteration(0))
        while len(self.running):
            self.turns += 1
            if self.turns > limits.turns:
                self._access(step).fault(
                    "the kernel does not end: its loops have taken too many turns",
                    "Look whether the loop is left, or allow more with turns=.",
                    limit=limits.turns,
                )
            if self.turns % _CHECK_TIME_EVERY == 0 and monotonic() > limits.until:
                self._access(step).fault(
                    "the kernel does not end: its loops have taken too long",
                    f"Look whether the loop is left, or {limits.instead}.",
                    limit=f"limit {limits.seconds:g} s",
                )
            self.continued = self.no_lane
            self.block(step.body)
            done += 1
            self._activate((self.active | self.continued) & next_iteration(done))
        self.continued = outer
        self._activate(entered & ~self.returned)

    def leave(self, step: Step) -> None:
        """Execute a BREAK. The end of the loop activates these lanes again."""
        self._activate(self.no_lane)

    def skip(self, step: Step) -> None:
        """Execute a CONTINUE. The next iteration activates these lanes again."""
        self.continued = self.continued | self.active
        self._activate(self.no_lane)

    def end(self, step: Step) -> None:
        """Execute a RETURN."""
        self.returned = self.returned | self.active
        self._activate(self.no_lane)

    def barrier(self, step: Step) -> None:
        missing = self.lanes.missing(self.active)
        if len(missing):
            lane = missing[0]
            why = "has returned" if self.returned[lane] else "took another branch"
            who = self.lanes.name(self.lanes.threads[lane])
            self._access(step).fault(
                f"a barrier that not all threads of a block reach: {who} {why}",
                "Move the barrier to a place that all threads reach, and put only the work under "
                "the if.",
            )
        self.lanes.epochs = self.lanes.epochs + self.active
        if self.kernel.fences:
            self.order.meet(self.lanes, self.running)

    def fence(self, step: Step) -> None:
        self.order.fence(self.lanes, self.running)

    # -- subgroups

    def shuffle(self, step: Step) -> None:
        """Execute a SHUFFLE. Raises: KernelFault where the subgroup has no such thread."""
        members = self._subgroup(step)
        lane = self._each(step.sources[1])
        inside = (lane >= 0) & (lane < self.lanes.subgroup)
        source = members[np.arange(len(lane)), np.where(inside, lane, 0)]
        inside &= source >= 0
        if not inside.all():
            first = int(np.argmin(inside))
            access = self._access(step)
            access.fault(
                f"a shuffle outside of the subgroup of {access.thread(first)}",
                "Keep the index below hal.subgroup_size(), and the block a multiple of it.",
                got=int(lane[first]),
                limit=f"limit 0 to {int((members[first] >= 0).sum()) - 1}",
            )
        value = self.values[step.sources[0]]
        self._give(step, np.broadcast_to(value, (self.lanes.size,))[source])

    def ballot(self, step: Step) -> None:
        members = self._subgroup(step)
        votes = np.broadcast_to(self.values[step.sources[0]], (self.lanes.size,))[members]
        bits = np.where(members >= 0, votes, False).astype(np.uint64)
        shifted = bits << np.arange(self.lanes.subgroup, dtype=np.uint64)
        self._give(step, shifted.sum(axis=1, dtype=np.uint64))

    def _subgroup(self, step: Step) -> Array:
        """Return the lanes of the subgroup of each running lane. Raises: KernelFault."""
        members: Array = self.lanes.members[self.lanes.subgroups[self.running]]
        missing = (members >= 0) & ~self.active[members]
        if missing.any():
            who = self.lanes.name(self.lanes.threads[members[missing][0]])
            self._access(step).fault(
                f"a {step.node.op.lower()} that not all of a subgroup reach: {who} does not",
                "Move it to a place that all reach, and put only the work under the if.",
            )
        return members

    def claim(self, step: Step) -> None:
        """Execute an ASSERT."""
        if is_bound(step.node):
            values = [self._each(place) for place in step.sources]
            check_bounds(self._access(step), f"the index {step.node.arg}", *values)
            return
        fails = self.active & ~self.values[step.sources[0]]
        if fails.any():
            who = self.lanes.name(self.lanes.threads[int(fails.argmax())])
            message = step.node.arg or "an assert does not hold"
            operation = self._access(step).operation
            raise FailedAssert(operation, f"{message}, in {who}", device=self.kernel.device)

    def print(self, step: Step) -> None:
        """Execute a PRINT, thread after thread."""
        operation, name, template = self._access(step).operation, self.lanes.name, step.node.arg
        columns = [self._each(place) for place in step.sources]
        self.printer.lines(
            f"{operation}, {name(self.lanes.threads[lane])}: "
            + template.format(*[str(column[position]) for column in columns])
            for position, lane in enumerate(self.running)
        )

    # -- memory

    def share(self, step: Step) -> None:
        (name, size), dtype = step.node.arg, _stored(step.node)
        # Each block's array is rounded up to 16 bytes, as on devices, so that views of it fit.
        stride = -(-size * dtype.itemsize // 16) * 16 // dtype.itemsize
        elements = np.zeros(stride * self.lanes.blocks, dtype)
        written = np.zeros(len(elements), f"u{dtype.itemsize}")
        shadow: Shadow | ShadowPart | None = None
        if step.node in self.watched:
            unit = min(self.kernel.narrowest.get(step.node, 8), dtype.itemsize)
            shadow = Shadow(elements.nbytes // unit)
            if step.node in self.kernel.narrowest:
                shadow = ShadowPart(shadow, 0, dtype.itemsize // unit, ())
        owners = self.lanes.own_block
        memory = Memory(name, elements, size, written, shadow, (), stride, owners)
        if self.kernel.fences:
            memory.follow(self.order)
        self.memories[step.place] = memory

    def table(self, step: Step) -> None:
        name, values = step.node.arg
        elements = np.array(values, _stored(step.node))
        self.memories[step.place] = Memory(name, elements, len(elements), None, None)

    def own(self, step: Step) -> None:
        """Execute a LOCAL: an array for each lane, which nobody else can race with."""
        (name, size), dtype, lanes = step.node.arg, _stored(step.node), self.lanes.size
        elements = np.zeros(size * lanes, dtype)
        written = np.zeros(len(elements), f"u{dtype.itemsize}")
        owners = np.arange(lanes)
        self.memories[step.place] = Memory(name, elements, size, written, None, (), size, owners)

    def view(self, step: Step) -> None:
        """Execute a VIEW: the same memory, with elements of another dtype."""
        memory = self.memories[step.sources[0]]
        self.memories[step.place] = memory.seen_as(self._access(step), _stored(step.node))

    def load(self, step: Step) -> None:
        if not is_gated(step.node):
            self._read(step)
            return
        before, (condition, otherwise) = self.active, (self.values[s] for s in step.sources[2:])
        self._activate(before & condition)
        self.values[step.place] = otherwise
        if len(self.running):
            self._read(step)
            self.values[step.place] = np.where(condition, self.values[step.place], otherwise)
        self._activate(before)

    def _read(self, step: Step) -> None:
        memory, places = self._places(step)
        found = memory.elements[places]
        if found.dtype == np.bool_:  # in a view any byte but 0 is true
            found = found.view(np.uint8) != 0
        self._give(step, found)

    def store(self, step: Step) -> None:
        memory, places = self._places(step)
        memory.elements[places] = self._each(step.sources[2])

    def change(self, step: Step) -> None:
        """Execute an ATOMIC or a CAS."""
        memory, places = self._places(step)
        if self.kernel.fences:
            self.order.change(self.lanes, self.running, memory.elements, places)
        given = [self._each(place) for place in step.sources[2:]]
        kind = step.node.arg if step.node.op == "ATOMIC" else "CAS"
        self._give(step, exchange_each(kind, memory.elements, places, *given))

    def load_atomically(self, step: Step) -> None:
        memory, places = self._places(step)
        if self.kernel.fences:
            acquires = is_fence(step.node)
            self.order.load(self.lanes, self.running, memory.elements, places, acquires)
        self._give(step, memory.elements[places])

    def store_atomically(self, step: Step) -> None:
        memory, places = self._places(step)
        if self.kernel.fences:
            releases = is_fence(step.node)
            self.order.store(self.lanes, self.running, memory.elements, places, releases)
        memory.elements[places] = self._each(step.sources[2])

    def _places(self, step: Step) -> tuple[Memory, Array]:
        """Return the memory of an access, and the checked index of each running lane's element."""
        memory, access = self.memories[step.sources[0]], self._access(step)
        index = self._each(step.sources[1])
        wide = None if step.wide_index is None else self._of_running(step.wide_index(self.values))
        if step.node.op in ("LOAD", "STORE") and step.node.arg is not None:
            lane, count = step.node.arg
            check_aligned(access, memory.name, index, count)
            index = index.astype(np.int64) + lane
            wide = None if wide is None else wide + lane
        places = memory.places(access, index, wide)
        memory.watch(access, places)
        return memory, places

    def _each(self, place: int) -> Array:
        """Return the value at `place` of `values`, with one element per running lane."""
        return self._of_running(self.values[place])

    def _of_running(self, value: Array) -> Array:
        if len(value) == self.lanes.size:
            return value if self.all else value[self.running]
        return np.broadcast_to(value, self.running.shape)

    def _give(self, step: Step, found: Array) -> None:
        """Set the step's value; `found` has one element per running lane."""
        if not self.all:
            everywhere = np.zeros(self.lanes.size, found.dtype)
            everywhere[self.running] = found
            found = everywhere
        self.values[step.place] = found

    def _access(self, step: Step) -> Access:
        return Access(self.kernel.name, step.node, self.lanes, self.running, self.kernel.device)


def _stored(node: UOp) -> np.dtype[Any]:
    dtype: DType = node.dtype  # type: ignore[assignment]  # verify has checked
    return stored_as(dtype)


STATEMENTS: dict[str, Callable[[Executor, Step], None]] = {
    "CONST": Executor.constant,
    "PARAM": Executor.param,
    "SPECIAL": Executor.special,
    "VAR": Executor.declare,
    "SET": Executor.set,
    "GET": Executor.get,
    "IF": Executor.branch,
    "RANGE": Executor.count,
    "LOOP": Executor.repeat,
    "BREAK": Executor.leave,
    "CONTINUE": Executor.skip,
    "RETURN": Executor.end,
    "BARRIER": Executor.barrier,
    "FENCE": Executor.fence,
    "SHUFFLE": Executor.shuffle,
    "BALLOT": Executor.ballot,
    "ASSERT": Executor.claim,
    "PRINT": Executor.print,
    "SHARED": Executor.share,
    "LOCAL": Executor.own,
    "TABLE": Executor.table,
    "VIEW": Executor.view,
    "LOAD": Executor.load,
    "STORE": Executor.store,
    **dict.fromkeys(("ATOMIC", "CAS"), Executor.change),
    "ATOMICLOAD": Executor.load_atomically,
    "ATOMICSTORE": Executor.store_atomically,
}
