"""Recording the work of one thread: a queue that runs nothing and appends nodes to a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hal_core.errors import InvalidArgument, Unsupported
from hal_core.graph.node import LAUNCH, Changes, Node
from hal_core.queue import Event, Queue, refuse_in_capture

if TYPE_CHECKING:
    from hal_core.buffer import Buffer
    from hal_core.device.base import Compiled
    from hal_core.program import Program


class Recorder(Queue):
    """Stands where a queue does, and adds each piece of work to a graph."""

    _keeps_work = True  # it has none that runs

    def __init__(self, device: Compiled, nodes: list[Node], changes: Changes) -> None:
        super().__init__(device, f"a graph of {device.name}")
        self._nodes, self._changes = nodes, changes

    def _add_launch(
        self, program: Program, geometry: Any, bufs: tuple[Buffer, ...], args: tuple[Any, ...],
        sizes: tuple[Any, ...] = (), wait: bool = False,
    ) -> None:  # fmt: skip
        if wait:
            refuse_in_capture(f"launch {program.name}", "wait=True cannot wait", self.device.name)
        if program.device is not self.device or program.device.closed:
            self._check_device(program.device, f"launch {program.name}")
        nodes, sizes = self._nodes, program._plain(*sizes)
        nodes.append(Node(LAUNCH, len(nodes), bufs, self._changes, program, geometry, args, sizes))
        self._changes.since_replay = True

    def _check_device(self, device: Compiled, operation: str) -> None:
        if device is not self.device and not device.closed:
            fix = f"Capture a graph of {device.name}, too; an event of one replay orders the "
            fix += "other. With queue= the work is in no graph, and runs now."
            raise InvalidArgument(
                operation, f"a graph of {self.device.name} has work of {self.device.name} alone",
                got=f"work of {device.name}", device=device.name, fix=fix,
            )  # fmt: skip
        super()._check_device(device, operation)

    def _add_memory_work(self, method: str, args: tuple[Any, ...], *bufs: Buffer) -> Event:
        dest, src = bufs[0], bufs[-1]
        if method == "_copyout":
            refuse_in_capture("copyout", "data cannot be read", self.device.name)
        if src._device is not dest._device:
            raise Unsupported(
                "copy_from", "a graph copies within its device", got=src.device,
                device=dest.device, fix="Copy before the graph is replayed, or behind it.",
            )  # fmt: skip
        self._check_device(dest._device, method[1:])
        if dest.nbytes:
            # Of a copyin or a fill. The caller may change the bytes as soon as the call returns.
            data = b"" if bufs[1:] else bytes(args[-1])
            node = Node(method[1:], len(self._nodes), bufs, self._changes, data=data)
            self._nodes.append(node)
            self._changes.since_replay = True
        return _DONE


_DONE = Event()
_DONE.set()
