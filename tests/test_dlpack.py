"""Capsules, with numpy on the other side and with our own reader."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fake_backend import FakeAllocator, FakePlugin

import hal_core as hal
from hal_core import dlpack
from hal_core.dtypes import DTYPES, bfloat16, float32
from hal_core.errors import InvalidArgument
from hal_core.hookspecs import Foreign, hookimpl

HOST = (1, 0)


class _Owner:
    pass


class _Producer:
    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return HOST


@pytest.mark.parametrize("name", sorted(set(DTYPES) - {"bfloat16"}))
def test_numpy_reads_what_is_exported(name: str) -> None:
    memory = np.arange(6).astype(name)
    made = dlpack.capsule(memory.ctypes.data, 6, DTYPES[name], HOST, memory)
    seen = np.from_dlpack(_Producer(made))
    assert seen.dtype == memory.dtype and seen.tolist() == memory.tolist()
    assert seen.ctypes.data == memory.ctypes.data


@pytest.mark.parametrize("name", sorted(set(DTYPES) - {"bfloat16"}))
def test_what_numpy_exports_is_read(name: str) -> None:
    memory = np.arange(6).astype(name).reshape(2, 3)[1:]
    taken = dlpack.take(memory.__dlpack__())
    assert taken[:4] == (memory.ctypes.data, 3, DTYPES[name], HOST)


def test_B9_the_owner_lives_until_the_consumer_is_done() -> None:
    for consume in (False, True):
        memory, owner = np.zeros(4, "f4"), _Owner()
        gone = weakref.ref(owner)
        made: Any = dlpack.capsule(memory.ctypes.data, 4, float32, (2, 1), owner)
        del owner
        taken = dlpack.take(made) if consume else None
        assert taken is None or taken.device == (2, 1)
        del made
        gc.collect()
        assert (gone() is None) is not consume
        del taken
        gc.collect()
        assert gone() is None


def test_a_bfloat16_comes_back_as_one() -> None:
    assert dlpack.take(dlpack.capsule(4096, 3, bfloat16, (2, 0), None))[:3] == (4096, 3, bfloat16)


def test_a_capsule_is_used_once() -> None:
    made = dlpack.capsule(4096, 3, float32, (2, 0), None)
    kept = dlpack.take(made)
    with pytest.raises(InvalidArgument, match="not a fresh DLPack capsule"):
        dlpack.take(made)
    assert kept.size == 3


@pytest.mark.parametrize(
    ("array", "problem"),
    [(np.zeros((4, 4), "f4").T[1:], "C-contiguous"), (np.zeros(3, "c8"), "no dtype of ours")],
)
def test_what_cannot_be_taken_is_refused_and_left_whole(array: Any, problem: str) -> None:
    made = array.__dlpack__()
    with pytest.raises(InvalidArgument, match=problem):
        dlpack.take(made)
    assert np.from_dlpack(_Producer(made)).tolist() == array.tolist()


def test_what_is_no_capsule_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        dlpack.take(object())


# -- buffers of a device whose memory DLPack has a name for


class _Allocator(FakeAllocator):
    """Its memory is the host's, which DLPack is told is a GPU's: pointers are real."""

    honours = frozenset({"nolru", "zero", "external_ptr"})
    dlpack_device = (2, 0)
    dlpack_stream = 77
    exports: Any = {"__chip_array__": lambda buffer: ("chip", buffer._buf, buffer.size)}  # noqa: RUF012

    def _alloc(self, nbytes: int, options: hal.BufferSpec) -> Any:
        made = (ctypes.c_ubyte * nbytes)()
        self.memory[ctypes.addressof(made)] = made  # type: ignore[assignment]
        return ctypes.addressof(made)

    def _free(self, opaque: Any, nbytes: int, options: hal.BufferSpec) -> None:
        del self.memory[opaque]

    def _wrap(self, pointer: int, nbytes: int) -> Any:
        return pointer

    def _offset(self, opaque: Any, nbytes: int, offset: int) -> Any:
        return opaque + offset

    def _copyin(self, dest: Any, src: memoryview) -> None:
        ctypes.memmove(dest, bytes(src), src.nbytes)

    def _copyout(self, dest: memoryview, src: Any) -> None:
        dest[:] = ctypes.string_at(src, dest.nbytes)


class _Plugin(FakePlugin):
    @hookimpl
    def hal_make_allocator(self, device: hal.Compiled) -> Any:
        return _Allocator(device)

    @hookimpl
    def hal_import_buffer(self, device: hal.Compiled, obj: object) -> Any:
        return Foreign(obj[1], obj[2], float32, obj) if isinstance(obj, tuple) else None


@pytest.fixture
def chip() -> Iterator[hal.Compiled]:
    hal.Device.register_plugin("CHIP", _Plugin())
    yield hal.Device["CHIP"]
    hal.Device["CHIP"].close()


def test_B9_device_memory_goes_both_ways_without_a_copy(chip: hal.Compiled) -> None:
    buffer = hal.Buffer.from_numpy(np.arange(10, dtype="f4"), chip)
    assert buffer.__dlpack_device__() == (2, 0)
    other = hal.Buffer.from_dlpack(buffer[2:], chip)
    buffer.deallocate()
    hal.zeros(10, float32, chip)
    assert other.numpy().tolist() == list(range(2, 10)), "the export keeps the memory"
    copied = hal.Buffer.from_dlpack(other, chip, copy=True)
    other.fill(0)
    assert copied.numpy().tolist() == list(range(2, 10))
    del other, copied
    gc.collect()
    assert chip.allocator.statistics().live == 0


def test_a_producer_is_told_the_stream(chip: hal.Compiled) -> None:
    told: list[Any] = []

    class _There(_Producer):
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

        def __dlpack__(self, **options: Any) -> Any:
            told.append(options)
            return self.capsule

    memory = np.arange(3, dtype="f4")
    made = dlpack.capsule(memory.ctypes.data, 3, float32, (2, 0), memory)
    assert hal.Buffer.from_dlpack(_There(made), chip).numpy().tolist() == [0, 1, 2]
    assert told == [{"stream": 77}]


def test_host_arrays_are_copied_to_it(chip: hal.Compiled) -> None:
    assert hal.Buffer.from_dlpack(np.arange(3, dtype="f4"), chip).numpy().tolist() == [0, 1, 2]


def test_a_backend_exports_and_wraps_its_own_protocol(chip: hal.Compiled) -> None:
    buffer = hal.Buffer.from_numpy(np.arange(10, dtype="f4"), chip)
    shown: Any = buffer
    wrapped = hal.Buffer.wrap(shown.__chip_array__, chip)
    wrapped.fill(3)
    assert buffer.numpy().tolist() == [3] * 10
    with pytest.raises(InvalidArgument, match="knows no such object"):
        hal.Buffer.wrap(object(), chip)
    with pytest.raises(AttributeError, match="__other_array__"):
        shown.__other_array__
