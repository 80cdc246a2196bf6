"""Replay of a graph: all of its steps in one command buffer, which is encoded for each replay."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from hal_core.graph.node import COPY, COPYIN
from hal_metal import driver, transfers
from hal_metal.program import MetalProgram

if TYPE_CHECKING:
    from collections.abc import Callable

    from hal_core.device.base import Compiled
    from hal_core.graph import Step
    from hal_metal.device import MetalDevice


class Replay:
    """The steps of a graph; a call replays them on the default queue.

    Metal runs the kernels of one encoder in their order, and encoders one after the other.
    """

    def __init__(self, device: MetalDevice, parts: list[Callable[[Any], None]], name: str) -> None:
        self._device, self._parts, self._name = device, parts, name

    def encode(self, commands: Any) -> None:
        """Add all steps to a command buffer. Raises: Refused."""
        for part in self._parts:
            part(commands)

    def __call__(self) -> None:
        with driver.check("replay", self._device.name):
            self._device.submit(self._name, self.encode)


def native_replay(device: Compiled, steps: list[Step]) -> Replay | None:
    """Prepare a replay; return None where a copy is from another device."""
    ours: Any = device
    parts: list[Callable[[Any], None]] = []
    launches: list[Callable[[Any], None]] = []  # of one encoder, as the part before
    names = []
    with driver.check("replay", device.name):
        for step in steps:
            if isinstance(step.program, MetalProgram):
                if not launches:
                    parts.append(partial(_encode_launches, launches))
                launches.append(_launch(step.program, step))
                names.append(step.program.name)
                continue
            launches = []
            if step.kind == COPY:
                dest, src, nbytes, src_device = step.args
                if src_device is not device:
                    return None
                parts.append(partial(transfers.copy, ours, dest=dest, src=src, nbytes=nbytes))
            elif step.kind == COPYIN:
                dest, data = step.args
                src, nbytes = transfers.staged(ours, data), data.nbytes
                parts.append(partial(transfers.copy, ours, dest=dest, src=src, nbytes=nbytes))
            else:
                dest, nbytes, pattern = step.args
                fill = partial(transfers.fill, ours, dest=dest, nbytes=nbytes, pattern=pattern)
                parts.append(fill)
    kernels = ", ".join(dict.fromkeys(names))
    return Replay(ours, parts, f"replay of a graph{f' with {kernels}' if kernels else ''}")


def _launch(program: MetalProgram, step: Step) -> Callable[[Any], None]:
    program.check_images(step.args)
    encode, geometry, args = program.encoder(), step.geometry, step.args
    return lambda encoder: encode(encoder, geometry, *args)


def _encode_launches(launches: list[Callable[[Any], None]], commands: Any) -> None:
    def encode(encoder: Any) -> None:
        for launch in launches:
            launch(encoder)

    driver.compute(commands, encode)
