"""What buffers give to and take from consumers and producers of DLPack: where, copied or shared."""

import contextlib
import ctypes
import gc
import itertools
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import pytest
from dlpack_consumer import Consumed
from fake_backend import FakePlugin

import hal_core as hal
from hal_core.allocator import LRUAllocator
from hal_core.buffer import capsule
from hal_core.dtypes import float32
from hal_core.hookspecs import Foreign, hookimpl

HOST, CHIP, OTHER, PINNED, UNIFIED = (1, 0), (2, 0), (2, 1), (3, 0), (8, 0)
FAMILIES = ("CHIP", "UNIFIED")
SHARED, COPIED, REFUSED = "shared", "copied", "refused"
NUMPY_ASKS = hasattr(np, "unstack")  # since 2.1 its from_dlpack has `device` and `copy`
NEWEST = [None, (1, 0)] if NUMPY_ASKS else [None]  # before, it makes no capsules with a version


class Place(NamedTuple):
    """A kind of memory: where it is by itself, and where without a copy."""

    family: str
    home: Any
    shared: tuple[Any, ...]
    options: hal.BufferSpec | None = None

    def array(self, content):
        return hal.Buffer.from_numpy(content, self.family, self.options)


PLACES = {
    "CHIP": Place("CHIP", CHIP, (CHIP,)),
    "FAKE": Place("FAKE", None, ()),
    "pinned": Place("CHIP", PINNED, (PINNED, CHIP, HOST), hal.BufferSpec(host=True)),
    "unified": Place("UNIFIED", UNIFIED, (UNIFIED, HOST)),
}
COMPUTES_ON = {"CHIP": (CHIP, PINNED), "UNIFIED": (UNIFIED,), "CPU": (HOST, PINNED), "FAKE": ()}
if find_spec("hal_cpu") is not None:
    PLACES["CPU"] = Place("CPU", HOST, (HOST,))


class _Allocator(LRUAllocator[int]):
    """Its memory is the host's, which DLPack is told is a GPU's: pointers are real."""

    honours = frozenset({"nolru", "zero", "external_ptr", "host"})
    wraps_addresses = True
    dlpack_device, dlpack_pinned = CHIP, PINNED
    dlpack_stream = 77
    exports = {"__chip_array__": lambda buffer: ("chip", buffer._buf, buffer.size)}  # noqa: RUF012

    def __init__(self, device):
        super().__init__(device)
        self.memory = {}

    def _alloc(self, nbytes, options):
        made = (ctypes.c_ubyte * nbytes)()
        self.memory[ctypes.addressof(made)] = made
        return ctypes.addressof(made)

    def _free(self, opaque, nbytes, options):
        del self.memory[opaque]

    def _wrap(self, pointer, nbytes):
        return pointer

    def _host_sees(self, options):
        return options.host

    def _as_buffer(self, opaque, nbytes):
        return memoryview((ctypes.c_ubyte * nbytes).from_address(opaque)).cast("B")

    def _offset(self, opaque, nbytes, offset):
        return opaque + offset

    def _copyin(self, dest, src):
        ctypes.memmove(dest, bytes(src), src.nbytes)

    def _copyout(self, dest, src):
        dest[:] = ctypes.string_at(src, dest.nbytes)


class _Unified(_Allocator):
    """The host sees all of it."""

    dlpack_device, dlpack_pinned = UNIFIED, None

    def _host_sees(self, options):
        return True


class _Plugin(FakePlugin):
    @hookimpl
    def hal_make_allocator(self, device):
        return (_Unified if device.family == "UNIFIED" else _Allocator)(device)

    @hookimpl
    def hal_import_buffer(self, device, obj):
        return Foreign(obj[1], obj[2], float32, obj) if isinstance(obj, tuple) else None


@pytest.fixture
def chip():
    for family in FAMILIES:
        hal.Device.register_plugin(family, _Plugin())
    yield hal.Device["CHIP"]
    for family in FAMILIES:
        hal.Device[family].close()


