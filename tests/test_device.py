"""Compiled: parts made once, lifetimes, the order of closing."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from fake_backend import FakePlugin

import hal_core as hal


def test_parts_are_made_once_by_however_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(FakePlugin):
        made = 0

        @hal.hookimpl
        def hal_make_allocator(self, device: hal.Compiled) -> Any:
            Slow.made += 1
            threading.Event().wait(0.05)
            return super().hal_make_allocator(device)

    hal.Device.register_plugin("SLOW", Slow())
    with hal.Device["SLOW"] as device:
        found: list[Any] = []
        threads = [
            threading.Thread(target=lambda: found.append(device.allocator)) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert Slow.made == 1 and len(set(map(id, found))) == 1


def test_closing_waits_then_releases_then_closes(plugin: FakePlugin) -> None:
    device: Any = hal.Device["FAKE:1"]
    buffer = hal.zeros(100, hal.int8, device)
    allocator = device.allocator
    program = device.compile(hal.Source("k", "def k(t): pass", "", language="python"))
    program(threads=1)
    device.close()
    assert device.log == ["synchronize", "close"]
    device.close()
    assert device.log == ["synchronize", "close"], "a second close does nothing"
    assert len(allocator.memory) == 1, "memory that has an owner is not pulled away"
    del buffer
    assert not allocator.memory, "and goes with its owner"
    for use in (device.synchronize, lambda: device.compile(program), lambda: device.renderer):
        with pytest.raises((hal.InvalidState, hal.InvalidArgument)):
            use()
    assert "closed" in repr(device)
    assert hal.Device["FAKE:1"] is not device


def test_with_closes(plugin: FakePlugin) -> None:
    with hal.Device["FAKE:1"] as device:
        assert not device.closed
    assert device.closed


def test_a_failure_in_closing_still_closes(plugin: FakePlugin) -> None:
    device: Any = hal.Device["FAKE:1"]
    device._synchronize = lambda timeout: (_ for _ in ()).throw(hal.DeviceFault("wait", "lost"))
    with pytest.raises(hal.DeviceFault):
        device.close()
    assert device.closed and device.log == ["close"]
    assert hal.Device["FAKE:1"] is not device


def test_names_and_facts(plugin: FakePlugin) -> None:
    device = hal.Device["FAKE:1"]
    assert (device.name, device.family, device.index) == ("FAKE:1", "FAKE", 1)
    assert device.info.limits.max_block == (64, 64, 64)
    assert repr(device) == "<FakeDevice FAKE:1 'Fake accelerator'>"
    assert device.synchronize() is True and device.graph is None
    with pytest.raises(AttributeError, match="no attribute 'alocator'"):
        device.alocator


def test_capabilities_are_a_closed_set(plugin: FakePlugin) -> None:
    info = plugin.hal_enumerate("FAKE")[0]
    with pytest.raises(hal.InvalidArgument, match="unknown capabilities.*warp_speed"):
        hal.Compiled("FAKE", info._replace(capabilities=frozenset({"warp_speed"})))


def test_D1_a_dtype_the_device_lacks_is_refused_before_compilation() -> None:
    plugin = FakePlugin()
    plugin.capabilities = frozenset()
    hal.Device.register_plugin("SINGLE", plugin)
    source = hal.Source("k", "not even python", "y: float64*", language="python")
    with hal.Device["SINGLE"] as device:
        with pytest.raises(hal.Unsupported, match="'y' has dtype float64, which the device does"):
            device.compile(source)
