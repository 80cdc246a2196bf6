"""Errors of PyOpenCL become exceptions of hal-core."""

import traceback

import pytest

import hal_core as hal
from hal_opencl import driver
from hal_opencl.driver import cl


def shown(error):
    """Return the traceback that Python prints for an error."""
    return "".join(traceback.format_exception(error))


def test_C5_a_compile_error_is_one_traceback(device):
    text = "__kernel void one(__global int *x) {\n  x[0] = y;\n}"
    with pytest.raises(hal.CompileError) as caught:
        device.compile(hal.Source("one", text, "x: int32*", language="opencl"))
    printed = shown(caught.value)
    assert printed.count("Traceback (most recent call last)") == 1
    assert "BUILD_PROGRAM_FAILURE" in printed
    assert ">    2 |   x[0] = y;" in printed


def test_a_failed_call_is_one_traceback_that_says_all(vendor_error):
    with pytest.raises(hal.DeviceFault) as caught, driver.check("copyin", "OPENCL"):
        raise vendor_error("clFinish", "OUT_OF_RESOURCES")
    assert shown(caught.value).count("Traceback") == 1
    assert str(caught.value) == (
        "copyin: clFinish failed with OUT_OF_RESOURCES (got -5) on OPENCL."
    )


@pytest.mark.parametrize(("code", "name"), [(-5, "OUT_OF_RESOURCES"), (-9999, "code -9999")])
def test_the_text_that_the_binding_adds_is_shown(code, name):
    record = driver.inner._ErrorRecord(msg="the wires are loose", code=code, routine="clFinish")
    text = driver.sentence(cl.Error(record))
    assert text == f"clFinish failed with {name}: the wires are loose"
