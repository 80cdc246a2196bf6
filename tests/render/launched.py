"""Which kernels tests will launch, found before any of them runs.

A compiler takes longer to start than for most kernels, so those of a module's tests are compiled
together. A test says what it launches by doing it: it is called with a toolchain that goes no
further.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from toolchains import Toolchain

from hal_core.ir import Kernel


class Launched(Exception):
    """A test has come to its first launch."""


def launched(test: Callable[..., None], toolchain: Toolchain, **given: object) -> list[Kernel]:
    """The kernel that a test launches first; none if it fails, skips or takes another fixture."""
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
