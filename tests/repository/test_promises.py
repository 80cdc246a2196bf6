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
