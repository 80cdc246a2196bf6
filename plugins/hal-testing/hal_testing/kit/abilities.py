"""Skip tests for abilities that the device declares to lack; any other skip is a failure."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

import hal_core as hal
from hal_core.device.base import CAPABILITIES

# The beginnings of the texts below, by which the plugin tells these skips from others.
_REASONS = ("no hardware: ", "it declares no ", "its allocator honours no ", "nothing to try: ")


def is_declared(reason: str) -> bool:
    """Return True if a device or its author has declared the reason of a skip."""
    return reason.removeprefix("Skipped: ").startswith(_REASONS)


def need(device: hal.Compiled, capability: str) -> None:
    """Skip the test if the device declares no such capability."""
    if capability not in CAPABILITIES:
        raise ValueError(f"no such capability: {capability}")
    if capability not in device.info.capabilities:
        pytest.skip(f"it declares no {capability}")


def need_host_visible(device: hal.Compiled, options: hal.BufferSpec | None = None) -> None:
    """Skip the test if the device declares that the host cannot see memory of these options."""
    if not device.allocator._host_sees(options or hal.BufferSpec()):
        which = "such memory" if options else "memory"
        pytest.skip(f"it declares no {which} that the host sees (host_visible, _host_sees)")


def need_spec(device: hal.Compiled, field: str) -> None:
    """Skip the test if the allocator declares that it refuses a field of `BufferSpec`."""
    if field not in device.allocator.honours:
        pytest.skip(f"its allocator honours no {field}")


def need_cache(allocator: hal.Allocator[Any]) -> None:
    """Skip the test if the allocator declares that it caches no freed blocks (`cache_limit` 0)."""
    if not allocator.cache_limit:
        pytest.skip("its allocator honours no cache_limit")


def nothing_to_try(why: str) -> NoReturn:
    """Skip the test because the author has not overridden a fixture, or there is no such case."""
    pytest.skip(f"nothing to try: {why}")
