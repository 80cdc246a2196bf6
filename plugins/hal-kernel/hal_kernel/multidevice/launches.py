"""A launch on several devices at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from hal_core.buffer import Buffer
from hal_core.errors import InvalidArgument, as_flag
from hal_core.geometry import Extent
from hal_core.graph.capture import Recorder
from hal_core.graph.node import Changes
from hal_core.queue import Queue
from hal_core.source import Source
from hal_kernel.multidevice.layout import Shard
from hal_kernel.multidevice.multi_buffer import MultiBuffer

if TYPE_CHECKING:
    from hal_core.device.base import Compiled
    from hal_core.graph import Node
    from hal_core.source import Writable

T = TypeVar("T")


def launch(
    kernel: Source | Writable, *given: Any,
    vals: Sequence[Any] | Callable[[Shard], Sequence[Any]] | None = None,
    grid: Extent | Callable[[Shard], Extent] | None = None, block: Extent | None = None,
    threads: Extent | Callable[[Shard], Extent] | None = None, shared: int = 0, wait: bool = False,
) -> None:  # fmt: skip
    """Launch a kernel on every device of its MultiBuffers, each on its part.

    The kernel is compiled and every argument is checked for all devices before any device starts.
    All devices start before the call waits for one. The arguments are those of a launch, with a
    MultiBuffer for each buffer. A value, `vals`, `grid` and `threads` may be functions of the part
    that a device has of the first MultiBuffer, a record with number, device, buffer, start, size
    and shape.
    Order: after all earlier work of each device. With `wait` it is done on return.
    Raises: InvalidArgument for buffers of different devices; errors of `compile` and of a launch,
    before anything is started; DeviceFault of the first device that fails, after the others end.
    """
    operation = f"launch {getattr(kernel, 'name', kernel)}"
    bufs = [one for one in given if vals is not None or isinstance(one, (MultiBuffer, Buffer))]
    _check_buffers(operation, bufs)
    wait = as_flag(wait, operation, "wait")
    first = bufs[0]
    programs = [device.compile(kernel) for device in first.devices]
    checked: dict[Compiled, list[Node]] = {device: [] for device in first.devices}
    for shard, program in zip(first.shards, programs, strict=True):
        parts = [
            one.bufs[shard.number] if isinstance(one, MultiBuffer) else _for(shard, one)
            for one in given
        ]
        # Stands where a queue does: it keeps launches whose arguments are checked, and starts none.
        recorder = Recorder(shard.device, checked[shard.device], Changes())
        program(
            *parts, vals=_for(shard, vals), grid=_for(shard, grid), block=block,
            threads=_for(shard, threads), shared=shared, queue=recorder,
        )  # fmt: skip

    def start(shard: Shard, queue: Queue) -> None:
        for node in checked[shard.device]:  # none where the launch has no threads
            program: Any = node.program
            queue._add_launch(program, node.geometry, node.bufs, node._args)

    first._on_each(operation, start, wait=wait)


def _check_buffers(operation: str, bufs: Sequence[MultiBuffer]) -> None:
    if not bufs or not all(isinstance(one, MultiBuffer) for one in bufs):
        got, fix = [type(one).__name__ for one in bufs], "Call a program for buffers of one device."
        raise InvalidArgument(
            operation, "bufs must be one or more hal.MultiBuffer", got=got, fix=fix
        )
    first = bufs[0]
    for other in bufs[1:]:
        if other.devices != first.devices:
            fix = "Move one: multi.reshard(multi.axis, devices)."
            raise InvalidArgument(operation, "the devices differ", got=other, limit=first, fix=fix)


def _for(shard: Shard, given: T | Callable[[Shard], T]) -> T:
    """Return an argument for one part: the result of `given` if it is a function, else `given`."""
    return given(shard) if callable(given) else given
