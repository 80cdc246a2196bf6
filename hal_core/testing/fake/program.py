"""A loaded kernel and its launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hal_core.errors import CompileError
from hal_core.program import Program

if TYPE_CHECKING:
    from hal_core.compiler import Binary
    from hal_core.testing.fake.device import FakeDevice


class FakeProgram(Program):
    device: FakeDevice

    def __init__(self, device: FakeDevice, binary: Binary) -> None:
        super().__init__(device, binary)
        status, kernel = device.chip.load(binary.image)
        device.check(f"load of {binary.entry}", status)
        if kernel is None or kernel.name != binary.entry:
            raise CompileError(
                f"load {binary.entry}", "the binary has no such entry", device=device.name
            )
        self.kernel = kernel
        self.info = self.info._replace(max_block_threads=device.info.limits.max_block_threads)

    def _bind(self) -> Callable[..., None]:
        chip, check, kernel = self.device.chip, self.device.check, self.kernel

        def launch(geometry: Any, *args: Any) -> None:
            grid, block, _ = geometry
            status = chip.launch(kernel, args, grid, block)
            if status:
                check("launch", status)

        return launch

    def _launch_timed(self, geometry: Any, args: tuple[Any, ...]) -> float:
        grid, block, _ = geometry
        seconds: list[float] = []
        chip, check = self.device.chip, self.device.check
        timed = lambda start, end: seconds.append((end - start) * 1e-9)  # noqa: E731
        check("launch", chip.launch(self.kernel, args, grid, block, timed))
        check("wait", chip.wait())
        return seconds[0]

    def _unload(self) -> None:
        del self.kernel
