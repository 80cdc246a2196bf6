"""Typed device memory and views of it."""

from __future__ import annotations

import struct
import weakref
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any, Self

from hal_core import dtypes
from hal_core.allocator import DEFAULT_SPEC, BufferSpec
from hal_core.buffer.dlpack import DLPack
from hal_core.buffer.host import LARGE, host_bytes
from hal_core.concurrency import never_release, never_released
from hal_core.dtypes import DType, as_dtype
from hal_core.errors import InvalidArgument, InvalidState
from hal_core.ir import VALUE, Param, convert_value
from hal_core.profiling import on_switch
from hal_core.registry import Device

if TYPE_CHECKING:
    from hal_core.allocator import Allocator
    from hal_core.device import BufferKey, Compiled

_short = LARGE  # bytes: the longest copy past the allocator, where the host sees the memory


def _let_profile_see(profiled: bool) -> None:
    global _short
    _short = -1 if profiled else LARGE


on_switch(_let_profile_see)


class Lease:
    """Holds one block for a buffer and for what was exported from it without a copy; the block
    goes back with the last of them."""

    __slots__ = ("allocator", "nbytes", "opaque", "options")

    def __init__(self, opaque: Any, nbytes: int, options: BufferSpec) -> None:
        self.allocator: Allocator[Any] | None = None  # before it has one, nothing goes back
        self.opaque, self.nbytes, self.options = opaque, nbytes, options

    def __del__(self) -> None:
        if self.allocator is not None:
            self.allocator._give_back(self.opaque, self.nbytes, self.options)


