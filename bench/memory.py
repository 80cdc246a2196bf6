"""The cost of finding a device, of cached and fresh memory, and of copies."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import partial

import numpy as np

import hal_core as hal
from bench.measure import OURS, Effort, Task, call, compare
from bench.peers import Peers
from bench.report import Missing, Row, beside
from bench.sizes import MIB, readable


def rows(effort: Effort) -> Iterator[Row | Missing]:
    yield lookup(effort)
    yield cycle(effort)
    for nbytes, target in ((4096, 0.5), (MIB, 0.95), (64 * MIB, 0.95)):
        yield from copies(nbytes, target, effort)
    yield fresh(effort.rarely())


def lookup(effort: Effort) -> Row:
    """Measure `Device["CPU"]` of an open device."""
    hal.Device["CPU"]
    names = {"Device": hal.Device, "plain": {"CPU": hal.Device["CPU"]}}
    peers = Peers(tinygrad=_tinygrad_lookup)
    tasks = {OURS: Task('Device["CPU"]', names), "dict": Task('plain["CPU"]', names)}
    times = compare(tasks | peers.tasks, effort)
    others = peers.results(times)
    return beside('Device["CPU"]', times, "dict", 0.125, name="dict lookup", peers=others)


def _tinygrad_lookup() -> Task:
    from tinygrad.device import Device

    Device["CPU"]
    return Task('Device["CPU"]', {"Device": Device})


def cycle(effort: Effort) -> Row | Missing:
    """Measure a buffer's life: the object, memory from the cache, both deleted."""
    what = "Buffer: allocate, delete (1 KiB, cached)"
    names = {"Buffer": hal.Buffer, "device": hal.Device["CPU"], "f4": hal.float32}
    peers = Peers(tinygrad=_tinygrad_cycle)
    if "tinygrad" not in peers.tasks:
        return Missing(what, f"the target is against tinygrad, which {peers.reasons['tinygrad']}")
    ours = Task("Buffer(device, 256, f4).allocate()", names)
    times = compare({OURS: ours} | peers.tasks, effort)
    return beside(what, times, "tinygrad", 2.0)


def _tinygrad_cycle() -> Task:
    from tinygrad.device import Buffer
    from tinygrad.dtype import dtypes

    names = {"Buffer": Buffer, "f4": dtypes.float32}
    return Task('Buffer("CPU", 256, f4).allocate()', names)


def copies(nbytes: int, target: float, effort: Effort) -> Iterator[Row]:
    """Measure copies in both directions, compared with memmove between the same places."""
    buffer = hal.Buffer(hal.Device["CPU"], nbytes // 4, hal.float32).allocate()
    host = np.ones(nbytes, np.uint8)
    buffer.copyin(host)
    there = ctypes.c_void_p(np.asarray(buffer).ctypes.data)
    here, count = ctypes.c_void_p(host.ctypes.data), ctypes.c_size_t(nbytes)
    names = {"buffer": buffer, "view": host.data, "move": ctypes.memmove}
    names |= {"there": there, "here": here, "count": count}
    directions = {
        "copyin": ("buffer.copyin(view)", "move(there, here, count)"),
        "copyout": ("buffer.copyout(view)", "move(here, there, count)"),
    }
    looked = effort if nbytes <= MIB else effort.rarely()
    for direction, (ours, floor) in directions.items():
        peers = Peers(tinygrad=partial(_tinygrad_copy, nbytes, direction))
        tasks = {OURS: Task(ours, names), "memmove": Task(floor, names)}
        times = compare(tasks | peers.tasks, looked)
        others = peers.results(times)
        yield beside(f"{direction} {readable(nbytes)}", times, "memmove", target, peers=others)


def _tinygrad_copy(nbytes: int, direction: str) -> Task:
    from tinygrad.device import Buffer
    from tinygrad.dtype import dtypes

    buffer = Buffer("CPU", nbytes, dtypes.uint8).allocate()
    host = memoryview(bytearray(nbytes))
    order = "opaque, host" if direction == "copyin" else "host, opaque"
    names = {"copy": getattr(buffer.allocator, f"_{direction}"), "opaque": buffer._buf}
    return Task(f"copy({order})", names | {"host": host, "owner": buffer})


def fresh(effort: Effort) -> Row:
    """Measure 64 MiB of unused memory: allocate it, touch every page, free it."""
    count = 64 * MIB // 4
    device, once = hal.Device["CPU"], hal.BufferSpec(nolru=True)

    def ours() -> None:
        np.asarray(hal.Buffer(device, count, hal.float32, once).allocate()).fill(1.0)

    def floor() -> None:
        np.empty(count, np.float32).fill(1.0)

    peers = Peers(tinygrad=lambda: _tinygrad_fresh(count))
    times = compare({OURS: call(ours), "np.empty": call(floor)} | peers.tasks, effort)
    others = peers.results(times)
    return beside("fresh 64 MiB, touched, freed", times, "np.empty", 0.67, peers=others)


def _tinygrad_fresh(count: int) -> Task:
    from tinygrad.device import Buffer, BufferSpec
    from tinygrad.dtype import dtypes

    once = BufferSpec(nolru=True)

    def theirs() -> None:
        buffer = Buffer("CPU", count, dtypes.float32, options=once).allocate()
        np.frombuffer(buffer.as_memoryview(allow_zero_copy=True), np.float32).fill(1.0)

    theirs()
    return call(theirs)
