"""The README's code runs, and prints what it says."""

import pytest
from readme_example import example, test_the_example_prints_what_it_says  # noqa: F401

pytestmark = pytest.mark.results
