"""The kernel IR, executable: what every backend's result is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hal_core.geometry import Dim3, Extent
from hal_core.interpreter.arguments import Arguments, Given
from hal_core.interpreter.executor import Patience, Run
from hal_core.interpreter.lanes import Lanes
from hal_core.interpreter.memory import Memory
from hal_core.interpreter.overlap import Record, records
from hal_core.interpreter.prepared import Script
from hal_core.interpreter.races import Shadow
from hal_core.ir import Kernel
from hal_core.ir.verify import verify
from hal_core.lang import KernelFunction

Array = npt.NDArray[Any]


def interpret(
    kernel: KernelFunction | Kernel,
    *bufs: Array,
    vals: Sequence[Any] = (),
    grid: Extent | None = None,
    block: Extent | None = None,
    threads: Extent | None = None,
    races: bool = True,
    initialised: Sequence[Array | None] = (),
    turns: int = 1_000_000,
) -> None:
    """Runs a kernel as its language says, on numpy arrays, which are written in place.

    Everything is as at a launch: `bufs` in the order of the pointers, `vals` in that of the
    values, and the geometry. A bfloat16 array is one of ml_dtypes, or its bits as uint16.
    With `threads=` alone a block has 64 of them, 8 x 8 or 4 x 4 x 4: some are usually too many.

    `races=False` does not look for races; of arrays that overlap, accesses through either count.
    `initialised` has for each buffer a mask of the elements that may be read before the kernel
    writes them; None, or nothing: all. `turns` bounds the turns of all loops of a block.

    Threads do the atomics of one instruction in the order of their numbers. A kernel that waits
    in a loop for what another thread does never ends: the language promises no progress.

    Raises: KernelFault for what the language leaves undefined: an index out of bounds
    (OutOfBounds) or one whose arithmetic overflows int32, a read of shared memory that nobody has
    written, a race, a barrier that not all threads of a block reach, an assert that does not hold
    (FailedAssert), a loop that does not end. InvalidArgument for what a launch refuses too.
    """
    lowered = kernel.lower() if isinstance(kernel, KernelFunction) else kernel
    verify(lowered)
    arguments = Arguments(lowered, bufs, tuple(vals), initialised)
    extents, shape = arguments.geometry(grid, block, threads)
    if 0 in extents or 0 in shape:
        return
    carry_out(Script(lowered), arguments.given, (extents, shape), Patience(turns), races=races)


def carry_out(
    script: Script,
    given: Given,
    geometry: tuple[Dim3, Dim3],
    patience: Patience,
    *,
    races: bool = True,
    seed: int = 0,
) -> None:
    """What `interpret` does once everything is checked, for devices whose launches are checked.

    `seed` other than 0 puts blocks, and the threads of a block, into another order.
    Raises: KernelFault. What was written before is written.
    """
    memories = _buffers(script, given, races)
    with np.errstate(all="ignore"):
        for lanes in Lanes.parts(*geometry, seed):
            Run(script, lanes, given.values, memories, races, patience).block(script.steps)


def _buffers(script: Script, given: Given, races: bool) -> dict[int, Memory]:
    """The memory of each pointer, by the node's place."""
    params, arrays = script.kernel.signature.params, given.arrays
    written = {node.arg for node in script.kernel.uops if id(node) in script.written}
    overlapping = records(arrays) if races else {}
    found = {}
    for place, node in enumerate(script.kernel.uops):
        if node.op != "PARAM" or node.arg not in arrays:
            continue
        elements, record = arrays[node.arg], overlapping.get(node.arg)
        beside = record.beside if record else ()
        shadow: Shadow | Record | None = None
        if races and written.intersection((node.arg, *beside)):
            shadow = record or Shadow(len(elements))
        names = [params[position].name for position in (node.arg, *beside)]
        known = given.written.get(node.arg)
        found[place] = Memory(names[0], elements, len(elements), known, shadow, names[1:])
    return found
