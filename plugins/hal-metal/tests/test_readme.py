"""The README's code runs, and prints what it says."""

from __future__ import annotations

import pytest
from readme_example import example, test_the_example_prints_what_it_says  # noqa: F401

pytestmark = pytest.mark.results
