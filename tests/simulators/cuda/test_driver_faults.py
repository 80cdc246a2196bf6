"""What goes wrong: in kernels, on request, and with the whole device."""

import ctypes
import threading
import time

import pytest
from driver_kernels import ASSERT, FILL, FOREVER, TRAP

UINT = ctypes.c_uint32


def broken(cuda, text, name, *arguments):
    """The code that a launch leaves behind."""
    cuda.launch(cuda.function(cuda.module(text), name), *arguments)
    return cuda.code.cuCtxSynchronize()


@pytest.fixture
def failing(load_driver):
    """A driver that a test may leave unclean."""
    driver = load_driver(instructions=100_000)
    driver.start()
    return driver


# -- kernels


@pytest.mark.parametrize(
    ("text", "name", "code", "message"),
    [(TRAP, "trap", 719, "trap"), (FOREVER, "forever", 702, "instructions"),
     (ASSERT, "fails", 710, "what")],
)  # fmt: skip
def test_kernels_that_fail(failing, text, name, code, message):
    assert broken(failing, text, name) == code
    assert message in failing.message()
    assert failing.message().startswith(f"{name}: ")


@pytest.mark.parametrize(("offset", "code"), [(64, 700), (-4, 700), (2, 716)])
def test_kernels_that_leave_their_memory(failing, offset, code):
    memory = failing.alloc(64)
    assert broken(failing, FILL, "fill", memory + offset, UINT(1)) == code


def test_freed_and_foreign_memory(failing):
    freed = failing.alloc(64)
    failing.cuMemFree(freed)
    assert broken(failing, FILL, "fill", freed, UINT(1)) == 700
    foreign = ctypes.c_uint32(5)
    failing.use(1)
    assert broken(failing, FILL, "fill", ctypes.addressof(foreign), UINT(1)) == 700
    assert foreign.value == 5


def test_an_error_stays_until_the_context_goes(failing):
    stream, event, memory = failing.stream(), failing.event(), failing.alloc(64)
    function = failing.function(failing.module(FILL), "fill")
    out = ctypes.c_uint64()
    assert broken(failing, TRAP, "trap") == 719
    codes = {
        "alloc": failing.code.cuMemAlloc(ctypes.byref(out), 4),
        "free": failing.code.cuMemFree(memory),
        "copy": failing.code.cuMemcpyDtoH(ctypes.create_string_buffer(4), memory, 4),
        "launch": failing.launch_code(function, memory, UINT(1)),
        "stream": failing.code.cuStreamCreate(ctypes.byref(out), 0),
        "query": failing.code.cuStreamQuery(stream),
        "wait": failing.code.cuEventSynchronize(event),
        "event": failing.code.cuEventDestroy(event),
        "module": failing.code.cuModuleLoadData(ctypes.byref(out), FILL.encode()),
        "again": failing.code.cuCtxSynchronize(),
    }
    assert set(codes.values()) == {719}, codes
    assert failing.get("cuCtxGetDevice", kind=ctypes.c_int) == 0
    failing.use(1)
    failing.cuMemFree(failing.alloc(64))  # the other device works
    failing.cuDevicePrimaryCtxReset(0)
    assert failing.code.cuCtxSetCurrent(failing.contexts.pop(0)) == 709
    failing.use(0)
    failing.cuMemFree(failing.alloc(64))


def test_work_behind_an_error_is_not_done(failing):
    host = failing.get("cuMemAllocHost", 4)
    word = UINT.from_address(host)
    word.value = 5
    memory, stream = failing.alloc(4), failing.stream()
    failing.delay("cuLaunchKernel", 0.05)
    failing.launch(failing.function(failing.module(TRAP), "trap"), stream=stream)
    failing.cuMemsetD32Async(memory, 9, 1, stream)
    failing.cuMemcpyDtoHAsync(host, memory, 4, stream)
    assert failing.code.cuStreamSynchronize(stream) == 719
    assert word.value == 5


def test_memory_freed_before_its_turn(failing):
    first, second = failing.stream(1), failing.stream(1)
    memory, target = failing.get("cuMemAllocAsync", 16, first), failing.alloc(16)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    gate = threading.Event()
    kept = kind(lambda _data: gate.wait(30) and None)
    failing.cuLaunchHostFunc(second, kept, None)
    failing.cuMemcpyDtoDAsync(target, memory, 16, second)
    failing.cuMemFreeAsync(memory, first)
    failing.cuStreamSynchronize(first)
    gate.set()
    assert failing.code.cuStreamSynchronize(second) == 700
    assert "freed before" in failing.message()


def test_a_slow_call_is_slow_where_the_work_is(cuda):
    memory, stream = cuda.alloc(4), cuda.stream()
    cuda.delay("cuMemsetD32Async", 1.0)
    start = time.monotonic()
    cuda.cuMemsetD32Async(memory, 0, 1, stream)
    assert cuda.code.cuStreamQuery(stream) == 600
    cuda.cuStreamSynchronize(stream)
    assert time.monotonic() - start >= 1.0
    cuda.cuStreamDestroy(stream)
    cuda.cuMemFree(memory)
