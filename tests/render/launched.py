"""Find the kernels that tests will launch, before any of the tests runs.

A compiler takes longer to start than to compile most kernels, so the kernels of a module's tests
are compiled together. To find a test's kernel, `launched` calls the test with a toolchain whose
`run` notes the kernel and raises `Launched`.
"""

import copy
from contextlib import suppress

import pytest


class Launched(Exception):
    """Raised at the first launch of a test."""


def launched(test, toolchain, **given):
    """The kernel that a test launches first; none if it fails, skips or needs other fixtures."""
    found = []

    def run(kernel, *_, **__):
        found.append(kernel)
        raise Launched

    def compile(kernel):
        raise Launched

    idle = copy.copy(toolchain)
    vars(idle).update(run=run, compile=compile)
    with suppress(Exception, pytest.skip.Exception):
        test(toolchain=idle, **given)
    return found
