"""Graphs: work that is recorded once and replayed many times."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal, overload

from hal_core import files
from hal_core.buffer import Buffer
from hal_core.concurrency import OfThisProcess
from hal_core.device import opened
from hal_core.errors import HalError, InvalidArgument, InvalidState, as_flag, check_class
from hal_core.graph import saved, text
from hal_core.graph.capture import Recorder
from hal_core.graph.node import Changes, Node, Step, dependencies
from hal_core.graph.plan import Plan
from hal_core.profiling.events import changed
from hal_core.program import Program
from hal_core.queue import Event, Queue, captures, check_no_capture, checked

if TYPE_CHECKING:
    from hal_core.device.base import Compiled
    from hal_core.geometry import Extent


_A_BUFFER = "hal.empty(size, dtype, device) makes one."


class Graph(OfThisProcess):
    """Launches, copies and fills of one device that are replayed together.

    `with device.capture() as graph:` records what the thread does in the block, and runs nothing;
    `hal.Graph(device)` is empty, and `add`, `copy` and `fill` make its nodes. Their order
    follows from the bytes that they use; nodes that share none may run side by side.

    Owns: the programs and buffers of its nodes, until the graph goes.
    Order: a replay is one piece of work of its queue; two replays run one after the other.
    Concurrency: any thread may replay; do not change it during a replay.
    """

    device: Compiled
    nodes: list[Node]

    _instead = "Make it there: `with device.capture() as graph:` around the same work."

    def __init__(self, device: str | Compiled | None = None) -> None:
        """Make an empty graph, on the default device unless one is given.

        Raises: as `hal.Device[...]`; InvalidArgument for what is no device.
        """
        self.device = opened(device, "Graph")
        self.nodes = []
        self._plan: Plan | None = None  # of the last replay
        self._changes = Changes()
        self._recorder = Recorder(self.device, self.nodes, self._changes)
        self.device._graphs.add(self)

    # -- making it

    def add(
        self, program: Program, *given: Any, vals: tuple[Any, ...] | list[Any] | None = None,
        grid: Extent | None = None, block: Extent | None = None, threads: Extent | None = None,
        shared: int = 0,
    ) -> Node:  # fmt: skip
        """Add a launch; the arguments are those of a call of the program.

        Raises: as the launch would; InvalidArgument where it has no threads.
        """
        check_class(program, Program, "add", "device.compile(kernel) makes one.")
        before = len(self.nodes)
        program(
            *given, vals=vals, grid=grid, block=block, threads=threads, shared=shared,
            queue=self._recorder,
        )  # fmt: skip
        if len(self.nodes) == before:
            fix = "A launch without threads does nothing: leave it out."
            raise InvalidArgument("add", "the launch has no threads", got=program.name, fix=fix)
        return self.nodes[-1]

    def copy(self, dest: Buffer, src: Buffer) -> None:
        """Add a copy of all of `src`. Raises: as `copy_from` would."""
        check_class(dest, Buffer, "copy", _A_BUFFER).copy_from(src, queue=self._recorder)

    def fill(self, buffer: Buffer, value: float | bool) -> None:
        """Add a fill. Raises: as `Buffer.fill` would."""
        check_class(buffer, Buffer, "fill", _A_BUFFER).fill(value, queue=self._recorder)

    # -- using it

    @overload
    def replay(
        self, buffers: Mapping[Buffer, Buffer] | None = ..., *, queue: Queue | None = ...,
        wait: Literal[True],
    ) -> float: ...  # fmt: skip
    @overload
    def replay(self, buffers: Mapping[Buffer, Buffer] | None = ..., *, queue: Queue) -> Event: ...
    @overload
    def replay(self, buffers: Mapping[Buffer, Buffer] | None = ...) -> None: ...
    def replay(
        self, buffers: Mapping[Buffer, Buffer] | None = None, *, queue: Queue | None = None,
        wait: bool = False,
    ) -> Event | float | None:  # fmt: skip
        """Run all nodes; with `queue` as work of that queue, and return its event.

        `{a: b}` uses `b` in place of `a` and its views, for this replay. `wait=True` waits, and
        returns the seconds instead.

        Units: seconds from the call to the end of the work.
        Raises: InvalidArgument and InvalidState before anything has run: for buffers that were
        freed, are of another device, too small or misaligned; as a launch does.
        """
        check_no_capture("replay", "a graph cannot be replayed")
        self.device._check_open("replay")
        if buffers is not None and not isinstance(buffers, Mapping):
            raise InvalidArgument(
                "replay", "buffers is no mapping", got=type(buffers).__name__,
                fix="Write replay({old: new}).",
            )  # fmt: skip
        wait = as_flag(wait, "replay", "wait")
        start = time.perf_counter()
        plan = self._plan
        if plan is None or self._changes.since_replay or not plan.is_current(buffers):
            plan = self._plan = Plan(self.device, self.nodes, buffers, plan)
            self._changes.since_replay = False
        try:
            if queue is not None:
                checked(queue, "replay", self.device)._check_device(self.device, "replay")
            plan.check_order(queue or self.device.default_queue)
            if queue is None:
                plan.work()()
                if wait:
                    self.device._synchronize(None)
            else:
                queue._add_replay(plan)
                event = queue.record()
                if not wait:
                    return event
                event.wait()
            return time.perf_counter() - start if wait else None
        except (AttributeError, TypeError):
            self.device._check_open("replay")  # another thread may have closed it meanwhile
            raise

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The buffers whose memory the nodes use, in the order of their first use; no views."""
        every = [one for node in self.nodes for one in node.bufs]
        return tuple(dict.fromkeys(one if one.base is None else one.base for one in every))

    @property
    def dependencies(self) -> list[tuple[int, ...]]:
        """For each node, the numbers of the nodes that it comes after."""
        for buffer in self.buffers:
            buffer._opaque_for("graph")
        return dependencies([node.uses(node.bufs) for node in self.nodes])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the graph with its machine code to a file, for `hal.load_graph`.

        The contents of buffers are left out; data of `copyin` and `fill` is in it.
        Raises: InvalidArgument when the file cannot be written; nothing is changed then.
        """
        self.device._check_open("save")
        files.save("save", path, saved.to_bytes(self.device, self.nodes, self.buffers))

    def dot(self) -> str:
        """Return the graph in the language of Graphviz."""
        return text.dot(self.nodes, self.dependencies)

    def __str__(self) -> str:
        try:
            return text.table(self.device.name, self.nodes, self.dependencies)
        except HalError:  # of a closed device, or a buffer that was freed: there are no addresses
            return text.table(self.device.name, self.nodes, None)

    def __repr__(self) -> str:
        return f"<Graph {self.device.name} {len(self.nodes)} nodes>"

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __getitem__(self, number: int) -> Node:
        try:
            return self.nodes[number]
        except TypeError:
            problem, fix = "a graph's nodes are numbered", "Write graph[0]."
            raise InvalidArgument("graph[...]", problem, got=number, fix=fix) from None
        except IndexError:
            count = len(self.nodes)
            limit = f"nodes 0 to {count - 1}" if count else "it has none"
            error = NoSuchNode("graph[...]", f"{self!r} has no such node", got=number, limit=limit)
            raise error from None


class NoSuchNode(InvalidArgument, IndexError):
    pass


def load_graph(path: str | os.PathLike[str], device: str | Compiled | None = None) -> Graph:
    """Read a graph that `Graph.save` wrote, for a device of the same target.

    It has new `buffers`, in the same order as the saved graph. Their contents are undefined: write
    to them, or replace them in `replay`. The file has machine code, which a replay runs: load none
    from a source that you do not trust. Nothing is unpickled.

    Raises: InvalidArgument for a file that is damaged, cut short or made for another target.
    """
    graph = Graph(device)
    saved.from_bytes(graph.device, saved.read(path), graph)
    return graph


class Capture(AbstractContextManager[Graph]):
    """`with device.capture() as graph:`, which makes a new graph each time it is entered."""

    def __init__(self, device: Compiled) -> None:
        self._device = device
        self._blocks: dict[int, AbstractContextManager[Graph]] = {}  # by thread

    def __enter__(self) -> Graph:
        block = _captured(self._device)
        graph = block.__enter__()
        self._blocks[get_ident()] = block
        return graph

    def __exit__(self, *error: Any) -> bool | None:
        blocks, thread = self._blocks, get_ident()
        if not blocks:
            raise InvalidState("capture", "this block was never entered, or has ended already")
        block = blocks.pop(thread) if thread in blocks else blocks.popitem()[1]
        return block.__exit__(*error)


@contextmanager
def _captured(device: Compiled) -> Iterator[Graph]:
    """Record all work of this thread without `queue=` in a new graph.

    After an exception the graph is empty. Raises: InvalidState.
    """
    graph, thread = Graph(device), get_ident()
    if thread in captures:
        problem, fix = "this thread captures a graph already", "End that `with` block first."
        raise InvalidState("capture", problem, device=device.name, fix=fix)
    try:
        captures[thread] = graph._recorder
        changed()
        yield graph
    except BaseException:
        graph.nodes.clear()
        raise
    finally:
        captures.pop(thread, None)
        changed()
        graph._changes.since_replay = True


__all__ = ["Capture", "Graph", "Node", "Step", "load_graph"]
