"""Verify a kernel's IR before it is rendered.

`rules.py` has the rules for single nodes. This module has those for several nodes: blocks nest, a
node is used only where it is visible, a variable is assigned before it is read.
"""

from __future__ import annotations

import re
from typing import Any

from hal_core.dtypes import DTYPES, any_
from hal_core.errors import check_class, shown
from hal_core.signature import LONGEST_NAME, Signature
from hal_kernel.errors import InvalidKernel
from hal_kernel.ir.rules import RULES, SOURCE_COUNTS
from hal_kernel.ir.uniformity import divergent
from hal_kernel.ir.uop import CLOSES, LEAVES, LOCAL_LIMIT, OPENS, TABLE_LIMIT, Kernel, UOp, is_gated

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)


def verify(kernel: Kernel) -> None:
    """Check all rules. Raises: InvalidKernel naming the first node that breaks one."""
    check_class(kernel, Kernel, "verify", "Put @hal.kernel above a def; verify takes k.lower().")
    name: object = kernel.name
    signature: object = kernel.signature
    uops: object = kernel.uops
    are_nodes = isinstance(uops, (tuple, list))
    if not (isinstance(name, str) and isinstance(signature, Signature) and are_nodes):
        raise InvalidKernel(
            f"kernel {shown(name)}",
            "a kernel must have a name, a hal.Signature and a tuple of nodes",
            got=signature if are_nodes else uops,
            fix="Write hal.Kernel(name, hal.Signature.parse(name, text), uops).",
        )
    block: Any = kernel.block
    if block is not None and not (
        isinstance(block, tuple) and len(block) == 3 and all(type(one) is int for one in block)
    ):
        fix = "Write block=(64, 1, 1)."
        raise InvalidKernel(f"kernel {name!r}", "the block is not (x, y, z)", got=block, fix=fix)
    if not _NAME.match(name) or signature.name != name:
        raise InvalidKernel(
            f"kernel {name!r}",
            "the name must be a C identifier, and the signature must have the same",
            got=signature.name,
        )
    for label in (name, *(param.name for param in signature.params)):
        if len(label) > LONGEST_NAME:
            raise InvalidKernel(
                f"kernel {name[:20]!r}",
                f"the name {label[:20]!r}... has too many letters",
                got=len(label),
                limit=LONGEST_NAME,
            )
    _Walk(kernel).check()


def _line(node: object) -> str:
    line = getattr(node, "line", 0)
    return f", line {line}" if line else ""


# The ops that change which nodes are visible or assigned; for the others, the rule is enough.
_FOLLOWED = OPENS | CLOSES | LEAVES | {"SET", "GET", "SHARED"}


