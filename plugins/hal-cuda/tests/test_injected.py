"""Each driver call of a long program fails once: an exception of ours names it, nothing leaks, and
the program then runs again."""

import inspect
import re
import sys

import pytest
from each_turn import IN_QUEUE, OUT_OF_MEMORY, UNKNOWN, EachTurn, Failure, failures_of
from every_call import Family

import hal_core as hal
from hal_cuda import calls, driver
from hal_streams import calls as shared

pytestmark = pytest.mark.full

SAYS = {
    UNKNOWN: "CUDA_ERROR_UNKNOWN: unknown error",
    OUT_OF_MEMORY: "CUDA_ERROR_OUT_OF_MEMORY: out of memory",
}
_COPYING = "copyin copyout copy_from"
_NONE_SERVES = hal.CompilerUnavailable  # compile: no compiler can serve
_NO_MEMORY = (hal.OutOfMemory,)

EXPECTED = failures_of("cu") | {
    "cuInit": Failure("enumerate", (hal.DeviceUnavailable,)),
    "cuDriverGetVersion": Failure("enumerate compile", (hal.DeviceUnavailable, _NONE_SERVES)),
    "cuDeviceGet": Failure("enumerate"),
    "cuDeviceGetCount": Failure("enumerate"),
    "cuDevicePrimaryCtxRetain": Failure("open"),
    "cuDevicePrimaryCtxRelease": Failure("close"),
    # Of the turns that pass one is the test's own, two are for the text of OutOfMemory, two are of
    # borrowed arrays and two of an export, given back later, and one a graph's, which is replayed
    # step by step then.
    "cuCtxSetCurrent": Failure(
        "open queue replay record allocate compile load wait launch unload external_ptr wrap free "
        f"close __dlpack__ {_COPYING}",
        (*IN_QUEUE, _NONE_SERVES),
        passes=8,
    ),
    "cuCtxGetCurrent": Failure("wait", passes=14),  # memory is freed, or given back, all the same
    "cuMemAlloc": Failure("allocate"),
    "cuMemAllocFromPoolAsync": Failure("allocate"),
    "cuCtxSynchronize": Failure("free", lost="blocks, arrays images images"),
    "cuSurfObjectCreate": Failure("allocate"),
    "cuSurfObjectDestroy": Failure("free", lost="images"),
    "cuMemFree": Failure("free", lost="blocks"),
    "cuMemFreeAsync": Failure("free", lost="blocks"),
    "cuMemHostAlloc": Failure("allocate copyin"),
    "cuMemFreeHost": Failure("free close", lost="host_blocks"),
    # Where the driver does not say whose memory it is, a graph is replayed step by step.
    "cuPointerGetAttribute": Failure("external_ptr replay", passes=12),
    "cuMemGetAddressRange": Failure("wrap"),
    "cuStreamCreate": Failure("open queue"),
    # What another library has lent is given back by a later call.
    "cuStreamQuery": Failure("copyin wait wrap", passes=2),
    "cuStreamIsCapturing": Failure("wrap __dlpack__", passes=4),
    "cuStreamGetFlags": Failure("", passes=1),
    "cuStreamWaitEvent": Failure("wait copy_from __dlpack__", IN_QUEUE, passes=1),
    "cuEventCreate": Failure("wait record copyin copy_from", IN_QUEUE),
    "cuEventRecord": Failure(f"wait record {_COPYING}", IN_QUEUE, passes=1),
    "cuEventSynchronize": Failure("wait copyin"),
    "cuModuleLoadDataEx": Failure("compile load"),
    "cuModuleUnload": Failure("compile unload", lost="modules"),
    "cuFuncSetAttribute": Failure("launch"),
    "cuLaunchKernel": Failure("launch"),
    # What cannot become a graph of the driver is replayed step by step.
    "cuGraphAddMemcpyNode": Failure("", passes=2),
    "cuGraphInstantiate": Failure("", passes=1),
    "cuGraphExecMemcpyNodeSetParams": Failure("replay"),
}

