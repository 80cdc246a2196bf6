"""Rules of the repository: whole distributions, what files may say, pages that are true."""

import ast
import functools
import re
import tomllib
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest
from sessions import distributions as sessions

from hal_core.config import SETTINGS
from hal_core.device.names import ELSEWHERE, KNOWN

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = {"hal_core": ROOT} | {
    path.parent.name.replace("-", "_"): path.parent
    for path in sorted((ROOT / "plugins").glob("*/pyproject.toml"))
}
PACKAGES = {name: folder / name for name, folder in PROJECTS.items()}
# A placeholder; CONTRIBUTING.md has the command that replaces it everywhere.
ADDRESS = "https://github.com/hal-core/hal-core"
SHARED = ("hal_core", "hal_kernel", "hal_streams", "hal_testing")
BACKENDS = [name for name in PROJECTS if name not in SHARED]


def _files(package):
    return sorted(PACKAGES[package].rglob("*.py"))


def _table(page):
    """Rows of a page's first table, as the cells between the bars."""
    inside = False
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("| ---"):
            inside = True
        elif inside and line.startswith("|"):
            yield [cell.strip() for cell in line.strip("|").split("|")]
        elif inside:
            return


# -- distributions


@pytest.mark.parametrize("name", PROJECTS)
def test_distribution_is_whole(name):
    folder = PROJECTS[name]
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == name.replace("_", "-")
    assert project["requires-python"] == ">=3.11"
    assert project["license-files"] == ["LICENSE"]
    assert all(url.startswith(ADDRESS) for url in project["urls"].values())
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert (folder / "README.md").is_file()
    assert (PACKAGES[name] / "py.typed").is_file()


@pytest.mark.parametrize("name", sessions.DISTRIBUTIONS[1:])
def test_an_install_from_a_checkout_brings_what_a_distribution_needs(name):
    text = " ".join((sessions.folder_of(name) / "README.md").read_text(encoding="utf-8").split())
    (command,) = re.findall(r"From a checkout: `([^`]*)`", text)
    folders = {f"plugins/{one}" for one in sessions.needed([name])} - {"plugins/hal-core"}
    assert folders <= set(command.replace("./", "").split()), command


def test_versions_are_equal_everywhere():
    versions = {}
    for name, folder in PROJECTS.items():
        text = (folder / "pyproject.toml").read_text(encoding="utf-8")
        versions[f"{name}/pyproject.toml"] = tomllib.loads(text)["project"]["version"]
        for path in _files(name):
            found = re.search(r'^__version__ = "(.*)"', path.read_text(encoding="utf-8"), re.M)
            if found:
                versions[str(path.relative_to(ROOT))] = found[1]
    for file in ("CITATION.cff", "packaging/conda/recipe.yaml"):
        (versions[file],) = re.findall(
            r"^ *version: (\d.*)$", (ROOT / file).read_text("utf-8"), re.M
        )
    assert any(path.startswith("hal_core/") and path.endswith(".py") for path in versions)
    assert len(set(versions.values())) == 1, versions


