"""Find the kernels that tests will launch, before any of the tests runs.

A compiler takes longer to start than to compile most kernels, so the kernels of a module's tests
are compiled together. To find a test's kernel, `launched` calls the test with a toolchain whose
`run` notes the kernel and raises `Launched`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from toolchains import Toolchain

from hal_kernel.ir import Kernel


class Launched(Exception):
    """Raised at the first launch of a test."""


def launched(test: Callable[..., None], toolchain: Toolchain, **given: object) -> list[Kernel]:
    """The kernel that a test launches first; none if it fails, skips or needs other fixtures."""
    found: list[Kernel] = []

    def run(kernel: Kernel, *_: Any, **__: Any) -> None:
        found.append(kernel)
        raise Launched

    def compile(kernel: Kernel) -> None:
        raise Launched

    idle = copy.copy(toolchain)
    vars(idle).update(run=run, compile=compile)
    with suppress(Exception, pytest.skip.Exception):
        test(toolchain=idle, **given)
    return found
