"""A graph's replay as one command: its steps are captured there, once."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hal_core.device.base import Compiled
    from hal_core.graph import Step


def replay_there(device: Compiled, steps: list[Step]) -> Callable[[], None] | None:
    """Return a function that sends one replay; None for steps that copy from another device."""
    any_device: Any = device
    commands = []
    for kind, program, geometry, args, _ in steps:
        if program is not None:
            loaded: Any = program
            commands.append(loaded.command(geometry, args))
            continue
        dest, *rest = args
        if kind == "copy":
            src, nbytes, src_device = rest
            if src_device is not device:
                return None
            part = dest.part(0, nbytes).place, src.part(0, nbytes).place
            commands.append(("copy", *part))
        elif kind == "fill":
            commands.append(("fill", dest.part(0, rest[0]).place, rest[1]))
        else:
            commands.append(("write", dest.part(0, rest[0].nbytes).place, bytes(rest[0])))
    connection, number = any_device.connection, next(any_device.numbers)
    connection.add("define", number, tuple(commands))

    def replay() -> None:
        connection.add("replay", number)

    weakref.finalize(replay, connection.add_later, "forget", number).atexit = False
    return replay
