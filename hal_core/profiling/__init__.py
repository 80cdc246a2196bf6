"""Profiles: the times of allocations, copies, compilations, launches and the user's ranges."""

from __future__ import annotations

import atexit
import io
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ContextDecorator
from functools import partial
from os import PathLike
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Self

from hal_core import concurrency
from hal_core.errors import HalError, InvalidArgument, InvalidState
from hal_core.geometry import as_count
from hal_core.profiling import events, instrumentation
from hal_core.profiling.events import ProfileEvent, ProfileRangeEvent, record

if TYPE_CHECKING:
    from hal_core.device.base import Compiled
    from hal_core.profiling import trace
else:
    trace = concurrency.Late("hal_core.profiling.trace")

log = logging.getLogger("hal_core")

LIMIT = 1 << 16  # events; about 20 MB of them

# Re-entrant: a shortcut or a clock runs code of backends, whose finalizers may load or allocate.
_lock = concurrency.fork_safe_lock()
_finalizing = concurrency.fork_safe_lock()  # held while the process's profile is closed
_process_profile: Profile | None = None  # opened by `start_profile` or HAL_PROFILE=1


class _Closer(io.IOBase):
    """An object whose `__exit__` and finalizer, which are C code, close a generator."""

    def __init__(self, steps: Generator[None]) -> None:
        self.close = steps.close  # type: ignore[method-assign]  # which IOBase.__exit__ calls


class _Exit:
    """The method `__exit__` of a profile, as C code.

    A function in Python hears Ctrl-C at its start, before it has done anything, and the profile
    would stay open. A generator that is closed goes on at its `finally`.
    """

    def __get__(self, profile: Profile | None, kind: type[Profile]) -> Callable[..., None]:
        if profile is None:
            return self
        if profile._used:  # entered by hand, or a second `with`, which `__enter__` refuses
            return partial(self, profile)
        return _Closer(profile._steps).__exit__

    def __call__(self, profile: Profile, *error: object) -> None:
        """Close a profile that was opened by hand or by an ExitStack."""
        profile._steps.close()


class Profile(events.Entries):
    """The events of all devices while the profile was open.

    Order: `events` are sorted by their start. Reading them while the profile is open waits for
    the work they are about.
    Concurrency: any thread may read; each profile is opened and closed once.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        if not 1 <= as_count(limit) <= sys.maxsize:
            problem = "limit must be a number of events, 1 or more"
            raise InvalidArgument("profile", problem, got=limit, limit=sys.maxsize)
        super().__init__(as_count(limit))
        self._result: tuple[tuple[ProfileEvent, ...], int] | None = None  # None until it is closed
        self._used = False
        self._steps = self._opened()

    @property
    def events(self) -> tuple[ProfileEvent, ...]:
        """The events by their start; the last ones if there were more than `limit`."""
        return self._read()[0]

    @property
    def dropped(self) -> int:
        """The number of older events that were dropped, as there were more than `limit`."""
        return self._read()[1]

    def save(self, path: str | PathLike[str]) -> None:
        """Write the events to a file for a viewer, by its suffix.

        `.json` is a trace that https://ui.perfetto.dev opens, `.html` a page that needs no network,
        `.pickle` the tuple of events. A file that exists is replaced when the new one is whole.
        Raises: InvalidArgument for another suffix, and for a file that cannot be written.
        """
        trace.save(*self._read(), trace.check_path(path, "profile.save"))

    def _read(self, wait: bool = True) -> tuple[tuple[ProfileEvent, ...], int]:
        entries = list(self._entries)  # before the result, which `_end` sets before it clears them
        if self._result is not None:
            return self._result
        found = []
        for _, kind_of, kind, name, device, times, *more in entries:
            # Work without a queue's name never waits for what the host has yet to do.
            passed = times(wait or not more[-1]) if callable(times) else times
            if passed:
                found.append(kind_of(kind, name, device, *passed, *more))
        found.sort(key=lambda event: (event.start_ns, event.end_ns))
        # Two threads may have added in another order than they took their numbers.
        added = 1 + max((entry[0] for entry in entries), default=-1)
        return tuple(found), added - len(entries)

    def __enter__(self) -> Self:
        _wait_for_all()
        self._open()
        return self

    __exit__ = _Exit()

    def _open(self) -> None:
        with _lock:
            self._check_unused()
            self._used = True
        try:
            next(self._steps)
        except StopIteration:  # `__exit__` came first
            self._check_unused()
        except BaseException:
            self._steps.close()
            raise

    def _check_unused(self) -> None:
        if self._used:
            fix = "Make a new one: hal.profile()."
            raise InvalidState("profile", "it was opened before", fix=fix) from None

    def _opened(self) -> Generator[None]:
        """Open the profile, and close it when the generator is closed.

        What Ctrl-C ends in the middle is done once more: every step may be repeated.
        """
        try:
            try:
                with _lock:
                    if not events.open_profiles:
                        instrumentation.restore_all()  # what Ctrl-C has left, if it came twice
                    events.open_profiles += (self,)
                    _follow()
                yield
            finally:
                self._end()
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        with _lock:
            events.open_profiles = tuple(one for one in events.open_profiles if one is not self)
            _follow()
        instrumentation.stop_clocks()
        self._result = self._read(wait=False)
        self._entries.clear()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle or a copy, which is closed and has the events so far."""
        return {"_entries": (), "_result": self._read()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _used=True, _steps=self._opened())

    def __repr__(self) -> str:
        found, dropped = self._read(wait=False)  # a debugger may ask for it
        return f"<Profile of {len(found)} events, {dropped} dropped>"


