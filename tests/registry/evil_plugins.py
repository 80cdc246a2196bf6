"""Plugins that do what no plugin should, and what is said of each.

`# more` sources are appended to the plugin of `fake_site`; `USE` is tried on the device where the
harm is done later than at the open.
"""

from __future__ import annotations

from typing import NamedTuple


class Evil(NamedTuple):
    source: str
    says: str  # in the error; empty: it works all the same
    use: str = "device"
    error: str = "PluginError"


HOOK = "# more\nPlugin.{hook} = hookimpl(lambda {args}: {answer})\n"
ENUMERATE = "self, family"
OPEN = "self, family, index, info"


def hook(name: str, args: str, answer: str, says: str, use: str = "device") -> Evil:
    return Evil(HOOK.format(hook=name, args=args, answer=answer), says, use)


def enumerates(answer: str, says: str) -> Evil:
    return hook("hal_enumerate", ENUMERATE, answer, says)


def replaced(change: str, says: str) -> Evil:
    """The right info but for one field."""
    source = f"""# more
good = Plugin.hal_enumerate
Plugin.hal_enumerate = hookimpl(
    lambda self, family: [info._replace({change}) for info in good(self, family)[:1]])
"""
    return Evil(source, says)


def opens(answer: str, says: str) -> Evil:
    return hook("hal_open_device", OPEN, answer, says)


AT_IMPORT = {
    "raises": Evil("raise RuntimeError('boom')", "RuntimeError: boom"),
    "SystemExit": Evil("raise SystemExit('bye')", "SystemExit: bye"),
    "BaseException": Evil("class Odd(BaseException): pass\nraise Odd('odd')", "Odd: odd"),
    "GeneratorExit": Evil("raise GeneratorExit", "GeneratorExit"),
    "an error that cannot be shown": Evil(
        "class Odd(Exception):\n    def __str__(self): raise SystemExit\nraise Odd",
        "Odd: its text cannot be had",
    ),
    "an error of ten megabytes": Evil("raise OSError('x' * 10_000_000)", "OSError: xxx"),
    "an error that cannot be copied": Evil(
        "import hal_core\nclass Odd(hal_core.HalError):\n"
        "    def __init__(self): Exception.__init__(self, 'odd')\n"
        "    def __reduce__(self): raise TypeError('no')\nraise Odd",
        "Odd: odd",
    ),
    "recursion": Evil("def f(): f()\nf()", "RecursionError"),
    "memory": Evil("raise MemoryError", "MemoryError"),
    "leaves sys.modules": Evil("import sys\ndel sys.modules[__name__]", "KeyError"),
    "is a number in sys.modules": Evil("import sys\nsys.modules[__name__] = 42", "AttributeError"),
    "asks for itself": Evil("import hal_core\nhal_core.Device['EVIL']", "still being imported"),
}

OBJECTS = {
    "42": Evil("plugin = 42", "no plugin object"),
    "a string": Evil("plugin = 'CUDA'", "no plugin object"),
    "None": Evil("plugin = None", "no plugin object"),
    "a class": Evil("# more\nplugin = Plugin", "the class Plugin, not an instance"),
    "nothing": Evil("plugin = object()", "has no hooks"),
    "hal_api raises": Evil(
        "# more\nPlugin.hal_api = property(lambda self: 1 / 0)", "ZeroDivisionError"
    ),
    "hal_api exits": Evil(
        "# more\nimport sys\nPlugin.hal_api = property(lambda self: sys.exit(4))", "SystemExit"
    ),
    "hal_api is missing": Evil(
        "# more\ndel Plugin.hal_api", "hal_api is missing", error="IncompatiblePlugin"
    ),
    "answers to every name": Evil(
        "class Any:\n    def __getattr__(self, name): return lambda *a, **k: None\nplugin = Any()",
        "has no hooks",
    ),
    "answers to every name, with itself": Evil(
        "class Any:\n    def __getattr__(self, name): return self\n"
        "    def __call__(self, *a, **k): return self\nplugin = Any()",
        "has no hooks",
    ),
    "cannot be listed": Evil(
        "# more\nPlugin.__dir__ = lambda self: 1 / 0", "ZeroDivisionError"
    ),
    "lies about its class": Evil(
        "# more\nclass Liar(Plugin):\n    __class__ = property(lambda self: 1 / 0)\n"
        "plugin = Liar()",
        "ZeroDivisionError",
    ),
    "cannot be shown": Evil(
        "class Bad:\n    def __repr__(self): raise SystemExit\nplugin = Bad()",
        "an object of Bad whose repr fails has no hooks",
    ),
    "rank raises": Evil("# more\nPlugin.rank = property(lambda self: 1 / 0)", "ZeroDivisionError"),
    "rank is text": Evil("# more\nPlugin.rank = 'first'", "rank maps device kinds to numbers"),
    "a hook too many": Evil("# more\nPlugin.hal_fly = hookimpl(lambda self: 1)", "'hal_fly'"),
    "a hook's argument too many": Evil(
        "# more\nPlugin.hal_doctor = hookimpl(lambda self, moon: 1)", "moon"
    ),
}  # fmt: skip

