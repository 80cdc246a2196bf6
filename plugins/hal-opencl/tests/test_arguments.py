"""Signatures are compared with the kernels that they describe."""

import numpy as np
import pytest
from slices import usual

import hal_core as hal
from hal_kernel.c_texts.prototypes import Text, holds
from hal_opencl import driver

SCALARS = {
    "int8": "char", "int16": "short", "int32": "int", "int64": "long",
    "uint8": "uchar", "uint16": "ushort", "uint32": "uint", "uint64": "ulong",
    "float16": "half", "float32": "float", "float64": "double",
}  # fmt: skip


def source(text, signature, name="one"):
    return hal.Source(name, text, signature, language="opencl")


@pytest.mark.parametrize("dtype", usual(SCALARS, "uint16", "float32"))
def test_P2_every_scalar_fits_its_own_dtype_only(device, dtype):
    if dtype == "float64" and "fp64" not in device.info.capabilities:
        pytest.skip("the device has no double")
    text = f"__kernel void one(__global {SCALARS[dtype]} *x) {{}}"
    device.compile(source(text, f"x: {dtype}*"))
    for other in SCALARS:
        if other != dtype and (dtype, other) != ("uint16", "float16"):  # stored as ushort
            with pytest.raises(hal.CompileError, match=r"argument 0.*Write the signature"):
                device.compile(source(text, f"x: {other}*"))


@pytest.mark.parametrize(
    ("written", "dtype", "fits"),
    [
        ("float4", "float32", True),
        ("uchar16", "uint8", True),
        ("uint8", "uint32", True),  # eight of them
        ("unsigned int", "uint32", True),
        ("float4", "float64", False),
        ("double2", "float32", False),
        ("uint8", "uint8", False),
        ("uchar", "bool", True),
        ("ushort", "bfloat16", True),
        ("pair", "float32", True),
        ("struct whole", "uint8", True),
        ("real", "float32", True),
        ("void", "int16", True),
    ],
)
def test_P2_vectors_of_the_dtype_and_types_of_the_kernels_own(device, written, dtype, fits):
    text = f"""typedef float real;
    typedef struct {{ float a, b; }} pair;
    struct whole {{ int a; }};
    __kernel void one(__global {written} *x) {{}}"""
    if fits:
        device.compile(source(text, f"x: {dtype}*"))
    else:
        with pytest.raises(hal.CompileError, match="argument 0"):
            device.compile(source(text, f"x: {dtype}*"))


@pytest.mark.parametrize("written", ["unsigned char*", "uchar *", "uchar*", "unsigned char4 *"])
def test_P2_drivers_spell_types_in_their_own_way(written):
    [param] = hal.Signature.parse("one", "x: uint8*").params
    [other] = hal.Signature.parse("one", "x: int8*").params
    found = Text("", three="4").dtype(written.rstrip("* "))
    assert holds(found, param) and not holds(found, other)


def test_P2_a_driver_that_gives_no_types_is_trusted(device, monkeypatch, vendor_error):
    def refuse(*args):
        raise vendor_error("clGetKernelArgInfo", "KERNEL_ARG_INFO_NOT_AVAILABLE")

    monkeypatch.setattr(driver.cl.Kernel, "get_arg_info", refuse)
    text = "__kernel void one(__global double *untold) {}"
    device.compile(source(text, "untold: float32*"))


LOCAL = """
typedef struct { int a, b; } pair;
__kernel void one(char c, pair p, int8 v, __local int *s, __global int *y, __local int *t) {
    int i = get_local_id(0), n = get_local_size(0);
    s[i] = t[n - 1 - i] = c + i + p.b + v.s7;
    barrier(CLK_LOCAL_MEM_FENCE);
    y[get_global_id(0)] = s[n - 1 - i];
}"""
PAIR = np.dtype([("a", "i4"), ("b", "i4")])


@pytest.mark.parametrize("offsets", [False, True])
@pytest.mark.parametrize("signature", [None, "c: int8, p: PAIR, v: int32x8, y: int32*"])
@pytest.mark.parametrize("pieces", [1, 2])
def test_P5_shared_is_the_size_of_each_local_argument(device, pieces, signature, offsets):
    pair = hal.as_dtype(PAIR).name
    text = (
        LOCAL
        if pieces == 2
        else LOCAL.replace("t[n - 1 - i] = ", "").replace(", __local int *t", "")
    )
    text = text.replace("*y", "*y, long y0") if offsets else text
    given = signature and signature.replace("PAIR", pair)
    program = device.compile(hal.Source("one", text, given, language="opencl", offsets=offsets))
    assert str(program.signature) == f"c: int8, p: {pair}, v: int32x8, y: int32*"
    y = hal.zeros(16, hal.int32, device)
    values = (1, np.array((0, 10), PAIR)[()], range(8))
    expected = np.tile(np.arange(25, 17, -1), 2)
    program(y, vals=values, threads=16, block=8, shared=32)
    assert (y.numpy() == expected).all()
    with device.capture() as graph:
        program(y.fill(0), vals=values, threads=16, block=8, shared=32)
    with device.queue() as queue:
        graph.replay(queue=queue)
    assert (y.numpy() == expected).all()
    most = device.info.limits.shared_nbytes // pieces
    program(y, vals=values, threads=8, block=8, shared=most)
    for shared, why in ((0, "of each.*got 0.*Give its bytes"), (most + 1, f"limit {most}")):
        with pytest.raises(hal.InvalidArgument, match=why):
            program(y, vals=values, threads=8, block=8, shared=shared)


def test_a_signature_has_no_local_argument(device):
    text = "__kernel void one(__global int *x, __local int *s) { x[0] = s[0]; }"
    with pytest.raises(hal.CompileError, match=r"is __local int. s, its signature says s: int32"):
        device.compile(hal.Source("one", text, "x: int32*, s: int32*", language="opencl"))
    program = device.compile(hal.Source("one", "__kernel void one(int n) {}", language="opencl"))
    with pytest.raises(hal.Unsupported, match=r"has no __local argument.*got 8"):
        program(vals=(1,), threads=8, shared=8)


def test_P5_a_text_declares_no_more_local_memory_than_there_is(device):
    """PoCL ends the process that launches such a kernel."""
    most = device.info.limits.shared_nbytes
    text = """__kernel void one(__global int *y) {
        __local int s[SIZE];
        s[get_local_id(0)] = 1;
        y[0] = s[y[0]];
    }"""
    fits, exceeds = (
        hal.Source("one", text, language="opencl", defines={"SIZE": nbytes // 4})
        for nbytes in (most, most + 4)
    )
    y = hal.zeros(1, hal.int32, device)
    device.compile(fits)(y, threads=1, block=1)
    assert y.numpy()[0] == 1
    with pytest.raises(hal.Unsupported, match=rf"shared memory.*{most + 4}; limit {most}"):
        device.compile(exceeds)


def test_an_empty_buffer_is_NULL(device):
    text = "__kernel void one(__global int *y, __global float *x) { y[0] = x == 0; }"
    y, none = hal.zeros(1, hal.int32, device), hal.empty(0, hal.float32, device)
    device.compile(hal.Source("one", text, language="opencl"))(y, none, threads=1)
    assert y.numpy()[0] == 1
