"""A buffer over several devices: each has a part of it, or each has all of it.

    MultiBuffer([a, b], (5, 2), axis=0)      a: rows 0 to 2      b: rows 3 and 4
    .reshard(1)                              a: column 0         b: column 1
    .reshard(None)                           a: all of it        b: all of it
    .reduce("sum")                           a: sums of columns  b: the same

Work is started on every device before any of them is waited for. A device whose default queue works
on the caller's thread, as the CPU's does, gets a queue of its own for that, ordered behind what the
device did before and before what it does next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from hal_core.buffer import Buffer
from hal_core.buffer.host import empty_array, host_bytes
from hal_core.concurrency import Late, run_each
from hal_core.device import opened
from hal_core.dtypes import DType, as_dtype, bool_, elements_of, values_of
from hal_core.errors import InvalidArgument
from hal_core.hookspecs import DeviceInfo
from hal_core.queue import DirectQueue, Event, Queue, check_no_capture
from hal_kernel.lang.constants import as_number
from hal_kernel.multidevice.layout import Shard, checked_axis, checked_shape, part_sizes, pieces
from hal_kernel.multidevice.reductions import OPERATIONS, reduce_axis

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hal_core.device.base import Compiled
else:
    np = Late("numpy")


class MultiBuffer:
    """Elements of `shape` on several devices: one buffer for each device.

    `axis` is split into a part for each device. `sizes` has the lengths of the parts, some of which
    may be 0. By default the lengths differ by 1 at most, and longer parts come first. With
    `axis=None` each device has all elements.
    Shape: each part is in C order.
    Order: on each device after its earlier work and before its later work, as for a Buffer. Work
    that is queued with `queue=` is not part of this order.
    Raises: InvalidArgument for no device, or for a device that is given twice. An error of one
    device names it; the other devices have then done or dropped their part.
    """

    devices: tuple[Compiled, ...]
    shape: tuple[int, ...]
    dtype: DType
    axis: int | None
    shards: tuple[Shard, ...]

    def __init__(
        self, devices: Sequence[str | Compiled | DeviceInfo], shape: int | Sequence[int],
        dtype: DType, axis: int | None = 0, sizes: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        """Make a buffer without memory; its first use allocates the memory."""
        self.devices = _devices(devices)
        self.dtype = as_dtype(dtype, "MultiBuffer")
        self.shape = checked_shape(shape)
        self.axis = checked_axis(axis, self.shape)
        self._queues: dict[Compiled, Queue] = {}
        found, start = [], 0
        for index, size in enumerate(part_sizes(self.shape, self.axis, len(self.devices), sizes)):
            cut = list(self.shape)
            if self.axis is not None:
                cut[self.axis] = size
            buffer = Buffer(self.devices[index], math.prod(cut), self.dtype)
            found.append(Shard(index, self.devices[index], buffer, start, size, tuple(cut)))
            start += 0 if self.axis is None else size
        self.shards = tuple(found)

    @property
    def bufs(self) -> tuple[Buffer, ...]:
        """The buffer of each device, in the order of `devices`."""
        return tuple(shard.buffer for shard in self.shards)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, counted once."""
        return math.prod(self.shape) * self.dtype.itemsize

    # As a Buffer, it takes its data along: into a copy, and to the devices of these names.

    def __copy__(self) -> Self:
        return deepcopy(self)

    def __reduce__(self) -> tuple[Any, ...]:
        names = [device.name for device in self.devices]
        sizes = None if self.axis is None else [shard.size for shard in self.shards]
        return MultiBuffer, (names, self.shape, self.dtype, self.axis, sizes), self.bufs

    def __setstate__(self, bufs: tuple[Buffer, ...]) -> None:
        pairs = zip(self.shards, bufs, strict=True)
        self.shards = tuple(shard._replace(buffer=buffer) for shard, buffer in pairs)

    # -- host memory

    def copyin(self, src: Any) -> Self:
        """Copy from host memory, any C-contiguous buffer of `nbytes` bytes, to every device.

        Raises: InvalidArgument naming both sizes, with nothing written.
        """
        array = self._array(src, "copyin")
        parts = [np.ascontiguousarray(array[self._place(shard)]) for shard in self.shards]
        pieces = [part.reshape(-1).view(np.uint8).data for part in parts]
        self._on_each(
            "copyin", lambda shard, queue: shard.buffer.copyin(pieces[shard.number], queue=queue)
        )
        return self

    def copyout(self, dest: Any) -> Any:
        """Copy to writable host memory of `nbytes` bytes; return `dest`.

        Raises: InvalidArgument naming both sizes; InvalidState for memory that nothing has written.
        """
        array = self._array(dest, "copyout")
        if not array.flags.writeable:
            raise InvalidArgument(
                "copyout", "the destination is read-only", got=type(dest).__name__
            )
        wanted = self.shards if self.axis is not None else self.shards[:1]
        pieces = [np.empty(shard.shape, self.dtype.to_numpy()) for shard in wanted]
        flat = [piece.reshape(-1).view(np.uint8) for piece in pieces]
        self._on_each(
            "copyout",
            lambda shard, queue: shard.buffer.copyout(flat[shard.number], queue=queue),
            wanted,
            reads=True,
        )
        for shard, piece in zip(wanted, pieces, strict=True):
            array[self._place(shard)] = piece
        return dest

    def numpy(self) -> NDArray[Any]:
        """Return a copy on the host, of `shape`. Raises: OutOfMemory."""
        made = empty_array(self.shape, self.dtype, "numpy")
        self.copyout(made.reshape(-1).view(np.uint8))  # bytes: numpy exports no bfloat16
        return made

    @classmethod
    def from_numpy(
        cls,
        array: NDArray[Any],
        devices: Sequence[str | Compiled | DeviceInfo],
        axis: int | None = 0,
        sizes: Sequence[int] | None = None,
    ) -> Self:
        """Make a buffer of the array's shape with its elements.

        Raises: InvalidArgument as `Buffer.from_numpy`.
        """
        given, dtype = values_of(array, "from_numpy")
        made = cls(devices, given.shape, dtype, axis, sizes)
        return made.copyin(given.reshape(-1).view(np.uint8))

    def fill(self, value: float | bool) -> Self:
        """Set every element. Raises: InvalidArgument when the dtype cannot hold `value`."""
        self._on_each("fill", lambda shard, queue: shard.buffer.fill(value, queue=queue))
        return self

    # -- other layouts

    def reshard(
        self, axis: int | None, devices: Sequence[str | Compiled | DeviceInfo] | None = None,
        sizes: Sequence[int] | None = None,
    ) -> MultiBuffer:  # fmt: skip
        """Return the same elements, split along another axis or over other devices; None: all on
        each.

        If each piece that moves is contiguous on both devices, the devices copy the pieces.
        Otherwise, as for another axis, all elements are copied through the host.
        """
        wanted = self.devices if devices is None else devices
        made = MultiBuffer(wanted, self.shape, self.dtype, axis, sizes)
        _check_memory("reshard", self.shards, reads=True)
        _check_memory("reshard", made.shards, reads=False)
        moved = pieces(made.shards, made.axis, self.shards, self.axis)
        if moved is None:
            return made.copyin(self.numpy())
        for dest, to, src, begin, size in moved:
            dest[to : to + size].copy_from(src[begin : begin + size])
        return made

    def reduce(self, operation: str = "sum") -> MultiBuffer:
        """Return the sum, or the "prod", "min", "max", along the split axis, on every device.

        Each device reduces its own part, then an equal share of the results of all. All devices get
        the same bits. "min" and "max" are those of kernels over the elements in their order,
        however they are split: a NaN is ignored, unless it is the first.
        Shape: `shape` without the axis.
        Raises: InvalidArgument where every device has all, and for "min" of no element.
        """
        axis = self._check_reduction(operation)
        shape = self.shape[:axis] + self.shape[axis + 1 :]
        made = MultiBuffer(self.devices, shape, self.dtype, None)
        if not math.prod(self.shape):
            return made.fill(operation == "prod")
        # A row of results for each part with elements, then a share of all rows for each device.
        sizes = [min(shard.size, 1) for shard in self.shards]
        rows = MultiBuffer(self.devices, (sum(sizes), math.prod(shape)), self.dtype, 0, sizes)
        self._reduce_parts(operation, axis, rows)
        shares = MultiBuffer(self.devices, math.prod(shape), self.dtype)
        rows.reshard(1)._reduce_parts(operation, 0, shares)
        everywhere = zip(made.shards, shares.reshard(None).bufs, strict=True)
        made.shards = tuple(shard._replace(buffer=buffer) for shard, buffer in everywhere)
        return made

    def _check_reduction(self, operation: str) -> int:
        """Return the axis. Raises: InvalidArgument where there is nothing to reduce."""
        if not isinstance(operation, str) or operation not in OPERATIONS:
            limit = ", ".join(OPERATIONS)
            raise InvalidArgument("reduce", "no such operation", got=operation, limit=limit)
        as_number(self.dtype, "reduce")
        if self.dtype is bool_:
            fix = "View the bytes as uint8: bufs[0].view(dtype=hal.uint8)."
            raise InvalidArgument("reduce", "bools have no arithmetic", got=operation, fix=fix)
        if self.axis is None:
            fix = "Make one with an axis of one element a device: (2, ...), axis=0."
            raise InvalidArgument("reduce", "every device has all elements", fix=fix)
        if operation in ("min", "max") and not self.shape[self.axis]:
            raise InvalidArgument("reduce", f"{operation} of no element", got=self.shape)
        return self.axis

    def _reduce_parts(self, operation: str, axis: int, made: MultiBuffer) -> None:
        """Reduce an axis of each part into the same device's part of another buffer."""

        def reduce_one(shard: Shard, queue: Queue) -> None:
            dest, count = made.bufs[shard.number], shard.shape[axis]
            inner = math.prod(shard.shape[axis + 1 :])
            is_first = axis != self.axis or shard.start == 0
            reduce_axis(operation, queue, dest, shard.buffer, count, inner, is_first)

        parts = [shard for shard in self.shards if shard.buffer.size]
        self._on_each("reduce", reduce_one, parts, reads=True)

    # -- parts

    def _array(self, host: Any, operation: str) -> NDArray[Any]:
        """Return host memory as an array of the buffer's shape, which shares it."""
        names = ", ".join(device.name for device in self.devices)
        flat = np.frombuffer(host_bytes(host, self.nbytes, operation, names), np.uint8)
        if not flat.size:
            return np.empty(self.shape, self.dtype.to_numpy())
        return elements_of(flat, self.dtype, self.shape)

    def _place(self, shard: Shard) -> tuple[slice, ...]:
        if self.axis is None:
            return ()
        return (slice(None),) * self.axis + (slice(shard.start, shard.start + shard.size),)

    # -- all devices at once

    def _on_each(
        self, operation: str, work: Callable[[Shard, Queue], object],
        shards: Sequence[Shard] | None = None, wait: bool = True, reads: bool = False,
    ) -> None:  # fmt: skip
        """Queue work on each device before any is waited for.

        `wait=False` waits only for devices that work on the caller's thread.
        Raises: before any work, in a capture, for a device without memory or one that is closed,
        where work `reads` for memory that nothing has written; else the first error, after the
        others have ended.
        """
        chosen = self.shards if shards is None else shards
        _check_memory(operation, chosen, reads)
        steps: list[Callable[[], object]] = []
        steps += [partial(self._start, work, shard, wait, steps) for shard in chosen]
        run_each(steps)

    def _start(
        self, work: Callable[[Shard, Queue], object], shard: Shard, wait: bool,
        steps: list[Callable[[], object]],
    ) -> None:  # fmt: skip
        """Queue work on one device; its end becomes a step behind every start."""
        queue = default = shard.device.default_queue
        if type(default) is DirectQueue:  # others do not work on the caller's thread
            known = self._queues.get(shard.device)
            if known is None or known.forked:
                known = self._queues[shard.device] = shard.device.queue()
            queue = known
            queue.wait(default.record())
        try:
            work(shard, queue)
        finally:
            steps.append(partial(self._end, wait, queue, queue.record()))

    def _end(self, wait: bool, queue: Queue, event: Event) -> None:
        default = queue.device.default_queue
        try:
            if queue is not default:
                default.wait(event)  # which works on this thread, so it waits here
            elif wait:
                event.wait()
        except BaseException:
            self._queues.pop(queue.device, None)  # it drops all that comes behind the failure
            raise

    def __repr__(self) -> str:
        names = ", ".join(device.name for device in self.devices)
        layout = "copied to" if self.axis is None else f"axis {self.axis} over"
        return f"<MultiBuffer {self.shape} x {self.dtype.name}, {layout} {names}>"


def _check_memory(operation: str, shards: Sequence[Shard], reads: bool) -> None:
    """Get memory for each part. Raises: in a capture; as reading, or writing, each buffer."""
    check_no_capture(operation, "work of a MultiBuffer cannot be recorded")
    for shard in shards:
        buffer = shard.buffer
        if reads and buffer.size:
            buffer._opaque_to_read(operation)
        else:
            buffer._opaque_for(operation)


def _devices(given: Sequence[str | Compiled | DeviceInfo]) -> tuple[Compiled, ...]:
    operation = "MultiBuffer"
    is_list = isinstance(given, Sequence) and not isinstance(given, (str, bytes))
    # None would be the default device.
    if not is_list or not given or any(one is None for one in given):
        fix = 'Write hal.MultiBuffer(["CPU", "OPENCL"], ...).'
        raise InvalidArgument(operation, "devices must be a list with entries", got=given, fix=fix)
    names = [one.name if isinstance(one, DeviceInfo) else one for one in given]
    found = tuple(opened(one, operation) for one in names)
    chosen = [device.name for device in found]
    if len(set(chosen)) < len(chosen):
        raise InvalidArgument(operation, "a device is given twice", got=", ".join(chosen))
    return found
