"""Test allocators: promises A1 to A8."""

from __future__ import annotations

import contextlib
import gc
import random
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

import hal_core as hal
from hal_testing.conformance.raw import buffer_of, pattern, read
from hal_testing.conformance.slow import SlowCounter
from hal_testing.conformance.threads import in_threads
from hal_testing.kit.abilities import need_cache, need_spec
from hal_testing.plugin import External

Allocator = hal.Allocator[Any]
NOLRU, ZERO = hal.BufferSpec(nolru=True), hal.BufferSpec(zero=True)
MIB = 1 << 20
SLACK = 4096  # bytes that rounding adds to a block at most


class TestAllocator:
    @pytest.fixture
    def allocator(self, device: hal.Compiled) -> Iterator[Allocator]:
        """The device's allocator with an empty cache of 4 MiB and no limit; both are restored."""
        gc.collect()
        made = device.allocator
        before = made.limit, made.cache_limit
        made.free_cache()
        made.limit, made.cache_limit = 0, 4 * MIB
        yield made
        made.limit, made.cache_limit = before
        made.free_cache()

    @pytest.fixture
    def cache(self, allocator: Allocator) -> None:
        need_cache(allocator)

    @pytest.mark.usefixtures("cache")
    def test_A1_an_equal_allocation_gets_the_freed_block(self, allocator: Allocator) -> None:
        before = allocator.statistics()
        block = allocator.alloc(1000)
        allocator.free(block, 1000, hal.BufferSpec())
        assert allocator.statistics().cached >= 1000
        for options in (None, hal.BufferSpec()):
            again = allocator.alloc(1001, options)  # rounded up as 1000 was
            assert again == block
            allocator.free(again, 1001)
        after = allocator.statistics()
        assert (after.hits - before.hits, after.misses - before.misses) == (2, 1)

    @pytest.mark.usefixtures("cache")
    @pytest.mark.parametrize("field", ["uncached", "cpu_access", "host"])
    def test_A1_other_options_are_another_key(
        self, device: hal.Compiled, allocator: Allocator, field: str
    ) -> None:
        need_spec(device, field)
        options = hal.BufferSpec(**{field: True})  # type: ignore[arg-type]
        plain, other = allocator.alloc(1000), allocator.alloc(1000, options)
        allocator.free(plain, 1000)
        allocator.free(other, 1000, options)
        hits = allocator.statistics().hits
        again, other_again = allocator.alloc(1000), allocator.alloc(1000, options)
        assert (again, other_again) == (plain, other)
        assert allocator.statistics().hits == hits + 2
        # The cache is empty now, so this block has to be a new one.
        third = allocator.alloc(1000)
        assert third not in (again, other_again), "a block in use was handed out"
        allocator.free(third, 1000)
        allocator.free(again, 1000)
        allocator.free(other_again, 1000, options)

    def test_A1_blocks_never_share_memory_and_accounts_are_exact(
        self, device: hal.Compiled, allocator: Allocator
    ) -> None:
        """Allocate and free in a generated order, and compare with a list of live blocks."""
        draw, start, out = random.Random(8), allocator.statistics(), list[tuple[hal.Buffer, int]]()
        asked = 0
        for turn in range(400):
            if out and (len(out) > 24 or draw.random() < 0.4):
                made, seed = out.pop(draw.randrange(len(out)))
                assert read(made) == pattern(made.nbytes, seed), f"turn {turn}"
                made.deallocate()
            else:
                nbytes = draw.choice((1, 255, 256, 257, 1000, 4096, 20_000, 65_536, 70_000))
                spec = draw.choice((None, None, None, NOLRU, ZERO))
                # The turn is the seed of the contents.
                out.append((buffer_of(device, pattern(nbytes, turn), spec=spec), turn))
                asked += 1
            facts = allocator.statistics()
            assert facts.live - start.live == len(out)
            assert facts.current - start.current == sum(made.nbytes for made, _ in out)
            assert facts.hits + facts.misses - start.hits - start.misses == asked
            assert facts.peak >= facts.current and 0 <= facts.cached <= 4 * MIB
        assert facts.hits > start.hits or not allocator.cache_limit

    @pytest.mark.parametrize("options", [NOLRU, ZERO], ids=["nolru", "zero"])
    def test_A2_what_passes_the_cache_by(
        self, allocator: Allocator, options: hal.BufferSpec
    ) -> None:
        allocator.free(allocator.alloc(1000), 1000)
        before = allocator.statistics()
        for _ in range(2):
            allocator.free(allocator.alloc(1000, options), 1000, options)
        after = allocator.statistics()
        # Where fresh memory is not zero, a cached block is filled instead.
        filled = options is ZERO and not allocator.fresh_is_zero and allocator.cache_limit
        hits = before.hits + (2 if filled else 0)
        assert (after.hits, after.cached) == (hits, before.cached)

    def test_A2_external_memory_passes_the_cache_by(
        self, allocator: Allocator, hal_external: External
    ) -> None:
        before, options = allocator.statistics(), hal.BufferSpec(external_ptr=hal_external.pointer)
        block = allocator.alloc(hal_external.nbytes, options)
        allocator.free(block, hal_external.nbytes, options)
        assert allocator.statistics() == before

    @pytest.mark.parametrize("options", [None, NOLRU, ZERO], ids=["plain", "nolru", "zero"])
    def test_A2_freed_memory_goes_back_to_the_device(
        self, device: hal.Compiled, allocator: Allocator, options: hal.BufferSpec | None,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        """Allocate twice the device's memory, an eighth at a time; contents are never touched."""
        info = device.info
        eighth = min(info.memory_nbytes // 8, info.limits.max_alloc_nbytes or info.memory_nbytes)
        if options is ZERO:
            eighth = min(eighth, 16 * MIB)  # zeros are written
        # Poison would write to all of it.
        monkeypatch.setattr(allocator, "poison", False)
        allocator.cache_limit = 0
        for turn in range(16):
            # Another size each time, for which no block could be in a cache.
            size = eighth - turn * SLACK
            allocator.free(allocator.alloc(size, options), size, options)
            assert allocator.statistics().cached == 0

    def test_A2_HAL_LRU_0_turns_the_cache_off(
        self, device: hal.Compiled, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        device.close()
        monkeypatch.setenv("HAL_LRU", "0")
        with hal.Device[device.name] as opened:
            for _ in range(3):
                opened.allocator.free(opened.allocator.alloc(1000), 1000)
            facts = opened.allocator.statistics()
            assert (facts.hits, facts.misses, facts.cached, facts.live) == (0, 3, 0, 0)

    @pytest.mark.usefixtures("cache")
    def test_A3_the_cache_is_bounded_and_the_oldest_goes_first(self, allocator: Allocator) -> None:
        allocator.cache_limit = 64 << 10
        sizes = [4096 * number for number in (1, 2, 3, 4, 5, 6)]  # 84 KiB
        blocks = {size: allocator.alloc(size) for size in sizes}
        for size in sizes:
            allocator.free(blocks[size], size)
            assert allocator.statistics().cached <= 64 << 10
        hits = allocator.statistics().hits
        # The three largest, freed last, are 60 KiB and fit. How many more do depends on rounding.
        kept = {size: allocator.alloc(size) for size in reversed(sizes)}
        assert [kept[size] == blocks[size] for size in sizes[3:]] == [True] * 3, "freed last"
        assert 3 <= allocator.statistics().hits - hits <= 5
        for size in sizes:
            allocator.free(kept[size], size)
        allocator.free(allocator.alloc(MIB), MIB)
        assert allocator.statistics().cached <= 64 << 10, "a block beyond the bound is not kept"

    def test_A4_a_refusal_says_how_things_stand(
        self, device: hal.Compiled, allocator: Allocator
    ) -> None:
        current = allocator.statistics().current
        allocator.limit = current + MIB
        held = buffer_of(device, pattern(700_001))
        with pytest.raises(hal.OutOfMemory) as caught:
            hal.Buffer(device, 600_003, hal.uint8).allocate()
        text, facts = str(caught.value), allocator.statistics()
        assert isinstance(caught.value, MemoryError) and caught.value.got == 600_003
        for fact in (600_003, facts.current, facts.cached, facts.limit, device.info.memory_nbytes):
            assert str(fact) in text
        assert "700001" in text, "the largest live allocations"
        assert device.name in text and facts.current == current + 700_001
        # A refusal must not harm what is allocated.
        assert read(held) == pattern(700_001), "the device is of use afterwards"
        held.deallocate()
        assert read(buffer_of(device, pattern(600_003))) == pattern(600_003)

    @pytest.mark.parametrize("beyond", ["max_alloc_nbytes", "memory_nbytes", "everything"])
    def test_A4_more_than_the_device_has_is_refused(
        self, device: hal.Compiled, allocator: Allocator, beyond: str
    ) -> None:
        info = device.info
        facts = info._asdict() | info.limits._asdict() | {"everything": 1 << 62}
        before = allocator.statistics()
        with pytest.raises(hal.OutOfMemory):
            hal.Buffer(device, (facts[beyond] or info.memory_nbytes) + 1, hal.uint8).allocate()
        after = allocator.statistics()
        assert (after.live, after.current) == (before.live, before.current)
        assert read(buffer_of(device, pattern(100))) == pattern(100)

    def test_A4_the_cache_is_given_up_before_a_refusal(
        self, device: hal.Compiled, allocator: Allocator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Make the backend's method refuse once; a test cannot make every device run out."""
        allocator.free(allocator.alloc(100_000), 100_000)
        inner, refusals = allocator._alloc, [hal.OutOfMemory("alloc", "no room")]

        def refuses_once(nbytes: int, options: hal.BufferSpec) -> Any:
            if refusals:
                raise refusals.pop()
            return inner(nbytes, options)

        monkeypatch.setattr(allocator, "_alloc", refuses_once)
        assert read(buffer_of(device, pattern(5000))) == pattern(5000)
        assert not refusals and allocator.statistics().cached <= 5000 + SLACK

    def test_A4_a_full_device_refuses_and_goes_on(
        self, device: hal.Compiled, allocator: Allocator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Allocate up to twice the device's memory: it may overcommit, or raise OutOfMemory."""
        info, out = device.info, list[hal.Buffer]()
        eighth = min(info.memory_nbytes // 8, info.limits.max_alloc_nbytes or info.memory_nbytes)
        monkeypatch.setattr(allocator, "poison", False)
        with contextlib.suppress(hal.OutOfMemory):
            for _ in range(16):
                out.append(hal.Buffer(device, eighth, hal.uint8).allocate())
        out.clear()
        allocator.free_cache()
        assert read(buffer_of(device, pattern(100_000))) == pattern(100_000)

    def test_A5_free_cache_from_any_thread(
        self, device: hal.Compiled, allocator: Allocator
    ) -> None:
        before, done = allocator.statistics(), threading.Event()

        def flush() -> None:
            while not done.wait(0.001):
                allocator.free_cache()

        def churn(number: int) -> None:
            for turn in range(40):
                data = pattern(1 + turn * 300, number * 1000 + turn)
                assert read(buffer_of(device, data)) == data

        flusher = threading.Thread(target=flush)
        flusher.start()
        try:
            in_threads(churn, 4)
        finally:
            done.set()
            flusher.join()
        allocator.free_cache()
        after = allocator.statistics()
        assert (after.live, after.current, after.cached) == (before.live, before.current, 0)

    def test_A5_free_cache_from_inside_a_free(
        self, allocator: Allocator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        blocks = [allocator.alloc(size) for size in (256, 512, 1024)]
        _before(monkeypatch, allocator, "_free", allocator.free_cache)

        def free(_: int) -> None:
            for block, size in zip(blocks, (256, 512, 1024), strict=True):
                allocator.free(block, size)
            allocator.free_cache()

        in_threads(free, 1)
        assert allocator.statistics().cached == 0

    @pytest.mark.usefixtures("cache")
    def test_A5_another_thread_is_served_during_a_free(
        self, allocator: Allocator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A device may be slow to free; cached blocks are handed out during that time."""
        allocator.free(allocator.alloc(4096), 4096)
        served = list[Any]()

        def allocate(_: int) -> None:
            served.append(allocator.alloc(4096))

        # The second thread allocates while the first is inside the backend's `_free`.
        _before(monkeypatch, allocator, "_free", lambda: in_threads(allocate, 1))
        allocator.free(allocator.alloc(1000, NOLRU), 1000, NOLRU)
        assert len(served) == 1
        allocator.free(served[0], 4096)

    def test_A6_a_double_free_and_another_size_are_refused(self, allocator: Allocator) -> None:
        before = allocator.statistics()
        block = allocator.alloc(1000)
        with pytest.raises(hal.InvalidArgument, match="3000"):
            allocator.free(block, 3000)
        assert allocator.statistics().current == before.current + 1000, "nothing was freed"
        allocator.free(block, 1000)
        facts = allocator.statistics()
        for options in (None, NOLRU):  # into the cache, and past it
            with pytest.raises(hal.InvalidArgument):
                allocator.free(block, 1000, options)
        assert allocator.statistics() == facts
        first, second = allocator.alloc(1000), allocator.alloc(1000)
        assert first != second, "one block was handed out twice"
        allocator.free(first, 1000)
        allocator.free(second, 1000)

    def test_A6_what_python_runs_in_between_may_allocate(
        self, device: hal.Compiled, allocator: Allocator
    ) -> None:
        """Finalizers and signal handlers run where a call begins and where it returns."""
        before, code = allocator.statistics(), hal.Allocator.alloc.__code__

        def reached(nth: int) -> bool:
            seen = 0

            # Called by Python at every call and return, of which those in the allocator count.
            def hook(frame: FrameType, event: str, _: object) -> None:
                nonlocal seen
                if event != "c_call" and frame.f_code.co_filename == code.co_filename:
                    seen += 1
                    if seen == nth:
                        sys.setprofile(None)
                        # As a finalizer or a signal handler could, on the same thread.
                        hal.Buffer(device, 700, hal.uint8).allocate()

            sys.setprofile(hook)
            try:
                made = [
                    hal.Buffer(device, 5000, hal.uint8, spec).allocate() for spec in (None, NOLRU)
                ]
                made.pop().deallocate()
                del made
                allocator.free_cache()
            finally:
                sys.setprofile(None)
            return seen >= nth

        def everywhere(_: int) -> None:
            # One run for each place, until a run has fewer places than that.
            nth = 1
            while reached(nth):
                nth += 1
            assert nth > 20, "the kit no longer sees the allocator at work"

        in_threads(everywhere, 1)
        after = allocator.statistics()
        assert (after.live, after.current) == (before.live, before.current)

    @pytest.mark.parametrize("options", [None, NOLRU], ids=["plain", "nolru"])
    def test_A7_a_block_is_not_handed_out_while_work_uses_it(
        self, device: hal.Compiled, allocator: Allocator, options: hal.BufferSpec | None
    ) -> None:
        """Free a block that a slow launch writes to; the next owner writes from the host."""
        slow = SlowCounter(device)
        for turn in range(12):
            first = slow.buffer(device, options)
            # The launch is still running when its buffer is freed and the block is wanted again.
            slow(first, turn)
            first.deallocate()
            data = pattern(first.nbytes, turn)
            second = slow.buffer(device, options).copyin(data)
            # Blocks of the cache may be handed out in any order, so take some more.
            others = [buffer_of(device, bytes(first.nbytes), spec=options) for _ in range(3)]
            device.synchronize()
            assert read(second) == data, f"turn {turn}: the launch wrote to freed memory"
            assert all(read(other) == bytes(first.nbytes) for other in others)

    def test_A7_a_view_that_work_uses_is_not_handed_out(
        self, device: hal.Compiled, allocator: Allocator
    ) -> None:
        slow = SlowCounter(device)
        for turn in range(6):
            root = hal.Buffer(device, slow.size + 8, hal.uint32, NOLRU).allocate()
            kept = slow.buffer(device)
            slow(root.view(slow.size, offset=32), turn)
            kept.copy_from(root.view(slow.size, offset=32))
            del root
            data = pattern((slow.size + 8) * 4, turn)
            second = buffer_of(device, data)
            assert read(kept) == slow.counted(turn) and read(second) == data

    @pytest.mark.usefixtures("cache")
    def test_A8_a_limit_is_kept_and_the_cache_gives_way(
        self, device: hal.Compiled, allocator: Allocator
    ) -> None:
        allocator.limit = limit = allocator.statistics().current + 2 * MIB
        for size in (100_000, 200_000, 300_000, 400_000):  # all cached
            hal.Buffer(device, size, hal.uint8).allocate().deallocate()
        cached = allocator.statistics().cached
        assert cached >= 1_000_000
        large = buffer_of(device, pattern(1_500_000))
        facts = allocator.statistics()
        assert facts.current + facts.cached <= limit == facts.limit and facts.cached < cached
        with pytest.raises(hal.OutOfMemory):
            hal.Buffer(device, 700_000, hal.uint8).allocate()
        assert allocator.statistics().cached == 0, "the cache goes before a refusal"
        assert read(large) == pattern(1_500_000)

    def test_A8_HAL_MEMORY_LIMIT_is_read_when_a_device_opens(
        self, device: hal.Compiled, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        device.close()
        monkeypatch.setenv("HAL_MEMORY_LIMIT", str(MIB))
        with hal.Device[device.name] as opened:
            assert opened.allocator.statistics().limit == MIB
            made = buffer_of(opened, pattern(600_000))
            with pytest.raises(hal.OutOfMemory, match=str(MIB)):
                hal.Buffer(opened, 600_000, hal.uint8).allocate()
            assert read(made) == pattern(600_000)
            made.deallocate()


def _before(
    monkeypatch: pytest.MonkeyPatch, allocator: Allocator, name: str, what: Callable[[], None]
) -> None:
    """Call `what` before each call of the backend's method, but not within `what` itself."""
    inner, inside = getattr(allocator, name), threading.local()

    def method(*args: Any) -> Any:
        if not getattr(inside, "now", False):
            inside.now = True
            try:
                what()
            finally:
                inside.now = False
        return inner(*args)

    monkeypatch.setattr(allocator, name, method)
