"""Find out what a launch needs and does, without a device: buffers, bytes moved, operations.

The kernel runs in the interpreter, on made-up data, in buffers that grow with the highest element
it asks for: `if i < n: y[i] = 2 * x[i]` with 1000 threads and n = 800 needs 800 elements of y and
of x, moves 6400 bytes, and does 800 operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hal_core.dtypes import DType, any_, bfloat16
from hal_core.geometry import Dim3
from hal_kernel.interpreter.casts import stored_as
from hal_kernel.interpreter.executor import Executor, LoopLimits
from hal_kernel.interpreter.lanes import Lanes
from hal_kernel.interpreter.memory import HOW, Access, Memory
from hal_kernel.interpreter.prepared import PreparedKernel, Step
from hal_kernel.interpreter.printing import Printer
from hal_kernel.interpreter.races import READ, WRITE
from hal_kernel.ir import Kernel, UOp
from hal_kernel.ir.uop import BINARY, UNARY

Array = npt.NDArray[Any]

_MOST_NBYTES = 1 << 30  # of one buffer
_ACCESSES = frozenset(HOW)


class Sample(NamedTuple):
    """Sizes and work of one launch."""

    sizes: tuple[int, ...]  # the elements of each pointer's buffer, in the order of a launch
    nbytes: int  # read and written, each element once for reading and once for writing
    operations: int  # of floats, and of integers that are stored: no indices, no comparisons


def made_up(dtype: DType, size: int) -> Array:
    """Make data: integers count from 0 and wrap, floats are from 0.5 to 1.5, bools alternate."""
    stored = stored_as(dtype)
    if dtype in (any_, bfloat16) or stored.kind == "f":
        pattern = (np.arange(32, 96) / 64).astype(stored if stored.kind == "f" else np.float32)
        if dtype is bfloat16:  # the upper half of a float32
            pattern = (pattern.view(np.uint32) >> 16).astype(np.uint16)
        return np.resize(pattern.view(stored), size)
    count = np.arange(size)
    return count % 2 == 1 if stored.kind == "b" else count.astype(stored)


def sample(
    kernel: Kernel, vals: Sequence[Any], geometry: tuple[Dim3, Dim3],
    given: Mapping[str, Array] | None = None, seconds: float = 1.0,
) -> Sample:  # fmt: skip
    """Sample a launch with these values, grid and block; `given` has arrays for some pointers.

    Raises: KernelFault for an index that is negative, or beyond a given array; for a buffer of more
    than 1 GiB; after the seconds have passed.
    """
    prepared = PreparedKernel(kernel)
    values = {
        param.position: np.array([value], stored_as(param.dtype))
        for param, value in zip(kernel.signature.values, vals, strict=True)
    }
    buffers = {
        param.position: _Buffer(param.name, param.dtype, (given or {}).get(param.name))
        for param in kernel.signature.pointers
    }
    memories: dict[int, Memory] = {
        place: _Seen(buffers[node.arg], buffers[node.arg].elements.dtype)
        for place, node in enumerate(kernel.uops)
        if node.op == "PARAM" and node.arg in buffers
    }
    limits = LoopLimits(1 << 40, monotonic() + seconds, seconds, "give smaller sizes")
    costs, operations, silent = costs_of(kernel), 0, Printer()
    silent.left = 0  # a real launch prints
    with np.errstate(all="ignore"):
        for lanes in Lanes.parts(*geometry):
            executor = _Counting(prepared, lanes, values, memories, False, limits, silent)
            executor.costs = costs
            executor.block(prepared.steps)
            operations += executor.operations
    sizes = tuple(buffer.end for buffer in buffers.values())
    return Sample(sizes, sum(buffer.moved for buffer in buffers.values()), operations)


class _Buffer:
    """A buffer that grows, unless it was given, and which of its elements were accessed."""

    def __init__(self, name: str, dtype: DType, given: Array | None) -> None:
        self.name, self.dtype, self.is_given = name, dtype, given is not None
        self.elements = made_up(dtype, 0) if given is None else given.copy()
        self.end = len(self.elements)
        self.touched = {how: np.zeros(len(self.elements), bool) for how in (READ, WRITE)}

    def reach(self, access: Access, end: int) -> None:
        """Make sure that there are `end` elements. Raises: KernelFault beyond a limit."""
        if self.is_given or end <= self.end:
            return
        if end > (most := _MOST_NBYTES // self.elements.itemsize):
            problem = f"{self.name!r} would have to be larger than any made-up buffer"
            access.fault(problem, "Give sizes.", got=end, limit=most)
        if end > len(self.elements):
            before, self.elements = self.elements, made_up(self.dtype, 2 * end)
            self.elements[: len(before)] = before
            for how, old in self.touched.items():
                self.touched[how] = np.zeros(len(self.elements), bool)
                self.touched[how][: len(old)] = old
        self.end = end

    @property
    def moved(self) -> int:
        """The sum of the bytes that are read and the bytes that are written."""
        counts = (int(np.count_nonzero(mask)) for mask in self.touched.values())
        return sum(counts) * self.elements.itemsize


class _Seen(Memory):
    """The elements of a buffer, of its own dtype or another one."""

    def __init__(self, buffer: _Buffer, dtype: np.dtype[Any]) -> None:
        self.buffer, self.dtype = buffer, dtype
        elements = _whole(buffer.elements[: buffer.end], dtype)
        super().__init__(buffer.name, elements, len(elements), None, None)

    def seen_as(self, access: Access, dtype: np.dtype[Any]) -> Memory:
        return _Seen(self.buffer, dtype)

    def places(self, access: Access, index: Array, wide: Array | None) -> Array:
        buffer, ratio = self.buffer, self.dtype.itemsize / self.buffer.elements.itemsize
        buffer.reach(access, int(np.ceil((int(index.max(initial=-1)) + 1) * ratio)))
        self.elements = _whole(buffer.elements, self.dtype)
        self.size = int(buffer.end / ratio)
        found = super().places(access, index, wide)
        own = (found * ratio).astype(np.int64)
        how = HOW[access.node.op]
        for kind in (READ, WRITE) if how not in (READ, WRITE) else (how,):
            for part in range(max(1, int(ratio))):  # the buffer's elements may be smaller
                buffer.touched[kind][own + part] = True
        return found


def _whole(elements: Array, dtype: np.dtype[Any]) -> Array:
    """Return the elements of another dtype that lie in the memory as a whole."""
    return elements.view(np.uint8)[: elements.nbytes // dtype.itemsize * dtype.itemsize].view(dtype)


class _Counting(Executor):
    """An executor that counts operations; `costs` has those of each node."""

    costs: Sequence[int]
    operations = 0

    def block(self, steps: list[Step]) -> None:
        for step in steps:
            self.operations += self.costs[step.place] * len(self.running)
            super().block([step])
            if not len(self.running):
                return


def costs_of(kernel: Kernel) -> list[int]:
    """Return how many operations each node is, in the order of the kernel's list."""
    stored = [node for store in kernel.uops if store.op in _ACCESSES for node in store.src[2:]]
    kept = sources_of(kernel, stored)
    return [
        (2 if node.op == "FMA" else 1)
        if node.op in UNARY | BINARY | {"FMA", "ATOMIC"}
        and (id(node) in kept or node.op == "ATOMIC" or (node.dtype and node.dtype.is_float))
        else 0
        for node in kernel.uops
    ]


def sources_of(kernel: Kernel, roots: Sequence[UOp]) -> dict[int, UOp]:
    """Return every node that the roots are computed of, by id; memory is not looked into."""
    values: dict[int, list[UOp]] = {}  # id of a VAR -> what it is set to
    for node in kernel.uops:
        if node.op == "SET":
            values.setdefault(id(node.src[0]), []).append(node.src[1])
    found: dict[int, UOp] = {}
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if id(node) in found:
            continue
        found[id(node)] = node
        if node.op == "GET":
            waiting += [node.src[0], *values.get(id(node.src[0]), ())]
        elif node.op == "WHERE":
            waiting += node.src[1:]
        elif node.op not in _ACCESSES:
            waiting += node.src
    return found
