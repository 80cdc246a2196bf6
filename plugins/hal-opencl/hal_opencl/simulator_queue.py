"""Queues of a simulator, whose commands run on a thread of ours.

A simulator runs queued commands in the thread that calls `clFlush`. After a wait for an event that
call blocks, and Ctrl-C cannot end it. So a thread of our own owns the command queue, and waits for
events on the host.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from hal_core.queue import WorkerQueue
from hal_opencl.queue import OpenCLQueue

if TYPE_CHECKING:
    from hal_core.program import Program
    from hal_core.queue import Keep
    from hal_opencl.device import OpenCLDevice


class SimulatorQueue(WorkerQueue):
    """A command queue, and the thread that makes its calls."""

    def __init__(self, device: OpenCLDevice) -> None:
        self._inner = OpenCLQueue(device)
        super().__init__(device, self._inner.synchronize)

    def _launch(self, program: Program, geometry: Any, args: tuple[Any, ...], keep: Keep) -> None:
        launch = partial(self._inner._launch, program, geometry, args, keep)
        self._add(launch, f"launch of {program.name}", keep)

    def _launch_timed(
        self, program: Program, geometry: Any, args: tuple[Any, ...], keep: Keep
    ) -> float:
        launch = partial(self._inner._launch_timed, program, geometry, args, keep)
        return self._seconds_of(launch, program, keep)

    def _add_replay(self, plan: Any) -> None:
        self._add(partial(self._inner._add_replay, plan), "replay of a graph", plan.keep())

    def _call(self, method: str, args: tuple[Any, ...], keep: Keep) -> None:
        self._add(partial(self._inner._call, method, args, keep), method[1:], keep)
