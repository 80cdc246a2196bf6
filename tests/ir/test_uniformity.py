"""What all threads of a block agree on: examples, and drawn kernels watched as they run."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from barrier_kernels import BLOCKS, SIZE, drawn
from kernel_files import IMPORTS, load
from stepping import Block, listing

import hal_core as hal
from hal_kernel.ir import Kernel, UOp
from hal_kernel.ir.uniformity import Uniformity, divergent
from hal_kernel.ir.uop import LEAVES
from hal_kernel.ir.verify import verify

# -- examples


HEAD = (
    IMPORTS
    + """
@hal.kernel
def f(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.int32], n: hal.int32):
    t, i = hal.thread_idx(0), hal.global_idx(0)
"""
)
B = "    hal.barrier()"
REACHED = [
    "hal.barrier()\ny[0] = 1",
    f"for _ in range(n):\n{B}",
    f"if hal.block_idx(0) < n and hal.block_dim(0) > 3:\n{B}",
    f"s = hal.block_dim(0) // 2\nwhile s > 0:\n    if t < s:\n        y[t] = 1\n{B}\n    s //= 2",
    f"for _ in range(x[hal.block_idx(0)]):\n{B}",
    "if hal.block_idx(0) >= n:\n    return\nhal.barrier()",
    "hal.barrier()\nif i >= n:\n    return\ny[i] = 1",
    f"k = 0\nwhile True:\n    k += 1\n{B}\n    if k > n:\n        break",
    f"for _ in range(n):\n    k = 0\n    while True:\n        k += 1\n        if k > t:\n"
    f"            break\n{B}",
]  # fmt: skip
MISSED = [
    (f"if t < n:\n{B}", "the condition differs"),
    (f"if t < n:\n    y[0] = 1\nelse:\n{B}", "the condition differs"),
    (f"for _ in range(t):\n{B}", "the range differs"),
    ("if i >= n:\n    return\nhal.barrier()", "some threads have returned before"),
    (f"for k in range(n):\n{B}\n    if k == t:\n        break",
     "some threads break out of its loop before others"),
    (f"for k in range(n):\n    if k == t:\n        continue\n{B}",
     "some threads skip to the next iteration of its loop"),
    (f"for k in range(n):\n{B}\n    if k == t:\n        return",
     "some threads have returned before"),
    (f"s = 0\nif t > n:\n    s = 3\nfor _ in range(s):\n{B}", "the range differs"),
    (f"s = 0\nfor _ in range(n):\n    if s == 0:\n    {B}\n    s = t", "the condition differs"),
    (f"if x[i] > 0:\n{B}", "the condition differs"),
    (f"if hal.atomic_add(y, 0, 1) == 0:\n{B}", "the condition differs"),
    (f"k = 0\nwhile k * k < t:\n    k += 1\nif k > n:\n{B}", "the condition differs"),
]  # fmt: skip


def lowered(body: str, folder: Path) -> Kernel:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    kernel: Kernel = load(folder, HEAD + lines).f.lower()
    return kernel


@pytest.mark.parametrize("body", REACHED)
def test_a_barrier_that_all_reach(body: str, tmp_path: Path) -> None:
    verify(lowered(body, tmp_path))


@pytest.mark.parametrize(("body", "why"), MISSED)
def test_a_barrier_that_some_pass_by(body: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(hal.KernelSyntaxError, match=f"this barrier: {why}") as caught:
        lowered(body, tmp_path)
    assert caught.value.text is not None and "hal.barrier()" in caught.value.text


# -- as they run


def _blocks(kernel: Kernel, n: int) -> list[Block]:
    memory = {0: [3 * k for k in range(BLOCKS * SIZE)], 1: [(5 * k) % 7 - 2 for k in range(SIZE)]}
    threads = kernel.block[0] if kernel.block else 1
    return [Block(kernel.uops, memory, {2: n}, number, threads) for number in range(BLOCKS)]


def disagreement(kernel: Kernel, n: int) -> UOp | None:
    """A node that is said to be the same for all threads, and was not."""
    known = Uniformity(kernel)
    for block in _blocks(kernel, n):
        block.watch = True
        block.run()
        seen: dict[int, list[tuple[UOp, Any]]] = {t: [] for t in range(block.threads)}
        for thread, node, value in block.seen:
            if node not in known.varying and node not in known.divided:
                seen[thread].append((node, value))
        first = seen[0]
        for other in seen.values():
            for a, b in zip(first, other, strict=False):
                if a != b:
                    return a[0]
            if len(first) != len(other):
                return max(first, other, key=len)[-1][0]
    return None


def test_what_is_said_to_be_the_same_is_the_same() -> None:
    agreed = 0
    for seed in range(300):
        kernel = drawn(seed)
        found = disagreement(kernel, seed % 5 - 1)
        assert found is None, f"{seed}: {found!r}\n{listing(kernel.uops)}"
        agreed += len(kernel.uops) - len(Uniformity(kernel).varying)
    assert agreed > 10_000, "an answer that says nothing would be right too"


def with_barriers(seed: int) -> Kernel:
    """A drawn kernel, with barriers at any places: they add no race."""
    rng, kernel = random.Random(seed), drawn(seed, barriers=False)
    uops: list[UOp] = []
    for node in kernel.uops:
        if rng.random() < 0.02 and node.op != "SHARED" and (not uops or uops[-1].op not in LEAVES):
            uops.append(UOp("BARRIER"))
        uops.append(node)
    return kernel._replace(uops=tuple(uops))


def test_barriers_that_are_accepted_are_reached_by_all() -> None:
    accepted = refused = 0
    for seed in range(600):
        kernel = with_barriers(seed)
        if divergent(kernel):
            refused += 1
            continue
        accepted += any(node.op == "BARRIER" for node in kernel.uops)
        for block in _blocks(kernel, seed % 5 - 1):
            block.run()  # raises where threads part
    assert accepted > 50 and refused > 50
