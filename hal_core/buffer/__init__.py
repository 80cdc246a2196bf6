"""Typed device memory and views of it."""

from __future__ import annotations

from functools import partial
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any, Self, overload

from hal_core.allocator import DEFAULT_SPEC, BufferSpec
from hal_core.buffer import dlpack
from hal_core.buffer.host import check_nbytes, host_bytes, in_place
from hal_core.concurrency import Late, Living, fresh_copy, never_release, never_released
from hal_core.device import Device, opened
from hal_core.dtypes import DTYPES, DType, any_, as_dtype, pack, uint8, values_of
from hal_core.errors import (
    DeviceFault,
    InvalidArgument,
    InvalidState,
    NotShareable,
    check_class,
    shown,
)
from hal_core.profiling import events
from hal_core.queue import OPERATIONS, Event, Queue, captures, capturing, checked
from hal_core.signature import VALUE, Param, convert_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike

    import numpy as np
    from numpy.typing import NDArray

    from hal_core.allocator import Allocator
    from hal_core.buffer import files as _files
    from hal_core.device.base import BufferKey, Compiled
else:
    np, _files = Late("numpy"), Late("hal_core.buffer.files")

_FILLS = {dtype: Param("of the fill", dtype, VALUE, 0) for dtype in DTYPES.values()}
_ZERO = BufferSpec(zero=True)  # shared by all buffers: garbage collection visits fewer objects
_SHORT_NBYTES = 1 << 20  # a longer copy goes through the allocator, which may release the GIL
# The longest copy that bypasses the allocator, where the host sees the memory. A profile records
# the allocator's copies, and a graph takes those of its thread: then no copy bypasses it.
_direct_nbytes = _SHORT_NBYTES


@events.on_change
def _follow() -> None:
    global _direct_nbytes
    _direct_nbytes = -1 if events.open_profiles or captures else _SHORT_NBYTES


class Lease:
    """Ownership of one block, shared by a buffer and by all that was exported from it in place.

    The block goes back to the allocator with the last of them, borrowed memory to its owner.
    """

    give_back: Callable[[], None] | None = None  # none for a lease that another thread outran

    def __del__(self) -> None:
        if self.give_back is not None:
            self.give_back()


