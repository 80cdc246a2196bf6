"""Blocks whose threads wait for each other: shared memory, stacks, 16-bit floats, facts."""

import shutil
import threading
from ctypes import c_int64

import numpy as np
import pytest
from in_threads import results
from slices import usual

import hal_core as hal
from hal_cpu import processor
from hal_cpu.threads import job, stacks

COMPILERS = usual(["llvm", "gcc", "clang"], "llvm", "clang")


@pytest.fixture(params=COMPILERS)
def cc(request, monkeypatch):
    if request.param != "llvm" and shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    monkeypatch.setenv("CPU_CC", request.param)
    return request.param


def greedy(count, threads):
    """Return a kernel with all the shared memory that a block may have, whose threads hold `count`
    numbers across a barrier."""

    @hal.kernel(block=(threads, 1, 1))
    def turned(y: hal.Ptr[hal.float32], x: hal.ConstPtr[hal.float32]) -> None:
        tile = hal.shared(hal.float32, 16384)
        t = hal.thread_idx(0)
        first = hal.global_idx(0) * count
        k0 = x[first]
        k1 = x[first + 1]
        for i in range(t, 16384, threads):
            tile[i] = hal.float32(i)
        hal.barrier()
        for i in range(t, 16384, threads):
            k0 += tile[16383 - i]
        y[first] = k0
        y[first + 1] = k1

    return turned.lower()


def test_a_block_may_use_all_its_shared_memory(device, cc):
    threads, blocks = 128, 64
    kernel = greedy(2, threads)
    assert kernel.shared_nbytes == device.info.limits.shared_nbytes == 65536
    program = device.compile(kernel)
    count = 2 * threads * blocks
    x = hal.Buffer.from_numpy(np.arange(count, dtype="f4"), device)
    y = hal.zeros(count, hal.float32, device)
    expected = np.arange(count, dtype="f4")
    for t in range(threads):
        expected[2 * t :: 2 * threads] += np.float32(
            sum(16383 - i for i in range(t, 16384, threads))
        )
    for _ in range(3):  # also when the cores share it
        program(y, x, grid=blocks, block=threads)
        assert np.allclose(y.numpy(), expected, rtol=1e-5)


def test_more_is_refused_with_the_numbers(device):
    @hal.kernel
    def large(y: hal.Ptr[hal.float32]) -> None:
        tile = hal.shared(hal.float32, 16385)
        tile[hal.thread_idx(0)] = 1.0
        y[0] = tile[0]

    with pytest.raises(hal.Unsupported, match=r"large.*got 65552; limit 65536.* on CPU"):
        device.compile(large)


# -- stacks


def many_values():
    """Return a kernel whose 1024 threads hold 32 numbers each across a barrier: 256 KiB."""
    from hal_core.signature import Signature
    from hal_kernel.ir import UOp
    from hal_kernel.ir.blocks.fission import SPILL_LIMIT, at_barriers, spill_nbytes

    signature = Signature.parse("many", "y: int64*")
    nodes = [UOp("PARAM", hal.int64, (), 0), UOp("SHARED", hal.int64, (), ("s", 8192))]
    y, tile = nodes

    def add(op, dtype, *src, arg=None):
        nodes.append(UOp(op, dtype, src, arg))
        return nodes[-1]

    t = add("SPECIAL", hal.int32, arg=("thread_idx", 0))
    place = add("MUL", hal.int32, t, add("CONST", hal.int32, arg=32))
    places = [
        add("ADD", hal.int32, place, add("CONST", hal.int32, arg=number)) for number in range(32)
    ]
    values = [add("LOAD", hal.int64, y, place) for place in places]
    add("STORE", None, tile, t, add("CAST", hal.int64, t))
    add("BARRIER", None)
    other = add("XOR", hal.int32, t, add("CONST", hal.int32, arg=1))
    heard = add("LOAD", hal.int64, tile, other)
    for place, value in zip(places, values, strict=True):
        add("STORE", None, y, place, add("ADD", hal.int64, value, heard))
    kernel = hal.Kernel("many", signature, tuple(nodes), (1024, 1, 1))
    assert spill_nbytes(at_barriers(kernel), 1024) == SPILL_LIMIT
    return kernel


@pytest.fixture
def stack_size():
    usual = threading.stack_size(0)
    threading.stack_size(usual)
    yield threading.stack_size
    threading.stack_size(usual)


def launch_with_a_small_stack(launch):
    """The thread has 64 KiB of stack, and so would threads that it starts."""
    usual, seen = threading.stack_size(65536), []
    try:
        results(lambda: (seen.append(stacks.stack_nbytes()), launch()))
        assert threading.stack_size(0) == 65536, "the program's own choice stands again"
    finally:
        threading.stack_size(usual)
    # The C library may give it the stack of a thread that has ended, which had some more.
    assert 65536 <= seen[0] < 320 << 10


