"""Memory shared with other libraries: the CUDA array interface, DLPack, PyCUDA's own objects."""

import gc

import numpy as np
import pytest

import hal_core as hal
from hal_core.buffer import capsule
from hal_cuda import driver
from hal_testing.conformance.kernels import add_one


class Theirs:
    """An array of another library."""

    def __init__(self, buffer, **changes):
        self.__cuda_array_interface__ = {**buffer.__cuda_array_interface__, **changes}
        self.keeps = buffer


@pytest.fixture
def matrix(device):
    return hal.Buffer.from_numpy(np.arange(12, dtype="i4"), device)


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((3, 4), None), ((3, 4), (16, 4)), ((1, 12), (999, 4)), ((12, 1), (4, 7)), ((12,), (4,))],
)
def test_what_is_dense_is_taken_and_shared(device, matrix, shape, strides):
    taken = hal.Buffer.wrap(Theirs(matrix, shape=shape, strides=strides), device)
    device.compile(add_one)(taken, vals=(12,), threads=12)
    assert matrix.numpy().tolist() == list(range(1, 13))


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"shape": (3, 4), "strides": (4, 12)}, "not C-contiguous"),
     ({"shape": (6,), "strides": (8,)}, "not C-contiguous"),
     ({"shape": (12,), "strides": (-4,)}, "not C-contiguous"), ({"mask": object()}, "masked"),
     ({"data": (4096, True)}, "read-only"), ({"typestr": ">i4"}, "byte order"),
     ({"typestr": "nonsense"}, "garbles"), ({"data": None}, "garbles"),
     ({"shape": None}, "garbles"), ({"data": (None, False)}, "no memory"),
     ({"data": (0, False)}, "no memory"), ({"data": ("x", False)}, "garbles"),
     ({"data": (4096,)}, "garbles"), ({"shape": 40}, "garbles"), ({"shape": (4.5,)}, "garbles"),
     ({"shape": (-40,)}, "negative"), ({"strides": (4, 4)}, "do not match"),
     ({"strides": 4}, "garbles"), ({"strides": "abc"}, "garbles"), ({"stream": 0}, "stream"),
     ({"stream": -1}, "stream"), ({"stream": 1 << 64}, "stream"), ({"stream": "abc"}, "garbles"),
     ({"stream": 2.5}, "garbles")],
)  # fmt: skip
def test_what_cannot_be_shared_is_refused_with_the_reason(device, matrix, changes, said):
    with pytest.raises(hal.InvalidArgument, match=rf"wrap: .*{said}"):
        hal.Buffer.wrap(Theirs(matrix, **changes), device)


def test_an_interface_that_is_no_dictionary_is_refused(device):
    class Odd:
        __cuda_array_interface__ = 5

    with pytest.raises(hal.InvalidArgument, match=r"wrap: .*no dictionary"):
        hal.Buffer.wrap(Odd(), device)


@pytest.mark.parametrize("strides", [None, (4,), (12,)])
def test_an_empty_array_is_an_empty_buffer(device, matrix, strides):
    empty = Theirs(matrix, shape=(0,), strides=strides, data=(0, False))
    assert hal.Buffer.wrap(empty, device).numpy().tolist() == []
    made = hal.Buffer(device, 0, hal.int32).allocate()
    assert made.__cuda_array_interface__["shape"] == (0,)


def test_work_on_the_stream_of_an_interface_is_waited_for(device, matrix, simulator):
    theirs = device.api.make_stream()
    number = int(getattr(getattr(theirs, "it", theirs), "handle", 0) or int(theirs))
    simulator.delay("cuMemsetD32Async", 0.2)
    device.synchronize()
    before = simulator.all_calls()
    taken = hal.Buffer.wrap(Theirs(matrix, stream=number), device)
    assert simulator.calls_since(before).get("cuStreamSynchronize") == 1
    simulator.clear()
    assert taken.numpy().tolist() == list(range(12))
    device.api.destroy_stream(theirs)


def test_the_array_of_another_device_is_refused_by_name(device, other):
    there = hal.Buffer(other, 12, hal.int32).allocate()
    with pytest.raises(hal.InvalidArgument, match=r"another device, CUDA:1"):
        hal.Buffer.wrap(Theirs(there), device)


def test_a_consumer_that_refuses_a_capsule_says_why_and_keeps_nothing(device, matrix):
    gc.collect()
    live = device.allocator.statistics().live
    with pytest.raises((BufferError, RuntimeError), match=r"(?i)unsupported device"):
        np.from_dlpack(matrix)
    matrix.deallocate()
    assert device.allocator.statistics().live == live - 1


