"""Device memory: allocation, a cache of freed blocks, and exact accounts.

A backend fills in `_alloc`, `_free`, `_offset`, `_copyin`, `_copyout` and whatever else it can do
better than the defaults. No method here is a plugin hook, and none reads the environment after the
allocator is made. Who gives a block back, and when: docs/design/memory.md.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from hal_core import concurrency, config
from hal_core.allocator.accounts import Accounts, AllocatorStatistics, Opaque
from hal_core.allocator.spec import DEFAULT_SPEC, BufferSpec, Image, checked_spec, examined
from hal_core.dtypes import as_dtype
from hal_core.errors import (
    HalError,
    InvalidArgument,
    InvalidState,
    NotShareable,
    OutOfMemory,
    Unsupported,
)
from hal_core.geometry import as_count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hal_core.buffer import Buffer
    from hal_core.device.base import Compiled

__all__ = [
    "DEFAULT_SPEC", "Allocator", "AllocatorStatistics", "BufferSpec", "Image", "LRUAllocator",
    "checked_spec",
]  # fmt: skip

DEFAULT_CACHE_NBYTES = 256 << 20


class Allocator(Accounts[Opaque], concurrency.OfThisProcess):
    """Memory of one device: blocks are taken from it, and given back to it or to a cache.

    The cache keeps freed blocks for the next allocation of the same rounded size and options. It
    keeps at most `cache_limit` bytes, which may be set; the default, 0, keeps nothing. The block
    that was freed first is released first. `nolru` and `external_ptr` bypass the cache. With
    `zero`, a cached block is filled, unless new memory is zero already: then the cache is bypassed.

    An opaque is the backend's own handle of memory: an address, an object of the driver, or such
    an object with an offset. The core only passes it on.

    Concurrency: every public method may be called from any thread. The underscored ones of a
    backend may be called from several threads at once, never with the allocator's lock held.
    """

    honours: frozenset[str] = frozenset({"nolru", "zero"})  # BufferSpec fields; others are refused
    null: Any = None  # the opaque of an empty buffer
    fresh_is_zero: bool = False  # `_alloc` gives zeros whenever options.zero asks
    host_ordered: bool = False  # True: a copy needs no wait, work without queue= is done
    wraps_addresses: bool = False  # external_ptr is an address, which elements align; not a handle
    dlpack_device: tuple[int, int] | None = None  # DLPack's (type, number), for pointers
    dlpack_pinned: tuple[int, int] | None = None  # the same of memory that the host sees, too
    dlpack_handle: bool = False  # it has a handle there and a byte offset, which few consumers read
    dlpack_stream: int | None = None  # number of the stream that a producer's work precedes
    exports: Mapping[str, Callable[[Buffer], Any]] = {}  # attributes of other protocols
    device: Compiled
    limit: int  # bytes held, cached ones included; 0: none
    cache_limit: int  # bytes of freed blocks that are kept
    poison: bool  # fresh memory is filled with 0xCB

    _instead = "Send a hal.Buffer, which carries its data."

    def __init__(self, device: Compiled) -> None:
        super().__init__()
        self.device = device
        self.limit = config.MEMORY_LIMIT.read()
        self.cache_limit = 0
        self.poison = config.CHECK.read()
        # Held while dropped blocks are freed. Re-entrant, as `_free` may call `free_cache`.
        self._freeing = concurrency.fork_safe_lock()
        self._closed = False

    # -- what a backend fills in

    def _alloc(self, nbytes: int, options: BufferSpec) -> Opaque:
        """Allocate `nbytes` > 0 bytes. Raises: OutOfMemory when the device refuses."""
        raise self._missing("_alloc")

    def _free(self, opaque: Opaque, nbytes: int, options: BufferSpec) -> None:
        """Give a block back to the device, after the queued work that may still use it.

        May be called after the device was closed, for memory that an export kept alive.
        """
        raise self._missing("_free")

    def _wrap(self, pointer: int, nbytes: int) -> Opaque:
        """Make an opaque of memory that the caller owns. Only if `external_ptr` is in `honours`."""
        raise self._missing("_wrap")

    def _offset(self, opaque: Opaque, nbytes: int, offset: int) -> Opaque:
        """Make a view's opaque, such as an address or (memory, offset), from its base's."""
        raise self._missing("_offset")

    def _copyin(self, dest: Opaque, src: memoryview) -> None:
        """Copy from `src`, flat bytes that the caller may reuse on return."""
        raise self._missing("_copyin")

    def _copyout(self, dest: memoryview, src: Opaque) -> None:
        """Copy to `dest`, flat writable bytes; the data is there on return."""
        raise self._missing("_copyout")

    def _transfer(self, dest: Opaque, src: Any, nbytes: int, src_device: Compiled) -> bool:
        """Copy without the host; False leaves it to the caller. The ranges may overlap."""
        return False

    def _fill(self, dest: Opaque, nbytes: int, pattern: bytes) -> None:
        """Repeat `pattern`; `nbytes` is a multiple of its length."""
        self._copyin(dest, memoryview(pattern * (nbytes // len(pattern))))

    def _as_buffer(self, opaque: Opaque, nbytes: int) -> memoryview:
        """Return the memory itself, flat writable bytes. Only where `_host_sees` it."""
        raise self._missing("_as_buffer")

    def _host_sees(self, options: BufferSpec) -> bool:
        """Tell whether the host reads and writes memory of these options in place."""
        return self.device.info.host_visible

    def _order_consumer(self, stream: Any) -> bool:
        """Let a DLPack consumer's stream wait for all queued work; False: the host must wait."""
        return False

    def _lend(self, stream: Any, lease: object) -> object:
        """Return what an export in place keeps of the memory, until its consumer drops it.

        Order: later work of the device comes after what the consumer's stream has then.
        """
        return lease

    def _release(self, owner: object) -> None:
        """Take the owner of borrowed memory, and drop it after the queued work that may use it.

        Called by finalizers.
        """

    def _export(self, opaque: Opaque) -> tuple[int, int]:
        """Return what DLPack has of memory on `dlpack_device`: a pointer, and a byte offset.

        Raises: NotShareable for an opaque that is no address; a backend with such fills this in.
        """
        if isinstance(opaque, int):
            return opaque, 0
        problem, got = "the memory has no address", type(opaque).__name__
        fix = "Copy it: buffer.numpy()."
        raise NotShareable("__dlpack__", problem, got=got, device=self.device.name, fix=fix)

    def _place(self, opaque: Opaque) -> tuple[object, int] | None:
        """Return the memory that an opaque lies in, hashable, and the byte where it begins.

        All addresses, which are integers, are one memory. None: the driver's handles do not tell
        which memory borrowed ones share, and then every two of those may share all.
        """
        return (None, int(opaque)) if isinstance(opaque, int) else None

    def _missing(self, method: str) -> Unsupported:
        return self.device._missing(self, method)

    # -- copies between devices

    def _copy(self, dest: Opaque, src: Any, nbytes: int, src_device: Compiled) -> None:
        """Copy from memory of any device, through the host where there is no shorter way."""
        if not self._transfer(dest, src, nbytes, src_device):
            staging = memoryview(bytearray(nbytes))
            src_device.allocator._copyout(staging, src)
            self._copyin(dest, staging)

    # -- allocate and free

    def alloc(self, nbytes: int, options: BufferSpec | None = None) -> Opaque:
        """Hand out `nbytes` bytes, contents undefined unless `options.zero`.

        Owns: the caller, until `free`. Raises: OutOfMemory, Unsupported, InvalidArgument.
        """
        if options is not DEFAULT_SPEC or nbytes.__class__ is not int or nbytes <= 0:
            nbytes, options = self._check(nbytes, options)
            if options.external_ptr is not None:
                return self._wrap(options.external_ptr, nbytes)
            if nbytes == 0:
                self.device._check_open("allocate")
                return self.null  # type: ignore[no-any-return]
        spec = options  # of the block: filled with zeros, it is like any other
        if spec is not DEFAULT_SPEC and spec.zero and not self.fresh_is_zero:
            spec = self._check(nbytes, spec._replace(zero=False))[1]
        # As `block_nbytes`.
        size = (nbytes + 255) & -256 if nbytes < 65536 else (nbytes + 4095) & -4096
        opaque, lock, unsettled = None, self._lock, self._unsettled
        try:
            try:
                lock.acquire()  # inside, as Ctrl-C may come behind it; `with` costs three times it
                if unsettled:
                    first, freed, kind = unsettled[0]
                    same = freed == nbytes and kind is spec is DEFAULT_SPEC
                    # To cache the block and take it again would come to this, in one step.
                    if same and size <= self.cache_limit and first in self._live:
                        opaque = first
                        self._hits += 1
                        unsettled.popleft()
                if opaque is None:
                    opaque = self._take_cached(nbytes, size, spec)
            except BaseException:
                if lock._is_owned():  # type: ignore[attr-defined]  # else interrupted in its wait
                    lock.release()
                raise
            lock.release()
            if opaque is None:
                opaque = self._fresh(nbytes, size, spec)
            if options is not DEFAULT_SPEC or self.poison:
                self._initialise(opaque, nbytes, options)
        except BaseException:
            if opaque is not None:
                self._give_back(opaque, nbytes, spec)
            raise
        return opaque

    def _initialise(self, opaque: Opaque, nbytes: int, options: BufferSpec) -> None:
        """Fill a block with zeros or poison as asked for."""
        done = self.fresh_is_zero if options.zero else not self.poison
        if not done:
            self._fill(opaque, nbytes, b"\0" if options.zero else b"\xcb")

    def free(self, opaque: Opaque, nbytes: int, options: BufferSpec | None = None) -> None:
        """Give back a block of `alloc`, with the same size and options.

        Raises: InvalidArgument for a block that is not live (double free) or another size.
        """
        nbytes, options = self._check(nbytes, options)
        if options.external_ptr is not None or nbytes == 0:
            return
        try:
            hash(opaque)
        except TypeError:
            problem, fix = "no block of this allocator", "Give what its alloc returned."
            raise InvalidArgument(
                "free", problem, got=opaque, device=self.device.name, fix=fix
            ) from None
        with self._lock:
            self._drain()
            if self._live.get(opaque) != nbytes:
                raise self._not_live(opaque, nbytes)
            self._unsettled.append((opaque, nbytes, options))
            self._drain()
        if self._dropped:
            self._free_dropped()

    def free_cache(self) -> None:
        """Release every cached block. May be called from anywhere, a backend's `_free` included."""
        with self._lock:
            self._drain()
            self._evict(0)
            for key in list(self._cache):
                if key not in self._cache or self._cache[key]:  # one step
                    continue
                del self._cache[key]
        self._free_dropped()

    def statistics(self) -> AllocatorStatistics:
        """Return the accounts as of now; all freed memory is counted."""
        with self._lock:
            self._drain()
            facts = self._facts()
        self._free_dropped()
        return facts

    def close(self) -> None:
        """Release the cache; live blocks are released when their last owner is gone."""
        self._closed = True
        self.cache_limit = 0
        self.free_cache()

    def _abandon(self) -> None:
        """Refuse every use in a forked child that may not touch the driver, and free nothing."""
        refused = {
            name: concurrency.refuse_after_fork(what, self.device.name)
            for name, what in {"alloc": "allocate", "free": "free", "free_cache": "free"}.items()
        }
        silent = ("close", "_settle_unless_busy", "_free_dropped")
        vars(self).update(refused, **dict.fromkeys(silent, concurrency.do_nothing))

    # -- blocks that go back

    def _give_back(self, opaque: Opaque, nbytes: int, options: BufferSpec) -> None:
        """Take a block from a finalizer, without waiting for a lock; the next call settles it."""
        self._take_back(opaque, nbytes, options)
        if options is not DEFAULT_SPEC or not self.cache_limit:
            self._settle_unless_busy()

    def _take_back(self, opaque: Opaque, nbytes: int, options: BufferSpec) -> None:
        """Note that a block comes back. When Ctrl-C ends this, nothing was done."""
        self._returned += ((opaque, nbytes, options),)  # `append` is a call, which it may end

    def _settle_unless_busy(self, is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        """Free returned blocks that the cache does not take, unless a call is under way.

        A call under way may be one of this thread, which the collector has interrupted: the
        re-entrant lock would let it in, in the middle of a change. At the interpreter's exit
        nothing is freed: the names that a backend's `_free` uses may be None by now, and the
        memory goes with the process. (For that reason the default argument, too, is no name.)
        """
        if is_exiting():
            return
        concurrency.run_unless_busy(self._lock, self._drain)
        concurrency.run_unless_busy(self._freeing, self._free_dropped)

    def _free_dropped(self) -> None:
        """Give dropped blocks to the device, with the lock released."""
        while self._dropped:
            with self._freeing:
                if self._dropped:  # else another thread was faster
                    block = self._dropped[0]
                    del self._dropped[0]
                    self._free(*block)

    # -- a new block

    def _fresh(self, nbytes: int, size: int, options: BufferSpec) -> Opaque:
        """Get a new block; when the device has no room, once more without what is only remembered:
        the cache, and the buffers of the last replay of each graph."""
        if self._closed:
            raise InvalidState("allocate", "the device is closed", device=self.device.name)
        opaque, cause = self._ask_device(size, options)
        if opaque is None:
            self.device._forget_replays()
            self.free_cache()
            opaque, cause = self._ask_device(size, options)
        if opaque is None:
            facts, info = self.statistics(), self.device.info
            with self._lock:
                largest = sorted(self._live.values(), reverse=True)[:5]
            in_bytes = config.both_sizes
            live = " + ".join(map(in_bytes, largest))
            limit = in_bytes(facts.limit) if facts.limit else "none"
            rounded = f", in a block of {config.size(size)}" if size > nbytes else ""
            most = in_bytes(info.limits.max_alloc_nbytes or info.memory_nbytes)
            try:
                raise OutOfMemory(
                    "allocate",
                    f"no room for {config.size(nbytes)}{rounded}: "
                    f"bytes in use {in_bytes(facts.current)}, "
                    f"cached {in_bytes(facts.cached)}, limit {limit}, "
                    f"total {in_bytes(info.memory_nbytes)}, largest single allocation {most}, "
                    f"largest live allocations {live or 'none'}",
                    got=nbytes,
                    device=self.device.name,
                    fix="Free buffers, or raise HAL_MEMORY_LIMIT where it is set.",
                ) from cause
            finally:
                # Its traceback holds this frame, and so every caller's: a cycle that would keep
                # their buffers.
                del cause
        # One step, without the lock: Ctrl-C could come while it waits for that.
        self._live[opaque] = nbytes
        self._misses += 1
        self._current += nbytes
        if self._current > self._peak:
            self._peak = self._current
        return opaque

    def _ask_device(self, size: int, options: BufferSpec) -> tuple[Opaque | None, Exception | None]:
        """Return a block, or the reason why there is none: an error, or None for the limit."""
        fits = False
        try:
            with self._lock:
                room = self.limit - self._held if self.limit else size
                if size > room:
                    self._evict(max(0, self._cached - (size - room)))
                    room = self.limit - self._held
                fits = size <= min(room, self.device.info.limits.max_alloc_nbytes or size)
                if fits:
                    self._held += size
            # `_held` no longer counts a block that another thread is still freeing: wait for that.
            with self._freeing:
                self._free_dropped()
            return (self._alloc(size, options) if fits else None), None
        except BaseException as error:
            if fits:
                self._held -= size  # one step
            concurrency.raise_if_of_a_signal(error)
            ours = isinstance(error, (HalError, NotImplementedError))
            if isinstance(error, OutOfMemory) or (isinstance(error, Exception) and not ours):
                return None, error  # a vendor's error never escapes raw
            raise

    # -- checks

    def _check(self, nbytes: int, options: BufferSpec | None) -> tuple[int, BufferSpec]:
        """Return Python's integer and the options; `DEFAULT_SPEC` itself for its equals, so that
        `is` finds it."""
        if nbytes.__class__ is not int or nbytes < 0:
            problem, given = "not a number of bytes", nbytes
            nbytes = as_count(given)
            if nbytes < 0:
                raise InvalidArgument("allocate", problem, got=given, device=self.device.name)
        options = checked_spec(options, "allocate")
        if options is DEFAULT_SPEC:
            return nbytes, options
        refused = examined(options)[1] - self.honours
        if refused:
            field = min(refused)
            raise Unsupported(
                "allocate", f"BufferSpec({field}=...) is not honoured", got=getattr(options, field),
                limit=f"honoured are {', '.join(sorted(self.honours))}", device=self.device.name,
                fix="Leave it out: a buffer without it works on every device.",
            )  # fmt: skip
        if options.image is not None:
            dtype = as_dtype(options.image.dtype, "allocate: the dtype of an image")
            image = options.image._checked(dtype, "allocate")
            options = options._replace(image=image)
            if image.nbytes != nbytes:
                raise InvalidArgument(
                    "allocate", "BufferSpec(image=...) has another size", got=f"{nbytes} bytes",
                    limit=f"an image of {image.nbytes}", device=self.device.name,
                    fix="Its buffer has width x height x depth x channels elements.",
                )  # fmt: skip
        pointer = options.external_ptr
        if pointer is not None:
            problem, fix = "", "Give the address of memory and nothing else; fill(0) makes zeros."
            address = as_count(pointer)
            if not 0 < address < 1 << 64 or nbytes >> 63:
                problem = "external_ptr is not an address of so much memory"
            elif options != BufferSpec(external_ptr=pointer, nolru=options.nolru):
                problem = "external_ptr is memory that exists, other options are for new memory"
            if problem:
                device = self.device.name
                raise InvalidArgument("allocate", problem, got=options, device=device, fix=fix)
            options = options._replace(external_ptr=address)
        return nbytes, options

    def _facts(self) -> AllocatorStatistics:
        """Return the accounts as they stand: no freed memory is collected, no backend is called."""
        counts = self._current, self._peak, self._cached, self.limit, self._hits, self._misses
        return AllocatorStatistics(*counts, len(self._live))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.device.name} {self._facts()}>"


class LRUAllocator(Allocator[Opaque]):
    """An allocator with its cache on.

    The cache has HAL_LRU_LIMIT bytes, by default an eighth of the device's memory and at least 256
    MiB; HAL_LRU=0 switches it off.
    """

    def __init__(self, device: Compiled) -> None:
        super().__init__(device)
        if config.LRU.read():
            default = max(DEFAULT_CACHE_NBYTES, device.info.memory_nbytes // 8)
            self.cache_limit = config.LRU_LIMIT.read() or default
