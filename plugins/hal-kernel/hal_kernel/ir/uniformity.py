"""Find the values and the control flow that all threads of a block agree on.

A value is *varying* if two threads of a block may see different ones. A load is uniform when its
index is and all threads run it: without a race they all find the same element.

    t = hal.thread_idx(0)           varying
    n = x[hal.block_idx(0)]         uniform
    if t < n:                       divergent: some threads run the body
        hal.barrier()               fault: some threads never reach it

The same is found for the threads of a subgroup, which agree on more: on `subgroup_idx`, and on what
they get by a BALLOT; and for those of a row, the threads of a block that differ along x only.
"""

from __future__ import annotations

from collections.abc import Collection

from hal_kernel.ir.uop import ATOMIC_OPS, TOGETHER, Kernel, UOp

# SPECIALs that differ between the threads of a subgroup, and of a block.
_OWN_IN_SUBGROUP = frozenset({"thread_idx", "global_idx", "subgroup_lane"})
_OWN = _OWN_IN_SUBGROUP | {"subgroup_idx", "subgroup_threads"}
_JUDGED = TOGETHER | ATOMIC_OPS | {"SPECIAL", "LOAD", "GET", "SET"}  # not by all sources
_SPLITS = {
    "BREAK": "some threads break out of its loop before others",
    "CONTINUE": "some threads skip to the next iteration of its loop",
}
Cause = tuple[UOp, str]  # the node that divides the threads, and how
Fault = tuple[UOp, UOp, str]  # a node that threads reach together, and its cause


def divergent(kernel: Kernel) -> Fault | None:
    """Return the first BARRIER that some threads of a block may not reach, and why.

    Or else the first SHUFFLE or BALLOT that some threads of a subgroup may not reach.
    """
    ops = {node.op for node in kernel.uops}
    fault = Uniformity(kernel).fault if "BARRIER" in ops else None
    if fault is None and ops & TOGETHER:
        fault = Uniformity(kernel, of_subgroup=True).fault
    return fault


class Uniformity:
    """The values that vary, and the nodes that not all threads of a block run."""

    def __init__(
        self, kernel: Kernel, of_subgroup: bool = False, of_row: bool = False,
        loops: Collection[UOp] = frozenset(),
    ) -> None:  # fmt: skip
        self._of_subgroup, self._of_row = of_subgroup, of_row
        watched = TOGETHER if of_subgroup else {"BARRIER"}
        self.varying: set[UOp] = set()
        self.divided: set[UOp] = set()
        self.fault: Fault | None = None
        self.split_loops: dict[UOp, Cause] = {}  # loops that not all threads go on with
        self._returned: Cause | None = None
        before = -1
        # It ends, too, as soon as threads are known to disagree on one of `loops`.
        # A variable that is set late in a loop may vary from the start of its next iteration, so
        # the walk is repeated until it finds nothing more.
        while before != (before := len(self.varying) + len(self.split_loops)):
            if not (self.varying.isdisjoint(loops) and self.split_loops.keys().isdisjoint(loops)):
                return
            self._returned, self.fault, self.divided = None, None, set()
            # Blocks, with what makes threads diverge in each or around it.
            open_: list[tuple[UOp, Cause | None]] = []
            for node in kernel.uops:
                op = node.op
                if op in ("ENDRANGE", "ENDLOOP", "ENDIF"):
                    while open_.pop()[0] is not node.src[0]:
                        pass
                cause = self._returned or (open_[-1][1] if open_ else None)
                if cause:
                    self.divided.add(node)
                if node not in self.varying and self._varies(node, cause is not None):
                    self.varying.add(node)
                    if op == "SET":
                        self.varying.add(node.src[0])
                if op in ("IF", "RANGE", "LOOP"):
                    open_.append((node, self._divides(node) or cause))
                elif op == "ELSE":
                    open_.append((node, cause))
                elif op in watched and cause and self.fault is None:
                    self.fault = (node, *cause)
                elif cause and op in ("BREAK", "CONTINUE"):
                    self.split_loops[node.src[0]] = (node, _SPLITS[op])
                elif cause and op == "RETURN":
                    self._returned = (node, "some threads have returned before")
                    for block, _ in open_:  # their next iteration lacks those threads
                        if block.op in ("RANGE", "LOOP"):
                            self.split_loops[block] = self._returned

    def _divides(self, node: UOp) -> Cause | None:
        if not self.varying.isdisjoint(node.src):
            what = "the condition" if node.op == "IF" else "the range"
            return node, f"{what} differs between them"
        return self.split_loops.get(node)

    def _varies(self, node: UOp, divided: bool) -> bool:
        op = node.op
        if op not in _JUDGED:
            return not self.varying.isdisjoint(node.src)
        if op == "SPECIAL":
            own = node.arg[0] in (_OWN_IN_SUBGROUP if self._of_subgroup else _OWN)
            return own and not (self._of_row and node.arg[1])
        if op in ATOMIC_OPS or (op == "LOAD" and node.src[0].op == "LOCAL"):
            return True
        if op in TOGETHER and not self._of_subgroup:
            return True
        if op == "BALLOT":
            return False
        if op == "SHUFFLE":  # of one thread, if all name the same
            return self.varying.issuperset(node.src)
        if op == "GET":
            return node.src[0] in self.varying
        # A SET or a LOAD: not of where, but of what and when.
        return divided or not self.varying.isdisjoint(node.src[1:])
