"""The software driver's functions for tests: failures, delays, counts."""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any

SYSTEM = os.environ.get("HAL_TEST_CUDA") == "system"  # the machine's own driver is tested
_ASKED = ("cuGetProcAddress", "cuGetErrorString", "run")  # no calls of a program


class Simulator:
    """Control of the software driver."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def fail(self, call: str, code: int, nth: int = 1) -> None:
        """Let the nth next call of that name return `code`; "run" is a kernel on the device."""
        self.driver.sim_fail(call.encode(), ctypes.c_uint64(nth), code)

    def delay(self, call: str, seconds: float) -> None:
        """Make each call of that name slower; of a launch, the kernel on the device."""
        self.driver.sim_delay(call.encode(), ctypes.c_uint64(int(seconds * 1e6)))

    def keep_faults(self, on: bool) -> None:
        """Let a fault stay with the process, in new contexts too; False ends that."""
        self.driver.sim_sticky(int(on))

    def read_late(self, on: bool) -> None:
        """Let copies read pageable memory when their turn comes, after the call has returned."""
        self.driver.sim_read_late(int(on))

    def shuffle(self, seed: int) -> None:
        """Let streams take turns in an order by chance; 0: each goes on as soon as it can."""
        self.driver.sim_shuffle(ctypes.c_uint64(seed))

    def capture(self, stream: int = 0) -> int:
        """Let another library capture a stream in global mode; 0 ends that.

        Returns the number of calls that have made the last capture invalid.
        """
        self.driver.sim_capture.restype = ctypes.c_uint
        return int(self.driver.sim_capture(ctypes.c_void_p(stream)))

    def clear(self) -> None:
        """Forget all failures, delays and captures, and the order by chance."""
        self.driver.sim_clear()
        self.capture()
        self.shuffle(0)

    def set_context(self, handle: int) -> None:
        """Change this thread's context, as another library may do without our knowledge."""
        self._must("cuCtxSetCurrent", ctypes.c_void_p(handle))

    def retain_contexts(self, count: int) -> None:
        """Retain the primary contexts of that many devices."""
        for index in range(count):
            context = ctypes.c_void_p()
            self._must("cuDevicePrimaryCtxRetain", ctypes.byref(context), index)

    def release_contexts(self, count: int, first: int = 0) -> None:
        for index in range(first, first + count):
            self._must("cuDevicePrimaryCtxRelease_v2", index)

    def _must(self, call: str, *arguments: Any) -> None:
        code = getattr(self.driver, call)(*arguments)
        if code:
            raise RuntimeError(f"{call} gave {code}")

    def all_calls(self) -> dict[str, int]:
        self.driver.sim_all_calls.restype = ctypes.c_char_p
        rows = (line.split() for line in self.driver.sim_all_calls().decode().splitlines())
        return {name: int(count) for name, count in rows if name not in _ASKED}

    def calls_since(self, before: dict[str, int]) -> dict[str, int]:
        counts = {name: n - before.get(name, 0) for name, n in self.all_calls().items()}
        return {name: count for name, count in counts.items() if count}

    def stale(self) -> dict[str, int]:
        """Count the calls that were given a destroyed handle; a real driver may crash in them."""
        self.driver.sim_stale.restype = ctypes.c_char_p
        rows = (line.split() for line in self.driver.sim_stale().decode().splitlines())
        return {name: int(count) for name, count in rows}

    def live(self) -> dict[str, int]:
        """Count the driver's objects; "abandoned" ones were destroyed with their context."""
        self.driver.sim_live.restype = ctypes.c_char_p
        found: dict[str, int] = json.loads(self.driver.sim_live())
        return found
