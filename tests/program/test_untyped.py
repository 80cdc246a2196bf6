"""Launches of kernels whose pointers have no dtype: memory of every dtype, aligned to 8 bytes."""

import pickle

import numpy as np
import pytest
from counts import calls

import hal_core as hal
from hal_kernel.interpreter import interpret

COPY = """
void copied(const hal_thread *t, void *y, const void *x, int32_t n) {
    int64_t i = hal_global_idx(t, 0);
    if (i < n) ((float *)y)[i] = ((const float *)x)[i];
}
"""


@hal.kernel
def doubled(y: hal.Ptr[hal.any_], x: hal.ConstPtr[hal.any_], n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        hal.bitcast(hal.float32, y)[i] = 2 * hal.bitcast(hal.float32, x)[i]


@pytest.fixture
def cpu():
    return hal.Device["CPU"]


def buffer(cpu, values, kind):
    return hal.Buffer.from_numpy(np.array(values, "f4").view(kind), cpu)


@pytest.mark.parametrize("kind", ["u1", "bool", "f2", "u4", "f8"])
def test_every_dtype_is_taken_and_launched_fast(kind, cpu):
    program = cpu.compile(doubled)
    x, y = buffer(cpu, [1, 2, 3, 4], kind), hal.zeros(16, hal.uint8, cpu)
    program(y, x, vals=(4,), threads=4)
    assert y.numpy().view("f4").tolist() == [2, 4, 6, 8]
    assert calls(lambda: program(y, y, vals=(4,), threads=4)) < 10, (
        "the checks of an unusual launch"
    )
    assert y.numpy().view("f4").tolist() == [4, 8, 12, 16]


def test_memory_must_begin_at_eight_bytes(cpu):
    program = cpu.compile(doubled)
    x, y = buffer(cpu, range(8), "u1"), hal.zeros(16, hal.uint8, cpu)
    program(y, x.view(16, hal.uint8, 8), vals=(4,), threads=4)
    assert y.numpy().view("f4").tolist() == [4, 6, 8, 10]
    for _ in range(2):
        with pytest.raises(hal.InvalidArgument, match="'x' begins between elements.*of 8 bytes"):
            program(y, x.view(16, hal.uint8, 4), vals=(4,), threads=4)
    for wrong, says in ((np.zeros(4, "f4"), "not a hal.Buffer"), (None, "not a hal.Buffer")):
        with pytest.raises(hal.InvalidArgument, match=says):
            program(y, wrong, vals=(4,), threads=4)


def test_a_freed_buffer_is_refused(cpu):
    program = cpu.compile(doubled)
    x, y = buffer(cpu, range(4), "u1"), hal.zeros(16, hal.uint8, cpu)
    program(y, x, vals=(4,), threads=4)
    x.deallocate()
    with pytest.raises(hal.InvalidState):
        program(y, x, vals=(4,), threads=4)


def test_a_source_kernel_takes_void_pointers(cpu):
    source = hal.Source("copied", COPY, "y: any*, x: const any*, n: int32", language="c")
    assert str(source.signature) == "y: any*, x: const any*, n: int32"
    x, y = buffer(cpu, [1, 2], "u4"), hal.zeros(8, hal.uint8, cpu)
    cpu.compile(source)(y, x, vals=(2,), threads=2)
    assert y.numpy().view("f4").tolist() == [1, 2]


def test_a_value_has_a_dtype():
    with pytest.raises(hal.InvalidArgument, match="'n' has no known dtype.*C's int"):
        hal.Signature.parse("k", "n: any")


def test_the_kernel_travels_and_is_interpreted():
    kernel = pickle.loads(pickle.dumps(doubled.lower()))
    y, x = np.zeros(2, "f8"), np.arange(4, dtype="f4")
    interpret(kernel, y, x.view("u1"), vals=(4,), threads=4)
    assert y.view("f4").tolist() == [0, 2, 4, 6]


def test_elements_need_a_dtype():
    @hal.kernel
    def bad(y: hal.Ptr[hal.any_]) -> None:
        y[0] = 1

    with pytest.raises(hal.KernelSyntaxError, match=r"has no dtype.*hal.bitcast\(hal.float32, y\)"):
        bad.lower()
