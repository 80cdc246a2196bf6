"""A loaded kernel and its launch."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hal_core.program import Program

if TYPE_CHECKING:
    from hal_core.source import Binary
    from hal_testing.fake.device import FakeDevice


class Code:
    """A kernel in the chip's memory: of its program, and of its launches that wait in queues."""

    def __init__(self, device: FakeDevice, binary: Binary) -> None:
        status, self.handle = device.chip.load(binary.image, binary.name)
        device.check(f"load of {binary.name}", status)
        # Unloads a program that is garbage, too. Not at exit, when the device is closed already.
        self.end = weakref.finalize(self, device.chip.unload, self.handle)
        self.end.atexit = False


class FakeProgram(Program):
    """A kernel in the chip's memory. Launches are queued; a failure surfaces at a later wait."""

    device: FakeDevice

    def __init__(self, device: FakeDevice, binary: Binary) -> None:
        super().__init__(device, binary)
        self._code = Code(device, binary)
        self.info = self.info._replace(max_block_threads=device.info.limits.max_block_threads)

    def _bind(self) -> Callable[..., None]:
        # Locals of a closure: a launch that waits in a queue keeps the code, and not the program.
        chip, check, code = self.device.chip, self.device.check, self._code

        def launch(geometry: Any, *args: Any) -> None:
            grid, block, _ = geometry
            status = chip.launch(code.handle, args, grid, block)
            if status:
                check("launch", status)

        return launch

    def _launch_timed(self, geometry: Any, args: tuple[Any, ...]) -> float:
        grid, block, _ = geometry
        seconds: list[float] = []
        chip, check = self.device.chip, self.device.check
        timed = lambda start, end: seconds.append((end - start) * 1e-9)  # noqa: E731
        check("launch", chip.launch(self._code.handle, args, grid, block, timed))
        check("wait", chip.wait())
        return seconds[0]

    def _unload(self) -> None:
        if self.device.closed:  # whatever still refers to a launch
            self._code.end()
        del self._code
