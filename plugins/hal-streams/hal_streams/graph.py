"""Graphs of the driver: the steps of a replay as nodes, and one call that launches all of them.

steps: fill x, launch f(y, x)      nodes: a fill, a launch that comes after it
replay                             launch the graph: one call
replay({y: z})                     set the launch's arguments, launch the graph: two calls
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from hal_core.buffer import Buffer
from hal_core.concurrency import fork_safe_lock
from hal_core.dtypes import uint8
from hal_core.errors import HalError
from hal_core.graph.node import COPY, COPYIN
from hal_streams.images import Array, is_direct

if TYPE_CHECKING:
    from collections.abc import Callable

    from hal_core.device.base import Compiled
    from hal_core.graph import Step
    from hal_streams.device import StreamDevice
    from hal_streams.marks import Mark

_WIDE_NBYTES = 1 << 20  # of a fill that is a copy of so many bytes kept on the device

Shape = list[tuple[Any, tuple[int, ...], list[Any]]]  # of each step: program, order, its nodes
Parts = dict[tuple[int, str], tuple[Any, Buffer]]  # of a graph: (step, purpose) -> content, memory


class Command(NamedTuple):
    """A node of the driver's graph."""

    kind: str  # "launch", "copy" or "fill", as the driver's functions are named
    args: tuple[Any, ...]  # of a launch: the program, its geometry, its arguments

    def has_array(self) -> bool:
        """Tell whether it copies an image: then its node stays as it is, like its memory."""
        return any(isinstance(one, Array) for one in self.args)


class Executable:
    """A graph of the driver that is ready to be launched.

    Owns: the graph, which the device destroys some time after this object is gone.
    """

    _key: int | None = None  # of the graph; here, as `__del__` reads it

    def __init__(
        self, device: StreamDevice, steps: list[Step], commands: list[list[Command]], shape: Shape
    ) -> None:
        self.device, self.shape = device, shape
        self.commands: list[list[Command]] | None = commands
        self.ready: Any = None
        self.lock = fork_safe_lock()  # between setting nodes and the launch that is to see it
        self.nodes: list[list[Any]] = []
        self.last: tuple[Any, Mark | None] | None = None  # stream of the last replay, and its end
        with device.own("replay"):
            device.unload_unused()
            graph = device.api.make_graph()
            handles = [graph, None]
            self._key = device.add_made(lambda: device.api.destroy_graph(*handles))
            for step, group in zip(steps, commands, strict=True):
                after = [self.nodes[number][-1] for number in step.dependencies]
                made: list[Any] = []
                for command in group:
                    made.append(self._apply("add", graph, [*after, *made[-1:]], command))
                self.nodes.append(made)
            self.ready = handles[1] = device.api.instantiate(graph)

    def _apply(self, what: str, *given: Any) -> Any:
        """Add a node, or set one that is there."""
        api, (kind, args) = self.device.api, given[-1]
        call: Callable[..., Any] = getattr(api, f"{what}_{kind}")
        if kind != "launch":
            return call(*given[:-1], *args, self.device.context)
        program, geometry, values = args
        return program.with_arguments(values, partial(call, *given[:-1]), geometry)

    def launch(self, commands: list[list[Command]], stream: Any) -> None:
        """Queue a replay with these commands. Only nodes whose command has changed are set."""
        device = self.device
        with self.lock:
            if commands is not self.commands:
                # None until all are set: if the driver refuses one, the next launch sets all.
                before, self.commands = self.commands, None
                with device.own("replay"):
                    for number, new in enumerate(commands):
                        for place, command in enumerate(new):
                            known = before is not None and command == before[number][place]
                            if (known and not _has_zero(command)) or command.has_array():
                                continue
                            self._apply("set", self.ready, self.nodes[number][place], command)
                self.commands = commands
            device.last_launched[0] = "one of a graph"
            if device.api.orders_replays:
                device.call("replay", device.api.launch_graph, self.ready, stream)
            else:
                self._launch_in_turn(stream)

    def _launch_in_turn(self, stream: Any) -> None:
        device, last = self.device, self.last
        if last is not None and last[0] != stream:
            mark = last[1] or device.marks.record(last[0])
            device.call("replay", device.api.wait_for, stream, mark.handle)
        self.last = stream, None  # first, as Ctrl-C may come behind the launch
        device.call("replay", device.api.launch_graph, self.ready, stream)
        if stream == device.stream:  # it lives as long as the device: it can be marked later
            return
        try:
            self.last = stream, device.marks.record(stream)
        except HalError:  # the stream may be gone when the next replay is to wait for this one
            with device.api.relaxed():
                device.call("replay", device.api.wait, stream)
            self.last = None
            raise

    def __del__(self) -> None:
        if self._key is not None:
            self.device.unused.append(self._key)


