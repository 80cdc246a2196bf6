"""Metal that we did not render, written by hand."""

import platform
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msl
import numpy as np
import pytest

HERE = Path(__file__).parent
CLANGS = msl.compilers()

pytestmark = pytest.mark.skipif(not CLANGS, reason="clang is not installed (apt-get install clang)")


def run(text, arrays, threads, block, **how):
    """Run the only kernel of a text; the arrays in the order of its arguments."""
    library = msl.Library(text, **how)
    (name,) = library.kernels
    library.run(name, [array.ctypes.data for array in arrays], threads, block)


HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
PLACE = "uint i [[thread_position_in_grid]]"

HALVES = (
    HEAD
    + "kernel void halves(device half4 *y, const device float *x, "
    + PLACE
    + """) {
    half h = half(x[i]) * 0.5h;
    half2 two = half2(h, h + 1.0h);
    y[i] = half4(two.y, two.x, (half)fma(h, 2.0h, 1.0h), half(as_type<half>(as_type<ushort>(h))));
}
"""
)


def test_threads_that_want_one_text_compile_it_once(monkeypatch):
    commands = []
    real = subprocess.run

    def counted(command, **how):
        commands.append(command)
        return real(command, **how)

    msl.Library(HALVES.replace("halves", "of_nobody"))  # what the first text needs, too
    monkeypatch.setattr(subprocess, "run", counted)
    with ThreadPoolExecutor(4) as pool:
        libraries = list(pool.map(msl.Library, [HALVES.replace("halves", "of_threads")] * 4))
    assert len(commands) == 2, "one to compile, one to link"
    assert all(library._library["hal_call_of_threads"] for library in libraries)


@pytest.mark.parametrize("options", [(), ("-march=x86-64",)], ids=["native", "no-instruction"])
@pytest.mark.parametrize("clang", CLANGS)
def test_halves(clang, options):
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


BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
KERNEL = HEAD + "kernel void k(device int *y, uint i [[thread_position_in_grid]]) {{ {} }}"


@pytest.mark.parametrize("clang", CLANGS)
@pytest.mark.parametrize(("body", "problem"), [
    (f"if (i < 3) {{ {BARRIER} }}", "some threads of a block end while others wait"),
    (f"for (uint k = 0; k < i; k++) {{ {BARRIER} y[k] = 1; }}", "some threads of a block end"),
    (f"if (i < 3) {{ y[0] = 1; {BARRIER} y[1] = 2; }} else {{ y[2] = 1; {BARRIER} }} y[i] = 3;",
     "threads of a block wait at different barriers"),
], ids=["some", "rounds", "other"])  # fmt: skip
def test_a_barrier_that_not_all_threads_come_to(body, problem, clang):
    y = np.zeros(8, np.int32)
    with pytest.raises(RuntimeError, match=f"k: {problem}"):
        run(KERNEL.format(body), [y], (8, 1, 1), (8, 1, 1), clang=CLANGS[clang])
    run(KERNEL.format(f"{BARRIER} y[i] = 4;"), [y], (8, 1, 1), (8, 1, 1))
    assert y.tolist() == [4] * 8


@pytest.mark.parametrize(("text", "what"), [
    ("kernel void k(texture2d_array<float> t [[texture(0)]]) {}",
     "no arrays of textures: texture2d_array"),
    ("kernel void k(sampler s [[sampler(0)]]) {}", r"no samplers as arguments: \[\[sampler"),
    ("constant bool on [[function_constant(0)]];", "no function constants: function_constant"),
    ("kernel void k(device float *y) { y[0] = simd_sum(y[0]); }",
     "no simdgroups of several threads: simd_sum"),
    ("kernel void k() { simdgroup_barrier(mem_flags::mem_none); }",
     "no simdgroups of several threads: simdgroup_barrier"),
    ("kernel void k(device float *y) { y[0] = quad_broadcast(y[0], 1); }",
     "no simdgroups of several threads: quad_broadcast"),
    ("kernel void k(constant float4x4 &m) {}", "no matrices: float4x4"),
])  # fmt: skip
def test_what_is_absent_is_refused_by_its_name(text, what):
    where = r"program_source:4:\d+: error: software Metal has "
    with pytest.raises(msl.CompileError, match=where + what):
        msl.Library(f"{HEAD}// a sampler\n{text}")


@pytest.mark.parametrize("body", [
    "device int *p = y; threadgroup int t[4]; t[0] = *p; p = t;", "thread int v = 0; y = &v;",
    "constant int *p = y;", "y[0] = 1.0.x;",
])  # fmt: skip
def test_a_pointer_into_the_wrong_memory_does_not_compile(body):
    with pytest.raises(msl.CompileError, match=r"program_source:3:\d+: error"):
        msl.Library(KERNEL.format(body))
