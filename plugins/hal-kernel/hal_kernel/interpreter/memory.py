"""Check accesses to memory: bounds, reads of elements that nothing has written, races."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from hal_kernel.errors import KernelFault, OutOfBounds
from hal_kernel.interpreter.lanes import Lanes
from hal_kernel.interpreter.order import Order
from hal_kernel.interpreter.overlap import ShadowPart
from hal_kernel.interpreter.races import ATOMIC, ATOMIC_READ, READ, SEVERAL, WRITE, Shadow
from hal_kernel.ir import UOp

Array = npt.NDArray[Any]

HOW = {
    "LOAD": READ, "STORE": WRITE, "ATOMIC": ATOMIC, "CAS": ATOMIC, "ATOMICLOAD": ATOMIC_READ,
    "ATOMICSTORE": ATOMIC,
}  # fmt: skip

_EVERY_BYTE = 0x0101_0101_0101_0101  # the mask of 8 written bytes; see `Inputs`

_ORDERED = (
    "Put a barrier between, if they are of one block; else give each thread its own elements, or "
    "use atomics for all accesses."
)
# A kind of access that races with an atomic -> the atomic that does not.
_ATOMICALLY = {
    READ: "read it with hal.atomic_load(p, i).",
    WRITE: "write it with hal.atomic_store(p, i, value), or hal.atomic_add for a sum.",
}


class Access:
    """One access of the running lanes, and the errors that name it."""

    def __init__(
        self, kernel: str, node: UOp, lanes: Lanes, running: Array, device: str | None = None
    ) -> None:
        self.node, self.lanes, self.running, self.device = node, lanes, running, device
        self.operation = f"kernel {kernel}" + (f", line {node.line}" if node.line else "")

    def thread(self, access: int) -> str:
        """Return the name of the thread that made the access with this index."""
        return self.lanes.name(self.lanes.threads[self.running[access]])

    def fault(self, problem: str, fix: str, **facts: object) -> NoReturn:
        facts |= {"device": self.device, "fix": fix}
        raise KernelFault(self.operation, problem, **facts)  # type: ignore[arg-type]


def check_bounds(
    access: Access, what: str, index: Array, extent: Array | int | None = None
) -> None:
    """Raise OutOfBounds for an index that is negative, or not below the extent, if there is one."""
    outside = index < 0
    if extent is not None:
        outside |= index >= extent
    if not outside.any():
        return
    first = int(np.argmax(outside))
    size = None if extent is None else int(np.broadcast_to(extent, index.shape)[first])
    fix = "Guard the access, if i < n, or give a larger buffer."
    if index[first] < 0:
        fix = "Guard the access, if i >= 0: a negative index does not count from the end."
    limit = "limit 0 or more" if size is None else f"limit 0 to {size - 1}"
    raise OutOfBounds(
        access.operation,
        f"out of bounds: {what} by {access.thread(first)}",
        got=int(index[first]),
        limit="it has no element" if size is not None and size <= 0 else limit,
        device=access.device,
        fix=fix,
    )


def check_aligned(access: Access, name: str, index: Array, count: int) -> None:
    """Raise KernelFault for a vector whose first index is no multiple of its elements' count."""
    wrong = index % index.dtype.type(count) != 0
    if wrong.any():
        first = int(np.argmax(wrong))
        access.fault(
            f"{HOW[access.node.op]} of {count} elements of {name!r} that begins between the places "
            f"of such vectors, by {access.thread(first)}",
            f"Begin at a multiple of {count}, or access each element by itself, {name}[i].",
            got=int(index[first]),
        )


