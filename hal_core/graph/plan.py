"""One replay made ready: the nodes' work with the memory of certain buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from operator import is_
from typing import TYPE_CHECKING, Any

from hal_core.buffer import Buffer
from hal_core.errors import InvalidArgument, check_class
from hal_core.graph.node import Node, dependencies
from hal_core.profiling import events

if TYPE_CHECKING:
    from hal_core.device.base import Compiled
    from hal_core.queue import Queue


class Plan:
    """The steps of a graph with the memory of one choice of buffers, checked as launches are.

    Owns: the programs and the buffers. Its memory is given back when the last replay is done, as
    queues keep the plan until then.
    """

    def __init__(
        self, device: Compiled, nodes: Sequence[Node], buffers: Mapping[Buffer, Buffer] | None,
        earlier: Plan | None = None,
    ) -> None:  # fmt: skip
        """`earlier` is the last plan of the graph.

        Raises: InvalidArgument, InvalidState; nothing has run then."""
        self.device = device
        self._given = tuple(chain.from_iterable((buffers or {}).items()))
        others = exchanged(device, nodes, buffers or {})
        self._rows = [(node, [others.get(one, one) for one in node.bufs]) for node in nodes]
        for node, bufs in self._rows:
            if node.program is not None:
                node.program._check_loaded()
                node.program._check_buffers(bufs)
            for buffer in bufs:
                buffer._opaque_for(f"replay: {node.title} of node {node.number}")
        after = dependencies(node.uses(bufs) for node, bufs in self._rows)
        self.steps = [
            node.step(bufs, before) for (node, bufs), before in zip(self._rows, after, strict=True)
        ]
        distinct = dict.fromkeys(one for _, bufs in self._rows for one in bufs)
        self._memory = [(one, one._key, one._buf) for one in distinct]
        self._programs = list(dict.fromkeys(step.program for step in self.steps if step.program))
        self._native: Callable[[], None] | None = None
        self._native_is_made = False
        self._like: Any = None if earlier is None else earlier._native or earlier._like

    def check_order(self, queue: Queue) -> None:
        """In checked mode, refuse a replay as its launches and copies would be."""
        if self.device._order is not None:
            names = [f"{node.kind} of node {node.number} in a replay" for node, _ in self._rows]
            uses = [zip(bufs, node.writes(), strict=True) for node, bufs in self._rows]
            self.device._order.add(queue, zip(names, uses, repeat(None), strict=False))

    def keep(self) -> tuple[Any, ...]:
        """Return what a replay needs until it is done."""
        return self, *[buffer._share() for buffer, _, _ in self._memory]

    def is_current(self, buffers: Mapping[Buffer, Buffer] | None) -> bool:
        """Tell whether the memory is still that of the buffers, which are these in this order."""
        given = () if buffers is None else tuple(chain.from_iterable(buffers.items()))
        if len(given) != len(self._given) or not all(map(is_, given, self._given)):
            return False
        for buffer, key, opaque in self._memory:
            if buffer._key is not key or buffer._buf is not opaque:
                return False
        return not any(program._unloaded for program in self._programs)

    def native(self) -> Any:
        """Return the replay that the device's `graph` makes of the steps; None if it makes none.

        None, too, while a profile is open, which sees every step.
        """
        if events.open_profiles:
            return None
        if not self._native_is_made:
            make, with_steps = self.device.graph, getattr(self._like, "with_steps", None)
            if with_steps is not None:
                self._native = with_steps(self.steps)
            if self._native is None and make is not None:
                self._native = make(self.device, self.steps)
            self._native_is_made, self._like = True, None
        return self._native

    def work(self) -> Callable[[], None]:
        """Return the work on the default queue: native where the device can, else step by step.

        All that it calls is bound now: before a queue's thread comes to it, a program may be
        unloaded.
        """
        native = self.native()
        if native is not None:
            return native  # type: ignore[no-any-return]
        allocator = self.device.allocator
        calls = [
            (getattr(allocator, f"_{kind}"), args)
            if program is None
            else (program._launch or program._bind(), (geometry, *args))
            for kind, program, geometry, args, _ in self.steps
        ]
        return partial(_call_all, calls)


def _call_all(calls: list[tuple[Callable[..., object], tuple[Any, ...]]]) -> None:
    for call, args in calls:
        call(*args)


def exchanged(
    device: Compiled, nodes: Sequence[Node], buffers: Mapping[Buffer, Buffer]
) -> dict[Buffer, Buffer]:
    """Return for the nodes' buffers those that replace them in a replay."""
    found: dict[Buffer, Buffer] = {}
    distinct = dict.fromkeys(one for node in nodes for one in node.bufs)
    for old, new in buffers.items():
        _check_pair(device, old, new)
        parts = {buffer: _part_of(old, new, buffer) for buffer in distinct}
        made = {buffer: part for buffer, part in parts.items() if part is not None}
        if not made:
            fix = "graph.buffers lists those that are there."
            raise InvalidArgument("replay", f"no node of the graph uses {old!r}", fix=fix)
        found |= made
    return found


def _check_pair(device: Compiled, old: Any, new: Any) -> None:
    for one in (old, new):
        check_class(one, Buffer, "replay", "replay({old: new}) takes buffers.")
        if one._device is not device:
            one._device._check_open("replay")
            raise InvalidArgument(
                "replay", f"{one!r} is on another device", device=device.name,
                fix="Copy it first: there.copy_from(here).",
            )  # fmt: skip
    got, limit = (one.options.image or one.dtype for one in (new, old))
    if got != limit:
        what, fix = "dtype", "Give a view of it: new.view(dtype=old.dtype)."
        if old.options.image or new.options.image:
            what, fix = "size or format", "Give an image of the same, or a buffer for a buffer."
        raise InvalidArgument(
            "replay", f"{new!r} has another {what}", got=got, limit=limit, device=device.name,
            fix=fix,
        )  # fmt: skip
    if new.nbytes < old.nbytes:
        raise InvalidArgument(
            "replay", f"{new!r} is too small", got=f"{new.nbytes} bytes",
            limit=f"needs {old.nbytes} bytes", device=device.name,
        )  # fmt: skip


def _part_of(old: Buffer, new: Buffer, buffer: Buffer) -> Buffer | None:
    """Return the part of `new` that takes the place of `buffer`; None if that is not of `old`.

    Raises: InvalidArgument when `buffer` reaches beyond `old`.
    """
    roots = [one if one.base is None else one.base for one in (old, buffer)]
    start, end = buffer.offset - old.offset, buffer.offset - old.offset + buffer.nbytes
    if roots[0] is not roots[1] or end <= 0 or start >= old.nbytes:
        return None
    if start < 0 or end > old.nbytes:
        fix = "Exchange the whole buffer, of which both are views."
        raise InvalidArgument("replay", f"only a part of {buffer!r} lies in {old!r}", fix=fix)
    if start == 0 and (new.size, new.dtype) == (buffer.size, buffer.dtype):
        return new
    return new.view(buffer.size, buffer.dtype, start)