# As often as one polls. When it fails, the thread's mode is what it was, and the call is made.
_MODE = "cuThreadExchangeStreamCaptureMode"

NO_MEMORY = {
    "cuDevicePrimaryCtxRetain": Failure("open", _NO_MEMORY),
    "cuStreamCreate": Failure("open queue", _NO_MEMORY),
    "cuEventCreate": Failure("wait record copyin copy_from", (*_NO_MEMORY, hal.DeviceFault)),
    "cuModuleLoadDataEx": Failure("compile load", _NO_MEMORY),
    "cuLaunchKernel": Failure("launch", _NO_MEMORY),
    "cuMemHostAlloc": Failure("copyin", _NO_MEMORY, passes=1),
    "cuMemAlloc": Failure("", passes=1),  # the cache is emptied, and there is some
    "cuArray3DCreate": Failure("", passes=1),
    "cuMemPoolCreate": Failure("allocate", _NO_MEMORY),
    "cuMemAllocFromPoolAsync": Failure("", passes=9),
}


class Allocation:
    """Memory as PyCUDA offers it: an address, whose size the driver knows."""

    def __init__(self, address):
        self.address = address

    def __int__(self):
        return self.address


Allocation.__module__ = "pycuda.driver"


def share(device, y):
    y.__dlpack__(stream=int(y._device.stream))
    y._device.synchronize()  # what is given back while work is queued takes more calls
    address = int(y.__cuda_array_interface__["data"][0])
    if hal.Buffer.wrap(Allocation(address), device).view(4000).nbytes != 4000:
        raise AssertionError("another size")


@pytest.fixture
def watched(device, simulator, monkeypatch):
    """Close all devices, but retain their contexts: destroying one would hide a leak."""
    monkeypatch.setenv("CUDA_CC", "ptx")  # which asks the driver while it compiles, too
    monkeypatch.setenv("HAL_CCACHE", "0")

    def leave():
        simulator.set_context(0)

    def after(name, error):
        if name == "cuDevicePrimaryCtxRelease":
            simulator.release_contexts(1, first=int(error.device == "CUDA:1"))

    simulator.retain_contexts(2)
    family = Family("CUDA", driver.api.cache_clear, leave, share)
    turns = EachTurn(family, simulator, SAYS, "cuCtxSetCurrent", after)
    yield turns
    simulator.release_contexts(2)
    turns.end()


@pytest.mark.parametrize("name", EXPECTED)
def test_a_call_that_fails_raises_and_leaks_nothing(watched, name):
    watched.check(name, UNKNOWN, EXPECTED[name])


@pytest.mark.parametrize("name", NO_MEMORY)
def test_A4_a_call_that_finds_no_memory_raises_OutOfMemory(watched, name):
    watched.check(name, OUT_OF_MEMORY, NO_MEMORY[name])


def test_no_driver_call_is_missing_here(watched):
    """`everything` calls each driver function that the sources name; each fails once above."""
    called = set(watched.calls())
    assert called == {*EXPECTED, _MODE}
    transport = type(driver.api())
    text = inspect.getsource(shared) + inspect.getsource(calls)
    text += inspect.getsource(sys.modules[transport.__module__])
    named = {f"cu{name}" for name in re.findall(r"(?:\bcu\.cu|[ (]\")([A-Z][a-z]\w+)\b", text)}
    assert len(named) > 30
    # The third is called where PyCUDA has a context, the fourth is a name that the driver's library
    # has for cuGraphInstantiate.
    others = {"cuCtxGetDevice", "cuGraphInstantiateWithFlags"}
    assert named - called - others == {"cuGetErrorName", "cuGetErrorString"}


def test_A4_the_drivers_out_of_memory_says_what_is_free(device, simulator):
    for nth in range(1, 5):  # it tries again after a wait, and both once more with no cache
        simulator.fail("cuMemAllocFromPoolAsync", OUT_OF_MEMORY, nth)
    with pytest.raises(hal.OutOfMemory) as caught:
        hal.Buffer(device, 123457, hal.uint8).allocate()
    simulator.clear()
    assert "bytes free of" in str(caught.value.__cause__)
