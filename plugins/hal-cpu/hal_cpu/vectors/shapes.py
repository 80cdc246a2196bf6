"""Find which values differ between the threads of a gang, and which loops its threads leave apart.

A gang is a few threads that are neighbours along x. A value is *uniform* if all of them have the
same one, else *varying*. A loop is *divergent* if one of its threads may leave it before another.
"""

from __future__ import annotations

from collections.abc import Sequence

from hal_core.dtypes import int32, int64
from hal_cpu.vectors.tree import If, Item, Loop, Path, Region, Step, facts, walk
from hal_kernel.ir.uop import ATOMIC_OPS, LEAVES, UOp

# SPECIALs that differ along x, and those that differ where a gang may lie across rows.
_OWN = {("global_idx", 0): 1, ("thread_idx", 0): 1, ("subgroup_lane", 0): 1}
_ACROSS = {(name, axis): 0 for name in ("global_idx", "thread_idx") for axis in (1, 2)}
_PLAIN = frozenset({"IF", "LOOP", "STORE", "VAR", "PARAM", "CONST", "THREADS", "FENCE", "BALLOT"})
# Not by all sources.
_JUDGED = ATOMIC_OPS | LEAVES | {"SPECIAL", "SET", "LOAD", "RANGE", "SHUFFLE"}
_STRIDED = frozenset({"SPECIAL", "RANGE", "ADD", "SUB", "MUL", "CAST"})
_AGAIN = _JUDGED | _STRIDED
_LIKELY = frozenset({"ADD", "SUB", "MIN", "MAX", "WHERE", "RANGE", "GET"})