@pytest.mark.parametrize("name", BACKENDS)
def test_backend_takes_the_core_of_its_own_minor_version(name):
    text = (PROJECTS[name] / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    major, minor = map(int, project["version"].split(".")[:2])
    assert f"hal-core>={major}.{minor},<{major}.{minor + 1}" in project["dependencies"]


def test_extras_name_every_backend_that_exists():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = tomllib.loads(text)["project"]["optional-dependencies"]
    families = [name.removeprefix("hal_") for name in BACKENDS]
    here = [name for name in families if name.upper() not in ELSEWHERE]
    assert extras["all"] == [f"hal-core[{','.join(here)}]"]
    assert {name: extras[name][0].split(">")[0] for name in families} == {
        name: f"hal-{name}" for name in families
    }


# -- code


def test_families_of_this_project_are_here():
    assert sorted(name.removeprefix("hal_").upper() for name in BACKENDS) == sorted(KNOWN)


def test_no_module_is_called_utils():
    names = [path for name in PROJECTS for path in _files(name)]
    assert not [path for path in names if path.stem in ("utils", "util", "misc", "common")]


# -- pages


def _readme(language):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_readme_example_is_the_file_in_examples():
    [code] = _readme("python")
    text = (ROOT / "examples" / "saxpy.py").read_text(encoding="utf-8")
    assert text.split('"""', 2)[2].lstrip("\n") == code


@pytest.mark.parametrize(("folder", "pattern"), [("docs", "*.md"), ("examples", "*.py")])
def test_a_list_names_every_file_of_its_folder(folder, pattern):
    listed = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    files = {path.name for path in (ROOT / folder).glob(pattern)} - {"README.md"}
    assert not [name for name in sorted(files) if f"]({name})" not in listed]


@pytest.mark.parametrize(("file", "most"), [("README.md", 130), ("noxfile.py", 300)])
def test_what_is_read_first_is_short(file, most):
    assert len((ROOT / file).read_text(encoding="utf-8").splitlines()) <= most


def test_ci_runs_the_commands_of_the_readme():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    commands = [line for block in _readme("sh") for line in block.splitlines()]
    assert len(commands) == 2
    ran = [line for line in script if ".venv/bin/nox" in line]
    assert ran[:2] == commands
    rest = ("full", "types", "bare -- --short")
    assert ran[2:] == [f".venv/bin/nox -s {session}" for session in rest]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111, ".ci/run is not executable"


def test_a_run_notes_what_skipped_tests_need(tmp_path, monkeypatch):
    """nox prints it in one line at its end."""
    summarize = run_path(str(ROOT / "conftest.py"))["pytest_terminal_summary"]
    reasons = ["gcc: no (apt-get install gcc). Then apt-get install gcc.", "Windows has no fork"]
    reasons += ["clang is not installed (apt-get install clang)"] * 2
    skipped = [SimpleNamespace(longrepr=("a.py", 1, reason)) for reason in reasons]
    monkeypatch.setenv("TEST_LEFT_OUT", str(tmp_path / "left-out.txt"))
    summarize(SimpleNamespace(stats={"skipped": skipped}))
    assert (tmp_path / "left-out.txt").read_text("utf-8") == "gcc 1\nclang 2\n"


def test_links_between_pages_lead_somewhere():
    pages = [path for folder in ("docs", "examples") for path in (ROOT / folder).rglob("*.md")]
    for page in (*ROOT.glob("*.md"), *pages, *(ROOT / "plugins").glob("*/*.md")):
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} points to {target}"


@functools.cache
def _declared():
    """Every `declare("NAME", default, "meaning", parse)` of the core and the backends."""
    found, names = {}, ("declare", "config.declare")
    for name in PROJECTS:
        for path in _files(name):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in names:
                    found[ast.literal_eval(node.args[0])] = ast.literal_eval(node.args[2])
    return found


def test_environment_page_lists_exactly_the_declared_settings():
    listed = {row[0].strip("`"): row[2] for row in _table("docs/environment.md")}
    assert listed == _declared()


def test_environment_page_shows_defaults_that_can_be_set():
    """As `HAL_DEVICE=none` would ask for a device of that name, none is no default."""
    for name, default, _ in _table("docs/environment.md"):
        setting = SETTINGS.get(name.strip("`"))  # None: a backend's, which is not imported here
        if setting is not None:
            shown = setting.default if default == "not set" else setting.parse(default)
            assert shown == setting.default, name


def test_no_setting_is_read_behind_the_back_of_config():
    declared = _declared()
    for name in PROJECTS:
        for path in _files(name):
            for used in re.findall(r"""environ[^\n]*?["'](HAL_\w+)""", path.read_text("utf-8")):
                assert used in declared, f"{path.relative_to(ROOT)} reads {used}, undeclared"


