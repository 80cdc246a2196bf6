"""Plugins read side by side: the same files, the same names with the same meaning, one order.

For a family called X, in `hal_x/`:

    file        what every plugin has in it, in this order
    __init__    XPlugin: hooks in the order of hookspecs.py, each an import and a call; `plugin`;
                __getattr__ for the device class
    driver      calls of the vendor, which stand nowhere else
                explain(error, operation, device)         -> the exception of hal-core
                check(operation, device)                  a context manager that raises it
    device      enumerate_devices(family)                 -> list[DeviceInfo]
                describe(name, ...)                       -> DeviceInfo
                XDevice: __init__(name, info), _synchronize, _close, _make_clock
    allocator   XAllocator: methods in the order of the base class
    compiler    pairs(device)                             -> list[CompilerPair]
                XCompiler, one or more: __init__(device), _compile, _disassemble
    program     XProgram: __init__(device, binary), _geometry, _bind, _launch_timed, _unload
    clock       XClock: methods in the order of the base class
    doctor      checks(family)                            -> list[Check]

A plugin leaves out what the base class does for it. Its own methods follow those of the base class;
its own files and folders hold what these eight use. A plugin of streams and events has what
`hal_streams/` gives it: its clock, and `explain` and `check`, which its `driver` imports. The
classes of that folder are held to the order of their base classes, too.
"""

import ast
from itertools import pairwise
from pathlib import Path

import pytest
from run_python import printed

from hal_core import hookspecs
from hal_core.allocator import Allocator
from hal_core.compiler import Compiler
from hal_core.device.base import Compiled
from hal_core.program import Program
from hal_streams.sampled_clock import SampledClock

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {
    path.parent.name: path.parent / path.parent.name.replace("-", "_")
    for path in sorted((ROOT / "plugins").glob("*/pyproject.toml"))
    if path.parent.name not in ("hal-kernel", "hal-streams", "hal-testing")  # which are no backends
}
PLUGINS = pytest.mark.parametrize("plugin", FOLDERS)
STREAMS = ROOT / "plugins" / "hal-streams" / "hal_streams"
FILES = ("__init__", "driver", "device", "allocator", "compiler", "program", "clock", "doctor")

# file -> functions in their order: name, its first parameters, what it returns
FUNCTIONS = {
    "driver": [("explain", ["error", "operation", "device"], "")],
    "device": [
        ("enumerate_devices", ["family"], "list[DeviceInfo]"),
        ("describe", ["name"], "DeviceInfo"),
    ],
    "compiler": [("pairs", ["device"], "list[CompilerPair]")],
    "doctor": [("checks", ["family"], "list[Check]")],
}
# file -> end of the class's name, its base class, parameters of __init__
CLASSES = {
    "device": ("Device", Compiled, ["name", "info"]),
    "allocator": ("Allocator", Allocator, ["device"]),
    "compiler": ("Compiler", Compiler, ["device"]),
    "program": ("Program", Program, ["device", "binary"]),
    "clock": ("Clock", SampledClock, ["device"]),
}


def read(plugin, file):
    folder = STREAMS if plugin == "streams" else FOLDERS[plugin]
    return ast.parse((folder / f"{file}.py").read_text(encoding="utf-8")).body


def is_of_streams(plugin):
    return "hal_streams" in (FOLDERS[plugin] / "device.py").read_text(encoding="utf-8")


def read_shared(plugin, file):
    """A file, after the definitions that it imports from `hal_streams/`."""
    body = read(plugin, file)
    shared = []
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.module == f"hal_streams.{file}":
            names = {alias.name for alias in node.names}
            of_file = read("streams", file)
            shared += [one for one in of_file if getattr(one, "name", "") in names]
    return [*shared, *body]


def named(body, kind):
    return {node.name: node for node in body if isinstance(node, kind)}


def family_of(plugin):
    """`CUDA`, as the plugin's classes spell it."""
    [name] = list(named(read(plugin, "__init__"), ast.ClassDef))
    assert name.endswith("Plugin")
    return name.removesuffix("Plugin")


def parameters(function):
    return [one.arg for one in function.args.args if one.arg != "self"]


