"""The binding, on AMD's own library where there is no GPU, and the count of a device's users."""

import ctypes
from collections import Counter
from types import SimpleNamespace

import pytest

import hal_core as hal
from hal_hip.calls import HIP
from hal_streams.driver import Refused, explain
from hal_streams.library import LONG, SHORT


@pytest.fixture(scope="module")
def runtime(library):
    """Load AMD's runtime; every function of the tables is looked up."""
    try:
        return HIP("libamdhip64.so.5")
    except OSError as error:
        pytest.skip(str(error))


def test_AMDs_library_has_every_function_and_says_its_version(runtime):
    assert (5, 0) < runtime.version() < (9, 0)
    library = runtime.library
    assert hasattr(library, "hipGetDevicePropertiesR0600") == (runtime.version() >= (6,))


def test_a_refusal_has_AMDs_words(runtime):
    error = runtime.refused("StreamCreate", 719)
    assert error.call == "hipStreamCreateWithFlags" and error.name == "hipErrorLaunchFailure"
    said = explain(error, "wait", "HIP", "saxpy")
    assert type(said) is hal.DeviceFault and "the last program launched was saxpy" in str(said)
    assert runtime.refused("Malloc", 98765).name


class Recorded(HIP):
    """The binding without a library: its calls are written down."""

    def __init__(self, version=60_300_000, **answers):
        self.answers = {"RuntimeGetVersion": version, **answers}
        self.calls = []
        self._users, self._lost = Counter(), set()

    def call(self, name, *arguments):
        self.calls.append(name)
        answer = self.answers.get(name)
        return answer(*arguments) if callable(answer) else answer


def test_only_the_last_user_of_a_device_with_a_fault_resets_it():
    runtime = Recorded()
    for index in (0, 0, 1):
        assert runtime.retain(index) == index
    runtime.release(1, 1, lost=False)
    runtime.release(0, 0, lost=True)
    assert "DeviceReset" not in runtime.calls
    runtime.release(0, 0, lost=False)
    assert runtime.calls == ["CtxSetCurrent", "DeviceReset"]
    runtime.retain(0)
    runtime.release(0, 0, lost=False)  # the new user had no fault
    assert runtime.calls.count("DeviceReset") == 1


@pytest.mark.parametrize(("version", "host"), [(50_221_153, 0), (60_000_000, 1), (70_100_000, 1)])
def test_what_host_memory_is_called_by_each_version(version, host):
    for kind in (0, 1, 2):
        told = {2: kind, 9: 1}  # the kind of memory; the device
        runtime = Recorded(version, PointerGetAttribute=lambda which, _, told=told: told[which])
        assert runtime.owner_of(4096) == (1, kind == host, 0)

    def unknown(*_):
        raise Refused("hipPointerGetAttribute", 1, "hipErrorInvalidValue", "")

    assert Recorded(version, PointerGetAttribute=unknown).owner_of(4096) == (-1, False, 0)


@pytest.mark.parametrize(
    ("name", "place"), [("hipGetDeviceProperties", 396), ("hipGetDevicePropertiesR0600", 1160)]
)
@pytest.mark.parametrize("arch", ["gfx906:sramecc+:xnack-", "gfx90a:sramecc-:xnack+", "gfx1030"])
def test_the_architecture_is_found_in_either_layout(name, place, arch):
    def properties(memory, index):
        ctypes.memmove(memory, b"AMD gfx000 Graphics\0", 20)
        ctypes.memmove(ctypes.addressof(memory) + place, arch.encode() + b"\0", len(arch) + 1)
        return 0

    runtime = Recorded()
    runtime.library = SimpleNamespace(**{name: properties})
    assert runtime.arch_of(0, {}) == arch
    runtime.library = SimpleNamespace(**{name: lambda *_: 0})
    with pytest.raises(Refused, match="without an architecture"):
        runtime.arch_of(0, {})


@pytest.mark.parametrize("name", ["LaunchKernel", "EventRecord", "StreamWaitEvent", "GraphLaunch",
    "MemcpyHtoDAsync", "MemsetD8Async", "StreamSynchronize", "EventSynchronize",
    "ModuleGetFunction", "FuncGetAttribute"])  # fmt: skip
def test_what_may_wait_for_the_device_lets_other_threads_run(name):
    """With the GIL, it would keep a callback of the stream that it waits for from running."""
    assert name in LONG and name not in SHORT
