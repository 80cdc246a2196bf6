"""Test that each fault of the fake backend surfaces as the right error at the right call."""

import gc
import time
from functools import partial
from types import SimpleNamespace

import pytest

import hal_core as hal
from hal_testing.conformance.kernels import count_up
from hal_testing.fake import FakePlugin, chip
from hal_testing.fake.chip import FAULT, OUT_OF_MEMORY
from hal_testing.fake.device import CAPABILITIES, LIMITS

MIB = 1 << 20


@pytest.fixture
def device():
    """A fake device with 1 MiB of memory; after the test, nothing of it may be left."""
    hal.Device.register_plugin("SIM", FakePlugin(3, memory_nbytes=MIB))
    before = len(chip.opened)
    opened = hal.Device["SIM"]
    yield opened
    gc.collect()
    held = opened
    if not opened.closed:
        assert opened.allocator.statistics().live == 0
        opened.close()
    assert held.chip.wait() == chip.OK or held.chip.lost
    assert held.chip.allocated_nbytes == 0 or held.chip.lost
    assert len(chip.opened) == before, "a chip is still open"


@pytest.fixture
def faulty(device):
    """The simulated chip of the device."""
    return device.chip


def launch(device, made):
    program = device.compile(count_up)
    program(made, vals=(5, made.size), threads=made.size)
    return program


def test_devices_memory_limits_and_capabilities_are_settings():
    small = LIMITS._replace(max_block_threads=32, max_block=(32, 32, 32))
    hal.Device.register_plugin(
        "SET", FakePlugin(3, memory_nbytes=4096, limits=small, capabilities=frozenset())
    )
    infos = hal.Device.devices("SET")
    assert [info.name for info in infos] == ["SET", "SET:1", "SET:2"]
    assert {(info.memory_nbytes, info.limits.max_block_threads) for info in infos} == {(4096, 32)}
    with hal.Device["SET:2"] as opened:
        with pytest.raises(hal.OutOfMemory):
            hal.empty(5000, hal.int8, opened)
        with pytest.raises(hal.InvalidArgument, match="32"):
            opened.compile(count_up)(hal.zeros(64, hal.int32, opened), vals=(1, 64), block=64,
                                     threads=64)  # fmt: skip
        assert not opened.supports(hal.float64) and "fp64" in CAPABILITIES


def test_no_devices_is_a_normal_answer():
    hal.Device.register_plugin("NONE", FakePlugin(0))
    with pytest.raises(hal.DeviceUnavailable, match="no hardware on NONE"):
        hal.Device["NONE"]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_A4_the_nth_allocation_fails_and_is_tried_again(device, faulty, number):
    faulty.fail("alloc", number, OUT_OF_MEMORY)
    made = [hal.empty(300, hal.int8, device) for _ in range(4)]
    assert faulty.calls["alloc"] == 5 and all(one.is_allocated for one in made)


def test_a_call_that_the_chip_lacks_cannot_fail(device, faulty):
    with pytest.raises(ValueError, match="no call 'allocate'"):
        faulty.fail("allocate")


def test_A4_two_failures_in_a_row_are_out_of_memory(device, faulty):
    faulty.fail("alloc", 1, OUT_OF_MEMORY)
    faulty.fail("alloc", 2, OUT_OF_MEMORY)
    with pytest.raises(hal.OutOfMemory, match="total 1048576") as caught:
        hal.empty(300, hal.int8, device)
    assert "OUT_OF_MEMORY" in str(caught.value.__cause__)
    assert hal.empty(300, hal.int8, device).is_allocated


def test_P9_what_stood_behind_a_failure_is_not_done(device, faulty):
    made = hal.zeros(10, hal.int32, device)
    device.synchronize()
    faulty.fail("run")
    launch(device, made)
    made.fill(3)
    hal.empty(1000, hal.int32, device).deallocate()
    with pytest.raises(hal.DeviceFault):
        device.synchronize()
    assert made.numpy().tolist() == [0] * 10
    device.allocator.free_cache()


