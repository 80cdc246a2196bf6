"""Hooks: which plugins are accepted, who is asked, who may come in between."""

import logging
import signal
import time
import types
from functools import partial

import pytest
from fake_backend import FakePlugin

import hal_core as hal
from hal_core import hookspecs
from hal_core.compiler import CompilerPair
from hal_core.device.backend import Backend
from hal_core.device.plugin import HOOKS, Extension
from hal_core.hookspecs import Check, hookimpl

pytestmark = pytest.mark.lowest


def make(plugin):
    return Backend(plugin, "ACC", "a test", "hal-acc")


def opened(owner):
    return owner.open(0, owner.infos()[0])


# -- version


@pytest.mark.parametrize(
    "version, upgrade",
    [((1, 1), "hal-core"), ((2, 0), "hal-core"), ((0, 9), "hal-acc"), ((0, 0), "hal-acc")],
)
def test_R16_versions_that_do_not(version, upgrade):
    plugin = FakePlugin()
    plugin.hal_api = version
    with pytest.raises(hal.IncompatiblePlugin) as caught:
        make(plugin)
    text = str(caught.value)
    assert f"plugin API {version[0]}.{version[1]}, hal-core has 1.0" in text
    assert f"pip install --upgrade {upgrade}" in text and "a test" in text


@pytest.mark.parametrize("version", ["1.0", 1, 1.0, (1,), (1, 0, 0), ("1", "0"), (True, 0), [1, 0]])
def test_R16_what_is_no_version(version):
    plugin = FakePlugin()
    plugin.hal_api = version
    with pytest.raises(hal.IncompatiblePlugin, match="not a pair of numbers"):
        make(plugin)


def test_R16_a_newer_plugins_extra_argument_is_a_version_error():
    class Newer(FakePlugin):
        hal_api = (1, 7)

        @hookimpl
        def hal_open_device(self, family, index, info, queue):
            pass

    with pytest.raises(hal.IncompatiblePlugin, match=r"plugin API 1\.7"):
        make(Newer())


# -- objects that are no plugin


def test_R17_a_module_without_hooks():
    module = types.ModuleType("fake_module")
    module.hal_core = hal  # an import is no hook
    with pytest.raises(hal.PluginError, match="fake_module.* has no hooks"):
        make(module)


def test_R17_a_module_may_be_a_plugin():
    module = types.ModuleType("fake_module")
    plugin = FakePlugin()
    module.hal_api = (1, 0)
    for name in ("hal_enumerate", "hal_open_device"):
        setattr(module, name, getattr(plugin, name))
    assert [info.name for info in make(module).infos()] == ["ACC"]


@pytest.mark.parametrize("missing", hookspecs.REQUIRED)
def test_R17_a_hook_that_a_device_needs(missing):
    namespace = {"hal_api": (1, 0), "hal_make_program": FakePlugin.hal_make_program}
    namespace |= {name: getattr(FakePlugin, name) for name in hookspecs.REQUIRED if name != missing}
    with pytest.raises(hal.PluginError, match=f"{missing} is missing"):
        make(type("Half", (), namespace)())
    namespace[missing] = lambda self, family: None
    with pytest.raises(hal.PluginError, match=f"{missing} is not marked @hookimpl"):
        make(type("Half", (), namespace)())


def test_R17_hooks_that_were_never_marked():
    class Unmarked:
        hal_api = (1, 0)

        def hal_enumerate(self, family):
            return []

    with pytest.raises(hal.PluginError, match="hal_enumerate not marked @hookimpl"):
        make(Unmarked())


# -- answers that are none


def answering(hook, answer):
    namespace = {hook: hookimpl(lambda self: answer)}
    return make(type("Answering", (FakePlugin,), namespace)())


def _sets_later(self, name, info):
    hal.Compiled.__init__(self, name, info)
    self._queues = []


def _sets_earlier(self, name, info):
    self._programs = {}
    self._own = 1
    hal.Compiled.__init__(self, name, info)


@pytest.mark.parametrize(("namespace", "says"), [
    ({"__init__": _sets_later}, "_queues"),
    ({"__init__": _sets_earlier}, "_programs"),
    ({"_key": lambda self, dtype: None}, "_key"),
    ({"_lock": None, "_keys": (), "_synchronize": lambda self, timeout: True},
     "_keys, _lock"),
], ids=["later", "earlier", "a method", "of the class"])  # fmt: skip
def test_names_that_a_device_has_from_its_base_class_are_not_taken_in_silence(namespace, says):
    owner = make(FakePlugin())
    device = type("Own", (hal.Compiled,), namespace)(owner.infos()[0].name, owner.infos()[0])
    kept = f"whose class uses names that hal.Compiled keeps for itself: {says};"
    with pytest.raises(hal.PluginError, match=kept):
        opened(answering("hal_open_device", device))


class Stopped(BaseException):
    """Stand for the exception that a program's own signal handler raises."""


ENDS = SystemExit(3), KeyboardInterrupt(), Stopped(), TimeoutError(), hal.DeviceUnavailable("", "")


