"""Memory of other libraries with a defect: broken interfaces, odd addresses, other contexts."""

import ctypes

import numpy as np
import pytest
from test_interchange import Theirs

import hal_core as hal

VECTORS = 'extern "C" __global__ void first(float4 *y) { float4 t = y[0]; t.x += 1; y[0] = t; }'


@hal.kernel
def add_one(y: hal.Ptr[hal.float32], n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] = y[i] + 1.0


@pytest.fixture
def row(device):
    return hal.Buffer.from_numpy(np.zeros(40, "f4"), device)


def test_numbers_of_numpy_are_numbers(device, row):
    place = np.uint64(row.__cuda_array_interface__["data"][0]), np.bool_(False)
    shape, strides = (np.int64(40),), (np.int32(4),)
    taken = hal.Buffer.wrap(
        Theirs(row, data=place, shape=shape, strides=strides, stream=np.int32(1)), device
    )
    taken.fill(3)
    assert set(row.numpy().tolist()) == {3}


@pytest.mark.parametrize("way", ["wrap", "external_ptr", "from_dlpack"])
def test_an_address_between_elements_is_refused(device, row, way):
    """A kernel that used it would fault, and the context be lost."""
    address = row.__cuda_array_interface__["data"][0] + 2
    with pytest.raises(hal.InvalidArgument, match=r"not a multiple of the element size.*float32"):
        if way == "wrap":
            hal.Buffer.wrap(Theirs(row, data=(address, False), shape=(9,)), device)
        elif way == "external_ptr":
            spec = hal.BufferSpec(external_ptr=address)
            hal.Buffer(device, 9, hal.float32, spec).allocate()
        else:
            hal.Buffer.from_dlpack(_Odd(address), device)


class _Odd:
    """An array of nine float32 whose address is two bytes off."""

    def __init__(self, address):
        self.address = address

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **_):
        from hal_core.buffer import capsule

        return capsule.make(self.address, 9, hal.float32, (2, 0), self)


def test_any_kernel_of_ours_takes_a_part_of_an_array_and_a_source_what_is_aligned(device, row):
    """Alignment is that of the address; the array's own start does not matter."""
    pytest.importorskip("cuda.pathfinder")
    source = device.compile(hal.Source("first", VECTORS, "y: float32*", language="cuda"))
    ours = device.compile(add_one)
    address = row.__cuda_array_interface__["data"][0] + 4
    part = hal.Buffer.wrap(Theirs(row, data=(address, False), shape=(30,)), device)
    for one in (part, part[1:], part[2:]):
        for _ in range(2):  # the first launch, and the fast one
            ours(one, vals=(1,), threads=1)
            with pytest.raises(hal.InvalidArgument, match=r"offset.*Source kernel.*16"):
                source(one, grid=1, block=1)
    for _ in range(2):
        source(part[3:], grid=1, block=1)
    assert row.numpy()[:6].tolist() == [0, 2, 2, 2, 2, 0]
    with pytest.raises(hal.InvalidArgument, match="element size"):
        part.view(2, dtype=hal.float64)
    part.view(2, dtype=hal.float64, offset=4).fill(0)
    assert row.numpy()[:6].tolist() == [0, 2, 0, 0, 0, 0]


@pytest.fixture
def elsewhere(device, simulator):
    """Return memory of a second context on the same device, as pycuda.autoinit makes one."""
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    assert simulator.driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
    assert simulator.driver.cuMemAlloc_v2(ctypes.byref(address), 4096) == 0
    assert simulator.driver.cuCtxPopCurrent_v2(ctypes.byref(context)) == 0
    yield address.value
    assert simulator.driver.cuCtxDestroy_v2(context) == 0


def test_memory_of_another_context_is_refused(device, row, elsewhere):
    """The driver says it is our device's, but a kernel of ours that used it would fault."""
    with pytest.raises(hal.InvalidArgument, match=r"another context of this device.*autoprimary"):
        hal.Buffer.wrap(Theirs(row, data=(elsewhere, False)), device)
    row.fill(1)
    assert set(row.numpy().tolist()) == {1}


@pytest.mark.parametrize("pooled", [False, True])
def test_memory_that_others_allocate_in_our_context_is_taken(device, row, simulator, pooled):
    with device.own("test"):
        address = device.api.allocate(160, device.stream, device.allocator.pool if pooled else None)
    taken = hal.Buffer.wrap(Theirs(row, data=(address, False)), device).fill(2)
    assert set(taken.numpy().tolist()) == {2}
    with device.own("test"):
        device.api.free(address, device.stream, pooled)
    managed = ctypes.c_uint64()
    assert simulator.driver.cuMemAllocManaged(ctypes.byref(managed), 160, 1) == 0
    taken = hal.Buffer.wrap(Theirs(row, data=(managed.value, False)), device).fill(3)
    assert set(taken.numpy().tolist()) == {3}
    assert simulator.driver.cuMemFree_v2(managed) == 0


def test_pinned_memory_of_one_device_is_copied_by_another(device, other):
    """The buffer belongs to the other device, its memory was pinned through this one."""
    pinned = hal.Buffer(device, 4096, hal.uint8, hal.BufferSpec(host=True)).allocate().fill(7)
    device.synchronize()
    spec = hal.BufferSpec(external_ptr=pinned._opaque_for("test"))
    there = hal.Buffer(other, 4096, hal.uint8, spec).allocate()
    here = hal.Buffer(device, 4096, hal.uint8).copy_from(there)
    assert set(here.numpy().tolist()) == {7}
    there.copy_from(here.fill(3))
    assert set(there.numpy().tolist()) == {3}
    there.copy_from(hal.Buffer(other, 4096, hal.uint8).fill(9))
    assert set(there.numpy().tolist()) == {9}
