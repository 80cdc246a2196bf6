"""Kernels of a size that only programs write: they compile, and compute what they should.

LLVM recurses, and some of its passes take the square of a text's length.
"""

import os
import sys

import numpy as np
import pytest
from run_python import printed

import hal_core as hal
from hal_core.dtypes import bool_, int32
from hal_core.signature import Signature
from hal_cpu.compilers import llvm
from hal_kernel.ir import UOp

PATHS = os.pathsep.join(filter(None, sys.path))


def long(size):
    return pytest.param(size, marks=pytest.mark.full)


class Nodes(list[UOp]):
    """Nodes of a kernel with the parameters y and x; `nodes(op, dtype, *sources)` appends one."""

    def __init__(self):
        super().__init__()
        self.y, self.x = (self("PARAM", int32, arg=position) for position in (0, 1))
        self.i = self("SPECIAL", int32, arg=("global_idx", 0))

    def __call__(self, op, dtype, *src, arg=None):
        self.append(UOp(op, dtype, src, arg))
        return self[-1]

    def const(self, value):
        return self("CONST", int32, arg=value)

    def kernel(self, block=None):
        signature = Signature.parse("large", "y: int32*, x: const int32*")
        return hal.Kernel("large", signature, tuple(self), block)


def run(device, kernel, x, threads):
    program = device.compile(kernel)
    y = hal.zeros(threads, hal.int32, device)
    program(y, hal.Buffer.from_numpy(x, device), threads=threads, block=threads)
    return y.numpy()


def test_a_constant_index_may_be_a_bool_of_python(device):
    nodes = Nodes()
    nodes("STORE", None, nodes.y, nodes.const(True), nodes.const(7))
    assert run(device, nodes.kernel(), np.zeros(1, "i4"), 2).tolist() == [0, 7]


def selections(count):
    add = Nodes()
    value = add("LOAD", int32, add.x, add.i)
    for number in range(count):
        less = add("LT", bool_, value, add.const(number))
        up, down = (add(op, int32, value, add.i) for op in ("ADD", "SUB"))
        value = add("WHERE", int32, less, up, down)
    add("STORE", None, add.y, add.i, value)
    return add.kernel()


def selected(x, count):
    found = []
    for i, value in enumerate(x.tolist()):
        for number in range(count):
            value = value + i if value < number else value - i
        found.append(value)
    return found


@pytest.mark.parametrize("levels", [300, long(5000)])
def test_deep_branches(own_device, levels):
    add = Nodes()
    blocks = []
    for level in range(levels):
        above = add("GT", bool_, add("LOAD", int32, add.x, add.i), add.const(level))
        blocks.append(add("IF", None, above))
    add("STORE", None, add.y, add.i, add.const(7))
    for block in reversed(blocks):
        add("ENDIF", None, block)
    x = np.array([levels, levels - 1, 0, levels + 1], "i4")
    assert run(own_device, add.kernel(), x, 4).tolist() == [7, 0, 0, 7]


@pytest.mark.parametrize("count", [300, long(20_000)])
def test_long_chains(own_device, count):
    x = np.array([5, -3, 400, 10**6], "i4")
    assert run(own_device, selections(count), x, 4).tolist() == selected(x, count)


@pytest.mark.parametrize("barriers", [60, long(600)])
def test_many_barriers(own_device, barriers):
    """Numbers go round in a block, one place at each barrier."""
    add = Nodes()
    tiles = [add("SHARED", int32, arg=(name, 8)) for name in "ab"]
    value = add("LOAD", int32, add.x, add.i)
    for number in range(barriers):
        add("STORE", None, tiles[number % 2], add.i, value)
        add("BARRIER", None)
        next_ = add("AND", int32, add("ADD", int32, add.i, add.const(1)), add.const(7))
        value = add("LOAD", int32, tiles[number % 2], next_)
    add("STORE", None, add.y, add.i, value)
    x = np.arange(10, 18, dtype="i4")
    assert run(own_device, add.kernel((8, 1, 1)), x, 8).tolist() == np.roll(x, -barriers).tolist()


def test_an_index_may_be_a_long_sum(own_device):
    add = Nodes()
    place = add.i
    for number in range(2000):
        place = add("ADD", int32, place, add.const(1 - number % 2 * 2))
    add("STORE", None, add.y, place, add("LOAD", int32, add.x, place))
    assert run(own_device, add.kernel(), np.arange(8, dtype="i4"), 8).tolist() == list(range(8))


def test_beyond_the_limit_texts_are_not_optimised(own_device, monkeypatch):
    short, x = selections(100), np.arange(64, dtype="i4")
    assert run(own_device, short, x, 64).tolist() == selected(x, 100)
    quick = own_device.compile(short).binary.image
    monkeypatch.setattr(llvm, "MOST_LINES", 10)
    again = selections(100)
    assert run(own_device, again, x, 64).tolist() == selected(x, 100)
    assert own_device.compile(again).binary.image != quick


_SMALL_STACK = """
import threading
import hal_core as hal
from test_limits import selections

threading.stack_size(65536)
thread = threading.Thread(target=lambda: print(hal.Device["CPU"].compile(selections(400)).name))
thread.start()
thread.join()
"""


def test_a_thread_with_a_small_stack_may_compile(device, monkeypatch):
    """LLVM takes more than 64 KiB of stack for this one: the process ended."""
    monkeypatch.setenv("HAL_CCACHE", "0")
    assert printed(_SMALL_STACK, PYTHONPATH=PATHS) == "large\n"


_SHORT_OF_MEMORY = """
import os, resource
import hal_core as hal
from test_limits import selections

device, ended = hal.Device["CPU"], []

def compile_within(mebibytes, count):
    "Compile in a child whose address space may grow by so much."
    child = os.fork()
    if child == 0:
        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        kernel = selections(count)
        resource.setrlimit(resource.RLIMIT_AS, (now + (mebibytes << 20), resource.RLIM_INFINITY))
        try:
            device.compile(kernel)
        except hal.OutOfMemory as error:
            os._exit(0 if "LLVM may need" in str(error) and "CPU_CC=gcc" in str(error) else 1)
        os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

print([compile_within(room, 5) for room in (8, 160, 1000)])  # with the import of llvmlite
device.compile(selections(1))
print([compile_within(room, count) for room, count in ((0, 5), (8, 2000), (400, 5))])
"""


def test_A4_a_compilation_without_memory_is_refused(device):
    """LLVM ended the process, at its first kernel and at a later one."""
    assert printed(_SHORT_OF_MEMORY, PYTHONPATH=PATHS) == "[0, 0, 2]\n[0, 0, 2]\n"


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    monkeypatch.setenv("HAL_CCACHE", "0")
    yield
