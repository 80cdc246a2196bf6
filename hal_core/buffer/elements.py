"""Elements in the memory of a device: a buffer's allocation, its views, and who owns its memory."""

from __future__ import annotations

from functools import partial
from math import gcd
from typing import TYPE_CHECKING, Any, Self

from hal_core.allocator import DEFAULT_SPEC, BufferSpec, checked_spec
from hal_core.concurrency import Living, never_release, never_released
from hal_core.device import Device
from hal_core.dtypes import DType, alignment, as_dtype
from hal_core.errors import InvalidArgument, InvalidState, Unsupported, shown
from hal_core.geometry import as_count
from hal_core.queue import Lease

if TYPE_CHECKING:
    from hal_core.allocator import Allocator
    from hal_core.device.base import BufferKey, Compiled


class Elements:
    """Elements with their memory: a `hal.Buffer` without its copies and exchange with others."""

    __slots__ = (
        "__weakref__", "_buf", "_device", "_freed", "_host", "_key", "_lease", "_owned", "_views",
        "base", "device", "dtype", "nbytes", "offset", "options", "size",
    )  # fmt: skip

    device: str  # canonical name
    size: int
    dtype: DType
    nbytes: int
    options: BufferSpec
    base: Self | None  # the root it is a view of
    offset: int  # in that root

    def __init__(
        self, device: str | Compiled, size: int, dtype: DType, options: BufferSpec | None = None
    ) -> None:
        """Make a buffer without memory; its first use allocates the memory.

        Memory of `external_ptr` is taken now.
        Raises: InvalidArgument for a negative size, something that is no dtype, or such memory.
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
        if dtype.__class__ is not DType or dtype.kind in ("", "I"):  # of `any_`, of images
            dtype = as_dtype(dtype, "Buffer")
        if size.__class__ is not int or size < 0:
            size = checked_size(size, "Buffer")
        self.size = size
        self.dtype = dtype
        self.nbytes = size * dtype.itemsize
        self.options = DEFAULT_SPEC
        self.base = None
        self.offset = 0
        self._key: BufferKey | None = None  # a launch's test; None while not allocated
        self._buf: Any = None  # the opaque
        self._lease: Lease | None = None
        self._host: memoryview | None = None  # the memory itself, after a first copy
        self._views: Living[Self] | None = None
        self._freed = 0  # how often; a view remembers its base's count
        if options is not None and options is not DEFAULT_SPEC:
            self.options = options = checked_spec(options, "Buffer")
            if options.image is not None:
                self.options = options._replace(image=options.image._checked(dtype, "Buffer"))
            elif options.external_ptr is not None:
                self._allocate("Buffer")  # now: a handle such as a cl_mem lives as long as this

    # -- memory

    @property
    def is_allocated(self) -> bool:
        """True while the buffer has memory: from the first use until `deallocate`."""
        return self._key is not None

    def allocate(self) -> Self:
        """Get the memory now, which that of `external_ptr` is from the start.

        Raises: InvalidState when other memory is allocated already; OutOfMemory.
        """
        if (self._key is not None or not self._allocate()) and self.options.external_ptr is None:
            fix = "Use ensure_allocated()."
            raise InvalidState("allocate", f"{self!r} is allocated already", fix=fix)
        return self

    def ensure_allocated(self) -> Self:
        """Get the memory now, unless the buffer has it already. Raises: OutOfMemory."""
        if self._key is None:
            self._allocate()
        return self

    def deallocate(self) -> None:
        """Give the memory back; views of this buffer become unusable for good.

        Raises: InvalidState when the buffer is not allocated, or is a view.
        """
        if self.base is not None:
            problem, fix = f"{self!r} is a view", "Free all of the memory: view.base.deallocate()."
            raise InvalidState("deallocate", problem, fix=fix)
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

    # -- views

    def view(self, size: int | None = None, dtype: DType | None = None, offset: int = 0) -> Self:
        """Make a view of `size` elements of `dtype` from `offset` bytes on, over the same data.

        By default all elements from `offset` to the end, of this dtype.
        Owns: keeps the base alive. A view of a view is a view of the base.
        Raises: InvalidArgument when the view does not lie inside this buffer.
        """
        if self.options.image is not None:
            problem, fix = f"{self!r} is an image, which has no views", "Use buffer.numpy()[...]."
            raise Unsupported("view", problem, device=self.device, fix=fix)
        kind = self.dtype if dtype is None else as_dtype(dtype, "view")
        start = checked_size(offset, "view", "offset")
        room = max(0, self.nbytes - start) // kind.itemsize
        count = room if size is None else checked_size(size, "view")
        if start + count * kind.itemsize > self.nbytes:
            raise InvalidArgument(
                "view", f"beyond the end of {self!r}",
                got=f"{shown(count)} x {kind.name} at byte {shown(start)}",
                limit=f"has {self.nbytes} bytes", device=self.device,
                fix="size counts elements of the view's dtype, offset bytes.",
            )  # fmt: skip
        root = self if self.base is None else self.base
        if self.base is not None and root._freed != self._freed:
            raise self._was_freed("view")
        made = type(self)(self._device, count, kind)
        made.options = self.options
        made.base = root
        made.offset = self.offset + start
        made._freed = root._freed
        if root._views is None:
            views: Living[Self] = Living()  # Living[Buffer]() is slower
            if root._views is None:  # else another thread was faster; one step under the GIL
                root._views = views
        root._views.add(made)
        if root._key is None:
            made._aligned_key("view")  # an odd start is refused now, not at the first use
        else:
            made._attach("view", root)
        return made

    def __getitem__(self, index: slice) -> Self:
        """Make a view, `buffer[a:b]`, of elements a to b; Python's rules, step 1 only."""
        try:
            start, stop, step = index.indices(self.size)
        except (AttributeError, TypeError, ValueError):
            step = 0
        if step != 1:
            is_slice = isinstance(index, slice)
            problem = "a slice has integers, and step 1" if is_slice else "an element has no view"
            fix = "For a view write buffer[a:b]; to see elements, copy out: buffer.numpy()[...]."
            raise InvalidArgument("buffer[...]", problem, got=index, fix=fix)
        return self.view(max(0, stop - start), offset=start * self.dtype.itemsize)

    def __len__(self) -> int:
        return self.size

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
        if root._key is None and not root._freed:
            self._device._check_open(operation)
            problem = f"{self!r} was never allocated, so it holds nothing"
            fix = "Write to it first: copyin, fill or a launch."
            raise InvalidState(operation, problem, fix=fix)
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
        # Ahead of the memory, which Ctrl-C would lose.
        if options is DEFAULT_SPEC:
            owned, own = nbytes, device._keys[self.dtype]
        else:
            owned, own = nbytes and options.external_ptr is None, device._keys[self._taken_as]
        opaque = allocator.alloc(nbytes, options)
        key = own if owned else self._aligned_key(operation)
        if self._key is None:  # from here to the last assignment it is one step under the GIL
            self._buf = opaque
            if owned:
                self._owned = allocator
            self._key = key
            return True
        if owned:
            allocator._give_back(opaque, nbytes, options)
        return False

    def _attach(self, operation: str, base: Self) -> None:
        """Give a view its part of the base's memory, which is allocated first if need be."""
        if base._freed != self._freed:
            raise self._was_freed(operation)
        base._opaque_for(operation)
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
        start, step = self._start(), self.dtype.itemsize
        if self.dtype.kind == "V":
            step = gcd(step, alignment(self.dtype))
        if start % step:
            raise InvalidArgument(
                operation, "the start is not a multiple of the element size",
                got=start if start == self.offset else hex(start),
                limit=f"{self.dtype.name} begins at a multiple of {step} bytes", device=self.device,
                fix="Offsets count bytes; memory at such an address can be copied, not wrapped.",
            )  # fmt: skip
        return self._device._key(self.dtype, start % self._device.info.limits.view_alignment == 0)

    def _start(self) -> int:
        """Return the address whose alignment decides which key a launch sees.

        Owned blocks are aligned, so the offset alone decides; a borrowed address may be odd.
        """
        pointer = self.options.external_ptr
        if pointer is None or not self._device.allocator.wraps_addresses:
            return self.offset
        return pointer + self.offset

    @property
    def _taken_as(self) -> DType:
        """The dtype of the parameters that take this: of the elements, or an image's."""
        image = self.options.image
        return self.dtype if image is None else image.kind

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

    def _state(self) -> str:
        """Return "freed" or "unallocated"; "" for a buffer that has memory."""
        freed = self._freed if self.base is None else self.base._freed != self._freed
        return "" if self._key is not None else "freed" if freed else "unallocated"

    def __repr__(self) -> str:
        place = f" at +{self.offset}" if self.base is not None else ""
        state = f" {self._state()}".rstrip()
        return f"<Buffer {self.device} {self.size} x {self.dtype.name}{place}{state}>"


def checked_size(value: Any, operation: str, what: str = "size") -> int:
    """Check a size or an offset."""
    number = as_count(value)
    if number < 0:
        fix = "Convert it by int(...)." if isinstance(value, float) else None
        if isinstance(value, (tuple, list)):
            fix = "A buffer has one dimension: give the product, and numpy(shape) at the end."
        problem = f"{what} must be an integer that is not negative"
        raise InvalidArgument(operation, problem, got=value, fix=fix)
    return number
