"""Record what allocators and programs do, by replacing their methods while a profile is open.

No hot path asks whether a profile is open. A launch calls `program._launch` and a copy calls
`allocator._copyin`; a profile stores a recording function under that name in the one object, and
`restore_all` puts back what was there.

An object records while it has the attribute `_before_profile`. Ctrl-C may end any function here:
the next call of the same function completes what was left.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from hal_core import concurrency
from hal_core.profiling import events
from hal_core.profiling.events import DEFAULT_QUEUE, ProfileDeviceEvent, ProfileProgramEvent, record
from hal_core.profiling.host_clock import HostClock, Times

if TYPE_CHECKING:
    from typing import Self

    from hal_core.allocator import Allocator, BufferSpec
    from hal_core.device.base import Compiled
    from hal_core.program import Program
    from hal_core.queue import Event, Queue

T = TypeVar("T")

_ABSENT = object()  # the object itself had no such attribute, its class had

# Method of an allocator -> (kind of its event, the bytes that its arguments say it copies)
_COPIES: dict[str, tuple[str, Callable[..., int]]] = {
    "_copyin": ("copyin", lambda dest, src: src.nbytes),
    "_copyout": ("copyout", lambda dest, src: dest.nbytes),
    "_transfer": ("copy", lambda dest, src, nbytes, src_device: nbytes),
    "_fill": ("fill", lambda dest, nbytes, pattern: nbytes),
}

_clocks: WeakKeyDictionary[Compiled, HostClock] = WeakKeyDictionary()
_to_stop: deque[Callable[[], object]] = deque()  # the `stop` of clocks that no profile uses
_measuring = threading.local()  # `.now`: this thread is inside a copy that is being measured


def instrument_device(device: Compiled) -> None:
    """Record what the device's allocator and its loaded programs do from now on."""
    if device.closed:
        return
    allocator = _allocator_of(device)
    if allocator is not None:
        instrument_allocator(allocator)
    for program in device._loaded:
        instrument_program(program)


def _allocator_of(device: Compiled) -> Allocator[Any] | None:
    return vars(device).get("allocator")  # reading `device.allocator` would make one


def instrument_allocator(allocator: Allocator[Any]) -> None:
    """Record allocations, frees, copies and fills. A second call does nothing."""
    if "_before_profile" in vars(allocator):
        return
    clock = _clock(allocator.device)
    memory = _RecordedMemory(allocator)
    methods: dict[str, Any] = {"alloc": memory.alloc, "free": memory.free, "_returned": memory}
    for name, (kind, nbytes_of) in _COPIES.items():
        methods[name] = _recorded_copy(getattr(allocator, name), kind, nbytes_of, clock)
    _replace(allocator, methods)


def instrument_program(program: Program) -> None:
    """Record launches. A second call does nothing."""
    if "_before_profile" in vars(program) or program._unloaded:
        return
    if program._launch is None:
        try:
            bound = program._bind()
        except concurrency.unless_of_a_signal(Exception):  # its first launch raises it
            return
        program._launch = program._launch or bound
    _replace(program, _recorded_launches(program, _clock(program.device)))


def record_queued(
    queue: Queue, title: str, waited: Event | None, work: Callable[[], T], nbytes: int = 0
) -> T:
    """Call `work`, which adds one command to a queue of the driver, and record that command.

    `title` is its kind, of a launch with the kernel: "launch of saxpy"; `waited` is what a wait is
    for; a copy or fill has `nbytes`.
    """
    if not events.open_profiles:
        return work()
    kind, _, name = title.partition(" of ")
    kind_of = ProfileProgramEvent if kind == "launch" else ProfileDeviceEvent
    done, times = _clock(queue.device).measure(work)
    if waited is not None:
        name = source_of(waited)
    record(kind_of, kind, name or kind, queue.device.name, times, nbytes, queue=_name_of(queue))
    return done


def source_of(event: Event) -> str:
    """Name the row of a trace that an event ends the work of: its device and its queue."""
    if event.queue is None:
        return "an event that no queue records"
    return f"{event.queue.device.name}, {_name_of(event.queue) or DEFAULT_QUEUE}"


def _name_of(queue: Queue) -> str:
    """Return the queue's name as events have it: none for the default queue."""
    return "" if queue is vars(queue.device).get("default_queue") else queue.name


