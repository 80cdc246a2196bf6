"""Memory in checked mode: the record of what is written, guard pages, and freed blocks."""

import ctypes
import re

import numpy as np
import pytest
from kernel_files import copy
from mapped import mappings
from run_python import printed

import hal_core as hal
from hal_core.dtypes import DTYPES
from hal_core.errors import DeviceFault
from hal_cpu.checked import interpreted
from hal_kernel.errors import KernelFault, OutOfBounds
from hal_kernel.interpreter import execute


@hal.kernel
def scatter(y: hal.Ptr[hal.int32], p: hal.ConstPtr[hal.int64]) -> None:
    i = hal.global_idx(0)
    y[p[i]] = i


@hal.kernel
def first_then_second(a: hal.Ptr[hal.int32], b: hal.Ptr[hal.int32]) -> None:
    i = hal.global_idx(0)
    a[i] = i
    b[i] = a[i] + b[i]


def floats(device, *numbers):
    return hal.Buffer.from_numpy(np.array(numbers, "f4"), device)


# -- what counts as written


def unread(checked, buffer):
    """Return the elements that a kernel may not read."""
    into, found = hal.empty(1, buffer.dtype, checked), []
    for place in range(buffer.size):
        try:
            checked.compile(copy)(into, buffer[place : place + 1], threads=1)
        except KernelFault as error:
            assert "which nothing has written" in str(error)
            found.append(place)
    return found


def test_B14_fresh_memory_may_not_be_read_by_a_kernel(checked):
    assert unread(checked, hal.empty(4, hal.float32, checked)) == [0, 1, 2, 3]
    assert unread(checked, hal.zeros(4, hal.float32, checked)) == []
    fresh = hal.empty(4, hal.uint8, checked)
    assert fresh.numpy().tolist() == [0xCB] * 4  # for who copies it out


def test_what_writes_memory(checked):
    """Copies, fills and kernels write memory, and so may anything that is given its address."""
    fresh = hal.empty(8, hal.float32, checked)
    fresh[0:1].copyin(np.ones(1, "f4"))
    fresh[2:3].fill(3)
    checked.compile(copy)(fresh[4:5], fresh[0:1], threads=1)
    assert unread(checked, fresh) == [1, 3, 5, 6, 7]
    other = hal.empty(8, hal.float32, checked).fill(1)
    other.copy_from(fresh)
    assert unread(checked, other) == [1, 3, 5, 6, 7]  # a copy of nothing is nothing
    other[1:2].as_memoryview()
    np.asarray(other[3:4])
    np.from_dlpack(other[5:6])
    assert unread(checked, other) == [6, 7]
    part = other[6:7].view(2, hal.uint16)
    part[0:1].fill(1)
    assert unread(checked, other) == [6, 7]  # half an element
    part[1:2].fill(1)
    assert unread(checked, other) == [7]
    checked.compile(copy)(other[7:], fresh[0:1], threads=1)
    assert unread(checked, other) == []


def test_memory_of_others_counts_as_written(checked):
    array = np.arange(4, dtype="f4")
    wrapped = hal.Buffer.from_dlpack(array, checked)
    assert unread(checked, wrapped) == []
    with pytest.raises(OutOfBounds, match=r"a write of 'y' .* \(got 4; limit 0 to 3\)"):
        checked.compile(copy)(wrapped, floats(checked, *range(5)), threads=5)
    checked.compile(copy)(wrapped, floats(checked, 5, 6, 7, 8), threads=4)
    assert array.tolist() == [5, 6, 7, 8]


def test_an_array_is_written_before_a_kernel_ends_with_a_fault(checked):
    """The stores ahead of the fault are in memory, and recorded."""
    y, p = hal.empty(4, hal.int32, checked), np.array([0, 1, 9], "i8")
    with pytest.raises(OutOfBounds):
        checked.compile(scatter)(y, hal.Buffer.from_numpy(p, checked), threads=3)
    # Of one instruction: all or none.
    assert unread(checked, y.view(dtype=hal.float32)) == [0, 1, 2, 3]


@pytest.mark.parametrize("dtype", ["uint8", "float16", "bfloat16", "float32", "float64"])
def test_every_width_of_elements_is_watched(checked, dtype):
    kind = DTYPES[dtype]

    @hal.kernel
    def move(y: hal.Ptr[kind], x: hal.ConstPtr[kind]) -> None:
        i = hal.global_idx(0)
        y[i] = x[i]

    x = hal.empty(4, kind, checked)
    x.view(dtype=hal.uint8)[: 3 * kind.itemsize].fill(0)
    y = hal.empty(4, kind, checked)
    checked.compile(move)(y[:3], x[:3], threads=3)
    with pytest.raises(KernelFault, match="element 3 of 'x', which nothing has written"):
        checked.compile(move)(y, x, threads=4)
    with pytest.raises(KernelFault, match="element 3 of 'x', which nothing has written"):
        checked.compile(move)(x, y, threads=4)


def test_two_views_of_one_block_know_what_the_other_has_written(checked):
    whole = hal.empty(8, hal.int32, checked)
    whole[4:].fill(7)
    with pytest.raises(KernelFault, match="element 0 of 'b', which nothing has written"):
        checked.compile(first_then_second)(whole[4:], whole[:4], threads=4)
    checked.compile(first_then_second)(whole[:4], whole.view(4, hal.int32, 0), threads=4)
    assert whole.numpy().tolist() == [0, 2, 4, 6, 0, 1, 2, 3]


# -- memory


def address(buffer):
    return np.asarray(buffer).ctypes.data


