"""A kernel loaded on the node, and its launch."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hal_core.program import Program
from hal_core.program.generated import define

if TYPE_CHECKING:
    from hal_core.geometry import Dim3
    from hal_core.source import Binary
    from hal_ray.device import RayDevice

# The command of a launch: what its actor finds the launch by, then the numbers.
_LAUNCH = """
def launch(geometry, {names}):
    return add((number, geometry, ({pointers})), ({values}))
"""


class Code:
    """Machine code on the node, unloaded there once no program, launch or graph needs it."""


class RayProgram(Program):
    """A kernel on a device of a node. A launch is a command; a failure surfaces at a later wait."""

    device: RayDevice

    def __init__(self, device: RayDevice, binary: Binary) -> None:
        super().__init__(device, binary)
        self.number = next(device.numbers)
        self.info = device.connection.ask("load", self.number, binary)
        self.code: Code | None = Code()
        # Not at exit, when the device is closed already.
        end = weakref.finalize(self.code, device.connection.add_later, "unload", self.number)
        end.atexit = False
        self.command = self._define(lambda *command: command)

    def _geometry(self, grid: Dim3, block: Dim3, shared: int) -> Any:
        geometry = grid, block, shared
        if shared:  # which not every device takes
            self.device.connection.ask("geometry", self.number, geometry)
        return geometry

    def _bind(self) -> Callable[..., None]:
        return self._define(self.device.connection.add)

    def _launch_timed(self, geometry: Any, args: tuple[Any, ...]) -> float:
        seconds: float = self.device.connection.ask("timed", *self.command(geometry, *args))
        return seconds

    def _unload(self) -> None:
        self.code, self.command = None, self._refuse_unloaded

    def _define(self, add: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function that gives the command of a launch to `add`.

        It looks up no attribute, and keeps the code there alive, not the program.
        """
        params = self.signature.params
        names, pointers, values = (
            "".join(f"a{param.position}, " for param in wanted)
            for wanted in (params, self.signature.pointers, self.signature.values)
        )
        text = _LAUNCH.format(names=names, pointers=pointers, values=values)
        known = {"add": add, "number": self.number, "code": self.code}
        return define(text, "launch", "launch on RAY", known)
