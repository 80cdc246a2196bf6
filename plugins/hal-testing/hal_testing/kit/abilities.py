"""Skip tests for abilities that the device declares to lack; any other skip is a failure."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

import hal_core as hal
from hal_core.compiler.selection import forced, select
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


def text_language(device: hal.Compiled) -> str | None:
    """Return the language that a device without any renderer takes, or None if it has one."""
    if any(pair.renderer is not None for pair in device.compilers):
        return None
    chosen = forced(device.family, [pair.name for pair in device.compilers])
    return next((pair.language for pair in device.compilers if chosen in (None, pair.name)), None)


def skip_without_renderer(device: hal.Compiled, error: hal.CompilerUnavailable) -> None:
    """Skip the test if `error` is what a device that takes text alone says to other kernels."""
    if text_language(device) is None:
        return
    with pytest.raises(hal.CompilerUnavailable) as caught:
        select(device, None)
    if (error.operation, error.problem) == (caught.value.operation, caught.value.problem):
        pytest.skip("it declares no renderer: the device takes text alone")


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


def need_modules(device: hal.Compiled, texts: Any) -> hal.Compiler:
    """Return the compiler of texts; skip if it declares to take one kernel with its signature."""
    if not texts.two:
        nothing_to_try(f"one text in {texts.language!r} holds one kernel")
    _, compiler = select(device, texts.language)
    if type(compiler)._compile_module is hal.Compiler._compile_module:
        pytest.skip("it declares no texts of several kernels (_compile_module)")
    return compiler
