"""Whether the threads of a kernel may be interleaved access by access."""

from __future__ import annotations

from hal_core.ir.uop import Kernel


def stores_last(kernel: Kernel) -> bool:
    """Whether each thread does all its loads before its only store.

    Threads that do not race may then run in lockstep, all loads before all stores, whatever their
    pointers alias: vectorising needs no check. With a load behind a store, or two stores, the two
    may be of one element in one thread, and compilers that are told to ignore dependences between
    threads have been seen to swap them.
    """
    stored, depth = False, 0
    for uop in kernel.uops:
        if uop.op == "RANGE":
            depth += 1
        elif uop.op == "ENDRANGE":
            depth -= 1
        elif uop.op in ("LOAD", "STORE"):
            if stored or (uop.op == "STORE" and depth):
                return False
            stored = uop.op == "STORE"
    return True
