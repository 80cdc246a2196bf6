"""What a profile is made of: one frozen record an event."""

from __future__ import annotations

from typing import NamedTuple


class ProfileEvent(NamedTuple):
    """Something that took time.

    Units: nanoseconds of `time.perf_counter_ns`, whichever device did it.
    """

    kind: str
    name: str  # of the kernel or the range; else the kind
    device: str  # canonical name; empty for a range
    start_ns: int
    end_ns: int
    nbytes: int  # of memory, or of a compiled kernel; 0 for a launch and a range
    thread: int  # `threading.get_ident()` of who asked for it

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.end_ns - self.start_ns) * 1e-9


class ProfileDeviceEvent(ProfileEvent):
    """Memory: "alloc", "free", "copyin", "copyout", "copy" (device to device), "fill".

    Allocations and frees are times of the host, copies and fills of the device.
    """

    __slots__ = ()


class ProfileProgramEvent(ProfileEvent):
    """Kernels: "launch", a time of the device; "compile", and "reuse" where the compile cache had
    the binary, times of the host."""

    __slots__ = ()


class ProfileRangeEvent(ProfileEvent):
    """What ran inside `with hal.profile_range(name):`, as the host saw it; kind "range"."""

    __slots__ = ()