class Buffer(DLPack):
    """`size` elements of `dtype` on one device. Nothing is allocated before it is needed.

    Units: `nbytes` and `offset` in bytes, `size` in elements.
    Owns: its memory until `deallocate` or until nobody refers to it; memory exported without a
    copy lives on with the export. A view keeps its base alive. A buffer keeps its device.
    Order: copies and launches of one device happen in the order of the calls.
    Concurrency: any thread may use it; freeing while another thread uses it is the caller's race.
    """

    __slots__ = (
        "__weakref__", "_buf", "_device", "_freed", "_host", "_key", "_lease", "_owned", "_views",
        "base", "device", "dtype", "nbytes", "offset", "options", "size",
    )  # fmt: skip

    device: str  # canonical name
    size: int
    dtype: DType
    nbytes: int
    options: BufferSpec
    base: Buffer | None  # the root it is a view of
    offset: int  # in that root

    def __init__(
        self,
        device: str | Compiled,
        size: int,
        dtype: DType,
        options: BufferSpec | None = None,
    ) -> None:
        """Raises: InvalidArgument for a negative size or something that is no dtype."""
        self._owned: Allocator[Any] | None = None  # first: __del__ reads it
        # By class, which is faster than isinstance; a type checker does not see through it.
        opened: Compiled = Device[device] if device.__class__ is str else device  # type: ignore
        if dtype.__class__ is not DType:
            dtype = as_dtype(dtype, "Buffer")
        if size.__class__ is not int or size < 0:
            size = _size(size, "Buffer")
        try:
            self.device = opened.name
            self._device = opened
            opened.allocator  # noqa: B018  # proves that it is an opened device
        except AttributeError:
            raise InvalidArgument(
                "Buffer", "neither a device nor a name of one", got=device,
                fix='Write hal.Buffer("CPU", 1024, hal.float32).',
            ) from None  # fmt: skip
        self.size = size
        self.dtype = dtype
        self.nbytes = size * dtype.itemsize
        self.options = DEFAULT_SPEC if options is None else _spec(options)
        self.base = None
        self.offset = 0
        self._key: BufferKey | None = None
        self._buf: Any = None
        self._lease: Any = None  # a Lease, or the owner of memory from elsewhere
        self._host: memoryview | None = None
        self._views: set[weakref.ref[Buffer]] | None = None
        self._freed = 0  # how often; a view remembers its base's count

    # -- memory

    @property
    def is_allocated(self) -> bool:
        """Whether it has memory: False before the first use, and after `deallocate`."""
        return self._key is not None

    def allocate(self) -> Self:
        """Get the memory now. Raises: InvalidState when allocated already, OutOfMemory."""
        if self._key is not None or not self._take():
            raise InvalidState(
                "allocate", f"{self!r} is allocated already", fix="Use ensure_allocated()."
            )
        return self

    def ensure_allocated(self) -> Self:
        """Allocate unless that was done. Raises: OutOfMemory."""
        if self._key is None:
            self._take()
        return self

    def _take(self) -> bool:
        """Get memory; False when another thread was faster, whose memory it is then."""
        if self.base is not None:
            self._attach("allocate")
            return True
        device = self._device
        allocator: Allocator[Any] = device.allocator
        options, nbytes = self.options, self.nbytes
        if self._freed and options.external_ptr is not None:
            raise self._was_freed("allocate")
        opaque = allocator.alloc(nbytes, options)
        owned = nbytes and (options is DEFAULT_SPEC or options.external_ptr is None)
        if owned:
            key = device._keys.get(self.dtype) or device._key(self.dtype)
        else:
            key = self._foreign_key()
        # From here on nothing is called, so no other thread comes in between.
        if self._key is None:
            self._buf = opaque
            if owned:
                self._owned = allocator
            self._key = key
            return True
        if owned:
            allocator._give_back(opaque, nbytes, options)
        return False

    def _attach(self, operation: str) -> None:
        """Make a view usable: its base's memory, at its offset."""
        base = self.base
        if base is None:
            return
        if base._freed != self._freed:
            raise self._was_freed(operation)
        base.ensure_allocated()
        device = self._device
        alignment = device.info.limits.view_alignment
        self._buf = (
            device.allocator._offset(base._buf, self.nbytes, self.offset)
            if self.nbytes
            else device.allocator.null
        )
        self._key = device._key(self.dtype, self._start() % alignment == 0)

    def _start(self) -> int:
        """What alignment is told of: a block of ours is aligned, an address of others as it is."""
        pointer = self.options.external_ptr
        if pointer is None or self._device.allocator.dlpack_device is None:  # or a handle
            return self.offset
        return pointer + self.offset

    def _foreign_key(self) -> BufferKey:
        device, start = self._device, self._start()
        if start % self.dtype.itemsize:
            raise InvalidArgument(
                "external_ptr",
                "the address is not a multiple of the element size",
                got=hex(start),
                limit=f"{self.dtype.name} has {self.dtype.itemsize} bytes",
                device=self.device,
                fix="Copy the memory to a place that is, where it comes from.",
            )
        return device._key(self.dtype, start % device.info.limits.view_alignment == 0)

    def deallocate(self) -> None:
        """Give the memory back; views of this buffer become unusable for good.

        Raises: InvalidState when it is not allocated.
        """
        if self._key is None:
            raise InvalidState(
                "deallocate",
                f"{self!r} is not allocated",
                fix="Free a buffer once, and only after it was used.",
            )
        owner = self._owned
        if owner is not None:
            self._owned = None
            owner._give_back(self._buf, self.nbytes, self.options)
        self._detach()
        if self.base is None:
            self._freed += 1
            for reference in list(self._views or ()):
                view = reference()
                if view is not None:
                    view._detach()
            self._views = None

    def __del__(self) -> None:
        owner = self._owned
        if owner is not None:
            owner._returned.append((self._buf, self.nbytes, self.options))
            if self.options is not DEFAULT_SPEC or not owner.cache_limit:
                owner._settle_soon()
        elif never_released:
            self._abandon()

    def _keep(self, owner: object) -> None:
        """The memory is `owner`'s: it stays as long as this buffer and what it exports."""
        self._lease = owner

    def _share(self) -> Any:
        """From now on a lease owns the memory, so that an export can hold it too."""
        root = self if self.base is None else self.base
        if root._owned is not None:
            lease = Lease(root._buf, root.nbytes, root.options)
            # From here on nothing is called, so no other thread comes in between.
            if root._owned is not None:
                lease.allocator = root._owned
                root._owned = None
                root._lease = lease
        return root._lease

    def _detach(self) -> None:
        if never_released:
            self._abandon()
        self._key = self._buf = self._lease = self._host = None

    def _abandon(self) -> None:
        """In a forked child: the handle of a view, or memory from elsewhere, may have a finalizer
        that calls the driver."""
        handle = getattr(self, "_buf", None)  # `__init__` may have failed before it
        if handle is not None and self._device.forked:
            never_release(handle, self._lease)

    def _was_freed(self, operation: str) -> InvalidState:
        what, fix = "the buffer", "Make a new buffer, or allocate() this one again."
        if self.base is not None:
            what, fix = "its base", "Make a new view of a live buffer."
        elif self.options.external_ptr is not None:
            fix = "Make a new buffer: the memory was never its own."
        return InvalidState(operation, f"{what} was freed", device=self.device, fix=fix)

    def _opaque_for(self, operation: str) -> Any:
        """The opaque; allocates a buffer that never was. Raises: InvalidState when freed."""
        if self._device.closed:
            self._device._check_open(operation)  # raises
        if self._key is None:
            if self.base is None:
                if self._freed:
                    raise self._was_freed(operation)
                self._take()
            else:
                self._attach(operation)
        return self._buf

    def _opaque_to_read(self, operation: str) -> Any:
        root = self if self.base is None else self.base
        if root._key is None and not root._freed and root.options.external_ptr is None:
            self._device._check_open(operation)
            raise InvalidState(
                operation,
                f"{self!r} was never allocated, so it holds nothing",
                fix="Write to it first: copyin, fill or a launch.",
            )
        return self._opaque_for(operation)

    # -- copies

    def copyin(self, src: Any) -> Self:
        """Copy from host memory: any C-contiguous buffer of exactly `nbytes` bytes.

        Order: `src` may change or go as soon as this returns.
        Raises: InvalidArgument naming both sizes, with nothing written; InvalidState.
        """
        nbytes = self.nbytes
        view = host_bytes(src, nbytes, "copyin", self.device)
        host = self._host
        if host is not None and nbytes <= _short and not self._device.closed:
            host[:] = view
            return self
        opaque = self._opaque_for("copyin")
        if nbytes:
            allocator = self._device.allocator
            allocator._copyin(opaque, view)
            if allocator.host_ordered:
                self._host = allocator._as_buffer(opaque, nbytes)
        return self

    def copyout(self, dest: Any) -> Any:
        """Copy to writable, C-contiguous host memory of exactly `nbytes` bytes; returns `dest`.

        Order: after all earlier work of the device; the data is there on return.
        Raises: InvalidArgument naming both sizes; InvalidState.
        """
        nbytes = self.nbytes
        view = host_bytes(dest, nbytes, "copyout", self.device)
        if view.readonly:
            raise InvalidArgument(
                "copyout",
                "the destination is read-only",
                got=type(dest).__name__,
                device=self.device,
                fix="Give a bytearray or a writable array.",
            )
        host = self._host
        if host is not None and nbytes <= _short and not self._device.closed:
            view[:] = host
            return dest
        opaque = self._opaque_to_read("copyout")
        if nbytes:
            allocator = self._device.allocator
            allocator._copyout(view, opaque)
            if allocator.host_ordered:
                self._host = allocator._as_buffer(opaque, nbytes)
        return dest

    def copy_from(self, src: Buffer) -> Self:
        """Copy all of `src`, from any device; ranges of one buffer may overlap.

        Order: after earlier work of both devices, before later work of this one.
        Raises: InvalidArgument naming both sizes; InvalidState.
        """
        if not isinstance(src, Buffer):
            raise InvalidArgument(
                "copy_from", "not a hal.Buffer", got=type(src).__name__, fix="Use copyin."
            )
        if src.nbytes != self.nbytes:
            raise InvalidArgument(
                "copy_from",
                "sizes differ",
                got=f"{src.nbytes} bytes",
                limit=f"expected {self.nbytes} bytes",
                device=self.device,
                fix="Copy a part: buffer[:n].copy_from(other[:n]).",
            )
        source = src._opaque_to_read("copy_from")
        dest = self._opaque_for("copy_from")
        if not self.nbytes:
            return self
        if not self._device.allocator._transfer(dest, source, self.nbytes, src._device):
            staging = memoryview(bytearray(self.nbytes))
            src._device.allocator._copyout(staging, source)
            self._device.allocator._copyin(dest, staging)
        return self

    def fill(self, value: float | bool) -> Self:
        """Set every element. Raises: InvalidArgument when the dtype cannot hold `value`."""
        opaque = self._opaque_for("fill")
        pattern = _pattern(value, self.dtype, self.device)
        if self.nbytes:
            self._device.allocator._fill(opaque, self.nbytes, pattern)
        return self

    # -- views

    def view(self, size: int | None = None, dtype: DType | None = None, offset: int = 0) -> Buffer:
        """`size` elements of `dtype` from `offset` bytes on; sees and makes the same data.

        By default all that is left behind `offset`, of this dtype.
        Owns: keeps the base alive. A view of a view is a view of the base.
        Raises: InvalidArgument when it does not lie inside.
        """
        kind = self.dtype if dtype is None else as_dtype(dtype, "view")
        start = _size(offset, "view", "offset")
        room = max(0, self.nbytes - start) // kind.itemsize
        count = room if size is None else _size(size, "view")
        if start + count * kind.itemsize > self.nbytes:
            raise InvalidArgument(
                "view",
                f"beyond the end of {self!r}",
                got=f"{count} x {kind.name} at byte {start}",
                limit=f"has {self.nbytes} bytes",
                device=self.device,
                fix="size counts elements of the view's dtype, offset bytes.",
            )
        root = self if self.base is None else self.base
        if self.base is not None and root._freed != self._freed:
            raise self._was_freed("view")
        made = Buffer(self._device, count, kind, self.options)
        made.base = root
        made.offset = self.offset + start
        made._freed = root._freed
        if made._start() % kind.itemsize:
            raise InvalidArgument(
                "view",
                "the offset is not a multiple of the element size",
                got=made.offset,
                limit=f"{kind.name} has {kind.itemsize} bytes",
                device=self.device,
                fix="offset counts bytes, from the start of the base.",
            )
        root._register(made)
        if root._key is not None:
            made._attach("view")
        return made

    def _register(self, view: Buffer) -> None:
        """Remember a view without keeping it alive, so that freeing reaches it."""
        if self._views is None:
            fresh = set[weakref.ref[Buffer]]()
            if self._views is None:  # else another thread was faster
                self._views = fresh
        views = self._views
        views.add(weakref.ref(view, views.discard))

    def __getitem__(self, index: slice) -> Buffer:
        """`buffer[a:b]`, a view of elements a to b; Python's rules, step 1 only."""
        if not isinstance(index, slice):
            raise InvalidArgument(
                "buffer[...]", "only slices", got=index, fix="Copy out first: buffer.numpy()[i]."
            )
        start, stop, step = index.indices(self.size)
        if step != 1:
            raise InvalidArgument(
                "buffer[a:b:c]", "the step is 1", got=step, device=self.device,
                fix="Copy out first: buffer.numpy()[a:b:c].",
            )  # fmt: skip
        return self.view(max(0, stop - start), offset=start * self.dtype.itemsize)

    def __len__(self) -> int:
        return self.size

    # -- pickle: data travels, addresses do not

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        if self.base is not None:
            return _unpickle_view, (self.base, self.size, self.dtype.name, self.offset)
        data: Any = None
        if self._key is not None:
            data = bytearray(self.nbytes)
            self.copyout(data)
            data = PickleBuffer(data) if protocol >= 5 else bytes(data)
        options = self.options._replace(external_ptr=None)
        return _unpickle, (self.device, self.size, self.dtype.name, tuple(options), data)

    def __repr__(self) -> str:
        place = f" at +{self.offset}" if self.base is not None else ""
        state = "" if self._key is not None else " freed" if self._is_freed() else " unallocated"
        return f"<Buffer {self.device} {self.size} x {self.dtype.name}{place}{state}>"

    def _is_freed(self) -> bool:
        return bool(self._freed) if self.base is None else self.base._freed != self._freed