def restore_all() -> None:
    """Put back the methods of all allocators and programs; their clocks are not used any more."""
    for device in concurrency.devices:
        for target in (_allocator_of(device), *device._loaded):
            attributes = {} if target is None else vars(target)
            for name, recording, before in attributes.get("_before_profile", ()):
                # Anything else that is there now refuses, after an unload or a fork, and stays.
                if attributes.get(name) is not recording:
                    continue
                if before is _ABSENT:
                    del attributes[name]
                else:
                    attributes[name] = before
            attributes.pop("_before_profile", None)
    _to_stop.extend([clock.stop for clock in _clocks.values()])  # twice does no harm
    _clocks.clear()


def stop_clocks() -> None:
    """Stop the clocks that are not used any more. Order: with no lock held, as one may wait."""
    concurrency.make_calls(_to_stop)


def _replace(target: object, methods: dict[str, Any]) -> None:
    attributes = vars(target)
    before = [(name, method, attributes.get(name, _ABSENT)) for name, method in methods.items()]
    # On the object itself: anything else that held its methods would keep it alive. In one step:
    # Ctrl-C comes before it or behind it.
    attributes.update(methods, _before_profile=before)


def _clock(device: Compiled) -> HostClock:
    clock = _clocks.get(device)
    if clock is None:
        clock = _clocks[device] = device._make_clock()
    return clock


def _recorded_launches(program: Program, clock: HostClock) -> dict[str, Any]:
    """Return launch methods of a program that record.

    They hold the bound launch, not the program, which is freed as soon as its last user is.
    """
    real: Any = program._launch
    name, device = program.name, clock.device

    def launch(*args: Any) -> Times:
        _, times = clock.measure(lambda: real(*args))
        record(ProfileProgramEvent, "launch", name, device.name, times)
        return times

    def launch_timed(geometry: Any, args: tuple[Any, ...]) -> float:
        times = launch(geometry, *args)
        device._synchronize(None)  # raises when the work failed
        start, end = times()
        return (end - start) * 1e-9

    return {"_launch": launch, "_launch_timed": launch_timed}


class _RecordedMemory:
    """Replacements for `alloc` and `free` of one allocator and its list of returned blocks.

    The host times them. A block that a finalizer returns still goes to the real list, so that none
    is lost while a profile opens or closes.
    """

    def __init__(self, allocator: Allocator[Any]) -> None:
        self.real_alloc, self.real_free = allocator.alloc, allocator.free
        self.returned = allocator._returned
        self.device = allocator.device.name

    def alloc(self, nbytes: int, options: BufferSpec | None = None) -> Any:
        start = perf_counter_ns()
        opaque = self.real_alloc(nbytes, options)
        self._record("alloc", start, nbytes, options)
        return opaque

    def free(self, opaque: Any, nbytes: int, options: BufferSpec | None = None) -> None:
        start = perf_counter_ns()
        self.real_free(opaque, nbytes, options)
        self._record("free", start, nbytes, options)

    def append(self, block: tuple[Any, int, BufferSpec]) -> None:
        start = perf_counter_ns()
        self.returned.append(block)
        self._record("free", start, block[1], block[2])

    def __iadd__(self, blocks: tuple[tuple[Any, int, BufferSpec]]) -> Self:
        start = perf_counter_ns()
        self._record("free", start, blocks[0][1], blocks[0][2])
        self.returned += blocks  # last: when Ctrl-C ends this, nothing was done
        return self

    def _record(self, kind: str, start: int, nbytes: int, options: BufferSpec | None) -> None:
        # An empty buffer has no memory, and memory of the caller's own is not the allocator's.
        if nbytes and (options is None or options.external_ptr is None):
            times = start, perf_counter_ns()
            record(ProfileDeviceEvent, kind, kind, self.device, times, nbytes)


def _recorded_copy(
    real: Callable[..., Any], kind: str, nbytes_of: Callable[..., int], clock: HostClock
) -> Callable[..., Any]:
    """Return a copy or fill that records one event, also where `real` is made of other copies."""

    def copy(*args: Any) -> Any:
        if getattr(_measuring, "now", False):
            return real(*args)
        _measuring.now = True
        try:
            done, times = clock.measure(lambda: real(*args))
        finally:
            _measuring.now = False
        # A device copy that answers False is made by a copyout and a copyin, which are recorded.
        if kind != "copy" or done:
            device = clock.device.name
            record(ProfileDeviceEvent, kind, kind, device, times, nbytes_of(*args))
        return done

    return copy