def expected(place, dl_device, copy):
    """Of the standard: where it may go, and whether it is copied on the way."""
    target = dl_device or place.home
    if target is None or target not in (*place.shared, HOST):
        return REFUSED
    if target not in place.shared:
        return REFUSED if copy is False else COPIED
    return COPIED if copy else SHARED


@pytest.mark.parametrize("newest", NEWEST)
@pytest.mark.parametrize("copy", [None, False, True])
@pytest.mark.parametrize("dl_device", [None, HOST, CHIP, OTHER, PINNED, UNIFIED])
@pytest.mark.parametrize("name", PLACES)
def test_B9_an_export_is_where_and_how_the_consumer_asks(chip, fake, name, dl_device, copy, newest):
    place = PLACES[name]
    home, family = place.home, place.family
    gc.collect()  # what other tests have left
    buffer = place.array(np.arange(10, dtype="i4"))[2:8]
    allocator = hal.Device[family].allocator
    live = allocator.statistics().live
    options = {"max_version": newest, "dl_device": dl_device, "copy": copy}
    outcome = expected(place, dl_device, copy)
    if outcome == REFUSED:
        with pytest.raises(BufferError, match=rf"{family}\. .*[Cc]opy") as caught:
            buffer.__dlpack__(**options)
        assert isinstance(caught.value, hal.NotShareable)
        return
    made = buffer.__dlpack__(**options)
    gc.collect()
    seen = Consumed(made)
    del made
    assert (seen.device, seen.version is None) == (dl_device or home, newest is None)
    assert (seen.size, seen.code, seen.bits) == (6, 0, 32)
    if newest:
        assert seen.flags == (2 if outcome == COPIED else 0)
    content = np.arange(2, 8, dtype="i4").tobytes()
    assert seen.content() == content
    if outcome == SHARED:
        there = buffer._buf if isinstance(buffer._buf, int) else np.asarray(buffer).ctypes.data
        assert seen.address == there
    buffer.fill(-1)
    hal.Device[family].synchronize()
    assert seen.content() == (content if outcome == COPIED else b"\xff" * 24)
    del buffer
    for _ in range(3):
        hal.empty(10, hal.int32, family, place.options).fill(0)
    assert seen.content() == (content if outcome == COPIED else b"\xff" * 24)
    seen.release()
    gc.collect()
    assert allocator.statistics().live == live - 1


@pytest.mark.skipif(not NUMPY_ASKS, reason="numpy before 2.1 asks for nothing")
@pytest.mark.parametrize("copy", [None, False, True])
@pytest.mark.parametrize("asked", [None, "cpu"])
@pytest.mark.parametrize("name", PLACES)
def test_B9_numpy_asks_for_the_host_and_for_copies(chip, fake, name, asked, copy):
    place = PLACES[name]
    buffer = place.array(np.arange(10, dtype="f8"))
    outcome = expected(place, HOST if asked else None, copy)
    nowhere = place.home in (CHIP, UNIFIED) and not asked  # where numpy takes none from
    if outcome == REFUSED or nowhere:
        with pytest.raises((BufferError, RuntimeError)):
            np.from_dlpack(buffer, device=asked, copy=copy)
        return
    array = np.from_dlpack(buffer, device=asked, copy=copy)
    buffer.fill(0)
    hal.Device[place.family].synchronize()
    assert array.tolist() == ([0] * 10 if outcome == SHARED else list(range(10)))
    assert array.flags.writeable


def test_B9_the_stream_of_a_consumer_and_its_wish_for_no_wait(chip):
    buffer = hal.zeros(4, hal.int32, chip)
    for stream, copy, expected_waits in [
        (None, None, 1), (1, None, 1), (7, False, 1), (-1, None, 0), (-1, True, 1)
    ]:  # fmt: skip
        chip.log.clear()
        Consumed(buffer.__dlpack__(stream=stream, copy=copy)).release()
        assert chip.log == ["synchronize"] * expected_waits, stream


