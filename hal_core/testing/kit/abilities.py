"""What a test needs of a device, and the only reasons for which it may be skipped."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

import hal_core as hal
from hal_core.device import CAPABILITIES

_REASONS = ("no hardware: ", "it declares no ", "its allocator honours no ", "nothing to try: ")


def is_declared(reason: str) -> bool:
    """Whether a skip's reason is one that a device or its author has declared."""
    return reason.removeprefix("Skipped: ").startswith(_REASONS)


def need(device: hal.Compiled, capability: str) -> None:
    """Skips where the device declares that it lacks the capability."""
    if capability not in CAPABILITIES:
        raise ValueError(f"no such capability: {capability}")
    if capability not in device.info.capabilities:
        pytest.skip(f"it declares no {capability}")


def need_host_visible(device: hal.Compiled, options: hal.BufferSpec | None = None) -> None:
    """Skips where the device declares that the host does not see memory of these options."""
    if not device.allocator._host_sees(options or hal.BufferSpec()):
        which = "such memory" if options else "memory"
        pytest.skip(f"it declares no {which} that the host sees (host_visible, _host_sees)")


def need_spec(device: hal.Compiled, field: str) -> None:
    """Skips where the allocator declares that it refuses a field of `BufferSpec`."""
    if field not in device.allocator.honours:
        pytest.skip(f"its allocator honours no {field}")


def need_cache(allocator: hal.Allocator[Any]) -> None:
    """Skips where the allocator keeps no freed blocks, and says so: `cache_limit` stays 0."""
    if not allocator.cache_limit:
        pytest.skip("its allocator honours no cache_limit")


def nothing_to_try(why: str) -> NoReturn:
    """The author has given the kit nothing for this: a fixture was not overridden."""
    pytest.skip(f"nothing to try: {why}")
