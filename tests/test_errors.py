"""The one form of every message."""

from __future__ import annotations

import pytest

import hal_core as hal


@pytest.mark.parametrize(
    ("problem", "facts", "text"),
    [
        ("it hangs", {}, "open: it hangs."),
        ("it hangs", {"got": "x", "limit": 3}, "open: it hangs (got 'x'; limit 3)."),
        ("it hangs", {"device": "CPU", "fix": "Wait."}, "open: it hangs on CPU. Wait."),
        ("a driver's own sentence.", {"fix": "Wait."}, "open: a driver's own sentence. Wait."),
    ],
)
def test_a_message_is_made_from_values(problem: str, facts: dict[str, str], text: str) -> None:
    error = hal.HalError("open", problem, **facts)
    assert str(error) == text
    assert error.problem == problem
