"""Every scene by its name, and what holds after each of them: threads gone, accounts right."""

import gc
import threading
import time

from ctrl_c import Scene, expect
from interrupts import devices, graphs, kernels, memory, profiles, queues

import hal_core as hal

_ENDS_SECONDS = 10.0  # until the thread of a closed queue has ended
# They serve all queues and launches, and stay or end by themselves.
_SHARED_THREADS = ("hal-cpu", "hal-events", "hal-opencl")

SCENES = {
    f"{module.__name__.rpartition('.')[2]}.{setting.__name__}": setting
    for module in (queues, graphs, profiles, kernels, devices, memory)
    for setting in module.SCENES
}


def scene(setting, name):
    """Make a scene on a device, whose check looks at threads and accounts, too."""
    device = hal.Device[name]
    live, threads = device.allocator.statistics().live, _threads()
    inner = setting(device)

    def work():
        if inner is not None:
            inner.work()

    def check(heard):
        nonlocal inner
        if inner is not None:
            inner.check(heard)
        inner = None
        now = hal.Device[name]
        now.synchronize()
        gc.collect()
        _check_accounts(now, live if now is device else 0, heard)
        _check_threads(threads)

    return Scene(work, check)


def _check_accounts(device, live, heard):
    allocator = device.allocator
    facts = allocator.statistics()
    if not heard.in_finalizer():  # Python swallows the signal there, and the block is lost
        expect(facts.live <= live, f"{facts.live} blocks are live, {live} before")
        expect(facts.live or (facts.current, allocator._held) == (0, facts.cached), str(facts))
    blocks = allocator._cache.items()
    cached = sum((key if isinstance(key, int) else key[0]) * len(b) for key, b in blocks)
    expect(facts.cached == cached, str(facts))
    expect(facts.cached <= allocator.cache_limit, "the cache is over its bound")
    expect(not allocator._dropped, "dropped blocks are not freed")


def _threads():
    """Return the threads that run. One without a number never began, as Ctrl-C came before."""
    return {
        one
        for one in threading.enumerate()
        if one.ident is not None and not one.name.startswith(_SHARED_THREADS)
    }


def _check_threads(before):
    deadline = time.monotonic() + _ENDS_SECONDS
    while more := _threads() - before:
        if time.monotonic() > deadline:
            raise AssertionError(f"threads stay: {more}")
        time.sleep(0.001)
