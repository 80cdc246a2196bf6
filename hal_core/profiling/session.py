"""Open, close and read profiles."""

from __future__ import annotations

import atexit
import contextlib
import logging
from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Self

from hal_core import concurrency
from hal_core.errors import HalError, InvalidArgument, InvalidState
from hal_core.profiling import instrumentation, recorder
from hal_core.profiling.events import ProfileEvent, ProfileProgramEvent, ProfileRangeEvent
from hal_core.profiling.recorder import Ring

if TYPE_CHECKING:
    from hal_core.allocator import Allocator
    from hal_core.device import Compiled
    from hal_core.program import Program

log = logging.getLogger("hal_core")

LIMIT = 1 << 16  # events; about 20 MB of them

# Re-entrant: a switch or a clock runs code of backends, whose finalizers may load or allocate.
_lock = concurrency.fork_safe_lock()
_switches: list[Callable[[bool], None]] = []
_process_profile: Profile | None = None  # opened by `start_profile` or HAL_PROFILE=1
_environment_read = False  # HAL_PROFILE counts once, at the first device


class Profile:
    """The events of all devices while the profile was open.

    Order: `events` are sorted by their start. Reading them while the profile is open waits for
    the work they are about.
    Concurrency: any thread may read; each profile is opened and closed once.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise InvalidArgument("profile", "limit is a number of events, 1 or more", got=limit)
        self._ring: Ring | None = Ring(limit)  # None once the profile was closed
        self._result: tuple[tuple[ProfileEvent, ...], int] = (), 0

    @property
    def events(self) -> tuple[ProfileEvent, ...]:
        """The events by their start; the last ones if there were more than `limit`."""
        return self._read()[0]

    @property
    def dropped(self) -> int:
        """The number of older events that were dropped, as there were more than `limit`."""
        return self._read()[1]

    def _read(self) -> tuple[tuple[ProfileEvent, ...], int]:
        ring = self._ring
        return self._result if ring is None else ring.read()

    def __enter__(self) -> Self:
        _wait_for_all()
        self._begin()
        return self

    def __exit__(self, *error: object) -> None:
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
                    instrumentation.instrument_device(device)

    def _end(self) -> None:
        ring = self._ring
        if ring is None:
            return
        clocks = []
        with _lock:
            recorder.rings = tuple(other for other in recorder.rings if other is not ring)
            if not recorder.rings:
                clocks = instrumentation.restore_all()
                for switch in _switches:
                    switch(False)
        for clock in clocks:
            clock.stop()
        self._result = ring.read()
        self._ring = None

    def __repr__(self) -> str:
        events, dropped = self._read()
        return f"<Profile of {len(events)} events, {dropped} dropped>"


def profile(limit: int = LIMIT) -> Profile:
    """`with hal.profile() as profile:` records in `profile.events` what every device does inside.

    The last `limit` events are kept, and `profile.dropped` counts the older ones. Several profiles
    may be open at once. Opening one waits for queued work, so every event began inside.
    """
    return Profile(limit)


def start_profile(limit: int = LIMIT) -> Profile:
    """Profile the process from now on until `finalize_profile`, as HAL_PROFILE=1 does from the
    first device on. Raises: InvalidState when it was started before."""
    global _process_profile
    started = Profile(limit)
    _wait_for_all()
    with _lock:
        if _process_profile is not None and _process_profile._ring is not None:
            raise InvalidState(
                "start_profile", "it was started before", fix="Call finalize_profile() first."
            )
        _process_profile = started
        started._begin()
    return started


def finalize_profile() -> tuple[ProfileEvent, ...]:
    """Wait for all devices, end the profile of `start_profile` or HAL_PROFILE=1, return its events.

    A second call returns the same events; without a profile there are none. At exit it is called
    after the devices were closed.
    """
    _wait_for_all(log_failures=True)
    started = _process_profile
    if started is None:
        return ()
    started._end()
    return started.events


@contextlib.contextmanager
def profile_range(name: str) -> Iterator[None]:
    """`with hal.profile_range("step 3"):` records one event that spans the block, on the host."""
    start = perf_counter_ns()
    try:
        yield
    finally:
        times = start, perf_counter_ns()
        recorder.record(ProfileRangeEvent, "range", name, "", times)


def _wait_for_all(log_failures: bool = False) -> None:
    for device in concurrency.devices:
        if device.closed or device._backend is None:  # without a backend it is still being opened
            continue
        try:
            device.synchronize()
        except InvalidState:  # another thread has closed it since
            continue
        except HalError as error:
            if not log_failures:
                raise
            log.warning("profile: waiting for %s failed: %s", device.name, error)


# -- called by the core, where nothing is hot


def device_made(device: Compiled) -> None:
    """Open the profile of the process at its first device: HAL_PROFILE=1 asks for it."""
    global _environment_read, _process_profile
    with _lock:
        if _environment_read:
            return
        _environment_read = True
        if _process_profile is None:
            _process_profile = Profile()
            _process_profile._begin()
        atexit.register(finalize_profile)


def allocator_made(allocator: Allocator[Any]) -> None:
    """Record what the new allocator does, if a profile is open."""
    with _lock:
        if recorder.rings:
            instrumentation.instrument_allocator(allocator)


def program_loaded(program: Program) -> None:
    """Record launches of the new program, if a profile is open."""
    with _lock:
        if recorder.rings:
            instrumentation.instrument_program(program)


def compiled(device: Compiled, name: str, image: bytes, cached: bool, start_ns: int) -> None:
    """Record a compilation that began at `start_ns`; `cached`: the compile cache had the binary."""
    times = start_ns, perf_counter_ns()
    kind = "reuse" if cached else "compile"
    recorder.record(ProfileProgramEvent, kind, name, device.name, times, len(image))


def on_switch(switch: Callable[[bool], None]) -> None:
    """Call `switch(True)` when the first profile opens and `switch(False)` when the last closes.

    For shortcuts that bypass the methods a profile records.
    """
    with _lock:
        _switches.append(switch)
        if recorder.rings:
            switch(True)
