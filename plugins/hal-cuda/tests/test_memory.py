"""Memory: the order of copies, pinned and foreign memory, two devices, leaks."""

import ctypes
import gc

import numpy as np
import pytest

import hal_core as hal
from hal_testing.conformance.kernels import add_one

OUT_OF_MEMORY, UNKNOWN = 2, 999
RELEASE_THRESHOLD, RESERVED = 4, 5  # CU_MEMPOOL_ATTR_...
SLOW = 0.15  # seconds of a kernel that host code must not overtake


def address_of(buffer):
    return buffer.__cuda_array_interface__["data"][0]


@pytest.mark.parametrize("nbytes", [64, 100_000, 3 << 20])
def test_B_copyin_from_pinned_memory_is_done_with_it_on_return(device, simulator, nbytes):
    pinned = hal.Buffer(device, nbytes, hal.uint8, hal.BufferSpec(host=True)).allocate()
    there = hal.Buffer(device, nbytes, hal.uint8).allocate().fill(0)
    host = np.asarray(pinned)
    device.synchronize()
    host[:] = 7
    work = hal.Buffer(device, 4, hal.int32).allocate().fill(0)
    program = device.compile(add_one)
    program(work, vals=(4,), threads=4)
    device.synchronize()
    simulator.delay("cuLaunchKernel", SLOW)
    program(work, vals=(4,), threads=4)
    there.copyin(host)
    host[:] = 9
    simulator.clear()
    assert (there.numpy() == 7).all()


@pytest.mark.parametrize("nbytes", [64, 65536, 100_000])
def test_B5_copyin_holds_what_the_driver_may_read_late(device, simulator, nbytes):
    """CUDA says only that an asynchronous copy of pageable memory "might be synchronous"."""
    made = [hal.Buffer(device, nbytes, hal.uint8).allocate() for _ in range(200)]
    work = hal.Buffer(device, 4, hal.int32).allocate().fill(0)
    program = device.compile(add_one)
    program(work, vals=(4,), threads=4)
    device.synchronize()
    simulator.read_late(True)
    try:
        simulator.delay("cuLaunchKernel", 0.02)
        program(work, vals=(4,), threads=4)
        for number, one in enumerate(made):
            one.copyin(bytes([number]) * nbytes)
        device.synchronize()
    finally:
        simulator.read_late(False)
    assert all((one.numpy() == number).all() for number, one in enumerate(made))


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("offset", [1, 4097])
def test_views_at_odd_offsets_of_memory_of_others(device, offset, pinned):
    size = (2 << 20) + 5
    whole = hal.Buffer(device, size + offset, hal.uint8, hal.BufferSpec(host=pinned)).allocate()
    whole.fill(1)
    address = address_of(whole)
    taken = hal.Buffer(
        device, size, hal.uint8, hal.BufferSpec(external_ptr=address + offset)
    ).allocate()
    data = np.random.default_rng(offset).bytes(size)
    taken.copyin(data)
    assert taken.view(size - 1, offset=1).numpy().tobytes() == data[1:]
    assert whole.numpy().tobytes() == b"\1" * offset + data
    taken.view(100, offset=3).fill(5)
    assert whole.numpy()[offset + 3 : offset + 103].tolist() == [5] * 100


def test_B_external_ptr_of_another_device_is_refused_by_name(device, other):
    there = hal.Buffer(other, 64, hal.uint8).allocate()
    address = address_of(there)
    with pytest.raises(hal.InvalidArgument, match=r"external_ptr.*CUDA:1.*CUDA.*copy"):
        hal.Buffer(device, 64, hal.uint8, hal.BufferSpec(external_ptr=address)).allocate()


def test_B_external_ptr_of_nobody_is_refused(device):
    with pytest.raises(hal.InvalidArgument, match=r"external_ptr.*no memory.*0x10000.*device addr"):
        hal.Buffer(device, 64, hal.uint8, hal.BufferSpec(external_ptr=0x10000)).allocate()


@pytest.mark.parametrize("pinned", ["neither", "source", "target"])
@pytest.mark.parametrize("back", [False, True])
def test_T1_copies_between_devices_wait_for_the_work_of_both(device, simulator, pinned, back):
    one, two = device, hal.Device["CUDA:1"]
    if back:
        one, two = two, one
    size = 5000
    source = hal.Buffer(one, size, hal.int32, hal.BufferSpec(host=pinned == "source"))
    target = hal.Buffer(two, size, hal.int32, hal.BufferSpec(host=pinned == "target"))
    source.allocate().fill(1)
    target.allocate().fill(50)
    programs = one.compile(add_one), two.compile(add_one)
    simulator.delay("cuLaunchKernel", SLOW)
    programs[0](source, vals=(size,), threads=size)
    programs[1](target, vals=(size,), threads=size)
    target.copy_from(source)
    programs[0](source, vals=(size,), threads=size)  # not before it was read
    programs[1](target, vals=(size,), threads=size)
    assert (target.numpy() == 3).all()
    assert (source.numpy() == 3).all()
    simulator.clear()


