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

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from hal_core.buffer import Buffer
from hal_core.buffer.host import host_bytes
from hal_core.concurrency import OfThisProcess, run_each
from hal_core.device import Device
from hal_core.dtypes import DType, as_dtype, bool_
from hal_core.errors import InvalidArgument
from hal_core.hookspecs import DeviceInfo
from hal_core.multidevice.reductions import OPERATIONS, reduce_axis
from hal_core.queue import DirectQueue, Event, Queue

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hal_core.device.base import Compiled


class Shard(NamedTuple):
    """The part of a MultiBuffer that one device has.

    Units: `start` and `size` in elements along the axis; all of them where every device has all.
    """

    number: int  # of the device among the buffer's
    device: Compiled
    buffer: Buffer
    start: int
    size: int
    shape: tuple[int, ...]


class MultiBuffer(OfThisProcess):
    """Elements of `shape` on several devices: one buffer a device.

    `axis` is cut into as many parts as there are devices: as equal as can be, longer ones first, or
    of `sizes`, some of which may be 0. With `axis=None` each device has all elements.
    Shape: each part is in C order.
    Order: on each device after its earlier work and before its later work, as for a Buffer. Work
    that is queued with `queue=` is not part of this order.
    Raises: InvalidArgument for no device, or one given twice. An error of one device names it; the
    others have done or dropped their part by then.
    """

    devices: tuple[Compiled, ...]
    shape: tuple[int, ...]
    dtype: DType
    axis: int | None
    shards: tuple[Shard, ...]

    _instead = "Send its data, multi.numpy(), and make one there."

    def __init__(
        self,
        devices: Sequence[str | Compiled | DeviceInfo],
        shape: int | Sequence[int],
        dtype: DType,
        axis: int | None = 0,
        sizes: Sequence[int] | None = None,
    ) -> None:
        """Describe the memory, which is allocated at the first use."""
        self.devices = _devices(devices)
        self.dtype = as_dtype(dtype, "MultiBuffer")
        self.shape = _shape(shape)
        self.axis = _axis(axis, self.shape)
        self._queues: dict[Compiled, Queue] = {}
        found, start = [], 0
        for index, size in enumerate(self._sizes(sizes)):
            cut = list(self.shape)
            if self.axis is not None:
                cut[self.axis] = size
            buffer = Buffer(self.devices[index], math.prod(cut), self.dtype)
            found.append(Shard(index, self.devices[index], buffer, start, size, tuple(cut)))
            start += 0 if self.axis is None else size
        self.shards = tuple(found)

    def _sizes(self, sizes: Sequence[int] | None) -> Sequence[int]:
        """Return the elements of each device along the axis."""
        count = len(self.devices)
        if self.axis is None:
            if sizes is not None:
                raise InvalidArgument("MultiBuffer", "sizes need an axis", got=sizes)
            return [self.shape[0] if self.shape else 1] * count
        length = self.shape[self.axis]
        if sizes is None:
            return [length // count + (index < length % count) for index in range(count)]
        if len(sizes) != count or sum(sizes) != length or min(sizes) < 0:
            limit = f"{count} numbers with the sum {length}"
            raise InvalidArgument("MultiBuffer", "sizes do not fit", got=sizes, limit=limit)
        return sizes

    @property
    def bufs(self) -> tuple[Buffer, ...]:
        """The buffer of each device, in the order of `devices`."""
        return tuple(shard.buffer for shard in self.shards)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, counted once."""
        return math.prod(self.shape) * self.dtype.itemsize

    # -- host memory

    def copyin(self, src: Any) -> Self:
        """Copy from host memory, any C-contiguous buffer of `nbytes` bytes, to every device.

        Raises: InvalidArgument naming both sizes, with nothing written.
        """
        import numpy as np

        array = self._array(src, "copyin")
        parts = [np.ascontiguousarray(array[self._place(shard)]) for shard in self.shards]
        pieces = [part.reshape(-1).view(np.uint8).data for part in parts]
        self._on_each(lambda shard, queue: shard.buffer.copyin(pieces[shard.number], queue=queue))
        return self

    def copyout(self, dest: Any) -> Any:
        """Copy to writable host memory of `nbytes` bytes; return `dest`.

        Raises: InvalidArgument naming both sizes.
        """
        import numpy as np

        array = self._array(dest, "copyout")
        if not array.flags.writeable:
            raise InvalidArgument(
                "copyout", "the destination is read-only", got=type(dest).__name__
            )
        wanted = self.shards if self.axis is not None else self.shards[:1]
        pieces = [np.empty(shard.shape, array.dtype) for shard in wanted]

        def read(shard: Shard, queue: Queue) -> None:
            shard.buffer.ensure_allocated().copyout(pieces[shard.number], queue=queue)

        self._on_each(read, wanted)
        for shard, piece in zip(wanted, pieces, strict=True):
            array[self._place(shard)] = piece
        return dest

    def numpy(self) -> NDArray[Any]:
        """Return a copy on the host, of `shape`."""
        import numpy as np

        made: NDArray[Any] = self.copyout(np.empty(self.shape, self.dtype.to_numpy()))
        return made

    @classmethod
    def from_numpy(
        cls,
        array: NDArray[Any],
        devices: Sequence[str | Compiled | DeviceInfo],
        axis: int | None = 0,
        sizes: Sequence[int] | None = None,
    ) -> Self:
        """Make a buffer of the array's shape with its elements."""
        import numpy as np

        given = np.ascontiguousarray(array).reshape(np.shape(array))
        dtype = as_dtype(given.dtype, "from_numpy")
        return cls(devices, given.shape, dtype, axis, sizes).copyin(given)

    def fill(self, value: float | bool) -> Self:
        """Set every element. Raises: InvalidArgument when the dtype cannot hold `value`."""
        self._on_each(lambda shard, queue: shard.buffer.fill(value, queue=queue))
        return self

    # -- other layouts

    def reshard(
        self,
        axis: int | None,
        devices: Sequence[str | Compiled | DeviceInfo] | None = None,
        sizes: Sequence[int] | None = None,
    ) -> MultiBuffer:
        """Return the same elements cut otherwise or on other devices; None gives all to each.

        Parts that are one piece of memory, those of the first axis that is longer than 1, go from
        device to device; others go through the host.
        """
        made = MultiBuffer(devices or self.devices, self.shape, self.dtype, axis, sizes)
        if not (self._is_whole() and made._is_whole()):
            return made.copyin(self.numpy())
        for dest in made.shards:
            dest.buffer.allocate()
            begin, end = made._range(dest)
            sources = list(self.shards)
            if self.axis is None:  # each has all elements: one that is near
                near = [shard for shard in self.shards if shard.device is dest.device]
                sources = (near or sources)[:1]
            for src in sources:
                first, last = self._range(src)
                start, stop = max(begin, first), min(end, last)
                if start < stop:
                    size, step = stop - start, self.dtype.itemsize
                    part = src.buffer.ensure_allocated().view(size, offset=(start - first) * step)
                    dest.buffer.view(size, offset=(start - begin) * step).copy_from(part)
        return made

    def reduce(self, operation: str = "sum") -> MultiBuffer:
        """Return the sum, or the "prod", "min", "max", along the axis that is cut, on every device.

        Each device reduces its own part, then an equal share of the results of all. All devices get
        the same bits.
        Shape: `shape` without the axis.
        Raises: InvalidArgument where every device has all, and for "min" of no element.
        """
        if operation not in OPERATIONS:
            limit = ", ".join(OPERATIONS)
            raise InvalidArgument("reduce", "no such operation", got=operation, limit=limit)
        if self.dtype is bool_:
            fix = "View the bytes as uint8: bufs[0].view(dtype=hal.uint8)."
            raise InvalidArgument("reduce", "bools have no arithmetic", got=operation, fix=fix)
        if self.axis is None:
            fix = "Make one with an axis of one element a device: (2, ...), axis=0."
            raise InvalidArgument("reduce", "every device has all elements", fix=fix)
        shape = self.shape[: self.axis] + self.shape[self.axis + 1 :]
        made = MultiBuffer(self.devices, shape, self.dtype, None)
        filled = [shard for shard in self.shards if shard.size]
        if not filled:
            if operation in ("min", "max"):
                raise InvalidArgument("reduce", f"{operation} of no element", got=self.shape)
            return made.fill(operation == "prod")
        if not math.prod(shape):
            return made.fill(0)
        inner = math.prod(self.shape[self.axis + 1 :])
        partial = MultiBuffer(self.devices, (len(self.devices), math.prod(shape)), self.dtype)

        def reduce_own(shard: Shard, queue: Queue) -> None:
            y, x = partial.bufs[shard.number], shard.buffer
            reduce_axis(operation, queue, y.ensure_allocated(), x, shard.size, inner)

        self._on_each(reduce_own, filled)
        # Each device takes its share of every device's results, and gives its sums to all.
        shares = MultiBuffer(self.devices, math.prod(shape), self.dtype)
        gathered = [Buffer(s.device, len(filled) * s.size, self.dtype) for s in shares.shards]
        step = self.dtype.itemsize
        for share, rows in zip(shares.shards, gathered, strict=True):
            for row, src in enumerate(filled if share.size else ()):
                part = partial.bufs[src.number].view(share.size, offset=share.start * step)
                rows.view(share.size, offset=row * share.size * step).copy_from(part)

        def reduce_share(shard: Shard, queue: Queue) -> None:
            y, rows = shard.buffer.ensure_allocated(), gathered[shard.number]
            reduce_axis(operation, queue, y, rows, len(filled), shard.size)

        self._on_each(reduce_share, [shard for shard in shares.shards if shard.size])
        for dest, share in itertools.product(made.shards, shares.shards):
            if share.size:
                part = dest.buffer.ensure_allocated().view(share.size, offset=share.start * step)
                part.copy_from(share.buffer)
        return made

    # -- parts

    def _array(self, host: Any, operation: str) -> NDArray[Any]:
        """Return host memory as an array of the buffer's shape, which shares it."""
        import numpy as np

        names = ", ".join(device.name for device in self.devices)
        flat = np.frombuffer(host_bytes(host, self.nbytes, operation, names), np.uint8)
        if not flat.size:
            return np.empty(self.shape, self.dtype.to_numpy())
        return flat.view(self.dtype.to_numpy()).reshape(self.shape)

    def _place(self, shard: Shard) -> tuple[slice, ...]:
        if self.axis is None:
            return ()
        return (slice(None),) * self.axis + (slice(shard.start, shard.start + shard.size),)

    def _is_whole(self) -> bool:
        """Tell whether each part is one range of all elements in C order."""
        return self.axis is None or math.prod(self.shape[: self.axis]) == 1

    def _range(self, shard: Shard) -> tuple[int, int]:
        """Return the first element of a whole part and the one after its last."""
        if self.axis is None:
            return 0, shard.buffer.size
        inner = math.prod(self.shape[self.axis + 1 :])
        return shard.start * inner, (shard.start + shard.size) * inner

    # -- all devices at once

    def _on_each(
        self,
        work: Callable[[Shard, Queue], object],
        shards: Sequence[Shard] | None = None,
        wait: bool = True,
    ) -> None:
        """Queue work on each device before any is waited for.

        `wait=False` waits only for devices that work on the caller's thread.
        Raises: the first error, after the others have ended.
        """
        chosen = self.shards if shards is None else shards
        events: list[tuple[Queue, Event]] = []
        run_each(
            [
                lambda: run_each([partial(self._start, work, shard, events) for shard in chosen]),
                lambda: run_each([partial(self._end, wait, *one) for one in events]),
            ]
        )

    def _start(
        self,
        work: Callable[[Shard, Queue], object],
        shard: Shard,
        events: list[tuple[Queue, Event]],
    ) -> None:
        queue, default = self._queue_of(shard.device), shard.device.default_queue
        if queue is not default:
            queue.wait(default.record())
        try:
            work(shard, queue)
        finally:
            events.append((queue, queue.record()))

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

    def _queue_of(self, device: Compiled) -> Queue:
        """Return a queue of the device that does not work on the caller's thread."""
        if type(device.default_queue) is not DirectQueue:  # a backend's own kind queues the work
            return device.default_queue
        if device not in self._queues:
            self._queues[device] = device.queue()
        return self._queues[device]

    def __repr__(self) -> str:
        names = ", ".join(device.name for device in self.devices)
        layout = "copied to" if self.axis is None else f"axis {self.axis} over"
        return f"<MultiBuffer {self.shape} x {self.dtype.name}, {layout} {names}>"


def _devices(given: Sequence[str | Compiled | DeviceInfo]) -> tuple[Compiled, ...]:
    operation = "MultiBuffer"
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        fix = 'Write hal.MultiBuffer(["CPU", "OPENCL"], ...).'
        raise InvalidArgument(operation, "devices must be a list with entries", got=given, fix=fix)
    names = [one.name if isinstance(one, DeviceInfo) else one for one in given]
    found = tuple(Device[one] if isinstance(one, str) else one for one in names)
    chosen = [device.name for device in found]
    if len(set(chosen)) < len(chosen):
        raise InvalidArgument(operation, "a device is given twice", got=", ".join(chosen))
    return found


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    given: Any = (shape,) if hasattr(shape, "__index__") else shape
    try:
        found = tuple(int(size.__index__()) for size in given)
    except (AttributeError, TypeError):
        found = (-1,)
    if min(found, default=0) < 0:
        raise InvalidArgument(
            "MultiBuffer", "shape must be integers that are not negative", got=shape
        )
    return found


def _axis(axis: int | None, shape: tuple[int, ...]) -> int | None:
    if axis is None:
        return None
    if not isinstance(axis, int) or isinstance(axis, bool) or not -len(shape) <= axis < len(shape):
        limit = f"shape {shape} has {len(shape)}"
        raise InvalidArgument("MultiBuffer", "no such axis", got=axis, limit=limit)
    return axis % len(shape)
