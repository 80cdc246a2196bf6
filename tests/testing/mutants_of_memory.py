"""Mutants whose memory, copies or accounts are wrong."""

import os
import threading
from contextlib import nullcontext

from mutants import around, mutant

import hal_core as hal
from hal_core import allocator as core
from hal_core import buffer as buffers
from hal_core import concurrency
from hal_core.allocator.accounts import block_nbytes
from hal_testing.fake import chip, driver
from hal_testing.fake.allocator import FakeAllocator
from hal_testing.fake.chip import Block, Chip
from hal_testing.fake.device import FakeDevice

# -- copies


@mutant("B4 B5", "buffer", FakeAllocator, "_copyout")
def copyout_drops_the_last_byte(inner, self, dest, src):
    inner(self, dest[:-1], src)


@mutant("B4 B5", "buffer")
def copyin_keeps_the_callers_memory():
    @around(Chip, "write")
    def write(inner, self, dest, data):
        self._enqueue("write", "write", lambda: self._put(dest, data))
        return chip.OK

    @around(FakeAllocator, "_copyin")
    def _copyin(inner, self, dest, src):
        self.device.chip.write(dest, src)


@mutant("B6", "buffer", FakeAllocator, "_transfer")
def transfer_between_devices_is_claimed_and_not_done(inner, self, dest, src, nbytes, there):
    return there is not self.device or inner(self, dest, src, nbytes, there)


@mutant("B6", "buffer", FakeAllocator, "_transfer")
def copies_within_a_device_drop_the_last_bytes(inner, self, dest, src, nbytes, there):
    return inner(self, dest, src, nbytes - nbytes % 4, there)


@mutant("B6", "buffer", FakeAllocator, "_transfer")
def overlapping_copies_go_forward_only(inner, self, dest, src, nbytes, there):
    for start in range(0, nbytes, 64):
        size = min(64, nbytes - start)
        parts = (place._replace(offset=place.offset + start) for place in (dest, src))
        if not inner(self, *parts, size, there):
            return False
    return True


@mutant("fill", "buffer", FakeAllocator, "_fill")
def fill_ignores_the_patterns_phase(inner, self, dest, nbytes, pattern):
    inner(self, dest, nbytes, pattern[1:] + pattern[:1])


# -- options


@mutant("B14", "buffer")
def zero_is_not_zero_when_memory_is_used_again():
    FakeAllocator.fresh_is_zero = True  # it is not: the chip fills what is new with 0xaa


@mutant("B7", "buffer", FakeAllocator, "_check")
def options_are_ignored(inner, self, nbytes, options):
    return inner(self, nbytes, None)


@mutant("B7", "buffer")
def a_field_is_declared_without_its_method():
    FakeAllocator.honours |= {"external_ptr"}


# -- views


@mutant("B6 V1 V3", "buffer view", FakeAllocator, "_offset")
def view_ignores_its_offset(inner, self, opaque, nbytes, offset):
    return opaque


@mutant("V1 V3", "view", FakeAllocator, "_offset")
def views_begin_at_multiples_of_sixteen(inner, self, opaque, nbytes, offset):
    return inner(self, opaque, nbytes, offset & -16)  # type: ignore[no-any-return]


@mutant("V5", "view", buffers.Buffer, "deallocate")
def freeing_a_view_frees_its_base(inner, self):
    inner(self if self.base is None else self.base)


@mutant("V5 B2", "view buffer", buffers.Buffer, "_detach")
def old_views_stay_usable(inner, self):
    if self.base is None:
        inner(self)


# -- allocation


@mutant("A2 A8", "allocator")
def free_does_nothing():
    FakeAllocator._free = lambda self, opaque, nbytes, options: None  # type: ignore[method-assign]


@mutant("A1", "allocator", core.Allocator, "alloc")
def cache_returns_another_keys_block(inner, self, nbytes, options=None):
    size = block_nbytes(nbytes)
    others = [key for key, blocks in self._cache.items() if blocks and key != size]
    if others and options in (None, hal.BufferSpec()):
        blocks = self._cache[others[0]]
        self._cache.setdefault(size, blocks).append(blocks.pop())
    return inner(self, nbytes, options)


@mutant("A1 X1", "allocator process", core.Allocator, "alloc")
def cache_hands_out_a_block_and_keeps_it(inner, self, nbytes, options=None):
    blocks = self._cache.get(block_nbytes(nbytes))
    kept = blocks[-1] if blocks else None
    made = inner(self, nbytes, options)
    if kept is not None and kept[1] == made:
        blocks.append(kept)
    return made


@mutant("A1 B8", "allocator buffer", core.Allocator, "_settle_next")
def cache_keeps_nothing(inner, self):
    inner(self)
    self._evict(0)


@mutant("A2", "allocator", core.Allocator, "free")
def nolru_is_cached(inner, self, opaque, nbytes, options=None):
    inner(self, opaque, nbytes, None)


