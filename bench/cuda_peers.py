"""Launches of the same PTX through other libraries for NVIDIA GPUs."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.measure import Task, call

Launch = Callable[[str, str, int, int, int], Task]  # text, entry, device, count, batch


def cupy(text: str, entry: str, index: int, count: int, batch: int) -> Task:
    """Launch a RawModule's kernel. PTX comes from a file: CuPy compiles text as CUDA C++."""
    import cupy as cp

    cp.cuda.Device(index).use()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.ptx")
        path.write_text(text, encoding="ascii")
        kernel = cp.RawModule(path=str(path)).get_function(entry)
    arrays = [cp.ones(count, np.float32) for _ in range(3)]
    names = {"kernel": kernel, "turns": range(batch), "grid": (1,), "block": (count,)}
    names |= {"arguments": (*arrays, np.int32(count))}
    statement = "for _ in turns: kernel(grid, block, arguments)"
    return Task(statement, names, batch, cp.cuda.get_current_stream().synchronize)


def cuda_core(text: str, entry: str, index: int, count: int, batch: int) -> Task:
    from cuda.core import Device, LaunchConfig, ObjectCode, launch

    device = Device(index)
    device.set_current()
    stream = device.create_stream()
    kernel = ObjectCode.from_ptx(text.encode()).get_kernel(entry)
    buffers = [device.allocate(4 * count, stream=stream) for _ in range(3)]
    names = {
        "launch": launch, "turns": range(batch), "stream": stream, "kernel": kernel,
        "config": LaunchConfig(grid=1, block=count), "n": np.int32(count),
        **dict(zip("cab", buffers, strict=True)),
    }  # fmt: skip
    statement = "for _ in turns: launch(stream, config, kernel, c, a, b, n)"
    return Task(statement, names, batch, stream.sync)


def pycuda(text: str, entry: str, index: int, count: int, batch: int) -> Task:
    """Launch by a prepared call, PyCUDA's fastest."""
    import pycuda.driver as driver

    driver.init()
    context = driver.Device(index).retain_primary_context()
    context.push()  # PyCUDA makes its objects in this context
    try:
        kernel = driver.module_from_buffer(text.encode() + b"\0").get_function(entry)
        kernel.prepare("PPPi")
        stream = driver.Stream()
        memory = [driver.mem_alloc(4 * count) for _ in range(3)]
    finally:
        context.pop()  # else PyCUDA aborts the process when it ends
        atexit.register(context.detach)
    names = {"kernel": kernel, "turns": range(batch), "stream": stream, "n": count}
    names |= {"grid": (1, 1), "block": (count, 1, 1)} | dict(zip("cab", memory, strict=True))
    statement = "for _ in turns: kernel.prepared_async_call(grid, block, stream, c, a, b, n)"
    return Task(statement, names | {"owner": context}, batch, stream.synchronize)


LAUNCHES: dict[str, Launch] = {"CuPy RawKernel": cupy, "cuda.core": cuda_core, "PyCUDA": pycuda}


def cupy_matmul(index: int, size: int) -> Task:
    """Multiply by cuBLAS, all in float32: CuPy does not use TF32 unless asked."""
    import cupy as cp

    cp.cuda.Device(index).use()
    a, b = (cp.random.random((size, size), dtype=np.float32) for _ in "ab")
    c = cp.empty_like(a)
    stream = cp.cuda.get_current_stream()

    def run() -> None:
        cp.matmul(a, b, out=c)
        stream.synchronize()

    return call(run)
