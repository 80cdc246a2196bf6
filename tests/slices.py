"""Slices of wide products of parameters: what `nox` runs, and what is left to `nox -s full`."""

import pytest

OF_EACH_SIZE = ("bool", "int8", "bfloat16", "float32", "uint64")  # and kind


def usual(values, *names):
    """Mark the values that have none of these names `full`."""
    full = pytest.mark.full
    return [v if str(v) in names else pytest.param(v, marks=full) for v in values]


def paired(rows, columns, of):
    """Pair each row with one of `of` slices of the columns, in turn, and `full` with the others."""
    found = []
    for number, row in enumerate(rows):
        some = [columns[(number + part) % of :: of] for part in range(of)]
        rest = [column for part in some[1:] for column in part]
        found += [pytest.param(row, some[0], id=row)]
        found += [pytest.param(row, rest, id=f"{row} with the rest", marks=pytest.mark.full)]
    return found


def pytest_itemcollected(item):
    """Mark a test of one dtype `full`, but for a dtype of each size and kind. For a conftest.py."""
    given = item.callspec.params if hasattr(item, "callspec") else {}
    if str(given.get("dtype", "bool")) not in OF_EACH_SIZE:
        item.add_marker(pytest.mark.full)
