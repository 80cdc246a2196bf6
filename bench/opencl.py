"""The floor for OpenCL: the driver through pyopencl alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pyopencl as cl

import hal_core as hal
from bench.bare import Bare
from bench.measure import Task
from hal_opencl.render import OpenCLRenderer

LAUNCH = "for _ in turns: launch(queue, kernel, threads, threads)"
_flags = cl.mem_flags


class OpenCL(Bare):
    """The driver's interface, in a context of its own."""

    name = "pyopencl"
    targets: Mapping[str, float] = MappingProxyType({})

    def __init__(self, device: Any) -> None:  # OpenCLDevice: this file imports no backend
        self.queue = cl.CommandQueue(cl.Context([device.hardware]))

    def memory(self, nbytes: int, flags: int = 0) -> cl.Buffer:
        return cl.Buffer(self.queue.context, _flags.READ_WRITE | flags, nbytes)

    def launch(self, kernel: hal.KernelFunction, count: int, batch: int) -> Task:
        text = OpenCLRenderer().render(kernel.lower())
        built = getattr(cl.Program(self.queue.context, text).build(), kernel.name)
        memory = [self.memory(4 * count) for _ in range(3)]
        with_offsets = (part for one in memory for part in (one, np.int64(0)))
        built.set_args(*with_offsets, np.int32(count))
        names: dict[str, Any] = {"launch": cl.enqueue_nd_range_kernel, "turns": range(batch)}
        names |= {"queue": self.queue, "kernel": built, "threads": (count,), "owners": memory}
        return Task(LAUNCH, names, batch, self.wait)

    def copy_in(self, nbytes: int, pinned: bool) -> Task:
        names = {"copy": cl.enqueue_copy, "queue": self.queue, "there": self.memory(nbytes)}
        names |= {"here": self.host(nbytes, pinned)}
        return Task("copy(queue, there, here)", names)

    def copy_out(self, nbytes: int, pinned: bool) -> Task:
        names = {"copy": cl.enqueue_copy, "queue": self.queue, "there": self.memory(nbytes)}
        names |= {"here": self.host(nbytes, pinned)}
        return Task("copy(queue, here, there)", names)

    def host(self, nbytes: int, pinned: bool) -> Any:
        if not pinned:
            return np.ones(nbytes, np.uint8)
        memory = self.memory(nbytes, _flags.ALLOC_HOST_PTR)
        flags = cl.map_flags.READ | cl.map_flags.WRITE
        enqueue: Any = cl.enqueue_map_buffer  # its annotations do not fit every numpy
        mapped, _ = enqueue(self.queue, memory, flags, 0, (nbytes,), np.uint8)
        mapped.fill(1)
        return mapped

    def copier(self, nbytes: int) -> Callable[[], object]:
        dest, source = self.memory(nbytes), self.memory(nbytes)
        return lambda: cl.enqueue_copy(self.queue, dest, source, byte_count=nbytes)

    def wait(self) -> None:
        self.queue.finish()

    def allocate(self, nbytes: int) -> Task:
        return Task("memory(n).release()", {"memory": self.memory, "n": nbytes})
