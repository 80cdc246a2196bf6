"""The driver's interface through ctypes: plain calls, with nobody's binding between."""

from __future__ import annotations

import ctypes
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

LEGACY = 0
OUT_OF_MEMORY, NOT_INITIALIZED, NOT_READY = 2, 3, 600
# The form that headers mean by the plain name is the newest, but for what came with a new layout.
RENAMED = ("_v3", "_v2", "")
NEWER = ("cuCtxCreate_v3",)


def _argument(value: object) -> object:
    """As a register holds it: the callee takes as many of the bits as it declares."""
    if isinstance(value, int):
        return ctypes.c_uint64(value & (1 << 64) - 1)
    return value


class Calls:
    """Every function as an attribute, which gives the code."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Callable[..., int]:
        for ending in RENAMED:
            if name + ending not in NEWER and hasattr(self._library, name + ending):
                function = getattr(self._library, name + ending)
                return lambda *values: int(function(*map(_argument, values)))
        raise AttributeError(name)


class Driver:
    """The same, where everything but success is an error of the test; and a few short ways."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.code = Calls(self.library)
        for name in ("sim_live", "sim_message", "sim_all_calls", "sim_stale"):
            getattr(self.library, name).restype = ctypes.c_char_p
        self.library.sim_calls.restype = ctypes.c_uint64
        self.contexts: dict[int, int] = {}

    def __getattr__(self, name: str) -> Callable[..., None]:
        call = getattr(self.code, name)

        def checked(*values: object) -> None:
            self.succeed(name, call(*values))

        return checked

    def succeed(self, name: str, code: int) -> None:
        if code:
            raise AssertionError(f"{name} gave {code}: {self.message()}")

    def get(self, name: str, *values: object, kind: Any = ctypes.c_uint64) -> int:
        """What a function writes to its first argument."""
        out = kind(0)
        getattr(self, name)(ctypes.byref(out), *values)
        return int(out.value)

    # -- contexts

    def start(self) -> None:
        self.cuInit(0)
        self.use(0)

    def use(self, device: int) -> int:
        """Makes the device's primary context current."""
        if device not in self.contexts:
            self.contexts[device] = self.get("cuDevicePrimaryCtxRetain", device)
        self.cuCtxSetCurrent(self.contexts[device])
        return self.contexts[device]

    def stop(self) -> None:
        self.code.cuCtxSetCurrent(None)
        for device in self.contexts:
            self.cuDevicePrimaryCtxRelease(device)
        self.contexts = {}

    # -- memory

    def alloc(self, nbytes: int) -> int:
        return self.get("cuMemAlloc", nbytes)

    def read(self, address: int, nbytes: int) -> bytes:
        out = ctypes.create_string_buffer(nbytes)
        self.cuMemcpyDtoH(out, address, nbytes)
        return out.raw

    def words(self, address: int, count: int) -> tuple[int, ...]:
        return struct.unpack(f"{count}I", self.read(address, 4 * count))

    # -- streams, modules, launches

    def stream(self, flags: int = 0) -> int:
        return self.get("cuStreamCreate", flags)

    def event(self, flags: int = 0) -> int:
        return self.get("cuEventCreate", flags)

    def module(self, text: str) -> int:
        return self.get("cuModuleLoadData", text.encode())

    def function(self, module: int, name: str) -> int:
        return self.get("cuModuleGetFunction", module, name.encode())

    def launch_code(
        self,
        function: int,
        *arguments: Any,
        grid: tuple[int, ...] = (1, 1, 1),
        block: tuple[int, ...] = (1, 1, 1),
        shared: int = 0,
        stream: int = LEGACY,
    ) -> int:
        """Arguments are ctypes values; plain numbers are addresses."""
        held = [ctypes.c_uint64(a) if isinstance(a, int) else a for a in arguments]
        pointers = (ctypes.c_void_p * max(1, len(held)))(*(ctypes.addressof(a) for a in held))
        return self.code.cuLaunchKernel(function, *grid, *block, shared, stream, pointers, None)

    def launch(self, function: int, *arguments: Any, **how: Any) -> None:
        self.succeed("cuLaunchKernel", self.launch_code(function, *arguments, **how))

    # -- control

    def live(self, *, zero: bool = True) -> dict[str, int]:
        text = json.loads(self.library.sim_live())
        return {name: count for name, count in text.items() if zero or count}

    def message(self) -> str:
        return str(self.library.sim_message().decode())

    def delay(self, name: str, seconds: float) -> None:
        self.library.sim_delay(name.encode(), ctypes.c_uint64(int(seconds * 1e6)))
