"""Device memory: allocation, the cache of freed blocks, and exact accounts.

A backend fills in `_alloc`, `_free`, `_offset`, `_copyin`, `_copyout` and whatever else it can do
better than the defaults. Nothing here is a hook, and nothing reads the environment after the
allocator is made.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from hal_core import config
from hal_core.buffer import DEFAULT_SPEC, BufferSpec
from hal_core.errors import HalError, InvalidArgument, InvalidState, OutOfMemory, Unsupported

if TYPE_CHECKING:
    from hal_core.device import Compiled

Opaque = TypeVar("Opaque")

DEFAULT_CACHE_NBYTES = 256 << 20
_SMALL_STEP, _LARGE_STEP = 256, 4096


class AllocatorStatistics(NamedTuple):
    """Units: bytes, except `hits`, `misses` (allocations) and `live` (blocks)."""

    current: int  # handed out
    peak: int
    cached: int  # freed, kept for the next allocation of the size
    limit: int  # 0: none
    hits: int
    misses: int
    live: int


def rounded(nbytes: int) -> int:
    """The size of the block that serves `nbytes`, so that near sizes share cached blocks."""
    step = _SMALL_STEP if nbytes < 1 << 16 else _LARGE_STEP
    return (nbytes + step - 1) // step * step


class Allocator(Generic[Opaque]):
    """Memory of one device, every block taken from it and given back at once.

    Concurrency: every public method may be called from any thread. The underscored ones of a
    backend may be called from several threads at once, never with the allocator's lock held.
    """

    honours: frozenset[str] = frozenset({"nolru", "zero"})  # fields of BufferSpec it keeps
    null: Any = None  # the opaque of an empty buffer
    fresh_is_zero: bool = False  # `_alloc` gives zeros whenever options.zero asks
    host_ordered: bool = False  # True: host access needs no wait, work is done on return
    device: Compiled

    def __init__(self, device: Compiled) -> None:
        self.device = device
        self.limit = config.MEMORY_LIMIT.read()
        self.poison = config.CHECK.read()
        self._lock = threading.Lock()
        self._live: dict[Opaque, tuple[int, BufferSpec]] = {}  # opaque -> bytes asked, options
        self._returned: deque[tuple[Opaque, int, BufferSpec]] = deque()
        self._dropped: deque[tuple[Opaque, int, BufferSpec]] = deque()  # to free, lock released
        self._current = self._peak = self._hits = self._misses = 0
        self._held = 0  # bytes of blocks, handed out or cached
        self._cached = 0  # bytes of blocks, cached
        self._closed = False

    # -- what a backend fills in

    def _alloc(self, nbytes: int, options: BufferSpec) -> Opaque:
        """`nbytes` > 0 bytes. Raises: OutOfMemory when the device refuses."""
        raise NotImplementedError

    def _free(self, opaque: Opaque, nbytes: int, options: BufferSpec) -> None:
        """Give back; queued work may still use it and must be allowed to finish.

        May be called after the device was closed, for memory that an export kept alive.
        """
        raise NotImplementedError

    def _wrap(self, pointer: int, nbytes: int) -> Opaque:
        """The opaque of memory the caller owns. Only if `external_ptr` is in `honours`."""
        raise NotImplementedError

    def _offset(self, opaque: Opaque, nbytes: int, offset: int) -> Opaque:
        """A view's handle: integer, (memory, offset) or sub-buffer. `opaque` is the base's."""
        raise NotImplementedError

    def _copyin(self, dest: Opaque, src: memoryview) -> None:
        """`src`: flat bytes, may be reused on return."""
        raise NotImplementedError

    def _copyout(self, dest: memoryview, src: Opaque) -> None:
        """`dest`: flat writable bytes; the data is there on return."""
        raise NotImplementedError

    def _transfer(self, dest: Opaque, src: Any, nbytes: int, src_device: Compiled) -> bool:
        """Copy without the host; False: the caller stages. May be asked for ranges that overlap."""
        return False

    def _fill(self, dest: Opaque, nbytes: int, pattern: bytes) -> None:
        """`nbytes` is a multiple of `len(pattern)`."""
        self._copyin(dest, memoryview(pattern * (nbytes // len(pattern))))

    def _as_buffer(self, opaque: Opaque, nbytes: int) -> memoryview:
        """The memory itself, flat writable bytes. Only if `device.info.host_visible`."""
        raise NotImplementedError

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
        size = rounded(nbytes)
        with self._lock:
            if self._returned:
                self._drain()
            opaque = self._reuse(size, options)
            if opaque is not None:
                self._hits += 1
                self._record(opaque, nbytes, options)
        if opaque is None:
            opaque = self._fresh(nbytes, size, options)
        if self._dropped:
            self._free_dropped()
        if options.zero:
            if not self.fresh_is_zero:
                self._fill(opaque, nbytes, b"\0")
        elif self.poison:
            self._fill(opaque, nbytes, b"\xcb")
        return opaque

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
        with self._lock:
            self._drain()
            self._flush()
        self._free_dropped()

    def statistics(self) -> AllocatorStatistics:
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
        self.free_cache()

    # -- accounts; the lock is held

    def _record(self, opaque: Opaque, nbytes: int, options: BufferSpec) -> None:
        self._live[opaque] = nbytes, options
        self._current += nbytes
        if self._current > self._peak:
            self._peak = self._current

    def _settle(self, opaque: Opaque, nbytes: int, options: BufferSpec) -> None:
        """Close the account of one block, and keep or drop it."""
        known = self._live.get(opaque)
        if known is None or known != (nbytes, options):
            raise InvalidArgument(
                "free",
                "the block is not allocated: freed before, or never from here"
                if known is None
                else "the block has another size or other options",
                got=opaque if known is None else (nbytes, options),
                limit="no limit" if known is None else f"allocated with {known}",
                device=self.device.name,
            )
        del self._live[opaque]
        self._current -= nbytes
        size = rounded(nbytes)
        if self._closed or not self._keep(opaque, size, options):
            self._drop(opaque, size, options)

    def _drain(self) -> None:
        """Take in what finalizers returned; they append without a lock."""
        returned = self._returned
        while returned:
            try:
                block = returned.popleft()
            except IndexError:  # another thread was faster
                return
            self._settle(*block)

    def _drop(self, opaque: Opaque, size: int, options: BufferSpec) -> None:
        self._held -= size
        self._dropped.append((opaque, size, options))

    def _free_dropped(self) -> None:
        while self._dropped:
            try:
                block = self._dropped.popleft()
            except IndexError:
                return
            self._free(*block)

    def _come_back(self, opaque: Opaque, nbytes: int, options: BufferSpec) -> None:
        """A lease ended, perhaps in the middle of anything: never waits for the lock."""
        self._returned.append((opaque, nbytes, options))
        if (options is not DEFAULT_SPEC or self._closed) and self._lock.acquire(blocking=False):
            try:
                self._drain()
            finally:
                self._lock.release()
            self._free_dropped()

    # -- a new block

    def _fresh(self, nbytes: int, size: int, options: BufferSpec) -> Opaque:
        cause: BaseException | None = None
        for attempt in (1, 2):
            with self._lock:
                room = self._reserve(size)
            self._free_dropped()
            if room:
                try:
                    opaque = self._alloc(size, options)
                except HalError as error:
                    cause = error
                except Exception as error:  # a vendor's error never escapes raw
                    cause = error
                else:
                    with self._lock:
                        self._misses += 1
                        self._record(opaque, nbytes, options)
                    return opaque
                with self._lock:
                    self._held -= size
                if isinstance(cause, HalError) and not isinstance(cause, OutOfMemory):
                    raise cause
            if attempt == 1:
                self.free_cache()
        raise self._out_of_memory(nbytes) from cause

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
            largest = sorted((size for size, _ in self._live.values()), reverse=True)[:5]
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

    # -- what a cache fills in; the lock is held

    def _reuse(self, size: int, options: BufferSpec) -> Opaque | None:
        return None

    def _keep(self, opaque: Opaque, size: int, options: BufferSpec) -> bool:
        return False

    def _evict(self, nbytes: int) -> None:
        """Drop cached blocks until `nbytes` bytes are given up."""

    def _flush(self) -> None:
        """Drop every cached block."""

    # -- checks

    def _check(self, nbytes: int, options: BufferSpec | None) -> BufferSpec:
        if self._closed:
            raise InvalidState("allocate", "the device is closed", device=self.device.name)
        if not isinstance(nbytes, int) or nbytes < 0:
            raise InvalidArgument(
                "allocate", "not a number of bytes", got=nbytes, device=self.device.name
            )
        if options is None or options == DEFAULT_SPEC:
            return DEFAULT_SPEC
        for field, value, default in zip(options._fields, options, DEFAULT_SPEC, strict=True):
            if value != default and field not in self.honours:
                raise Unsupported(
                    "allocate", f"BufferSpec({field}={value!r})", device=self.device.name
                )
        if options.external_ptr is not None and options.external_ptr <= 0:
            raise InvalidArgument(
                "allocate",
                "external_ptr is not an address",
                got=options.external_ptr,
                device=self.device.name,
            )
        return options

    def __repr__(self) -> str:
        facts = self.statistics()
        return (
            f"<{type(self).__name__} {self.device.name} {facts.live} live blocks, "
            f"{facts.current} bytes in use, {facts.cached} cached>"
        )


class LRUAllocator(Allocator[Opaque]):
    """Keeps freed blocks for the next allocation of their (rounded size, options).

    Bounded in bytes (`cache_limit`, settable); the least recently freed block goes first.
    `nolru`, `zero` and `external_ptr` pass the cache by, and so does everything under HAL_LRU=0.
    """

    def __init__(self, device: Compiled) -> None:
        super().__init__(device)
        memory = device.info.memory_nbytes
        self.cache_limit = config.LRU_LIMIT.read() or max(DEFAULT_CACHE_NBYTES, memory // 8)
        self._caching = config.LRU.read()
        self._clock = 0
        self._cache: dict[object, deque[tuple[int, Opaque]]] = {}  # (size, options) -> oldest first

    def _reuse(self, size: int, options: BufferSpec) -> Opaque | None:
        blocks = self._cache.get(size if options is DEFAULT_SPEC else (size, options))
        if not blocks:
            return None
        self._cached -= size
        return blocks.pop()[1]

    def _keep(self, opaque: Opaque, size: int, options: BufferSpec) -> bool:
        if not self._caching or options.nolru or options.zero or size > self.cache_limit:
            return False
        key = size if options is DEFAULT_SPEC else (size, options)
        blocks = self._cache.get(key)
        if blocks is None:
            blocks = self._cache[key] = deque()
        self._clock += 1
        blocks.append((self._clock, opaque))
        self._cached += size
        if self._cached > self.cache_limit:
            self._evict(self._cached - self.cache_limit)
        return True

    def _evict(self, nbytes: int) -> None:
        target = self._cached - nbytes
        while self._cached > target and self._cached:
            key = min((k for k, blocks in self._cache.items() if blocks), key=self._oldest)
            size, options = (key, DEFAULT_SPEC) if isinstance(key, int) else key  # type: ignore[misc]
            _, opaque = self._cache[key].popleft()
            if not self._cache[key]:
                del self._cache[key]
            self._cached -= size
            self._drop(opaque, size, options)

    def _oldest(self, key: object) -> int:
        return self._cache[key][0][0]

    def _flush(self) -> None:
        self._evict(self._cached)
        self._cache.clear()
