"""Kernels as text, by which the conformance kit tests the compiler, programs and launches."""

from __future__ import annotations

import pytest

from hal_testing.conformance.sources import Texts

DOUBLED = """\
def doubled(index, y, x, n):
    if index[0] < n:
        y[index[0]] = 2 * x[index[0]]
"""


@pytest.fixture
def hal_source() -> Texts:
    """Return kernels in the language of the device; the comments of `Texts` say which."""
    return Texts(
        "python",
        DOUBLED,
        broken=DOUBLED.replace("2 *", "2 * *"),
        broken_line=3,
        two=DOUBLED + DOUBLED.replace("doubled", "fivefold").replace("2 *", "5 *"),
    )