class Memory:
    """The elements of a pointer's buffer, or of all blocks' or threads' arrays of one name.

    An array has `size` elements, and the next one begins after `stride`; `owners` has the number of
    each lane's array. `written` is as in `Inputs`, and None if everything is written. `others` are
    the names of the pointers whose buffers overlap this one.
    """

    def __init__(
        self, name: str, elements: Array, size: int, written: Array | None,
        shadow: Shadow | ShadowPart | None, others: Sequence[str] = (), stride: int = 0,
        owners: Array | None = None,
    ) -> None:  # fmt: skip
        self.name, self.elements, self.size = name, elements, size
        self.written, self.shadow, self.others = written, shadow, others
        self.stride, self.owners = stride, owners

    def follow(self, order: Order) -> None:
        """Take accesses that fences order for no races."""
        if self.shadow is not None:
            shadow = self.shadow.shadow if isinstance(self.shadow, ShadowPart) else self.shadow
            shadow.order = order

    def seen_as(self, access: Access, dtype: np.dtype[Any]) -> Memory:
        """Return the same memory as whole elements of another dtype. Raises: KernelFault."""
        elements, old, new = self.elements, self.elements.itemsize, dtype.itemsize
        if elements.size and elements.__array_interface__["data"][0] % new:
            fix = f"Give a buffer or a view that begins at a multiple of {new} bytes."
            access.fault(f"{self.name!r} does not begin at an element of {dtype}", fix)
        whole = elements.nbytes // new * new
        written, shadow = self.written, self.shadow
        if written is not None:
            written = written.view(np.uint8)[:whole].view(f"u{new}")
        if isinstance(shadow, ShadowPart):
            shadow = shadow._replace(units=shadow.units * new // old)
        return Memory(
            self.name,
            elements.view(np.uint8)[:whole].view(dtype),
            self.size * old // new,
            written,
            shadow,
            self.others,
            self.stride * old // new,
            self.owners,
        )

    def places(self, access: Access, index: Array, wide: Array | None) -> Array:
        """Check indices, and return their positions in `elements`. Raises: KernelFault.

        `wide` is the index computed in 64 bits. Another value means that int32 has overflowed.
        """
        check_bounds(access, f"{HOW[access.node.op]} of {self.name!r}", index, self.size)
        if wide is not None and (wide != index).any():
            first = int(np.argmax(wide != index))
            access.fault(
                f"the index of {self.name!r} overflows int32 in {access.thread(first)}",
                "Compute it in int64.",
                got=int(wide[first]),
            )
        places = index.astype(np.int64)
        if self.owners is not None:
            places += self.owners[access.running] * self.stride
        return places

    def watch(self, access: Access, places: Array) -> None:
        """Record an access. Raises: KernelFault for a race, or a read of unwritten memory."""
        how, lanes, running = HOW[access.node.op], access.lanes, access.running
        if self.written is not None:
            known = self.written.dtype.type(_EVERY_BYTE & (1 << 8 * self.written.itemsize) - 1)
            unknown = self.written[places] != known
            if access.node.op not in ("STORE", "ATOMICSTORE") and unknown.any():
                first = int(np.argmax(unknown))
                access.fault(
                    f"a read of element {self._index(places[first])} of {self.name!r}, which "
                    f"nothing has written, by {access.thread(first)}",
                    "Write it first, and put a barrier between if another thread does.",
                )
            # A store has written the elements; for a read they are marked already.
            self.written[places] = known
        if self.shadow is None:
            return
        threads, epochs = lanes.threads[running], lanes.epochs[running]
        race = self.shadow.touch(how, places, threads, epochs, lanes.knows[running])
        if race is None:
            return
        other = "several threads" if race.thread == SEVERAL else lanes.name(race.thread)
        what = f"element {self._index(places[race.access])} of {self.name!r}"
        if self.others:
            names = " and ".join(map(repr, self.others))
            lies = "lie" if len(self.others) > 1 else "lies"
            what += f", on whose memory {names} {lies} too"
        plain = {how, race.how} & _ATOMICALLY.keys()
        fix = _ORDERED
        if len(plain) == 1 and how != race.how:
            fix = (
                f"Put a barrier between, if they are of one block; else {_ATOMICALLY[plain.pop()]}"
            )
        access.fault(
            f"a race for {what}: {how} by {access.thread(race.access)} and {race.how} by {other}, "
            "with no order between them",
            fix,
        )

    def _index(self, place: Any) -> int:
        return int(place) % (self.stride or self.size)
