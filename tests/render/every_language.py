"""What every language must do: all tests of this folder that take a toolchain.

Another language runs them with a toolchain of its own: its test file defines that fixture, and does
`globals().update(tests)` for each of TESTS.
"""

import inspect
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # before other folders' files of these names

import test_atomics
import test_bits
import test_control
import test_operations
import test_shared
import test_subgroups
import test_text
import test_vectors
import test_views


def _tests(module):
    return {
        name: test
        for name, test in vars(module).items()
        if name.startswith("test_") and "toolchain" in inspect.signature(test).parameters
    }


_MODULES = (
    test_atomics, test_bits, test_control, test_operations, test_shared,
    test_subgroups, test_text, test_vectors, test_views,
)  # fmt: skip

TESTS = {module.__name__: _tests(module) for module in _MODULES}
