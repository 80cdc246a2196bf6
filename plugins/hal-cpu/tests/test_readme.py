"""The README's code runs, prints what it says, and keeps inside its buffers."""

import pytest
from readme_example import (  # noqa: F401
    example,
    test_P6_the_example_guards_against_surplus_threads,
    test_the_example_prints_what_it_says,
)

from hal_cpu.compilers.c import C_COMPILERS

pytestmark = pytest.mark.results


@pytest.fixture(autouse=True)
def c_compiler():
    """The README says that Source kernels need one."""
    if not any(row.command() for row in C_COMPILERS.values()):
        pytest.skip("no C compiler is installed: pip install ziglang")
