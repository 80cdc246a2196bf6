"""The GFX9 engine as a runtime sees it: facts, arguments, faults; with code that hiprtc makes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from gfx9 import Engine, Fault, RefusedObject
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Compile = Callable[..., bytes]

SAXPY = """
extern "C" __global__ void saxpy(float *y, const float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
__device__ int counter[3];
"""
SHAPE = """
extern "C" __global__ void shape(unsigned *r) {
    unsigned i = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    unsigned *to = r + 6 * (i * blockDim.x * blockDim.y * blockDim.z + t);
    to[0] = blockDim.x; to[1] = blockDim.y; to[2] = blockDim.z;
    to[3] = gridDim.x; to[4] = gridDim.y; to[5] = gridDim.z;
}
"""


def test_saxpy(engine: Engine, hiprtc: Compile) -> None:
    image = hiprtc(SAXPY)
    module, *facts = engine.facts(image)
    assert module == "module amdgcn-amd-amdhsa--gfx906"
    assert facts[0].startswith("kernel saxpy params 24 shared 0 private 0 threads 1024")
    assert facts[1:5] == [
        "param global_buffer 0 8", "param global_buffer 8 8", "param by_value 16 4",
        "param by_value 20 4",
    ]  # fmt: skip
    assert "variable counter 12" in facts
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    engine.run(image, "saxpy", [y, x, np.float32(2), np.int32(900)], (4, 1, 1), (256, 1, 1))
    np.testing.assert_array_equal(y, np.where(np.arange(1000) < 900, 2 * x + 1, 1))


def check_shape(engine: Engine, image: bytes) -> None:
    got = np.zeros((2 * 3 * 2 * 4 * 2 * 3, 6), np.uint32)
    engine.run(image, "shape", [got], (2, 3, 2), (4, 2, 3))
    assert (got == [4, 2, 3, 2, 3, 2]).all()


def test_the_shape_of_a_launch_arrives_in_the_dispatch_packet(
    engine: Engine, hiprtc: Compile
) -> None:
    """In version 4 of code objects and before."""
    check_shape(engine, hiprtc(SHAPE))


def packed(value: Any) -> bytes:
    """MessagePack, in its longest forms."""
    if isinstance(value, dict):
        pairs = (packed(key) + packed(item) for key, item in value.items())
        return struct.pack(">BI", 0xDF, len(value)) + b"".join(pairs)
    if isinstance(value, list):
        return struct.pack(">BI", 0xDD, len(value)) + b"".join(map(packed, value))
    if isinstance(value, str):
        return struct.pack(">BI", 0xDB, len(value)) + value.encode()
    return struct.pack(">BQ", 0xCF, value)


def with_metadata(image: bytes, metadata: dict[str, Any]) -> bytes:
    """A code object whose note is at its end, and says this."""
    changed, content = bytearray(image), packed(metadata)
    note = struct.pack("<III", 7, len(content), 32) + b"AMDGPU\0\0" + content
    (headers,) = struct.unpack_from("<Q", image, 32)
    (count,) = struct.unpack_from("<H", image, 56)
    for place in range(headers, headers + 56 * count, 56):
        if struct.unpack_from("<I", image, place) == (4,):  # PT_NOTE
            struct.pack_into("<Q", changed, place + 8, len(image))
            struct.pack_into("<Q", changed, place + 32, len(note))
    return bytes(changed) + note


def test_the_shape_of_a_launch_arrives_in_hidden_arguments(engine: Engine, hiprtc: Compile) -> None:
    """From version 5 on. hiprtc 5.2 makes none, so here explicit arguments are declared hidden."""
    image = hiprtc("""
extern "C" __global__ void shape(unsigned *r, unsigned gx, unsigned gy, unsigned gz,
                                 unsigned short bx, unsigned short by, unsigned short bz) {
    unsigned i = (blockIdx.z * gy + blockIdx.y) * gx + blockIdx.x;
    unsigned t = (threadIdx.z * by + threadIdx.y) * bx + threadIdx.x;
    unsigned *to = r + 6 * (i * bx * by * bz + t);
    to[0] = bx; to[1] = by; to[2] = bz; to[3] = gx; to[4] = gy; to[5] = gz;
}
""")
    hidden = [
        (f"hidden_{what}_{axis}", start + nbytes * number, nbytes)
        for what, start, nbytes in (("block_count", 8, 4), ("group_size", 20, 2))
        for number, axis in enumerate("xyz")
    ]
    kernel = {
        ".name": "shape",
        ".symbol": "shape.kd",
        ".kernarg_segment_size": 26,
        ".args": [
            {".value_kind": kind, ".offset": offset, ".size": nbytes}
            for kind, offset, nbytes in (("global_buffer", 0, 8), *hidden)
        ],
    }
    target = "amdgcn-amd-amdhsa--gfx906"
    check_shape(engine, with_metadata(image, {"amdhsa.target": target, "amdhsa.kernels": [kernel]}))


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


def test_a_damaged_object_is_refused_or_runs_but_never_ends_the_engine(
    engine: Engine, hiprtc: Compile
) -> None:
    image = hiprtc(SAXPY)

    @settings(
        max_examples=150, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def check(data: st.DataObject) -> None:
        damaged = bytearray(image)
        for _ in range(data.draw(st.integers(0, 3))):
            damaged[data.draw(st.integers(0, len(image) - 1))] = data.draw(st.integers(0, 255))
        cut = data.draw(st.integers(0, len(image)))
        x = np.ones(64, np.float32)
        arguments = [x, x.copy(), np.float32(1), np.int32(64)]
        with suppress(RefusedObject, Fault):
            engine.run(bytes(damaged[:cut]), "saxpy", arguments, block=(64, 1, 1), most=1_000_000)

    check()
    assert engine.facts(image)


def test_every_shorter_object_is_refused(engine: Engine, hiprtc: Compile) -> None:
    image = hiprtc(SAXPY)
    (sections,) = struct.unpack_from("<Q", image, 40)
    for nbytes in (0, 3, 63, 64, 200, len(image) // 2, sections, len(image) - 1):
        with pytest.raises(RefusedObject):
            engine.facts(image[:nbytes])


def test_another_target_is_refused(engine: Engine, hiprtc: Compile) -> None:
    image = bytearray(hiprtc(SAXPY))
    image[48] = 0x3F  # gfx90a, in e_flags
    with pytest.raises(RefusedObject, match="another target than gfx906"):
        engine.facts(bytes(image))
