"""Typed device memory and views of it."""

from __future__ import annotations

from functools import partial
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any, Self, overload

from hal_core.allocator import BufferSpec
from hal_core.buffer import dlpack
from hal_core.buffer.elements import Elements, checked_size
from hal_core.buffer.host import check_nbytes, empty_array, host_bytes, in_place
from hal_core.concurrency import Late, fresh_copy
from hal_core.device import Device, opened
from hal_core.dtypes import DTYPES, DType, as_dtype, elements_of, pack, uint8, values_of
from hal_core.errors import DeviceFault, InvalidArgument, NotShareable, as_flag, check_class
from hal_core.profiling import events
from hal_core.queue import OPERATIONS, Event, Lease, Queue, captures, capturing, checked
from hal_core.signature import VALUE, Param, convert_value

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    import numpy as np
    from numpy.typing import NDArray

    from hal_core.buffer import files as _files
    from hal_core.device.base import Compiled
else:
    np, _files = Late("numpy"), Late("hal_core.buffer.files")

_FILLS = {dtype: Param("of the fill", dtype, VALUE, 0) for dtype in DTYPES.values()}
_ZERO = BufferSpec(zero=True)  # shared by all buffers: garbage collection visits fewer objects
_SHORT_NBYTES = 1 << 20  # a longer copy goes through the allocator, which may release the GIL
# The longest copy that bypasses the allocator, where the host sees the memory. A profile records
# the allocator's copies, and a graph takes those of its thread: then no copy bypasses it.
_direct_nbytes = _SHORT_NBYTES


def _follow() -> None:
    global _direct_nbytes
    _direct_nbytes = -1 if events.open_profiles or captures else _SHORT_NBYTES


events.shortcuts.append(_follow)
_follow()  # a profile may be open


