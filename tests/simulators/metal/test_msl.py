"""Metal that we did not render: written by hand, and what SPIRV-Cross makes of GLSL."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msl
import numpy as np
import pytest

HERE = Path(__file__).parent
CLANGS = msl.compilers()
Array = Any
Shape = tuple[int, int, int]

pytestmark = pytest.mark.skipif(not CLANGS, reason="clang is not installed (apt-get install clang)")


def run(text: str, arrays: list[Array], threads: Shape, block: Shape, **how: Any) -> None:
    """Run the only kernel of a text; the arrays in the order of its arguments."""
    library = msl.Library(text, **how)
    (name,) = library.kernels
    library.run(name, [array.ctypes.data for array in arrays], threads, block)


HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
PLACE = "uint i [[thread_position_in_grid]]"

VECTORS = (
    HEAD
    + """
#include <metal_math>
struct Ray { packed_float3 from; float length; float3 along; };
constant float3 up = float3(0.0, 1.0, 0.0);
template <typename T> static T squared(T v) { return v * v; }
static float3 bounced(thread const float3 &v, constant Ray &ray) {
    return reflect(v, normalize(ray.along)) + up * ray.length;
}
[[kernel]] void vectors(device float4 *y [[buffer(0)]], const device float2 *x [[buffer(1)]],
                        constant Ray &ray [[buffer(2)]], """
    + PLACE
    + """) {
    float4 v = float4(x[i], x[i].yx * 2);
    v.zw += squared(v.xy);
    const float3 first = v.xyz;
    float3 moved = bounced(first, ray) + float3(ray.from);
    y[i] = float4(select(moved, -moved, moved > 1.0), dot(v, float4(1)));
    y[i].xy = min(y[i].xy, v.wz);
}
"""
)


@pytest.mark.parametrize("clang", CLANGS)
def test_vectors_structs_templates(clang: str) -> None:
    random = np.random.default_rng(1)
    x = random.standard_normal((64, 2)).astype(np.float32)
    y = np.zeros((64, 4), np.float32)
    ray = np.array([0.5, -1, 2, 3, 0, 2, 0, 0], np.float32)
    run(VECTORS, [y, x, ray], (64, 1, 1), (32, 1, 1), clang=CLANGS[clang])
    v = np.concatenate([x, x[:, ::-1] * 2], 1)
    v[:, 2:] += v[:, :2] ** 2
    moved = v[:, :3] * [1, -1, 1] + [0.5, 2, 2]
    moved = np.where(moved > 1, -moved, moved)
    moved[:, :2] = np.minimum(moved[:, :2], v[:, 3:1:-1])
    np.testing.assert_allclose(y[:, :3], moved, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(y[:, 3], v.sum(1), rtol=1e-5, atol=1e-5)


HALVES = (
    HEAD
    + "kernel void halves(device half4 *y, const device float *x, "
    + PLACE
    + """) {
    half h = half(x[i]) * 0.5h;
    half2 two = half2(h, h + 1.0h);
    y[i] = half4(two.yx, (half)fma(h, 2.0h, 1.0h), half(as_type<half>(as_type<ushort>(h))));
}
"""
)


@pytest.mark.parametrize("options", [(), ("-march=x86-64",)], ids=["native", "no-instruction"])
@pytest.mark.parametrize("clang", CLANGS)
def test_halves(clang: str, options: tuple[str, ...]) -> None:
    """Also where the processor has no instruction for their conversions."""
    if options and platform.machine() != "x86_64":
        pytest.skip("it has such instructions: this processor is no x86-64")
    x = np.array([0, -0.0, 1, 1.0009765625, 6e-8, -6.1e-5, 70000, np.inf, 3.3], np.float32)
    y = np.zeros((len(x), 4), np.float16)
    run(HALVES, [y, x], (len(x), 1, 1), (1, 1, 1), clang=(*CLANGS[clang], *options))
    with np.errstate(over="ignore"):
        h = (x.astype(np.float16) * np.float16(0.5)).astype(np.float16)
        fma = (h.astype(np.float32) * 2 + 1).astype(np.float16)
    expected = np.stack([h + np.float16(1), h, fma, h], 1)
    assert y.view(np.uint16).tolist() == expected.astype(np.float16).view(np.uint16).tolist()


TOGETHER = (
    HEAD
    + """