def test_an_index_beyond_a_buffer_is_a_late_failure(device):
    program = device.compile(count_up)
    program(hal.zeros(10, hal.int32, device), vals=(0, 100_000), threads=100_000)
    with pytest.raises(hal.DeviceFault, match="count_up"):
        device.synchronize()


@pytest.mark.parametrize(
    ("call", "use"),
    [("write", lambda made: made.copyin(bytes(40))),
     ("read", lambda made: made.copyout(bytearray(40))),
     ("copy", lambda made: made.copy_from(made)),
     ("launch", lambda made: launch(hal.Device["SIM"], made)),
     ("load", lambda made: launch(hal.Device["SIM"], made)),
     ("wait", lambda made: hal.Device["SIM"].synchronize())],
)  # fmt: skip
def test_a_call_that_is_refused_is_named(device, faulty, call, use):
    made = hal.zeros(10, hal.int32, device)
    faulty.fail(call, 1, FAULT)
    with pytest.raises(hal.DeviceFault, match=rf"fake {call}.*FAULT.*status 5.*on SIM"):
        use(made)
    use(made)


def test_a_slow_copy_is_queued_and_can_be_waited_for_in_vain(device, faulty, monkeypatch):
    source, dest = hal.zeros(10, hal.int32, device), hal.empty(10, hal.int32, device)
    device.synchronize()
    now = [0.0]
    clock = {"sleep": lambda s: now.append(now[-1] + s), "monotonic": lambda: now[-1]}
    monkeypatch.setattr(chip, "time", SimpleNamespace(**vars(time) | clock))
    faulty.slow["copy"] = 0.3
    dest.copy_from(source)
    dest.copy_from(source)
    assert device.synchronize(timeout=0.001) is False
    assert device.synchronize(timeout=0.001) is False, "the second one"
    assert device.synchronize(timeout=30.0) is True
    assert now[-1] == pytest.approx(0.6)
    assert dest.numpy().tolist() == [0] * 10


def test_a_lost_device_refuses_and_opens_again(device, faulty):
    made = hal.zeros(10, hal.int32, device)
    program = device.compile(count_up)
    faulty.lost = True
    uses = (
        device.synchronize, made.numpy, partial(program, made, vals=(5, 10), threads=10),
        lambda: hal.empty(100_000, hal.int8, device),
    )  # fmt: skip
    for use in uses:
        with pytest.raises(hal.DeviceFault, match="LOST.*Close the device and open it again"):
            use()
    with pytest.raises(hal.DeviceFault):
        device.close()
    with pytest.raises(hal.InvalidState):
        uses[2]()
    del uses, made  # nothing is said about memory that went with the device
    with hal.Device["SIM"] as again:
        assert again is not device
        assert launch(again, hal.empty(10, hal.int32, again)).name == "count_up"


def test_P10_programs_that_are_left_behind_are_unloaded(device, faulty):
    program = device.compile(count_up)
    for _ in range(3):
        device.load(program.binary)
    gc.collect()
    assert faulty.calls["load"] == 4 and faulty.calls["unload"] == 3
    handle = program._code.handle
    program.unload()
    assert faulty.unload(handle) == chip.BAD_HANDLE


def test_open_chips_are_counted_and_more_are_refused(device):
    hal.Device.register_plugin("MANY", FakePlugin(1000))
    opened = []
    with pytest.raises(hal.DeviceUnavailable, match="BUSY"):
        while True:
            opened.append(hal.Device[f"MANY:{len(opened)}"])
    for one in opened:
        one.close()
    hal.Device[f"MANY:{len(opened)}"].close()


def test_a_chip_knows_its_handles(device, faulty):
    status, block = faulty.alloc(16)
    assert (status, faulty.write(block, bytes(17))) == (chip.OK, chip.BAD_RANGE)
    assert faulty.free(block) == chip.OK
    assert faulty.free(block) == faulty.write(block, b"") == chip.BAD_HANDLE
    assert faulty.launch(3, (), (1, 1, 1), (1, 1, 1)) == chip.BAD_HANDLE