def test_B9_bfloat16_comes_to_the_host_as_one_and_empty_buffers_are_exported(chip):
    two = hal.Buffer(chip, 2, hal.bfloat16).allocate().copyin(b"\x80\x3f\0\x40")
    seen = Consumed(two.__dlpack__(dl_device=HOST))
    assert (seen.code, seen.bits, seen.content()) == (4, 16, b"\x80\x3f\0\x40")
    seen.release()
    asked = itertools.product((None, hal.BufferSpec(host=True)), (None, HOST, CHIP), (None, True))
    for options, dl_device, copy in asked:
        none = hal.Buffer(chip, 0, hal.int32, options).allocate()
        seen = Consumed(none.__dlpack__(dl_device=dl_device, copy=copy))
        assert seen.size == 0
        seen.release()


# -- the other way


class _Producer:
    """An array of another library; `knows`: what its `__dlpack__` takes."""

    def __init__(self, made, place, knows=frozenset()):
        self.made, self.place, self.knows = made, place, knows
        self.told = []

    def __dlpack__(self, **options):
        if set(options) - self.knows:
            raise TypeError(f"unexpected {set(options) - self.knows}")
        self.told.append(options)
        return self.made(**options) if callable(self.made) else self.made

    def __dlpack_device__(self):
        if isinstance(self.place, Exception):
            raise self.place
        return self.place


OLD, NEW = frozenset({"stream"}), frozenset({"stream", "max_version", "dl_device", "copy"})


@pytest.mark.parametrize("knows", [OLD, NEW])
@pytest.mark.parametrize("newest", NEWEST)
@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("copy", [None, False, True])
def test_B9_memory_of_the_device_is_shared_or_copied_as_asked(chip, knows, newest, read_only, copy):
    memory = np.arange(3, dtype="f4")
    made = capsule.make(memory.ctypes.data, 3, float32, CHIP, memory, newest=newest)
    if newest and read_only:
        start = capsule._pointer(id(made), b"dltensor_versioned")
        ctypes.c_uint64.from_address(start + 24).value = 1
    read_only = bool(newest and read_only)
    producer = _Producer(made, CHIP, knows)
    with contextlib.ExitStack() as refusal:
        if read_only and copy is False:
            refusal.enter_context(pytest.raises(BufferError, match="cannot share: .*read-only"))
        taken = hal.Buffer.from_dlpack(producer, chip, copy=copy)
        assert taken.numpy().tolist() == [0, 1, 2]
        memory[:] = 7
        assert taken.numpy().tolist() == ([0, 1, 2] if copy or read_only else [7, 7, 7])
    assert producer.told == [
        {"stream": 77} | ({"max_version": capsule.VERSION} if knows is NEW else {})
    ]


@pytest.mark.parametrize("source", PLACES)
@pytest.mark.parametrize("dest", PLACES)
@pytest.mark.parametrize("copy", [None, False, True])
def test_B9_memory_of_another_device_comes_by_the_host(chip, fake, source, dest, copy):
    place, there = PLACES[source], hal.Device[PLACES[dest].family]
    given = place.array(np.arange(10, dtype="i4"))
    shareable = place.home in COMPUTES_ON[there.family]
    if copy is False and not shareable:
        why = "cannot share" if place.home else "cannot share: DLPack has no name for the array's"
        with pytest.raises(BufferError, match=rf"from_dlpack: {why}.*Leave copy=None"):
            hal.Buffer.from_dlpack(given, there, copy=copy)
        return
    taken = hal.Buffer.from_dlpack(given, there, copy=copy)
    assert taken.device == there.name and taken.numpy().tolist() == list(range(10))
    given.fill(0)
    hal.Device[place.family].synchronize()
    brought = dest == "CPU" and HOST in place.shared  # the host's already, when asked for there
    shared = (shareable or brought) and not copy
    assert taken.numpy().tolist() == ([0] * 10 if shared else list(range(10)))


def test_B9_a_device_that_knows_memory_by_handles_gets_a_copy(chip, monkeypatch):
    """A device whose memory the host sees need not be able to wrap any address of the host."""
    chip.info = chip.info._replace(host_visible=True)
    array = np.arange(3, dtype="i4")
    for wraps, shared in ((True, True), (False, False)):
        monkeypatch.setattr(type(chip.allocator), "wraps_addresses", wraps)
        taken = hal.Buffer.from_dlpack(array, chip)
        array += 1
        assert (taken.numpy().tolist() == array.tolist()) is shared


