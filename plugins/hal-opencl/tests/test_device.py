"""Devices and memory, on a real platform."""

import gc
import signal
import threading
from contextlib import suppress

import numpy as np
import pytest

import hal_core as hal
from hal_core.device.backend import Backend
from hal_core.errors import DeviceFault
from hal_opencl import driver, plugin
from hal_opencl.command_buffer import calls_of
from hal_opencl.device import describe, enumerate_devices

pytestmark = pytest.mark.quick

cl = driver.cl
NOTHING = hal.Source("nothing", "__kernel void nothing() {}", "", language="opencl")


def buffer(device, data):
    return hal.Buffer(device, len(data), hal.uint8).copyin(data)


# -- what there is


def test_enumeration_is_stable_and_simulators_come_last(device):
    infos = enumerate_devices("OPENCL")
    assert [info.name for info in infos][:2] == ["OPENCL", "OPENCL:1"][: len(infos)]
    assert [info.title for info in infos] == [i.title for i in enumerate_devices("OPENCL")]
    simulated = ["oclgrind" in info.vendor["platform"].lower() for info in infos]
    assert simulated == sorted(simulated)


def test_facts_are_those_of_the_platform(device):
    hardware, info = device.hardware, device.info
    assert info == describe(device.name, hardware)
    assert info.kind == "cpu" or not hardware.type & cl.device_type.CPU
    assert info.limits.max_block_threads == hardware.max_work_group_size
    assert info.platform == hardware.platform.name.strip()
    assert info.subgroup_size is None or info.subgroup_size in (8, 16, 32, 64)
    assert ("graphs" in info.capabilities) == (calls_of(hardware) is not None)
    assert info.limits.view_alignment * 8 == hardware.mem_base_addr_align
    assert ("fp64" in info.capabilities) == ("cl_khr_fp64" in hardware.extensions.split())


def test_R10_no_platform_is_no_hardware_and_says_what_to_install(monkeypatch, vendor_error):
    def none():
        raise vendor_error("clGetPlatformIDs", "PLATFORM_NOT_FOUND_KHR")

    monkeypatch.setattr(cl, "get_platforms", none)
    with pytest.raises(hal.DeviceUnavailable, match=r"PLATFORM_NOT_FOUND_KHR.*pocl-opencl-icd"):
        enumerate_devices("OPENCL")


def test_a_platform_that_cannot_compile_is_refused_and_reported(device, monkeypatch):
    def fail(*args):
        raise driver.BuildError("clBuildProgram failed", "error: unknown target CPU 'generic'")

    [*_, check] = plugin.hal_doctor("OPENCL")[: device.index + 1]
    assert check.ok and device.info.title in check.title
    monkeypatch.setattr(driver, "build", fail)
    monkeypatch.setenv("HAL_CCACHE", "0")
    with pytest.raises(hal.DeviceUnavailable, match=r"cannot compile.*unknown target CPU"):
        plugin.hal_open_device("OPENCL", 0, enumerate_devices("OPENCL")[0])
    assert [check.ok for check in plugin.hal_doctor("OPENCL")] == [False] * len(
        enumerate_devices("OPENCL")
    )


def test_X1_a_call_that_close_overtakes_raises_InvalidState(device):
    """One thread has passed the checks of a launch or a wait when another closes the device."""
    second = plugin.hal_open_device(
        "OPENCL", device.index, enumerate_devices("OPENCL")[device.index]
    )
    second._backend = Backend(plugin, "OPENCL", "tests")
    program = second.load(device.compile(NOTHING).binary)
    geometry = program._geometry((1, 1, 1), (1, 1, 1), 0)
    launch = program._bind()
    second.close()
    for call in (lambda: launch(geometry), lambda: program._launch_timed(geometry, ())):
        with pytest.raises(hal.InvalidState, match="the device is closed"):
            call()
    for wait in (None, 1.0):
        with pytest.raises(hal.InvalidState, match="closed"):
            second._synchronize(wait)
    with pytest.raises(hal.InvalidState, match="closed"):
        second.context
    with pytest.raises(AttributeError, match="nobody"):
        second.nobody


