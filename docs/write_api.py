"""Writes what follows from the public names of hal_core: docs/api.md and hal_core/__init__.pyi.

    python docs/write_api.py

The page comes from signatures and docstrings, the stub from the table in hal_core/__init__.py.

The text is that of the files, not of the running Python: annotations, defaults and comments stand
on the page as they stand there, whichever version writes it.
"""

from __future__ import annotations

import ast
import functools
import re
import textwrap
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import hal_core as hal

PAGE = Path(__file__).with_name("api.md")
STUB = Path(__file__).parents[1] / "hal_core" / "__init__.pyi"

HEAD = """\
# Every public name

After `import hal_core as hal` each of these names is an attribute of `hal`, except those that are
written with their module. `python docs/write_api.py` writes this page from the docstrings. The
other [pages](README.md) explain how to use the names.

| | |
| --- | --- |
"""

# Made by others: a reader has no use for how they are called.
MADE = {"DeviceRegistry", "InlineFunction", "KernelFunction", "Profile", "config.Setting"}

LABEL = re.compile(r"(Shape|Units|Order|Owns|Concurrency|Raises|Source): ")


class Chapter(NamedTuple):
    """A part of the page, as api.toml has it."""

    title: str
    intro: str
    names: str = ""
    told: str = ""
    listed: str = ""


CHAPTERS = [
    Chapter(**chapter)
    for chapter in tomllib.loads(PAGE.with_suffix(".toml").read_text(encoding="utf-8"))["chapter"]
]


# -- what the files say


@functools.cache
def definitions(module: str) -> tuple[list[str], dict[str, Any]]:
    """A module's lines, and the classes and functions in it: of two behind a condition the first,
    which type checkers read, of overloads the last."""
    text = Path(getattr(find_spec(module), "origin", "")).read_text(encoding="utf-8")
    found = {}
    for node in ast.parse(text).body:
        for part in node.body if isinstance(node, ast.If) else [node]:
            if isinstance(part, ast.ClassDef | ast.FunctionDef):
                found[part.name] = part
    return text.splitlines(), found


def docstring(node: Any, name: str) -> str:
    """Raises: SystemExit where there is none, or no sentence at its start."""
    text = ast.get_docstring(node) or ""
    if not text or LABEL.match(text):
        raise SystemExit(f"{name} needs a docstring that begins with a sentence")
    return text


def call(node: ast.FunctionDef, lines: list[str]) -> tuple[str, str]:
    """The parameters, without self, and what comes back, as they are written, in one line."""
    head = " ".join(" ".join(lines[node.lineno - 1 : node.body[0].lineno]).split())
    match = re.match(r"def \w+\( ?(?:(?:self|cls)(?:, )?)?(.*?),? ?\)(?: -> (.*?))?: ", head + " ")
    if match is None:
        raise SystemExit(f"the signature of {node.name} cannot be read: {head}")
    result = match[2] or ""
    if "contextmanager" in marks(node):
        result = result.replace("Iterator", "AbstractContextManager")
    return f"({match[1]})", result


def marks(node: ast.FunctionDef) -> set[str]:
    """The decorators, without modules and arguments. To a reader `_MadeOnce` is a property."""
    found = {ast.unparse(mark).split("(")[0].split(".")[-1] for mark in node.decorator_list}
    return {"property" if mark == "_MadeOnce" else mark for mark in found}


def fields(node: ast.ClassDef, lines: list[str]) -> list[str]:
    """Attributes that the class declares, with their comments."""
    declared = (part for part in node.body if isinstance(part, ast.AnnAssign))
    public = [part for part in declared if not ast.unparse(part.target).startswith("_")]
    return [re.sub(r"\s*# (type: |noqa).*", "", lines[p.lineno - 1].strip()) for p in public]


