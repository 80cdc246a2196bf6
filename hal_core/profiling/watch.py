"""What is put in the place of methods while a profile is open, and taken away afterwards.

Nothing on a hot path asks whether a profile is open: it calls the attributes of one allocator or
program, and those are what changes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from hal_core.errors import InvalidState
from hal_core.profiling import recorder
from hal_core.profiling.events import ProfileDeviceEvent, ProfileProgramEvent
from hal_core.profiling.host_clock import HostClock, Times

if TYPE_CHECKING:
    from hal_core.allocator import Allocator, BufferSpec
    from hal_core.device import Compiled
    from hal_core.program import Program

_ABSENT = object()
_COPIES = {"_copyin": "copyin", "_copyout": "copyout", "_transfer": "copy", "_fill": "fill"}

# object -> (attribute, what was put there, what was there before)
_swapped: WeakKeyDictionary[Any, list[tuple[str, Any, Any]]] = WeakKeyDictionary()
_clocks: WeakKeyDictionary[Compiled, HostClock] = WeakKeyDictionary()
_measuring = threading.local()  # `.now`: inside of a measured copy, which may be made of others


def watch_device(device: Compiled) -> None:
    if device.closed:
        return
    allocator = vars(device).get("allocator")
    if allocator is not None:
        watch_allocator(allocator)
    for program in device._loaded:
        watch_program(program)


def watch_allocator(allocator: Allocator[Any]) -> None:
    if allocator in _swapped:
        return
    clock, name = _clock(allocator.device), allocator.device.name
    changes: dict[str, Any] = {
        "alloc": _recorded_alloc(allocator.alloc, name),
        "free": _recorded_free(allocator.free, name),
        "_returned": _Returned(allocator._returned, name),
    }
    for method, kind in _COPIES.items():
        changes[method] = _recorded_copy(getattr(allocator, method), kind, clock)
    _swap(allocator, changes)


def watch_program(program: Program) -> None:
    if program in _swapped or program._unloaded:
        return
    launches = _Launches(program, _clock(program.device))
    _swap(program, {"_launch": launches.launch, "_launch_timed": launches.launch_timed})


def unwatch_all() -> list[HostClock]:
    """Everything is as it was; what was replaced meanwhile by somebody else stays.

    The clocks that were used: the caller stops them, with no lock in its hands.
    """
    for target, changes in list(_swapped.items()):
        attributes = vars(target)
        for name, mine, before in changes:
            if name == "_launch" and before is None:
                # Bound, as after any first launch: one may be under way that has seen it so.
                with suppress(Exception):  # which the first launch will tell
                    before = mine.__self__.inner or target._bind()
            if attributes.get(name, _ABSENT) is mine:
                attributes[name] = before
                if before is _ABSENT:
                    del attributes[name]
    _swapped.clear()
    clocks = list(_clocks.values())
    _clocks.clear()
    return clocks


def _swap(target: object, changes: dict[str, Any]) -> None:
    attributes = vars(target)
    _swapped[target] = [
        (name, mine, attributes.get(name, _ABSENT)) for name, mine in changes.items()
    ]
    attributes.update(changes)


def _clock(device: Compiled) -> HostClock:
    clock = _clocks.get(device)
    if clock is None:
        clock = _clocks[device] = device._make_clock()
    return clock


# -- launches


class _Launches:
    """In the place of a program's `_launch` and `_launch_timed`. Does not keep the program, which
    goes with its last user."""

    __slots__ = ("clock", "inner", "name", "program")

    def __init__(self, program: Program, clock: HostClock) -> None:
        self.program, self.clock, self.name = ref(program), clock, program.name
        self.inner = program._launch  # None before the first one

    def launch(self, *args: Any) -> None:
        inner = self.inner or self._bind()
        _, times = self.clock.measure(lambda: inner(*args))
        self._record(times)

    def launch_timed(self, geometry: Any, args: tuple[Any, ...]) -> float:
        inner = self.inner or self._bind()
        _, times = self.clock.measure(lambda: inner(geometry, *args))
        self.clock.device._synchronize(None)  # raises what the work did
        start, end = times()
        self._record((start, end))
        return (end - start) * 1e-9

    def _bind(self) -> Callable[..., None]:
        program = self.program()
        if program is None:
            raise InvalidState(f"launch {self.name}", "the program is gone")
        self.inner = program._bind()
        return self.inner

    def _record(self, times: tuple[int, int] | Times) -> None:
        recorder.record(ProfileProgramEvent, "launch", self.name, self.clock.device.name, times)


# -- memory


class _Returned:
    """An allocator's list of what finalizers gave back, which notes the additions.

    The list itself stays where all goes: a finalizer that had it in its hands when a profile began
    or ended loses nothing.
    """

    __slots__ = ("device", "inner", "popleft")

    def __init__(self, inner: deque[Any], device: str) -> None:
        self.inner, self.device, self.popleft = inner, device, inner.popleft

    def append(self, block: tuple[Any, int, BufferSpec]) -> None:
        self.inner.append(block)
        now = perf_counter_ns()
        recorder.record(ProfileDeviceEvent, "free", "free", self.device, (now, now), block[1])

    def __len__(self) -> int:
        return len(self.inner)


def _recorded_alloc(inner: Callable[..., Any], device: str) -> Callable[..., Any]:
    def alloc(nbytes: int, options: BufferSpec | None = None) -> Any:
        start = perf_counter_ns()
        opaque = inner(nbytes, options)
        if nbytes and (options is None or options.external_ptr is None):
            times = start, perf_counter_ns()
            recorder.record(ProfileDeviceEvent, "alloc", "alloc", device, times, nbytes)
        return opaque

    return alloc


def _recorded_free(inner: Callable[..., None], device: str) -> Callable[..., None]:
    def free(opaque: Any, nbytes: int, options: BufferSpec | None = None) -> None:
        start = perf_counter_ns()
        inner(opaque, nbytes, options)
        if nbytes and (options is None or options.external_ptr is None):
            times = start, perf_counter_ns()
            recorder.record(ProfileDeviceEvent, "free", "free", device, times, nbytes)

    return free


def _recorded_copy(inner: Callable[..., Any], kind: str, clock: HostClock) -> Callable[..., Any]:
    place = {"copyin": None, "copyout": None, "copy": 2, "fill": 1}[kind]

    def copy(*args: Any) -> Any:
        if getattr(_measuring, "now", False):  # a fill that copies
            return inner(*args)
        _measuring.now = True
        try:
            done, times = clock.measure(lambda: inner(*args))
        finally:
            _measuring.now = False
        if kind != "copy" or done:  # else it goes through the host, in two copies
            host = args[1] if kind == "copyin" else args[0]
            nbytes = host.nbytes if place is None else args[place]
            recorder.record(ProfileDeviceEvent, kind, kind, clock.device.name, times, nbytes)
        return done

    return copy