class Buffer:
    """`size` elements of `dtype` on one device. Nothing is allocated before the first use.

    Units: `nbytes` and `offset` in bytes, `size` in elements.
    Owns: its memory, until `deallocate` or until nobody refers to the buffer. Memory exported
    without a copy lives as long as the export; memory imported without a copy, as long as the
    buffer. A view keeps its base alive. A buffer keeps its device.
    Order: copies and launches of one device happen in the order of the calls.
    Concurrency: any thread may use it; freeing while another thread uses it is the caller's race.
    """

    __slots__ = (
        "__weakref__", "_buf", "_device", "_freed", "_host", "_key", "_lease", "_owned", "_unsaid",
        "_views", "base", "device", "dtype", "nbytes", "offset", "options", "size",
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
        """Describe the memory, which is allocated at the first use.

        Raises: InvalidArgument for a negative size or something that is no dtype.
        """
        self._owned: Allocator[Any] | None = None  # first: __del__ reads it
        # By class, which is faster than isinstance; a type checker does not see through it.
        found: Compiled = Device[device] if device.__class__ is str else device  # type: ignore
        try:
            self.device = found.name
            self._device = found
            found.allocator  # noqa: B018  # proves that it is an opened device
        except AttributeError:
            raise InvalidArgument(
                "Buffer", "neither a device nor a name of one", got=device,
                fix='Write hal.Buffer("CPU", 1024, hal.float32).',
            ) from None  # fmt: skip
        if dtype.__class__ is not DType or dtype is any_:
            dtype = as_dtype(dtype, "Buffer")
        if size.__class__ is not int or size < 0:
            size = _size(size, "Buffer")
        self.size = size
        self.dtype = dtype
        self.nbytes = size * dtype.itemsize
        if options is None:
            options = DEFAULT_SPEC
        elif not isinstance(options, BufferSpec):
            raise InvalidArgument(
                "Buffer", "options is no hal.BufferSpec", got=options, fix="BufferSpec(zero=True)"
            )
        elif options == DEFAULT_SPEC:
            options = DEFAULT_SPEC  # the allocator recognises it by identity
        self.options = options
        self.base = None
        self.offset = 0
        self._key: BufferKey | None = None  # a launch's test; None while not allocated
        self._buf: Any = None  # the opaque
        self._lease: Lease | None = None
        self._host: memoryview | None = None  # the memory itself, after a first copy
        self._views: Living[Buffer] | None = None
        self._freed = 0  # how often; a view remembers its base's count

    # -- memory

    @property
    def is_allocated(self) -> bool:
        """True while the buffer has memory: from the first use until `deallocate`."""
        return self._key is not None

    def allocate(self) -> Self:
        """Get the memory now. Raises: InvalidState when allocated already, OutOfMemory."""
        if self._key is not None or not self._allocate():
            raise InvalidState(
                "allocate", f"{self!r} is allocated already", fix="Use ensure_allocated()."
            )
        return self

    def ensure_allocated(self) -> Self:
        """Get the memory now, unless the buffer has it already. Raises: OutOfMemory."""
        if self._key is None:
            self._allocate()
        return self

    def deallocate(self) -> None:
        """Give the memory back; views of this buffer become unusable for good.

        Raises: InvalidState when the buffer is not allocated.
        """
        if self._key is None:
            raise InvalidState("deallocate", f"{self!r} is not allocated")
        for view in self._views or ():  # their next use attaches them, until `_freed` changes
            view._detach()
        if never_released:
            self._keep_in_child()
        owner = self._owned
        if owner is not None:
            self._owned = None
            try:
                owner._take_back(self._buf, self.nbytes, self.options)
            except BaseException:
                self._owned = owner
                raise
        # One step, also under Ctrl-C: no call comes between.
        if self.base is None:
            self._freed += 1
            self._views = None
        self._key = self._buf = self._lease = self._host = None
        if owner is not None and (self.options is not DEFAULT_SPEC or not owner.cache_limit):
            owner._settle_unless_busy()

    def __del__(self) -> None:
        # As `_give_back`, written out. No running work can use the block: it keeps the buffer.
        try:
            owner = self._owned
        except AttributeError:  # Ctrl-C came before `__init__`
            return
        if owner is not None:
            owner._returned.append((self._buf, self.nbytes, self.options))
            if self.options is not DEFAULT_SPEC or not owner.cache_limit:
                owner._settle_unless_busy()
        elif never_released:
            self._keep_in_child()

    # -- copies

    @overload
    def copyin(self, src: Any, *, queue: None = None) -> Self: ...
    @overload
    def copyin(self, src: Any, *, queue: Queue) -> Event: ...
    def copyin(self, src: Any, *, queue: Queue | None = None) -> Self | Event:
        """Copy from host memory: any C-contiguous buffer of exactly `nbytes` bytes.

        With `queue` the copy is queued, and its event is returned.

        Order: `src` may change or go as soon as this returns; with `queue`, it may change after the
        event.
        Owns: a queued copy keeps the host memory.
        Raises: InvalidArgument naming both sizes, or for elements that are more than their bytes,
        such as those of another byte order, with nothing written; InvalidState.
        """
        nbytes = self.nbytes
        view = host_bytes(src, nbytes, "copyin", self.device)
        host = self._host if queue is None else None
        if host is not None and nbytes <= _direct_nbytes and not self._device.closed:
            host[:] = view
            return self
        opaque = self._opaque_for("copyin")
        return self._do("_copyin", queue, (opaque, view)) or self

    @overload
    def copyout(self, dest: Any, *, queue: None = None) -> Any: ...
    @overload
    def copyout(self, dest: Any, *, queue: Queue) -> Event: ...
    def copyout(self, dest: Any, *, queue: Queue | None = None) -> Any:
        """Copy to writable, C-contiguous host memory of exactly `nbytes` bytes; return `dest`.

        With `queue` the copy is queued, and its event is returned.

        Order: after all earlier work of the device; the data is there on return. With `queue`:
        after earlier work of the queue, and the data is there after the event.
        Raises: InvalidArgument naming both sizes, or as `copyin`; InvalidState.
        """
        nbytes = self.nbytes
        view = host_bytes(dest, nbytes, "copyout", self.device)
        if view.readonly and nbytes:
            raise InvalidArgument(
                "copyout", "the destination is read-only", got=type(dest).__name__,
                device=self.device, fix="Give a bytearray or a writable array.",
            )  # fmt: skip
        host = self._host if queue is None else None
        if host is not None and nbytes <= _direct_nbytes and not self._device.closed:
            view[:] = host
            return dest
        opaque = self._opaque_to_read("copyout")
        return self._do("_copyout", queue, (view, opaque)) or dest

    @overload
    def copy_from(self, src: Buffer, *, queue: None = None) -> Self: ...
    @overload
    def copy_from(self, src: Buffer, *, queue: Queue) -> Event: ...
    def copy_from(self, src: Buffer, *, queue: Queue | None = None) -> Self | Event:
        """Copy all of `src`, from any device; ranges of one buffer may overlap.

        With `queue`, one of this buffer's device, the copy is queued, and its event is returned.

        Order: after earlier work of both devices, before later work of this one. With `queue`:
        after earlier work of the queue alone.
        Raises: InvalidArgument naming both sizes; InvalidState.
        """
        if src.__class__ is not Buffer:  # else the call would cost a part of a short copy
            check_class(src, Buffer, "copy_from", "Use copyin.")
        check_nbytes(src.nbytes, self.nbytes, "copy_from", self.device)
        source = src._opaque_to_read("copy_from")
        dest = self._opaque_for("copy_from")
        if queue is None and not captures and self.nbytes:  # as `_do`, without the call
            self._device.allocator._copy(dest, source, self.nbytes, src._device)
            return self
        return self._do("_copy", queue, (dest, source, self.nbytes, src._device), src) or self

    @overload
    def fill(self, value: float | bool, *, queue: None = None) -> Self: ...
    @overload
    def fill(self, value: float | bool, *, queue: Queue) -> Event: ...
    def fill(self, value: float | bool, *, queue: Queue | None = None) -> Self | Event:
        """Set every element; with `queue` the fill is queued, and its event is returned.

        Raises: InvalidArgument when the dtype cannot hold `value`.
        """
        opaque = self._opaque_for("fill")
        pattern = pack(convert_value(value, _FILLS[self.dtype], "fill", self.device), self.dtype)
        return self._do("_fill", queue, (opaque, self.nbytes, pattern)) or self

    def _do(
        self, method: str, queue: Queue | None, args: tuple[Any, ...], *src: Buffer
    ) -> Event | None:
        """Call a method of the allocator now, unless a queue or a graph takes the call.

        Returns the event of a queue that was given.
        """
        if queue is not None or captures:
            taker: Any = capturing() if queue is None else queue
            if taker is not None:
                if not isinstance(taker, Queue):  # the call would cost a part of a short copy
                    checked(taker, OPERATIONS[method], self._device)
                event = taker._add_memory_work(method, args, self, *src)
                return None if queue is None else event
        if self.nbytes:
            allocator = self._device.allocator
            getattr(allocator, method)(*args)
            if allocator.host_ordered and self._host is None:
                self._host = allocator._as_buffer(self._buf, self.nbytes)
        return None

    # -- views

    def view(self, size: int | None = None, dtype: DType | None = None, offset: int = 0) -> Buffer:
        """Make a view of `size` elements of `dtype` from `offset` bytes on, over the same data.

        By default all elements from `offset` to the end, of this dtype.
        Owns: keeps the base alive. A view of a view is a view of the base.
        Raises: InvalidArgument when the view does not lie inside this buffer.
        """
        kind = self.dtype if dtype is None else as_dtype(dtype, "view")
        start = _size(offset, "view", "offset")
        room = max(0, self.nbytes - start) // kind.itemsize
        count = room if size is None else _size(size, "view")
        if start + count * kind.itemsize > self.nbytes:
            raise InvalidArgument(
                "view",
                f"beyond the end of {self!r}",
                got=f"{shown(count)} x {kind.name} at byte {shown(start)}",
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
        if root._views is None:
            views: Living[Buffer] = Living()  # Living[Buffer]() is slower
            if root._views is None:  # else another thread was faster; one step under the GIL
                root._views = views
        root._views.add(made)
        if root._key is None:
            made._aligned_key("view")  # an odd start is refused now, not at the first use
        else:
            made._attach("view", root)
        return made

    def __getitem__(self, index: slice) -> Buffer:
        """Make a view, `buffer[a:b]`, of elements a to b; Python's rules, step 1 only."""
        if not isinstance(index, slice) or index.step not in (None, 1):
            problem = "a slice has step 1" if isinstance(index, slice) else "an element has no view"
            fix = "For a view write buffer[a:b]; to see elements, copy out: buffer.numpy()[...]."
            raise InvalidArgument("buffer[...]", problem, got=index, fix=fix)
        start, stop, _ = index.indices(self.size)
        return self.view(max(0, stop - start), offset=start * self.dtype.itemsize)

    def __len__(self) -> int:
        return self.size

    # -- numpy

    def numpy(self, shape: int | Sequence[int] | None = None) -> NDArray[Any]:
        """Return a copy on the host, one-dimensional or of `shape`. Raises: InvalidArgument."""
        array = np.empty(self.size, self.dtype.to_numpy())
        self.copyout(array.view(np.uint8))
        if shape is None:
            return array
        try:
            return array.reshape(shape)
        except (TypeError, ValueError, OverflowError):
            raise InvalidArgument(
                "numpy", "no shape of this number of elements",
                got=shape, limit=f"has {self.size}", device=self.device,
                fix="Copy a part: buffer[:n].numpy(shape).",
            ) from None  # fmt: skip

    @classmethod
    def from_numpy(
        cls,
        array: NDArray[Any],
        device: str | Compiled | None = None,
        options: BufferSpec | None = None,
    ) -> Self:
        """Make a buffer with a copy of `array`'s elements in C order; on the default device.

        A byte order of its own is converted.
        Raises: InvalidArgument for dtypes no device has (complex, strings, objects, dates, fields)
        and for masked elements.
        """
        array, dtype = values_of(array, "from_numpy")
        made = cls(Device[None] if device is None else device, array.size, dtype, options)
        return made.allocate().copyin(array.reshape(-1).view(np.uint8))

    def as_memoryview(self) -> memoryview:
        """Return the memory itself as flat writable bytes, where the host sees it.

        Owns: the view keeps the memory, not the buffer: it stays readable after `deallocate`.
        Raises: NotShareable where the host does not see it.
        """
        return in_place(self, "as_memoryview").data

    def __buffer__(self, flags: int) -> memoryview:
        """Answer `memoryview(buffer)`, from Python 3.12 on: the memory, where the host sees it.

        Shape: `size` elements of the dtype's format. Owns: keeps the buffer's memory.
        Raises: NotShareable where the host does not see it, or for bfloat16, which has no format.
        """
        if self.dtype.name == "bfloat16":
            raise NotShareable(
                "memoryview", "a memoryview has no bfloat16", device=self.device,
                fix="Take the bits: buffer.view(dtype=hal.uint16).",
            )  # fmt: skip
        try:
            return in_place(self, "memoryview").view(self.dtype.to_numpy()).data
        except DeviceFault as error:
            # numpy drops errors of this protocol and calls `__array__`, which then raises this one.
            self._unsaid = fresh_copy(error)
            raise

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Answer `numpy.asarray(buffer)`: no copy, where the host sees the memory."""
        if hasattr(self, "_unsaid"):
            unsaid = self._unsaid
            del self._unsaid
            raise unsaid
        array = in_place(self, "numpy.asarray").view(self.dtype.to_numpy())
        if dtype is None or array.dtype == dtype:
            return array.copy() if copy else array
        if copy is False:
            raise InvalidArgument(
                "numpy.asarray", "another dtype needs a copy", got=dtype, device=self.device,
                fix="Leave out copy=False, or look at the bytes: buffer.view(dtype=...).",
            )  # fmt: skip
        return array.astype(dtype)

    # -- files

    @classmethod
    def from_file(
        cls,
        path: str | bytes | PathLike[Any],
        dtype: DType,
        offset: int = 0,
        size: int | None = None,
        device: str | Compiled | None = None,
        options: BufferSpec | None = None,
    ) -> Self:
        """Make a buffer with elements of a file, as they are; on the default device.

        Units: `offset` in bytes, `size` in elements; by default all from `offset` to the end.
        Raises: InvalidArgument for a file that is too short or no regular file, and for one that
        the system refuses: it is the OSError, too; InvalidState when another process cuts it
        meanwhile; OutOfMemory.
        """
        start, kind = _size(offset, "from_file", "offset"), as_dtype(dtype, "from_file")
        if size is None:
            size = _files.elements_in(path, kind.itemsize, start, "from_file")
        made = cls(Device[None] if device is None else device, size, kind, options)
        _files.read(made, path, start, "from_file")
        return made

    def to_file(self, path: str | bytes | PathLike[Any], offset: int = 0) -> Self:
        """Write the elements, as they are, into a file from a byte on; make the file if need be.

        The rest of a file that exists is kept.
        Units: `offset` in bytes.
        Order: after all earlier work of the device; the data is in the file on return.
        Raises: InvalidArgument for what is no regular file, and for a file that the system refuses:
        it is the OSError, too, and the file as long as it was; InvalidState.
        """
        _files.write(self, path, _size(offset, "to_file", "offset"), "to_file")
        return self

    # -- other libraries

    @classmethod
    def from_dlpack(
        cls, obj: Any, device: str | Compiled | None = None, *, copy: bool | None = None
    ) -> Self:
        """Make a buffer over the memory of another library's array, or with a copy of it.

        Memory that is the device's own is shared; other memory is the host's, or is copied there
        first. `copy`: None shares where the device computes on that memory and copies elsewhere,
        False never copies, True always does.
        Shape: elements in C order; the buffer has one dimension.
        Owns: the array, while memory is shared; both see each other's writes.
        Raises: InvalidArgument for an object that is no DLPack array, has no dtype of ours or
        cannot come to the host; NotShareable with `copy=False` where it must be copied.
        """
        return dlpack.take(cls, obj, device, copy)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Answer `torch.from_dlpack(buffer)` and `numpy.from_dlpack(buffer, device="cpu")`.

        `dl_device` is the place where the consumer wants the memory: where it is (None), on the
        host, `(1, 0)`, or, for pinned memory, on the device. `copy`: None copies where it must,
        False never does, True always does.
        Shape: one dimension.
        Order: after all work of the device so far; `stream=-1` asks for no wait.
        Raises: NotShareable when the memory cannot be exported there, and what to do instead.
        """
        return dlpack.export(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Name the memory's place: the host where the host sees it, else the device.

        Raises: NotShareable where DLPack has no name for the memory.
        """
        return dlpack.place_of(self)

    @classmethod
    def wrap(cls, obj: Any, device: str | Compiled | None = None) -> Self:
        """Make a buffer over memory that a vendor's library allocated, such as PyCUDA's GPUArray.

        The device's backend decides which objects it understands. Owns: `obj`, which keeps its
        memory. Raises: InvalidArgument for any other object.
        """
        owner = opened(device, "wrap")
        found = owner._backend.import_buffer(owner, obj)
        if found is None:
            raise InvalidArgument(
                "wrap", "the backend does not know such an object",
                got=type(obj).__name__, device=owner.name,
                fix="Buffer.from_dlpack and from_numpy take other libraries' arrays.",
            )  # fmt: skip
        return cls._borrow(owner, *found)

    @classmethod
    def _borrow(
        cls,
        device: Compiled,
        pointer: int,
        size: int,
        dtype: DType,
        owner: object,
        offset: int = 0,
    ) -> Self:
        """Make a buffer over memory of `owner`, which the buffer and its exports keep.

        The elements begin `offset` bytes behind `pointer`, which may be a handle.
        """
        if not size:
            return cls(device, 0, dtype).allocate()
        if offset and not device.allocator.wraps_addresses:
            whole = cls._borrow(device, pointer, offset + size * dtype.itemsize, uint8, owner)
            return whole.view(size, dtype, offset)  # type: ignore[return-value]  # of our class
        pointer += offset
        made = cls(device, size, dtype, BufferSpec(external_ptr=pointer)).allocate()
        made._lease = Lease()
        made._lease.give_back = partial(device.allocator._release, owner)
        return made

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of a protocol that only this device's memory has."""
        if name.startswith("__"):
            export = self._device.allocator.exports.get(name)
            if export is not None:
                return export(self)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # -- pickle: data travels, addresses do not

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        if self.base is not None:
            return Buffer.view, (self.base, self.size, self.dtype, self.offset)
        data: Any = None
        if self._key is not None:
            data = bytearray(self.nbytes)
            self.copyout(data)
            data = PickleBuffer(data) if protocol >= 5 else bytes(data)
        options = self.options._replace(external_ptr=None)
        return Buffer, (self.device, self.size, self.dtype, options), data

    def __setstate__(self, data: Any) -> None:
        # Called for data only: a buffer that was not allocated has none, and stays so.
        self.allocate().copyin(data)

    def __repr__(self) -> str:
        place = f" at +{self.offset}" if self.base is not None else ""
        freed = self._freed if self.base is None else self.base._freed != self._freed
        state = "" if self._key is not None else " freed" if freed else " unallocated"
        return f"<Buffer {self.device} {self.size} x {self.dtype.name}{place}{state}>"

    # -- the opaque

    def _opaque_for(self, operation: str) -> Any:
        """Return the opaque; allocate at the first use. Raises: InvalidState when freed."""
        if self._device.closed:
            self._device._check_open(operation)  # raises
        if self._key is None:
            if self._freed and self.base is None:
                raise self._was_freed(operation)
            self._allocate(operation)
        return self._buf

    def _opaque_to_read(self, operation: str) -> Any:
        """Return the opaque. Raises: InvalidState when freed, or when nothing was ever written."""
        root = self if self.base is None else self.base
        if root._key is None and not root._freed and root.options.external_ptr is None:
            self._device._check_open(operation)
            raise InvalidState(
                operation,
                f"{self!r} was never allocated, so it holds nothing",
                fix="Write to it first: copyin, fill or a launch.",
            )
        return self._opaque_for(operation)

    def _allocate(self, operation: str = "allocate") -> bool:
        """Get memory; False when another thread has allocated this buffer at the same time."""
        if self.base is not None:
            self._attach(operation, self.base)
            return True
        device = self._device
        allocator: Allocator[Any] = device.allocator
        options, nbytes = self.options, self.nbytes
        if self._freed and options.external_ptr is not None:
            raise self._was_freed(operation)
        opaque = allocator.alloc(nbytes, options)
        owned = nbytes and (options is DEFAULT_SPEC or options.external_ptr is None)
        key = device._keys[self.dtype] if owned else self._aligned_key(operation)
        if self._key is None:  # from here to the last assignment it is one step under the GIL
            self._buf = opaque
            if owned:
                self._owned = allocator
            self._key = key
            return True
        if owned:
            allocator._give_back(opaque, nbytes, options)
        return False

    def _attach(self, operation: str, base: Buffer) -> None:
        """Give a view its part of the base's memory, which is allocated first if need be."""
        if base._freed != self._freed:
            raise self._was_freed(operation)
        base.ensure_allocated()
        allocator = self._device.allocator
        if self.nbytes:
            self._buf = allocator._offset(base._buf, self.nbytes, self.offset)
        else:
            self._buf = allocator.null
        self._key = self._aligned_key(operation)

    def _aligned_key(self, operation: str) -> BufferKey:
        """Return the key that launches compare, for a view or borrowed memory.

        Raises: InvalidArgument when an element would begin at an odd address.
        """
        start, itemsize = self._start(), self.dtype.itemsize
        if start % itemsize:
            raise InvalidArgument(
                operation,
                "the start is not a multiple of the element size",
                got=start if start == self.offset else hex(start),
                limit=f"{self.dtype.name} has {itemsize} bytes",
                device=self.device,
                fix="Offsets count bytes; memory at such an address can be copied, not wrapped.",
            )
        return self._device._key(self.dtype, start % self._device.info.limits.view_alignment == 0)

    def _start(self) -> int:
        """Return the address whose alignment decides which key a launch sees.

        Owned blocks are aligned, so the offset alone decides; a borrowed address may be odd.
        """
        pointer = self.options.external_ptr
        if pointer is None or not self._device.allocator.wraps_addresses:
            return self.offset
        return pointer + self.offset

    # -- ownership

    def _share(self) -> Any:
        """Move the memory to a lease, so that an export can own it too; return the owner."""
        root = self if self.base is None else self.base
        owner = root._owned
        if owner is not None:
            lease = Lease()
            give_back = partial(owner._give_back, root._buf, root.nbytes, root.options)
            if root._owned is not None:  # else another thread was faster; one step under the GIL
                lease.give_back = give_back
                root._owned = None
                root._lease = lease
        return root._lease

    def _detach(self) -> None:
        """Forget the memory, which now belongs to the allocator or to its other owners."""
        if never_released:
            self._keep_in_child()
        self._key = self._buf = self._lease = self._host = None

    def _keep_in_child(self) -> None:
        """Keep the handle for good in a forked child, where its finalizer would call the driver.

        A view's handle and borrowed memory may have such a finalizer.
        """
        handle = getattr(self, "_buf", None)  # `__init__` may have failed before it
        if handle is not None and self._device.forked:
            never_release(handle, self._lease)

    def _was_freed(self, operation: str) -> InvalidState:
        problem, fix = "the buffer was freed", "Make a new buffer, or allocate() this one again."
        if self.base is not None:
            problem, fix = "its base was freed", "Make a new view of a live buffer."
        elif self.options.external_ptr is not None:
            fix = "Make a new buffer: the memory was never its own."
        return InvalidState(operation, problem, device=self.device, fix=fix)


def empty(
    size: int, dtype: DType, device: str | Compiled | None = None, options: BufferSpec | None = None
) -> Buffer:
    """Make an allocated buffer, contents undefined; on the default device unless one is given."""
    return Buffer(Device[None] if device is None else device, size, dtype, options).allocate()


def zeros(size: int, dtype: DType, device: str | Compiled | None = None) -> Buffer:
    """Make an allocated buffer of zeros; on the default device unless one is given."""
    return empty(size, dtype, device, _ZERO)


def _size(value: Any, operation: str, what: str = "size") -> int:
    """Check a size or an offset."""
    try:
        number = value.__index__()
    except (AttributeError, TypeError):
        number = -1
    if number < 0 or isinstance(value, bool):
        fix = "Convert it by int(...)." if isinstance(value, float) else None
        if isinstance(value, (tuple, list)):
            fix = "A buffer has one dimension: give the product, and numpy(shape) at the end."
        raise InvalidArgument(
            operation, f"{what} must be an integer that is not negative", got=value, fix=fix
        )
    return int(number)
