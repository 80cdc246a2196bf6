"""Profiles: opened, closed and read."""

from __future__ import annotations

import atexit
import contextlib
import logging
from collections.abc import Callable, Iterator
from time import perf_counter_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from hal_core import concurrency, config
from hal_core.errors import HalError, InvalidArgument, InvalidState
from hal_core.profiling import recorder, watch
from hal_core.profiling.events import ProfileEvent, ProfileProgramEvent, ProfileRangeEvent
from hal_core.profiling.recorder import Ring

if TYPE_CHECKING:
    from hal_core.allocator import Allocator
    from hal_core.device import Compiled
    from hal_core.program import Program

log = logging.getLogger("hal_core")

LIMIT = 1 << 16  # events; about 20 MB of them

_lock = concurrency.fork_safe_lock()
_switches: list[Callable[[bool], None]] = []
_whole: Profile | None = None  # of `start_profile`
_asked = False  # whether HAL_PROFILE was obeyed


class Profile:
    """What every device did while it was open.

    Order: `events` are sorted by their start. Reading them while the profile is open waits for
    the work they are about.
    Concurrency: any thread may read; each profile is opened and closed once.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise InvalidArgument("profile", "limit is a number of events, 1 or more", got=limit)
        self._ring: Ring | None = Ring(limit)
        self._read: tuple[tuple[ProfileEvent, ...], int] = (), 0

    @property
    def events(self) -> tuple[ProfileEvent, ...]:
        """What happened, by its start; the last of it where there was more than `limit`."""
        return self._now()[0]

    @property
    def dropped(self) -> int:
        """How many events, all older, gave way to those in `events`."""
        return self._now()[1]

    def _now(self) -> tuple[tuple[ProfileEvent, ...], int]:
        ring = self._ring
        return self._read if ring is None else ring.read()

    def __enter__(self) -> Self:
        _wait_for_all()
        self._begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _begin(self) -> None:
        ring = self._ring
        with _lock:
            if ring is None or ring in recorder.rings:
                raise InvalidState(
                    "profile", "it was opened before", fix="Make a new one: hal.profile()."
                )
            first = not recorder.rings
            recorder.rings += (ring,)
            if first:
                for switch in _switches:
                    switch(True)
                for device in concurrency.devices:
                    watch.watch_device(device)

    def _end(self) -> None:
        ring = self._ring
        if ring is None:
            return
        clocks = []
        with _lock:
            recorder.rings = tuple(other for other in recorder.rings if other is not ring)
            if not recorder.rings:
                clocks = watch.unwatch_all()
                for switch in _switches:
                    switch(False)
        for clock in clocks:
            clock.stop()
        self._read = ring.read()
        self._ring = None

    def __repr__(self) -> str:
        events, dropped = self._now()
        return f"<Profile of {len(events)} events, {dropped} dropped>"


def profile(limit: int = LIMIT) -> Profile:
    """`with hal.profile() as profile:` - what every device does meanwhile is in `profile.events`.

    The last `limit` events are kept, and `profile.dropped` counts what gave way to them. Several
    may be open at once. Opening one waits for queued work, so that all it tells began inside.
    """
    return Profile(limit)


def start_profile(limit: int = LIMIT) -> Profile:
    """A profile of all that follows, until `finalize_profile`; what HAL_PROFILE=1 does at the
    first device. Raises: InvalidState when it was started before."""
    global _whole
    started = Profile(limit)
    _wait_for_all()
    with _lock:
        if _whole is not None and _whole._ring is not None:
            raise InvalidState(
                "start_profile", "it was started before", fix="Call finalize_profile() first."
            )
        _whole = started
        started._begin()
    return started


def finalize_profile() -> tuple[ProfileEvent, ...]:
    """Wait for all devices and end what `start_profile` or HAL_PROFILE=1 began.

    Its events; the same ones when called again, none when nothing was started. At exit it is
    called after the devices were closed.
    """
    _wait_for_all(log_failures=True)
    with _lock:
        started = _whole
    if started is None:
        return ()
    started._end()
    return started.events


@contextlib.contextmanager
def profile_range(name: str) -> Iterator[None]:
    """`with hal.profile_range("step 3"):` - an event that spans the block, on the host."""
    start = perf_counter_ns()
    try:
        yield
    finally:
        times = start, perf_counter_ns()
        recorder.record(ProfileRangeEvent, "range", name, "", times)


def _wait_for_all(log_failures: bool = False) -> None:
    for device in concurrency.devices:
        if device.closed or device._backend is None:  # the latter is still being opened
            continue
        try:
            device.synchronize()
        except InvalidState:  # closed meanwhile, by another thread
            continue
        except HalError as error:
            if not log_failures:
                raise
            log.warning("profile: waiting for %s failed: %s", device.name, error)


# -- what the core tells, where nothing is hot


def device_made(device: Compiled) -> None:
    """HAL_PROFILE=1 begins with the first."""
    global _asked, _whole
    if not config.PROFILE.read():
        return
    with _lock:
        if _asked:
            return
        _asked = True
        if _whole is None:
            _whole = Profile()
            _whole._begin()
        atexit.register(finalize_profile)


def allocator_made(allocator: Allocator[Any]) -> None:
    if recorder.rings:
        with _lock:
            if recorder.rings:
                watch.watch_allocator(allocator)


def program_loaded(program: Program) -> None:
    if recorder.rings:
        with _lock:
            if recorder.rings:
                watch.watch_program(program)


def compiled(device: Compiled, name: str, image: bytes, cached: bool, start_ns: int) -> None:
    if recorder.rings:
        times = start_ns, perf_counter_ns()
        kind = "reuse" if cached else "compile"
        recorder.record(ProfileProgramEvent, kind, name, device.name, times, len(image))


def on_switch(switch: Callable[[bool], None]) -> None:
    """`switch(True)` when the first profile opens, `switch(False)` when the last one closes: for
    shortcuts past the methods that a profile watches."""
    with _lock:
        _switches.append(switch)
        if recorder.rings:
            switch(True)
