"""Rules of the layout: rooms, import order, figures of the code, the map in CONTRIBUTING.md."""

import ast
import functools
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "hal_core"
PACKAGES = {
    "hal_core": CORE,
    **{
        path.parent.name.replace("-", "_"): path.parent / path.parent.name.replace("-", "_")
        for path in sorted((ROOT / "plugins").glob("*/pyproject.toml"))
    },
}
SHARED = ("hal_core", "hal_kernel", "hal_streams", "hal_testing")
PLUGINS = {name: folder for name, folder in PACKAGES.items() if name not in SHARED}
Function = ast.FunctionDef | ast.AsyncFunctionDef
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.quick

# A module imports only what stands before it, lazy imports included; type-only imports are free.
IMPORT_ORDERS = {
    "hal_core": """
        errors concurrency files config discovery dtypes geometry signature source
        hookspecs device profiling queue allocator buffer compiler program graph device.base
        __init__ cli __main__
    """.split(),  # noqa: SIM905  # one line of words reads as the order it is
    "hal_kernel": ["__init__", "errors", "c_texts", "ir", "lang", "render", "interpreter", "python",
        "multidevice", "cli",
    ],
}  # fmt: skip
# The distributions that one may import besides hal-core, which imports none.
MAY_IMPORT = {
    "hal_core": set[str](), "hal_kernel": set[str](), "hal_streams": {"hal_kernel"},
    "hal_testing": {"hal_kernel"}, "hal_cpu": {"hal_kernel"}, "hal_metal": {"hal_kernel"},
    "hal_opencl": {"hal_kernel", "hal_streams"}, "hal_cuda": {"hal_kernel", "hal_streams"},
    "hal_hip": {"hal_kernel", "hal_streams"}, "hal_ray": {"hal_streams"},
}  # fmt: skip
NOUNS = ("queue", "allocator", "buffer", "compiler", "program", "device.base")
# Their modules, which another module may import for types in a circle.
NOUN_MODULES = {
    *(f"hal_core.{noun}" for noun in NOUNS), "hal_core.queue.base",
    "hal_streams.allocator", "hal_streams.device",
}  # fmt: skip
MOST_ROOMS = 26
LONGEST_FUNCTION = 50  # lines, docstring left out
SINGLE_USE = 0.35  # share of private helpers that serve one caller


def _files(folder):
    return sorted(folder.rglob("*.py"))


def _entries():
    """Files and folders of the core; a folder without a module is left over from another branch."""
    return [path for path in sorted(CORE.iterdir()) if path.suffix == ".py" or _files(path)]


def _last_name(node):
    return str(getattr(node, "attr", getattr(node, "id", "")))


def _imports(tree, lazy=True):
    """(line, dotted name) of every import that runs; without `lazy`, none inside of functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function) and not lazy:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: relative import, write it in full"
            # `from hal_core import dtypes` imports the module hal_core.dtypes.
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif lazy and isinstance(node, ast.Call) and _last_name(node.func).endswith("Late"):
            yield from ((node.lineno, arg.value) for arg in node.args)
        elif isinstance(node, ast.If) and _last_name(node.test) == "TYPE_CHECKING":
            yield from _imports(ast.Module(node.orelse, []), lazy)
        else:
            yield from _imports(node, lazy)


def _package_of(path):
    return next(name for name, folder in PACKAGES.items() if path.is_relative_to(folder))


@functools.cache
def _tree(path):
    """Return a file's syntax tree, which all tests share and none changes."""
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def _imports_of(path):
    return list(_imports(_tree(path)))


def _type_only_imports(path):
    for node in _tree(path).body:
        if isinstance(node, ast.If) and _last_name(node.test) == "TYPE_CHECKING":
            yield from _imports(ast.Module(node.body, []), lazy=False)


def _place_of(path):
    """The entry of its package's import order that a file belongs to."""
    package = _package_of(path)
    parts = path.relative_to(PACKAGES[package]).with_suffix("").parts
    two = ".".join(parts[:2])
    return two if two in IMPORT_ORDERS[package] else parts[0]


