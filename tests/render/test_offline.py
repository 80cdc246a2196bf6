"""Text for devices that are not here goes through the vendors' compilers, without a warning."""

from __future__ import annotations

import pytest
from everything import everything, missing_ops
from offline import OfflineCompiler
from samples import SAMPLES
from toolchains import Toolchain

from hal_core.dtypes import DTYPES
from hal_core.errors import Unsupported


@pytest.mark.parametrize("name", list(SAMPLES))
def test_samples(offline: OfflineCompiler, name: str) -> None:
    kernel = SAMPLES[name].lower()
    if {str(dtype) for dtype in kernel.signature.dtypes} - {
        str(d) for d in offline.renderer.dtypes
    }:
        with pytest.raises(Unsupported, match="float64"):
            offline.compile(kernel)
        return
    offline.compile(kernel)


def test_every_operation_on_every_dtype(offline: OfflineCompiler) -> None:
    absent = frozenset(DTYPES.values()) - offline.renderer.dtypes
    for kernel in everything(absent, wide_atomics=offline.renderer.language != "metal"):
        offline.compile(kernel)


def test_every_operation_on_every_dtype_here(c_family: Toolchain) -> None:
    for kernel in everything():
        c_family.compile(kernel)


def test_everything_is_everything() -> None:
    assert not missing_ops(everything())
