"""A graph's replay as one command: its steps are captured there, once."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hal_ray.allocator import part

if TYPE_CHECKING:
    from hal_core.device.base import Compiled
    from hal_core.graph import Step


def replay_there(device: Compiled, steps: list[Step]) -> Callable[[], None] | None:
    """Return a function that sends one replay; None for steps that copy from another device."""
    any_device: Any = device
    commands, codes = [], []
    for kind, program, geometry, args, _ in steps:
        if program is not None:
            loaded: Any = program
            commands.append(loaded.command(geometry, *args))
            codes.append(loaded.code)
            continue
        dest, *rest = args
        if kind == "copy":
            src, nbytes, src_device = rest
            if src_device is not device:
                return None
            commands.append(("copy", part(dest, 0, nbytes), part(src, 0, nbytes)))
        elif kind == "fill":
            commands.append(("fill", part(dest, 0, rest[0]), rest[1]))
        else:
            commands.append(("write", part(dest, 0, rest[0].nbytes), bytes(rest[0])))
    connection, number = any_device.connection, next(any_device.numbers)
    connection.add("define", number, tuple(commands))

    def replay(kept: object = codes) -> None:  # the code there lives as long as this function
        connection.add("replay", number)

    weakref.finalize(replay, connection.add_later, "forget", number).atexit = False
    return replay
