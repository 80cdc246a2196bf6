"""A kernel loaded on the node, and its launch."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hal_core.program import Program

if TYPE_CHECKING:
    from hal_core.compiler import Binary
    from hal_core.geometry import Dim3
    from hal_ray.device import RayDevice


class RayProgram(Program):
    """A kernel on a device of a node. A launch is a command; a failure surfaces at a later wait."""

    device: RayDevice

    def __init__(self, device: RayDevice, binary: Binary) -> None:
        super().__init__(device, binary)
        self.number = next(device.numbers)
        self.info = device.connection.ask("load", self.number, binary)
        # Unloads a program that is garbage, too. Not at exit, when the device is closed already.
        self._end = weakref.finalize(self, device.connection.add_later, "unload", self.number)
        self._end.atexit = False
        self._pointers = tuple(param.position for param in self.signature.pointers)
        self._values = tuple(param.position for param in self.signature.values)

    def _geometry(self, grid: Dim3, block: Dim3, shared: int) -> Any:
        geometry = grid, block, shared
        if shared:  # which not every device takes
            self.device.connection.ask("geometry", self.number, geometry)
        return geometry

    def _bind(self) -> Callable[..., None]:
        # Locals of a closure: a launch looks up no attribute, and does not keep the program alive.
        add, number = self.device.connection.add, self.number
        pointers, values = self._pointers, self._values

        def launch(geometry: Any, *args: Any) -> None:
            places = [memory and memory.place for memory in [args[n] for n in pointers]]
            add("launch", number, geometry, places, tuple([args[n] for n in values]))

        return launch

    def _launch_timed(self, geometry: Any, args: tuple[Any, ...]) -> float:
        _, number, *launch = self.command(geometry, args)
        seconds: float = self.device.connection.ask("timed", number, *launch)
        return seconds

    def _unload(self) -> None:
        self._end()

    def command(self, geometry: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the command of a launch."""
        places = [args[n] and args[n].place for n in self._pointers]
        return "launch", self.number, geometry, places, tuple(args[n] for n in self._values)
