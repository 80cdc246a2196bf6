"""Accounts of a device's memory: its blocks, and how many bytes of them are in use or cached."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from hal_core.allocator.spec import DEFAULT_SPEC, BufferSpec
from hal_core.concurrency import fork_safe_lock
from hal_core.errors import InvalidArgument

if TYPE_CHECKING:
    from hal_core.device import Compiled

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

    `alloc` and `_settle` have it written out: the call would show in the time of an allocation.
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

    Concurrency: the caller of each method holds `_lock`.
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
        self._dropped: deque[tuple[Opaque, int, BufferSpec]] = deque()
        self._current = self._peak = self._hits = self._misses = 0
        self._held = self._cached = 0  # bytes of blocks: live or cached; cached

    def _drain(self) -> None:
        """Settle all blocks that finalizers gave back."""
        returned = self._returned
        while returned:
            opaque, nbytes, options = returned.popleft()
            self._settle(opaque, nbytes, options)

    def _settle(self, opaque: Opaque, nbytes: int, options: BufferSpec) -> None:
        """Take a block out of the live ones, and cache or drop it.

        Raises: InvalidArgument when it is not live, or has another size.
        """
        known = self._live.pop(opaque, None)
        if known != nbytes:
            problem = "the block is not allocated: freed before, or never from here"
            if known is not None:
                self._live[opaque] = known
                problem = f"the block has another size, {known} bytes"
            got = opaque if known is None else nbytes
            raise InvalidArgument("free", problem, got=got, device=self.device.name)
        self._current -= nbytes
        size = (nbytes + 255) & -256 if nbytes < 65536 else (nbytes + 4095) & -4096
        default = options is DEFAULT_SPEC
        if not default and options.zero and not self.fresh_is_zero:  # it is as any other block
            options = options._replace(zero=False)
            default = options == DEFAULT_SPEC
        if size > self.cache_limit or (not default and (options.nolru or options.zero)):
            return self._drop(opaque, size, options)
        key = size if default else (size, options)
        blocks = self._cache.get(key)
        if blocks is None:
            blocks = self._cache[key] = deque()
        blocks.append((next(self._ages), opaque))
        self._cached += size
        if self._cached > self.cache_limit:
            self._evict(self._cached - self.cache_limit)
        return None

    def _evict(self, nbytes: int) -> None:
        """Drop cached blocks, the one freed longest ago first, until `nbytes` are given up."""
        target = max(0, self._cached - nbytes)
        while self._cached > target:
            # No two ages are equal, so keys are never compared.
            _, key = min((blocks[0][0], key) for key, blocks in self._cache.items() if blocks)
            _, opaque = self._cache[key].popleft()
            size, options = (key, DEFAULT_SPEC) if isinstance(key, int) else key
            self._cached -= size
            self._drop(opaque, size, options)

    def _drop(self, opaque: Opaque, size: int, options: BufferSpec) -> None:
        self._held -= size
        self._dropped.append((opaque, size, options))

    def _after_fork(self) -> None:
        """Count anew in a forked child: another thread of the parent may have been in a change."""
        self._cached = sum(
            (key if isinstance(key, int) else key[0]) * len(blocks)
            for key, blocks in self._cache.items()
        )
        self._current = sum(self._live.values())
        self._held = self._cached + sum(map(block_nbytes, self._live.values()))
