"""The software runtime's functions for tests: failures, delays, counts."""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any

SYSTEM = os.environ.get("HAL_TEST_HIP") == "system"  # the machine's own runtime is tested
_ASKED = ("hipGetErrorName", "hipGetErrorString", "run")  # no calls of a program


class Runtime:
    """Control of the software runtime."""

    def __init__(self, library: Any) -> None:
        self.library = library
        for name in ("sim_all_calls", "sim_live", "sim_stale"):
            getattr(library, name).restype = ctypes.c_char_p

    def fail(self, call: str, code: int, nth: int = 1) -> None:
        """Let the nth next call of that name return `code`; "run" is a kernel on the device."""
        self.library.sim_fail(call.encode(), ctypes.c_uint64(nth), code)

    def shuffle(self, seed: int) -> None:
        """Let streams take turns in an order by chance; 0: each goes on as soon as it can."""
        self.library.sim_shuffle(ctypes.c_uint64(seed))

    def delay(self, call: str, seconds: float) -> None:
        """Make each call of that name slower; of a launch, the kernel on the device."""
        self.library.sim_delay(call.encode(), ctypes.c_uint64(int(seconds * 1e6)))

    def capture(self, stream: int = 0) -> int:
        """Let another library capture a stream in global mode; 0 ends that.

        Returns the number of calls that have made the last capture invalid.
        """
        self.library.sim_capture.restype = ctypes.c_uint
        return int(self.library.sim_capture(ctypes.c_void_p(stream)))

    def clear(self) -> None:
        """Forget all failures, delays and captures."""
        self.library.sim_clear()
        self.capture()

    def set_device(self, index: int) -> None:
        """Change this thread's device, as another library may do without our knowledge."""
        code = self.library.hipSetDevice(index)
        if code:
            raise RuntimeError(f"hipSetDevice gave {code}")

    def all_calls(self) -> dict[str, int]:
        rows = (line.split() for line in self.library.sim_all_calls().decode().splitlines())
        return {name: int(count) for name, count in rows if name not in _ASKED}

    def calls_since(self, before: dict[str, int]) -> dict[str, int]:
        counts = {name: n - before.get(name, 0) for name, n in self.all_calls().items()}
        return {name: count for name, count in counts.items() if count}

    def stale(self) -> dict[str, int]:
        """Count the calls that were given a handle of what is gone, by name."""
        rows = (line.split() for line in self.library.sim_stale().decode().splitlines())
        return {name: int(count) for name, count in rows}

    def live(self) -> dict[str, int]:
        """Count the runtime's objects, those that were destroyed with their context left out."""
        found: dict[str, int] = json.loads(self.library.sim_live())
        return {name: count for name, count in found.items() if count and name != "abandoned"}