# -- memory


def test_B6_two_buffers_of_one_device_copy_without_the_host(device, monkeypatch):
    a, b = buffer(device, bytes(range(200))), hal.empty(100, hal.uint8, device)
    monkeypatch.setattr(type(device.allocator), "_copyout", None)
    b.copy_from(a.view(100, offset=33))
    monkeypatch.undo()
    assert b.copyout(bytearray(100)) == bytes(range(33, 133))


def test_B7_external_memory_that_does_not_fit_is_refused(device):
    memory = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, 64)
    other = cl.Buffer(cl.Context([device.hardware]), cl.mem_flags.READ_WRITE, 64)
    for pointer, size, why in ((memory.int_ptr, 65, "too small"), (other.int_ptr, 64, "context")):
        with pytest.raises(hal.InvalidArgument, match=f"{why}.*at least that size"):
            hal.empty(size, hal.uint8, device, hal.BufferSpec(external_ptr=pointer))


def test_B7_memory_without_access_for_the_host_is_copied_on_the_device(device):
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.HOST_NO_ACCESS
    memory = cl.Buffer(device.context, flags, 64)
    made = hal.empty(16, hal.int32, device, hal.BufferSpec(external_ptr=memory.int_ptr)).fill(3)
    for copy in (made.numpy, lambda: made.copyin(bytes(64))):
        with pytest.raises(hal.HalError, match=r"HOST_NO_ACCESS.* by copy_from\.$"):
            copy()
    assert hal.zeros(16, hal.int32, device).copy_from(made).numpy().tolist() == [3] * 16


def test_B7_a_sub_buffer_is_a_part_of_its_whole_and_outlives_its_object(device, saxpy):
    n = device.info.limits.view_alignment // 4
    whole = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, 16 * n)
    part = whole.get_sub_region(4 * n, 12 * n)
    specs = [hal.BufferSpec(external_ptr=one.int_ptr) for one in (whole, part)]
    a, b = (hal.Buffer(device, 3 * n, hal.float32, spec) for spec in specs)
    assert whole.reference_count > 2, "the buffer holds the memory before its first use"
    del whole, part
    with device.capture() as graph:
        a.fill(1)
        saxpy(b[n:], b[n:], vals=(6.0, 1), threads=1)
        b[1 : n + 2].copy_from(a[2 * n - 1 :])  # which overlap
    assert graph.dependencies == [(), (0,), (0, 1)]
    graph.replay()
    assert np.flatnonzero(a.numpy() == 7) == n + 2


def test_B7_what_is_no_memory_object_is_refused_and_not_followed(device):
    """The driver would follow any address, and end the process at one that is not its own."""
    array, freed = np.zeros(64, "f4"), cl.Buffer(device.context, cl.mem_flags.READ_WRITE, 64)
    address = freed.int_ptr
    freed.release()
    at = array.ctypes.data
    for pointer in (at, at + 1, 8, 1 << 46, (1 << 64) - 4, address):
        with pytest.raises(hal.InvalidArgument, match=r"cl_mem.*device\.context"):
            hal.empty(16, hal.uint8, device, hal.BufferSpec(external_ptr=pointer))


@pytest.fixture
def refusals(monkeypatch, vendor_error):
    """Return a list of the codes with which the driver refuses the next buffers."""
    codes, real = [], cl.Buffer

    def refuse(*args):
        if codes:
            raise vendor_error("clCreateBuffer", codes.pop())
        return real(*args)

    monkeypatch.setattr(cl, "Buffer", refuse)
    return codes


def test_A4_an_allocation_that_was_tried_twice_is_freed_at_once(device, refusals):
    refusals.append("OUT_OF_RESOURCES")
    gc.disable()  # a cycle would wait for it
    try:
        live = device.allocator.statistics().live
        made = hal.empty(54321, hal.uint8, device)
        assert not refusals
        del made
        assert device.allocator.statistics().live == live
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("code", "kind"),
    [("MEM_OBJECT_ALLOCATION_FAILURE", hal.OutOfMemory), ("OUT_OF_RESOURCES", hal.OutOfMemory),
     ("OUT_OF_HOST_MEMORY", hal.OutOfMemory), ("INVALID_VALUE", hal.HalError)],
)  # fmt: skip
def test_A4_the_vendors_error_is_translated_with_call_code_and_name(device, refusals, code, kind):
    refusals += [code] * 9
    with pytest.raises(kind) as caught:
        device.allocator.alloc(12345)
    chain = [str(caught.value), str(caught.value.__cause__)]
    assert any(f"clCreateBuffer failed with {code}" in text for text in chain)