def assert_in_order(found, order, where):
    places = [order.index(name) for name in found]
    for first, second in pairwise(range(len(found))):
        assert places[first] < places[second], f"{where}: {found[second]} before {found[first]}"


@PLUGINS
def test_files(plugin):
    files = {path.name for path in FOLDERS[plugin].iterdir()}
    given = {"clock.py"} if is_of_streams(plugin) else set()
    missing = {f"{name}.py" for name in FILES} - files - given
    assert not missing, f"{plugin} lacks {sorted(missing)}"


@PLUGINS
def test_hooks_are_an_import_and_a_call_in_the_order_of_hookspecs(plugin):
    body = read(plugin, "__init__")
    [owner] = named(body, ast.ClassDef).values()
    hooks = named(owner.body, ast.FunctionDef)
    text = ast.parse(Path(hookspecs.__file__).read_text(encoding="utf-8"))
    specified = named(text.body, ast.FunctionDef)
    assert_in_order(list(hooks), list(specified), plugin)
    for name, hook in hooks.items():
        assert parameters(hook) == parameters(specified[name]), name
        *imports, call = hook.body
        assert len(imports) <= 1 and all(isinstance(one, ast.ImportFrom) for one in imports), name
        assert isinstance(call, ast.Return) and isinstance(call.value, ast.Call), name
    assert isinstance(body[-2], ast.Assign) and ast.unparse(body[-2]) == f"plugin = {owner.name}()"
    assert list(named(body, ast.FunctionDef)) == ["__getattr__"]


@PLUGINS
@pytest.mark.parametrize("file", FUNCTIONS)
def test_functions_have_one_name_one_signature_and_one_order(plugin, file):
    functions = named(read_shared(plugin, file), ast.FunctionDef)
    for name, first, returns in FUNCTIONS[file]:
        assert name in functions, f"{plugin}: {file} has no {name}"
        assert parameters(functions[name])[: len(first)] == first, name
        if returns:
            assert ast.unparse(functions[name].returns) == returns, name
    order, own = [name for name, *_ in FUNCTIONS[file]], named(read(plugin, file), ast.FunctionDef)
    assert_in_order([name for name in own if name in order], order, f"{plugin} {file}")


@PLUGINS
def test_check_is_a_context_manager(plugin):
    check = named(read_shared(plugin, "driver"), ast.ClassDef)["check"]
    methods = named(check.body, ast.FunctionDef)
    assert list(methods) == ["__init__", "__enter__", "__exit__"]
    assert parameters(methods["__init__"])[:2] == ["operation", "device"]


@pytest.mark.parametrize("plugin", [*FOLDERS, "streams"])
@pytest.mark.parametrize("file", CLASSES)
def test_methods_of_the_base_class_come_first_and_in_its_order(plugin, file):
    end, base, first = CLASSES[file]
    if plugin == "streams":
        if file == "compiler":  # the backend's own
            return
        first = [*first, "api"] if file == "device" else first
    elif file == "clock" and is_of_streams(plugin):
        return
    classes = named(read(plugin, file), ast.ClassDef)
    found = [one for name, one in classes.items() if name.endswith(end)]
    if file != "compiler":  # which has one or more of any name, perhaps in a folder of their own
        family = "Stream" if plugin == "streams" else family_of(plugin)
        assert [one.name for one in found] == [family + end]
    for one in found:
        where = f"{plugin} {one.name}"
        methods = named(one.body, ast.FunctionDef)
        if "__init__" in methods:
            assert parameters(methods["__init__"]) == first, where
        order = list(dict.fromkeys(["__init__", *vars(base)]))
        inherited = [name for name in methods if name in order]
        assert_in_order(inherited, order, where)
        assert list(methods)[: len(inherited)] == inherited, f"{where}: its own methods come last"


@pytest.mark.parametrize("plugin", FOLDERS)
def test_R7_importing_a_plugin_loads_nothing_else(plugin):
    name = FOLDERS[plugin].name
    code = f"import sys, hal_core.hookspecs; before = set(sys.modules); import {name}"
    code += "; print(*set(sys.modules) - before)"
    assert printed(code, PYTHONPATH=str(FOLDERS[plugin].parent)) == f"{name}\n"