def _follow() -> None:
    """Let shortcuts and devices follow `events.open_profiles`, which alone decides. Every call does
    the whole, so it also completes what Ctrl-C has ended."""
    events.changed()
    if not events.open_profiles:
        instrumentation.restore_all()
        return
    for device in concurrency.devices:
        instrumentation.instrument_device(device)


def profile(limit: int = LIMIT) -> Profile:
    """`with hal.profile() as profile:` records in `profile.events` what every device does inside.

    The last `limit` events are kept, and `profile.dropped` counts the older ones. Several profiles
    may be open at once. Opening a profile waits for queued work, so every event began after that.
    """
    return Profile(limit)


def start_profile(limit: int = LIMIT) -> Profile:
    """Profile the process from now on until `finalize_profile`, as HAL_PROFILE=1 does from the
    first device on. Raises: InvalidState when it was started before."""
    global _process_profile
    started = Profile(limit)
    _wait_for_all()
    try:
        with _lock:
            if _process_profile is not None and _process_profile._result is None:
                problem = "the profile of the process is open already"
                fix = "Call finalize_profile() first."
                raise InvalidState("start_profile", problem, fix=fix)
            started._open()
            _process_profile = started
    except BaseException:
        started._steps.close()
        raise
    return started


def finalize_profile(path: str | PathLike[str] | None = None) -> tuple[ProfileEvent, ...]:
    """Wait for all devices, end the profile of `start_profile` or HAL_PROFILE, return its events.

    With a `path`, write them there too, as `Profile.save` does. A second call returns the same
    events; without a profile there are none. At exit it is called after the devices were closed.
    Raises: as `Profile.save`.
    """
    started = _process_profile or Profile()
    steps: Any = started._steps
    try:
        _wait_for_all(log_failures=True)
    finally:
        with _finalizing:
            if not steps.gi_running:  # else a signal handler asks in the middle
                steps.close()
    if path is not None:
        started.save(path)
    return started.events


class _Range(ContextDecorator, AbstractContextManager[None]):
    """Record an event for each block; one may be entered again, also within itself."""

    def __init__(self, name: str) -> None:
        self._name, self._starts = name, list[int]()

    def __enter__(self) -> None:
        self._starts.append(perf_counter_ns())

    def __exit__(self, *error: object) -> None:
        times = self._starts.pop(), perf_counter_ns()
        record(ProfileRangeEvent, "range", self._name, "", times)


def profile_range(name: str) -> AbstractContextManager[None]:
    """`with hal.profile_range("step 3"):` records one event that spans the block, on the host.

    Raises: InvalidArgument for a name that is no text.
    """
    given: object = name
    if not isinstance(given, str):
        fix = 'Write hal.profile_range("step 3").'
        raise InvalidArgument("profile_range", "the name is no text", got=given, fix=fix)
    return _Range(name)


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


# -- called by the core, outside of its hot paths


def device_made(wanted: str) -> None:
    """Open the profile of the process at its first device; `wanted` is what HAL_PROFILE says."""
    global _process_profile
    with _lock:
        if _process_profile is None:
            made = Profile()
            try:
                made._open()
                path = "" if wanted == "1" else os.path.abspath(wanted)
                if path:  # to import it at exit would hide from Python that Ctrl-C came
                    import hal_core.profiling.trace  # noqa: F401
                atexit.register(_finalize_at_exit, path, os.getpid())
                _process_profile = made
            except BaseException:
                made._steps.close()
                raise


def _finalize_at_exit(path: str, process: int) -> None:
    if process != os.getpid():  # a forked child: the file is its parent's
        return
    finalize_profile()
    problem = saved_elsewhere(_process_profile, path) if path and _process_profile else ""
    if problem:
        # The program is over, and no handler of `logging` may be there to say it.
        with concurrency.suppress(AttributeError, OSError, ValueError):  # without a stderr
            sys.stderr.write(f"hal: {problem}\n")


def saved_elsewhere(profile: Profile, path: str) -> str:
    """Write a trace; where that fails, into a folder for temporary files, and say so.

    Returns what to say: nothing, when the trace is where it was asked for.
    """
    try:
        profile.save(path)
        return ""
    except HalError as error:
        problem = str(error)
    with concurrency.suppress(OSError):
        other = os.path.join(tempfile.mkdtemp(prefix="hal-profile-"), os.path.basename(path))
        profile.save(other)
        return f"{problem} The trace is in {other}"
    return problem


def device_changed(device: Compiled) -> None:
    """Record what a new allocator or program of the device does, if a profile is open."""
    with _lock:
        if events.open_profiles:
            instrumentation.instrument_device(device)