@mutant("A3 A1", "allocator", core.Allocator, "_evict")
def cache_has_no_bound(inner, self, nbytes):
    if nbytes == self._cached:
        inner(self, nbytes)


@mutant("A3", "allocator", core.Allocator, "_evict")
def cache_evicts_what_was_used_last(inner, self, nbytes):
    for blocks in self._cache.values():
        ages = [(-age, block) for age, block in reversed(blocks)]
        blocks.clear()
        blocks.extend(ages)
    inner(self, nbytes)


@mutant("A4 A8", "allocator", core.Allocator, "_ask_device")
def limit_is_not_kept(inner, self, size, options):
    before, self.limit = self.limit, 0
    try:
        return inner(self, size, options)
    finally:
        self.limit = before


@mutant("A8", "allocator", core.Allocator, "_ask_device")
def limit_does_not_count_the_cache(inner, self, size, options):
    before, self.limit = self.limit, self.limit and self.limit + self._cached
    try:
        return inner(self, size, options)
    finally:
        self.limit = before


@mutant("A4", "allocator")
def a_full_device_is_another_error():
    driver._ERRORS[chip.OUT_OF_MEMORY] = hal.InvalidState


@mutant("A4", "allocator", core.Allocator, "_fresh")
def cache_is_not_given_up_before_a_refusal(inner, self, nbytes, size, options):
    self.free_cache = lambda: None
    try:
        return inner(self, nbytes, size, options)
    finally:
        del self.free_cache


@mutant("A6", "allocator", core.Allocator, "free")
def double_frees_pass(inner, self, opaque, nbytes, options=None):
    if opaque in self._live:
        inner(self, opaque, nbytes, options)


@mutant("A6", "allocator", core.Allocator, "__init__")
def a_finalizer_that_allocates_waits_for_its_own_thread(inner, self, *args):
    inner(self, *args)
    self._lock = _OnceLock()


class _OnceLock:
    """A lock that is not re-entrant: a thread that holds it waits for itself."""

    def __init__(self):
        lock = threading.Lock()
        self.acquire, self.release = lock.acquire, lock.release

    def __enter__(self):
        self.acquire()

    def __exit__(self, *_):
        self.release()

    def _is_owned(self):
        return False


@mutant("A5", "allocator", core.Allocator, "_settle_next")
def the_backend_is_called_with_the_lock_held(inner, self):
    inner(self)
    while self._dropped:
        self._free(*self._dropped.popleft())


@mutant("A7 P8", "allocator process", Chip, "write")
def host_writes_overtake_the_queue(inner, self, dest, data):
    with self._lock:
        return int(self._check(dest, len(data)) or self._put(dest, data))


@mutant("A7", "allocator")
def free_does_not_wait_for_the_queue():
    """Free at once, and allocate new memory at the place of the old."""

    @around(Chip, "free")
    def free(inner, self, block):
        with self._lock:
            status = int(self._check(block, 0))
            self.spare = block.handle, self._memory.pop(block.handle, bytearray())
            return status

    @around(Chip, "alloc")
    def alloc(inner, self, nbytes):
        with self._lock:
            handle, memory = getattr(self, "spare", (0, b""))
            if len(memory) != nbytes:
                return inner(self, nbytes)
            self._memory[handle] = memory
            self._queue.rotate()  # what comes next overtakes
            self.spare = 0, b""
            return chip.OK, Block(handle, 0)

    around(Chip, "write")(host_writes_overtake_the_queue)


@mutant("B11 A1", "buffer allocator", buffers.Buffer, "_attach")
def statistics_count_views(inner, self, operation, base):
    inner(self, operation, base)
    self._device.allocator._current += self.nbytes


# -- threads, processes, the end


@mutant("X1 A5 A8", "process allocator")
def accounts_have_no_lock():
    """Write each counter some time after reading it, without a lock."""

    @around(core.Allocator, "_settle_next")
    def _settle_next(inner, self):
        current, block = self._current, self._unsettled[0]
        threading.Event().wait(0.0005)
        inner(self)
        if block not in self._unsettled:
            self._current = current - block[1]

    @around(core.Allocator, "__init__")
    def __init__(inner, self, *args):
        inner(self, *args)
        self._lock = _NoLock()


class _NoLock(nullcontext):
    def _is_owned(self):
        return False

    def acquire(self, blocking=True):
        return True

    def release(self):
        pass


@mutant("P10", "process")
def close_keeps_the_device_open():
    FakeDevice._close = lambda self: None  # type: ignore[method-assign]


@mutant("X2", "process")
def children_use_their_parents_driver():
    concurrency.survives_fork = lambda capabilities: True


@mutant("X2", "process")
def children_hang():
    concurrency.survives_fork = lambda capabilities: True
    parent = os.getpid()

    @around(Chip, "_begin")
    def _begin(inner, self, call):
        if threading.current_thread() is threading.main_thread() and os.getpid() != parent:
            threading.Event().wait()
        return inner(self, call)