def test_errors_page_lists_every_class():
    files = [PACKAGES[name] / "errors.py" for name in ("hal_core", "hal_kernel")]
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    nodes = [node for tree in trees for node in tree.body]
    classes = {node.name for node in nodes if isinstance(node, ast.ClassDef)} - {"HalError"}
    assert {row[0].strip("`") for row in _table("docs/errors.md")} == classes


def test_changelog_starts_with_this_version():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    version = tomllib.loads(text)["project"]["version"]
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert heading is not None
    assert heading[1] == version


def test_nox_lists_each_session_with_a_whole_sentence():
    """`nox -l` shows the first line of a docstring: a verb first, and a full stop at the end."""
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    sessions = 0
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and "nox.session" in "".join(
            map(ast.unparse, node.decorator_list)
        ):
            sessions += 1
            first, *_ = (ast.get_docstring(node) or "").split("\n")
            assert re.fullmatch(r"(?!A |The |What |Every )[A-Z][a-z]+ .*\.", first), node.name
    assert sessions > 10


def test_the_recipe_has_every_distribution_and_what_it_needs():
    """But for packages of one system, which a package for all systems cannot ask for."""
    text = (ROOT / "packaging" / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    parts = {
        name: part
        for part in text.split("- package:\n")[1:]
        for name in re.findall(r"name: (\S+)", part)
    }
    assert list(parts) == list(sessions.DISTRIBUTIONS)
    for name in parts:
        for needed in sessions.dependencies(name):
            asked = re.sub(r"([><])", r" \1", needed.replace("ray>", "ray-core>"), count=1)
            assert "sys_platform" in needed or f"- {asked}\n" in parts[name], needed


def test_sessions_know_the_backends():
    assert [f"hal_{name}" for name in sessions.BACKENDS] == BACKENDS


def test_sessions_select_whole_files_by_marks_that_are_declared():
    """A session gives pytest every file that names a mark: no single test has it, but `full`."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = tomllib.loads(text)["tool"]["pytest"]["ini_options"]["markers"]
    declared = {line.partition(":")[0] for line in listed} - {"full"}
    menu = [ROOT / "noxfile.py", *(ROOT / "tests" / "sessions").glob("*.py")]
    code = "".join(path.read_text(encoding="utf-8") for path in menu)
    calls = re.findall(r"\bmarked\((\".*?\")(?:, under=|\))", code)
    assert {mark for call in calls for mark in re.findall(r"\w+", call)} == declared
    single = re.compile(rf"@pytest\.mark\.({'|'.join(declared)})\b")
    for folder in (ROOT / "tests", ROOT / "plugins"):
        for path in folder.rglob("test_*.py"):
            assert not single.search(path.read_text(encoding="utf-8")), path


def test_X3_what_tests_import_does_not_rely_on_assert():
    """pytest keeps the asserts of test files under `python -O`, but not those of their helpers."""
    folders = [ROOT / "tests", *(ROOT / "plugins").glob("*/tests")]
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        if path.name.startswith("test_") or path.name == "conftest.py":
            continue
        waiting = [ast.parse(path.read_text(encoding="utf-8"))]
        while waiting:
            node = waiting.pop()
            kernel = isinstance(node, ast.FunctionDef) and node.decorator_list
            waiting += [] if kernel else ast.iter_child_nodes(node)
            assert not isinstance(node, ast.Assert), f"{path}:{getattr(node, 'lineno', 0)}"


def test_each_file_that_a_session_names_exists():
    named = re.compile(r'\bROOT((?: / f?"[^"]+")+)')
    chains = [
        chain
        for path in [ROOT / "noxfile.py", *sorted((ROOT / "tests" / "sessions").glob("*.py"))]
        for chain in named.findall(path.read_text(encoding="utf-8"))
    ]
    parts = [re.findall(r'"([^"]+)"', chain) for chain in chains if "{" not in chain]
    assert len(parts) > 20
    missing = [place for place in parts if not ROOT.joinpath(*place).exists()]
    assert missing in ([], [["out"]])  # where sessions leave what they make
