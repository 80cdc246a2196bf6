"""Tests of refusals: binaries of others, launches past limits, faults."""

import pytest
from runtime_control import SYSTEM
from test_program import far

import hal_core as hal
from hal_core.compiler.seal import seal, unseal
from hal_hip.compiler import MAKER
from hal_testing.conformance.kernels import add_one

TEXT = 'extern "C" __global__ void stop(int *y) { __builtin_trap(); y[0] = 1; }'


@pytest.fixture
def program(device):
    return device.compile(add_one)


@pytest.mark.parametrize(
    "change",
    [
        lambda code: b"",
        lambda code: code[:-1],  # read past its end, it would be whole
        lambda code: b"\x7fELF" + bytes(len(code)),
        lambda code: code[:48] + b"\x3f" + code[49:],  # gfx90a, in e_flags
    ],
    ids=["empty", "all but a byte", "zeros", "another target"],
)
def test_P1_code_objects_that_are_none_or_for_others_are_refused(device, program, change):
    target, code = unseal(MAKER, program.binary.image, "test", "HIP")
    binary = program.binary._replace(image=seal(MAKER, target, change(code)))
    with pytest.raises(hal.CompileError, match="the driver refuses the binary: hipError"):
        device.load(binary)


@pytest.mark.skipif(SYSTEM, reason="on a real GPU a memory fault ends the process")
@pytest.mark.parametrize(
    ("kernel", "vals", "words"),
    [
        (far, (1 << 28,), "hipErrorIllegalAddress"),  # a GiB behind it nothing is mapped
        (hal.Source("stop", TEXT, "y: int32*", language="hip"), (), "hipErrorLaunchFailure"),
    ],
    ids=["out of bounds", "trap"],
)
def test_P9_a_fault_costs_the_device_until_it_is_opened_anew(library, runtime, kernel, vals, words):
    before, lost = runtime.all_calls(), hal.Device["HIP"]
    y = hal.zeros(10, hal.int32, lost)
    lost.compile(kernel)(y, vals=vals, grid=1, block=1)
    for work in (lost.synchronize, lambda: y.copyout(bytearray(40)), lost.close):
        with pytest.raises(hal.DeviceFault, match=words) as caught:
            work()
        assert "The context is lost" in str(caught.value)
    assert lost.closed and runtime.calls_since(before)["hipDeviceReset"] == 1
    with hal.Device["HIP"] as again:
        z = hal.zeros(10, hal.int32, again)
        again.compile(add_one)(z, vals=(10,), threads=10)
        assert z.numpy().tolist() == [1] * 10