class _Walk:
    """The blocks that are open, and the nodes visible and assigned, at one place of the list."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.open: list[UOp] = []  # RANGE, LOOP, IF, ELSE around this place
        self.scopes: list[list[UOp]] = [[]]  # the nodes each open block has so far
        self.visible: set[UOp] = set()  # all nodes in `scopes`
        self.ended: set[UOp] = set()  # the nodes so far that are no longer visible
        self.left: UOp | None = None  # the BREAK, CONTINUE or RETURN after which nothing runs
        # the VARs that every path to this node has assigned; None: no path leads to it
        self.assigned: set[UOp] | None = set()
        self.before: list[set[UOp] | None] = []  # `assigned` at the start of each open block
        self.after_then: dict[UOp, set[UOp] | None] = {}  # at the end of an IF's first side
        self.at_breaks: dict[UOp, set[UOp] | None] = {}  # at all BREAKs of a loop

    def check(self) -> None:
        name, kernel = f"kernel {self.kernel.name}", self.kernel
        for index, node in enumerate(kernel.uops):
            problem = self.sources(node) or RULES[node.op](node, kernel)
            if not problem and (node.op in _FOLLOWED or self.left):
                problem = self.step(node)
            elif not problem:
                self.visible.add(node)
                self.scopes[-1].append(node)
            if problem:
                raise InvalidKernel(name, f"node {index}{_line(node)}, {node!r}: {problem}")
        if self.open:
            raise InvalidKernel(name, f"{self.open[-1]!r} is never closed")
        for what, nbytes, limit in (
            ("LOCALs of a thread", self.kernel.local_nbytes, LOCAL_LIMIT),
            ("TABLEs", self.kernel.table_nbytes, TABLE_LIMIT),
        ):
            if nbytes > limit:
                problem = f"the {what} have too many bytes, each rounded up to 16"
                fix = "Use a buffer, with elements for each thread where they need their own."
                raise InvalidKernel(name, problem, got=nbytes, limit=limit, fix=fix)
        found = divergent(self.kernel)
        if found is not None:
            node, cause, reason = found
            whole = "block" if node.op == "BARRIER" else "subgroup"
            raise InvalidKernel(
                name,
                f"the {node.op}{_line(node)} is not reached by all threads of a {whole}: {reason} "
                f"({cause!r}{_line(cause)})",
                fix="Move it to a place that all reach, and put only the work under the IF.",
            )

    def sources(self, node: UOp) -> str | None:
        """Return what is wrong with a node's form or sources; the rules rely on both."""
        given: object = node
        if not isinstance(given, UOp):
            return "not a UOp"
        op, dtype = node.op, node.dtype
        src: Any = node.src
        try:
            count = SOURCE_COUNTS[op]
        except (KeyError, TypeError):  # TypeError for what cannot be a key
            return "no such op"
        if not isinstance(src, tuple):
            return _NO_SOURCES
        if len(src) != count:
            free = is_gated(node) or op == "PRINT" or (op, len(src)) == ("ASSERT", 2)
            if not free:
                return f"{op} has {count} sources, not {len(src)}"
        if dtype is not None and id(dtype) not in _KNOWN:
            untyped = dtype is any_ and op == "PARAM"
            if not untyped:
                return "its dtype is not a dtype"
        if node in self.visible or node in self.ended:
            return "the node stands in the list twice"
        try:
            hidden = [source for source in src if source not in self.visible]
        except TypeError:  # for what cannot be in a set
            return _NO_SOURCES
        if not hidden:
            return None
        if not isinstance(hidden[0], UOp):
            return _NO_SOURCES
        if hidden[0] in self.ended:
            return f"{hidden[0]!r} was computed inside a block that has ended"
        return f"{hidden[0]!r} does not stand earlier in the list"

    def step(self, node: UOp) -> str | None:
        """Follow a node that changes what is visible or assigned, or that nothing may reach."""
        op = node.op
        problem = None
        if self.left is not None and op not in CLOSES:
            return f"no node may follow the {self.left.op} of its block"
        if op in CLOSES:
            problem = self._close(node)
        elif op in LEAVES:
            if op != "RETURN":
                loops = [block for block in self.open if block.op in ("RANGE", "LOOP")]
                if not loops or loops[-1] is not node.src[0]:
                    inner = loops[-1] if loops else None
                    return f"its source must be the innermost loop, {inner!r}"
            if op == "BREAK":
                known = self.at_breaks.get(node.src[0])
                self.at_breaks[node.src[0]] = _meet(known, self.assigned)
            self.left, self.assigned = node, None
        elif op == "SET" and self.assigned is not None:
            self.assigned.add(node.src[0])
        elif op == "GET" and self.assigned is not None and node.src[0] not in self.assigned:
            problem = "the variable is not assigned on every path to here"
        elif op == "SHARED" and self.open:
            problem = "shared memory must be declared outside of loops and IFs"
        if op == "RANGE":  # a counter is visible inside its loop only
            self._open(node)
        self.visible.add(node)
        self.scopes[-1].append(node)
        if op in OPENS and op != "RANGE":
            self._open(node)
        return problem

    def _open(self, node: UOp) -> None:
        self.open.append(node)
        self.scopes.append([])
        self.before.append(_copy(self.assigned))

    def _close(self, node: UOp) -> str | None:
        innermost = self.open[-1] if self.open else None
        opener = innermost
        if innermost is not None and innermost.op == "ELSE":
            opener = innermost.src[0] if node.op == "ENDIF" else None
        if opener is None or opener is not node.src[0]:
            return f"it does not close the innermost open block, {innermost!r}"
        self.open.pop()
        hidden = self.scopes.pop()
        self.visible.difference_update(hidden)
        self.ended.update(hidden)
        before = self.before.pop()
        self.left = None
        if node.op == "ELSE":
            self.after_then[opener] = self.assigned
            self.assigned = before
        elif node.op == "ENDLOOP":
            self.assigned = self.at_breaks.get(opener)
        elif node.op == "ENDRANGE":
            self.assigned = before  # the loop may run no iteration
        else:
            self.assigned = _meet(self.after_then.pop(opener, before), self.assigned)
        return None


def _copy(assigned: set[UOp] | None) -> set[UOp] | None:
    return None if assigned is None else set(assigned)


def _meet(first: set[UOp] | None, second: set[UOp] | None) -> set[UOp] | None:
    """Return the VARs that both paths have assigned; None is a path that ends before they meet."""
    if first is None or second is None:
        return _copy(first if second is None else second)
    return first & second


_NO_SOURCES = "src must be a tuple of UOps"
_KNOWN = frozenset(map(id, DTYPES.values()))
