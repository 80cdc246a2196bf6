"""Checks a kernel's IR before it is rendered.

What one node must be is a table in `rules.py`; what spans nodes (nesting, visibility, variables
assigned before they are read) is here.
"""

from __future__ import annotations

import re

from hal_core.dtypes import DTYPES
from hal_core.errors import InvalidKernel
from hal_core.ir.rules import RULES, SOURCE_COUNTS
from hal_core.ir.signature import LONGEST_NAME
from hal_core.ir.uop import Kernel, UOp

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)


def verify(kernel: Kernel) -> None:
    """Raises: InvalidKernel naming the first node that breaks a rule, and the rule."""
    if not _NAME.match(kernel.name) or kernel.signature.name != kernel.name:
        raise InvalidKernel(
            f"kernel {kernel.name!r}",
            "the name is a C identifier, and the signature has the same",
            got=kernel.signature.name,
        )
    for name in (kernel.name, *(param.name for param in kernel.signature.params)):
        if len(name) > LONGEST_NAME:
            raise InvalidKernel(
                f"kernel {kernel.name[:20]!r}",
                f"the name {name[:20]!r}... has too many letters",
                got=len(name),
                limit=LONGEST_NAME,
            )
    walk = _Walk()
    for index, node in enumerate(kernel.uops):
        problem = _shape(node) or walk.sources(node) or RULES[node.op](node, kernel)
        problem = problem or walk.step(node)
        if problem:
            where = f", line {node.line}" if getattr(node, "line", 0) else ""
            raise InvalidKernel(
                f"kernel {kernel.name}", f"node {index}{where}, {node!r}: {problem}"
            )
    if walk.open:
        raise InvalidKernel(f"kernel {kernel.name}", f"{walk.open[-1]!r} is never closed")


class _Walk:
    """What is open, visible and assigned at one place of the list."""

    def __init__(self) -> None:
        self.open: list[UOp] = []  # RANGE, IF, ELSE around this place
        self.scopes: list[list[int]] = [[]]  # ids of the nodes each open block has so far
        self.visible: set[int] = set()  # all of them
        self.seen: set[int] = set()
        self.assigned: set[int] = set()  # ids of the VARs with a value on every path to here
        self.before: list[set[int]] = []  # `assigned` at the start of each open block
        self.after_then: dict[int, set[int]] = {}

    def sources(self, node: UOp) -> str | None:
        if id(node) in self.seen:
            return "a node stands in the list once"
        for source in node.src:
            if id(source) not in self.visible:
                if id(source) in self.seen:
                    return f"{source!r} was computed inside a block that has ended"
                return f"{source!r} does not stand earlier in the list"
        return None

    def step(self, node: UOp) -> str | None:
        problem = None
        if node.op in ("ELSE", "ENDIF", "ENDRANGE"):
            problem = self._close(node)
        elif node.op == "SET":
            self.assigned.add(id(node.src[0]))
        elif node.op == "GET" and id(node.src[0]) not in self.assigned:
            problem = "the variable is not assigned on every path to here"
        self.seen.add(id(node))
        if node.op == "RANGE":  # a counter is visible inside its loop only
            self._open(node)
        self.visible.add(id(node))
        self.scopes[-1].append(id(node))
        if node.op in ("IF", "ELSE"):
            self._open(node)
        return problem

    def _open(self, node: UOp) -> None:
        self.open.append(node)
        self.scopes.append([])
        self.before.append(set(self.assigned))

    def _close(self, node: UOp) -> str | None:
        innermost = self.open[-1] if self.open else None
        opener = innermost
        if innermost is not None and innermost.op == "ELSE":
            opener = innermost.src[0] if node.op == "ENDIF" else None
        if opener is None or opener is not node.src[0]:
            return f"it does not close the innermost open block, {innermost!r}"
        self.open.pop()
        self.visible.difference_update(self.scopes.pop())
        before = self.before.pop()
        if node.op == "ELSE":
            self.after_then[id(opener)] = self.assigned
            self.assigned = before
        elif node.op == "ENDIF" and id(opener) in self.after_then:
            self.assigned &= self.after_then.pop(id(opener))
        else:  # a loop may run no time, an IF without ELSE may be passed by
            self.assigned = before
        return None


def _shape(node: object) -> str | None:
    """Everything the rules may take for granted."""
    if not isinstance(node, UOp):
        return "not a UOp"
    if not isinstance(node.op, str) or node.op not in RULES:
        return "no such op"
    if not isinstance(node.src, tuple) or not all(isinstance(part, UOp) for part in node.src):
        return "src is a tuple of UOps"
    count = SOURCE_COUNTS.get(node.op, 2)
    if len(node.src) != count:
        return f"{node.op} has {count} sources, not {len(node.src)}"
    if node.dtype is not None and DTYPES.get(getattr(node.dtype, "name", "")) is not node.dtype:
        return "its dtype is not a dtype"
    return None
