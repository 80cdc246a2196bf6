"""The GFX9 engine as a runtime sees it: facts, arguments, faults; with code that hiprtc makes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from gfx9 import Engine, Fault

Compile = Callable[..., bytes]

SAXPY = """
extern "C" __global__ void saxpy(float *y, const float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
__device__ int counter[3];
"""


def test_an_access_out_of_bounds_names_its_thread(engine: Engine, hiprtc: Compile) -> None:
    x = np.zeros(100, np.float32)
    with pytest.raises(
        Fault, match=r"global_load.*thread \(36, 0, 0\) of block \(1, 0, 0\)"
    ) as caught:
        arguments = [x.copy(), x, np.float32(1), np.int32(200)]
        engine.run(hiprtc(SAXPY), "saxpy", arguments, (2, 1, 1), (64, 1, 1))
    assert caught.value.kind == "out-of-bounds"


def test_what_ends_a_launch(engine: Engine, hiprtc: Compile) -> None:
    image = hiprtc("""
extern "C" __global__ void k(int *r, int how) {
    __shared__ int tile[8];
    if (how == 0) __builtin_trap();
    while (how == 1) atomicAdd(r, 1);
    if (how == 2) tile[r[1] + threadIdx.x] = 1, r[2] = tile[r[3]];
    if (how == 3) atomicAdd((int *)((char *)r + 2), 1);
    if (how == 4) asm volatile("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 3");
}
""")
    (unknown,) = (fact for fact in engine.facts(image) if fact.startswith("unknown"))
    assert "s_setreg_imm32_b32" in unknown
    cases = [(0, "trap"), (1, "timeout"), (2, "out-of-bounds"), (3, "misaligned"), (4, "illegal")]
    for how, kind in cases:
        memory = np.array([0, 100, 0, 0], np.int32)
        with pytest.raises(Fault) as caught:
            engine.run(image, "k", [memory, np.int32(how)], most=100_000)
        assert caught.value.kind == kind, caught.value
    assert "does not know: s_setreg_imm32_b32" in str(caught.value)
