"""Device memory: allocation, the cache of freed blocks, and exact accounts.

A backend fills in `_alloc`, `_free`, `_offset`, `_copyin`, `_copyout` and whatever else it can do
better than the defaults. Nothing here is a hook, and nothing reads the environment after the
allocator is made.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from hal_core import concurrency, config
from hal_core.allocator.spec import DEFAULT_SPEC, BufferSpec
from hal_core.errors import HalError, InvalidArgument, InvalidState, OutOfMemory, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hal_core.buffer import Buffer
    from hal_core.device import Compiled

__all__ = ["DEFAULT_SPEC", "Allocator", "AllocatorStatistics", "BufferSpec", "LRUAllocator"]

Opaque = TypeVar("Opaque")
Key = int | tuple[int, BufferSpec]  # rounded nbytes, and options unless they are the default

DEFAULT_CACHE_NBYTES = 256 << 20


class AllocatorStatistics(NamedTuple):
    """What a device's memory is used for, as `device.allocator.statistics()` tells.

    Units: bytes, except `hits`, `misses` (allocations) and `live` (blocks).
    """

    current: int  # handed out
    peak: int  # the most that ever was
    cached: int  # freed, kept for the next allocation of the size
    limit: int  # 0: none
    hits: int  # served by a kept block
    misses: int
    live: int  # handed out


class Allocator(Generic[Opaque]):
    """Memory of one device: blocks are taken from it, and given back to it or to a cache.

    The cache keeps freed blocks for the next allocation of their (rounded size, options). It is
    bounded in bytes by `cache_limit`, settable, 0 here: a plain allocator keeps nothing. The block
    freed longest ago goes first. `nolru`, `zero` and `external_ptr` pass the cache by.

    Concurrency: every public method may be called from any thread. The underscored ones of a
    backend may be called from several threads at once, never with the allocator's lock held.
    """

    honours: frozenset[str] = frozenset({"nolru", "zero"})  # fields of BufferSpec it keeps
    null: Any = None  # the opaque of an empty buffer
    fresh_is_zero: bool = False  # `_alloc` gives zeros whenever options.zero asks
    host_ordered: bool = False  # True: host access needs no wait, work is done on return
    dlpack_device: tuple[int, int] | None = None  # DLPack's (type, number); opaques are pointers
    dlpack_pinned: tuple[int, int] | None = None  # of memory that the host sees, too
    dlpack_stream: int | None = None  # what a producer is told to order its work before
    exports: Mapping[str, Callable[[Buffer], Any]] = {}  # other protocols' attributes
    device: Compiled
    limit: int  # bytes held, cached ones included; 0: none
    cache_limit: int  # bytes of freed blocks that are kept
    poison: bool  # fresh memory is filled with 0xCB

    def __init__(self, device: Compiled) -> None:
        self.device = device
        self.limit = config.MEMORY_LIMIT.read()
        self.cache_limit = 0
        self.poison = config.CHECK.read()
        # A finalizer may allocate in the middle of anything, on the same thread: what is done
        # under the lock leaves room for that wherever a call returns.
        self._lock = threading.RLock()
        self._freeing = threading.RLock()  # held while dropped blocks are freed; `_free` may nest
        self._live: dict[Opaque, int] = {}  # opaque -> bytes asked for
        self._cache: dict[Key, deque[tuple[int, Opaque]]] = {}  # -> (age, opaque)
        self._ages = itertools.count()
        self._returned: deque[tuple[Opaque, int, BufferSpec]] = deque()  # accounts still open
        self._dropped: deque[tuple[Opaque, int, BufferSpec]] = deque()  # to free, lock released
        self._current = self._peak = self._hits = self._misses = 0
        self._held = self._cached = 0  # bytes of blocks: handed out or cached; cached
        self._closed = False

    # -- what a backend fills in

    def _alloc(self, nbytes: int, options: BufferSpec) -> Opaque:
        """`nbytes` > 0 bytes. Raises: OutOfMemory when the device refuses."""
        raise self._missing("_alloc")

    def _free(self, opaque: Opaque, nbytes: int, options: BufferSpec) -> None:
        """Give back; queued work may still use it and must be allowed to finish.

        May be called after the device was closed, for memory that an export kept alive.
        """
        raise self._missing("_free")

    def _wrap(self, pointer: int, nbytes: int) -> Opaque:
        """The opaque of memory the caller owns. Only if `external_ptr` is in `honours`."""
        raise self._missing("_wrap")

    def _offset(self, opaque: Opaque, nbytes: int, offset: int) -> Opaque:
        """A view's handle: integer, (memory, offset) or sub-buffer. `opaque` is the base's."""
        raise self._missing("_offset")

    def _copyin(self, dest: Opaque, src: memoryview) -> None:
        """`src`: flat bytes, may be reused on return."""
        raise self._missing("_copyin")

    def _copyout(self, dest: memoryview, src: Opaque) -> None:
        """`dest`: flat writable bytes; the data is there on return."""
        raise self._missing("_copyout")

    def _transfer(self, dest: Opaque, src: Any, nbytes: int, src_device: Compiled) -> bool:
        """Copy without the host; False: the caller stages. May be asked for ranges that overlap."""
        return False

    def _fill(self, dest: Opaque, nbytes: int, pattern: bytes) -> None:
        """`nbytes` is a multiple of `len(pattern)`."""
        self._copyin(dest, memoryview(pattern * (nbytes // len(pattern))))

    def _as_buffer(self, opaque: Opaque, nbytes: int) -> memoryview:
        """The memory itself, flat writable bytes. Only where `_host_sees` it."""
        raise self._missing("_as_buffer")

    def _host_sees(self, options: BufferSpec) -> bool:
        """Whether the host reads and writes memory of these options in place."""
        return self.device.info.host_visible

    def _missing(self, method: str) -> Unsupported:
        return self.device._missing(self, method)

    # -- allocate and free

    def alloc(self, nbytes: int, options: BufferSpec | None = None) -> Opaque:
        """`nbytes` bytes, contents undefined unless `options.zero`.

        Owns: the caller, until `free`. Raises: OutOfMemory, Unsupported, InvalidArgument.
        """
        if options is not DEFAULT_SPEC or nbytes.__class__ is not int or nbytes <= 0:
            options = self._check(nbytes, options)
            if options.external_ptr is not None:
                return self._wrap(options.external_ptr, nbytes)
            if nbytes == 0:
                return self.null  # type: ignore[no-any-return]
        # Near sizes share blocks: multiples of 256 bytes, from 64 KiB on of 4 KiB.
        size = (nbytes + 255) & -256 if nbytes < 65536 else (nbytes + 4095) & -4096
        opaque = None
        self._lock.acquire()  # `with` costs three times as much
        try:
            if self._returned:
                self._drain()
            blocks = self._cache.get(size if options is DEFAULT_SPEC else (size, options))
            if blocks:
                opaque = blocks.pop()[1]  # no call has returned since there was one
                self._cached -= size
                self._hits += 1
                self._live[opaque] = nbytes
                self._current += nbytes
                if self._current > self._peak:
                    self._peak = self._current
        finally:
            self._lock.release()
        if opaque is None:
            opaque = self._fresh(nbytes, size, options)
        if options is not DEFAULT_SPEC or self.poison:
            self._initialise(opaque, nbytes, options)
        return opaque

    def _initialise(self, opaque: Opaque, nbytes: int, options: BufferSpec) -> None:
        try:
            if options.zero:
                if not self.fresh_is_zero:
                    self._fill(opaque, nbytes, b"\0")
            elif self.poison:
                self._fill(opaque, nbytes, b"\xcb")
        except BaseException:
            self._give_back(opaque, nbytes, options)
            raise

    def free(self, opaque: Opaque, nbytes: int, options: BufferSpec | None = None) -> None:
        """Give back what `alloc` gave, with the same size and options.

        Raises: InvalidArgument for a block that is not out (double free) or another size.
        """
        options = self._check(nbytes, options)
        if options.external_ptr is not None or nbytes == 0:
            return
        with self._lock:
            self._drain()
            self._settle(opaque, nbytes, options)
        self._free_dropped()

    def free_cache(self) -> None:
        """Release every cached block. May be called from anywhere, a backend's `_free` included."""
        interrupts = self._lock._is_owned()  # type: ignore[attr-defined]
        with self._lock:
            self._drain()
            self._evict(self._cached)
            for key in () if interrupts else list(self._cache):
                if not self._cache[key]:
                    del self._cache[key]
        self._free_dropped()

    def statistics(self) -> AllocatorStatistics:
        """What is out and what is kept, as of now."""
        with self._lock:
            self._drain()
            facts = AllocatorStatistics(
                self._current,
                self._peak,
                self._cached,
                self.limit,
                self._hits,
                self._misses,
                len(self._live),
            )
        self._free_dropped()
        return facts

    def close(self) -> None:
        """Release the cache; blocks that are out are released when their last owner is gone."""
        self._closed = True
        self.cache_limit = 0
        self.free_cache()

    # -- fork

    def _after_fork(self) -> None:
        """In the child. Another thread of the parent may have held the lock, in the middle of a
        change: the accounts are made up anew."""
        self._lock = threading.RLock()
        self._freeing = threading.RLock()
        self._cached = sum(
            (key if isinstance(key, int) else key[0]) * len(blocks)
            for key, blocks in list(self._cache.items())  # a finalizer may allocate meanwhile
        )
        self._current = sum(self._live.values())
        self._held = self._cached + sum(map(_rounded, list(self._live.values())))

    def _abandon(self) -> None:
        """In a child that may not touch the driver: nothing is handed out, nothing freed."""
        refused = {
            name: concurrency.refuse_after_fork(what, self.device.name)
            for name, what in {"alloc": "allocate", "free": "free", "free_cache": "free"}.items()
        }
        silent = dict.fromkeys(("close", "_settle_soon", "_free_dropped"), concurrency.do_nothing)
        vars(self).update(refused, **silent)

    # -- accounts; the lock is held

    def _drain(self) -> None:
        """Close the accounts of what finalizers gave back."""
        returned = self._returned
        while returned:
            try:
                opaque, nbytes, options = returned.popleft()
            except IndexError:  # another thread was faster
                return
            self._settle(opaque, nbytes, options)

    def _settle(self, opaque: Opaque, nbytes: int, options: BufferSpec) -> None:
        """Close the account of one block, and keep it in the cache or drop it."""
        known = self._live.pop(opaque, None)
        if known != nbytes:
            raise self._not_allocated(opaque, nbytes, known)
        self._current -= nbytes
        size = (nbytes + 255) & -256 if nbytes < 65536 else (nbytes + 4095) & -4096
        if options is DEFAULT_SPEC:
            key: Key = size
        elif options.nolru or options.zero:
            return self._drop(opaque, size, options)
        else:
            key = size, options
        if size > self.cache_limit:
            return self._drop(opaque, size, options)
        blocks = self._cache.get(key)
        if blocks is None:
            blocks = self._cache.setdefault(key, deque())
        blocks.append((next(self._ages), opaque))
        self._cached += size
        if self._cached > self.cache_limit:
            self._evict(self._cached - self.cache_limit)
        return None

    def _not_allocated(self, opaque: Opaque, nbytes: int, known: int | None) -> InvalidArgument:
        if known is None:
            return InvalidArgument(
                "free",
                "the block is not allocated: freed before, or never from here",
                got=opaque,
                device=self.device.name,
            )
        self._live[opaque] = known
        return InvalidArgument(
            "free",
            "the block has another size",
            got=nbytes,
            limit=f"allocated with {known} bytes",
            device=self.device.name,
        )

    def _evict(self, nbytes: int) -> None:
        """Drop cached blocks, the one freed longest ago first, until `nbytes` are given up."""
        target = max(0, self._cached - nbytes)
        while self._cached > target:
            key = min(list(self._cache), key=self._oldest, default=0)
            blocks = self._cache.get(key)
            if not blocks:
                return  # the call that this one interrupts has its accounts still open
            _, opaque = blocks.popleft()
            size, options = (key, DEFAULT_SPEC) if isinstance(key, int) else key
            self._cached -= size
            self._drop(opaque, size, options)

    def _oldest(self, key: Key) -> float:
        blocks = self._cache.get(key)
        return blocks[0][0] if blocks else math.inf

    def _drop(self, opaque: Opaque, size: int, options: BufferSpec) -> None:
        self._held -= size
        self._dropped.append((opaque, size, options))

    def _free_dropped(self) -> None:
        if self._lock._is_owned():  # type: ignore[attr-defined]
            return  # this thread is in the middle of a call; a later one does it
        while self._dropped:
            with self._freeing:
                try:
                    block = self._dropped.popleft()
                except IndexError:  # another thread was faster
                    return
                self._free(*block)

    def _give_back(self, opaque: Opaque, nbytes: int, options: BufferSpec) -> None:
        """What a finalizer does, perhaps in the middle of anything, an allocation included: it
        takes no lock, so the account is closed by the next call."""
        self._returned.append((opaque, nbytes, options))
        if options is not DEFAULT_SPEC or not self.cache_limit:
            self._settle_soon()

    def _settle_soon(self) -> None:
        """The cache does not want what was given back: free it now, if nobody has the lock."""
        if self._lock._is_owned():  # type: ignore[attr-defined]
            return
        if self._lock.acquire(blocking=False):
            try:
                self._drain()
            finally:
                self._lock.release()
            if self._freeing.acquire(blocking=False):
                try:
                    self._free_dropped()
                finally:
                    self._freeing.release()

    # -- a new block

    def _fresh(self, nbytes: int, size: int, options: BufferSpec) -> Opaque:
        """A new block; when the device has no room, once more without the cache."""
        if self._closed:
            raise InvalidState("allocate", "the device is closed", device=self.device.name)
        opaque, cause = self._ask_device(size, options)
        if opaque is None:
            self.free_cache()
            opaque, cause = self._ask_device(size, options)
        if opaque is None:
            try:
                raise self._out_of_memory(nbytes) from cause
            finally:
                # Its traceback holds this frame, and so every caller's: a cycle that would keep
                # their buffers.
                del cause
        with self._lock:
            self._misses += 1
            self._live[opaque] = nbytes
            self._current += nbytes
            if self._current > self._peak:
                self._peak = self._current
        return opaque

    def _ask_device(self, size: int, options: BufferSpec) -> tuple[Opaque | None, Exception | None]:
        """A block, or why there is none; a vendor's error never escapes raw."""
        with self._lock:
            room = self._reserve(size)
        with self._freeing:  # what another thread began to free is free then, and its room is room
            self._free_dropped()
        if not room:
            return None, None
        try:
            return self._alloc(size, options), None
        except BaseException as error:
            with self._lock:
                self._held -= size
            ours = isinstance(error, (HalError, NotImplementedError))
            if isinstance(error, OutOfMemory) or (isinstance(error, Exception) and not ours):
                return None, error
            raise

    def _reserve(self, size: int) -> bool:
        if size > (self.device.info.limits.max_alloc_nbytes or size):
            return False
        if self.limit and self._held + size > self.limit:
            self._evict(self._held + size - self.limit)
            if self._held + size > self.limit:
                return False
        self._held += size
        return True

    def _out_of_memory(self, nbytes: int) -> OutOfMemory:
        facts = self.statistics()
        info = self.device.info
        with self._lock:
            largest = sorted(self._live.values(), reverse=True)[:5]
        return OutOfMemory(
            "allocate",
            f"no room: in use {facts.current}, cached {facts.cached}, "
            f"limit {facts.limit or 'none'}, total {info.memory_nbytes}, "
            f"largest single allocation {info.limits.max_alloc_nbytes or 'unknown'}, "
            f"largest live allocations {largest}",
            got=nbytes,
            device=self.device.name,
            fix="Free buffers, or raise HAL_MEMORY_LIMIT where it is set.",
        )

    # -- checks

    def _check(self, nbytes: int, options: BufferSpec | None) -> BufferSpec:
        if not isinstance(nbytes, int) or nbytes < 0:
            raise InvalidArgument(
                "allocate", "not a number of bytes", got=nbytes, device=self.device.name
            )
        if options is None or options == DEFAULT_SPEC:
            return DEFAULT_SPEC
        for field, value, default in zip(options._fields, options, DEFAULT_SPEC, strict=True):
            if value != default and field not in self.honours:
                raise Unsupported(
                    "allocate",
                    f"BufferSpec({field}=...) is not honoured",
                    got=value,
                    limit=f"honoured are {', '.join(sorted(self.honours))}",
                    device=self.device.name,
                    fix="Leave it out: a buffer without it works on every device.",
                )
        pointer = options.external_ptr
        if pointer is not None and not (type(pointer) is int and 0 < pointer < 1 << 64):
            raise InvalidArgument(
                "allocate",
                "external_ptr is not an address",
                got=pointer,
                device=self.device.name,
                fix="Give an integer that is not 0; for no memory of yours leave it out.",
            )
        if pointer is not None and options != BufferSpec(external_ptr=pointer, nolru=options.nolru):
            raise InvalidArgument(
                "allocate",
                "external_ptr is memory that others made, and other options are how to make some",
                got=options,
                device=self.device.name,
                fix="Leave them out; fill(0) makes zeros.",
            )
        return options

    def __repr__(self) -> str:
        facts = self.statistics()
        return (
            f"<{type(self).__name__} {self.device.name} {facts.live} live blocks, "
            f"{facts.current} bytes in use, {facts.cached} cached>"
        )


def _rounded(nbytes: int) -> int:
    """As `alloc` and `_settle` write it out: a call there would show."""
    return (nbytes + 255) & -256 if nbytes < 65536 else (nbytes + 4095) & -4096


class LRUAllocator(Allocator[Opaque]):
    """An allocator with its cache on: HAL_LRU_LIMIT bytes, by default an eighth of the device's
    memory and at least 256 MiB; nothing under HAL_LRU=0."""

    def __init__(self, device: Compiled) -> None:
        super().__init__(device)
        if config.LRU.read():
            default = max(DEFAULT_CACHE_NBYTES, device.info.memory_nbytes // 8)
            self.cache_limit = config.LRU_LIMIT.read() or default
