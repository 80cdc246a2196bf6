"""Write integers as sums of products, to find what is left of the difference of two of them.

    i + r + 1 - (i - r)   is   {(r,): 2, (): 1}
    (i + 1) * w - i * w   is   {(w,): 1}

The arithmetic of integers wraps around, and so do these sums: modulo 2**32, or 2**64.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from hal_core.dtypes import DType, int32, int64
from hal_core.geometry import MOST_ADDED
from hal_kernel.ir.blocks.rows import products
from hal_kernel.ir.uop import PURE, UOp

Sum = dict[tuple[int, ...], int]  # numbers of the values that are multiplied -> how often
_CHAINED = frozenset({"ADD", "SUB", "MUL"})  # of these a sum is made
_MOST_TERMS, _MOST_FACTORS = 8, 3
_DEEPEST = 8  # nodes above each other that are compared


class Sums:
    """The sums of a kernel, and the values that they are made of."""

    def __init__(self) -> None:
        self.values: list[UOp] = []
        self._numbers: dict[Hashable, int] = {}  # what a value is -> its place in `values`

    def of(self, node: UOp, depth: int = _DEEPEST) -> Sum:
        """Return an integer as a sum; equal values are compared by what they are computed from."""
        if node.op == "CONST":
            return {(): node.arg} if node.arg else {}
        found: Sum | None = None
        if depth and node.op in _CHAINED:
            first, second = (self.of(source, depth - 1) for source in node.src)
            found = multiplied(first, second) if node.op == "MUL" else None
            if node.op != "MUL":
                found = added(first, second, 1 if node.op == "ADD" else -1)
        if found is not None and len(found) <= _MOST_TERMS:
            return found
        name = _name(node, depth)
        if name not in self._numbers:
            self._numbers[name] = len(self.values)
            self.values.append(node)
        return {(self._numbers[name],): 1}

    def parts_of(self, node: UOp) -> list[Sum]:
        """Return the sum of each `+`, `-` and `*` that an integer is computed by."""
        pending, parts = [node], dict[UOp, Sum]()
        while pending:
            part = pending.pop()
            if part.op in _CHAINED and part not in parts:
                parts[part] = self.of(part)
                pending += part.src
        return list(parts.values())

    def span(self, total: Sum) -> tuple[int, int]:
        """Return the least and the greatest value that a sum could have if nothing wrapped."""
        least = most = 0
        for numbers, times in total.items():
            span = times, times
            for number in numbers:
                span = products(span, _span(self.values[number]))
            least, most = least + span[0], most + span[1]
        return least, most

    def made_of(self, total: Sum) -> list[UOp]:
        """Return the values in a sum."""
        return [self.values[number] for numbers in total for number in numbers]

    def written(
        self, total: Sum, dtype: DType, add: Callable[..., UOp], given: Callable[[UOp], UOp]
    ) -> UOp:
        """Write the nodes of a sum by `add(op, dtype, *sources, arg=...)`; return the last one.

        `given` maps each of its values to the node that has it here.
        """
        whole: UOp | None = None
        half = 1 << 8 * dtype.itemsize - 1
        for numbers, times in total.items():
            factors = [given(self.values[number]) for number in numbers]
            if times != 1 or not factors:
                factors.append(add("CONST", dtype, arg=(times + half) % (2 * half) - half))
            part = factors[0]
            for factor in factors[1:]:
                part = add("MUL", dtype, part, factor)
            whole = part if whole is None else add("ADD", dtype, whole, part)
        return whole or add("CONST", dtype, arg=0)


def added(first: Sum, second: Sum, times: int) -> Sum:
    """Return one sum, plus another one so often."""
    found = dict(first)
    for numbers, count in second.items():
        found[numbers] = found.get(numbers, 0) + times * count
    return {numbers: count for numbers, count in found.items() if count}


def multiplied(first: Sum, second: Sum) -> Sum | None:
    """Return a product as a sum; None if it is too long."""
    if len(first) * len(second) > _MOST_TERMS:
        return None
    found: Sum = {}
    for numbers, times in first.items():
        for others, count in second.items():
            if len(numbers) + len(others) > _MOST_FACTORS:
                return None
            found = added(found, {tuple(sorted(numbers + others)): 1}, times * count)
    return found


def _name(node: UOp, depth: int) -> Hashable:
    """Return what a value is: two nodes with one name are equal wherever both are computed."""
    if node.op in ("CONST", "SPECIAL"):
        return node.op, node.dtype, node.arg
    if depth and node.op in PURE:
        return node.op, node.dtype, node.arg, *(_name(source, depth - 1) for source in node.src)
    return node


def _span(node: UOp) -> tuple[int, int]:
    """Return the least and the greatest value of an integer of 32 or 64 bits."""
    if node.op == "CAST" and node.src[0].dtype is int32:
        return _span(node.src[0])
    if node.op == "SPECIAL":
        indices = ("global_idx", "thread_idx", "block_idx")
        return 0, 2**31 - 1 - (MOST_ADDED if node.arg[0] in indices else 0)
    dtype = node.dtype or int64
    return int(dtype.min), int(dtype.max)
