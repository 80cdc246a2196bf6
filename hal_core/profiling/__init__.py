"""Profiles: the times of allocations, copies, compilations, launches and the user's ranges."""

from __future__ import annotations

from hal_core.profiling.clock_samples import ClockSamples
from hal_core.profiling.events import (
    ProfileDeviceEvent,
    ProfileEvent,
    ProfileProgramEvent,
    ProfileRangeEvent,
)
from hal_core.profiling.host_clock import HostClock, Times
from hal_core.profiling.session import (
    Profile,
    allocator_made,
    compiled,
    device_made,
    finalize_profile,
    on_switch,
    profile,
    profile_range,
    program_loaded,
    start_profile,
)

__all__ = [
    "ClockSamples", "HostClock", "Profile", "ProfileDeviceEvent", "ProfileEvent",
    "ProfileProgramEvent", "ProfileRangeEvent", "Times", "allocator_made", "compiled",
    "device_made", "finalize_profile", "on_switch", "profile", "profile_range", "program_loaded",
    "start_profile",
]  # fmt: skip
