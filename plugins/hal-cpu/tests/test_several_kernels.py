"""Texts in C: several kernels in one object, structs, vectors and complex numbers."""

import numpy as np
import pytest

import hal_core as hal

RECORD = np.dtype([("a", "f4"), ("c", "f8", (3,)), ("d", "i1")], align=True)
THREE = hal.as_dtype(np.dtype([("c", "f4", (3,))]))
TEXT = """
#include <complex.h>
typedef struct { float a; double c[3]; char d; } record;
typedef double T;
#define ARGUMENTS int32_t *y, int n
static int32_t shared_by_both;
static inline float helper(const hal_thread *t, float x) { return x + hal_thread_idx(t, 0) * 0; }
void put(const hal_thread *t, ARGUMENTS) { shared_by_both = n; y[0] = n; }
void add(const hal_thread *t, float complex *z, record r, const record *s, T v) {
    int64_t i = hal_global_idx(t, 0);
    z[i] = helper(t, r.a) + s[i].c[1] * I + v + r.d + shared_by_both;
}
"""


def test_P16_one_object_with_structs_and_complex_numbers(device):
    programs = device.compile(hal.Source(None, TEXT, language="c"))
    assert list(programs) == ["put", "add"]
    records = np.zeros(3, RECORD)
    records["c"][:, 1] = range(3)
    s, z = hal.Buffer.from_numpy(records, device), hal.zeros(3, hal.complex64, device)
    assert np.array_equal(s.numpy(), records) and s.dtype is hal.as_dtype(RECORD)
    programs["put"](hal.zeros(1, hal.int32, device), vals=(100,), threads=1)
    value = np.array((0.5, (1, 2, 3), 7), RECORD)[()]
    programs["add"](z, s, vals=(value, 0.25), threads=3)
    assert z.numpy().tolist() == [107.75, 107.75 + 1j, 107.75 + 2j]


def test_C3_faults_in_texts_of_several_kernels_are_named(device):
    """A kernel that the text lacks, a struct that is declared as something else, a line."""
    record = hal.as_dtype(RECORD)
    for name, signature, said in (
        ({"nope": "y: int32*, n: int32"}, None, "void nope(const hal_thread *t, int32_t *y"),
        ({"nope": f"r: {record}"}, None, "void nope(const hal_thread *t, struct<"),
        ("call", f"r: {record}, y: int32*", "call"),
    ):
        text = TEXT + "void call(const hal_thread *t, void (*f)(int), int32_t *y) { y[0] = 1; }"
        with pytest.raises(hal.CompileError) as caught:
            device.compile(hal.Source(name, text, signature, language="c"))
        assert said in str(caught.value)
    with pytest.raises(hal.CompileError, match=r"several-kernels\.c:2:2: error: here") as caught:
        device.compile(hal.Source(None, "\n#error here\nvoid f(int x) {}", language="c"))
    assert "OPENCL" not in str(caught.value) and ">    2 | #error here" in str(caught.value)


def test_P16_types_are_those_of_the_text_however_it_spells_them(device):
    """To a compiler `char` is not int8_t, and one of `long` and `long long` is not int64_t."""
    text = """
  void later(const hal_thread *t, int *y);
  void put(const hal_thread *t, char *y, volatile long long *z, long long v, char c, const int *x) {
      y[0] = c + x[0]; z[0] = v;
  }"""
    signature = "y: int8*, z: int64*, v: int64, c: int8, x: const int32*"
    all_of_it = device.compile(hal.Source(None, text, language="c"))
    assert {name: str(one.signature) for name, one in all_of_it.items()} == {"put": signature}
    given = device.compile(hal.Source("put", text, signature.replace("const ", ""), language="c"))
    for program in (all_of_it["put"], given):
        y, z, x = (hal.zeros(1, one, device) for one in (hal.int8, hal.int64, hal.int32))
        program(y, z, x, vals=(2**40, -3), threads=1)
        assert (y.numpy()[0], z.numpy()[0]) == (-3, 2**40)


@pytest.mark.parametrize("type", ["long double", "double long", "long double _Complex"])
def test_P16_a_long_double_is_no_integer(device, type):
    text = f"void f(const hal_thread *t, {type} *y) {{}}"
    assert str(device.compile(hal.Source("f", text, language="c")).signature) == "y: any*"
    with pytest.raises(hal.CompileError, match="cannot be read"):
        device.compile(hal.Source("f", text.replace("*y", "y"), language="c"))
    with pytest.raises(hal.CompileError, match="int64"):
        device.compile(hal.Source("f", text, "y: int64*", language="c"))


def test_C3_a_complex_number_that_is_too_large_is_refused(device):
    text = "void one(const hal_thread *t, float _Complex *z, float _Complex v) { z[0] = v; }"
    program = device.compile(hal.Source("one", text, "z: complex64*, v: complex64", language="c"))
    z = hal.zeros(1, hal.complex64, device)
    for value in (10**400, complex(1e300, 0), np.longdouble("1e400")):
        with pytest.raises(hal.InvalidArgument, match="out of range"):
            program(z, vals=(value,), threads=1)
    program(z, vals=(np.complex64(1 + 2j),), threads=1)
    assert z.numpy()[0] == 1 + 2j


