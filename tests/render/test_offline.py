"""Text for devices that are not here goes through the vendors' compilers, without a warning."""

from __future__ import annotations

import pytest
from everything import everything, missing_ops
from offline import OFFLINE, OfflineCompiler
from samples import SAMPLES
from toolchains import Toolchain

from hal_core.dtypes import DTYPES
from hal_core.errors import Unsupported


@pytest.fixture(scope="session", params=list(OFFLINE))
def offline(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> OfflineCompiler:
    made = OFFLINE[request.param](tmp_path_factory.mktemp(request.param))
    if made.missing:
        pytest.skip(made.missing)
    return made


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
