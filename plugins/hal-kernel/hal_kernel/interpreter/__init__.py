"""The interpreter, which executes kernel IR in numpy. Every backend is tested against it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hal_core.errors import InvalidArgument
from hal_core.geometry import Dim3, Extent, integers
from hal_kernel.errors import KernelFault
from hal_kernel.interpreter.arguments import Arguments, Inputs
from hal_kernel.interpreter.executor import Executor, LoopLimits
from hal_kernel.interpreter.lanes import Lanes
from hal_kernel.interpreter.memory import Memory
from hal_kernel.interpreter.order import Order
from hal_kernel.interpreter.overlap import ShadowPart, shared_shadows
from hal_kernel.interpreter.prepared import PreparedKernel
from hal_kernel.interpreter.printing import Printer
from hal_kernel.interpreter.races import Shadow
from hal_kernel.ir import Kernel
from hal_kernel.ir.verify import verify
from hal_kernel.lang.function import KernelFunction

Array = npt.NDArray[Any]

_SUBGROUPS = 1, 2, 4, 8, 16, 32, 64


def interpret(
    kernel: KernelFunction | Kernel, *given: Any, vals: Sequence[Any] | None = None,
    grid: Extent | None = None, block: Extent | None = None, threads: Extent | None = None,
    races: bool = True, initialised: Sequence[Array | None] = (), turns: int = 1_000_000,
    subgroup: int = 32,
) -> None:  # fmt: skip
    """Run a kernel by the rules of its language, on numpy arrays, which are written in place.

    The arguments are those of a launch, with arrays in place of buffers. A bfloat16 array has the
    dtype of ml_dtypes, or is an array of uint16 with the bits. With `threads=` alone a block has 64
    threads, 8 x 8 or 4 x 4 x 4. The last block then usually has more threads than are needed, which
    shows that a guard is missing.

    `races=False` does not look for races. Otherwise accesses through arrays that overlap are
    checked against each other. `initialised` has for each buffer a mask of the elements that may be
    read before the kernel writes them; None, or no masks, means all elements. `turns` limits the
    iterations of all loops of a block. `subgroup` is the number of threads of a subgroup, a power
    of two up to 64: a correct kernel is right with every size.

    Threads execute an atomic one after the other, in the order of their indices. A kernel that
    waits in a loop for another thread never ends: the language guarantees no progress.

    Raises: KernelFault for what the language leaves undefined: an index out of bounds (OutOfBounds)
    or one whose arithmetic overflows int32, a read of shared memory that nothing has written, a
    race, a barrier that not all threads of a block reach, an assert that does not hold
    (FailedAssert), a loop that does not end. InvalidArgument for arguments that a launch would
    refuse.
    """
    lowered = kernel.lower() if isinstance(kernel, KernelFunction) else kernel
    verify(lowered)
    arguments = Arguments(lowered, given, vals, initialised)
    extents, shape = arguments.geometry(grid, block, threads)
    if 0 in extents or 0 in shape:
        return
    for given_as, number, known, problem, fix in (
        ("subgroup", subgroup, _SUBGROUPS, "a power of two, 1 to 64", "32, as on NVIDIA's GPUs"),
        ("turns", turns, range(1, 1 << 63), "an integer, 1 or more", "1_000_000, or leave it out"),
    ):
        if not (found := integers((number,))) or found[0] not in known:
            problem, fix = f"{given_as} must be {problem}", f"Write {given_as}={fix}."
            raise InvalidArgument(arguments.operation, problem, got=number, fix=fix)
    prepared, limits = PreparedKernel(lowered), LoopLimits(turns)
    try:
        execute(
            prepared, arguments.inputs, (extents, shape), limits, races=races, subgroup=subgroup
        )
    except KernelFault as fault:  # the text has the kernel's line; those of the interpreter go
        raise fault.with_traceback(None) from None


def execute(
    kernel: PreparedKernel, inputs: Inputs, geometry: tuple[Dim3, Dim3], limits: LoopLimits, *,
    races: bool = True, seed: int = 0, subgroup: int = 1,
) -> None:  # fmt: skip
    """Run a kernel whose arguments are checked already, as `interpret` does after its checks.

    A `seed` other than 0 changes the order of the blocks, and of the threads of a block.
    Raises: KernelFault. Elements that were written before the fault keep their new values.
    """
    memories, printer, order = _memories(kernel, inputs, races), Printer(), Order()
    for memory in memories.values() if kernel.fences else ():
        memory.follow(order)
    with np.errstate(all="ignore"):
        for lanes in Lanes.parts(*geometry, seed):
            lanes.subgroup = subgroup
            state = Executor(kernel, lanes, inputs.values, memories, races, limits, printer, order)
            state.block(kernel.steps)


def _memories(kernel: PreparedKernel, inputs: Inputs, races: bool) -> dict[int, Memory]:
    """Return the memory of each pointer, by the index of its PARAM in the kernel's list."""
    params, arrays = kernel.signature.params, inputs.arrays
    written = {node.arg for node in kernel.written}
    narrowest = {
        node.arg: nbytes for node, nbytes in kernel.narrowest.items() if node.op == "PARAM"
    }
    overlapping = shared_shadows(arrays, narrowest) if races else {}
    found = {}
    for place, node in enumerate(kernel.uops):
        if node.op != "PARAM" or node.arg not in arrays:
            continue
        elements, part = arrays[node.arg], overlapping.get(node.arg)
        others = part.others if part else ()
        shadow: Shadow | ShadowPart | None = None
        # Without a write through any of them there is nothing to race with.
        if races and written.intersection((node.arg, *others)):
            shadow = part or Shadow(len(elements))
        names = [params[position].name for position in (node.arg, *others)]
        record = inputs.written.get(node.arg)
        found[place] = Memory(names[0], elements, len(elements), record, shadow, names[1:])
    return found
