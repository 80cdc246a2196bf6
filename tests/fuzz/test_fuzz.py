"""A fixed set of generated kernels on every target of this machine; `nox -s fuzz` runs more."""

from __future__ import annotations

import pytest
from campaign import small, verdicts
from device import TARGETS, built
from harness import MISSING, OK, UNSUPPORTED, WRONG

from hal_core import config

# The same kernels in each run, so few are enough: `nox -s fuzz` looks for what is new.
KERNELS = {
    "llvm": 40, "llvm-engine": 8, "gcc": 8, "clang": 8, "zig": 8,
    "opencl": 8, "oclgrind": 5, "ptx": 16, "nvrtc": 8, "hip": 5, "msl": 8,
}  # fmt: skip


USUAL = ("llvm", "clang", "opencl", "ptx")
TARGETS_TO_TEST = [t if t in USUAL else pytest.param(t, marks=pytest.mark.full) for t in KERNELS]


@pytest.mark.parametrize("target", TARGETS_TO_TEST)
def test_generated_kernels(target: str) -> None:
    built(TARGETS[target].device)
    found = list(verdicts([target], 0, KERNELS[target], batch=8))
    if found[0][2].kind == MISSING:
        required = TARGETS[target].device in config.REQUIRE.read()
        assert not (required and target in ("llvm", "opencl", "ptx")), found
        pytest.skip(found[0][2].why)
    wrong = [seed for seed, _, verdict in found if verdict.kind == WRONG]
    assert not wrong, f"kernels {wrong}; the first:\n{small(target, wrong[0])}"
    run = sum(verdict.kind == OK for *_, verdict in found)
    unsupported = sum(verdict.kind == UNSUPPORTED for *_, verdict in found)
    # Oclgrind lacks some functions of its own compiler, and both lack subgroups.
    allowed = 0.3 if target in ("oclgrind", "opencl") else 0
    assert unsupported <= allowed * len(found), found
    assert run + unsupported > 0.9 * len(found), found