def members(kind: type) -> Iterator[tuple[ast.FunctionDef, list[str]]]:
    """Public methods and properties, and special methods that have a docstring; inherited ones
    too unless the base stands on the page itself."""
    seen = {"__init__"}
    for base in kind.__mro__:
        if not base.__module__.startswith("hal_") or (base is not kind and is_public(base)):
            continue
        lines, found = definitions(base.__module__)
        for part in getattr(found.get(base.__name__), "body", ()):
            if not isinstance(part, ast.FunctionDef) or part.name in seen:
                continue
            if "overload" in marks(part):  # the docstring is in the definition behind them
                continue
            special = part.name.startswith("__") and ast.get_docstring(part)
            if special or not part.name.startswith("_"):
                seen.add(part.name)
                yield part, lines


def is_public(kind: type) -> bool:
    return getattr(hal, kind.__name__, None) is kind


# -- the page


def page() -> str:
    return HEAD + "".join(map(contents, CHAPTERS)) + "".join(map(text_of, CHAPTERS))


def contents(chapter: Chapter) -> str:
    linked = [f"[`{name}`](#{slugs()[name]})" for name in chapter.names.split()]
    others = chapter.told.split() + [name for name in listed(chapter) if name in hal.__all__]
    shown = " ".join([f"`{name}`" for name in others] + linked)
    return f"| [{chapter.title}](#{slugs()[chapter.title]}) | {shown} |\n"


@functools.cache
def slugs() -> dict[str, str]:
    """Where a heading is: a code host writes it small, and numbers those that are then alike."""
    found: dict[str, str] = {}
    for heading in (part for each in CHAPTERS for part in (each.title, *each.names.split())):
        slug = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        found[heading] = f"{slug}-1" if slug in found.values() else slug
    return found


def text_of(chapter: Chapter) -> str:
    lines = ["", f"## {chapter.title}", "", chapter.intro]
    names = listed(chapter)
    if chapter.title == "Errors":
        lines += ["", *tree(hal.HalError, "", names)]
    elif names:
        lines += ["", "| name | |", "| --- | --- |", *(row(chapter, name) for name in names)]
    return "\n".join([*lines, *entries(chapter), ""])


def listed(chapter: Chapter) -> list[str]:
    """Names of the chapter's list, in the order of their file."""
    found = {
        name: one for home in chapter.listed.split() for name, one in definitions(home)[1].items()
    }
    if chapter.title == "Testing":
        return [name for name, node in found.items() if "fixture" in marks(node)]
    return [name for name in found if name in hal.__all__ and name not in chapter.names.split()]


def row(chapter: Chapter, name: str) -> str:
    lines, found = definitions(chapter.listed)
    shown = name
    if chapter.listed.startswith("hal_kernel.lang"):
        shown = "{}{} -> {}".format(name, *call(found[name], lines))
    text = " ".join(docstring(found[name], name).split())
    return "| `{}` | {} |".format(*(cell.replace("|", "\\|") for cell in (shown, text)))


def tree(kind: type[BaseException], indent: str, names: list[str]) -> Iterator[str]:
    _, found = definitions(kind.__module__)
    bases = [base for base in kind.__bases__ if not issubclass(base, hal.HalError)]
    also = ", ".join(f"`{base.__name__}`" for base in bases if base is not Exception)
    text = docstring(found[kind.__name__], kind.__name__).partition("\n\n")[0]
    yield f"{indent}* `{kind.__name__}`{also and f' ({also})'}: {' '.join(text.split())}"
    for below in (getattr(hal, name) for name in names):
        if below.__bases__[0] is kind:
            yield from tree(below, indent + "  ", names)


def entries(chapter: Chapter) -> Iterator[str]:
    for name in chapter.names.split():
        yield f"\n### `{name}`\n"
        thing = found_by(name)
        if isinstance(thing, ModuleType):
            yield str(thing.__doc__).partition("\n\n")[0]
            continue
        lines, found = definitions(thing.__module__)
        node = found[thing.__name__]
        if isinstance(node, ast.FunctionDef):
            yield block("{}{} -> {}".format(name, *call(node, lines)))
            yield from prose(docstring(node, name))
        else:
            yield from record(name, thing, node, lines)


