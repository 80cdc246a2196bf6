"""Slices of wide products of parameters: what `nox` runs, and what is left to `nox -s full`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

OF_EACH_SIZE = ("bool", "int8", "bfloat16", "float32", "uint64")  # and kind


def usual(values: Iterable[Any], *names: str) -> list[Any]:
    """Mark the values that have none of these names `full`."""
    full = pytest.mark.full
    return [v if str(v) in names else pytest.param(v, marks=full) for v in values]


def leave_dtypes(item: pytest.Item) -> None:
    """Mark a test of one dtype `full`, but for a dtype of each size and kind."""
    given = item.callspec.params if hasattr(item, "callspec") else {}
    if str(given.get("dtype", "bool")) not in OF_EACH_SIZE:
        item.add_marker(pytest.mark.full)
