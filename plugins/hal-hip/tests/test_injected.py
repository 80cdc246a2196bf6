"""Each call of the runtime in a long program fails once: an exception of ours names it, nothing
leaks, and the program then runs again."""

import pytest
from each_turn import IN_QUEUE, OUT_OF_MEMORY, UNKNOWN, EachTurn, Failure, failures_of
from every_call import Family

import hal_core as hal
from hal_hip import driver

pytestmark = pytest.mark.full

SAYS = {
    UNKNOWN: "hipErrorUnknown: unknown error",
    OUT_OF_MEMORY: "hipErrorOutOfMemory: out of memory",
}
_COPYING = "copyin copyout copy_from"
_NO_MEMORY = (hal.OutOfMemory,)
_PROPERTIES = "hipGetDevicePropertiesR0600"

EXPECTED = failures_of("hip") | {
    "hipGetDeviceCount": Failure("enumerate", (hal.HalError, hal.DeviceUnavailable)),
    _PROPERTIES: Failure("enumerate"),
    # Asked once; a graph for which it fails is replayed step by step.
    "hipRuntimeGetVersion": Failure("external_ptr replay", passes=1),
    # Of the turns that pass one is the test's own, two are for the text of OutOfMemory, one is of
    # a borrowed array, given back later, and one a graph's, which is replayed step by step then.
    "hipSetDevice": Failure(
        f"open queue wrap replay allocate load wait unload external_ptr free close {_COPYING}",
        IN_QUEUE,
        passes=5,
    ),
    "hipGetDevice": Failure("", passes=12),  # memory is freed, or given back, all the same
    "hipDeviceSynchronize": Failure("free", lost="blocks, arrays images images"),
    "hipCreateSurfaceObject": Failure("allocate"),
    "hipDestroySurfaceObject": Failure("free", lost="images"),
    "hipMalloc": Failure("allocate"),
    "hipMallocFromPoolAsync": Failure("allocate"),
    "hipFree": Failure("free", lost="blocks"),
    "hipFreeAsync": Failure("free", lost="blocks"),
    "hipHostMalloc": Failure("allocate copyin"),
    "hipHostFree": Failure("free close", lost="host_blocks"),
    # Where the runtime does not say whose memory it is, a graph is replayed step by step.
    "hipPointerGetAttribute": Failure("external_ptr replay", passes=6),
    "hipStreamCreateWithFlags": Failure("open queue"),
    # What another library has lent is given back by a later call.
    "hipStreamQuery": Failure("copyin wait wrap", passes=1),
    "hipStreamIsCapturing": Failure("wrap", passes=1),
    "hipStreamWaitEvent": Failure("wait copy_from", IN_QUEUE),
    "hipEventCreateWithFlags": Failure("wait copyin copy_from", IN_QUEUE),
    "hipEventRecord": Failure(f"wait record {_COPYING}", IN_QUEUE),
    "hipEventSynchronize": Failure("wait copyin copyout"),
    "hipModuleLoadData": Failure("load"),
    "hipModuleUnload": Failure("unload", lost="modules"),
    "hipModuleLaunchKernel": Failure("launch"),
    # What cannot become a graph of the driver is replayed step by step.
    "hipGraphAddMemcpyNode": Failure("", passes=1),
    "hipGraphAddMemcpyNode1D": Failure("", passes=1),
    "hipGraphInstantiateWithFlags": Failure("", passes=1),
    "hipGraphExecMemcpyNodeSetParams1D": Failure("replay"),
}
# As often as one polls. When it fails, the thread's mode is what it was, and the call is made.
_MODE = "hipThreadExchangeStreamCaptureMode"
NO_MEMORY = {
    "hipStreamCreateWithFlags": Failure("open queue", _NO_MEMORY),
    "hipEventCreateWithFlags": Failure("wait copyin copy_from", (*_NO_MEMORY, hal.DeviceFault)),
    "hipModuleLoadData": Failure("load", _NO_MEMORY),
    "hipModuleLaunchKernel": Failure("launch", _NO_MEMORY),
    "hipHostMalloc": Failure("copyin", _NO_MEMORY, passes=1),
    "hipMalloc": Failure("", passes=1),  # the cache is emptied, and there is some
    "hipArray3DCreate": Failure("", passes=1),
    "hipMemPoolCreate": Failure("allocate", _NO_MEMORY),
    "hipMallocFromPoolAsync": Failure("", passes=9),
}
# Called where there is a fault or a refusal, and where the runtime is older than 6.0.
_ELSEWHERE = {"hipDeviceReset", "hipGetErrorName", "hipGetErrorString", "hipStreamGetFlags"}


@pytest.fixture
def watched(device, runtime):
    def leave():
        runtime.set_device(1)

    family = Family("HIP", driver.api.cache_clear, leave)
    turns = EachTurn(family, runtime, SAYS, "hipSetDevice")
    yield turns
    turns.end()


@pytest.mark.parametrize("name", EXPECTED)
def test_a_call_that_fails_raises_and_leaks_nothing(watched, name):
    watched.check(name, UNKNOWN, EXPECTED[name])


@pytest.mark.parametrize("name", NO_MEMORY)
def test_A4_a_call_that_finds_no_memory_raises_OutOfMemory(watched, name):
    watched.check(name, OUT_OF_MEMORY, NO_MEMORY[name])


def test_no_function_of_the_runtime_is_missing_here(watched):
    """Each function of the binding's tables is called by the program, and fails once above."""
    api = driver.api()
    bound = {api.symbol_of(name) for name in api._functions}
    called = set(watched.calls())
    assert called == {*EXPECTED, _MODE}
    assert called | _ELSEWHERE == bound | {_PROPERTIES}