def test_T1_a_pool_is_opened_to_each_device_that_copies_from_it_once(device, other, simulator):
    """Access between contexts, which kernels of others share, does not cover memory of pools."""
    place, access = (ctypes.c_int * 2)(1, other.index), ctypes.c_int()
    here = hal.Buffer(device, 100, hal.int32).allocate().fill(1)
    there = hal.Buffer(other, 100, hal.int32).allocate()
    there.copy_from(here)
    get, pool = simulator.driver.cuMemPoolGetAccess, ctypes.c_void_p(int(device.allocator.pool))
    assert get(ctypes.byref(access), pool, ctypes.byref(place)) == 0 and access.value == 3
    before = simulator.all_calls()
    there.copy_from(here)
    asked = {"cuDeviceCanAccessPeer", "cuMemPoolSetAccess", "cuCtxEnablePeerAccess"}
    assert not asked & set(simulator.calls_since(before))
    assert set(there.numpy().tolist()) == {1}


def test_memory_that_an_export_kept_is_freed_after_the_work_of_others(device, simulator):
    """The driver does not wait before it frees memory of a pool."""
    device.close()
    with hal.Device["CUDA"] as opened:
        made = hal.Buffer(opened, 4000, hal.uint8).allocate().fill(3)
        export, address = _Export(made), address_of(made)
        api, context = opened.api, opened.context
        simulator.retain_contexts(1)
        theirs, target = api.make_stream(independent=True), api.allocate(4000, None, None)
        del made
    simulator.set_context(int(context))
    try:
        simulator.delay("cuMemcpyAsync", SLOW)
        api.copy(target, address, 4000, theirs)
        del export
        gc.collect()
        api.wait(theirs)
        api.destroy_stream(theirs)
        api.free(target, None, False)
    finally:
        simulator.release_contexts(1)


def test_a_failed_step_leaves_no_event(device, simulator):
    """The device stays open: closing it would destroy what was left."""
    program = device.compile(add_one)
    here = hal.Buffer(device, 100, hal.int32).allocate().fill(0)
    there = hal.Buffer(hal.Device["CUDA:1"], 100, hal.int32).allocate()

    def work():
        there.copy_from(here)
        program(here, vals=(100,), threads=100, wait=True)

    work()
    clean = simulator.live()
    before = simulator.all_calls()
    work()
    calls = simulator.calls_since(before)
    left_out = {"cuEventDestroy"}  # where that fails there is nothing left to try
    for name in sorted(set(calls) - left_out):
        for nth in range(1, calls[name] + 1):
            simulator.fail(name, UNKNOWN, nth)
            raised = False
            try:
                work()
            except hal.HalError:
                raised = True
            assert raised or name == "cuMemPoolSetAccess", (name, nth)  # copies go without
            simulator.clear()
            gc.collect()
            work()
            assert simulator.live() == clean, (name, nth)


def test_staging_that_cannot_be_made_leaves_nothing(device, simulator, monkeypatch):
    device.close()
    with hal.Device["CUDA"] as opened:
        monkeypatch.setattr(type(opened.api), "is_done", lambda *_: False)
        made = hal.Buffer(opened, 2 << 20, hal.uint8).allocate()
        clean = simulator.live()
        for name in ("cuMemHostAlloc", "cuEventCreate", "cuEventRecord"):
            simulator.fail(name, OUT_OF_MEMORY)
            with pytest.raises(hal.OutOfMemory):
                made.copyin(bytes(2 << 20))
            simulator.clear()
            assert simulator.live() == clean, name
        made.copyin(b"\7" * (2 << 20))
        assert made.numpy()[-1] == 7


def test_A4_memory_whose_free_is_queued_serves_the_next_allocation(device, simulator):
    """CUDA counts it as used until the stream was waited for."""
    device.close()
    no_cache = hal.BufferSpec(nolru=True)
    with hal.Device["CUDA"] as opened:
        part = opened.info.memory_nbytes // 4
        program = opened.compile(add_one)
        y = hal.Buffer(opened, 100, hal.int32).allocate().fill(0)
        kept = [hal.Buffer(opened, part, hal.uint8, no_cache).allocate() for _ in range(3)]
        simulator.delay("cuLaunchKernel", SLOW)
        program(y, vals=(100,), threads=100)
        kept.clear()
        hal.Buffer(opened, 3 * part, hal.uint8, no_cache).allocate()
        assert y.numpy()[0] == 1


