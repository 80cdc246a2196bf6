"""Compile times of six kernels without a cache, beside clang for the same loops by hand.

The time of clang has the start of one process for each, about half of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import hal_core as hal
from bench import costs, kernels
from bench.kernels import Array, Input
from bench.measure import OURS, Effort, call, compare
from bench.report import Missing, Row, beside


@hal.kernel
def softmax(y: Array, x: Input, w: hal.int32, h: hal.int32) -> None:
    j = hal.global_idx(0)
    if j < h:
        largest = x[j * w]
        for k in range(1, w):
            largest = max(largest, x[j * w + k])
        total = hal.float32(0)
        for k in range(w):
            y[j * w + k] = hal.exp(x[j * w + k] - largest)
            total += y[j * w + k]
        for k in range(w):
            y[j * w + k] /= total


@hal.kernel
def mandelbrot(y: hal.Ptr[hal.int32], w: hal.int32, h: hal.int32, step: hal.float32) -> None:
    i = hal.global_idx(0)
    j = hal.global_idx(1)
    if i < w and j < h:
        a, b, n = hal.float32(0), hal.float32(0), 0
        while n < 200 and a * a + b * b <= 4.0:
            a, b = a * a - b * b + hal.float32(i) * step - 2.0, 2.0 * a * b + hal.float32(j) * step
            n += 1
        y[j * w + i] = n


@hal.kernel
def pull(y: Array, p: Input, n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        ax, ay, az = hal.float32(0), hal.float32(0), hal.float32(0)
        for k in range(n):
            dx, dy = p[4 * k] - p[4 * i], p[4 * k + 1] - p[4 * i + 1]
            dz = p[4 * k + 2] - p[4 * i + 2]
            square = dx * dx + dy * dy + dz * dz + 0.01
            by = p[4 * k + 3] / (square * hal.sqrt(square))
            ax, ay, az = ax + by * dx, ay + by * dy, az + by * dz
        y[3 * i], y[3 * i + 1], y[3 * i + 2] = ax, ay, az


# fmt: off
BY_HAND = (
    (kernels.saxpy, "void f(float *y, const float *x, float a, int n) {"
     "for (int i = 0; i < n; i++) y[i] = a * x[i] + y[i]; }"),
    (softmax, "void f(float *y, const float *x, int w, int h) { for (int j = 0; j < h; j++) {"
     "float m = x[j * w], t = 0; for (int k = 1; k < w; k++) m = fmaxf(m, x[j * w + k]);"
     "for (int k = 0; k < w; k++) t += y[j * w + k] = expf(x[j * w + k] - m);"
     "for (int k = 0; k < w; k++) y[j * w + k] /= t; } }"),
    (costs.make_blur(False), "void f(float *y, const float *x, int w, int h) {"
     "for (int j = 1; j < h - 1; j++) for (int i = 1; i < w - 1; i++) { float t = 0;"
     "for (int b = -1; b < 2; b++) for (int a = -1; a < 2; a++) t += x[(j + b) * w + i + a];"
     "y[j * w + i] = t; } }"),
    (costs.strided_sums, "void f(float *y, const float *x, int n) {"
     "for (int i = 0; i < 256; i++) { float t = 0; for (int k = i; k < n; k += 256) t += x[k];"
     "y[i] = t; } }"),
    (mandelbrot, "void f(int *y, int w, int h, float s) {"
     "for (int j = 0; j < h; j++) for (int i = 0; i < w; i++) { float a = 0, b = 0, c; int n = 0;"
     "for (; n < 200 && a * a + b * b <= 4; n++) {"
     "c = a * a - b * b + i * s - 2; b = 2 * a * b + j * s; a = c; } y[j * w + i] = n; } }"),
    (pull, "void f(float *y, const float *p, int n) { for (int i = 0; i < n; i++) {"
     "float a[3] = {0}, d[3]; for (int k = 0; k < n; k++) { float s = 0.01f;"
     "for (int c = 0; c < 3; c++) { d[c] = p[4 * k + c] - p[4 * i + c]; s += d[c] * d[c]; }"
     "for (int c = 0; c < 3; c++) a[c] += p[4 * k + 3] / (s * sqrtf(s)) * d[c]; }"
     "for (int c = 0; c < 3; c++) y[3 * i + c] = a[c]; } }"),
)
# fmt: on


def rows(effort: Effort) -> Iterator[Row | Missing]:
    what, clang = "compile of six kernels, no cache", shutil.which("clang")
    if clang is None:
        yield Missing(what, "clang is not installed (apt-get install clang)")
        return
    device, files = hal.Device["CPU"], [f"{kernel.name}.c" for kernel, _ in BY_HAND]
    command = (clang, "-O2", "-march=native", "-c", *files)

    def ours() -> None:
        for kernel, _ in BY_HAND:
            device.compile(hal.kernel(kernel.__wrapped__))

    with patch.dict(os.environ, HAL_CCACHE="0"), tempfile.TemporaryDirectory() as folder:
        for file, (_, text) in zip(files, BY_HAND, strict=True):
            Path(folder, file).write_text(f"#include <math.h>\n{text}\n", encoding="utf-8")
        theirs = call(lambda: subprocess.run(command, cwd=folder, check=True))
        times = compare({OURS: call(ours), "clang": theirs}, effort.rarely())
    yield beside(what, times, "clang", 0.67, name="clang -O2, the same loops in C")
