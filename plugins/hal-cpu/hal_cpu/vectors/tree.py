"""Nest the nodes of a kernel: IFs with their sides, loops with their bodies, regions of threads.

    if i >= n:                   If(i >= n)
        return          ->           [RETURN]
    y[i] = x[i]                      [LOAD, STORE]

What stands behind an IF of which one side ends with a jump becomes part of its other side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from hal_cpu.vectors.functions import calls_library, operations
from hal_kernel.ir.expand import FUNCTIONS
from hal_kernel.ir.uop import ATOMIC_OPS, LEAVES, UOp

CHANGES = ATOMIC_OPS | {"STORE", "FENCE"}  # of memory
_NOTED = CHANGES | LEAVES | {"SET", "GET", "LOAD"}


class Facts(NamedTuple):
    """Facts of a block and of all blocks in it, which writers ask for again and again."""

    nodes: int  # that are no blocks themselves
    sets: tuple[UOp, ...]  # variables, each once
    leaves: tuple[UOp, ...]  # BREAKs, CONTINUEs and RETURNs
    loops: tuple[UOp, ...]
    accesses: bool  # it accesses memory, or may call the C library
    changes: bool  # it has a node of CHANGES
    has_effects: bool  # it changes what stays when its gang starts again

    @property
    def is_hard(self) -> bool:
        return bool(self.loops or self.leaves)


class Block(list["Item"]):
    """Items in order, which remember their facts, as each IF and loop does."""

    __slots__ = ("facts",)
    facts: Facts


@dataclass(eq=False, slots=True)
class If:
    node: UOp
    sides: tuple[list[Item], list[Item]] = field(default_factory=lambda: (Block(), Block()))
    facts: Facts = field(init=False)


@dataclass(eq=False, slots=True)
class Loop:
    node: UOp
    body: list[Item] = field(default_factory=Block)
    facts: Facts = field(init=False)


@dataclass(eq=False, slots=True)
class Region:
    """A region: the work of each thread of a block between two barriers."""

    node: UOp
    body: list[Item] = field(default_factory=Block)
    facts: Facts = field(init=False)


Item = UOp | If | Loop | Region
Step = tuple[If | Loop | Region, int]  # an item, and which of its sides
Path = tuple[Step, ...]  # what encloses a node, outermost first
_SKIPPED = frozenset({"ASSERT", "PRINT", "BARRIER"})


def nested(uops: Iterable[UOp]) -> tuple[list[Item], dict[UOp, list[Item]]]:
    """Return the nodes of a kernel as a tree, and the bodies of its regions."""
    root: list[Item] = []
    bodies: dict[UOp, list[Item]] = {}
    blocks = [root]
    open_: list[If | Loop | Region] = []
    for node in uops:
        op = node.op
        if op in ("IF", "RANGE", "LOOP", "THREADS"):
            item = If(node) if op == "IF" else Region(node) if op == "THREADS" else Loop(node)
            blocks[-1].append(item)
            open_.append(item)
            blocks.append(item.sides[0] if isinstance(item, If) else item.body)
            if op == "THREADS":
                bodies[node] = blocks[-1]
        elif op == "ELSE":
            opened = open_[-1]
            if isinstance(opened, If):
                blocks[-1] = opened.sides[1]
        elif op in ("ENDIF", "ENDRANGE", "ENDLOOP", "ENDTHREADS"):
            blocks.pop()
            open_.pop()
        elif op not in _SKIPPED:
            blocks[-1].append(node)
    return root, bodies


def settle(block: list[Item]) -> None:
    """Give an IF in a block what runs behind one of its sides only, and the last store of both."""
    _move_into_sides(block)
    _store_once(block)


def _move_into_sides(block: list[Item]) -> None:
    """Move what follows an IF that one side leaves into its other side, everywhere in a block."""
    for place, item in enumerate(block):
        if isinstance(item, UOp):
            continue
        if isinstance(item, If):
            rest = block[place + 1 :]
            leaving = [jumps(side) for side in item.sides]
            if rest and any(leaving):
                del block[place + 1 :]
                if not all(leaving):
                    item.sides[leaving.index(False)].extend(rest)
            for side in item.sides:
                _move_into_sides(side)
            if rest and any(leaving):
                return
        else:
            _move_into_sides(item.body)


def _store_once(block: list[Item]) -> None:
    """Store once behind an IF of which both sides end with a store to the same element.

    Lanes then choose between values, and no store has a mask.
    """
    for place in range(len(block) - 1, -1, -1):
        item = block[place]
        if isinstance(item, UOp):
            continue
        for side in sides_of(item):
            _store_once(side)
        if isinstance(item, If) and (stores := _last_stores(item)):
            memory, index, value = stores[0].src
            line = stores[0].line
            variable = UOp("VAR", value.dtype, (), "stored", line)
            for side, store in zip(item.sides, stores, strict=True):
                side[-1] = UOp("SET", None, (variable, store.src[2]), None, line)
            chosen = UOp("GET", value.dtype, (variable,), None, line)
            behind = [chosen, UOp("STORE", None, (memory, index, chosen), None, line)]
            block[place : place + 1] = [variable, item, *behind]


def _last_stores(item: If) -> list[UOp]:
    """Return the stores that both sides of an IF end with, if they are to the same element."""
    last = [side[-1] for side in item.sides if side]
    stores = [node for node in last if isinstance(node, UOp) and node.op == "STORE"]
    same = len(stores) == 2 and stores[0].src[:2] == stores[1].src[:2]
    return stores if same and all(node.arg is None for node in stores) else []


def jumps(block: list[Item]) -> bool:
    """Tell whether a block ends with a BREAK, a CONTINUE or a RETURN."""
    last = block[-1] if block else None
    return isinstance(last, UOp) and last.op in LEAVES


def walk(block: Iterable[Item], path: Path = ()) -> Iterator[tuple[Item, Path]]:
    """Yield each item of a block and of all blocks in it, in order, with what encloses it."""
    pending = [(iter(block), path)]
    while pending:
        items, path = pending[-1]
        for item in items:
            yield item, path
            if isinstance(item, UOp):
                continue
            if isinstance(item, If):
                pending.append((iter(item.sides[1]), (*path, (item, 1))))
                pending.append((iter(item.sides[0]), (*path, (item, 0))))
            else:
                pending.append((iter(item.body), (*path, (item, 0))))
            break
        else:
            pending.pop()


def facts(part: list[Item] | If | Loop | Region) -> Facts:
    """Return the facts of a block, or of an item alone. Order: neither may change after it."""
    try:
        return part.facts  # type: ignore[union-attr]  # a rest of a block, a plain list, has none
    except AttributeError:
        pass
    nodes, accesses, changes, has_effects = 0, False, False, False
    sets, leaves = dict[UOp, None](), list[UOp]()
    loops = [part.node] if isinstance(part, Loop) else []
    inside: Iterable[Item | list[Item]] = part if isinstance(part, list) else sides_of(part)
    for item in inside:
        if not isinstance(item, UOp):
            inner = facts(item)
            nodes += inner.nodes
            sets |= dict.fromkeys(inner.sets)
            leaves += inner.leaves
            loops += inner.loops
            accesses |= inner.accesses
            changes |= inner.changes
            has_effects |= inner.has_effects
            continue
        op = item.op
        if op not in _NOTED:
            nodes += operations(item) if op in FUNCTIONS else 1
            accesses |= op in FUNCTIONS and calls_library(item)
            continue
        nodes += 1
        if op in ("SET", "GET"):
            accesses |= item.src[0].op == "SPILL"
            if op == "SET":
                sets[item.src[0]] = None
                has_effects |= item.src[0].op == "SPILL"
        elif op in LEAVES:
            leaves.append(item)
        else:
            accesses = True
            changes |= op in CHANGES
            stores = op == "STORE" and item.src[0].op != "LOCAL"
            has_effects |= stores or (op in ATOMIC_OPS and op != "ATOMICLOAD")
    found = Facts(nodes, tuple(sets), tuple(leaves), tuple(loops), accesses, changes, has_effects)
    if not isinstance(part, list) or isinstance(part, Block):
        part.facts = found
    return found


def sides_of(item: If | Loop | Region) -> tuple[list[Item], ...]:
    """Return the blocks of an item."""
    return item.sides if isinstance(item, If) else (item.body,)
