"""Capsules, with numpy on the other side and with our own reader."""

import ctypes
import gc
import itertools
import weakref

import numpy as np
import pytest
from dlpack_consumer import Consumed
from run_python import printed

from hal_core.buffer import capsule
from hal_core.dtypes import DTYPES, as_dtype, bfloat16, float32
from hal_core.errors import InvalidArgument

HOST = (1, 0)


EXCHANGED = sorted({*DTYPES, "complex64", "complex128"} - {"bfloat16"})
NUMPY_ASKS = hasattr(np, "unstack")  # since 2.1 it knows of versions
OPTIONS = [{}, {"max_version": (1, 0)}, {"max_version": (1, 1)}] if NUMPY_ASKS else [{}]
NEWEST = [None, (1, 0)] if NUMPY_ASKS else [None]


class _Owner:
    pass


class _Producer:
    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return HOST


@pytest.mark.parametrize("newest", [(0, 8), (1, 3), (2, 0), *NEWEST])
@pytest.mark.parametrize("name", EXCHANGED)
def test_numpy_reads_what_is_exported(name, newest):
    memory = np.arange(6).astype(name)
    made = capsule.make(memory.ctypes.data, 6, as_dtype(name), HOST, memory, newest=newest)
    known = NUMPY_ASKS and newest is not None and newest >= (1, 0)
    assert ("versioned" in repr(made)) is known
    seen = np.from_dlpack(_Producer(made))
    assert seen.dtype == memory.dtype and seen.tolist() == memory.tolist()
    assert seen.ctypes.data == memory.ctypes.data


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", EXCHANGED)
def test_what_numpy_exports_is_read(name, options):
    memory = np.arange(6).astype(name).reshape(2, 3)[1:]
    taken = capsule.take(memory.__dlpack__(**options))
    assert not taken.read_only
    assert taken[:4] == (memory.ctypes.data, 0, as_dtype(name), HOST) and taken.array.size == 3


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4)])
@pytest.mark.parametrize("strided", [False, True])
def test_an_array_of_nothing_has_no_gaps(shape, strided):
    """Whatever its strides are said to be."""
    memory = np.zeros([2 * extent + 1 for extent in shape], "f4")
    part = memory[tuple(slice(0, 2 * extent, 2) for extent in shape)]
    taken = capsule.take((part if strided else np.zeros(shape, "f4")).__dlpack__())
    assert (taken.array.size, taken.dtype) == (0, float32)


def test_B9_the_owner_lives_until_the_consumer_is_done():
    for consume, newest in itertools.product((False, True), NEWEST):
        memory, owner = np.zeros(4, "f4"), _Owner()
        gone = weakref.ref(owner)
        made = capsule.make(memory.ctypes.data, 4, float32, (2, 1), owner, newest=newest)
        del owner
        taken = capsule.take(made) if consume else None
        assert taken is None or taken.device == (2, 1)
        del made
        gc.collect()
        assert (gone() is None) is not consume
        del taken
        gc.collect()
        assert gone() is None


def test_a_bfloat16_comes_back_as_one():
    assert capsule.take(capsule.make(4096, 3, bfloat16, (2, 0), None))[:3] == (4096, 0, bfloat16)


def test_a_capsule_is_used_once():
    made = capsule.make(4096, 3, float32, (2, 0), None)
    kept = capsule.take(made)
    with pytest.raises(InvalidArgument, match="not a fresh DLPack capsule"):
        capsule.take(made)
    assert kept.array.size == 3


@pytest.mark.parametrize("shape", [(-1,), (2**62, 2**62), (1,) * 65])
def test_a_shape_that_is_none_is_refused_and_left_whole(shape):
    memory, owner = np.zeros(4, "f4"), _Owner()
    gone = weakref.ref(owner)
    made = capsule.make(memory.ctypes.data, 4, float32, (2, 0), owner)
    del owner
    tensor, _ = capsule._open(made)
    extents = (ctypes.c_int64 * len(shape))(*shape)
    tensor.ndim, tensor.shape, tensor.strides = len(shape), ctypes.addressof(extents), None
    with pytest.raises(InvalidArgument, match=rf"^from_dlpack: .*\(got '{len(shape)} axes'\)"):
        capsule.take(made)
    assert (tensor.device_type, tensor.code) == (2, 2) and gone() is not None
    del made
    assert gone() is None


@pytest.mark.parametrize("copied", [False, True])
def test_a_strict_consumer_finds_what_the_standard_says(copied):
    for newest in NEWEST:
        memory, owner = np.arange(6, dtype="i2"), _Owner()
        gone = weakref.ref(owner)
        made = capsule.make(
            memory.ctypes.data + 2, 5, DTYPES["int16"], (2, 3), owner, newest=newest, copied=copied
        )
        seen = Consumed(made)
        del made, owner
        assert (seen.device, seen.code, seen.bits, seen.size) == ((2, 3), 0, 16, 5)
        assert (seen.version, seen.flags) == (newest, 2 if copied and newest else 0)
        assert seen.content() == memory.tobytes()[2:] and gone() is not None
        seen.release()
        assert gone() is None


@pytest.mark.skipif(not NUMPY_ASKS, reason="numpy before 2.1 has no versions")
def test_read_only_memory_is_told():
    memory = np.arange(6)
    memory.flags.writeable = False
    assert capsule.take(memory.__dlpack__(max_version=(1, 0))).read_only


@pytest.mark.skipif(not NUMPY_ASKS, reason="numpy before 2.1 has no versions")
def test_a_version_of_another_layout_is_refused_and_left_whole():
    memory, owner = np.zeros(4, "f4"), _Owner()
    gone = weakref.ref(owner)
    made = capsule.make(memory.ctypes.data, 4, float32, HOST, owner, newest=(1, 0))
    del owner
    start = capsule._pointer(id(made), b"dltensor_versioned")
    ctypes.c_uint32.from_address(start).value = 2
    with pytest.raises(InvalidArgument, match=r"too new \(got '2.0'; 1.x\)"):
        capsule.take(made)
    assert gone() is not None
    del made
    assert gone() is None


def test_capsules_may_outlive_everything_at_exit():
    """What was given and what was taken are globals of `sys`, which goes last."""
    code = (
        "import sys, numpy as np\n"
        "from hal_core import dtypes\n"
        "from hal_core.buffer import capsule\n"
        "class Made:\n"
        "    def __init__(self, newest):\n"
        "        memory = np.zeros(4, 'f4')\n"
        "        self.it = capsule.make(memory.ctypes.data, 4, dtypes.float32, (1, 0), memory,\n"
        "                               newest=newest)\n"
        "    def __dlpack__(self, **_):\n"
        "        return self.it\n"
        "    def __dlpack_device__(self):\n"
        "        return 1, 0\n"
        "sys.kept = [np.from_dlpack(Made(n)) for n in (None, (1, 0))]\n"
        "sys.fresh = [Made(n) for n in (None, (1, 0))]\n"
        "np.kept, np.fresh = sys.kept[:], [Made(None)]\n"
        "sys.taken, np.taken = [capsule.take(np.zeros(4).__dlpack__()) for _ in range(2)]\n"
    )
    for _ in range(3):
        assert printed(code) == ""
