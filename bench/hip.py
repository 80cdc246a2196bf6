"""The floor for HIP: the runtime through ctypes alone, its calls prepared."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

import hal_core as hal
from bench.bare import Bare
from bench.measure import Task
from hal_core.compiler.seal import unseal

LAUNCH = """
for _ in turns:
    launch(function, 1, 1, 1, threads, 1, 1, 0, stream, params, None)
"""


class HIP(Bare):
    """The runtime's interface, on a stream of its own."""

    name = "ctypes"
    targets: Mapping[str, float] = MappingProxyType({"launch": 0.77, "copy": 0.95, "kernel": 0.9})

    def __init__(self, device: hal.Compiled) -> None:
        self.device = device
        self.library: ctypes.PyDLL = device.api.library  # type: ignore[attr-defined]
        self("hipSetDevice", device.index)
        self.stream = self.made("hipStreamCreateWithFlags", 0)

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call a function. Raises: RuntimeError with its status."""
        status = getattr(self.library, name)(*arguments)
        if status:
            raise RuntimeError(f"{name} gave {status}")

    def made(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        """Call a function that makes something, and return the handle."""
        handle = ctypes.c_void_p()
        self(name, ctypes.byref(handle), *arguments)
        return handle

    def wait(self) -> None:
        self("hipStreamSynchronize", self.stream)

    def launch(self, kernel: hal.KernelFunction, count: int, batch: int) -> Task:
        binary = self.device.compile(kernel).binary
        _, code = unseal("hal-hip 1", binary.image, "load", self.device.name)
        module = self.made("hipModuleLoadData", code)
        memory = [Memory(self, 4 * count) for _ in range(3)]
        values = [*(one.address for one in memory), ctypes.c_int32(count)]
        table = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        names = {
            "launch": self.library.hipModuleLaunchKernel, "turns": range(batch), "threads": count,
            "function": self.made("hipModuleGetFunction", module, kernel.name.encode()),
            "stream": self.stream, "params": table, "owners": (memory, values, module),
        }  # fmt: skip
        return Task(LAUNCH, names, batch, self.wait)

    def copy_in(self, nbytes: int, pinned: bool) -> Task:
        names = {"copy": self.library.hipMemcpyHtoD, **self._ends(nbytes, pinned)}
        return Task("copy(there, here, n)", names)

    def copy_out(self, nbytes: int, pinned: bool) -> Task:
        names = {"copy": self.library.hipMemcpyDtoH, **self._ends(nbytes, pinned)}
        return Task("copy(here, there, n)", names)

    def copier(self, nbytes: int) -> Callable[[], object]:
        ends, size = [Memory(self, nbytes) for _ in range(2)], ctypes.c_size_t(nbytes)
        queue = self.library.hipMemcpyDtoDAsync
        return lambda: queue(*(one.address for one in ends), size, self.stream)

    def allocate(self, nbytes: int) -> Task:
        place = ctypes.c_void_p()
        names: dict[str, object] = {
            "take": self.library.hipMallocAsync, "give": self.library.hipFreeAsync,
            "place": place, "at": ctypes.byref(place), "n": ctypes.c_size_t(nbytes),
            "stream": self.stream,
        }  # fmt: skip
        return Task("take(at, n, stream); give(place, stream)", names, after=self.wait)

    def _ends(self, nbytes: int, pinned: bool) -> dict[str, object]:
        """Return the two addresses of a copy, and the owners of their memory."""
        there, array = Memory(self, nbytes), np.ones(0 if pinned else nbytes, np.uint8)
        here = Memory(self, nbytes, pinned=True) if pinned else None
        address = here.address if here else ctypes.c_void_p(array.ctypes.data)
        owners = there, here, array
        size = ctypes.c_size_t(nbytes)
        return {"there": there.address, "here": address, "n": size, "owners": owners}


class Memory:
    """Memory of the device, or pinned memory of the host, freed with the object."""

    def __init__(self, runtime: HIP, nbytes: int, pinned: bool = False) -> None:
        make, free = ("hipHostMalloc", "hipHostFree") if pinned else ("hipMalloc", "hipFree")
        self.runtime, self.end = runtime, free
        flags = (0,) if pinned else ()
        self.address = runtime.made(make, ctypes.c_size_t(nbytes), *flags)
        if pinned:
            ctypes.memset(self.address, 1, nbytes)

    def __del__(self) -> None:
        getattr(self.runtime.library, self.end)(self.address)