def empty(
    size: int, dtype: DType, device: str | Compiled | None = None, options: BufferSpec | None = None
) -> Buffer:
    """An allocated buffer, contents undefined; on the default device unless one is given."""
    return Buffer(Device[None] if device is None else device, size, dtype, options).allocate()


def zeros(size: int, dtype: DType, device: str | Compiled | None = None) -> Buffer:
    """An allocated buffer of zeros; on the default device unless one is given."""
    return empty(size, dtype, device, BufferSpec(zero=True))


# -- plain functions of this file


def _spec(options: Any) -> BufferSpec:
    if not isinstance(options, BufferSpec):
        raise InvalidArgument(
            "Buffer", "options is a hal.BufferSpec", got=options, fix="BufferSpec(zero=True)"
        )
    return DEFAULT_SPEC if options == DEFAULT_SPEC else options


def _size(value: Any, operation: str, what: str = "size") -> int:
    try:
        number = value.__index__()
    except (AttributeError, TypeError):
        number = -1
    if number < 0 or isinstance(value, bool):
        fix = "A buffer has one dimension: give the product, and numpy(shape) at the end."
        raise InvalidArgument(
            operation,
            f"{what} is an integer, not negative",
            got=value,
            fix=fix if isinstance(value, (tuple, list)) else None,
        )
    return int(number)


def _pattern(value: Any, dtype: DType, device: str) -> bytes:
    number = convert_value(value, Param("of the fill", dtype, VALUE, 0), "fill", device)
    if dtype.format:
        return struct.pack(f"={dtype.format}", number)
    return struct.pack("=H", _bfloat16(number))


def _bfloat16(number: float) -> int:
    """The upper half of a float32, rounded half to even; numpy has none without ml_dtypes."""
    if number != number:
        return 0x7FC0
    bits: int = struct.unpack("=I", struct.pack("=f", number))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def _unpickle(device: str, size: int, dtype: str, options: tuple[Any, ...], data: Any) -> Buffer:
    made = Buffer(device, size, dtypes.DTYPES[dtype], BufferSpec(*options))
    return made if data is None else made.allocate().copyin(data)


def _unpickle_view(base: Buffer, size: int, dtype: str, offset: int) -> Buffer:
    return base.view(size, dtypes.DTYPES[dtype], offset)
