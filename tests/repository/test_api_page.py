"""docs/api.md names everything public, and says what the files say now."""

import ast
import inspect
import re
from pathlib import Path
from runpy import run_path
from types import FunctionType, SimpleNamespace

import pytest

import hal_core as hal

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


write_api = SimpleNamespace(**run_path(str(ROOT / "docs" / "write_api.py")))
HEADED = [name for chapter in write_api.CHAPTERS for name in chapter.names.split()]
CLASSES = [name for name in HEADED if inspect.isclass(write_api.found_by(name))]


def test_the_page_is_what_the_docstrings_say_now():
    written = write_api.page().splitlines()
    differ = [pair for pair in zip(PAGE.splitlines(), written, strict=False) if pair[0] != pair[1]]
    assert PAGE.splitlines() == written, f"run python docs/write_api.py; first: {differ[:1]}"


def test_type_checkers_are_given_the_table_of_public_names():
    found = write_api.STUB.read_text(encoding="utf-8")
    assert found == write_api.stub(), "run python docs/write_api.py"


def test_every_public_name_is_in_one_chapter():
    table = re.findall(r"^\| \[.*\]\(#.*\) \| (.*) \|$", PAGE, re.MULTILINE)
    names = re.findall(r"`([\w.]+)`", " ".join(table))
    public = [name for name in names if "." not in name]
    assert sorted(public) == sorted(hal.__all__)
    assert len(set(names)) == len(names)


def test_every_link_into_the_page_leads_to_a_heading():
    text = re.sub(r"^```.*?^```", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    anchors = []
    for heading in headings:  # as GitHub does it
        small = "".join(c for c in heading.lower() if c.isalnum() or c in " -_").replace(" ", "-")
        before = sum(anchor.rpartition("-")[0] == small or anchor == small for anchor in anchors)
        anchors.append(f"{small}-{before}" if before else small)
    links = re.findall(r"\]\(#([^)]*)\)", text)
    assert links and set(links) <= set(anchors)
    named = re.findall(r"\[`([^`]*)`\]\(#([^)]*)\)", text)
    where = dict(zip(anchors, headings, strict=True))
    assert [name for name, anchor in named if where[anchor] != f"`{name}`"] == []


def test_no_text_of_a_docstring_is_taken_for_markup():
    text = re.sub(r"^```.*?^```", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    plain = re.sub(r"``[^`]*``|`[^`]*`", "", text)
    assert "`" not in plain
    assert re.findall(r".*(?:\*\*|<\w|\b_\w|\w_\b).*", plain) == []
    rows = [line for line in PAGE.splitlines() if line.startswith("|")]
    assert rows and {len(re.findall(r"(?<!\\)\|", line)) for line in rows} == {3}


METHODS = (FunctionType, classmethod, staticmethod, property)


def _calls():
    """Every function and method of the page, and its parameters as the page has them."""
    for name in sorted({*HEADED, *hal.__all__}):
        thing = write_api.found_by(name)
        if inspect.isfunction(thing):
            lines, found = write_api.definitions(thing.__module__)
            yield thing, write_api.call(found[thing.__name__], lines)[0]
        elif name in CLASSES:
            for node, lines in write_api.members(thing):
                if "property" not in write_api.marks(node):
                    method = inspect.getattr_static(thing, node.name)
                    yield getattr(method, "__func__", method), write_api.call(node, lines)[0]


CALLS = list(_calls())


@pytest.mark.parametrize(
    ("function", "shown"), CALLS, ids=[function.__qualname__ for function, _ in CALLS]
)
def test_a_call_is_shown_as_python_takes_it(function, shown):
    assert f"{function.__name__}{shown}" in re.sub(r"\n *", " ", PAGE).replace("\\|", "|")
    space = {}
    none = re.sub(r" = (?:[^,()]|\(.*?\))+", " = None", shown)  # what is named is not known here
    exec(f"from __future__ import annotations\ndef shown{none}: ...", space)
    said = inspect.signature(space["shown"]).parameters.values()
    real = inspect.signature(inspect.unwrap(function)).parameters.values()
    taken = [parameter for parameter in real if parameter.name not in ("self", "cls")]
    assert [(p.name, p.kind, p.default is p.empty, p.annotation) for p in said] == [
        (p.name, p.kind, p.default is p.empty, p.annotation) for p in taken
    ]


def _section(name):
    return re.split(r"\n##+ ", PAGE.partition(f"\n### `{name}`\n")[2])[0]


@pytest.mark.parametrize("name", CLASSES)
def test_the_page_has_all_that_a_class_can_do(name):
    section, kind = _section(name), write_api.found_by(name)
    for base in kind.__mro__:
        if base is not kind and base.__name__ in HEADED:
            assert f"[`{base.__name__}`]" in section
            break
        values = vars(base).items() if base.__module__.startswith("hal_core") else ()
        methods = [key for key, value in values if isinstance(value, METHODS) and key[0] != "_"]
        assert [key for key in methods if not re.search(rf"\* `(\w+\.)?{key}[(:]", section)] == []


def test_the_page_has_special_methods_that_say_what_they_do():
    for name, method in (("DeviceRegistry", "getitem"), ("Buffer", "dlpack"), ("Program", "call")):
        assert f"* `__{method}__(" in _section(name)


@pytest.mark.parametrize("name", CLASSES)
def test_attributes_that_a_class_sets_are_declared_in_it(name):
    """Neither the page nor an editor knows of others."""
    assigned, declared = set(), set()
    for kind in write_api.found_by(name).__mro__:
        if not kind.__module__.startswith("hal_core"):
            continue
        _, found = write_api.definitions(kind.__module__)
        for node in ast.walk(found.get(kind.__name__, ast.Module())):
            if isinstance(node, ast.AnnAssign):
                declared.add(ast.unparse(node.target))
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                assigned |= {node.attr} if ast.unparse(node.value) == "self" else set()
    assert {attribute for attribute in assigned if attribute[0] != "_"} <= declared


@pytest.mark.parametrize("text", ["", '"""Raises: nothing."""'])
def test_a_name_without_a_sentence_is_refused(text):
    (node,) = ast.parse(f"def f() -> None:\n    {text or 'pass'}").body
    with pytest.raises(SystemExit, match="f needs a docstring that begins with a sentence"):
        write_api.docstring(node, "f")