def _noun(dotted, package="hal_core"):
    """The entry of a package's import order that an import reaches; None for another package."""
    parts = dotted.split(".")
    if parts[0] != package:
        return None
    for name in (".".join(parts[1:3]), ".".join(parts[1:2])):
        if name in IMPORT_ORDERS[package]:
            return name
    if len(parts) == 1 or (len(parts) == 2 and parts[1] in ("__version__", "API_VERSION")):
        return "__init__"
    return parts[1]


@pytest.mark.parametrize("package", IMPORT_ORDERS)
def test_a_module_imports_only_what_stands_before_it(package):
    order = IMPORT_ORDERS[package]
    for path in _files(PACKAGES[package]):
        own, name = _place_of(path), path.relative_to(ROOT)
        assert own in order, f"{name} is in no place of the import order"
        for line, dotted in _imports_of(path):
            noun = _noun(dotted, package)
            if noun is None or noun == own or dotted == package:  # which is always imported first
                continue
            assert noun in order, f"{name}:{line}: {dotted} is in no place of the import order"
            assert order.index(noun) < order.index(own), f"{name}:{line} imports {dotted}, after it"


@pytest.mark.parametrize("package", IMPORT_ORDERS)
def test_type_only_imports_that_point_up_name_a_noun(package):
    order = IMPORT_ORDERS[package]
    for path in _files(PACKAGES[package]):
        for line, dotted in _type_only_imports(path):
            noun = _noun(dotted, package)
            if noun is not None and order.index(noun) > order.index(_place_of(path)):
                assert noun in NOUNS, f"{path.relative_to(ROOT)}:{line} names {dotted}"


@pytest.mark.parametrize("package", IMPORT_ORDERS)
def test_import_order_names_only_what_is_there(package):
    present = {_place_of(path) for path in _files(PACKAGES[package])}
    absent = set(IMPORT_ORDERS[package]) - present
    assert not absent, f"the import order names what is gone: {sorted(absent)}"


@pytest.mark.parametrize("name", PACKAGES)
def test_a_distribution_imports_those_that_it_needs(name):
    """Import what pyproject.toml names: the core none, the language the core, no other backend."""
    for path in _files(PACKAGES[name]):
        types = [
            node for node in ast.walk(_tree(path)) if isinstance(node, ast.ImportFrom | ast.Import)
        ]
        for _, dotted in (*_imports_of(path), *_imports(ast.Module(list[ast.stmt](types), []))):
            top = dotted.split(".")[0]
            allowed = {name, "hal_core"} | MAY_IMPORT[name]
            assert top not in PACKAGES or top in allowed, f"{path.name} imports {dotted}"
    if name == "hal_core":
        return
    project = tomllib.loads((PACKAGES[name].parent / "pyproject.toml").read_text(encoding="utf-8"))
    needed = {one.partition(">=")[0] for one in project["project"]["dependencies"]}
    ours = {one.replace("-", "_") for one in needed if one.startswith("hal-")}
    assert ours == {"hal_core"} | MAY_IMPORT[name]


@pytest.mark.parametrize("name", PLUGINS)
def test_backend_does_not_reach_the_registry(name):
    """But for its commands of `hal`."""
    project = tomllib.loads((PLUGINS[name].parent / "pyproject.toml").read_text(encoding="utf-8"))
    commands = project["project"]["entry-points"].get("hal.commands", {}).values()
    for path in _files(PLUGINS[name]):
        if _module(path) in commands:
            continue
        for line, dotted in _imports_of(path):
            assert _noun(dotted) not in ("device", "cli"), f"{path.name}:{line} uses {dotted}"


def test_rooms_are_few():
    rooms = {path.stem for path in _entries()}
    assert len(rooms) <= MOST_ROOMS, sorted(rooms)


