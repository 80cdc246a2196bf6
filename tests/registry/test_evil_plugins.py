"""A plugin may do anything: it is refused by name, on use, and nothing else suffers."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import pytest
from evil_plugins import ANSWERS, EVIL, OBJECTS, Evil
from fake_site import FakeSite

import hal_core as hal
from hal_core.registry import DeviceRegistry


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSite:
    made = FakeSite(tmp_path / "site")
    monkeypatch.syspath_prepend(str(made))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("EVIL_MOOD", "good")
    for name in ("HAL_DEVICE", "HAL_PLUGINS", "HAL_DISABLE", "HAL_PREFER"):
        monkeypatch.delenv(name, raising=False)
    return made


def test_there_are_more_than_thirty() -> None:
    assert len(EVIL) >= 60


@pytest.mark.parametrize("evil", EVIL.values(), ids=EVIL.keys())
def test_R8_an_evil_plugin_is_refused_by_name(
    site: FakeSite,
    evil: Evil,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = site.backend("EVIL", evil.source, distribution="hal_evil")
    site.backend("GOOD")
    registry = DeviceRegistry([str(site)])
    monkeypatch.setattr(hal, "Device", registry)

    def use() -> None:
        device = registry["EVIL"]
        space = {"hal": hal, "device": device, "registry": registry}
        exec(evil.use, space)

    with warnings.catch_warnings():
        if evil.says:
            kind = getattr(hal, evil.error)
            for _ in range(2):  # it is remembered, or found again
                with pytest.raises(kind) as caught:
                    use()
                text = str(caught.value)
                for fact in (evil.says, module, "hal-evil", "1.0", str(site)):
                    assert fact in text
                assert "EVIL" in text and len(text) < 5000
        else:
            use()
        assert registry["GOOD"].name == "GOOD"
        assert "GOOD" in registry.get_available_devices()
        assert registry.states().keys() == {"EVIL", "GOOD"}
    for name in list(registry._opened):
        registry[name].close()
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("hello\n" if "print(" in evil.source else "", "")


MADE = {
    name: evil for name, evil in (OBJECTS | ANSWERS).items() if evil.use == "device" and evil.says
}


@pytest.mark.parametrize("evil", MADE.values(), ids=MADE.keys())
def test_R18_register_plugin_refuses_the_same(
    site: FakeSite, evil: Evil, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = __import__(site.backend("EVIL", evil.source)).plugin
    registry = DeviceRegistry([])
    monkeypatch.setattr(hal, "Device", registry)
    with pytest.raises(hal.PluginError, match="Device.register_plugin"):
        registry.register_plugin("EVIL", plugin)
        registry["EVIL"]


EXTENSIONS = {
    "raises": "raise RuntimeError('boom')",
    "exits": "raise SystemExit(3)",
    "is a number": "plugin = 42",
    "has no version": "# more\ndel Plugin.hal_api",
    "owns a device": "# more\nPlugin.hal_enumerate = hookimpl(lambda self: [])",
    "cannot be listed twice": "# more\ncount = []\ndef listed(self):\n    count.append(1)\n"
    "    if len(count) > 2: raise SystemExit\n    return object.__dir__(self)\n"
    "Plugin.__dir__ = listed",
    "fails at each hook": "# more\ndef bad(self, device): raise SystemExit(5)\n"
    "for name in ('hal_device_opened', 'hal_device_closed', 'hal_make_compilers'):\n"
    "    setattr(Plugin, name, hookimpl(bad))",
    "adds rubbish": "# more\nPlugin.hal_make_compilers = hookimpl(lambda self, device: [1, 2])",
    "adds what is no list": "# more\nPlugin.hal_make_compilers = hookimpl(lambda self: 42)",
}

EXTENSION = """
from hal_core.hookspecs import hookimpl
class Plugin:
    hal_api = (1, 0)
    @hookimpl
    def hal_device_closed(self, device): pass
plugin = Plugin()
"""


@pytest.mark.parametrize("source", EXTENSIONS.values(), ids=EXTENSIONS.keys())
def test_R21_an_evil_extension_is_left_out_and_named(
    site: FakeSite, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    if source.startswith("# more"):
        source = EXTENSION + source
    site.backend("watch", source, group="hal.extensions", distribution="hal_watch")
    site.backend("CPU", "# more\nPlugin.hal_make_compilers = hookimpl(lambda self, device: [])\n")
    registry = DeviceRegistry([str(site)])
    device = registry["CPU"]
    assert device.compilers == []
    device.close()
    assert registry["CPU"].name == "CPU"
    said = [record.getMessage() for record in caplog.records]
    assert said and all("watch" in text and "hal-watch 1.0" in text for text in said)


def test_R21_a_wrapper_that_fails_is_named_beside_the_owner(site: FakeSite) -> None:
    source = EXTENSION + (
        "@hookimpl(wrapper=True)\ndef bad(self, family):\n    yield\n    raise OSError('mine')\n"
        "Plugin.hal_open_device = bad\n"
    )
    module = site.backend("watch", source, group="hal.extensions", distribution="hal_watch")
    site.backend("CPU")
    with pytest.raises(hal.PluginError, match="OSError: mine") as caught:
        DeviceRegistry([str(site)])["CPU"]
    assert f"wrapped by watch (entry point watch = {module}:plugin" in str(caught.value)


def test_R21_one_object_under_two_names_is_attached_once(site: FakeSite) -> None:
    seen = "# more\nseen = []\n"
    module = site.backend("CPU", seen + "Plugin.hal_device_opened = hookimpl("
                          "lambda self, device: seen.append(device.name))\n")  # fmt: skip
    lines = f"[hal.extensions]\none = {module}:plugin\ntwo = {module}:plugin\n"
    site.distribution("hal_watch", lines)
    registry = DeviceRegistry([str(site)])
    assert registry["CPU:1"].name == "CPU:1"
    assert sys.modules[module].seen == ["CPU:1"]


IN_A_PROCESS = {
    "forks": ("import os, sys\nif os.fork() == 0: os._exit(0)\nos.wait()\n", ""),
    "prints ten megabytes": ("print('x' * 10_000_000)\n", "x"),
    "closes the streams": ("import os\nos.close(1)\nos.close(2)\n", ""),
}


@pytest.mark.parametrize("name", IN_A_PROCESS)
def test_R8_what_only_a_process_of_its_own_survives(site: FakeSite, name: str) -> None:
    source, printed = IN_A_PROCESS[name]
    if "fork" in source and not hasattr(os, "fork"):
        pytest.skip("no fork on this system")
    site.backend("EVIL", "# more\n" + source)
    site.backend("GOOD")
    answer = site.folder / "answer"
    done = site.run(
        f"""
        import hal_core as hal
        names = hal.Device["EVIL"].name, hal.Device["GOOD"].name
        with open({str(answer)!r}, "w") as file:
            file.write(str(names))
        """
    )
    assert answer.read_text() == "('EVIL', 'GOOD')"
    assert (set(done.stdout.strip()), done.stderr) == (set(printed), "")
