"""Ctrl-C anywhere in allocate, free, launch, profile, open, compile: locks free, accounts right."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from ctrl_c import Heard, Scene, press_everywhere
from fake_backend import FakePlugin

import hal_core as hal
from hal_core import concurrency

MOST = 120  # places of each scene, of some hundreds; all of them under HAL_TEST_EVERY_PLACE=1
# What happens to memory and programs in the backend's own functions is the backend's.
BACKEND = ("fake_backend.py", "fake/allocator.py", "fake/chip.py", "fake/device.py")


def check_accounts(allocator: Any, heard: Heard) -> None:
    """Nothing lives any more, and the device holds what the accounts say."""
    gc.collect()
    facts = allocator.statistics()
    if not heard.in_finalizer():  # Python swallows the signal there, and the block is lost
        assert (facts.current, facts.live) == (0, 0)
        if not heard.within(*BACKEND):
            assert sum(map(len, allocator.memory.values())) == facts.cached
    assert facts.cached <= allocator.cache_limit
    allocator.free_cache()
    assert allocator.statistics().cached == 0


def new_allocator(limit: int = 0) -> Any:
    """The allocator of the device FAKE, opened anew."""
    hal.Device["FAKE"].close()
    made: Any = hal.Device["FAKE"].allocator
    made.cache_limit, made.limit = 3 * 1024, limit
    return made


def block(size: int, **options: Any) -> hal.Buffer:
    return hal.Buffer("FAKE", size, hal.int8, hal.BufferSpec(**options))


def test_A6_ctrl_c_while_memory_is_allocated(plugin: FakePlugin) -> None:
    """From the cache, fresh, behind finalizers, over the bound of the cache, and of the device."""

    def scene() -> Scene:
        made = []
        allocator = new_allocator(limit=10 * 1024)
        for size in (300, 600, 900):
            block(size).allocate()
        returned = [block(1500).allocate(), block(2000).allocate()]

        def work() -> None:
            made.append(block(300).allocate())
            returned.clear()
            made.append(block(100, zero=True).allocate())
            made.append(block(3000).allocate())
            made.append(block(4000).allocate())

        def check(heard: Heard) -> None:
            assert all(one.is_allocated for one in made)
            made.clear()
            returned.clear()
            check_accounts(allocator, heard)

        return Scene(work, check)

    assert press_everywhere(scene, MOST) > 50


def test_A6_ctrl_c_while_memory_is_freed(plugin: FakePlugin) -> None:
    def scene() -> Scene:
        allocator = new_allocator()
        buffers = [block(size).allocate() for size in (300, 600, 900, 2000)]
        buffers.append(block(100, nolru=True).allocate())
        views = [buffers[0].view(size) for size in (10, 20, 30)]
        views[0].fill(1)
        opaque = allocator.alloc(1500)

        def work() -> None:
            for buffer in buffers:
                buffer.deallocate()
            allocator.free(opaque, 1500)
            allocator.free_cache()

        def check(heard: Heard) -> None:
            if buffers[0].is_allocated:
                buffers[0].fill(2)
                assert buffers[0].view(1).numpy()[0] == views[0].numpy()[0] == 2
            else:
                assert not any(view.is_allocated for view in views), "a view of freed memory"
            for buffer in buffers:
                if buffer.is_allocated:
                    buffer.deallocate()
            with suppress(hal.InvalidArgument):  # it was freed
                allocator.free(opaque, 1500)
            check_accounts(allocator, heard)

        return Scene(work, check)

    assert press_everywhere(scene, MOST) > 50


def test_R14_ctrl_c_at_the_start_of_a_step_does_not_lose_it() -> None:
    """Every step is begun once: functions with cells, in C, and that fail or add a step."""

    def scene() -> Scene:
        begun = dict.fromkeys(["adds", "cells", "fails", "C", "lambda", "added"], 0)
        steps: list[Callable[[], object]] = []

        def adds() -> None:
            begun["adds"] += 1
            steps[9:] = [added]  # no call, which Ctrl-C could end

        def cells(name: str = "cells") -> Callable[[], str]:
            begun[name] += 1
            return lambda: name

        def fails() -> None:
            begun["fails"] += 1
            raise ValueError

        def added() -> None:
            begun["added"] += 1

        in_c = partial(begun.__setitem__, "C", 1)
        steps += [adds, cells, fails, in_c, lambda: begun.__setitem__("lambda", 1)]

        def work() -> None:
            with suppress(ValueError):
                concurrency.run_each(steps)

        def check(heard: Heard) -> None:
            if any(begun.values()):  # else before the first step
                assert not steps and set(begun.values()) == {1}, begun
            else:
                assert heard.frames

        return Scene(work, check)

    assert press_everywhere(scene, 1000) > 20  # every place


def test_ctrl_c_while_a_thread_is_started() -> None:
    """The thread then runs, or it does not: none waits for ever for its own start."""

    def scene() -> Scene:
        ran: list[int] = []
        thread = concurrency.Thread("served", lambda: ran.append(1))

        def check(heard: Heard) -> None:
            assert concurrency.poll(lambda: bool(ran) or thread.ident is None, 10)

        return Scene(thread.start, check)

    assert press_everywhere(scene, MOST) > 10
