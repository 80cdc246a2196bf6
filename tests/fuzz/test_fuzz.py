"""A fixed set of generated kernels on every target of this machine; `nox -s fuzz` runs more."""

from __future__ import annotations

import pytest
from campaign import Missing, small, verdicts
from device import TARGETS
from harness import OK, UNSUPPORTED, WRONG

from hal_core import config

# A hundred everywhere would take minutes: a kernel takes PoCL a second and LLVM a twentieth.
KERNELS = {
    "llvm": 100, "llvm-engine": 20, "gcc": 50, "clang": 50, "zig": 20, "opencl": 20,
    "oclgrind": 10, "ptx": 80, "nvrtc": 50, "hip": 8, "msl": 30,
}  # fmt: skip


@pytest.mark.parametrize("target", KERNELS)
def test_generated_kernels(target: str) -> None:
    try:
        found = list(verdicts(target, 0, KERNELS[target]))
    except Missing as missing:
        if TARGETS[target].device in config.REQUIRE.read() and target in ("llvm", "opencl", "ptx"):
            raise
        pytest.skip(str(missing))
    wrong = [seed for seed, verdict in found if verdict.kind == WRONG]
    assert not wrong, f"kernels {wrong}; the first:\n{small(target, wrong[0])}"
    run = sum(verdict.kind == OK for _, verdict in found)
    unsupported = sum(verdict.kind == UNSUPPORTED for _, verdict in found)
    # Oclgrind lacks some functions of its own compiler, and both lack subgroups.
    allowed = 0.3 if target in ("oclgrind", "opencl") else 0
    assert unsupported <= allowed * len(found), found
    assert run + unsupported > 0.9 * len(found), found
