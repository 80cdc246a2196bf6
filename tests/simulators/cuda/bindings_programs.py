"""Programs over unmodified cuda-bindings: `python bindings_programs.py NAME` runs one.

Each ends with nothing left alive in the driver, and says so by ending well.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

import numpy as np
from cuda.bindings import driver as cu
from cuda.bindings import nvrtc

SAXPY = b"""
extern "C" __global__ void saxpy(float a, const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""
# The sum of a block, by shared memory and then by shuffles.
SUM = b"""
extern "C" __global__ void sum(const float *x, float *out) {
    __shared__ float part[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float value = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int step = 16; step; step /= 2) value += __shfl_down_sync(~0u, value, step);
    if (lane == 0) part[warp] = value;
    __syncthreads();
    if (warp) return;
    value = lane < blockDim.x / 32 ? part[lane] : 0;
    for (int step = 16; step; step /= 2) value += __shfl_down_sync(~0u, value, step);
    if (lane == 0) atomicAdd(out, value);
}
"""
SIM = ctypes.CDLL("libcuda.so.1")
SIM.sim_live.restype = ctypes.c_char_p


class Failed(Exception):
    """A call gave this code."""


def expect(holds: object, *seen: object) -> None:
    if not holds:
        raise AssertionError(seen)


def ck(answer: tuple[Any, ...]) -> Any:
    code, *values = answer
    if int(code):
        raise Failed(int(code))
    return values[0] if len(values) == 1 else tuple(values)


def compiled(source: bytes) -> bytes:
    program = ck(nvrtc.nvrtcCreateProgram(source, b"kernel.cu", 0, [], []))
    ck(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_80"]))
    ptx = b" " * ck(nvrtc.nvrtcGetPTXSize(program))
    ck(nvrtc.nvrtcGetPTX(program, ptx))
    nvrtc.nvrtcDestroyProgram(program)
    return ptx


def nothing_lives(*when: object) -> None:
    live = {name: n for name, n in json.loads(SIM.sim_live()).items() if n}
    expect(live == {}, live, *when)


def run_saxpy(ptx: bytes, count: int = 5000) -> None:
    """Of one device, with an undo for each step: so that a failure anywhere leaves nothing."""
    undo: list[Any] = []

    def later(function: Any, *arguments: Any) -> None:
        undo.append(lambda: ck(function(*arguments)))

    try:
        device = ck(cu.cuDeviceGet(0))
        context = ck(cu.cuDevicePrimaryCtxRetain(device))
        later(cu.cuDevicePrimaryCtxRelease, device)
        ck(cu.cuCtxSetCurrent(context))
        stream = ck(cu.cuStreamCreate(0))
        later(cu.cuStreamDestroy, stream)
        start = ck(cu.cuEventCreate(0))
        later(cu.cuEventDestroy, start)
        end = ck(cu.cuEventCreate(0))
        later(cu.cuEventDestroy, end)
        module = ck(cu.cuModuleLoadData(ptx))
        later(cu.cuModuleUnload, module)
        function = ck(cu.cuModuleGetFunction(module, b"saxpy"))
        x, y = np.arange(count, dtype=np.float32), np.ones(count, np.float32)
        near = ck(cu.cuMemAlloc(x.nbytes))
        later(cu.cuMemFree, near)
        far = ck(cu.cuMemAlloc(y.nbytes))
        later(cu.cuMemFree, far)
        ck(cu.cuMemcpyHtoDAsync(near, x.ctypes.data, x.nbytes, stream))
        ck(cu.cuMemcpyHtoDAsync(far, y.ctypes.data, y.nbytes, stream))
        arguments = (2.0, near, far, count), (ctypes.c_float, None, None, ctypes.c_int)
        ck(cu.cuEventRecord(start, stream))
        grid = -(-count // 256)
        ck(cu.cuLaunchKernel(function, grid, 1, 1, 256, 1, 1, 0, stream, arguments, 0))
        ck(cu.cuEventRecord(end, stream))
        ck(cu.cuMemcpyDtoHAsync(y.ctypes.data, far, y.nbytes, stream))
        ck(cu.cuStreamSynchronize(stream))
        expect(ck(cu.cuEventElapsedTime(start, end)) > 0)
        np.testing.assert_array_equal(y, 2 * x + 1)
    finally:
        for step in reversed(undo):
            step()


def saxpy() -> None:
    ck(cu.cuInit(0))
    run_saxpy(compiled(SAXPY))
    nothing_lives()


# What run_saxpy calls on the way up; on the way down a failure would leave what it could not free.
STEPS = (
    "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuStreamCreate", "cuEventCreate",
    "cuModuleLoadData", "cuModuleGetFunction", "cuMemAlloc", "cuMemcpyHtoDAsync", "cuEventRecord",
    "cuLaunchKernel", "cuMemcpyDtoHAsync", "cuStreamSynchronize", "cuEventElapsedTime",
)  # fmt: skip


def failures() -> None:
    ck(cu.cuInit(0))
    ptx = compiled(SAXPY)
    for name in STEPS:
        for nth in (1, 2):
            SIM.sim_fail(name.encode(), ctypes.c_uint64(nth), 999)
            try:
                run_saxpy(ptx)
            except Failed as failed:
                expect(failed.args == (999,), name, failed)
            else:
                expect(nth == 2, name)
            SIM.sim_clear()
            nothing_lives(name, nth)


def reduction() -> None:
    ck(cu.cuInit(0))
    ck(cu.cuCtxSetCurrent(ck(cu.cuDevicePrimaryCtxRetain(0))))
    module = ck(cu.cuModuleLoadData(compiled(SUM)))
    x = np.arange(4096, dtype=np.float32)
    memory, out = ck(cu.cuMemAlloc(x.nbytes)), ck(cu.cuMemAlloc(4))
    ck(cu.cuMemcpyHtoD(memory, x.ctypes.data, x.nbytes))
    ck(cu.cuMemsetD32(out, 0, 1))
    function = ck(cu.cuModuleGetFunction(module, b"sum"))
    ck(cu.cuLaunchKernel(function, 16, 1, 1, 256, 1, 1, 0, 0, ((memory, out), (None, None)), 0))
    total = np.zeros(1, np.float32)
    ck(cu.cuMemcpyDtoH(total.ctypes.data, out, 4))
    expect(total[0] == x.sum(), total)
    for address in (memory, out):
        ck(cu.cuMemFree(address))
    ck(cu.cuModuleUnload(module))
    ck(cu.cuDevicePrimaryCtxRelease(0))
    nothing_lives()


def two_devices() -> None:
    ck(cu.cuInit(0))
    contexts = [ck(cu.cuDevicePrimaryCtxRetain(device)) for device in range(2)]
    data, back = np.arange(1000, dtype=np.uint32), np.zeros(1000, np.uint32)
    addresses, streams = [], []
    for context in contexts:
        ck(cu.cuCtxSetCurrent(context))
        addresses.append(ck(cu.cuMemAlloc(data.nbytes)))
        streams.append(ck(cu.cuStreamCreate(1)))
    event = ck(cu.cuEventCreate(2))  # of the second device
    SIM.sim_delay(b"cuMemcpyPeerAsync", ctypes.c_uint64(50_000))
    ck(cu.cuMemcpyHtoD(addresses[0], data.ctypes.data, data.nbytes))
    there, here = (addresses[1], contexts[1]), (addresses[0], contexts[0])
    ck(cu.cuMemcpyPeerAsync(*there, *here, data.nbytes, streams[1]))
    ck(cu.cuEventRecord(event, streams[1]))
    expect(int(cu.cuEventQuery(event)[0]) == 600)
    ck(cu.cuStreamWaitEvent(streams[0], event, 0))
    ck(cu.cuMemsetD32Async(addresses[0], 7, 1000, streams[0]))  # only once it was copied
    for stream in streams:
        ck(cu.cuStreamSynchronize(stream))
    ck(cu.cuMemcpyDtoH(back.ctypes.data, addresses[1], back.nbytes))
    np.testing.assert_array_equal(back, data)
    ck(cu.cuEventDestroy(event))
    for device in range(2):
        ck(cu.cuStreamDestroy(streams[device]))
        ck(cu.cuMemFree(addresses[device]))
        ck(cu.cuDevicePrimaryCtxRelease(device))
    nothing_lives()


def libraries() -> None:
    """As cuda.core works: libraries, kernels, launches with a record, memory from a pool."""
    ck(cu.cuInit(0))
    ck(cu.cuCtxSetCurrent(ck(cu.cuDevicePrimaryCtxRetain(0))))
    library = ck(cu.cuLibraryLoadData(compiled(SAXPY), [], [], 0, [], [], 0))
    kernel = ck(cu.cuLibraryGetKernel(library, b"saxpy"))
    stream = ck(cu.cuStreamCreateWithPriority(1, -1))
    pool = ck(cu.cuDeviceGetDefaultMemPool(0))
    x = ck(cu.cuMemAllocFromPoolAsync(4000, pool, stream))
    y = ck(cu.cuMemAllocAsync(4000, stream))
    for address in (x, y):
        ck(cu.cuMemsetD32Async(address, int(np.float32(1.5).view(np.uint32)), 1000, stream))
    config = cu.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = 4, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = 256, 1, 1
    config.hStream = stream
    arguments = (2.0, x, y, 1000), (ctypes.c_float, None, None, ctypes.c_int)
    ck(cu.cuLaunchKernelEx(config, cu.CUfunction(int(kernel)), arguments, 0))
    out = np.zeros(1000, np.float32)
    ck(cu.cuMemcpyDtoHAsync(out.ctypes.data, y, out.nbytes, stream))
    np.testing.assert_array_equal(out, np.float32(4.5))
    for address in (x, y):
        ck(cu.cuMemFreeAsync(address, stream))
    ck(cu.cuStreamDestroy(stream))
    ck(cu.cuLibraryUnload(library))
    ck(cu.cuDevicePrimaryCtxRelease(0))
    nothing_lives()


def codes() -> None:
    for code in cu.CUresult:
        expect(ck(cu.cuGetErrorName(code)) == code.name.encode(), code)
        expect(ck(cu.cuGetErrorString(code)), code)


def forked() -> None:
    ck(cu.cuInit(0))
    ck(cu.cuCtxSetCurrent(ck(cu.cuDevicePrimaryCtxRetain(0))))
    address = ck(cu.cuMemAlloc(64))
    child = os.fork()
    if child == 0:
        calls = (cu.cuMemFree(address), cu.cuCtxSynchronize(), cu.cuInit(0))
        os._exit(0 if {int(each[0]) for each in calls} == {3} else 1)
    expect(os.waitpid(child, 0)[1] == 0)
    ck(cu.cuMemFree(address))
    ck(cu.cuDevicePrimaryCtxRelease(0))
    nothing_lives()


def no_device() -> None:
    expect(int(cu.cuInit(0)[0]) == 100)


PROGRAMS = (saxpy, failures, reduction, two_devices, libraries, codes, forked, no_device)

if __name__ == "__main__":
    {program.__name__: program for program in PROGRAMS}[sys.argv[1]]()
