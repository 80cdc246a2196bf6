"""Profiles: the times of allocations, copies, compilations, launches and the user's ranges."""

from __future__ import annotations

from hal_core.profiling.events import (
    ProfileDeviceEvent,
    ProfileEvent,
    ProfileProgramEvent,
    ProfileRangeEvent,
    changed,
    of_thread,
    on_change,
    record,
)
from hal_core.profiling.host_clock import HostClock, Times
from hal_core.profiling.instrumentation import record_queued, source_of
from hal_core.profiling.session import (
    Profile,
    device_changed,
    device_made,
    finalize_profile,
    profile,
    profile_range,
    saved_elsewhere,
    start_profile,
)

__all__ = [
    "HostClock", "Profile", "ProfileDeviceEvent", "ProfileEvent",
    "ProfileProgramEvent", "ProfileRangeEvent", "Times", "changed", "device_changed",
    "device_made", "finalize_profile", "of_thread", "on_change", "profile", "profile_range",
    "record", "record_queued", "saved_elsewhere", "source_of", "start_profile",
]  # fmt: skip
