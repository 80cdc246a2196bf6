"""What a buffer gives to and takes from numpy and other array libraries."""

import gc
import importlib
import sys
import weakref

import numpy as np
import pytest

import hal_core as hal
from hal_core.dtypes import DTYPES

pytest.importorskip("hal_cpu", reason="hal-cpu, whose memory the host sees, is not installed")

EXPORTED = sorted(set(DTYPES) - {"bfloat16"})


def test_B9_memory_taken_lives_as_long_as_the_buffer():
    gc.collect()  # what other tests have left
    array = np.arange(1000, dtype="f8").view(_Array)
    gone = weakref.ref(array)
    buffer = hal.Buffer.from_dlpack(array, "CPU", copy=False)
    view, exported = buffer[:3], np.asarray(buffer)
    before = hal.Device["CPU"].allocator.statistics()
    del array, buffer
    gc.collect()
    assert view.numpy().tolist() == [0, 1, 2] and exported[999] == 999
    del view, exported
    gc.collect()
    assert gone() is None
    assert hal.Device["CPU"].allocator.statistics().live == before.live


class _Array(np.ndarray):
    """An array that can be watched."""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the protocol is Python 3.12's")
@pytest.mark.parametrize("name", EXPORTED)
def test_B9_a_memoryview_has_the_dtype_s_format(name):
    buffer = hal.Buffer.from_numpy(np.ones(5, name), "CPU")
    seen, array = memoryview(buffer), np.asarray(buffer)
    assert seen.tobytes() == array.tobytes() and np.asarray(seen).dtype == array.dtype == name
    bits = memoryview(buffer.view(dtype=hal.uint8))
    bits[:] = bytes(len(bits))
    assert not buffer.numpy().any() and seen.tobytes() == bytes(buffer) == bytes(len(bits))
    assert len(memoryview(hal.empty(0, buffer.dtype, "CPU"))) == 0


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the protocol is Python 3.12's")
def test_B9_a_memoryview_of_bfloat16_says_what_to_do(fake):
    buffer = hal.zeros(4, hal.bfloat16, "CPU")
    with pytest.raises(BufferError, match=r"Take the bits: buffer.view\(dtype=hal.uint16\)"):
        memoryview(buffer)
    assert bytes(buffer.view(dtype=hal.uint16)) == bytes(8)
    away = hal.zeros(4, hal.int32, fake)
    with pytest.raises(hal.InvalidArgument, match="for device memory use copy_from"):
        hal.Buffer(fake, 4, hal.int32).copyin(away)


def test_memory_of_others_is_not_taken_twice():
    buffer = hal.Buffer.from_dlpack(np.zeros(3), "CPU", copy=False)
    buffer.deallocate()
    with pytest.raises(hal.InvalidState, match="the buffer was freed.*never its own"):
        buffer.allocate()


def test_what_cannot_be_shared_is_copied_or_refused():
    rows = np.arange(6.0).reshape(2, 3)
    assert hal.Buffer.from_dlpack(rows.T, "CPU").numpy().tolist() == [0, 3, 1, 4, 2, 5]
    with pytest.raises(hal.Unsupported, match="cannot share: the array is not C-contiguous"):
        hal.Buffer.from_dlpack(rows.T, "CPU", copy=False)
    copied = hal.Buffer.from_dlpack(rows, "CPU", copy=True)
    copied.fill(7)
    assert rows[0, 0] == 0
    assert hal.Buffer.from_dlpack(np.zeros((0, 3)), "CPU").size == 0


def test_torch_shares_both_ways():
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        pytest.skip("torch is not installed")
    buffer = hal.zeros(3, hal.float32, "CPU")
    tensor = torch.from_dlpack(buffer)
    tensor[1] = 5
    assert buffer.numpy().tolist() == [0, 5, 0]
    back = hal.Buffer.from_dlpack(torch.arange(4, dtype=torch.int64), "CPU", copy=False)
    assert back.dtype is hal.int64 and back.numpy().tolist() == [0, 1, 2, 3]