@pytest.mark.parametrize("folder", PACKAGES.values(), ids=lambda path: path.name)
def test_helpers_of_a_folder_do_not_import_its_init(folder):
    for path in folder.rglob("*/__init__.py"):
        kinds, package = (ast.ClassDef, ast.FunctionDef), _module(path)
        names = {node.name for node in _tree(path).body if isinstance(node, kinds)}
        for helper in {*path.parent.glob("*.py")} - {path}:
            for line, dotted in _imports_of(helper):
                owner, _, name = dotted.rpartition(".")
                assert owner != package or name not in names, f"{helper}:{line} uses {dotted}"


def test_no_two_files_import_each_other():
    """No circle of files, of any length, among the imports at the top of modules.

    Type-only imports count, too, except those of nouns: a buffer has a device, which has an
    allocator, which makes buffers.
    """
    modules = {_module(path): path for name in SHARED for path in _files(PACKAGES[name])}
    reaches = {name: _imported(path, modules) for name, path in modules.items()}
    assert "hal_core.buffer" not in reaches["hal_core.buffer.host"]  # a type-only one of a noun
    done = set()

    def visit(name, way):
        assert name not in way, f"circle: {' -> '.join((*way[way.index(name) :], name))}"
        if name not in done:
            for other in sorted(reaches[name]):
                visit(other, (*way, name))
            done.add(name)

    for name in reaches:
        visit(name, ())


def _module(path):
    parts = path.relative_to(PACKAGES[_package_of(path)].parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(path, modules):
    """The modules of the core that a file imports when it is imported itself, and for its types."""
    tree = _tree(path)

    def named(imports):
        found = {name if name in modules else name.rpartition(".")[0] for _, name in imports}
        return found & modules.keys() - {_module(path), "hal_core"}

    return named(_imports(tree, lazy=False)) | (named(_type_only_imports(path)) - NOUN_MODULES)


@pytest.mark.parametrize("folder", PACKAGES.values(), ids=lambda path: path.name)
def test_no_function_is_too_long(folder):
    for path in _files(folder):
        for node in ast.walk(_tree(path)):
            if isinstance(node, Function):
                length = _length_of(node)
                where = f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
                assert length <= LONGEST_FUNCTION, f"{where} has {length} lines"


def _length_of(node):
    """Lines of a function from `def` to its end, without its docstring."""
    doc = node.body[0] if ast.get_docstring(node, clean=False) is not None else None
    return node.end_lineno - node.lineno + 1 - (doc.end_lineno - doc.lineno + 1 if doc else 0)


@pytest.mark.parametrize("folder", PACKAGES.values(), ids=lambda path: path.name)
def test_threads_are_those_that_ctrl_c_cannot_break(folder):
    """The package `hal_testing` is of tests, and `concurrency` makes the others."""
    texts = {path: path.read_text(encoding="utf-8") for path in _files(folder)}
    made = [path for path, text in texts.items() if "threading.Thread(" in text]
    assert not made or folder.name == "hal_testing", made


def test_helpers_serve_more_than_one_caller():
    counts = [_helpers_of(_tree(path)) for name in SHARED for path in _files(PACKAGES[name])]
    helpers, single_use = map(sum, zip(*counts, strict=True))
    assert single_use < SINGLE_USE * helpers, f"{single_use} of {helpers}"


def _helpers_of(tree):
    """The numbers of private helpers, and of those whose name is used once in their file."""
    used = Counter(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
    )
    defined = [node.name for node in ast.walk(tree) if isinstance(node, Function)]
    helpers = [name for name in defined if re.match("_(?!_)", name)]
    return len(helpers), sum(used[name] == 1 for name in helpers)


def test_the_map_names_every_room():
    listed = set(re.findall(r"^\| (.*?) \|", PAGE, re.MULTILINE))
    named = {name.strip("`/ ") for cell in listed for name in cell.split(",")}
    rooms = {path.name for path in _entries()}
    assert rooms <= named, f"CONTRIBUTING.md does not name {sorted(rooms - named)}"


def test_the_page_prints_the_import_order():
    printed = re.search(r"^```text\n(errors <.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert printed is not None
    assert printed[1].replace("<", " ").split() == IMPORT_ORDERS["hal_core"]