def test_a_thread_with_a_small_stack_may_launch(own_device, cc, monkeypatch):
    """The kernel uses 320 KiB of stack."""
    monkeypatch.setenv("HAL_CPU_THREADS", "3")
    program = own_device.compile(many_values())
    start = np.arange(32768)
    y = hal.Buffer.from_numpy(start, own_device)
    launch_with_a_small_stack(
        lambda: [program(y, grid=1, block=1024, wait=wait) for wait in (False, False, True)]
    )
    assert np.array_equal(y.numpy(), start + 3 * np.repeat(np.arange(1024) ^ 1, 32))


def test_a_small_stack_is_noticed_in_a_geometry_that_a_large_one_saw_first(own_device, cc):
    """The launch that the first thread has prepared overflowed the stack of the second: SIGSEGV."""
    program = own_device.compile(many_values())
    start = np.arange(32768)
    y = hal.Buffer.from_numpy(start, own_device)
    program(y, grid=1, block=1024)
    launch_with_a_small_stack(lambda: program(y, grid=1, block=1024))
    assert np.array_equal(y.numpy(), start + 2 * np.repeat(np.arange(1024) ^ 1, 32))


DEEP = """\
static int32_t sum(int32_t n) {
    volatile int32_t numbers[64] = {n};
    return n ? numbers[0] + sum(n - 1) : 0;
}
void deep(const hal_thread *t, int32_t *y) { y[0] = sum(1000); }
"""


def test_a_small_stack_is_no_hindrance_for_c_that_recurses(own_device):
    program = own_device.compile(hal.Source("deep", DEEP, "y: int32*", language="c"))
    y = hal.zeros(1, hal.int32, own_device)
    program(y, grid=1, block=1)
    y.fill(0)
    launch_with_a_small_stack(lambda: program(y, grid=1, block=1))
    assert y.numpy().tolist() == [500_500]


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("target", ["x86_64-linux-gnu", "aarch64-linux-gnu", "x86_64-windows-elf"])
def test_code_tells_that_it_takes_much_stack(monkeypatch, target, level):
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(target).create_target_machine(opt=level, reloc="pic")
    monkeypatch.setattr(processor, "machine", lambda: target.split("-")[0].replace("_", "-"))
    for nbytes in (8, 200, 3000, 5000, 9000, 70_000, 300_000, 17 << 20):
        text = (
            "declare void @g(ptr)\ndefine void @f() {\n"
            f"%a = alloca [{nbytes} x i8]\ncall void @g(ptr %a)\nret void\n}}\n"
        )
        with llvm.parse_assembly(text) as module:
            image = machine.emit_object(module)
        assert stacks.has_large_frame(image) == (nbytes > 4096), nbytes


def test_workers_have_room_whatever_threads_are_given(stack_size):
    def seen_by_a_worker():
        found = []
        thread = stacks.start_thread("room", lambda: found.append(stacks.stack_nbytes()))
        thread.join()
        return found[0]

    assert seen_by_a_worker() >= stacks.STACK_NBYTES
    stack_size(65536)
    assert seen_by_a_worker() >= stacks.STACK_NBYTES
    stack_size(4 << 20)
    assert seen_by_a_worker() >= 4 << 20  # or a larger one, used again
    assert threading.stack_size(0) == 4 << 20


def test_an_error_in_a_roomy_launch_reaches_the_caller():
    def fails(*_):
        raise ZeroDivisionError("as it is")

    with pytest.raises(ZeroDivisionError, match="as it is"):
        job.LargeStackLaunch(fails)(b"", None, c_int64(0), c_int64(1))


# -- 16-bit floats and facts


def test_C9_source_kernels_see_the_bits_of_sixteen_bit_floats(device):
    source = hal.Source(
        "negate",
        "void negate(const hal_thread *t, uint16_t *y) { y[hal_global_idx(t, 0)] ^= 0x8000; }",
        "y: float16*",
        language="c",
    )
    try:
        program = device.compile(source)
    except hal.CompilerUnavailable as error:
        pytest.skip(str(error))
    y = hal.Buffer.from_numpy(np.array([1, -2, 0.5], "f2"), device)
    program(y, threads=3, block=1)
    assert y.numpy().tolist() == [-1, 2, -0.5]


@hal.kernel
def corner(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32) -> None:
    i = hal.global_idx(0)
    if n < hal.global_idx(1) and i >= 5:
        total = hal.int32(0)
        for k in range(n, 20):
            total += x[k]
        y[i] = total


def test_a_row_that_is_left_out_has_no_start_either():
    """It ended before its start, and compiled code that knew the difference ran beyond both."""
    device = hal.Device["CPU"]
    x = hal.Buffer.from_numpy(np.ones(20, "i4"), device)
    program = device.compile(corner)
    for n, total in ((2, 0), (0, 20)):
        y = hal.zeros(8, hal.int32, device)
        program(y, x, vals=(n,), grid=(1, 2, 1), block=(8, 1, 1), wait=True)
        assert y.numpy().tolist() == [0] * 5 + [total] * 3
