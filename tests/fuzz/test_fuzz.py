"""A fixed set of generated kernels on every target of this machine; `nox -s fuzz` runs more."""

import pytest
from campaign import small, verdicts
from device import TARGETS, built
from harness import MISSING, OK, UNSUPPORTED, WRONG

from hal_core import config

# The same kernels in each run, so few are enough: `nox -s fuzz` looks for what is new. Targets of
# one row share a process, in which a kernel is made and interpreted once.
USUAL = (("llvm", "opencl", "ptx"), 8)
MORE = (
    (("llvm", "llvm-1", "llvm-4"), 40), (("opencl", "ptx"), 16), (("nvrtc",), 8), (("hip",), 5),
    (("clang", "gcc", "msl", "zig"), 8), (("llvm-engine",), 8), (("oclgrind",), 5),
)  # fmt: skip


@pytest.mark.parametrize(
    ("targets", "count"),
    [USUAL, *(pytest.param(*row, marks=pytest.mark.full) for row in MORE)],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_generated_kernels(targets, count):
    for target in targets:
        built(TARGETS[target].device)
    found = {target: [] for target in targets}
    for seed, target, verdict in verdicts(targets, 0, count, batch=8):
        found[target].append((seed, verdict))
    missing = [check(target, rows) for target, rows in found.items()]
    if all(missing):
        pytest.skip(" ".join(missing))


def check(target, found):
    """Check the verdicts on one target; return why it is missing, if it is."""
    if found[0][1].kind == MISSING:
        required = TARGETS[target].device in config.REQUIRE.read()
        assert not (required and target in USUAL[0]), found
        return found[0][1].why
    wrong = [seed for seed, verdict in found if verdict.kind == WRONG]
    assert not wrong, f"kernels {wrong}; the first:\n{small(target, wrong[0])}"
    run = sum(verdict.kind == OK for _, verdict in found)
    unsupported = sum(verdict.kind == UNSUPPORTED for _, verdict in found)
    # Oclgrind lacks some functions of its own compiler, and both lack subgroups.
    allowed = 0.3 if target in ("oclgrind", "opencl") else 0
    assert unsupported <= allowed * len(found), found
    assert run + unsupported > 0.9 * len(found), found
    return ""
