"""Backends that are installed here, as parameters of tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pytest

import hal_core as hal


def installed(*families: str) -> list[Any]:
    """Return those that are installed, or one parameter that skips its tests."""
    found = [name for name in families if find_spec(f"hal_{name.lower()}") is not None]
    return found or [pytest.param("", marks=pytest.mark.skip("no backend is installed here"))]


@contextmanager
def opened(name: str) -> Iterator[hal.Compiled]:
    """Open a device for a test, or skip it where the machine has none."""
    try:
        device = hal.Device[name]
    except hal.DeviceUnavailable as error:
        pytest.skip(str(error))
    with device:
        yield device
