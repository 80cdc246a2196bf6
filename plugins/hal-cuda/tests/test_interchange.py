"""Memory of others and for others: the CUDA array interface, DLPack, PyCUDA's own objects."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from simulator import Simulator

import hal_core as hal
from hal_cuda import driver


@hal.kernel
def add_one(y: hal.Ptr[hal.int32], n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] = y[i] + 1


class Theirs:
    """An array of another library."""

    def __init__(self, buffer: hal.Buffer, **changes: Any) -> None:
        self.__cuda_array_interface__ = {**buffer.__cuda_array_interface__, **changes}
        self.keeps = buffer


@pytest.fixture
def matrix(device: hal.Compiled) -> hal.Buffer:
    return hal.Buffer.from_numpy(np.arange(12, dtype="i4"), device)


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((3, 4), None), ((3, 4), (16, 4)), ((1, 12), (999, 4)), ((12, 1), (4, 7)), ((12,), (4,))],
)
def test_what_is_dense_is_taken_and_shared(
    device: hal.Compiled, matrix: hal.Buffer, shape: Any, strides: Any
) -> None:
    taken = hal.Buffer.wrap(Theirs(matrix, shape=shape, strides=strides), device)
    device.compile(add_one)(taken, vals=(12,), threads=12)
    assert matrix.numpy().tolist() == list(range(1, 13))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shape": (3, 4), "strides": (4, 12)}, "not C-contiguous"),
        ({"shape": (6,), "strides": (8,)}, "not C-contiguous"),
        ({"shape": (12,), "strides": (-4,)}, "not C-contiguous"),
        ({"mask": object()}, "masked"),
        ({"data": (4096, True)}, "read-only"),
        ({"typestr": ">i4"}, "byte order"),
        ({"typestr": "nonsense"}, "garbles"),
        ({"data": None}, "garbles"),
        ({"shape": None}, "garbles"),
        ({"typestr": "<c8"}, "complex64"),
    ],
)
def test_what_cannot_be_shared_is_refused_with_the_reason(
    device: hal.Compiled, matrix: hal.Buffer, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(hal.InvalidArgument, match=rf"wrap: .*{said}"):
        hal.Buffer.wrap(Theirs(matrix, **changes), device)


def test_an_interface_that_is_no_dictionary_is_refused(device: hal.Compiled) -> None:
    class Odd:
        __cuda_array_interface__ = 5

    with pytest.raises(hal.InvalidArgument, match=r"wrap: .*no dictionary"):
        hal.Buffer.wrap(Odd(), device)


@pytest.mark.parametrize("strides", [None, (4,), (12,)])
def test_an_empty_array_is_an_empty_buffer(
    device: hal.Compiled, matrix: hal.Buffer, strides: Any
) -> None:
    empty = Theirs(matrix, shape=(0,), strides=strides, data=(0, False))
    assert hal.Buffer.wrap(empty, device).numpy().tolist() == []
    made = hal.Buffer(device, 0, hal.int32).allocate()
    assert made.__cuda_array_interface__["shape"] == (0,)


def test_work_on_the_stream_of_an_interface_is_waited_for(
    device: hal.Compiled, matrix: hal.Buffer, simulator: Simulator
) -> None:
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


def test_the_array_of_another_device_is_refused_by_name(device: hal.Compiled) -> None:
    there = hal.Buffer(hal.Device["CUDA:1"], 12, hal.int32).allocate()
    with pytest.raises(hal.InvalidArgument, match=r"another device, CUDA:1"):
        hal.Buffer.wrap(Theirs(there), device)


@pytest.mark.parametrize("view", [False, True])
def test_DLPack_out_and_in_shares_and_lets_go(
    device: hal.Compiled, matrix: hal.Buffer, simulator: Simulator, view: bool
) -> None:
    given = matrix[3:8] if view else matrix
    expected = given.numpy().tolist()
    assert given.__dlpack_device__() == (2, 0)
    taken = hal.Buffer.from_dlpack(given, device)
    copied = hal.Buffer.from_dlpack(given, device, copy=True)
    device.compile(add_one)(taken, vals=(taken.size,), threads=taken.size)
    assert given.numpy().tolist() == [k + 1 for k in expected]
    assert copied.numpy().tolist() == expected
    gc.collect()
    live = device.allocator.statistics().live
    matrix.deallocate()
    assert taken.numpy().tolist() == [k + 1 for k in expected]
    del taken
    gc.collect()
    assert device.allocator.statistics().live == live - 1


def test_DLPack_of_a_capsule_that_was_used_is_refused(
    device: hal.Compiled, matrix: hal.Buffer
) -> None:
    capsule = matrix.__dlpack__()

    class Once:
        def __dlpack__(self, **_: Any) -> Any:
            return capsule

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

    taken = hal.Buffer.from_dlpack(Once(), device)
    with pytest.raises(hal.InvalidArgument, match=r"from_dlpack: not a fresh DLPack capsule"):
        hal.Buffer.from_dlpack(Once(), device)
    assert taken.numpy().tolist() == list(range(12))


@pytest.mark.skipif(driver.DRIVER.read() != "pycuda", reason="PyCUDA is not what is used")
def test_PyCUDAs_arrays_and_allocations_in_and_out(device: hal.Compiled) -> None:
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
def test_PyCUDAs_current_context_is_shared_and_left_alone(
    device: hal.Compiled, simulator: Simulator
) -> None:
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