class Buffer(Elements):
    """`size` elements of `dtype` on one device. Nothing is allocated before the first use.

    Units: `nbytes` and `offset` in bytes, `size` in elements.
    Owns: its memory, until `deallocate` or until nothing refers to the buffer. Memory exported
    without a copy lives as long as the export; memory imported without a copy, as long as the
    buffer. A view keeps its base alive. A buffer keeps its device.
    Order: copies and launches of one device happen in the order of the calls.
    Concurrency: any thread may use it; do not free it while another thread uses it.
    """

    __slots__ = ("_unsaid",)

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
        Raises: InvalidArgument, before anything is written, if the sizes differ, or if the bytes
        alone do not say what the elements are: another byte order, a mask; InvalidState.
        """
        nbytes = self.nbytes
        view = host_bytes(src, nbytes, "copyin", self.device, self.dtype)
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

        Order: after all earlier calls without `queue`; the data is there on return. With `queue`:
        after earlier work of the queue, and the data is there after the event.
        Raises: InvalidArgument naming both sizes, or as `copyin`; InvalidState.
        """
        nbytes = self.nbytes
        view = host_bytes(dest, nbytes, "copyout", self.device, self.dtype)
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
        param = _FILLS.get(self.dtype) or Param("of the fill", self.dtype, VALUE, 0)
        pattern = pack(convert_value(value, param, "fill", self.device), self.dtype)
        if self.dtype.kind in ("c", "V"):  # no driver fills with every size
            made: Any = self.copyin(pattern * self.size, queue=queue)
            return made  # type: ignore[no-any-return]
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

    # -- numpy

    def numpy(self, shape: int | Sequence[int] | None = None) -> NDArray[Any]:
        """Return a copy on the host, one-dimensional or of `shape`; an image has its own shape.

        Raises: InvalidArgument; OutOfMemory of the host.
        """
        array = empty_array(self.size, self.dtype, "numpy")
        self.copyout(array.view(np.uint8))
        if shape is None:
            image = self.options.image
            return array if image is None else array.reshape(image.shape)
        try:
            one = array if array.ndim == 1 else array[:, 0]  # of each vector its first number
            return array.reshape(one.reshape(shape).shape + array.shape[1:])
        except (TypeError, ValueError, OverflowError):
            raise InvalidArgument(
                "numpy", "no shape of this number of elements",
                got=shape, limit=f"has {self.size}", device=self.device,
                fix="Copy a part: buffer[:n].numpy(shape).",
            ) from None  # fmt: skip

    @classmethod
    def from_numpy(
        cls, array: NDArray[Any], device: str | Compiled | None = None,
        options: BufferSpec | None = None,
    ) -> Self:  # fmt: skip
        """Make a buffer with a copy of `array`'s elements in C order; on the default device.

        Another byte order is converted. Records and complex numbers are kept, for kernels that are
        text.
        Raises: InvalidArgument for dtypes no device has (strings, objects, dates) and for masked
        elements.
        """
        array, dtype = values_of(array, "from_numpy")
        made = cls(Device[None] if device is None else device, array.size, dtype, options)
        return made.allocate().copyin(array.reshape(-1).view(np.uint8))

    def as_memoryview(self) -> memoryview:
        """Return the memory itself as flat writable bytes, where the host sees it.

        Owns: the view keeps the memory alive, so it stays readable after `deallocate` of the
        buffer.
        Raises: NotShareable where the host does not see it.
        """
        return in_place(self, "as_memoryview").data

    def __buffer__(self, flags: int) -> memoryview:
        """Share the memory with `memoryview(buffer)` of Python 3.12 and later, if the host sees it.

        Shape: `size` elements of the dtype's format. Owns: keeps the buffer's memory.
        Raises: NotShareable where the host does not see it, or for bfloat16, which has no format.
        """
        if self.dtype.name == "bfloat16":
            raise NotShareable(
                "memoryview", "a memoryview has no bfloat16", device=self.device,
                fix="Take the bits: buffer.view(dtype=hal.uint16).",
            )  # fmt: skip
        try:
            return elements_of(in_place(self, "memoryview"), self.dtype).data
        except DeviceFault as error:
            # numpy drops errors of this protocol and calls `__array__`, which then raises this one.
            self._unsaid = fresh_copy(error)
            raise

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Share the memory with `numpy.asarray(buffer)`, if the host sees it."""
        if hasattr(self, "_unsaid"):
            unsaid = self._unsaid
            del self._unsaid
            raise unsaid
        copy = copy if copy is None else as_flag(copy, "numpy.asarray", "copy")
        array = elements_of(in_place(self, "numpy.asarray"), self.dtype)
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
        cls, path: str | bytes | PathLike[Any], dtype: DType, offset: int = 0,
        size: int | None = None, device: str | Compiled | None = None,
        options: BufferSpec | None = None,
    ) -> Self:  # fmt: skip
        """Make a buffer with the elements of a file; on the default device unless one is given.

        Units: `offset` in bytes, `size` in elements; by default all from `offset` to the end.
        Raises: InvalidArgument for a file that is too short or not regular. InvalidArgument, which
        is also an OSError, for a file that the system refuses. InvalidState when another process
        makes the file shorter during the read. OutOfMemory.
        """
        start, kind = checked_size(offset, "from_file", "offset"), as_dtype(dtype, "from_file")
        if size is None:
            size = _files.elements_in(path, kind.itemsize, start, "from_file")
        made = cls(Device[None] if device is None else device, size, kind, options)
        _files.read(made, path, start, "from_file")
        return made

    def to_file(self, path: str | bytes | PathLike[Any], offset: int = 0) -> Self:
        """Write the elements to a file from byte `offset` on; make the file if it does not exist.

        Other bytes of a file that exists are kept.
        Units: `offset` in bytes.
        Order: after the work of all queues of the device; the data is in the file on return.
        Raises: InvalidArgument for something that is no regular file. InvalidArgument, which is
        also an OSError, for a file that the system refuses; the file keeps its length.
        InvalidState.
        """
        _files.write(self, path, checked_size(offset, "to_file", "offset"), "to_file")
        return self

    # -- other libraries

    @classmethod
    def from_dlpack(
        cls, obj: Any, device: str | Compiled | None = None, *, copy: bool | None = None
    ) -> Self:
        """Make a buffer over the memory of another library's array, or with a copy of it.

        Memory of another device is copied to the host first. `copy=None` shares the memory if the
        device can use it, and copies it otherwise; `False` never copies, and `True` always does.
        Shape: elements in C order; the buffer has one dimension.
        Owns: the array, while memory is shared; both see each other's writes.
        Raises: InvalidArgument for an object that is no DLPack array, has a dtype that hal-core
        lacks or cannot be copied to the host; NotShareable with `copy=False` where it must be
        copied.
        """
        return dlpack.take(cls, obj, device, copy)

    def __dlpack__(
        self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None, copy: bool | None = None,
    ) -> Any:  # fmt: skip
        """Answer `torch.from_dlpack(buffer)` and `numpy.from_dlpack(buffer, device="cpu")`.

        `dl_device` is the place that the consumer asks for: None for the place where the memory is,
        `(1, 0)` for the host, or, for pinned memory, the device. `copy=None` copies if it must,
        `False` never copies, and `True` always does.
        Shape: one dimension.
        Order: after all work of the device so far; `stream=-1` asks for no wait.
        Raises: NotShareable when the memory cannot be exported there; it says what to do instead.
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
                fix="Buffer.from_dlpack and from_numpy take other libraries' arrays, and "
                "BufferSpec(external_ptr=...) an address, or a handle such as a cl_mem.",
            )  # fmt: skip
        return cls._borrow(owner, *found)

    @classmethod
    def _borrow(
        cls, device: Compiled, pointer: int, size: int, dtype: DType, owner: object, offset: int = 0
    ) -> Self:
        """Make a buffer over memory of `owner`, which the buffer and its exports keep.

        The elements begin `offset` bytes behind `pointer`, which may be a handle.
        """
        if not size:
            return cls(device, 0, dtype).allocate()
        if offset and not device.allocator.wraps_addresses:
            whole = cls._borrow(device, pointer, offset + size * dtype.itemsize, uint8, owner)
            return whole.view(size, dtype, offset)
        pointer += offset
        made = cls(device, size, dtype, BufferSpec(external_ptr=pointer))
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
        if self._state() == "freed":
            raise self._was_freed("pickle")
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


def empty(
    size: int, dtype: DType, device: str | Compiled | None = None, options: BufferSpec | None = None
) -> Buffer:
    """Make an allocated buffer, contents undefined; on the default device unless one is given."""
    return Buffer(Device[None] if device is None else device, size, dtype, options).allocate()


def zeros(size: int, dtype: DType, device: str | Compiled | None = None) -> Buffer:
    """Make an allocated buffer of zeros; on the default device unless one is given."""
    return empty(size, dtype, device, _ZERO)