def test_memory_that_passes_the_cache_by_is_kept_by_a_pool_of_our_own(device, simulator):
    """The pool that other libraries share stays as it is."""
    device.close()
    pools = simulator.live()["pools"]
    no_cache, limit = hal.BufferSpec(nolru=True), ctypes.c_uint64(7)
    with hal.Device["CUDA"] as opened:
        hal.Buffer(opened, 1 << 20, hal.uint8, no_cache).allocate().deallocate()
        opened.synchronize()
        shared, ours = ctypes.c_void_p(), opened.allocator.pool
        assert simulator.driver.cuDeviceGetDefaultMemPool(ctypes.byref(shared), 0) == 0
        for pool, attribute, expected in (
            (shared, RELEASE_THRESHOLD, 0),
            (ctypes.c_void_p(int(ours)), RELEASE_THRESHOLD, opened.allocator.cache_limit),
            (ctypes.c_void_p(int(ours)), RESERVED, 1 << 20),
        ):
            get = simulator.driver.cuMemPoolGetAttribute
            assert get(pool, attribute, ctypes.byref(limit)) == 0
            assert limit.value == expected
        opened.allocator.free_cache()
        assert get(pool, RESERVED, ctypes.byref(limit)) == 0 == limit.value
    assert simulator.live()["pools"] == pools


def test_a_wide_fill_needs_no_host_memory_of_its_size(device, simulator):
    size = 300_001
    made = hal.Buffer(device, size + 1, hal.float64).allocate().fill(0)
    before = simulator.all_calls()
    made.view(size).fill(1.1)
    assert "cuMemHostAlloc" not in simulator.calls_since(before)
    sent = simulator.calls_since(before).get("cuMemcpyHtoDAsync", 0)
    assert sent == 1, "a part, and copies that double it"
    data = made.numpy()
    assert data[-1] == 0 and (data[:-1] == 1.1).all()


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("index", [None, 0, 1])
def test_a_finalizer_leaves_the_context_that_it_found(device, simulator, index, closed, pinned):
    """A finalizer may run in the middle of another library's work on another device."""
    device.close()
    simulator.retain_contexts(2)
    theirs, now = ctypes.c_void_p(), ctypes.c_void_p()
    if index is not None:
        simulator.driver.cuDevicePrimaryCtxRetain(ctypes.byref(theirs), index)
    opened = hal.Device["CUDA"]
    options = hal.BufferSpec(host=pinned, nolru=True)
    export = _Export(hal.Buffer(opened, 4000, hal.int32, options).allocate())
    if closed:
        opened.close()
    while simulator.driver.cuCtxPopCurrent_v2(ctypes.byref(now)) == 0:
        pass  # other tests may have left destroyed contexts on the stack
    simulator.set_context(theirs.value or 0)
    gc.collect()  # what earlier tests left in cycles is freed by its own finalizers
    before = simulator.all_calls()
    del export
    gc.collect()
    calls = simulator.calls_since(before)
    assert sum(calls.get(name, 0) for name in ("cuMemFree", "cuMemFreeAsync", "cuMemFreeHost")) == 1
    simulator.driver.cuCtxGetCurrent(ctypes.byref(now))
    assert now.value == theirs.value
    if index is not None:
        simulator.release_contexts(1, first=index)
    simulator.release_contexts(2)


def test_memory_that_an_export_kept_outlives_the_device(device, simulator):
    device.close()
    gc.collect()
    clean = simulator.live()
    with hal.Device["CUDA"] as first:
        made = hal.Buffer(first, 100_000, hal.uint8, hal.BufferSpec(nolru=True)).allocate().fill(3)
        export = _Export(made)
        del made
    with hal.Device["CUDA"] as second:
        taken = hal.Buffer.from_dlpack(export, second)
        assert (taken.numpy() == 3).all()
        others = [hal.Buffer(second, 100_000, hal.uint8).allocate().fill(k) for k in range(8)]
        del export, taken
        gc.collect()
        assert all((one.numpy() == number).all() for number, one in enumerate(others))
        del others
    gc.collect()
    assert simulator.live() == clean, "with the last block the context goes"


class _Export:
    def __init__(self, buffer):
        self._capsule, self._place = buffer.__dlpack__(), buffer.__dlpack_device__()

    def __dlpack__(self, stream=None):
        return self._capsule

    def __dlpack_device__(self):
        return self._place
