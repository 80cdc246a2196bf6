"""Floors in C: the loops that a C programmer would write, on one core and on all, through ctypes.

Compiled with -ffast-math, so that sums are reordered.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

_TEXT = r"""
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#ifdef __AVX512F__
#define LANES 16
#else
#define LANES 8
#endif
#define CHAINS 8
typedef float lanes __attribute__((vector_size(4 * LANES)));

void add(float *restrict c, const float *restrict a, const float *restrict b, int32_t n) {
    for (int32_t i = 0; i < n; i++) c[i] = a[i] + b[i];
}

typedef struct { float *y; const float *x; float a; int64_t first, last; } part;

static void *saxpy_part(void *argument) {
    part *p = argument;
    float *restrict y = p->y;
    const float *restrict x = p->x;
    for (int64_t i = p->first; i < p->last; i++) y[i] = p->a * x[i] + y[i];
    return 0;
}

static void *steps_part(void *argument) {
    part *p = argument;
    float *restrict y = p->y;
    const float *restrict x = p->x;
    const float a = p->a;
    int64_t i = p->first;
    for (; i + CHAINS * LANES <= p->last; i += CHAINS * LANES) {
        lanes v[CHAINS];  // as many chains as hide the latency of a multiply-add
        memcpy(v, x + i, sizeof v);
        for (int k = 0; k < STEPS; k++)
            for (int c = 0; c < CHAINS; c++) v[c] = v[c] * a + 0.5f;
        memcpy(y + i, v, sizeof v);
    }
    for (; i < p->last; i++) {
        float v = x[i];
        for (int k = 0; k < STEPS; k++) v = v * a + 0.5f;
        y[i] = v;
    }
    return 0;
}

typedef void *work_t(void *);

static void split(work_t *work, float *y, const float *x, float a, int64_t n, int threads) {
    part parts[64];
    pthread_t handles[64];
    if (threads > 64) threads = 64;
    for (int t = 0; t < threads; t++) {
        parts[t] = (part){y, x, a, n * t / threads, n * (t + 1) / threads};
        if (t) pthread_create(&handles[t], 0, work, &parts[t]);
    }
    work(&parts[0]);
    for (int t = 1; t < threads; t++) pthread_join(handles[t], 0);
}

void saxpy(float *y, const float *x, float a, int64_t n, int threads) {
    split(saxpy_part, y, x, a, n, threads);
}

void steps(float *y, const float *x, float a, int64_t n, int threads) {
    split(steps_part, y, x, a, n, threads);
}
"""

STEPS = 256  # multiply-adds of the compute-bound kernel for each element


def library() -> ctypes.CDLL | None:
    """Compile and load the C code; return None if there is no C compiler."""
    compiler = shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "floors.c"), Path(folder, "floors.so")
        source.write_text(_TEXT, encoding="utf-8")
        flags = ("-O3", "-march=native", "-ffast-math", "-fPIC", f"-DSTEPS={STEPS}", "-c")
        built = Path(folder, "floors.o")
        subprocess.run((compiler, *flags, "-o", str(built), str(source)), check=True)
        # Linked apart: with -ffast-math the library would turn off denormals in this process.
        link = ("-shared", "-pthread", "-o", str(target), str(built), "-lm")
        subprocess.run((compiler, *link), check=True)
        return ctypes.CDLL(str(target))


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


NAME = f"C, {cores()} threads"
