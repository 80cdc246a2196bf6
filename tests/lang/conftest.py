"""Marks of every test of this folder."""

import pytest


def pytest_itemcollected(item):
    item.add_marker(pytest.mark.quick)
