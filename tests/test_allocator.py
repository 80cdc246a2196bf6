"""A1-A6, A8: accounts, the cache and its bound, failure and finalizers."""

import os
import random
import threading
import time
from functools import partial

import pytest
from fake_backend import FakeAllocator
from in_threads import results
from interrupted import Scene, everywhere

import hal_core as hal
import hal_core.allocator

pytestmark = pytest.mark.quick


@pytest.fixture
def allocator(fake):
    return fake.allocator


def test_A1_zeros_are_a_cached_block_where_fresh_memory_is_not_zero(allocator):
    zero = hal.BufferSpec(zero=True)
    block = allocator.alloc(512)
    allocator.free(block, 512)
    assert allocator.alloc(512, zero) == block
    assert allocator.memory[block[0]] == bytes(512)
    allocator.free(block, 512, zero)
    assert allocator.frees == 0 and allocator.statistics().cached == 512
    assert allocator.alloc(512) == block


def test_A2_a_block_that_cannot_be_zeroed_goes_back(allocator, monkeypatch):
    def refuse(*_):
        raise hal.DeviceFault("fill", "told to fail")

    monkeypatch.setattr(allocator, "_fill", refuse)
    with pytest.raises(hal.DeviceFault):
        hal.empty(100, hal.int8, "FAKE", hal.BufferSpec(zero=True))
    facts = allocator.statistics()
    assert (facts.live, facts.cached, len(allocator.memory)) == (0, 256, 1)


def test_A4_out_of_memory_says_everything(allocator):
    held = hal.empty(5000, hal.float32, "FAKE")
    hal.empty(100, hal.int8, "FAKE")
    for error in (hal.OutOfMemory("fake", "no"), OSError("raw"), RuntimeError("vendor code 7")):
        allocator.fail_next, allocator.error = 2, error
        with pytest.raises(hal.OutOfMemory) as caught:
            hal.empty(1000, hal.int8, "FAKE")
        text = str(caught.value)
        assert text == (
            "allocate: no room for 1000 B, in a block of 1 KiB: bytes in use 20000 (19.5 KiB), "
            "cached 0, limit none, total 67108864 (64 MiB), "
            "largest single allocation 67108864 (64 MiB), "
            "largest live allocations 20000 (19.5 KiB) (got 1000) on FAKE. "
            "Free buffers, or raise HAL_MEMORY_LIMIT where it is set."
        )
        assert caught.value.__cause__ is error
        assert isinstance(caught.value, MemoryError)
    facts = allocator.statistics()
    assert (facts.current, facts.live) == (20000, 1) and held.is_allocated


def test_A4_more_than_the_device_gives_at_once_is_refused_unasked(allocator):
    before = allocator.allocs
    with pytest.raises(hal.OutOfMemory, match="largest single allocation 67108864"):
        hal.empty((64 << 20) + 1, hal.int8, "FAKE")
    assert allocator.allocs == before


def test_A4_what_a_backend_left_out_is_no_lack_of_memory(allocator):
    class Unfinished(hal.LRUAllocator[int]):
        pass

    unfinished = Unfinished(allocator.device)
    with pytest.raises(NotImplementedError, match="Unfinished fills in no _alloc"):
        unfinished.alloc(16)
    with pytest.raises(KeyboardInterrupt):
        allocator.fail_next, allocator.error = 1, KeyboardInterrupt()
        allocator.alloc(16)
    assert unfinished.statistics().cached == allocator.statistics().cached == 0


def test_A5_a_finalizer_may_call_the_allocator_in_the_middle_of_any_call(plugin):
    """It frees the cache, allocates and frees; so may the handler of a signal."""

    def scene():
        hal.Device["FAKE"].close()
        allocator = hal.Device["FAKE"].allocator
        allocator.cache_limit = 3 * 1024
        held = [hal.empty(size, hal.int8, "FAKE") for size in (300, 600, 900, 1500, 2000)]
        block = allocator.alloc(700)

        def work():
            held[0].deallocate()
            held[:] = held[1:4]
            held.append(hal.empty(2000, hal.int8, "FAKE"))
            allocator.free(block, 700)
            held.clear()
            held.append(hal.empty(250, hal.int8, "FAKE"))

        def other():
            allocator.free_cache()
            hal.empty(600, hal.int8, "FAKE").deallocate()
            hal.empty(500, hal.int8, "FAKE")
            allocator.statistics()  # settles what came back: nothing is left for the call

        def check():
            held.clear()
            facts = allocator.statistics()
            assert (facts.current, facts.live) == (0, 0) and facts.cached <= 3 * 1024
            assert facts.cached == sum(map(len, allocator.memory.values()))
            allocator.free_cache()
            assert not allocator.memory and not allocator.statistics().cached

        return Scene(work, other, check)

    assert everywhere([os.path.dirname(hal_core.allocator.__file__)], scene) > 50


@pytest.mark.parametrize("seed", range(3))
def test_A8_the_limit_holds_for_what_the_device_really_holds(monkeypatch, plugin, seed):
    """Eight threads, and a device that takes its time to free: memory counts until it is free."""
    limit = 96 << 10
    monkeypatch.setenv("HAL_MEMORY_LIMIT", str(limit))
    counting = threading.Lock()
    held, most, refused = 0, 0, 0

    class Slow(FakeAllocator):
        def _alloc(self, nbytes, options):
            nonlocal held, most
            with counting:
                held += nbytes
                most = max(most, held)
            return super()._alloc(nbytes, options)

        def _free(self, opaque, nbytes, options):
            nonlocal held
            time.sleep(0.0005)  # others go on meanwhile
            super()._free(opaque, nbytes, options)
            with counting:
                held -= nbytes

    device = hal.Device["FAKE:1"]
    device.allocator = allocator = Slow(device)
    allocator.cache_limit = 48 << 10

    def churn(number):
        nonlocal refused
        rng = random.Random(100 * seed + number)
        out = []
        for _ in range(60):
            kind = rng.choice([None, hal.BufferSpec(nolru=True), hal.BufferSpec(zero=True)])
            try:
                out.append(hal.Buffer("FAKE:1", rng.randrange(1, 20_000), hal.int8, kind))
                out[-1].allocate()
            except hal.OutOfMemory:
                refused += 1
                del out[:]
            facts = allocator.statistics()
            assert facts.current + facts.cached <= limit
            del out[: rng.randrange(3)]

    results(*(partial(churn, number) for number in range(8)))
    assert refused and most <= limit
    allocator.free_cache()
    assert held == allocator.statistics().current == len(allocator.memory) == 0
