"""Wrong plugins are refused by name, on use, and nothing else suffers."""

import sys
from typing import NamedTuple

import pytest

import hal_core as hal
from hal_core.device import DeviceRegistry


class Wrong(NamedTuple):
    """A plugin's source, and what is said of it when `use` is tried on its device.

    A source that starts with `# more` is appended to the plugin of `fake_site`.
    """

    source: str
    says: str  # in the error
    use: str = "device"
    error: str = "PluginError"


HOOK = "# more\nPlugin.{hook} = hookimpl(lambda {args}: {answer})\n"
ENUMERATE = "self, family"
OPEN = "self, family, index, info"


def hook(name, args, answer, says, use="device"):
    return Wrong(HOOK.format(hook=name, args=args, answer=answer), says, use)


def enumerates(answer, says):
    return hook("hal_enumerate", ENUMERATE, answer, says)


def replaced(change, says):
    """The right info but for one field."""
    source = f"""# more
good = Plugin.hal_enumerate
Plugin.hal_enumerate = hookimpl(
    lambda self, family: [info._replace({change}) for info in good(self, family)[:1]])
"""
    return Wrong(source, says)


def opens(answer, says):
    return hook("hal_open_device", OPEN, answer, says)


AT_IMPORT = {
    "raises": Wrong("raise RuntimeError('boom')", "RuntimeError: boom"),
    "SystemExit": Wrong("raise SystemExit('bye')", "SystemExit: bye"),
    "BaseException": Wrong("class Odd(BaseException): pass\nraise Odd('odd')", "Odd: odd"),
    "recursion": Wrong("def f(): f()\nf()", "RecursionError"),
    "asks for itself": Wrong("import hal_core\nhal_core.Device['EVIL']", "it is already under way"),
}

OBJECTS = {
    "42": Wrong("plugin = 42", "no plugin object"),
    "a string": Wrong("plugin = 'CUDA'", "no plugin object"),
    "None": Wrong("plugin = None", "no plugin object"),
    "a class": Wrong("# more\nplugin = Plugin", "the class Plugin, not an instance"),
    "nothing": Wrong("plugin = object()", "has no hooks"),
    "hal_api is missing": Wrong(
        "# more\ndel Plugin.hal_api", "hal_api is missing", error="IncompatiblePlugin"
    ),
    "rank is text": Wrong("# more\nPlugin.rank = 'first'", "rank maps device kinds to numbers"),
    "made for an API to come, whose hooks have other names": Wrong(
        "class Plugin: hal_api = (99, 0)\nplugin = Plugin()", "plugin API 99.0",
        error="IncompatiblePlugin",
    ),
    "an attribute that raises": Wrong(
        "# more\nPlugin.rank = property(lambda self: 1 / 0)", "cannot be examined: ZeroDivisionErr"
    ),
    "an attribute that exits": Wrong(
        "# more\nPlugin.hal_api = property(lambda self: exit(3))", "cannot be examined: SystemExit"
    ),
    "a misspelt hook": Wrong(
        "# more\nPlugin.hal_make_alocator = hookimpl(lambda self: 1)",
        "'hal_make_alocator', did you mean 'hal_make_allocator'",
    ),
    "a hook's argument too many": Wrong(
        "# more\nPlugin.hal_doctor = hookimpl(lambda self, moon: 1)", "moon"
    ),
}  # fmt: skip

