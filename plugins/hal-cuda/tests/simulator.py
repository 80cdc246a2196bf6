"""The software driver's own interface."""

from __future__ import annotations

import ctypes
import json
from typing import Any

_ASKED = ("cuGetProcAddress", "cuGetErrorString", "run")  # no calls of a program


class Simulator:
    """What the software driver lets tests do to it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def fail(self, call: str, code: int, nth: int = 1) -> None:
        """The nth next call of that name gives `code`; "run" is a kernel on the device."""
        self.driver.sim_fail(call.encode(), ctypes.c_uint64(nth), code)

    def delay(self, call: str, seconds: float) -> None:
        """Calls of that name take so much longer; of a launch, the kernel on the device."""
        self.driver.sim_delay(call.encode(), ctypes.c_uint64(int(seconds * 1e6)))

    def clear(self) -> None:
        """No failure waits any more, and nothing is slow."""
        self.driver.sim_clear()

    def set_context(self, handle: int) -> None:
        """What another library does on this thread, behind everybody's back."""
        self._must("cuCtxSetCurrent", ctypes.c_void_p(handle))

    def keep_contexts(self, count: int) -> None:
        """The primary contexts of so many devices exist until they are let go."""
        for index in range(count):
            context = ctypes.c_void_p()
            self._must("cuDevicePrimaryCtxRetain", ctypes.byref(context), index)

    def let_contexts_go(self, count: int, first: int = 0) -> None:
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

    def live(self) -> dict[str, int]:
        """What exists in the driver now; "abandoned" is what its context took with it."""
        self.driver.sim_live.restype = ctypes.c_char_p
        found: dict[str, int] = json.loads(self.driver.sim_live())
        return found