# -- waiting


def test_exit_finds_three_objects_for_each_live_buffer(device):
    """The collector visits each object a few times as Python ends: the buffer, its memory's place
    and the driver's memory, which makes less than 5 ms for a thousand of them."""
    hal.zeros(1000, hal.float32, device)
    gc.collect()
    before = len(gc.get_objects())
    live = [hal.zeros(1000, hal.float32, device) for _ in range(300)]
    gc.collect()
    assert len(gc.get_objects()) - before <= 3 * len(live) + 30


@pytest.fixture
def busy(hardware, saxpy):
    """A buffer that a launch uses which does not end before the test, or for ten seconds."""
    gate = cl.UserEvent(hardware.context)
    cl.enqueue_barrier(hardware.commands, wait_for=[gate])

    def open_gate():
        with suppress(cl.Error):  # it is open
            gate.set_status(cl.command_execution_status.COMPLETE)

    limit = threading.Timer(10, open_gate)
    limit.start()
    x = hal.Buffer(hardware, 4, hal.float32).allocate()
    saxpy(x, x, vals=(1.0, 4), threads=4)
    yield x
    assert limit.is_alive(), "the test ended after the launch"
    limit.cancel()
    open_gate()
    hardware.synchronize()


def test_P8_a_wait_for_the_device_is_not_for_what_others_add_meanwhile(hardware):
    """`clFinish` of PoCL waits until the queue has nothing more, so that `close` might not end."""
    earlier, later = (cl.UserEvent(hardware.context) for _ in range(2))
    cl.enqueue_barrier(hardware.commands, wait_for=[earlier])

    def add():
        cl.enqueue_barrier(hardware.commands, wait_for=[later])
        earlier.set_status(driver.COMPLETE)

    threading.Timer(0.1, add).start()
    last = threading.Timer(20, later.set_status, [driver.COMPLETE])
    last.start()
    assert hardware.synchronize() and last.is_alive()
    last.cancel()
    later.set_status(driver.COMPLETE)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no alarms")
@pytest.mark.parametrize("wait", ["synchronize", "copyout", "copyin", "launch"])
def test_Q2_ctrl_c_ends_a_wait_before_the_work_ends(hardware, saxpy, busy, wait):
    def interrupt(*_):
        raise KeyboardInterrupt

    waits = {
        "synchronize": hardware.synchronize,
        "copyout": busy.numpy,
        "copyin": lambda: busy.copyin(bytes(16)),
        "launch": lambda: saxpy(busy, busy, vals=(1.0, 4), threads=4, wait=True),
    }
    assert hardware.synchronize(0.01) is False
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            waits[wait]()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_P9_a_failure_on_the_device_surfaces_at_the_wait(device, saxpy, monkeypatch, vendor_error):
    def lost(commands):
        raise vendor_error("clEnqueueMarker", "OUT_OF_RESOURCES")

    x = hal.zeros(4, hal.float32, device)
    saxpy(x, x, vals=(1.0, 4), threads=4)
    device.synchronize()
    monkeypatch.setattr(cl, "enqueue_marker", lost)
    with pytest.raises(DeviceFault, match=r"clEnqueueMarker failed with OUT_OF_RESOURCES.*saxpy"):
        device.synchronize()


def test_P9_failed_work_is_told_once(device):
    failed = cl.UserEvent(device.context)
    failed.set_status(-5)
    device.last_event, device.last_launched = failed, "saxpy"
    with pytest.raises(DeviceFault, match=r"work failed with OUT_OF_RESOURCES.*saxpy.*Look for an"):
        device.synchronize()
    assert device.synchronize() is True
