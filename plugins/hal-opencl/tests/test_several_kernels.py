"""Texts of a library: many kernels, the driver's signatures, structs, vectors, complex numbers."""

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyopencl
import pytest
from pyopencl import cltypes

import hal_core as hal

PAIR = np.dtype([("a", "f4"), ("b", "i4")])


def compiled(device, text, signature=None):
    return device.compile(hal.Source("k", text, signature, language="opencl"))


@pytest.mark.parametrize(
    ("text", "signature", "error", "why"),
    [
        ("__kernel void k(__read_only image2d_array_t im) {}", "im: any*", hal.Unsupported,
         "argument 0 'im' is image2d_array_t"),
        ("__kernel void k(__read_only image2d_array_t im) {}", None, hal.Unsupported, "'im'"),
        ("__kernel void k(sampler_t s) {}", None, hal.Unsupported, "'s' is sampler_t.*__constant"),
        ("typedef struct { float a[8]; } S; __kernel void k(S v) {}", "v: uint64",
         hal.CompileError, "is S v, its signature says v: uint64"),
        ("__kernel void k(__global float *y) { y[0] = 1; }", "y: const float32*",
         hal.CompileError, r"is float\* y, its signature says y: const float32\*"),
        ("__kernel void k(__global void *x) {}", "x: image2d", hal.CompileError, "x: image2d"),
        ("typedef double T; __kernel void k(T v) {}", "v: int64",
         hal.CompileError, "is T v, its signature says v: int64"),
        ("int helper(int a) { return a; }", None, hal.CompileError, "no kernel"),
        ("__kernel void k() {} __kernel void k() {}", None, hal.CompileError, "'k' twice"),
        ("__kernel void k(__global float3 *v) {}", "v: float32x3*",
         hal.InvalidArgument, "2, 4, 8 or 16"),
    ],
)  # fmt: skip
def test_P18_what_does_not_fit_is_refused(device, text, signature, error, why):
    with pytest.raises(error, match=why):
        compiled(device, text, signature)


def test_P18_a_struct_has_the_layout_of_its_dtype(device):
    text = "typedef struct { float a; int b; } pair;\n"
    text += "__kernel void k(pair p, __global float *y) { y[0] = p.a + p.b; }"
    y = hal.zeros(1, hal.float32, device)
    value = np.array((1.5, 2), PAIR)[()]
    for signature in (None, f"p: {hal.as_dtype(PAIR)}, y: float32*"):
        compiled(device, text, signature)(y, vals=(value,), threads=1)
        assert y.numpy().tolist() == [3.5]
    wider = np.dtype([("a", "f4"), ("b", "i8")])
    moved = np.dtype([("b", "i4"), ("a", "f4")])
    for other in (wider, moved):
        with pytest.raises(hal.CompileError, match="the type of argument 'p' has"):
            compiled(device, text, f"p: {hal.as_dtype(other)}, y: float32*")
        with pytest.raises(hal.InvalidArgument, match="value 'p' does not fit"):
            compiled(device, text)(y, vals=(np.zeros((), other)[()],), threads=1)


def test_P17_a_union_is_a_value_of_its_size(device):
    """PyOpenCL's own header has such a type."""
    text = "#include <pyopencl-complex.h>\n__kernel void k(__global cfloat_t *y, cfloat_t a) {"
    text += "y[0] = cfloat_mul(y[0], a); }"
    more = {"language": "opencl", "includes": [Path(pyopencl.__file__).with_name("cl")]}
    y = hal.Buffer.from_numpy(np.array([1 + 2j], "c8"), device)
    for given, why in {
        ", a: complex64": "", ", a: complex128": "argument 'a' has another size",
        ", a: uint64": "cfloat_t a, .* Mend the signature. A struct or union is",
        None: "'a' cannot be read.*a complex or vector of its size",
    }.items():  # fmt: skip
        with pytest.raises(hal.CompileError, match=why) if why else nullcontext():
            source = hal.Source("k", text, given and f"y: complex64*{given}", **more)
            device.compile(source)(y, 2j, threads=1)
    assert y.numpy().tolist() == [-4 + 2j]


@pytest.mark.parametrize(
    "value", [1 + 2j, np.complex64(1 + 2j), (1, 2), np.float32([1, 2]), cltypes.make_float2(1, 2)]
)
def test_P17_a_complex_number_is_a_vector_of_two(device, value):
    text = "__kernel void k(__global float2 *z, float2 a) { z[0] = a; }"
    program, z = compiled(device, text), hal.zeros(1, hal.complex64, device)
    program(z, vals=(value,), threads=1)
    assert z.numpy().tolist() == [1 + 2j]
    with pytest.raises(hal.InvalidArgument, match="value 'a' does not fit"):
        program(z, vals=(1.0,), threads=1)


def test_P17_vectors_complex_numbers_and_the_fixed_block(device):
    text = """
    #define ARGUMENTS __global float2 *z, float4 v, float3 w
    __attribute__((reqd_work_group_size(4, 1, 1))) __kernel void k(ARGUMENTS) {
        z[get_global_id(0)] += (float2)(v.w, w.z);
    }"""
    program = compiled(device, text)
    assert str(program.signature) == "z: float32x2*, v: float32x4, w: float32x4"
    z = hal.Buffer.from_numpy(np.array([1, 2j, 3, 4], "c8"), device)
    program(z, vals=([1, 2, 3, 4], np.arange(4)), threads=4)
    assert z.numpy().tolist() == [5 + 2j, 4 + 4j, 7 + 2j, 8 + 2j]
    records = hal.Buffer.from_numpy(np.zeros(4, cltypes.float2), device)
    for _ in range(2):
        program(records, cltypes.make_float4(1, 2, 3, 4), cltypes.make_float3(5, 6, 7), threads=4)
    assert records.numpy().tolist() == [(8, 14)] * 4
    assert program.info.block == (4, 1, 1)
    with pytest.raises(hal.InvalidArgument, match="block"):
        program(z, vals=([1, 2, 3, 4], [1, 2, 3, 4]), grid=1, block=2)
    record = np.dtype([("a", "f4"), ("b", "f4"), ("c", "f4"), ("d", "i4")])
    for wrong in ([1, 2, 3], np.zeros((), record)):
        with pytest.raises(hal.InvalidArgument, match=r"(?s)'v' does not fit.*also for a float3\."):
            program(z, vals=(wrong, [1, 2, 3, 4]), threads=4)