ANSWERS = {
    "enumerates None": enumerates("None", "hal_enumerate gave None"),
    "enumerates a number": enumerates("7", "hal_enumerate gave 7"),
    "enumerates text": enumerates("'EVIL'", "'E' as device 0"),
    "enumerates for ever": enumerates("iter(int, 1)", "no sequence of devices"),
    "enumerates millions": enumerates("range(10**12)", "no sequence of devices"),
    "enumerates objects": enumerates("[object()]", "as device 0"),
    "enumerates another's device": Evil(
        "# more\ngood = Plugin.hal_enumerate\n"
        "Plugin.hal_enumerate = hookimpl(lambda self, family: good(self, 'CPU'))",
        "as device 0, not a DeviceInfo of EVIL",
    ),
    "enumerates what raises": enumerates(
        "type('L', (list,), {'__iter__': lambda self: 1 / 0, '__len__': lambda self: 1})()",
        "ZeroDivisionError",
    ),
    "enumerating raises": enumerates("1 / 0", "hal_enumerate failed: ZeroDivisionError"),
    "enumerating exits": enumerates("exit(3)", "SystemExit"),
    "an unknown kind": replaced("kind='tpu'", "the kind 'tpu'"),
    "a kind that is no text": replaced("kind=[]", "the kind []"),
    "no limits": replaced("limits=None", "None for limits, not a Limits"),
    "memory as text": replaced("memory_nbytes='64G'", "'64G' for memory_nbytes, not a int"),
    "a title that is none": replaced("title=None", "None for title"),
    "unknown capabilities": replaced("capabilities=frozenset({'fly'})", "'fly'"),
    "opens None": opens("None", "hal_open_device gave None"),
    "opens text": opens("'EVIL'", "hal_open_device gave 'EVIL'"),
    "opens a list": opens("[]", "hal_open_device"),
    "opens another's device": opens(
        "__import__('hal_core').device.Compiled('CPU', info)", "not the device EVIL"
    ),
    "opens a closed device": Evil(
        "# more\ngood = Plugin.hal_open_device\ndef open(self, family, index, info):\n"
        "    device = good(self, family, index, info)\n    device.closed = True\n"
        "    return device\nPlugin.hal_open_device = hookimpl(open)",
        "which is closed",
    ),
    "opens half a device": opens(
        "__import__('hal_core').Compiled.__new__(__import__('hal_core').Compiled)",
        "did not call super().__init__",
    ),
    "opening raises": opens("1 / 0", "hal_open_device failed: ZeroDivisionError"),
    "an allocator that is none": hook(
        "hal_make_allocator", "self, device", "42", "hal_make_allocator gave 42", "device.allocator"
    ),
    "no allocator": Evil("# more\n", "hal_make_allocator gave None", "device.allocator"),
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
    "a program that is none": hook(
        "hal_make_program", "self, device, binary", "device", "which is no Program",
        "device.load(hal.Binary(b'', 'x', 'x', 'k', hal.Signature('k', ())))",
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

# What it does is its own business, as long as nothing of ours suffers.
HARMLESS = {
    "changes sys.path": Evil("# more\nimport sys\nsys.path.append('/nowhere')", ""),
    "changes the warnings filters": Evil(
        "# more\nimport warnings\nwarnings.simplefilter('error')", ""
    ),
    "starts a thread": Evil(
        "# more\nimport threading\n"
        "threading.Thread(target=threading.Event().wait, args=(20,), daemon=True).start()",
        "",
    ),
    "changes the environment": Evil("# more\nimport os\nos.environ['EVIL_MOOD'] = 'bad'", ""),
    "a hook that leaves sys.modules": Evil(
        "# more\nimport sys\ngood = Plugin.hal_enumerate\ndef enumerate_(self, family):\n"
        "    sys.modules.pop(type(self).__module__, None)\n    return good(self, family)\n"
        "Plugin.hal_enumerate = hookimpl(enumerate_)",
        "",
    ),
    "hooks that ask the registry": Evil(
        "# more\nimport hal_core\ngood = Plugin.hal_open_device\n"
        "def open(self, family, index, info):\n    repr(hal_core.Device)\n"
        "    list(hal_core.Device)\n    hal_core.Device.states()\n"
        "    return good(self, family, index, info)\nPlugin.hal_open_device = hookimpl(open)",
        "",
    ),
    "is unhashable and like no other": Evil(
        "# more\nPlugin.__hash__ = None\nPlugin.__eq__ = lambda self, other: 1 / 0", ""
    ),
    "prints": Evil("# more\nprint('hello')", ""),
}

EVIL = AT_IMPORT | OBJECTS | ANSWERS | HARMLESS
