"""Every promise of the registry, and of processes and threads, has a test with its number."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMED = {
    number
    for folder in (ROOT / "tests", *(ROOT / "plugins").glob("*/tests"))
    for path in folder.rglob("test_*.py")
    for number in re.findall(r"def test_([A-Z]\d+)_", path.read_text(encoding="utf-8"))
}


def test_a_promise_has_a_test_of_its_number():
    assert {*(f"R{number}" for number in range(1, 22)), "X1", "X2", "X3", "X4"} <= NAMED


def test_what_was_found_has_a_test_that_is_there():
    page = (ROOT / "docs/design/found-from-outside.md").read_text(encoding="utf-8")
    path, named = None, 0
    for word in re.findall(r"`([\w/.-]+)`", page):
        if word.endswith(".py"):
            path = ROOT / word
            assert path.is_file(), word
        elif word.startswith("test_"):
            assert f"def {word}(" in path.read_text(encoding="utf-8"), word
            named += 1
    assert named > 40
