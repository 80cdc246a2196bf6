"""The floor for CUDA: the driver through cuda-bindings alone."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from cuda.bindings import driver as cu

import hal_core as hal
from bench import cuda_peers
from bench.bare import Bare, Others
from bench.measure import Task

LAUNCH = """
for _ in turns:
    launch(function, 1, 1, 1, threads, 1, 1, 0, stream, params, 0)
"""


def checked(function: Callable[..., tuple[Any, ...]], *arguments: Any) -> Any:
    """Return the result of a driver call. Raises: RuntimeError with the name of its status."""
    status, *results = function(*arguments)
    if status:
        raise RuntimeError(f"{function.__name__} gave {status.name}")
    return results[0] if results else None


class CUDA(Bare):
    """The driver's interface, on the primary context and a stream of its own."""

    name = "cuda-bindings"
    targets: Mapping[str, float] = MappingProxyType({"launch": 0.77, "copy": 0.95, "kernel": 0.9})

    def __init__(self, device: hal.Compiled) -> None:
        self.device = device
        checked(cu.cuInit, 0)
        index = checked(cu.cuDeviceGet, device.index)
        checked(cu.cuCtxSetCurrent, checked(cu.cuDevicePrimaryCtxRetain, index))
        self.stream = checked(cu.cuStreamCreate, 0)

    def wait(self) -> None:
        checked(cu.cuStreamSynchronize, self.stream)

    def ptx(self, kernel: hal.KernelFunction) -> str:
        """Return the PTX that every candidate of a launch runs."""
        (pair,) = (pair for pair in self.device.compilers if pair.name == "ptx")
        text: str = pair.renderer().render(kernel.lower())  # type: ignore[misc]
        return text

    def launch(self, kernel: hal.KernelFunction, count: int, batch: int) -> Task:
        module = checked(cu.cuModuleLoadData, self.ptx(kernel).encode() + b"\0")
        memory = [Memory(4 * count) for _ in range(3)]
        numbers = [ctypes.c_uint64(one.address) for one in memory], ctypes.c_int32(count)
        values = [*numbers[0], numbers[1]]
        table = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        names = {
            "launch": cu.cuLaunchKernel, "turns": range(batch), "threads": count,
            "function": checked(cu.cuModuleGetFunction, module, kernel.name.encode()),
            "stream": self.stream, "params": ctypes.addressof(table),
            "owners": (memory, values, table),
        }  # fmt: skip
        return Task(LAUNCH, names, batch, self.wait)

    def copy_in(self, nbytes: int, pinned: bool) -> Task:
        return Task("copy(there, here, n)", {"copy": cu.cuMemcpyHtoD, **_ends(nbytes, pinned)})

    def copy_out(self, nbytes: int, pinned: bool) -> Task:
        return Task("copy(here, there, n)", {"copy": cu.cuMemcpyDtoH, **_ends(nbytes, pinned)})

    def copier(self, nbytes: int) -> Callable[[], object]:
        ends = Memory(nbytes), Memory(nbytes)
        return lambda: cu.cuMemcpyDtoDAsync(*(one.address for one in ends), nbytes, self.stream)

    def allocate(self, nbytes: int) -> Task:
        names = {"take": cu.cuMemAllocAsync, "give": cu.cuMemFreeAsync, "n": nbytes}
        names |= {"stream": self.stream}
        return Task("give(take(n, stream)[1], stream)", names, after=self.wait)

    def peers(self, kernel: hal.KernelFunction, count: int, batch: int) -> Others:
        text, index = self.ptx(kernel), self.device.index
        return {
            name: lambda make=make: make(text, kernel.name, index, count, batch)  # type: ignore[misc]
            for name, make in cuda_peers.LAUNCHES.items()
        }

    def multiply(self, size: int) -> Others:
        return {"cupy": lambda: cuda_peers.cupy_matmul(self.device.index, size)}


class Memory:
    """Memory of the device, or pinned memory of the host, freed with the object."""

    def __init__(self, nbytes: int, pinned: bool = False) -> None:
        self.free = cu.cuMemFreeHost if pinned else cu.cuMemFree
        call = (cu.cuMemHostAlloc, nbytes, 0) if pinned else (cu.cuMemAlloc, nbytes)
        self.address = int(checked(*call))
        if pinned:
            ctypes.memset(self.address, 1, nbytes)

    def __del__(self) -> None:
        self.free(self.address)


def _ends(nbytes: int, pinned: bool) -> dict[str, object]:
    """Return the two addresses of a copy, and the owners of their memory."""
    there, array = Memory(nbytes), np.ones(0 if pinned else nbytes, np.uint8)
    here = Memory(nbytes, pinned=True) if pinned else None
    address = here.address if here else array.ctypes.data
    return {"there": there.address, "here": address, "n": nbytes, "owners": (there, here, array)}