def test_A1_a_freed_block_is_not_used_again(checked):
    assert len({address(hal.empty(100, hal.uint8, checked)) for _ in range(300)}) == 300
    assert checked.allocator.statistics()[:3] == (0, 100, 0)
    checked.allocator.cache_limit = 1 << 20
    assert checked.allocator.cache_limit == 0


def test_B11_nothing_is_left_of_freed_blocks(checked):
    hal.empty(1, hal.uint8, checked)
    checked.allocator.free_cache()
    before = len(mappings())
    for size in range(1, 3000):
        hal.empty(size, hal.uint8, checked)
    most = len(mappings())
    assert most < before + 2500  # of 9000
    checked.allocator.free_cache()
    assert len(mappings()) <= before + 20
    assert checked.allocator.statistics().live == 0


_TOUCH = """
import ctypes, os, resource
import numpy as np
import hal_core as hal
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

def ends(touched):
    child = os.fork()
    if child == 0:
        ctypes.string_at(touched, 1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) < 0

for size in (1, 63, 64, 100, 4095, 4096, 4097, 70000):
    buffer = hal.empty(size, hal.uint8, hal.Device["CPU"])
    address = np.asarray(buffer).ctypes.data
    assert address % 64 == 0 and not ends(address) and not ends(address + size - 1)
    assert ends(address - 4096) and ends(address + (size + 63 & -64))
    assert size != 4096 or ends(address - 1)
    del buffer
    assert ends(address), "freed"
"""


def test_guard_pages_cannot_be_touched():
    """A process ends that reads behind a block, before it, or where a freed one was."""
    printed(_TOUCH, HAL_CHECK="1")


@pytest.mark.parametrize(("offset", "where"), [(100, "after the end"), (-1, "before the begin")])
def test_a_write_beside_a_block_is_reported_when_it_is_freed(checked, offset, where, caplog):
    buffer = hal.empty(100, hal.uint8, checked)
    ctypes.memset(address(buffer) + offset, 1, 1)
    buffer.deallocate()
    text = rf"free: a write {where}.* of block \d+ of 100 bytes \(got {offset}; limit 0 to 99"
    assert re.search(text, caplog.text)
    with pytest.raises(DeviceFault, match=text):
        checked.synchronize()
    assert checked.synchronize()  # reported once


@pytest.mark.parametrize("wait", ["synchronize", "close"])
def test_a_write_beside_a_block_in_use_is_raised_by_a_wait(checked, wait):
    buffer = hal.empty(100, hal.uint8, checked)
    ctypes.memset(address(buffer) + 100, 1, 1)
    with pytest.raises(DeviceFault, match="wait: a write after the end of block"):
        getattr(checked, wait)()
    if wait == "synchronize":
        buffer.deallocate()
        assert checked.synchronize(), "reported once"


_FREE_DURING_A_SEARCH = """
import faulthandler, sys, threading
import hal_core as hal
from hal_cpu.checked.guarded_memory import Block

faulthandler.enable()
device = hal.Device["CPU"]
device.synchronize()
buffers, helpers = [hal.empty(1000, hal.uint8, device) for _ in range(3)], []
damage = Block.find_damage

def free_then_search(block):
    if buffers:
        helper = threading.Thread(target=buffers.pop().deallocate, daemon=True)
        if {same_thread}:
            helper.run()
        else:
            helper.start()
            helper.join(0.1)
            helpers.append(helper)
        device.allocator.free_cache()
    return damage(block)

Block.find_damage = free_then_search
device.synchronize()
Block.find_damage = damage
for helper in helpers:
    helper.join(10)
assert not buffers and not any(helper.is_alive() for helper in helpers)
print(device.allocator.statistics().live)
hal.empty(1000, hal.uint8, device)
device.synchronize()
"""


@pytest.mark.parametrize("same_thread", [True, False])
def test_X1_a_block_is_freed_while_a_wait_searches_it(same_thread):
    """A block that is freed during the search stays accessible until the search ends."""
    code = _FREE_DURING_A_SEARCH.replace("{same_thread}", str(same_thread))
    assert printed(code, HAL_CHECK="1") == "0\n"


def test_A4_freed_addresses_go_before_memory_is_refused(checked):
    freed = checked.allocator._quarantine
    hal.empty(100, hal.uint8, checked)
    assert freed._blocks
    with pytest.raises(hal.OutOfMemory):
        hal.empty(1 << 50, hal.uint8, checked)
    assert not freed._blocks


def test_A8_the_limit_is_kept_after_blocks_were_freed(checked):
    """It counts what was asked for. Each free gave back a rounded size, and the limit grew."""
    checked.allocator.limit = 300
    for _ in range(10):
        hal.zeros(100, hal.uint8, checked)
    kept = [hal.zeros(100, hal.uint8, checked) for _ in range(3)]
    with pytest.raises(hal.OutOfMemory):
        hal.zeros(1, hal.uint8, checked)
    kept.pop().deallocate()
    hal.zeros(100, hal.uint8, checked)


def test_A7_a_block_freed_under_a_launch_waits_for_it(checked, monkeypatch):
    """Without the wait the interpreter would touch inaccessible pages, which ends the process."""
    x, y = floats(checked, *range(8)), floats(checked, *range(8))
    live = []

    def frees(*arguments, **options):
        y.deallocate()
        live.append(checked.allocator.statistics().live)
        execute(*arguments, **options)

    monkeypatch.setattr(interpreted, "execute", frees)
    checked.compile(copy)(y, x, threads=8)
    live.append(checked.allocator.statistics().live)
    assert live == [2, 1]
