"""The helpers of this folder are imported by name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.alone)
    item.add_marker(pytest.mark.syntax)
    item.add_marker(pytest.mark.quick)