kernel void together(device atomic_uint *total [[buffer(0)]], device float *y [[buffer(1)]],
                     threadgroup float *tile [[threadgroup(0)]],
                     uint at [[thread_index_in_threadgroup]], uint many [[threads_per_grid]],
                     uint2 size [[threads_per_threadgroup]], """
    + PLACE
    + """) {
    threadgroup atomic_uint count;
    if (at == 0) atomic_store_explicit(&count, 0u, memory_order_relaxed);
    tile[at] = float(i);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    atomic_fetch_add_explicit(&count, at, memory_order_relaxed);
    y[i] = tile[size.x - 1 - at];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (at == 0)
        atomic_fetch_add_explicit(total, atomic_load_explicit(&count, memory_order_relaxed) + many,
                                  memory_order_relaxed);
}
"""
)


def test_shared_memory_atomics_and_barriers() -> None:
    total, y = np.zeros(1, np.uint32), np.zeros(70, np.float32)
    tile = np.zeros(msl.DYNAMIC, np.uint8)
    run(TOGETHER, [total, y, tile], (70, 1, 1), (32, 1, 1))
    blocks = [range(32), range(32, 64), range(64, 70)]  # the last one is smaller
    assert y.tolist() == [float(i) for block in blocks for i in reversed(block)]
    assert total[0] == sum(sum(range(len(block))) + 70 for block in blocks)


BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
KERNEL = HEAD + "kernel void k(device int *y, uint i [[thread_position_in_grid]]) {{ {} }}"


@pytest.mark.parametrize("clang", CLANGS)
@pytest.mark.parametrize(("body", "problem"), [
    (f"if (i < 3) {{ {BARRIER} }}", "some threads of a block end while others wait"),
    (f"for (uint k = 0; k < i; k++) {{ {BARRIER} y[k] = 1; }}", "some threads of a block end"),
    (f"if (i < 3) {{ y[0] = 1; {BARRIER} y[1] = 2; }} else {{ y[2] = 1; {BARRIER} }} y[i] = 3;",
     "threads of a block wait at different barriers"),
], ids=["some", "rounds", "other"])  # fmt: skip
def test_a_barrier_that_not_all_threads_come_to(body: str, problem: str, clang: str) -> None:
    y = np.zeros(8, np.int32)
    with pytest.raises(RuntimeError, match=f"k: {problem}"):
        run(KERNEL.format(body), [y], (8, 1, 1), (8, 1, 1), clang=CLANGS[clang])
    run(KERNEL.format(f"{BARRIER} y[i] = 4;"), [y], (8, 1, 1), (8, 1, 1))
    assert y.tolist() == [4] * 8


@pytest.mark.parametrize(("text", "what"), [
    ("kernel void k(texture2d<float> t [[texture(0)]]) {}", "no textures: texture2d"),
    ("constant sampler s(coord::pixel);", "no textures: sampler"),
    ("constant bool on [[function_constant(0)]];", "no function constants: function_constant"),
    ("kernel void k(device float *y) { y[0] = simd_sum(y[0]); }",
     "no simdgroups of several threads: simd_sum"),
    ("kernel void k() { simdgroup_barrier(mem_flags::mem_none); }",
     "no simdgroups of several threads: simdgroup_barrier"),
    ("kernel void k(device float *y) { y[0] = quad_broadcast(y[0], 1); }",
     "no simdgroups of several threads: quad_broadcast"),
    ("kernel void k(constant float4x4 &m) {}", "no matrices: float4x4"),
])  # fmt: skip
def test_what_is_absent_is_refused_by_its_name(text: str, what: str) -> None:
    where = r"program_source:4:\d+: error: software Metal has "
    with pytest.raises(msl.CompileError, match=where + what):
        msl.Library(f"{HEAD}// a sampler\n{text}")


@pytest.mark.parametrize("body", [
    "device int *p = y; threadgroup int t[4]; t[0] = *p; p = t;",
    "thread int v = 0; y = &v;",
    "constant int *p = y;",
    "y[0] = 1.0.x;",
])  # fmt: skip
def test_a_pointer_into_the_wrong_memory_does_not_compile(body: str) -> None:
    with pytest.raises(msl.CompileError, match=r"program_source:3:\d+: error"):
        msl.Library(KERNEL.format(body))


# -- SPIRV-Cross

Case = tuple[list[Array], list[Array | None], Shape, Shape]  # before, after, threads, block
_random = np.random.default_rng(5)


def _floats(*shape: int) -> Array:
    return _random.standard_normal(shape).astype(np.float32)


def _saxpy() -> Case:
    y, x = _floats(100), _floats(100)
    values = np.array([(2.5, 90)], "f4,u4")
    after = np.where(np.arange(100) < 90, np.float32(2.5) * x + y, y)
    return [y, x, values], [after], (128, 1, 1), (64, 1, 1)


def _matmul() -> Case:
    a, b = _floats(16, 16), _floats(16, 16)
    n = np.array([16, 0, 0, 0], np.uint32)
    return [np.zeros((16, 16), "f4"), a, b, n], [a @ b], (16, 16, 1), (8, 8, 1)


def _bodies() -> Case:
    bodies = _floats(64, 8)
    values = np.array([0.5, -1, 2, 0.25], np.float32)
    pull, dt = values[:3], values[3]
    speed = bodies[:, 4:7] + pull * dt * np.array([0.5, 0.25, 2, 4], "f4")[np.arange(64) % 4, None]
    length = np.linalg.norm(speed, axis=1, keepdims=True)
    speed = np.where(length > 2, speed * (2 / length), speed)
    place = bodies[:, :3] + speed * dt
    w = (place * place[:, ::-1]).sum(1) + np.clip(bodies[:, 7], -1, 1)
    speed = speed + (np.cross(speed, pull) - speed) * 0.25
    after = np.concatenate([place, w[:, None], speed[:, [2, 0, 1]], bodies[:, 7:]], 1)
    return [bodies, values], [after], (64, 1, 1), (32, 1, 1)


def _histogram() -> Case:
    x = _random.integers(5, 1000, 256).astype(np.uint32)
    bins = np.zeros(18, np.int32)
    after = np.array([*np.bincount(x % 16, minlength=16), x.max(), int(x.min()) - 100], np.int32)
    return [bins, x], [after], (256, 1, 1), (64, 1, 1)


def _reduction() -> Case:
    x = _random.integers(-99, 99, (3, 128)).astype(np.int32)
    return [np.zeros(3, np.int32), x], [x.sum(1)], (384, 1, 1), (128, 1, 1)


def _scan() -> Case:
    x = _random.integers(-99, 99, (2, 64)).astype(np.int32)
    return [x], [x.cumsum(1)], (128, 1, 1), (64, 1, 1)


def _halves() -> Case:
    y, x = _floats(32).astype(np.float16), _floats(32)
    product = (x.astype(np.float16) * np.float16(0.5)).astype(np.float16)
    return [y, x], [(product + y).astype(np.float16)], (32, 1, 1), (32, 1, 1)


def _integers() -> Case:
    a = _random.integers(-128, 127, 32).astype(np.int8)
    b = _random.integers(0, 65535, 32).astype(np.uint16)
    after = ((a.astype(np.int64) * b) << 20) - b.astype(np.int64) // 3
    return [np.zeros(32, np.int64), a, b], [after], (32, 1, 1), (32, 1, 1)


def _bits() -> Case:
    x = _random.integers(0, 1 << 32, 32, np.uint32)
    turned = [int(f"{int(v):032b}"[::-1], 2) for v in x]
    ones = [int(v).bit_count() for v in x]
    put = (x & ~np.uint32(31 << 3)) | np.uint32(21 << 3)
    after = np.stack([x >> 5 & 511, ones, turned, put], 1).astype(np.uint32)
    return [np.zeros((32, 4), np.uint32), x], [after], (32, 1, 1), (32, 1, 1)


def _stencil() -> Case:
    image, size = _floats(13, 10), np.array([10, 13, 0, 0], np.int32)
    padded = np.pad(image, 1, "edge")
    after = sum(padded[y : y + 13, x : x + 10] for y in range(3) for x in range(3))
    return [np.zeros((13, 10), "f4"), image, size], [after], (16, 16, 1), (8, 4, 1)


def _functions() -> Case:
    x = (_random.standard_normal(32) * 2).astype(np.float32)
    both = np.stack([x, -x], 1)
    t = np.clip((both + 1) / 2, 0, 1)
    smooth, step = t * t * (3 - 2 * t), (both >= 0.5).astype(np.float32)
    a = np.where(np.stack([x > 1, np.zeros(32, bool)], 1), step, smooth)
    after = np.stack([np.sin(x) + np.cos(x), np.exp2(x) * np.sign(x), a.sum(1), x - np.floor(x)], 1)
    return [np.zeros((32, 4), "f4"), x], [after], (32, 1, 1), (32, 1, 1)


def _control() -> Case:
    y, turn = np.arange(1, 33, dtype=np.int32), np.zeros(1, np.uint32)

    def steps(n: int) -> int:
        return 0 if n == 1 else 1 + steps(n // 2 if n % 2 == 0 else 3 * n + 1)

    after = [steps(n) * 10 ** ((n - 1) % 4) + 1 for n in range(1, 33)]
    return [y, turn], [np.array(after), np.array([32])], (32, 1, 1), (16, 1, 1)


SHADERS: dict[str, Callable[[], Case]] = {
    "saxpy": _saxpy, "matmul": _matmul, "bodies": _bodies, "histogram": _histogram,
    "reduction": _reduction, "scan": _scan, "halves": _halves, "integers": _integers,
    "bits": _bits, "stencil": _stencil, "functions": _functions, "control": _control,
}  # fmt: skip


def test_every_shader_is_tried() -> None:
    assert sorted(SHADERS) == sorted(path.stem for path in (HERE / "glsl").glob("*.comp"))


@pytest.mark.parametrize("name", SHADERS)
def test_what_spirv_cross_writes(name: str, tmp_path: Path) -> None:
    """Another program's Metal, of our GLSL. It is made here and now: none of its text is kept."""
    for tool, package in (("glslangValidator", "glslang-tools"), ("spirv-cross", "spirv-cross")):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed (apt-get install {package})")
    binary, source = tmp_path / "shader.spv", HERE / "glsl" / f"{name}.comp"
    compile_ = [
        "glslangValidator",
        "-V",
        "--target-env",
        "vulkan1.1",
        "-o",
        str(binary),
        str(source),
    ]
    subprocess.run(compile_, check=True, capture_output=True)
    cross = ["spirv-cross", "--msl", "--msl-version", "20300", "--msl-decoration-binding"]
    done = subprocess.run([*cross, str(binary)], check=True, capture_output=True, text=True)
    arrays, after, threads, block = SHADERS[name]()
    library = msl.Library(done.stdout)
    given = [arrays[argument.index] for argument in library.kernels["main0"].arguments]
    library.run("main0", [array.ctypes.data for array in given], threads, block)
    for array, expected in zip(arrays, after, strict=False):
        np.testing.assert_allclose(array, expected, rtol=2e-5, atol=2e-5)