def test_G7_a_saved_graph_keeps_values_of_structs_and_shared_variables(device, tmp_path):
    programs = device.compile(hal.Source(None, TEXT, language="c"))
    y, z = hal.zeros(1, hal.int32, device), hal.zeros(3, hal.complex64, device)
    s = hal.Buffer.from_numpy(np.zeros(3, RECORD), device)
    with device.capture() as graph:
        programs["put"](y, vals=(100,), threads=1)
        programs["add"](z, s[1:], vals=(np.array((0.5, (1, 2, 3), 7), RECORD)[()], 0.25), threads=2)
    graph.save(tmp_path / "graph")
    again = hal.load_graph(tmp_path / "graph", device)
    for root in again.buffers:
        root.view(dtype=hal.uint8).fill(0)
    again.replay()
    [found] = [root.numpy() for root in again.buffers if root.dtype is hal.complex64]
    assert found.tolist() == [107.75, 107.75, 0]


def test_B_elements_of_several_numbers_are_copied_and_filled(device):
    records = np.zeros(3, RECORD)
    records["d"] = range(3)
    made = hal.Buffer(device, 3, hal.as_dtype(RECORD)).copyin(records)
    assert np.array_equal(made.copyout(np.zeros_like(records)), records)
    assert made.fill(records[2]).numpy()["d"].tolist() == [2, 2, 2]
    fours = hal.zeros(2, hal.as_dtype("float32x4"), device).fill([1, 2, 3, 4])
    assert fours.numpy().tolist() == np.asarray(fours).tolist() == [[1, 2, 3, 4]] * 2
    assert fours.numpy(shape=(2, 1)).shape == (2, 1, 4)
    assert hal.zeros(9, hal.float32, device).view(1, THREE, 4).numpy()["c"].tolist() == [[0, 0, 0]]
    assert hal.zeros(2, hal.complex128, device).fill(1 + 2j).numpy().tolist() == [1 + 2j] * 2
    with pytest.raises(hal.Unsupported, match="DLPack has no such elements"):
        np.from_dlpack(made)


def test_P17_a_union_is_a_value_of_its_size_and_a_record_a_vector(device):
    text = "union two { float parts[2]; double bits; };"
    text += "void k(const hal_thread *t, union two *y, union two a) { y[0] = a; }"
    y = hal.Buffer.from_numpy(np.zeros(3, [("real", "f4"), ("imag", "f4")]), device)
    program = device.compile(hal.Source("k", text, "y: complex64*, a: float32x2", language="c"))
    program(y[1:], 1 + 2j, threads=1)
    assert y.numpy().tolist() == [(0, 0), (1, 2), (0, 0)]
    with pytest.raises(hal.InvalidArgument, match=r"wrong dtype.*buffer\.view"):
        program(y.view(1, offset=4), 1 + 2j, threads=1)  # where no vector begins


@pytest.mark.parametrize(
    ("text", "signature", "why"),
    [
        ("typedef struct { float a[8]; } S; void k(const hal_thread *t, S v) {}", "v: uint64",
         "argument 0 of the kernel is S v, its signature says v: uint64"),
        ("typedef union { int a; } S; void k(const hal_thread *t, S s) {}", "s: complex64",
         "type of argument 's' has another size"),
        ("typedef int *S; void k(const hal_thread *t, S s) {}", "s: complex64", "argument 0"),
        ("typedef double T; void k(const hal_thread *t, T v) {}", "v: int64", "argument 0.*T v"),
        ("static void k(const hal_thread *t) {}", None, "the text has no kernel"),
        ("void k(float *y, int n) {}", None,
         r"Write: void k\(const hal_thread \*t, float \*y, int32_t n\) - the code of one thread"),
        ("__kernel void k(__global float4 *y, float a) {}", None, "OpenCL C to the device OPENCL"),
        ("void k(const hal_thread *t) {} void k(const hal_thread *t) {}", None, "'k' twice"),
        ("typedef struct { double a; } S; void k(const hal_thread *t, S s) {}",
         f"s: {hal.as_dtype(RECORD)}", "type of argument 's' has another size"),
        ("void k(const hal_thread *t, float **s) {}", None, "parameter 's' cannot"),
    ],
)  # fmt: skip
def test_P18_what_does_not_fit_is_refused(device, text, signature, why):
    for name in ("k", None)[: 1 + (signature is None)]:
        with pytest.raises(hal.CompileError, match=why):
            device.compile(hal.Source(name, text, signature, language="c"))


def test_P16_LLVM_takes_one_kernel_and_its_signature(device):
    with pytest.raises(hal.Unsupported, match=r"no signatures.*hal.Source of each"):
        device.compile(hal.Source(None, "", language="llvm"))
