"""`hal new`: write the distribution of a new backend, made of the fake backend and a template.

`hal_testing/fake` becomes the package and `hal_testing/template` everything else; in both, names
that are made of "fake" are replaced. For `hal new my_chip`:

    hal_testing/fake/device.py             hal-my-chip/hal_my_chip/device.py
    from hal_testing.fake import driver    from hal_my_chip import driver
    class FakeDevice(Compiled): ...        class MyChipDevice(Compiled): ...

With `--text`, the files of `hal_testing/text` take the place of those of their names, and nothing
imports hal-kernel.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple

from hal_core import discovery
from hal_core.device import names
from hal_core.errors import InvalidArgument

HELP = "Write the distribution of a new backend."

_REFUSED = {
    **dict.fromkeys(names.RESERVED, "the name is a request to hal-core, not a family"),
    **{
        part: f"its package would be hal_{part.lower()}"
        for part in ("CORE", "KERNEL", "STREAMS", "TESTING")
    },
    "LRU": "its LRUAllocator would hide the one of hal-core",
}
_FAMILY = re.compile(r"[A-Za-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*")
_OURS = re.compile(r"hal_testing\.fake|hal[-_]fake|FAKE|Fake|fake")
# A run of imports from hal packages, and one of these imports with its module.
_IMPORTS = re.compile(r"(?:^ *from hal_\S+ import (?:\([^)]*\)|[^(\n]*)\n)+", re.MULTILINE)
_IMPORT = re.compile(r" *from (\S+) import (?:\([^)]*\)|[^(\n]*)\n")
_MAX_LETTERS = 8  # with a longer name some lines of the sources exceed their 100 columns
_PLUGIN_DOC = '"""The plugin of the family FAKE. Importing it loads no driver."""'

# File of the template -> its path in the distribution. Under their real names some of them would
# count as files of hal-core itself, for pip, git or pytest.
_TEMPLATE = {
    "project.toml": "pyproject.toml",
    "gitignore": ".gitignore",
    "workflow.yml": ".github/workflows/test.yml",
    "README.md": "README.md",
    "LICENSE": "LICENSE",
    "known-gaps.txt": "known-gaps.txt",
    "test_conformance.py": "tests/test_conformance.py",
    "test_fake.py": "tests/test_fake.py",
}


class Names(NamedTuple):
    """The names of one backend."""

    family: str  # NPU2, MY_CHIP
    spelling: str  # of its classes: NPU2Device, MyChipDevice
    package: str  # hal_npu2, hal_my_chip

    @property
    def distribution(self) -> str:
        return self.package.replace("_", "-")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    family = "Name the backend's family, spelled as in the names of its classes: NPU2, MyChip."
    parser.add_argument("name", metavar="NAME", help=family)
    parser.add_argument(
        "--into",
        default=".",
        metavar="FOLDER",
        help="Write it into this folder, not into the current one.",
    )
    text = "Write a backend without hal-kernel, whose device takes kernels only as text."
    parser.add_argument("--text", action="store_true", help=text)


def run(options: argparse.Namespace) -> int:
    called = names_of(options.name)
    check_free(called)
    if len(called.spelling) > _MAX_LETTERS:
        fix = "run `ruff format` and break the lines that `ruff check` names."
        print(f"hal: warning: The name is long: {fix}", file=sys.stderr)
    folder = write(called, options.into, text=options.text)
    print(f"{folder} is a whole backend: family {called.family}, classes {called.spelling}...")
    print("Its device is simulated by chip.py. In a virtual environment run:\n")
    # Texts are a fixture of the project, which `hal check` does not see.
    check = "python -m pytest" if options.text else f"hal check {called.family}"
    steps = (
        (f"cd {shlex.quote(folder)}", ""),
        ('python -m pip install -e ".[test]"', "# this project and the conformance kit"),
        (check, "# run the kit: all its tests pass already"),
    )
    for command, meaning in steps:
        print(f"    {command:36}{meaning}".rstrip())
    print("\nThen replace the chip by your driver, and run the kit after each step:")
    print("https://github.com/hal-core/hal-core/blob/main/docs/writing-a-backend.md says how.")
    return 0


def names_of(name: str) -> Names:
    """Derive all names from a family as its author writes it: `NPU2`, `my_chip`, `MyChip`.

    Raises: InvalidArgument for a name that no family, or no new distribution, can have.
    """
    family = name.upper()
    problem = _REFUSED.get(family)
    if problem is None and not _FAMILY.fullmatch(name):
        problem = "a family is ASCII letters, digits and single _ between them, a letter first"
    if problem:
        fix = "Take the name of the hardware or its interface: NPU2, MyChip, my_chip."
        raise InvalidArgument("new backend", problem, got=name, fix=fix)
    # A part in small letters becomes a word; any other spelling is the author's own.
    parts = (part.capitalize() if part == part.lower() else part for part in name.split("_"))
    return Names(family, "".join(parts), f"hal_{name.lower()}")


def check_free(called: Names) -> None:
    """Refuse a family of another distribution. One of the new name is the author's own, of before.

    Raises: InvalidArgument.
    """
    owners = {
        entry.distribution.name
        for entry in discovery.installed().entries
        if entry.group == discovery.DEVICES and entry.name.upper() == called.family
    } - {called.distribution}
    owners |= {called.distribution} if called.family in names.KNOWN else set()
    if owners:
        owner = " and ".join(sorted(owners))
        problem, fix = f"{owner} provides this family", f"Take another name, or uninstall {owner}."
        raise InvalidArgument("new backend", problem, got=called.family, fix=fix)


def write(called: Names, into: str, *, text: bool = False) -> str:
    """Write the distribution and return its folder, `into/hal-NAME`.

    Raises: InvalidArgument when the folder exists, whatever is in it, or cannot be written.
    """
    folder = os.path.normpath(os.path.join(into, called.distribution))
    made = False
    try:
        os.makedirs(into, exist_ok=True)
        os.mkdir(folder)
        made = True
        for path, content in contents(called, text=text):
            place = os.path.join(folder, path)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with open(place, "w", encoding="utf-8", newline="\n") as file:
                file.write(content)
    except OSError as error:
        if made:
            shutil.rmtree(folder, ignore_errors=True)  # a half is worse than none
        elif isinstance(error, FileExistsError):
            fix = "Delete or rename it, or give another folder with --into."
            problem = "it is there already"
            raise InvalidArgument("new backend", problem, got=folder, fix=fix) from None
        problem = f"cannot be written: {error.strerror}"
        raise InvalidArgument("new backend", problem, got=folder) from error
    return folder


def contents(called: Names, *, text: bool = False) -> Iterator[tuple[str, str]]:
    """Yield (path, content) of every file; with `text`, of a backend that takes text alone."""
    testing = files("hal_testing")
    sources = {source.name: source for source in (testing / "fake").iterdir()}
    if text:
        sources |= {source.name: source for source in (testing / "text").iterdir()}
    texts = sources.pop("texts.py", None)
    found = {
        f"{called.package}/{name}": source.read_text(encoding="utf-8")
        for name, source in sorted(sources.items())
        if name.endswith(".py")
    }
    plugin = f"{called.package}/__init__.py"
    found[plugin] = re.sub(r'\A""".*?"""', _PLUGIN_DOC, found[plugin], count=1, flags=re.DOTALL)
    found[f"{called.package}/py.typed"] = ""
    for name, path in _TEMPLATE.items():
        found[path] = (testing / "template" / name).read_text(encoding="utf-8")
    if texts is not None:
        found["tests/conftest.py"] = texts.read_text(encoding="utf-8")
        found["pyproject.toml"] = re.sub(r' *"hal-kernel.*\n', "", found["pyproject.toml"])
    for path, content in found.items():
        yield _renamed(path, called), _renamed(content, called)


def _renamed(text: str, called: Names) -> str:
    new = {
        "hal_testing.fake": called.package,
        "hal_fake": called.package,
        "hal-fake": called.distribution,
        "FAKE": called.family,
        "Fake": called.spelling,
        "fake": called.family.lower(),
    }

    def by_module(imports: re.Match[str]) -> str:
        parts = sorted(_IMPORT.finditer(imports[0]), key=lambda part: part[1])
        return "".join(part[0] for part in parts)

    # Renamed modules stand elsewhere in the alphabet, and ruff wants imports in its order.
    return _IMPORTS.sub(by_module, _OURS.sub(lambda found: new[found[0]], text))
