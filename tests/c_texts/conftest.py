"""Marks of every test of this folder."""

from __future__ import annotations

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.alone)
    item.add_marker(pytest.mark.quick)
