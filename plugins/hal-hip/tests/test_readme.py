"""The README's code runs, prints what it says, and keeps inside its buffers."""

import pytest
from readme_example import (  # noqa: F401
    example,
    test_the_example_prints_what_it_says,
    test_without_extern_c_loading_says_so,
)

pytestmark = pytest.mark.results