class StreamReplay:
    """A replay by the driver. Owns: data of the host that it copies, on the device."""

    def __init__(self, executable: Executable, commands: list[list[Command]], parts: Parts) -> None:
        self._executable, self._commands, self._parts = executable, commands, parts

    def __call__(self) -> None:
        self.launch(self._executable.device.stream)

    def launch(self, stream: Any) -> None:
        """Queue the replay on a stream of the device."""
        self._executable.launch(self._commands, stream)

    def with_steps(self, steps: list[Step]) -> StreamReplay | None:
        """Return the replay of other steps of the same nodes; None where it has to be made anew."""
        device, parts = self._executable.device, dict(self._parts)
        commands = [_commands(device, number, step, parts) for number, step in enumerate(steps)]
        if any(group is None for group in commands):
            return None
        known = [group for group in commands if group is not None]
        before = self._commands, self._executable.shape
        if _shape(device, steps, known, before) != self._executable.shape:
            return None
        return StreamReplay(self._executable, known, parts)


def native_replay(device: StreamDevice, steps: list[Step]) -> StreamReplay | None:
    """Make a graph of the driver; return None for steps that it does not take."""
    parts: Parts = {}
    try:
        commands = [_commands(device, number, step, parts) for number, step in enumerate(steps)]
        known = [group for group in commands if group is not None]
        if not steps or len(known) < len(steps):
            return None
        shape = _shape(device, steps, known)
        return StreamReplay(Executable(device, steps, known, shape), known, parts)
    except HalError:  # run one by one, the steps raise their own errors
        return None


def _shape(
    device: StreamDevice, steps: list[Step], commands: list[list[Command]],
    before: tuple[list[list[Command]], Shape] | None = None,
) -> Shape:  # fmt: skip
    """Return what the driver cannot change in a graph that is ready: kinds, programs, order, where
    memory lies, and copies of arrays. `before` is that of other commands, for which the driver is
    not asked again.

    Source: cuGraphExecMemcpyNodeSetParams refuses operands whose mappings changed, and arrays.
    """
    found: Shape = []
    operands = {"launch": 0, "fill": 1, "copy": 2}  # of a command; they come first
    for number, (step, group) in enumerate(zip(steps, commands, strict=True)):
        if before is not None and before[0][number] == group:
            kinds = before[1][number][2]
        else:
            kinds = []
            for command in group:
                owners = list(command.args)
                if not command.has_array():
                    places = command.args[: operands[command.kind]]
                    owners = [device.call("replay", device.api.owner_of, one) for one in places]
                kinds.append((command.kind, *owners))
        found.append((step.program, step.dependencies, kinds))
    return found


def _commands(device: StreamDevice, number: int, step: Step, parts: Parts) -> list[Command] | None:
    """Return the nodes of a step, one after the other; None where the driver has no such nodes."""
    if step.program is not None:
        return [Command("launch", (step.program, step.geometry, step.args))]
    if step.kind == COPYIN:
        dest, data = step.args
        return [Command("copy", (dest, _kept(device, number, data, parts), data.nbytes))]
    if step.kind == COPY:
        dest, src, nbytes, _ = step.args
        if is_direct(dest, src, nbytes):
            return [Command("copy", (dest, src, nbytes))]
        key = number, "between"  # memory of the graph's own
        if key not in parts or parts[key][0] != nbytes:
            parts[key] = nbytes, Buffer(device, nbytes, uint8).allocate()
        between = int(parts[key][1]._buf)
        return [Command("copy", (between, src, nbytes)), Command("copy", (dest, between, nbytes))]
    dest, nbytes, pattern = step.args
    half = len(pattern) // 2
    if len(pattern) == 8 and pattern[:half] == pattern[half:]:
        pattern = pattern[:half]
    if len(pattern) < 8 and not isinstance(dest, Array):
        return [Command("fill", (dest, pattern, nbytes // len(pattern)))]
    if nbytes > _WIDE_NBYTES:
        return None
    data = memoryview(pattern * (nbytes // len(pattern)))
    return [Command("copy", (dest, _kept(device, number, data, parts), nbytes))]


def _kept(device: Compiled, number: int, data: memoryview, parts: Parts) -> int:
    """Return the address of a copy of `data` on the device."""
    known = parts.get((number, "data"))
    if known is None or known[0] != data:
        buffer = Buffer(device, data.nbytes, uint8).copyin(data)
        parts[number, "data"] = data, buffer
    return int(parts[number, "data"][1]._buf)


def _has_zero(command: Command) -> bool:
    """Tell whether a launch takes 0.0, which equals -0.0 and is not the same to a kernel."""
    values = command.args[2] if command.kind == "launch" else ()
    return any(isinstance(one, float) and one == 0 for one in values)
