"""Facts of the host, and memory: alignment, options, copies, exports that outlive a buffer."""

import ctypes
import gc
import itertools

import numpy as np
import pytest
from mapped import resident

import hal_core as hal
from hal_cpu import driver, processor
from hal_cpu.allocator import CPUAllocator
from hal_cpu.device import describe

pytestmark = pytest.mark.quick

MIB = 1 << 20


@pytest.fixture
def allocator(own_device):
    made = own_device.allocator
    assert isinstance(made, CPUAllocator)
    return made


def test_facts(device):
    info = device.info
    assert (info.name, info.kind, info.host_visible) == ("CPU", "cpu", True)
    assert info.title and info.arch.split()[0] == processor.machine()
    assert info.compute_units >= 1 and info.memory_nbytes > 64 * MIB
    assert info == describe("CPU")


def test_B8_cycles_of_every_size_leak_nothing(own_device):
    for nbytes in (5000, 70_000, 3 * MIB):  # the system gives no page for what is less
        rounds = 5_000 if nbytes < MIB else 200
        own_device.allocator.free_cache()
        before = resident()
        for _ in range(rounds):
            hal.Buffer(own_device, nbytes, hal.uint8, hal.BufferSpec(nolru=True)).allocate()
        assert resident() - before < 8 * MIB
    facts = own_device.allocator.statistics()
    assert (facts.current, facts.live, facts.cached) == (0, 0, 0)


@pytest.mark.parametrize("nbytes", [1, 255, 65_535, 65_536, 100_000, 2 * MIB, 5 * MIB + 1])
def test_blocks_are_aligned_and_whole(allocator, nbytes):
    address = allocator.alloc(nbytes)
    assert address % 64 == 0
    if nbytes >= driver.HUGE:  # a huge page, after the address's place in its first page
        assert (address - address % driver.PAGE) % driver.HUGE == 0
    ctypes.memset(address, 7, nbytes)
    assert bytes(driver.memory_at(address + nbytes - 1, 1)) == b"\x07"
    allocator.free(address, nbytes)


def test_large_blocks_begin_at_different_places_of_their_pages(allocator):
    addresses = [allocator.alloc(MIB) for _ in range(8)]
    places = [address % 4096 for address in addresses]
    assert len(set(places)) == 8
    for one, next_ in itertools.pairwise(places):
        assert abs(one - next_) >= 512  # so input and output of a kernel do not meet
    for address in addresses:
        allocator.free(address, MIB)


def test_B7_external_memory_at_an_odd_address_is_refused(own_device):
    """Compiled code assumes that elements are aligned, as views are."""
    theirs = np.zeros(64, "u1")
    spec = hal.BufferSpec(external_ptr=theirs.ctypes.data + 1)
    with pytest.raises(hal.InvalidArgument, match=r"not a multiple of the element size.*0x.*4 byt"):
        hal.Buffer(own_device, 4, hal.float32, spec).allocate()
    whole = hal.Buffer(own_device, 16, hal.uint8, spec).allocate()
    with pytest.raises(hal.InvalidArgument, match="not a multiple of the element size"):
        whole.view(2, hal.float32, 0)
    whole.view(2, hal.float32, 3).fill(1)
    assert theirs[4:12].view("f4").tolist() == [1, 1]
    taken = hal.Buffer.from_dlpack(theirs[3:11].view("f4"), own_device)
    assert taken.numpy().tolist() == theirs[3:11].view("f4").tolist()  # a copy
    with pytest.raises(hal.NotShareable, match="not a multiple of its element size"):
        hal.Buffer.from_dlpack(theirs[3:11].view("f4"), own_device, copy=False)


def test_B9_an_export_outlives_buffer_and_device(own_device):
    for size in (100, 100_000):
        own = hal.Buffer(own_device, size, hal.uint8).fill(9)
        array = np.asarray(own)
        del own
        gc.collect()
        others = [hal.Buffer(own_device, size, hal.uint8).fill(1) for _ in range(4)]
        assert set(array.tolist()) == {9}
        del others
    own_device.close()
    assert set(array.tolist()) == {9}
    del array
    gc.collect()


def test_large_copies_release_the_gil(own_device, releases_the_gil):
    host = np.zeros(64 * MIB, "u1")
    buffer = hal.Buffer(own_device, host.size, hal.uint8).allocate()
    buffer.copyin(host)
    assert releases_the_gil(lambda: buffer.copyin(host), 1000)


@pytest.mark.parametrize("nbytes", [4096, 64 << 10, MIB])
def test_A7_short_copies_keep_the_gil(own_device, nbytes, releases_the_gil):
    """No other thread can free memory that they use, which is not in flight."""
    x, y = (hal.empty(nbytes, hal.uint8, own_device).fill(0) for _ in range(2))
    wide = y.view(min(nbytes, 64 << 10) // 4, hal.int32)  # a longer one is work in flight
    steps = (
        lambda: y.copy_from(x), lambda: y.fill(1), lambda: wide.fill(1),
        lambda: x.copyin(bytes(nbytes)), lambda: x.copyout(bytearray(nbytes)),
    )  # fmt: skip
    for step in steps:
        assert not releases_the_gil(step)


def test_large_blocks_lie_in_huge_pages(allocator):
    with open("/sys/kernel/mm/transparent_hugepage/enabled") as file:
        if "[never]" in file.read():
            pytest.skip("this kernel gives no transparent huge pages")
    nbytes = 32 * MIB
    address = allocator.alloc(nbytes)
    with open("/proc/self/smaps") as file:
        text = file.read()
    block = next(
        part for part in text.split("VmFlags:") if f"{address - address % driver.PAGE:x}-" in part
    )
    flags = text.split(block, 1)[1].split("\n", 1)[0]
    assert " hg" in flags
    allocator.free(address, nbytes)
