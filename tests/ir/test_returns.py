"""Early returns become IFs around what they skip, where no barrier is."""

from __future__ import annotations

import pytest
from barrier_kernels import drawn
from builder import Builder
from stepping import Block, listing

import hal_core as hal
from hal_kernel.ir import UOp
from hal_kernel.ir.blocks.returns import without_returns
from hal_kernel.ir.verify import verify

# mypy: disable-error-code="no-untyped-def"

Ints = hal.Ptr[hal.int32]


def ops(uops: tuple[UOp, ...]) -> str:
    """Return the ops of a kernel from its first IF on."""
    names = [node.op for node in uops]
    kept = ("IF", "ELSE", "ENDIF", "STORE", "RETURN", "NOT", "BARRIER", "RANGE", "ENDRANGE")
    return " ".join(name for name in names[names.index("IF") - 1 :] if name in kept)


@hal.kernel
def early(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    if i >= n:
        return
    y[i] = 1


@hal.kernel
def works_first(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    if i >= n:
        y[i] = 2
        return
    y[i] = 1


@hal.kernel
def otherwise(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        y[i] = 2
    else:
        return
    y[i] = 1


@hal.kernel
def twice(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    if i >= n:
        return
    if i < 3:
        return
    y[i] = 1


@hal.kernel
def nested(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        if y[i] == 0:
            return
        y[i] = 1


@hal.kernel
def in_a_loop(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        for k in range(3):
            if y[k] == 0:
                return
        y[i] = 1


@hal.kernel
def somewhere(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    if i < n:
        if y[i] == 0:
            return
        y[i] = 1
    y[i] = 3


@hal.kernel
def before_a_barrier(y: Ints, n: hal.int32):
    i = hal.global_idx(0)
    if n < 0:
        return
    hal.barrier()
    y[i] = 1


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (early, "NOT IF STORE ENDIF"),
        (works_first, "IF STORE ELSE STORE ENDIF"),
        (otherwise, "IF STORE STORE ENDIF"),
        (twice, "NOT IF NOT IF STORE ENDIF ENDIF"),
        (nested, "IF NOT IF STORE ENDIF ENDIF"),
        (in_a_loop, "IF RANGE IF RETURN ENDIF ENDRANGE STORE ENDIF"),
        (somewhere, "IF IF RETURN ENDIF STORE ENDIF STORE"),
        (before_a_barrier, "IF RETURN ENDIF BARRIER STORE"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_what_follows_goes_into_the_other_side(kernel: hal.KernelFunction, expected: str) -> None:
    lowered = kernel.lower()
    made = without_returns(lowered.uops)
    verify(lowered._replace(uops=made))
    assert ops(made) == expected


def test_a_kernel_without_one_keeps_its_nodes() -> None:
    b = Builder("plain", "y: int32*")
    b.store("y", b.index(), b.const(1))
    uops = b.kernel().uops
    assert without_returns(uops) is uops


@pytest.mark.parametrize("count", [64, 65])
def test_as_many_as_compilers_of_c_can_nest(count: int) -> None:
    b = Builder("many", "y: int32*, n: int32")
    for number in range(count):
        with b.when(b.op("EQ", b.params["n"], b.const(number))):
            b.return_()
    b.store("y", b.index(), b.const(1))
    made = without_returns(b.kernel().uops)
    assert sum(node.op == "RETURN" for node in made) == (0 if count <= 64 else count)


def test_drawn_kernels() -> None:
    """Each thread does what it did."""
    changed = 0
    for seed in range(300):
        kernel = drawn(seed, barriers=seed % 3 > 0)
        made = kernel._replace(uops=without_returns(kernel.uops))
        verify(made)
        changed += made.uops is not kernel.uops
        found = []
        for uops in (kernel.uops, made.uops):
            memory = {0: [3 * k for k in range(12)], 1: [(5 * k) % 7 - 2 for k in range(6)]}
            for number in range(2):
                Block(uops, memory, {2: seed % 5 - 1}, number, 3).run()
            found.append(memory)
        assert found[0] == found[1], (seed, listing(kernel.uops), listing(made.uops))
    assert changed > 30


@hal.kernel
def fences_last(y: Ints, n: hal.int32):
    k = hal.int32(0)
    while k < n:
        k += 1
        if k > 2:
            hal.fence()
            continue
        y[k] = 1


def test_a_side_that_ends_with_a_node_without_sources_ends_with_no_step() -> None:
    verify(fences_last.lower()._replace(uops=without_returns(fences_last.lower().uops)))
