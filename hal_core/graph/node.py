"""The nodes of a graph, and which of them come after which.

0  fill x                  writes bytes 0 to 400 of x
1  launch f(y, x)          reads what 0 wrote: after 0
2  copy z from x[0:10]     reads what 0 wrote: after 0; beside 1
3  fill x[50:]             writes what 1 read: after 0 and 1; nothing of 2's bytes
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

from hal_core.concurrency import OfThisProcess
from hal_core.errors import InvalidArgument
from hal_core.signature import POINTER

if TYPE_CHECKING:
    from hal_core.buffer import Buffer
    from hal_core.program import Program

LAUNCH, COPY, FILL, COPYIN = "launch", "copy", "fill", "copyin"


_SIZES = ("grid", "block", "threads", "shared")
_BORROWED = "borrowed"  # memory of others, of which nobody knows what it shares


class Use(NamedTuple):
    """A byte range that a node uses."""

    memory: object  # what the bytes are counted in: a driver's handle, or None for addresses
    start: int
    end: int
    writes: bool


class Step(NamedTuple):
    """A node with the memory of one replay, as a backend takes it.

    launch: `args` are the arguments of the program's launch; copy: destination, source, bytes
    and the source's device; fill: destination, bytes and pattern; copyin: destination and flat
    bytes of the host.
    """

    kind: str
    program: Program | None
    geometry: Any
    args: tuple[Any, ...]
    dependencies: tuple[int, ...]  # numbers of the steps that it comes after


class Changes:
    """Tells a graph that a node has changed since its last replay.

    The nodes hold this and not the graph: a circle would keep its memory after its last user.
    """

    since_replay = False


class Node(OfThisProcess):
    """One launch, copy or fill of a graph; `graph[i]` is the i-th.

    Owns: the program and the buffers.
    """

    kind: str  # "launch", "copy", "fill" or "copyin"
    number: int  # in its graph
    bufs: tuple[Buffer, ...]  # of a copy: destination, source
    program: Program | None  # of a launch
    geometry: Any  # of a launch, in the form of its program
    data: bytes  # of a copyin, or the pattern of a fill

    _instead = "Make it there: graph.add(program, *buffers)."

    def __init__(
        self, kind: str, number: int, bufs: tuple[Buffer, ...], changes: Changes,
        program: Program | None = None, geometry: Any = None, args: tuple[Any, ...] = (),
        sizes: tuple[Any, ...] = (), data: bytes = b"",
    ) -> None:  # fmt: skip
        self.kind, self.number, self.bufs, self.data = kind, number, bufs, data
        self.program, self.geometry = program, geometry
        self._args = args  # of a launch, with the opaques of capture in the places of pointers
        self._sizes = sizes  # of a launch: grid, block, threads and shared
        self._changes = changes

    @property
    def vals(self) -> tuple[Any, ...]:
        """The values of a launch, in the order of the signature."""
        if self.program is None:
            return ()
        return tuple(self._args[param.position] for param in self.program.signature.values)

    def update(self, *given: Any, vals: Sequence[Any] | None = None, **how: Any) -> None:
        """Launch with other buffers, values or sizes, from the next replay on.

        `given` are all arguments in the order of the signature, or the buffers alone.
        An argument that is left out keeps its value. `how` takes `grid`, `block`, `threads` and
        `shared`, as a launch does; `grid` takes the place of `threads`, and `threads` of `grid`.
        Raises: as the launch would, and the node stays as it was; InvalidArgument for a node that
        is no launch.
        """
        if self.program is None:
            fix = "replay({old: new}) exchanges the buffers of every node."
            raise InvalidArgument("update", f"node {self.number} is a {self.kind}", fix=fix)
        program = self.program
        for unknown in how.keys() - _SIZES:
            near = get_close_matches(unknown, (*_SIZES, "vals"), 1)
            fix = f"Did you mean {near[0]}=?" if near else f"It takes vals, {', '.join(_SIZES)}."
            problem = "a launch has no such argument"
            raise InvalidArgument("update", problem, got=unknown, fix=fix)
        bufs: tuple[Buffer, ...] = given or self.bufs
        if vals is None and len(given) > len(self.bufs):
            bufs, vals = program._split(given, None)
        args = program._arguments(bufs, self.vals if vals is None else vals)
        if how:
            sizes = dict(zip(_SIZES, self._sizes, strict=True))
            for given_one, other in (("grid", "threads"), ("threads", "grid")):
                if how.get(given_one) is not None:
                    sizes[other] = None
            sizes |= how
            geometry = program._resolved(**sizes)
            if geometry is None:
                fix = "Leave the node out of the graph, or let its kernel do nothing."
                raise InvalidArgument("update", "the launch has no threads", got=how, fix=fix)
            self.geometry, self._sizes = geometry, program._plain(*sizes.values())
        self.bufs, self._args = bufs, args
        self._changes.since_replay = True

    def writes(self) -> list[bool]:
        """Return for each of the node's buffers True where it may be written."""
        if self.program is not None:
            return [param.kind == POINTER for param in self.program.signature.pointers]
        return [True, False][: len(self.bufs)]

    def uses(self, bufs: Sequence[Buffer]) -> list[Use]:
        """Return the byte ranges that the node uses when it has these buffers."""
        found = []
        for buffer, writes in zip(bufs, self.writes(), strict=True):
            place = buffer._device.allocator._place(buffer._buf)
            if place is None:
                root = buffer if buffer.base is None else buffer.base
                place = root, buffer.offset
                if root.options.external_ptr is not None:
                    found.append(Use(_BORROWED, 0, 1, writes))  # the same bytes for all of them
                    continue
            memory, start = place
            found.append(Use(memory, start, start + buffer.nbytes, writes))
        return found

    def step(self, bufs: Sequence[Buffer], dependencies: tuple[int, ...]) -> Step:
        """Return the node's work with these buffers, which have memory."""
        opaques = [buffer._buf for buffer in bufs]
        args: tuple[Any, ...] = opaques[0], bufs[0].nbytes, self.data
        if self.program is not None:
            whole = list(self._args)
            for param, opaque in zip(self.program.signature.pointers, opaques, strict=True):
                whole[param.position] = opaque
            args = tuple(whole)
        elif self.kind == COPY:
            args = opaques[0], opaques[1], bufs[0].nbytes, bufs[1]._device
        elif self.kind == COPYIN:
            args = opaques[0], memoryview(self.data)
        return Step(self.kind, self.program, self.geometry, args, dependencies)

    @property
    def nbytes(self) -> int:
        """The bytes that a copy or fill writes; for a launch, the bytes of all its buffers."""
        return sum(one.nbytes for one in self.bufs) if self.program else self.bufs[0].nbytes

    @property
    def title(self) -> str:
        """The kind, and for a launch the name of the kernel: `launch saxpy`."""
        return f"{self.kind} {self.program.name}" if self.program else self.kind

    def __repr__(self) -> str:
        named = ", ".join(map(repr, self.bufs))
        return f"<Node {self.number} {self.title} {named}>"


def dependencies(uses: Iterable[list[Use]]) -> list[tuple[int, ...]]:
    """Return for each node the numbers of the nodes that it comes after.

    Two nodes have an order when one writes bytes that the other reads or writes. Of those before
    it, a node names the ones that no other write has covered since.
    """
    found = []
    latest: dict[object, dict[tuple[int, int, bool], list[int]]] = {}  # memory -> range -> nodes
    for number, ranges in enumerate(uses):
        after: set[int] = set()
        for memory, start, end, writes in ranges:
            known = latest.setdefault(memory, {})
            for (first, last, wrote), nodes in known.items():
                if first < end and start < last and (writes or wrote):
                    after.update(nodes)
        for memory, start, end, writes in ranges:
            known = latest[memory]
            if writes:
                for old in [old for old in known if start <= old[0] and old[1] <= end]:
                    del known[old]
                known[start, end, True] = [number]
            else:
                known.setdefault((start, end, False), []).append(number)
        after.discard(number)
        found.append(tuple(sorted(after)))
    return found
