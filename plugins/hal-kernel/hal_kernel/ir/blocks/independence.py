"""Decide whether the memory accesses of several threads may be interleaved."""

from __future__ import annotations

from collections.abc import Sequence

from hal_kernel.ir.uop import ATOMIC_OPS, UOp, array_of
from hal_kernel.ir.vectors import follows

_LOOPS = {"RANGE": 1, "LOOP": 1, "ENDRANGE": -1, "ENDLOOP": -1}


def stores_last(uops: Sequence[UOp]) -> bool:
    """Tell whether each thread does all its loads of some memory before its only store to it.

    Threads that do not race may then run in lockstep, all loads before all stores, even if their
    pointers alias, so that vectorised code needs no alias check. A load after a store, or a second
    store, may access the element that the same thread stored before, and compilers that are told to
    ignore dependences between threads have been seen to swap such accesses. An atomic is a load and
    a store, a vector is one access, and of the two sides of an IF a thread runs one. A shared array
    aliases nothing, pointers may alias each other. `uops` contain no barrier.
    """
    depth = 0
    stored: set[UOp | None] = set()
    before: dict[UOp, set[UOp | None]] = {}  # IF -> what was stored ahead of its other side
    for place, uop in enumerate(uops):
        op = uop.op
        if op in _LOOPS:
            depth += _LOOPS[op]
        elif op in ATOMIC_OPS:
            return False
        elif op == "IF":
            before[uop] = stored.copy()
        elif op == "ELSE":
            before[uop.src[0]], stored = stored, before.get(uop.src[0], stored).copy()
        elif op == "ENDIF":
            stored |= before.pop(uop.src[0], set())
        elif op in ("LOAD", "STORE") and not (place and follows(uops[place - 1], uop)):
            array = array_of(uop.src[0])
            memory = array if array.op != "PARAM" else None  # None: any pointer
            # A store in a loop is more than one store.
            if memory in stored or (op == "STORE" and depth):
                return False
            if op == "STORE":
                stored.add(memory)
    return True
