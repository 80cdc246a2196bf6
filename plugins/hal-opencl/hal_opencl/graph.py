"""Replay of a graph by one call of the driver, where it has command buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hal_core.errors import HalError
from hal_core.graph.node import COPY, COPYIN
from hal_opencl import driver
from hal_opencl.allocator import Opaque, copied_twice
from hal_opencl.command_buffer import CommandBuffer, calls_of
from hal_opencl.driver import cl
from hal_opencl.program import OpenCLProgram

if TYPE_CHECKING:
    from hal_core.graph import Step
    from hal_opencl.device import OpenCLDevice


class Replay:
    """The steps of a graph in a command buffer; a call replays them on the default queue."""

    def __init__(self, device: OpenCLDevice, recorded: CommandBuffer) -> None:
        self._device, self._recorded = device, recorded
        self.enqueue = recorded.enqueue

    def __call__(self) -> None:
        device = self._device
        device.forget_replays()
        with driver.check("replay", device.name):
            try:
                device.queued(self.enqueue, device.commands)
            finally:  # after Ctrl-C the driver may have it, too
                if device.last_event is not None:
                    device.replays.append((device.last_event, self))
        device.last_launched = "one of a graph's"


def native_replay(device: OpenCLDevice, steps: list[Step]) -> Replay | None:
    """Record the steps; return None where the driver cannot."""
    calls = calls_of(device.hardware)
    if calls is None:
        return None
    try:
        recorded = CommandBuffer(calls, device.commands)
        for step in steps:
            _add(device, recorded, step)
        recorded.finish()
    except (cl.Error, HalError):  # run one by one, the steps raise their own errors
        return None
    return Replay(device, recorded)


def _add(device: OpenCLDevice, recorded: CommandBuffer, step: Step) -> None:
    if isinstance(step.program, OpenCLProgram):
        kernel, keep = step.program.kernel_with(step.geometry, step.args)
        recorded.add_launch(kernel, step.geometry.items, step.geometry.group, keep)
    elif step.kind == COPY:
        dest, src, nbytes, _ = step.args
        if copied_twice(dest, src, nbytes):
            between = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, nbytes), 0
            recorded.add_copy(between, src, nbytes)
            src = between
        recorded.add_copy(dest, src, nbytes)
    elif step.kind == COPYIN:
        dest, data = step.args
        recorded.add_copy(dest, _with(device, data), data.nbytes)
    else:
        dest, nbytes, pattern = step.args
        if isinstance(dest[0], cl.Image):
            recorded.add_copy(dest, _with(device, pattern * (nbytes // len(pattern))), nbytes)
        else:
            recorded.add_fill(dest, pattern, nbytes)


def _with(device: OpenCLDevice, data: Any) -> Opaque:
    """Return memory with bytes of the host."""
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    return cl.Buffer(device.context, flags, hostbuf=data), 0
