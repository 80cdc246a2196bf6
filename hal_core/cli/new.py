"""A new backend's distribution: the fake backend and what stands around one, under other names.

There is one source: `hal_core/testing/fake` is the package, `hal_core/testing/template` holds the
rest, and both speak of the family FAKE.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple

from hal_core import discovery
from hal_core.errors import InvalidArgument
from hal_core.registry import names

_REFUSED = {
    **dict.fromkeys(names.RESERVED, "the name is a request to hal-core, not a family"),
    "CORE": "its package would be hal_core",
    "LRU": "its LRUAllocator would hide the one of hal-core",
}
_FAMILY = re.compile(r"[A-Za-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*")
_OURS = re.compile(r"hal_core\.testing\.fake|hal[-_]fake|FAKE|Fake|fake")
_IMPORTS = re.compile(r"(?:^ *from hal_\S+ import (?:\([^)]*\)|[^(\n]*)\n)+", re.MULTILINE)
_IMPORT = re.compile(r" *from (\S+) import (?:\([^)]*\)|[^(\n]*)\n")
_FITS = 8  # letters of a name with which every line of the sources has its place
_PLUGIN_DOC = '"""The plugin of the family FAKE. Importing it loads no driver."""'

# A file of the template -> its place. By their own names some would be taken for this project's.
_PLACES = {
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
    """What one backend is called, in every place."""

    family: str  # NPU2, MY_CHIP
    spelling: str  # of its classes: NPU2Device, MyChipDevice
    package: str  # hal_npu2, hal_my_chip

    @property
    def distribution(self) -> str:
        return self.package.replace("_", "-")


def names_of(name: str) -> Names:
    """From a family as its author writes it: `NPU2`, `my_chip`, `MyChip`.

    Raises: InvalidArgument for what cannot be a family, or not one of its own distribution.
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


def warnings(called: Names) -> list[str]:
    """What its author should know before others meet the name."""
    others = {f"hal-{family.lower()}" for family in names.KNOWN if family == called.family}
    others |= {
        entry.distribution.name
        for entry in discovery.installed().entries
        if entry.group == discovery.DEVICES and entry.name.upper() == called.family
    }
    long = "The name is long: run `ruff format` and break the lines that `ruff check` names."
    prefer = f"HAL_PREFER={called.family}={called.distribution}"
    both = f"With both installed, using it is an error until {prefer} chooses."
    said = dict.fromkeys(others, both)
    if called.distribution in others:
        said[called.distribution] = "Yours has the same name: pip replaces one by the other."
    return [long] * (len(called.spelling) > _FITS) + [
        f"{other} provides {called.family} already. {what}" for other, what in sorted(said.items())
    ]


def write(called: Names, into: str) -> str:
    """Writes the distribution and gives its folder, `into/hal-NAME`.

    Raises: InvalidArgument when the folder exists, whatever is in it, or cannot be written.
    """
    folder = os.path.normpath(os.path.join(into, called.distribution))
    try:
        os.makedirs(into, exist_ok=True)
        os.mkdir(folder)
    except FileExistsError:
        fix = "Delete or rename it, or give another folder with --into."
        raise InvalidArgument("new backend", "it is there already", got=folder, fix=fix) from None
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        for path, text in contents(called):
            place = os.path.join(folder, path)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with open(place, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)  # it was made here
        raise _unwritable(folder, error) from error
    return folder


def _unwritable(folder: str, error: OSError) -> InvalidArgument:
    return InvalidArgument("new backend", f"cannot be written: {error.strerror}", got=folder)


# -- what is written


def contents(called: Names) -> Iterator[tuple[str, str]]:
    """(path, text) of every file."""
    testing = files("hal_core.testing")
    for source in sorted((testing / "fake").iterdir(), key=lambda source: source.name):
        if source.name.endswith(".py"):
            text = source.read_text(encoding="utf-8")
            if source.name == "__init__.py":
                text = re.sub(r'\A""".*?"""', _PLUGIN_DOC, text, count=1, flags=re.DOTALL)
            yield f"{called.package}/{source.name}", _sorted(_renamed(text, called))
    yield f"{called.package}/py.typed", ""
    for name, place in _PLACES.items():
        text = (testing / "template" / name).read_text(encoding="utf-8")
        yield _renamed(place, called), _sorted(_renamed(text, called))


def _renamed(text: str, called: Names) -> str:
    new = {
        "hal_core.testing.fake": called.package,
        "hal_fake": called.package,
        "hal-fake": called.distribution,
        "FAKE": called.family,
        "Fake": called.spelling,
        "fake": called.family.lower(),
    }
    return _OURS.sub(lambda found: new[found[0]], text)


def _sorted(text: str) -> str:
    """Imports in the order of their modules' new names."""

    def by_module(found: re.Match[str]) -> str:
        parts = sorted(_IMPORT.finditer(found[0]), key=lambda part: part[1])
        return "".join(part[0] for part in parts)

    return _IMPORTS.sub(by_module, text)
