"""Accounts of a device's memory: its blocks, and how many bytes of them are in use or cached."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from hal_core.allocator.spec import DEFAULT_SPEC, BufferSpec
from hal_core.concurrency import fork_safe_lock
from hal_core.errors import InvalidArgument

if TYPE_CHECKING:
    from hal_core.device.base import Compiled

Opaque = TypeVar("Opaque")
Key = int | tuple[int, BufferSpec]  # rounded nbytes, and options unless they are the default


class AllocatorStatistics(NamedTuple):
    """Use of a device's memory, as `device.allocator.statistics()` returns it.

    Units: bytes, except `hits`, `misses` (allocations) and `live` (blocks).
    """

    current: int  # handed out
    peak: int  # the largest `current` so far
    cached: int  # freed, for the next allocation of the size
    limit: int  # 0: none
    hits: int  # allocations served by a cached block
    misses: int
    live: int  # handed out


def block_nbytes(nbytes: int) -> int:
    """Round a request up, so that near sizes share blocks: to 256 bytes, from 64 KiB on to 4 KiB.

    `alloc` and `_settle_next` have it written out: a call would show in the time of an allocation.
    """
    return (nbytes + 255) & -256 if nbytes < 65536 else (nbytes + 4095) & -4096


class Accounts(Generic[Opaque]):
    """Accounts of one allocator's blocks. `Allocator` is the subclass that does the work.

    A block is live, then returned (a finalizer gave it back, and no call has settled it yet), then
    cached or dropped (to be freed once the lock is released). For example, where the cache has
    room for 1024 bytes:

        call                    live         cached       dropped      _current  _cached  _held
        a = alloc(300)          a: 300                                 300       0        512
        b = alloc(700)          a: 300, b: 700                         1000      0        1280
        free(a, 300)            b: 700       512: [a]                  700       512      1280
        free(b, 700)                         768: [b]     a            0         768      768

    Concurrency: the caller of each method holds `_lock`. It is re-entrant: a finalizer or a signal
    handler may call in the middle, and Ctrl-C may end any call. Python lets them in at the start of
    a function, behind a call and at the end of a loop's turn only (in 3.11 finalizers also where a
    tuple is made). So each change is one step: statements without any of these, or one call, last.
    """

    device: Compiled
    cache_limit: int
    fresh_is_zero: bool

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._live: dict[Opaque, int] = {}  # opaque -> bytes asked for
        self._cache: dict[Key, deque[tuple[int, Opaque]]] = {}  # -> (age, opaque)
        self._ages = itertools.count()
        self._returned: deque[tuple[Opaque, int, BufferSpec]] = deque()
        # The same: a profile puts a recorder in place of `_returned`, to which finalizers append.
        self._unsettled = self._returned
        self._dropped: deque[tuple[Opaque, int, BufferSpec]] = deque()
        self._current = self._peak = self._hits = self._misses = 0
        self._held = self._cached = 0  # bytes of blocks: live or cached; cached

    def _take_cached(self, nbytes: int, size: int, options: BufferSpec) -> Opaque | None:
        """Return the cached block that was freed last, which is live from now on, if any."""
        while self._unsettled:
            self._settle_next()
        blocks = self._cache.get(size if options is DEFAULT_SPEC else (size, options))
        if not blocks:
            return None
        # One step from here on.
        opaque = blocks[-1][1]
        del blocks[-1]
        self._cached -= size
        self._hits += 1
        self._live[opaque] = nbytes
        self._current += nbytes
        if self._current > self._peak:
            self._peak = self._current
        return opaque

    def _drain(self) -> None:
        """Settle all blocks that came back, and keep the bound of the cache."""
        while self._unsettled:
            self._settle_next()
        self._evict(self.cache_limit)

    def _settle_next(self) -> None:
        """Take the first block that came back out of the live ones, and cache or drop it.

        Raises: InvalidArgument when it is not live, or has another size.
        """
        unsettled, live = self._unsettled, self._live
        if not unsettled:  # another call, of a finalizer or a signal's handler, was first
            return
        block = unsettled[0]
        opaque, nbytes, options = block
        if opaque not in live or live[opaque] != nbytes:
            del unsettled[0]
            raise self._not_live(opaque, nbytes)
        size = (nbytes + 255) & -256 if nbytes < 65536 else (nbytes + 4095) & -4096
        default = options is DEFAULT_SPEC
        if not default and options.zero and not self.fresh_is_zero:  # like any block
            options = options._replace(zero=False)
            default = options == DEFAULT_SPEC
        if size > self.cache_limit or (not default and (options.nolru or options.zero)):
            size = self._held_by(opaque, nbytes)
            dropped = opaque, size, options
            if unsettled and unsettled[0] is block:  # one step from here on
                del unsettled[0]
                del live[opaque]
                self._current -= nbytes
                self._held -= size
                self._dropped.append(dropped)
            return
        key = size if default else (size, options)
        cached = next(self._ages), opaque
        try:
            blocks = self._cache[key]
            if unsettled[0] is not block:  # settled meanwhile, by a finalizer's call
                return
        except LookupError:
            self._cache.setdefault(key, deque())
            return  # the caller tries again
        # One step from here on.
        del unsettled[0]
        del live[opaque]
        self._current -= nbytes
        self._cached += size
        blocks.append(cached)
        if self._cached > self.cache_limit:
            self._evict(self.cache_limit)

    def _not_live(self, opaque: Opaque, nbytes: int) -> InvalidArgument:
        """Return the error for a block that is not live, or has another size."""
        known = self._live.get(opaque)
        problem = "the block is not allocated: freed before, or never from here"
        if known is not None:
            problem = f"the block has another size, {known} bytes"
        got = opaque if known is None else nbytes
        return InvalidArgument("free", problem, got=got, device=self.device.name)

    def _evict(self, left: int) -> None:
        """Drop cached blocks, the one freed longest ago first, until `left` bytes are cached."""
        while self._cached > left:
            kept = [(blocks[0], key) for key, blocks in list(self._cache.items()) if blocks]
            if not kept:
                break
            # No two ages are equal, so no more is compared.
            block, key = min(kept)
            size, options = (key, DEFAULT_SPEC) if isinstance(key, int) else key
            dropped = block[1], size, options
            # One step from here on.
            if key in self._cache and self._cache[key] and self._cache[key][0] is block:
                del self._cache[key][0]
                self._cached -= size
                self._held -= size
                self._dropped.append(dropped)

    def _held_by(self, opaque: Opaque, nbytes: int) -> int:
        """Return how many bytes of the device a live block of `nbytes` holds."""
        return block_nbytes(nbytes)

    def _after_fork(self) -> None:
        """Count anew in a forked child: another thread of the parent may have been in a change."""
        self._cached = sum(
            (key if isinstance(key, int) else key[0]) * len(blocks)
            for key, blocks in self._cache.items()
        )
        self._current = sum(self._live.values())
        self._held = self._cached + sum(self._held_by(*block) for block in self._live.items())