class Shapes:
    """The values that vary in a kernel, and the loops that threads leave apart."""

    def __init__(self, root: Sequence[Item], across_rows: bool = False) -> None:
        """`across_rows`: a gang may have threads of several rows."""
        self._own = {**_OWN, **_ACROSS} if across_rows else _OWN
        self.varying: set[UOp] = set()
        self.divergent: set[UOp] = set()  # RANGEs and LOOPs
        self.staggered: set[UOp] = set()  # RANGEs whose ends differ by constants between neighbours
        self.returns_vary = False  # some thread of a gang may end before another
        self.paths: dict[UOp, Path] = {}
        uses: dict[UOp, list[Path]] = {}
        self._uses: dict[UOp, list[UOp]] = {}
        for item, path in walk(root):
            node = item if isinstance(item, UOp) else item.node
            self.paths[node] = path
            if node.op in ("SET", "GET"):
                uses.setdefault(node.src[0], []).append(path)
                self._uses.setdefault(node.src[0], []).append(node)
        self.order = {node: place for place, node in enumerate(self.paths)}
        self._homes = {variable: _common(paths) for variable, paths in uses.items()}
        self._strides: dict[UOp, int | None] = {}  # of what varies
        self._likely: dict[UOp, int | None] = {}
        before = -1
        varying = self.varying
        judged = [node for node in self.paths if node.op not in _PLAIN]
        while before != (before := len(varying) + len(self.divergent)):
            for node in judged:
                if node.op in _JUDGED:
                    self._visit(node, self.paths[node])
                elif node not in varying and not varying.isdisjoint(node.src):
                    varying.add(node)
                if node.op in _STRIDED and node in varying:
                    self._strides[node] = self._stride(node)
            # What varies stays so, and only strides and what is judged may change.
            judged = [n for n in judged if n.op in _AGAIN or n not in varying]
        self.expected = self._expected()
        for node in self.paths:
            if node.op in _LIKELY:
                self._likely[node] = self._likely_stride(node)
        self.staggered |= self._counting()
        # Accesses that leave elements out between neighbours.
        accesses = [node for node in self.paths if node.op in ("LOAD", "STORE")]
        self.strided = [one for one in accesses if (self.likely_stride(one.src[1]) or 0) > 1]

    def is_inside(self, variable: UOp, loop: Loop) -> bool:
        """Tell whether a variable is used in a loop only."""
        return any(item is loop for item, _ in self._homes[variable])

    def outlives(self, variable: UOp, path: Path) -> bool:
        """Tell whether what a variable holds may be read after threads leave a loop, the last step.

        They read it behind the loop, or in the loop, when one around it brings them back.
        """
        n, uses = len(path), self._uses.get(variable, ())
        if any(use.op == "GET" and self.paths[use][:n] != path for use in uses):
            return True
        around = [place for place, (item, _) in enumerate(path[:-1]) if isinstance(item, Loop)]
        start = self.order[path[-1][0].node]
        sets = [self.paths[use] for use in uses if use.op == "SET" and self.order[use] < start]
        # A path between the two loops: each turn of the outer one sets it before the inner one.
        return bool(around) and not any(
            one == path[: max(len(one), around[-1] + 1)] for one in sets
        )

    def differs(self, step: Step) -> bool:
        """Tell whether only some threads of a gang may go through a step of a path."""
        item, _ = step
        if isinstance(item, If):
            return item.node.src[0] in self.varying
        return item.node in self.divergent

    def _visit(self, node: UOp, path: Path) -> None:
        op, varying = node.op, self.varying
        if op == "SPECIAL":
            if node.arg in self._own:
                varying.add(node)
        elif op == "SET":
            variable, value = node.src
            inside = path[len(self._homes[variable]) :]
            if (
                value in varying
                or variable.op == "SPILL"
                or any(self.differs(step) for step in inside)
            ):
                varying.add(variable)
        elif op == "LOAD":
            if node.src[1] in varying or node.src[0].op == "LOCAL":
                varying.add(node)
        elif op in ATOMIC_OPS:
            varying.add(node)
        elif op == "SHUFFLE":
            if varying.issuperset(node.src):
                varying.add(node)
        elif op == "RANGE":
            if node.src[0] in varying or node.src[1] in varying:
                varying.add(node)
                self.divergent.add(node)  # with equal strides too: an end may wrap around
                if None not in [self.stride(end) for end in node.src[:2]]:
                    self.staggered.add(node)
        else:
            self._leave(op, path)

    def _leave(self, op: str, path: Path) -> None:
        """Note the loops that a BREAK, CONTINUE or RETURN makes divergent."""
        loops = [n for n, (item, _) in enumerate(path) if isinstance(item, Loop)]
        target = loops[-1] if loops and op != "RETURN" else -1
        if not any(self.differs(step) for step in path[target + 1 :]):
            return
        if op == "RETURN":
            self.returns_vary = True
        for n in loops:
            if n == target or (n > target and op != "CONTINUE"):
                self.divergent.add(path[n][0].node)
                self.staggered.discard(path[n][0].node)

    def stride(self, node: UOp) -> int | None:
        """Return the difference between neighbours, or None if it is no known constant.

        It is but likely: numbers may wrap around, and a gang may lie across rows.
        """
        return self._strides.get(node) if node in self.varying else 0

    def _stride(self, node: UOp) -> int | None:
        """Return the stride of what varies, from those of its sources."""
        if node.op == "SPECIAL":
            return self._own[node.arg]
        if node.op == "RANGE":
            return self.stride(node.src[0])
        if node.dtype is None or node.dtype.kind not in "iu":
            return None
        if node.op in ("ADD", "SUB"):
            a, b = map(self.stride, node.src)
            if a is None or b is None:
                return None
            return a + b if node.op == "ADD" else a - b
        if node.op == "MUL":
            for part, factor in (node.src, node.src[::-1]):
                if factor.op == "CONST":
                    stride = self.stride(part)
                    return None if stride is None else stride * int(factor.arg)
        if node.op == "CAST" and node.dtype is int64 and node.src[0].dtype is int32:
            return self.stride(node.src[0])
        return None

    def _counting(self) -> set[UOp]:
        """Return the LOOPs that lanes leave by comparing an index, as all do nearly together."""
        found, others = set[UOp](), set[UOp]()
        for node, path in self.paths.items():
            if node.op == "BREAK" and node.src[0].op == "LOOP":
                tests = [step[0].node.src[0] for step in path if isinstance(step[0], If)]
                counts = bool(tests) and self.is_index_test(tests[-1])
                (found if counts else others).add(node.src[0])
            elif node.op in ("CONTINUE", "RETURN"):
                others.update(step[0].node for step in path)
        return found - others

    def is_index_test(self, test: UOp) -> bool:
        """Tell whether a condition compares indices that grow by constants along x."""
        if test.op in ("AND", "OR"):
            return all(map(self.is_index_test, test.src))
        while test.op == "NOT":
            test = test.src[0]
        return test.op in ("LT", "LE", "GT", "GE") and all(
            self.likely_stride(part) is not None for part in test.src
        )

    def likely_stride(self, node: UOp) -> int | None:
        """Return `stride`, where clamps do nothing and choices take what differs."""
        return self._likely.get(node, self.stride(node))

    def _likely_stride(self, node: UOp) -> int | None:
        if node.op in ("ADD", "SUB") and node in self.varying:
            a, b = map(self.likely_stride, node.src)
            if a is not None and b is not None:
                return a + b if node.op == "ADD" else a - b
        if node.op in ("MIN", "MAX", "WHERE") and node in self.varying:
            strides = {self.likely_stride(source) for source in node.src[-2:]} - {0}
            return strides.pop() if len(strides) == 1 else None
        if node.op == "RANGE" and node in self.varying:
            return self.likely_stride(node.src[0])
        if node.op == "GET" and node.src[0] in self.expected:
            return self.expected[node.src[0]]
        return self.stride(node)

    def _expected(self) -> dict[UOp, int]:
        """Return the integer variables that likely differ by a constant between neighbours."""
        found: dict[UOp, int] = {}
        for node in self.paths:
            if node.op == "SET" and node.src[0] in self.varying:
                variable, value = node.src
                wide = (
                    variable.dtype and variable.dtype.kind in "iu" and variable.dtype.itemsize >= 4
                )
                if wide and variable.op == "VAR" and (stride := self.stride(value)):
                    found.setdefault(variable, stride)
        return found


def _common(paths: Sequence[Path]) -> Path:
    """Return what encloses all of them."""
    common = paths[0]
    for path in paths[1:]:
        n = 0
        for step, other in zip(common, path, strict=False):
            if step != other:
                break
            n += 1
        common = common[:n]
    return common


def lanes_leave(item: If | Loop | Region, shapes: Shapes) -> bool:
    """Tell whether threads that run an item may not all go on behind it."""
    inside = facts(item)
    return any(
        shapes.returns_vary
        if node.op == "RETURN"
        else node.src[0] in shapes.divergent and node.src[0] not in inside.loops
        for node in inside.leaves
    )