@pytest.mark.parametrize("end", ENDS, ids=lambda end: type(end).__name__)
@pytest.mark.parametrize("hook", ["hal_enumerate", "hal_open_device", "hal_device_opened"])
@pytest.mark.parametrize("replaces", [False, True])
def test_the_end_of_the_program_passes_through_every_hook(end, hook, replaces):
    """A signal while a device opens is the program's; nothing of it is remembered or left open.

    The plugin may catch it, as with `except OSError` a TimeoutError, and raise its own error.
    """
    ends = [end]
    closed = []

    def handler(own, number, frame):  # partly called: the handler has no code of its own
        signal.signal(signal.SIGTERM, before)
        raise own.pop()

    def stop():
        if ends:
            try:
                signal.raise_signal(signal.SIGTERM)
                time.sleep(0)  # where Python hears it, if it has not yet
            except BaseException:
                if replaces:
                    raise hal.PluginError("list", "no driver") from None
                raise

    class Ended(FakePlugin):
        @hookimpl
        def hal_enumerate(self, family):
            if hook == "hal_enumerate":
                stop()
            return super().hal_enumerate(family)

        @hookimpl
        def hal_open_device(self, family, index, info):
            if hook == "hal_open_device":
                stop()
            return super().hal_open_device(family, index, info)

        @hookimpl
        def hal_device_opened(self, device):
            if hook == "hal_device_opened":
                stop()

        @hookimpl
        def hal_device_closed(self, device):
            closed.append(device)

    owner = make(Ended())
    before = signal.signal(signal.SIGTERM, partial(handler, ends))
    with pytest.raises(type(end)) as caught:
        opened(owner)
    assert caught.value is end
    assert len(closed) == (hook == "hal_device_opened") and not owner.open_devices
    assert not opened(owner).closed


def test_a_hook_that_may_be_left_out():
    owner = make(FakePlugin())
    assert owner.doctor() == []
    assert owner.import_buffer(opened(owner), object()) is None
    checks = answering("hal_doctor", [("driver", True, "1.2", "")]).doctor()
    assert checks == [Check("driver", True, "1.2")]


# -- extensions


class Wrapping:
    hal_api = (1, 0)

    def __init__(self):
        self.seen = []

    @hookimpl(wrapper=True)
    def hal_open_device(self, family):
        self.seen.append(f"before {family}")
        device = yield
        self.seen.append(f"after {device.name}")
        return device


def test_an_extensions_wrapper_runs_around_the_owner():
    owner, wrapping = make(FakePlugin()), Wrapping()
    extension = Extension(wrapping, "wrapping", "a test")
    owner.attach(extension)
    owner.attach(extension)
    assert opened(owner).name == "ACC"
    assert wrapping.seen == ["before ACC", "after ACC"]


def test_a_tryfirst_stranger_cannot_take_a_family():
    class Hijack:
        hal_api = (1, 0)

        @hookimpl(tryfirst=True)
        def hal_open_device(self, family):
            return "mine"

    with pytest.raises(hal.PluginError, match="can wrap hal_open_device, but only a device"):
        Extension(Hijack(), "hijack", "a test")

    class HijackingBackend(FakePlugin):
        @hookimpl(tryfirst=True)
        def hal_open_device(self, family, index, info):
            raise RuntimeError("asked about another's family")

    owner = make(FakePlugin())
    Backend(HijackingBackend(), "OTHER", "a test")
    assert opened(owner).name == "ACC"


def pair(name):
    return CompilerPair(name, "python", None, lambda: None)


def adding(*names):
    class Adding:
        hal_api = (1, 0)

        @hookimpl
        def hal_make_compilers(self, device):
            if not names:
                raise RuntimeError("no compiler today")
            return [pair(name) for name in names]

    return Extension(Adding(), "adding", "a test")


def test_R21_extensions_add_compilers_behind_the_owners(caplog):
    owner = make(FakePlugin())
    for extension in (adding("one"), adding(), adding("python", "two", "one")):
        owner.attach(extension)
    device = opened(owner)
    with caplog.at_level(logging.WARNING, "hal_core"):
        pairs = owner.make_compilers(device)
    assert [one.name for one in pairs] == ["python", "one", "two"]
    assert pairs[0].renderer is None and "fake" in pairs[0].compiler().identity
    said = [record.getMessage() for record in caplog.records]
    for message, text in zip(said, ("no compiler today", "are taken: python, one"), strict=True):
        assert text in message and "adding" in message


def test_R21_observers_are_isolated(caplog):
    seen = []

    class Observer:
        hal_api = (1, 0)

        def __init__(self, name):
            self.name = name

        @hookimpl
        def hal_device_opened(self, device):
            seen.append(self.name)
            if self.name == "bad":
                raise OSError("observer")

        hal_device_closed = hookimpl(hal_device_opened)

    owner = make(FakePlugin())
    for name in ("first", "bad", "last"):
        owner.attach(Extension(Observer(name), name, "a test"))
    with caplog.at_level(logging.WARNING, "hal_core"):
        opened(owner).close()
    assert seen == ["first", "bad", "last"] * 2
    assert all("plugin bad failed on ACC" in record.getMessage() for record in caplog.records)
    assert len(caplog.records) == 2


def test_every_hook_is_specified_once():
    named = {*hookspecs.REQUIRED, *hookspecs.ADDED, *hookspecs.OBSERVERS}
    assert named <= set(HOOKS)
    assert len(HOOKS) == 10
