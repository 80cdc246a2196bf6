"""Subgroups of any size give what the interpreter says, in every language that has them."""

import numpy as np
import pytest

import hal_core as hal
from hal_kernel.interpreter import interpret
from hal_kernel.ir.subgroups import of_size
from hal_kernel.ir.verify import verify
from hal_kernel.render import RENDERERS
from hal_opencl.render import OpenCLRenderer

ROWS = 8


@hal.kernel(contract=False)
def together(
    y: hal.Ptr[hal.int32], f: hal.Ptr[hal.float32], b: hal.Ptr[hal.uint64],
    x: hal.ConstPtr[hal.int32],
) -> None:  # fmt: skip
    i = hal.global_idx(1) * (hal.grid_dim(0) * hal.block_dim(0)) + hal.global_idx(0)
    v = x[i]
    y[8 * i] = hal.subgroup_sum(v)
    y[8 * i + 1] = hal.subgroup_inclusive_sum(v)
    y[8 * i + 2] = hal.subgroup_exclusive_sum(v)
    y[8 * i + 3] = hal.subgroup_min(v)
    y[8 * i + 4] = hal.subgroup_max(v)
    y[8 * i + 5] = hal.shuffle(v, 0)
    lane = hal.subgroup_lane()
    other = hal.shuffle_xor(v, lane ^ max(lane - 1, 0))
    if v % 3 == 0:
        y[8 * i + 6] = other
    y[8 * i + 7] = hal.subgroup_size() + 100 * lane + 10000 * hal.subgroup_idx()
    f[i] = hal.subgroup_exclusive_sum(hal.float32(v) * 0.1)
    votes = hal.ballot(v % 3 == 0)
    if hal.subgroup_idx() % 2 == 0:  # the threads of a subgroup agree
        b[i] = votes + hal.uint64(hal.shuffle(hal.int64(v) << 40, lane // 2 * 2))


def interpreted(size, grid, block):
    threads = int(np.prod(grid) * np.prod(block))
    x = np.random.default_rng(size).integers(-50, 50, threads).astype("i4")
    arrays = [np.zeros(threads * ROWS, "i4"), np.zeros(threads, "f4"), np.zeros(threads, "u8"), x]
    interpret(together, *arrays, grid=grid, block=block, subgroup=size)
    return arrays


LAUNCHES = [((2, 1, 1), (40, 1, 1)), ((1, 2, 1), (9, 5, 1)), ((3, 1, 1), (128, 1, 1))]


@pytest.mark.parametrize(("grid", "block"), LAUNCHES)
def test_every_language_gives_what_the_interpreter_says(toolchain, grid, block):
    if not toolchain.subgroup:
        pytest.skip("it has no subgroups")
    y, f, b, x = interpreted(toolchain.subgroup, grid, block)
    found = {"y": np.zeros_like(y), "f": np.zeros_like(f), "b": np.zeros_like(b), "x": x}
    toolchain.run(together.lower(), found, grid, block)
    for name, expected in (("y", y), ("f", f), ("b", b)):
        np.testing.assert_array_equal(found[name], expected, err_msg=name)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32, 64])
def test_a_subgroup_of_any_size_adds_up(size):
    """Against numpy: sums and scans of runs of threads, the last of them shorter."""
    y, f, b, x = interpreted(size, (2, 1, 1), (40, 1, 1))
    rows, votes = y.reshape(-1, ROWS), b.reshape(2, 40)
    for block in range(2):
        for number, first in enumerate(range(0, 40, size)):
            here = slice(block * 40 + first, block * 40 + min(first + size, 40))
            own = x[here]
            assert (rows[here, 0] == own.sum()).all()
            assert (rows[here, 1] == own.cumsum()).all()
            assert (rows[here, 2] == own.cumsum() - own).all()
            assert (rows[here, 3] == own.min()).all() and (rows[here, 4] == own.max()).all()
            assert (rows[here, 5] == own[0]).all()
            np.testing.assert_allclose(f[here], (own.cumsum() - own) * 0.1, atol=1e-4)
            if number % 2 == 0:
                expected = sum(1 << k for k, value in enumerate(own) if value % 3 == 0)
                assert int(votes[block, first]) == (expected + (int(own[0]) << 40)) % 2**64


@pytest.mark.parametrize("size", [1, 32])
def test_a_known_size_leaves_no_special(size):
    kernel = of_size(together.lower(), size)
    if size == 1:  # else `verify` cannot see any more what the threads of a subgroup agree on
        verify(kernel)
    specials = {node.arg[0] for node in kernel.uops if node.op == "SPECIAL"}
    assert not [name for name in specials if name.startswith("subgroup")]
    assert ("SHUFFLE" in {node.op for node in kernel.uops}) == (size > 1)


@hal.kernel
def without(y: hal.Ptr[hal.int32]) -> None:
    hal.fence()
    y[hal.global_idx(0)] = 1


@pytest.mark.parametrize("language", [name for name in RENDERERS if name != "uops"])
def test_a_fence_is_in_every_language(language):
    assert "fence" in RENDERERS[language]().render(without.lower())


def test_a_kernel_without_subgroups_asks_for_nothing():
    kernel = without.lower()
    assert of_size(kernel, 32) is kernel
    assert "cl_khr_subgroups" not in OpenCLRenderer().render(kernel)
    assert "cl_khr_subgroups" in OpenCLRenderer().render(together.lower())
