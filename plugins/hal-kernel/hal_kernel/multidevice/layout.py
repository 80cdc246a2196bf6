"""The parts that devices have of one array, and the elements that two layouts of it share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hal_core.errors import InvalidArgument
from hal_core.geometry import integers

if TYPE_CHECKING:
    from hal_core.buffer import Buffer
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


class Piece(NamedTuple):
    """Elements that lie side by side both in a part of one layout and in a part of another.

    Units: all in elements; the starts in their buffers.
    """

    dest: Buffer
    dest_start: int
    src: Buffer
    src_start: int
    size: int


def pieces(
    dests: Sequence[Shard], axis: int | None, sources: Sequence[Shard], source_axis: int | None
) -> list[Piece] | None:
    """Find the elements of each part of a layout in the parts of another of the same shape.

    None where some of them are not side by side.
    """
    found = []
    for dest in dests:
        chosen = sources
        if source_axis is None:  # each has all elements: one that is near
            near = [shard for shard in sources if shard.device is dest.device]
            chosen = (near or sources)[:1]
        here = _box(dest, axis)
        for src in chosen:
            there = _box(src, source_axis)
            both = [
                range(max(a.start, b.start), min(a.stop, b.stop))
                for a, b in zip(here, there, strict=True)
            ]
            if all(both):
                to, begin = _start(both, here), _start(both, there)
                if to is None or begin is None:
                    return None
                size = math.prod(map(len, both))
                found.append(Piece(dest.buffer, to, src.buffer, begin, size))
    return found


def _box(shard: Shard, axis: int | None) -> list[range]:
    """Return the indices that a part has along each axis."""
    box = [range(length) for length in shard.shape]
    if axis is not None:
        box[axis] = range(shard.start, shard.start + shard.size)
    return box


def _start(part: list[range], whole: list[range]) -> int | None:
    """Return the place of a box's first element among those of a larger box, in C order.

    None where its elements are not side by side there.
    """
    place, step, is_whole = 0, 1, True
    for some, every in zip(reversed(part), reversed(whole), strict=True):
        if len(some) > 1 and not is_whole:
            return None
        is_whole = is_whole and len(some) == len(every)
        place += (some.start - every.start) * step
        step *= len(every)
    return place


def part_sizes(
    shape: tuple[int, ...], axis: int | None, count: int, sizes: Sequence[int] | None
) -> Sequence[int]:
    """Return the elements of each of `count` devices along the axis. Raises: InvalidArgument."""
    if axis is None:
        if sizes is not None:
            raise InvalidArgument("MultiBuffer", "sizes need an axis", got=sizes)
        return [shape[0] if shape else 1] * count
    length = shape[axis]
    if sizes is None:
        return [length // count + (index < length % count) for index in range(count)]
    found = integers(sizes) or (-1,)
    wrong = len(found) != count or sum(found) != length or min(found) < 0
    if wrong or bool in map(type, sizes):
        limit = f"{count} numbers with the sum {length}"
        raise InvalidArgument("MultiBuffer", "sizes do not fit", got=sizes, limit=limit)
    return found


def checked_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    """Return the shape as integers. Raises: InvalidArgument."""
    given: Any = (shape,) if hasattr(shape, "__index__") else shape
    found = integers(given)
    if found is None or min(found, default=0) < 0:
        raise InvalidArgument(
            "MultiBuffer", "shape must be integers that are not negative", got=shape
        )
    return found


def checked_axis(axis: int | None, shape: tuple[int, ...]) -> int | None:
    """Return the axis, counted from the first. Raises: InvalidArgument."""
    if axis is None:
        return None
    (number,) = integers((axis,)) or (len(shape),)
    if isinstance(axis, bool) or not -len(shape) <= number < len(shape):
        limit = f"shape {shape} has {len(shape)}"
        raise InvalidArgument("MultiBuffer", "no such axis", got=axis, limit=limit)
    return number % len(shape)