def found_by(name: str) -> Any:
    if name.startswith("hal_"):
        module, _, name = name.rpartition(".")
        return getattr(import_module(module), name)
    return functools.reduce(getattr, name.split("."), hal)


def record(name: str, kind: type, node: ast.ClassDef, lines: list[str]) -> Iterator[str]:
    """A class: how it is made, what it has, what it says, and what it does."""
    text, shown = docstring(node, name), fields(node, lines)
    below = kind.__bases__[0]
    # A part of the class stands in another file, which makes its objects.
    if below.__module__.startswith(f"{kind.__module__}.") and "__init__" not in vars(kind):
        lines, found = definitions(below.__module__)
        node = found[below.__name__]
        shown = fields(node, lines)
    for part in node.body if name not in MADE else ():
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            shown[:0] = [name + call(part, lines)[0], *([""] if shown else [])]
            text += f"\n\n{ast.get_docstring(part) or ''}"
    first = kind.__bases__[0]
    if first.__bases__ == (tuple,) and not is_public(first):  # its fields, without its properties
        shown = fields(definitions(kind.__module__)[1][first.__name__], lines)
    if tuple in kind.__bases__ or (shown and tuple in first.__bases__):
        shown = [f"class {name}(NamedTuple):", *(f"    {line}" for line in shown)]
    base = kind.__mro__[1]
    if is_public(base):
        yield f"Base: [`{base.__name__}`](#{slugs()[base.__name__]}).\n"
    if shown:
        yield block("\n".join(shown))
    yield from prose(text)
    for number, (part, its_lines) in enumerate(members(kind)):
        yield ("" if number else "\n") + member(name, part, its_lines)


def member(owner: str, node: ast.FunctionDef, lines: list[str]) -> str:
    parameters, result = call(node, lines)
    shown = f"{node.name}{parameters} -> {result}"
    if "property" in marks(node):
        shown = f"{node.name}: {result}"
    elif "classmethod" in marks(node):
        shown = f"{owner}.{shown}"
    text = "\n".join(prose(docstring(node, f"{owner}.{node.name}")))
    return f"* `{shown}`: {textwrap.indent(text, '  ').lstrip()}"


def block(text: str) -> str:
    """As it stands, but for long signatures, which are broken between parameters."""
    glued = re.sub(r" (?!\*{0,2}\w+: |[*/], |-> )", "\0", text)
    wrap = functools.partial(textwrap.fill, width=100, subsequent_indent="    ")
    lines = map(functools.partial(wrap, break_long_words=False), glued.split("\n"))
    return "\n".join(["```text", *lines, "```\n"]).replace("\0", " ")


def prose(text: str) -> Iterator[str]:
    """A docstring's lines as Markdown: what it says of order, errors, ... becomes a list."""
    inside = False
    for line in re.sub(rf"\n\n+(?={LABEL.pattern})", "\n", text.strip()).splitlines():
        labelled = LABEL.match(line) is not None
        inside = labelled or (inside and line != "")
        yield f"- {line}" if labelled else f"  {line}" if inside else line


# -- the stub


def stub() -> str:
    """The text of `__init__.pyi`: type checkers do not follow names imported at first use."""
    head = "Public names for type checkers; `python docs/write_api.py` writes this file."
    lines = [
        f'"""{head}"""',
        "",
        "from hal_core import config as config, discovery as discovery, errors as errors",
        "from hal_core.compiler import cache as cache",
    ]
    own = {"discovery": "API_VERSION __version__", **vars(hal)["_NAMES"]}
    homes = {f"hal_core.{home}": names for home, names in own.items()}
    homes |= {f"hal_kernel.{home}": names for home, names in vars(hal)["_KERNEL_NAMES"].items()}
    for home, names in sorted(homes.items()):
        shown = [f"{name} as {name}" for name in sorted(names.split())]
        line = f"from {home} import {', '.join(shown)}"
        more = [f"from {home} import (", *(f"    {one}," for one in shown), ")"]
        lines += [line] if len(line) <= 100 else more
    return "\n".join([*lines, "", "__all__: list[str]", ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    STUB.write_text(stub(), encoding="utf-8")
