"""Local arrays, which each thread has for itself, in every language."""

import numpy as np
import pytest
from builder import Builder
from slices import usual

import hal_core as hal
from hal_core.dtypes import bool_, int8, int16, int32, int64, uint8
from hal_kernel.interpreter import interpret
from hal_kernel.ir.blocks.fission import at_barriers
from hal_kernel.ir.fold import fold
from hal_kernel.ir.verify import verify


def turned(dtype, index=int32, block=None):
    """Each thread takes four elements, and gives them from another one on."""
    b = Builder("turned", f"r: {dtype.name}*, x: const {dtype.name}*, shift: int32")
    i = b.op("MUL", b.index(), b.const(4))
    own = b.local("own", 4, dtype)
    k = b.range(b.const(0), b.const(4), b.const(1))
    b.store(own, b.cast(k, index), b.load("x", b.op("ADD", i, k)))
    b.end(k)
    b.barrier()  # the array lives across it
    k = b.range(b.const(0), b.const(4), b.const(1))
    place = b.op("AND", b.op("ADD", b.op("ADD", k, b.params["shift"]), b.index()), b.const(3))
    b.store("r", b.op("ADD", i, k), b.load(own, b.cast(place, index)))
    b.end(k)
    return b.kernel(block)


def expected(x, shift):
    rows = x.reshape(-1, 4)
    return np.array([np.roll(row, -shift - i) for i, row in enumerate(rows)]).reshape(-1)


@pytest.mark.parametrize("count", usual([2, 4, 8], "4"))
@pytest.mark.parametrize("dtype", [bool_, int8, uint8, int16], ids=str)
def test_an_element_is_written_without_its_neighbours(toolchain, dtype, count):
    """hiprtc 5.2 wrote two bytes of those that it had put into registers."""
    b = Builder("alone", f"r: {dtype.name}*, x: const int32*")
    i, one = b.index(), b.const(1, dtype)
    own = b.local("own", count, dtype)
    for k in range(count):
        b.store(own, b.const(k), b.op("NE", one, one) if dtype is bool_ else b.const(0, dtype))
    b.store(own, b.op("AND", b.load("x", i), b.const(count - 1)), one)
    for k in range(count):
        at = b.op("ADD", b.op("MUL", i, b.const(count)), b.const(k))
        b.store("r", at, b.load(own, b.const(k)))
    got = np.zeros((count, count), bool if dtype is bool_ else dtype.to_numpy())
    x = np.arange(count, dtype="i4")
    toolchain.run(b.kernel(), {"r": got.reshape(-1), "x": x}, (count, 1, 1))
    assert got.tolist() == np.eye(count, dtype=got.dtype).tolist()


@pytest.mark.parametrize("block", [(1, 1, 1), (7, 1, 1)])
@pytest.mark.parametrize("index", [uint8, int64], ids=str)
def test_indices_and_blocks(toolchain, index, block):
    x = np.arange(4 * 3 * block[0], dtype="i4")
    got = np.zeros_like(x)
    kernel = turned(int32, index, block)
    toolchain.run(kernel, {"r": got, "x": x, "shift": 2}, (3, 1, 1), block)
    assert got.tolist() == expected(x, 2).tolist()


def constant_indices(dtype=int32, last=1):
    b = Builder("known", "r: int32*")
    own = b.local("own", 2, dtype)
    for place in (0, 1):
        b.store(own, b.const(place), b.cast(b.const(place + 5), dtype))
    b.store("r", b.const(0), b.cast(b.load(own, b.const(last)), int32))
    return b.kernel()


def ops(kernel):
    return [node.op for node in kernel.uops]


def test_known_indices_need_no_array():
    kernel = fold(constant_indices())
    verify(kernel)
    assert not {"LOCAL", "VAR"} & set(ops(kernel))  # folded as any variable
    (stored,) = (node.src[2] for node in kernel.uops if node.op == "STORE")
    assert stored.arg == 6


def test_an_index_out_of_bounds_stays_an_access():
    assert "LOCAL" in ops(fold(constant_indices(last=2)))


def test_what_is_read_before_it_is_written_keeps_the_rules():
    b = Builder("unwritten", "r: int32*, n: int32")
    own = b.local("own", 2)
    with b.when(b.op("LT", b.params["n"], b.const(3))):
        b.store(own, b.const(1), b.params["n"])
    b.store("r", b.const(0), b.load(own, b.const(1)))
    verify(fold(b.kernel()))


def test_arrays_that_live_across_a_barrier_and_are_too_large():
    b = Builder("large", "r: int32*")
    own = b.local("own", 100)
    b.store(own, b.special("thread_idx"), b.const(0))
    b.barrier()
    assert any(node.op == "SHARED" for node in at_barriers(b.kernel((64, 1, 1))))
    with pytest.raises(hal.Unsupported, match=r"own take 400 bytes of each thread") as raised:
        at_barriers(b.kernel())
    assert raised.value.fix is not None and "smaller block" in raised.value.fix


@hal.kernel
def declared_in_a_loop(y: hal.Ptr[hal.int32]):
    i = hal.global_idx(0)
    v = hal.local(hal.int32, 14)
    total = 0
    for d in range(14):
        row = hal.local(hal.int32, 8)
        row[i % 8] = i + d
        v[d] = row[i % 8]
        total += v[d]
    y[i] = total


@hal.kernel
def kept_across_a_barrier(y: hal.Ptr[hal.int32]):
    i = hal.global_idx(0)
    v = hal.local(hal.int64, 16)
    w = hal.local(hal.int64, 16)
    for d in range(16):
        v[d] = hal.int64(y[i] + d)
        w[d] = hal.int64(y[i] - d)
    more = y[i] * 3
    hal.barrier()
    total = hal.int64(more)
    for d in range(16):
        total += v[d] * w[d]
    y[i] = hal.int32(total)


@pytest.mark.parametrize("kernel", [declared_in_a_loop, kept_across_a_barrier])
def test_elements_that_would_not_fit_stay_arrays(toolchain, kernel):
    """A block of any shape may have 1024 threads, which keep 256 bytes each."""
    y, expected = np.tile(np.arange(64, dtype="i4"), (2, 1))
    toolchain.run(kernel.lower(), {"y": y}, (2, 1, 1), (32, 1, 1))
    interpret(kernel, expected, grid=2, block=32)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    ("build", "says"),
    [(lambda b: b.local("own", 0), "it must have one element or more"),
     (lambda b: b.local("own", 1025), "have too many bytes"),
     (lambda b: b.add("VIEW", uint8, b.local("own", 4)), "its source must be a PARAM"),
     (lambda b: b.atomic("ADD", b.local("own", 4), b.const(0), b.const(0)), "takes no atomic")],
)  # fmt: skip
def test_broken_rules_are_named(build, says):
    b = Builder("broken", "r: int32*")
    made = build(b)
    assert made is not None
    with pytest.raises(hal.InvalidKernel, match=says):
        verify(b.kernel())
