"""B1-B8, B10-B14 and V1-V5 on the fake device; every backend runs its own on real memory."""

import gc
import math
import pickle
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hal_core as hal
from hal_core.dtypes import pack

pytestmark = pytest.mark.lowest


def raw(buffer):
    """What the device holds, read without the code under test."""
    allocator = hal.Device[buffer.device].allocator
    return bytes(allocator.device.chip._at(buffer._buf, buffer.nbytes))


NEAR = {"f4": "float32", "f2": "float16", "u8": "uint64", "b1": "bool"}  # short names of numpy


@pytest.mark.parametrize(
    "dtype",
    [*NEAR, "float", float, int, None, 4, np.clongdouble, "S3", hal.any_, hal.Image(2, 2).kind],
)
def test_B1_refuses_what_is_no_dtype(fake, dtype):
    near = f" .*Did you mean {NEAR[dtype]}" if dtype in NEAR else ""
    with pytest.raises(hal.InvalidArgument, match=f"not a dtype{near}"):
        hal.Buffer(fake, 1, dtype)


@pytest.mark.parametrize("dtype", ["float32", np.float32, np.dtype("float32"), hal.float32])
def test_B1_takes_a_dtype_by_any_of_its_names(fake, dtype):
    assert hal.Buffer(fake, 1, dtype).dtype is hal.float32


def test_B1_refuses_what_is_no_device(fake):
    for wrong in (5, object(), hal.float32):
        with pytest.raises(hal.InvalidArgument, match="neither a device"):
            hal.Buffer(wrong, 1, hal.int8)
        for take in (hal.Buffer.wrap, hal.Queue.wrap, hal.Buffer.from_dlpack):
            with pytest.raises(hal.InvalidArgument, match="neither a device"):
                take(np.zeros(1, "i1"), wrong)
    # In the order of hal.empty, which has the device last.
    with pytest.raises(hal.InvalidArgument, match=r'neither a device.*Write hal.Buffer\("CPU", 10'):
        hal.Buffer(100, hal.float32, fake)


def test_B4_B5_shapes_and_strides_do_not_matter_the_second_time(fake):
    buffer = hal.Buffer(fake, 16, hal.uint8)
    image = np.arange(16, dtype=np.uint8).reshape(4, 4)
    out = np.zeros_like(image)
    for _ in range(2):
        buffer.copyin(image).copyout(out)
        assert np.array_equal(out, image)
        for wrong in (np.zeros((4, 8), np.uint8)[:, ::2], image.T):
            with pytest.raises(hal.InvalidArgument, match="C-contiguous"):
                buffer.copyin(wrong)
            with pytest.raises(hal.InvalidArgument, match="C-contiguous"):
                buffer.copyout(wrong)
    with pytest.raises(hal.InvalidArgument, match="no host memory"):
        buffer.copyin(object())


def test_B7_external_memory_is_wrapped_and_never_freed(fake):
    allocator = fake.allocator
    allocator.memory[7], spec = bytearray(b"12345678"), hal.BufferSpec(external_ptr=7)
    hal.empty(8, hal.uint8, fake, spec).deallocate()
    hal.empty(8, hal.uint8, fake, hal.BufferSpec(external_ptr=np.int64(7))).deallocate()
    hal.empty(8, hal.uint8, fake).fill(0)
    assert allocator.memory[7] == b"12345678", "it is not handed out"
    for null in (0, -8, True, 1.5, "x", 1 << 64):
        with pytest.raises(hal.InvalidArgument, match="not an address"):
            hal.empty(8, hal.uint8, fake, hal.BufferSpec(external_ptr=null))
    with pytest.raises(hal.InvalidArgument, match="not an address of so much memory"):
        hal.empty(2**62, hal.float32, fake, spec)


@pytest.mark.parametrize("size", [2**60, 2**62, 2**70])
def test_a_copy_that_no_host_has_room_for_is_out_of_memory(fake, size):
    one, many = hal.Buffer(fake, size, hal.float32), hal.MultiBuffer([fake], size, hal.float32)
    for copy in (one.numpy, many.numpy, lambda: one.__dlpack__(dl_device=(1, 0))):
        with pytest.raises(hal.OutOfMemory, match="the host has no room for a copy"):
            copy()


def test_B8_half_made_buffers_go_quietly(fake):
    for arguments in (("NOPE", 1, hal.int8), ("FAKE", -1, hal.int8), ("FAKE", 1, "nope")):
        with pytest.raises(hal.HalError):
            hal.Buffer(*arguments)
    gc.collect()  # an error in __del__ would be an unraisable warning, and fail


def test_B10_a_copy_of_external_memory_has_its_own(fake):
    allocator = fake.allocator
    allocator.memory[9] = bytearray(b"abcd")
    outside = hal.empty(4, hal.uint8, fake, hal.BufferSpec(external_ptr=9))
    inside = pickle.loads(pickle.dumps(outside))
    assert bytes(inside.numpy()) == b"abcd"
    inside.fill(0)
    assert bytes(outside.numpy()) == b"abcd" and inside.options.external_ptr is None


def test_B10_what_was_freed_is_not_pickled(fake):
    """It was pickled as one that was never allocated, and came back with bytes by chance."""
    buffer = hal.zeros(8, hal.float32, fake)
    view = buffer[4:]
    buffer.deallocate()
    for one in (buffer, view):
        with pytest.raises(hal.InvalidState, match="pickle: .* freed on FAKE"):
            pickle.dumps(one)
    buffer.allocate().fill(1)
    assert pickle.loads(pickle.dumps(buffer)).numpy().sum() == 8
    with pytest.raises(hal.InvalidState, match="pickle: its base was freed"):
        pickle.dumps(view)