ANSWERS = {
    "enumerates None": enumerates("None", "hal_enumerate gave None"),
    "enumerates a number": enumerates("7", "hal_enumerate gave 7"),
    "enumerates text": enumerates("'EVIL'", "'E' as device 0"),
    "enumerates objects": enumerates("[object()]", "as device 0"),
    "enumerates another's device": Wrong(
        "# more\ngood = Plugin.hal_enumerate\n"
        "Plugin.hal_enumerate = hookimpl(lambda self, family: good(self, 'CPU'))",
        "as device 0, not a DeviceInfo of EVIL",
    ),
    "enumerating raises": enumerates("1 / 0", "hal_enumerate failed: ZeroDivisionError"),
    "enumerating exits": enumerates("exit(3)", "hal_enumerate failed: SystemExit: 3"),
    "enumerating raises no Exception": enumerates(
        "exec('raise BaseExceptionGroup(\\'no\\', [GeneratorExit()])')",
        "hal_enumerate failed: BaseException",
    ),
    "an error without a text": enumerates(
        "exec('class E(Exception):\\n def __str__(self): raise OSError\\nraise E')",
        "hal_enumerate failed: E: its text raises OSError",
    ),
    "an unknown kind": replaced("kind='tpu'", "the kind 'tpu'"),
    "no limits": replaced("limits=None", "None for limits, not a Limits"),
    "memory as text": replaced("memory_nbytes='64G'", "'64G' for memory_nbytes, not a int"),
    "a title that is none": replaced("title=None", "None for title"),
    "unknown capabilities": replaced("capabilities=frozenset({'fly'})", "'fly'"),
    "opens None": opens("None", "hal_open_device gave None"),
    "opens text": opens("'EVIL'", "hal_open_device gave 'EVIL'"),
    "opens a list": opens("[]", "hal_open_device"),
    "opens another's device": opens(
        "__import__('hal_core').Compiled('CPU', info)", "not the device EVIL"
    ),
    "opens a closed device": Wrong(
        "# more\ngood = Plugin.hal_open_device\ndef open(self, family, index, info):\n"
        "    device = good(self, family, index, info)\n    device.closed = True\n"
        "    return device\nPlugin.hal_open_device = hookimpl(open)",
        "which is closed",
    ),
    "a device that waits and tells nothing": Wrong(
        "# more\ngood = Plugin.hal_open_device\ndef open(self, family, index, info):\n"
        "    device = good(self, family, index, info)\n    device._synchronize = lambda t: None\n"
        "    return device\nPlugin.hal_open_device = hookimpl(open)",
        "_synchronize gave None, neither True nor False", "device.synchronize()"),
    "opens half a device": opens(
        "__import__('hal_core').Compiled.__new__(__import__('hal_core').Compiled)",
        "did not call super().__init__",
    ),
    "opening raises": opens("1 / 0", "hal_open_device failed: ZeroDivisionError"),
    "opening exits": opens("exit(3)", "hal_open_device failed: SystemExit"),
    "allocator exits": hook(
        "hal_make_allocator", "self, device", "exit()", "hal_make_allocator failed: SystemExit",
        "device.allocator",
    ),
    "compilers exit": hook(
        "hal_make_compilers", "self, device", "exit()", "hal_make_compilers failed: SystemExit",
        "device.compilers",
    ),
    "doctor exits": hook(
        "hal_doctor", "self, family", "exit()", "hal_doctor failed: SystemExit",
        "registry.backend('EVIL').doctor()",
    ),
    "an allocator that is none": hook(
        "hal_make_allocator", "self, device", "42", "hal_make_allocator gave 42", "device.allocator"
    ),
    "an allocator of another device": hook(
        "hal_make_allocator", "self, device",
        "__import__('hal_core.allocator').allocator.Allocator(__import__('hal_core').Device['GOOD'])",
        "hal_make_allocator gave an allocator of another device", "device.allocator",
    ),
    "no allocator": Wrong("# more\n", "hal_make_allocator gave None", "device.allocator"),
    "an allocator without methods": hook(
        "hal_make_allocator", "self, device",
        "__import__('hal_core.allocator').allocator.Allocator(device)",
        "Allocator fills in no _alloc; from entry point EVIL", "hal.empty(4, hal.int8, device)",
    )._replace(error="Unsupported"),
    "compilers that are none": hook(
        "hal_make_compilers", "self, device", "[42]", "42, which is no CompilerPair",
        "device.compilers",
    ),
    "compilers without end": hook(
        "hal_make_compilers", "self, device", "iter(int, 1)", "no sequence of compiler pairs",
        "device.compilers",
    ),
    "two compilers of one name": hook(
        "hal_make_compilers", "self, device",
        "[__import__('hal_core.compiler').compiler.CompilerPair('cc', 'c', None, int)] * 2",
        "two compilers named 'cc'", "device.compilers",
    ),
    "a renderer that raises": hook(
        "hal_make_compilers", "self, device",
        "[__import__('hal_core.compiler').compiler.CompilerPair('cc', 'c', lambda: 1 / 0, int)]",
        "the renderer of cc failed: ZeroDivisionError", "device.renderer",
    ),
    "a renderer that is none": hook(
        "hal_make_compilers", "self, device",
        "[__import__('hal_core.compiler').compiler.CompilerPair('cc', 'c', lambda: None, int)]",
        "the renderer of cc is None", "device.renderer",
    ),
    "a program that is none": hook(
        "hal_make_program", "self, device, binary", "device", "which is no Program",
        "device.load(hal.Binary(b'', 'x', 'x', hal.Interface(hal.Signature('k', ()))))",
    ),
    "checks that are none": hook(
        "hal_doctor", "self, family", "42", "no list of checks",
        "registry.backend('EVIL').doctor()",
    ),
    "checks of another shape": hook(
        "hal_doctor", "self, family", "[('driver', 'yes')]", "which is no Check",
        "registry.backend('EVIL').doctor()",
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def on_the_path(site, monkeypatch):
    monkeypatch.syspath_prepend(str(site))


ALL = AT_IMPORT | OBJECTS | ANSWERS


@pytest.mark.parametrize("wrong", ALL.values(), ids=ALL.keys())
def test_R8_a_wrong_plugin_is_refused_by_name(site, wrong, as_hal_device):
    module = site.backend("EVIL", wrong.source, distribution="hal_evil")
    site.backend("GOOD")
    registry = DeviceRegistry([str(site)])
    as_hal_device(registry)
    for _ in range(2):  # a failure is remembered, or found again
        with pytest.raises(getattr(hal, wrong.error)) as caught:
            device = registry["EVIL"]
            exec(wrong.use, {"hal": hal, "device": device, "registry": registry})
        text = str(caught.value)
        for fact in (wrong.says, module, "hal-evil", "1.0", str(site)):
            assert fact in text
        assert "EVIL" in text and len(text) < 5000
        assert "failed" not in wrong.says or caught.value.__cause__
    assert registry["GOOD"].name == "GOOD"
    assert "GOOD" in registry.get_available_devices()
    assert registry.states().keys() == {"EVIL", "GOOD"}
    for name, state in registry.states().items():
        if state == "open":
            registry[name].close()


MADE = {name: wrong for name, wrong in (OBJECTS | ANSWERS).items() if wrong.use == "device"}


@pytest.mark.parametrize("wrong", MADE.values(), ids=MADE.keys())
def test_R18_register_plugin_refuses_the_same(site, wrong, as_hal_device):
    plugin = __import__(site.backend("EVIL", wrong.source)).plugin
    registry = DeviceRegistry([])
    as_hal_device(registry)
    with pytest.raises(hal.PluginError, match="Device.register_plugin"):
        registry.register_plugin("EVIL", plugin)
        registry["EVIL"]


EXTENSIONS = {
    "raises": "raise RuntimeError('boom')",
    "exits": "raise SystemExit(3)",
    "is a number": "plugin = 42",
    "has no version": "# more\ndel Plugin.hal_api",
    "owns a device": "# more\nPlugin.hal_enumerate = hookimpl(lambda self: [])",
    "fails at each hook": "# more\ndef bad(self, device): raise OSError(5)\n"
    "for name in ('hal_device_opened', 'hal_device_closed', 'hal_make_compilers'):\n"
    "    setattr(Plugin, name, hookimpl(bad))",
    "exits at each hook": "# more\ndef bad(self, device): exit(3)\n"
    "for name in ('hal_device_opened', 'hal_device_closed', 'hal_make_compilers'):\n"
    "    setattr(Plugin, name, hookimpl(bad))",
    "raises what has no text": "# more\nclass E(Exception):\n    __str__ = None\n"
    "def bad(self, device): raise E\nPlugin.hal_device_opened = hookimpl(bad)",
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
def test_R21_a_wrong_extension_is_left_out_and_named(site, source, caplog):
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


@pytest.mark.parametrize("ends", ["exit()", "None.nothing", "f'{E()}'"])
def test_a_compiler_that_exits_leaves_the_others(site, ends):
    source = HOOK.format(
        hook="hal_make_compilers", args="self, device",
        answer=f"[__import__('hal_core.compiler').compiler.CompilerPair('cc', 'c', None, "
        f"lambda: {ends})]",
    )  # fmt: skip
    site.backend("EVIL", f"{source}class E:\n    def __str__(self): exit(2)\n")
    device = DeviceRegistry([str(site)])["EVIL"]
    with pytest.raises(hal.CompilerUnavailable, match="no compiler can serve: cc: "):
        device.compile(hal.Source("k", "", "", language="c"))
    device.close()


def test_R21_a_wrapper_that_fails_is_named_beside_the_owner(site):
    source = EXTENSION + (
        "@hookimpl(wrapper=True)\ndef bad(self, family):\n    yield\n    raise OSError('mine')\n"
        "Plugin.hal_open_device = bad\n"
    )
    module = site.backend("watch", source, group="hal.extensions", distribution="hal_watch")
    site.backend("CPU")
    with pytest.raises(hal.PluginError, match="OSError: mine") as caught:
        DeviceRegistry([str(site)])["CPU"]
    assert f"wrapped by watch (entry point watch = {module}:plugin" in str(caught.value)


def test_R21_one_object_under_two_names_is_attached_once(site):
    seen = "# more\nseen = []\n"
    module = site.backend("CPU", seen + "Plugin.hal_device_opened = hookimpl("
                          "lambda self, device: seen.append(device.name))\n")  # fmt: skip
    lines = f"[hal.extensions]\none = {module}:plugin\ntwo = {module}:plugin\n"
    site.distribution("hal_watch", lines)
    registry = DeviceRegistry([str(site)])
    assert registry["CPU:1"].name == "CPU:1"
    assert sys.modules[module].seen == ["CPU:1"]
