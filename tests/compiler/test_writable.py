"""Kernels of other compilers: objects that write themselves by `__hal_source__`."""

import gc
import threading
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from weakref import ref

import numpy as np
import pytest

import hal_core as hal

TEXT = "def k(t, *args): pass"


class Foreign:
    """A kernel of a compiler that knows nothing of hal-core but the method's name."""

    def __init__(self, text=TEXT):
        self.text, self.asked = text, list[str]()

    def __hal_source__(self, device):
        self.asked.append(device.name)
        return hal.Source("k", self.text, "x: float32*", language="python")


@pytest.fixture
def fake(plugin):
    yield hal.Device["FAKE"]


def test_C_an_object_with_hal_source_is_compiled_once_as_long_as_it_lives(fake):
    kernel = Foreign()
    program = fake.compile(kernel)
    assert program.source == TEXT and program.name == "k"
    assert fake.compile(kernel) is program and kernel.asked == ["FAKE"]
    assert fake.compile(Foreign()) is not program, "an equal text is another object"
    gone = ref(kernel)
    del kernel
    gc.collect()
    assert gone() is None, "the device does not keep it"


def test_C_an_object_without_weak_references_is_compiled_each_time(fake):
    class Row(namedtuple("Row", "text")):
        __slots__ = ()

        def __hal_source__(self, device):
            return hal.Source("k", self.text, "x: float32*", language="python")

    kernel = Row(TEXT)
    assert fake.compile(kernel) is not fake.compile(kernel)


def test_C_what_hal_source_may_return(fake):
    class Wrong:
        def __hal_source__(self, device):
            return TEXT

    class Number:
        __hal_source__ = 5

    class Refuses:
        def __hal_source__(self, device):
            raise LookupError("no such schedule")

    with pytest.raises(hal.InvalidArgument, match=r"__hal_source__ of Wrong gave no hal.Source"):
        fake.compile(Wrong())
    with pytest.raises(LookupError, match="no such schedule"):
        fake.compile(Refuses())
    for value in (3, "text", Foreign, None, Number()):
        with pytest.raises(hal.InvalidArgument, match="not a kernel"):
            fake.compile(value)


def test_C_hal_source_may_be_any_method(fake):
    class OfClass:
        @classmethod
        def __hal_source__(cls, device):
            return Foreign().__hal_source__(device)

    class Static:
        @staticmethod
        def __hal_source__(device):
            return Foreign().__hal_source__(device)

    assert fake.compile(OfClass()).name == fake.compile(Static()).name == "k"


def test_C_a_front_end_may_compile_on_other_devices_and_threads(plugin):
    """No lock is held meanwhile: two such kernels waited for each other for ever."""
    devices = hal.Device["FAKE"], hal.Device["FAKE:1"]
    both = threading.Barrier(2)

    class Crossed:
        def __init__(self, other):
            self.other = other

        def __hal_source__(self, device):
            both.wait(20)
            with ThreadPoolExecutor(1) as pool:
                pool.submit(self.other.compile, Foreign()).result(20)
            return Foreign().__hal_source__(device)

    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda one, other: one.compile(Crossed(other)), devices, devices[::-1])
        assert [program.name for program in found] == ["k", "k"]


def test_C_a_language_that_the_device_lacks_is_named(fake):
    class OpenCL:
        def __hal_source__(self, device):
            return hal.Source("k", "__kernel void k() {}", "", language="opencl")

    with pytest.raises(hal.CompilerUnavailable, match="'opencl'.*python"):
        fake.compile(OpenCL())


@hal.kernel
def doubled(y: hal.Ptr[hal.int32], n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] = 2 * y[i]


class Wrapped:
    """A kernel of a compiler that translates to hal.Kernel."""

    def __hal_source__(self, device):
        return doubled.lower().__hal_source__(device)


def test_C_graphs_profiles_and_the_cache_take_an_object_as_any_kernel():
    device = hal.Device["PYTHON"]
    y = hal.Buffer.from_numpy(np.arange(4, dtype="i4"), device)
    before = hal.cache.statistics()
    with hal.profile() as profile:
        program = device.compile(Wrapped())
        program(y, vals=(4,), threads=4, wait=True)
        with device.capture() as graph:
            program(y, vals=(4,), threads=4)
        graph.replay(wait=True)
        again = device.compile(Wrapped())
    assert y.numpy().tolist() == [0, 4, 8, 12]
    assert again.source == program.source
    assert hal.cache.statistics().hits > before.hits
    names = [getattr(event, "name", None) for event in profile.events]
    assert names.count("doubled") >= 2