def test_B14_fresh_memory_is_poisoned_in_checked_mode(monkeypatch, plugin):
    monkeypatch.setenv("HAL_CHECK", "1")
    assert raw(hal.empty(4, hal.uint8, "FAKE:1")) == b"\xcb" * 4
    assert not hal.zeros(4, hal.uint8, "FAKE:1").numpy().any()


def test_fill_takes_what_the_dtype_holds(fake):
    assert hal.Buffer(fake, 3, hal.float16).fill(1.5).numpy().tolist() == [1.5] * 3
    assert hal.Buffer(fake, 3, hal.bool_).fill(True).numpy().tolist() == [True] * 3
    buffer = hal.zeros(3, hal.int8, fake)
    for wrong in (128, 1.5, "1", None):
        with pytest.raises(hal.InvalidArgument):
            buffer.fill(wrong)
    assert buffer.numpy().tolist() == [0, 0, 0]
    rounded = {hal.float16: (65519.9, 65520.0), hal.bfloat16: (3.3961e38, 3.3962e38)}
    for dtype, (held, wrong) in (rounded | {hal.float32: (3.4028235e38, 3.4028236e38)}).items():
        assert hal.zeros(1, dtype, fake).fill(-held).numpy() == np.array(dtype.min, dtype)
        with pytest.raises(hal.InvalidArgument, match="out of range"):
            hal.zeros(1, dtype, fake).fill(wrong)


def test_a_fill_that_does_not_fit_is_called_one(fake):
    with pytest.raises(hal.InvalidArgument, match="value of the fill does not fit"):
        hal.zeros(1, hal.as_dtype(np.dtype("c8")), fake).fill("1")


def test_fill_takes_a_longer_float_that_the_dtype_holds(fake):
    buffer = hal.zeros(1, hal.float64, fake)
    for value in (np.longdouble("1.5"), np.longdouble("-inf"), np.float32("inf")):
        assert buffer.fill(value).numpy() == value
    if np.finfo(np.longdouble).max > np.finfo(np.float64).max:
        with pytest.raises(hal.InvalidArgument, match="out of range"):
            buffer.fill(np.longdouble("1e4000"))


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="numpy 2 has it")
def test_strings_of_any_length_are_refused(fake):
    strings = np.array(["a", "bc"], np.dtypes.StringDType())
    with pytest.raises(hal.InvalidArgument, match="from_numpy"):
        hal.Buffer.from_numpy(strings, fake)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # `own_cache`, unused
@given(number=st.floats(width=32) | st.sampled_from([0.0, -0.0, 1e-42, 1.00390625, 1.01171875]))
def test_fill_rounds_bfloat16_half_to_even(number):
    """As ml_dtypes does."""
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    if math.isfinite(number) and abs(number) > hal.bfloat16.max:
        return
    pattern = np.frombuffer(pack(number, hal.bfloat16), ml_dtypes.bfloat16)
    expected = np.array([number], np.float32).astype(ml_dtypes.bfloat16)
    assert pattern.tobytes() == expected.tobytes() or math.isnan(number)
    assert math.isnan(pattern[0]) == math.isnan(number)


@pytest.mark.parametrize(
    ("number", "bits"),
    [(1 + 2**-8 + 2**-40, 0x3F81), (1 + 2**-8 - 2**-40, 0x3F80), (-(2**24 + 2**16 + 1), 0xCB81)],
)
def test_fill_rounds_a_bfloat16_once(number, bits):
    """By way of the nearest float32, each would lie in the middle of two bfloat16."""
    assert pack(number, hal.bfloat16) == bits.to_bytes(2, sys.byteorder)


def test_fill_of_bfloat16_needs_nothing_else(fake, monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    buffer = hal.Buffer(fake, 2, hal.bfloat16).fill(-1.5)
    assert buffer.view(dtype=hal.uint16).numpy().tolist() == [0xBFC0] * 2


def test_numpy_shapes_and_order(fake):
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    buffer = hal.Buffer.from_numpy(array.T, fake)
    assert np.array_equal(buffer.numpy((4, 3)), array.T)
    assert np.array_equal(buffer.numpy(shape=(2, -1)), array.T.reshape(2, 6))
    wrongs = [(5, 3), 12.0, {12}, "12", (12, None), 2**70]
    for shape in wrongs:
        with pytest.raises(hal.InvalidArgument, match="has 12"):
            buffer.numpy(shape)


def test_slices_follow_python(fake):
    array = np.arange(10, dtype=np.int32)
    buffer = hal.Buffer.from_numpy(array, fake)
    for part in (np.s_[:], np.s_[3:], np.s_[-3:], np.s_[2:-2], np.s_[8:2], np.s_[5:100]):
        assert np.array_equal(buffer[part].numpy(), array[part])


def test_B5_nothing_is_copied_into_an_empty_array_of_any_shape(fake):
    """A read-only destination is refused only if there is something to write."""
    empty = hal.empty(0, hal.int32, fake)
    for dest in (np.empty((0, 3), "i4"), np.empty(0, "i4"), bytearray()):
        assert empty.copyout(dest) is dest