def test_B9_memory_without_an_address_is_not_exported_as_one(chip):
    """A backend that names a place of DLPack, and whose opaques are objects of its driver."""

    class Opaque(_Allocator):
        def _wrap(self, pointer, nbytes):
            return object()

    chip.__dict__["allocator"] = allocator = Opaque(chip)
    allocator.honours = frozenset({"external_ptr"})
    made = hal.Buffer(chip, 4, float32, hal.BufferSpec(external_ptr=8)).allocate()
    refusal = r"^__dlpack__: the memory has no address \(got 'object'\) on CHIP.*buffer\.numpy\(\)"
    with pytest.raises(hal.NotShareable, match=refusal):
        made.__dlpack__()
    assert made.__dlpack_device__() == CHIP
    capsule.take(hal.Buffer(chip, 0, float32).allocate().__dlpack__())


@pytest.mark.parametrize("place", [OTHER, (99, 3), NotImplementedError("no name")])
def test_a_library_that_cannot_bring_its_memory_to_the_host_is_told(fake, place):
    def refusing(**_):
        raise BufferError("I keep it")

    for producer, said in [
        (_Producer(None, place, OLD), "unexpected"), (_Producer(refusing, place, NEW), "I keep it")
    ]:  # fmt: skip
        with pytest.raises(hal.InvalidArgument, match=rf"{said}.*Bring it to the host first"):
            hal.Buffer.from_dlpack(producer, fake)
        with pytest.raises(BufferError):
            hal.Buffer.from_dlpack(producer, fake, copy=False)


@pytest.mark.parametrize("place", [5, None, ("a", "b"), (1, 2, 3)])
def test_a_place_that_is_none_is_no_array(fake, place):
    with pytest.raises(hal.InvalidArgument):
        hal.Buffer.from_dlpack(_Producer(None, place, NEW), fake)


def test_a_capsule_of_another_device_than_its_array_said_is_refused(chip):
    for there in (OTHER, (CHIP[0], CHIP[1] + 1)):
        made = capsule.make(4096, 3, float32, there, None)
        with pytest.raises(hal.InvalidArgument, match="on another device than its array said"):
            hal.Buffer.from_dlpack(_Producer(made, CHIP, NEW), chip)


@pytest.mark.parametrize("array", [np.zeros((4, 4), "f4").T[1:], np.zeros(3, "c8")[::2]])
def test_memory_of_the_device_with_gaps_is_refused(chip, array):
    made = array.__dlpack__()
    tensor, _ = capsule._open(made)
    tensor.device_type, tensor.device_id = CHIP
    with pytest.raises(hal.InvalidArgument, match="C-contiguous"):
        hal.Buffer.from_dlpack(_Producer(made, CHIP, NEW), chip)


def test_host_memory_with_gaps_is_copied_also_as_bfloat16(chip):
    made = np.arange(6, dtype="u2")[::2].__dlpack__()
    capsule._open(made)[0].code = 4
    taken = hal.Buffer.from_dlpack(_Producer(made, HOST, NEW), chip)
    assert taken.dtype == hal.bfloat16
    assert taken.view(dtype=hal.uint16).numpy().tolist() == [0, 2, 4]


@pytest.mark.parametrize("name", ["max_version", "dl_device"])
def test_a_pair_that_is_none_is_said_by_its_name(fake, name):
    with pytest.raises(hal.InvalidArgument, match=rf"{name} is no pair .*Write {name}=\(1, 0\)"):
        hal.zeros(1, hal.int32, fake).__dlpack__(**{name: 1})


def test_a_backend_exports_and_wraps_its_own_protocol(chip):
    buffer = hal.Buffer.from_numpy(np.arange(10, dtype="f4"), chip)
    wrapped = hal.Buffer.wrap(buffer.__chip_array__, chip)
    wrapped.fill(3)
    assert buffer.numpy().tolist() == [3] * 10
    with pytest.raises(hal.InvalidArgument, match="does not know such an object.*cl_mem"):
        hal.Buffer.wrap(object(), chip)
    with pytest.raises(AttributeError, match="__other_array__"):
        buffer.__other_array__
