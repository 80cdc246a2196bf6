"""The same kernels by hal-opencl and as OpenCL C by hand, through PyOpenCL on the same device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import hal_core as hal
from bench import kernels, programs
from bench.measure import OURS, Effort, Task, compare
from bench.peers import Peers
from bench.programs import Example
from bench.report import Missing, Row, beside

_TEXTS = {
    "saxpy": """
__kernel void saxpy(__global float *y, __global const float *x, float a, int n) {
    int i = get_global_id(0);
    if (i < n) y[i] = a * x[i] + y[i];
}
""",
    "heat": """
__kernel void heat(__global float *y, __global const float *x, float a, int w, int h) {
    int i = get_global_id(0), j = get_global_id(1);
    if (0 < i && i < w - 1 && 0 < j && j < h - 1) {
        int c = j * w + i;
        y[c] = x[c] + a * (x[c - 1] + x[c + 1] + x[c - w] + x[c + w] - 4.0f * x[c]);
    }
}
""",
    "sine": """
__kernel void sine(__global float *y, __global const float *x, int n) {
    int i = get_global_id(0);
    if (i < n) y[i] = sin(x[i]);
}
""",
    "accelerate": """
__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void accelerate(__global float *a, __global const float *p, int n, float soft) {
    __local float near[4][256];
    int i = get_global_id(0), t = get_local_id(0);
    float x = p[i], y = p[n + i], z = p[2 * n + i], ax = 0, ay = 0, az = 0;
    for (int first = 0; first < n; first += 256) {
        for (int c = 0; c < 4; c++) near[c][t] = p[c * n + first + t];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < 256; k++) {
            float dx = near[0][k] - x, dy = near[1][k] - y, dz = near[2][k] - z;
            float inverse = rsqrt(dx * dx + dy * dy + dz * dz + soft);
            float pull = near[3][k] * inverse * inverse * inverse;
            ax += dx * pull;
            ay += dy * pull;
            az += dz * pull;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    a[i] = ax;
    a[n + i] = ay;
    a[2 * n + i] = az;
}
""",
}


def rows(effort: Effort) -> Iterator[Row | Missing]:
    for example in (saxpy(), programs.heat_of(4096, 2048), sines(), programs.n_body()):
        yield beside_pyopencl(example, effort)
    yield from queued(effort)


# What a queue does, as hal and PyOpenCL spell it, and how often in one measurement.
_QUEUED = (
    ("launch and event", 1 / 0.9, 64,
     "program(y, x, 2.0, n, threads=n, queue=queue); queue.record()",
     "kernel(commands, (n,), None, cl_y, cl_x, a, cl_n)"),
    ("4 KiB up and wait", 1 / 1.1, 1, "y.copyin(small, queue=queue).wait()",
     "copy(commands, cl_y, small)"),
    ("1 MiB down and wait", 1 / 1.1, 1, "x.copyout(large, queue=queue).wait()",
     "copy(commands, large, cl_x)"),
)  # fmt: skip


def queued(effort: Effort) -> Iterator[Row | Missing]:
    """Measure work of a queue, of which one gets an event, beside that of a command queue."""
    n = 1 << 10
    arrays = small, large = np.ones(n, "f4"), np.ones(256 * n, "f4")
    example = Example("", kernels.saxpy, kernels.saxpy, arrays, (1e-9, n), n)
    try:
        commands, kernel, memory = _built(example)
        import pyopencl as cl
    except Exception as error:  # a foreign package may raise anything
        yield Missing("hal-opencl, work of a queue", f"PyOpenCL: {error}".splitlines()[0])
        return
    y, x = (hal.Buffer.from_numpy(array, "OPENCL") for array in arrays)
    queue, program = hal.Device["OPENCL"].queue(), hal.Device["OPENCL"].compile(example.kernel)
    names = dict(locals()) | {"cl_n": np.int32(n), "a": np.float32(2), "copy": cl.enqueue_copy}
    names |= dict(zip(("cl_y", "cl_x"), memory, strict=True))
    for what, target, batch, *statements in _QUEUED:
        ours, its = (f"for _ in range({batch}): {text}" for text in statements)
        tasks = {OURS: Task(ours, names, batch, queue.synchronize)}
        tasks["PyOpenCL"] = Task(its, names, batch, commands.finish)
        yield beside(f"hal-opencl, queue, {what}", compare(tasks, effort), "PyOpenCL", target)


def saxpy() -> Example:
    n = 4 << 20
    arrays = np.ones(n, "f4"), np.ones(n, "f4")
    return Example("saxpy of 4 Mi", kernels.saxpy, kernels.saxpy, arrays, (1e-9, n), n)


@hal.kernel
def sine(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32], n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = hal.sin(x[i])


def sines() -> Example:
    n = 1 << 20
    arrays = np.zeros(n, "f4"), np.linspace(0.1, 100, n, dtype="f4")
    return Example("sine of 1 Mi float32", sine, sine, arrays, (n,), n)


def beside_pyopencl(example: Example, effort: Effort) -> Row | Missing:
    what = f"hal-opencl, {example.what}, beside PyOpenCL's"
    results: dict[str, Any] = {}
    peers = Peers(
        hal=lambda: programs.on("OPENCL", example, results),
        PyOpenCL=lambda: _pyopencl(example, results),
    )
    if peers.reasons:
        return Missing(what, next(iter(peers.reasons.values())))
    if not np.allclose(results["OPENCL"], results["PyOpenCL"], rtol=1e-3, atol=1e-4):
        raise ValueError(f"{example.what}: the results differ")
    times = compare(peers.tasks, Effort(max(5, effort.rounds // 4), 2 * effort.seconds))
    return beside(what, times, "PyOpenCL", 1.0, ours=OURS)


def _built(example: Example) -> tuple[Any, Any, list[Any]]:
    """Return a command queue, the kernel by hand and its memory."""
    import pyopencl as cl

    name = example.kernel.name
    queue = cl.CommandQueue(cl.Context([cl.get_platforms()[0].get_devices()[0]]))
    kernel = getattr(cl.Program(queue.context, _TEXTS[name]).build(), name)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    memory = [cl.Buffer(queue.context, flags, hostbuf=array) for array in example.arrays]
    return queue, kernel, memory


def _pyopencl(example: Example, results: dict[str, Any]) -> Task:
    import pyopencl as cl

    queue, kernel, memory = _built(example)
    vals = [np.float32(v) if isinstance(v, float) else np.int32(v) for v in example.vals]
    kernel.set_args(*memory, *vals)
    threads = example.threads if isinstance(example.threads, tuple) else (example.threads,)
    block = example.kernel.lower().block
    local = block and block[: len(threads)]

    def run() -> None:
        cl.enqueue_nd_range_kernel(queue, kernel, threads, local)
        queue.finish()

    run()
    result = np.empty_like(example.arrays[0])
    cl.enqueue_copy(queue, result, memory[0])
    results["PyOpenCL"] = result
    return Task("function()", {"function": run, "owners": memory})