def test_a_copy_is_done_when_the_producer_gets_its_memory_back(device, matrix, simulator):
    """Its stream may be independent of ours."""
    theirs = device.api.make_stream(independent=True)
    simulator.delay("cuMemcpyAsync", 0.2)
    copied = hal.Buffer.from_dlpack(matrix, device, copy=True)
    with device.own("fill"):
        device.api.fill(matrix._buf, b"\0", 48, theirs)
        device.api.wait(theirs)
    assert copied.numpy().tolist() == list(range(12))
    simulator.clear()
    with device.own("close"):
        device.api.destroy_stream(theirs)


@pytest.mark.skipif(driver.DRIVER.read() != "pycuda", reason="PyCUDA is not what is used")
def test_PyCUDAs_arrays_and_allocations_in_and_out(device):
    import pycuda.driver as cuda
    from pycuda import gpuarray

    context = cuda.Device(0).retain_primary_context()  # which is the one in use here
    context.push()
    try:
        array = gpuarray.to_gpu(np.arange(100, dtype="i4").reshape(10, 10))
        raw = cuda.mem_alloc(400)
        device.compile(add_one)(hal.Buffer.wrap(array, device), vals=(100,), threads=100)
        device.synchronize()
        assert array.get().ravel().tolist() == list(range(1, 101))
        with pytest.raises(hal.InvalidArgument, match="not C-contiguous"):
            hal.Buffer.wrap(array[:, ::2], device)
        bytes_of = hal.Buffer.wrap(raw, device)
        assert (bytes_of.nbytes, bytes_of.dtype) == (400, hal.uint8)
        bytes_of.view(100, hal.int32).fill(7)
        back = np.empty(100, "i4")
        cuda.memcpy_dtoh(back, raw)
        assert set(back.tolist()) == {7}
        mine = hal.Buffer.from_numpy(np.arange(5, dtype="f4"), device)
        facts = mine.__cuda_array_interface__
        theirs = gpuarray.GPUArray(5, np.float32, gpudata=facts["data"][0], base=mine)
        assert theirs.get().tolist() == [0, 1, 2, 3, 4]
        del array, raw, theirs, bytes_of
        gc.collect()
    finally:
        cuda.Context.pop()
        context.detach()


@pytest.mark.skipif(driver.DRIVER.read() != "pycuda", reason="PyCUDA is not what is used")
def test_PyCUDAs_current_context_is_shared_and_left_alone(device, simulator):
    import pycuda.driver as cuda
    from pycuda import gpuarray

    device.close()
    contexts = simulator.live()["contexts"]
    context = cuda.Device(0).make_context()
    try:
        with hal.Device["CUDA"] as opened:
            assert simulator.live()["contexts"] == contexts + 1
            array = gpuarray.to_gpu(np.arange(100, dtype="i4"))
            program = opened.compile(add_one)
            program(hal.Buffer.wrap(array, opened), vals=(100,), threads=100)
            opened.synchronize()
            assert array.get().tolist() == list(range(1, 101))
        assert array.get()[99] == 100
        del array
    finally:
        context.pop()
        context.detach()
    gc.collect()
    assert simulator.live()["contexts"] == contexts


@pytest.mark.parametrize("consumer", ["none", "legacy", "per thread", "made", "independent"])
@pytest.mark.parametrize("copy", [None, True])
def test_T1_an_export_is_ordered_with_the_consumers_stream_and_the_host_waits_for_nothing(
    device, matrix, simulator, consumer, copy
):
    made = {"made": False, "independent": True}
    number = {"none": None, "legacy": 1, "per thread": 2}.get(consumer)
    if consumer in made:
        number = int(device.api.make_stream(independent=made[consumer]))
    program, got = device.compile(add_one), np.zeros(12, "i4")
    program(matrix, vals=(12,), threads=12)
    device.synchronize()
    simulator.delay("cuLaunchKernel", 0.1)
    program(matrix, vals=(12,), threads=12)
    before = simulator.all_calls()
    taken = capsule.take(matrix.__dlpack__(stream=number, copy=copy))
    waits = {"cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize", "cuStreamQuery"}
    assert not waits & set(simulator.calls_since(before))
    device.api.copy_out(got.data.cast("B"), taken.pointer, 48, number or 1)
    device.api.wait(number or 1)
    assert got.tolist() == list(range(2, 14))
    if consumer in made:
        device.api.destroy_stream(number)


def test_an_export_to_an_unknown_stream_or_to_the_host_waits_as_before(device, matrix, simulator):
    program = device.compile(add_one)
    program(matrix, vals=(12,), threads=12)
    device.synchronize()
    pinned = hal.Buffer(device, 12, hal.int32, hal.BufferSpec(host=True)).allocate()
    simulator.delay("cuLaunchKernel", 0.1)
    for stream in (0, 0xBAD, 1 << 64, "of another library"):
        program(matrix, vals=(12,), threads=12)
        kept = matrix.__dlpack__(stream=stream)
        assert device.synchronize(timeout=0)
        del kept
    program(matrix, vals=(12,), threads=12)
    pinned.copy_from(matrix)
    assert np.from_dlpack(pinned).tolist() == list(range(6, 18))
