"""Backends that are installed here, as parameters of tests."""

from contextlib import contextmanager
from importlib.util import find_spec

import pytest

import hal_core as hal


def installed(*families):
    """Return those that are installed, or one parameter that skips its tests."""
    found = [name for name in families if find_spec(f"hal_{name.lower()}") is not None]
    return found or [pytest.param("", marks=pytest.mark.skip("no backend is installed here"))]


@contextmanager
def opened(name):
    """Open a device for a test, or skip it where the machine has none."""
    try:
        device = hal.Device[name]
    except hal.DeviceUnavailable as error:
        pytest.skip(str(error))
    with device:
        yield device
