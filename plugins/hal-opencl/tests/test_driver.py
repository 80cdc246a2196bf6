"""Errors of PyOpenCL become exceptions of hal-core."""

import traceback

import pytest

import hal_core as hal
from hal_opencl import driver
from hal_opencl.driver import cl


def test_a_failed_call_is_one_traceback_that_says_all(vendor_error):
    with pytest.raises(hal.DeviceFault) as caught, driver.check("copyin", "OPENCL"):
        raise vendor_error("clFinish", "OUT_OF_RESOURCES")
    assert "".join(traceback.format_exception(caught.value)).count("Traceback") == 1
    assert str(caught.value) == (
        "copyin: clFinish failed with OUT_OF_RESOURCES (got -5) on OPENCL."
    )


@pytest.mark.parametrize(("code", "name"), [(-5, "OUT_OF_RESOURCES"), (-9999, "code -9999")])
def test_the_text_that_the_binding_adds_is_shown(code, name):
    record = driver.inner._ErrorRecord(msg="the wires are loose", code=code, routine="clFinish")
    text = driver.sentence(cl.Error(record))
    assert text == f"clFinish failed with {name}: the wires are loose"
