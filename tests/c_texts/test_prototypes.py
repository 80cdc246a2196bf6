"""Parameter lists of the C family, and the text form of elements of several numbers."""

import pickle

import numpy as np
import pytest

import hal_core as hal
from hal_kernel.c_texts.prototypes import Reading, Text, signature_of


@pytest.mark.parametrize(
    ("written", "means"),
    [("REAL *__restrict__ y", "y: float32*"),
     ("const float * const __restrict__ x", "x: const float32*"),
     ("float const *x", "x: const float32*"), ("int *const w", "w: int32*"),
     ("unsigned long long n", "n: uint64"), ("unsigned q", "q: uint32"),
     ("const __grid_constant__ long n", "n: int64"), ("T a", "a: float64"), ("U a", "a: float64"),
     ("uchar4 v", "v: uint8x4"), ("float3 v", "v: float32x4"), ("float x[16]", "x: float32*"),
     ("/* const */ float *x // const", "x: float32*"), ("const opaque *p", "p: const any*"),
     ("pair p", "p: struct<a:float32@0;b:int8[3]@4;z:float64@8;16>"),
     ("struct pair p", "p: struct<a:float32@0;b:int8[3]@4;z:float64@8;16>")],
)  # fmt: skip
def test_P17_a_parameter_is_read(written, means):
    text = Text(
        "#define REAL float\n// __global__ void no(int a) {}\n"
        'char *s = "__global__ void no() {}";\n'
        "typedef double T; using U = T; struct pair { float a; char b[3]; double z; };\n"
        f'extern "C" __global__ void __launch_bounds__(256, 2) k({written}\n) {{ f(1); }}\n',
        three="4",
    )
    [(name, found)] = text.kernels("__global__").items()
    assert str(signature_of(name, found, text, "CUDA")) == means


def test_a_dtype_has_one_object_and_a_text():
    kind = np.dtype([("a", "f4"), ("b", "i4", (2, 3)), ("c", [("z", "c16")])], align=True)
    made = hal.as_dtype(kind)
    assert made.to_numpy() == kind and hal.as_dtype(made.name) is made is hal.as_dtype(kind)
    assert pickle.loads(pickle.dumps(made)) is made
    assert pickle.loads(pickle.dumps(hal.complex64)) is hal.complex64
    text = f"a: {made}*, b: const float32x4*, c: complex64, d: {made}"
    assert str(hal.Signature.parse("k", text)) == text
    texts = ["struct<>", "struct<a:float32@0;x>", "struct<a@0;4>", "float32x5"]
    texts += ["struct<a:float32[0]@0;0>", f"struct<a:int8@0;{10**20}>"]
    texts += ["struct<a:" * 2000 + "int8@0;1>" + "@0;1>" * 1999]
    for wrong in texts:
        with pytest.raises(hal.InvalidArgument):
            hal.as_dtype(wrong)


def test_P17_templates_and_overloads_are_not_asked_for_by_other_kernels_of_their_text():
    text = "template <int N = (1 < 2)> __global__ void a(int y) {} __global__ void k(int *y) {}\n"
    more = "__global__ void b(int *y) {} __global__ void b(float *y) {}"
    for name, whole in ((None, text), ("k", text + more), ({"k": None}, text + more)):
        reading = Reading(hal.Source(name, whole, language="cuda"), "__global__", "CUDA")
        assert [str(one) for one in reading.compare()] == ["y: int32*"]
    for name in (None, "b"):
        with pytest.raises(hal.CompileError, match=r"the kernel 'b' twice.*\{'one': None\}"):
            Reading(hal.Source(name, text + more, language="cuda"), "__global__", "CUDA")


@pytest.mark.parametrize(
    ("text", "means"),
    [("#ifndef T|#define T float|#endif|kernel void f(T *y) {}", "y: int32*"),
     ("#ifdef T|#endif|typedef float U;|kernel void f(U *y)|#if A|#endif|{}", "y: float32*"),
     ("#if A|kernel void f(int *y) {}|#else|kernel void f(int *y) { }|#endif", "y: int32*"),
     ("#if A|kernel void f(int *y) {}|#else|kernel void f(int *y, int n) {}|#endif", ""),
     ("#if A|typedef int U;|# else|typedef float U;|# endif|kernel void f(U *y) {}", ""),
     ("#if A|struct U { int x; };|#else|struct U { char x; };|#endif|kernel void f(U *y) {}", ""),
     ("kernel void f(int *y|#if A|, int n|#endif|) {}", ""),
     ("#define U float|kernel void f(U *y) {}|#undef U|#define U int", "")],
)  # fmt: skip
def test_P17_what_depends_on_a_branch_asks_for_the_signature(text, means):
    for name, signature in ((None, None), ("f", None), ("f", means or "z: uint8*")):
        text = text.replace("|", "\n")
        source = hal.Source(name, text, signature, language="metal", defines={"T": "int"})
        reading = Reading(source, "kernel", "METAL")
        if means or signature:
            assert [str(one) for one in reading.compare()] == [signature or means]
            continue
        with pytest.raises(hal.CompileError, match="no kernel 'f' that can be read.*signature"):
            reading.compare()


def test_a_source_of_several_kernels_is_pickled():
    for name in (None, {"a": None, "b": "x: int32*"}, "a"):
        source = hal.Source(name, "text", language="c")
        assert pickle.loads(pickle.dumps(source)).kernels == source.kernels
