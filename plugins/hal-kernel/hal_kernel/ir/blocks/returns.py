"""Write early returns as IFs, so that what a thread does lies in one IF, not behind one.

    if i >= n:                  if not i >= n:
        return          ->          y[i] = x[i]
    y[i] = x[i]

The IF is then a guard: `thread_bounds` makes it the end of a loop, and `lockstep` takes it off. A
CONTINUE becomes an IF in the same way, so that threads can run its loop in lockstep; a step that
both sides of that IF end with, as in `i += s; continue`, moves behind it.
"""

from __future__ import annotations

from itertools import accumulate

from hal_core.dtypes import bool_
from hal_kernel.ir.uop import LEAVES, PURE, STRUCTURE, UOp

_MOST = 64  # RETURNs and CONTINUEs, and nested blocks: compilers of C allow 256
_DEPTH = {"IF": 1, "RANGE": 1, "LOOP": 1, "ENDIF": -1, "ENDRANGE": -1, "ENDLOOP": -1}


def without_returns(uops: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """Return the nodes of a kernel without the RETURNs and CONTINUEs that an IF can replace.

    Such a node ends one side of an IF, and what follows the IF moves into the other side. It has
    no barrier: the control flow around barriers stays as it was written.
    """
    ops = [node.op for node in uops]
    count = ops.count("RETURN") + ops.count("CONTINUE")
    if not count or count > _MOST or max(accumulate([_DEPTH.get(op, 0) for op in ops])) > _MOST:
        return uops
    return tuple(reversed(_moved(list(uops), [], "RETURN")))


def _moved(nodes: list[UOp], rest: list[UOp], leave: str) -> list[UOp]:
    """Return `nodes` and `rest`, with which the thread ends, without RETURNs where possible.

    If `leave` is CONTINUE, an iteration ends with them. `rest`, which was rewritten before, and the
    result have their last node first.
    """
    for part in reversed(_parts(nodes)):
        if part[0].op == leave:
            rest = []
        elif part[0].op == "IF":
            rest = _joined(part, rest, leave)
        elif part[0].op in ("RANGE", "LOOP") and "CONTINUE" in [node.op for node in part]:
            body = _moved(part[1:-1], [], "CONTINUE")
            if part[0].op == "LOOP":
                body = _stepped(body[::-1])[::-1]
            rest += [part[-1], *body, part[0]]
        else:
            rest.extend(reversed(part))
    return rest


def _joined(part: list[UOp], rest: list[UOp], leave: str) -> list[UOp]:
    """Return an IF, with `rest` in the side that does not leave if one does."""
    block, line = part[0], part[0].line
    halves = [n for n, node in enumerate(part) if node.op == "ELSE" and node.src[0] is block]
    middle = halves[0] if halves else len(part) - 1
    then, other = part[1:middle], part[middle + 1 : -1]
    leaves = [bool(side) and side[-1].op == leave for side in (then, other)]
    if (rest and not any(leaves)) or "BARRIER" in [node.op for node in (*part, *rest)]:
        rest.extend(reversed(part))
        return rest
    # Behind a BREAK nothing is run, and a BREAK may become a flag.
    ended = [not rest or (bool(side) and side[-1].op in LEAVES) for side in (then, other)]
    then = _moved(then, [] if ended[0] else rest, leave)
    other = _moved(other, [] if ended[1] else rest, leave)
    if not (then or other):
        return []
    made: list[UOp] = []
    if not then:
        opposite = UOp("NOT", bool_, block.src, None, line)
        made, block, then, other = [opposite], UOp("IF", None, (opposite,), None, line), other, []
    otherwise = [*other, UOp("ELSE", None, (block,), None, line)] if other else []
    return [UOp("ENDIF", None, (block,), None, part[-1].line), *otherwise, *then, block, *made]


def _stepped(body: list[UOp]) -> list[UOp]:
    """Return a loop's body, with the SET that both sides of its last IF end with behind the IF.

    `if x[i] < 0: i += step; continue` is so a loop with one step at its end.
    """
    block = body[-1].src[0] if body and body[-1].op == "ENDIF" else None
    if block is None:
        return body
    start = body.index(block)
    middle = next(
        (n for n, node in enumerate(body) if node.op == "ELSE" and node.src[0] is block), 0
    )
    if not middle:
        return body
    sides = [_stepped(body[start + 1 : middle]), _stepped(body[middle + 1 : -1])]
    step, other = (side[-1] if side else block for side in sides)
    inside, same = {*sides[0], *sides[1]}, dict[UOp, UOp]()
    if step.op != "SET" or other.op != "SET" or not _is_same(step, other, inside, same):
        return body
    variable = step.src[0]
    sets = [n for n in inside if n.op == "SET" and n.src[0] is variable]
    gets = [n for n in same if n.op == "GET" and n.src[0] is not variable]
    if len(sets) != 2 or gets:
        return body
    then, otherwise = _without(sides[0], set(same)), _without(sides[1], set(same.values()))
    head, line = body[: start + 1], block.line
    if not then:
        opposite = UOp("NOT", bool_, block.src, None, line)
        block = UOp("IF", None, (opposite,), None, line)
        head, then, otherwise = [*body[:start], opposite, block], otherwise, []
    if otherwise:
        otherwise = [UOp("ELSE", None, (block,), None, line), *otherwise]
    made = [*head, *then, *otherwise, UOp("ENDIF", None, (block,), None, body[-1].line)]
    new: dict[UOp, UOp] = {}
    for node in sides[0]:
        if node in same:
            sources = tuple([new.get(source, source) for source in node.src])
            new[node] = UOp(node.op, node.dtype, sources, node.arg, node.line)
    return [*made, *new.values()]


def _is_same(node: UOp, other: UOp, inside: set[UOp], same: dict[UOp, UOp]) -> bool:
    """Tell whether the two sides of an IF, whose nodes are `inside`, compute the same.

    `same` gets the nodes of the first side, with those of the second.
    """
    if node is other or same.get(node) is other:
        return True
    kinds = [(n.op, n.dtype, repr(n.arg), len(n.src)) for n in (node, other)]
    known = node.op in PURE or node.op in ("CONST", "SPECIAL", "SET", "GET")
    if not known or kinds[0] != kinds[1] or node not in inside or other not in inside:
        return False
    same[node] = other
    return all(_is_same(a, b, inside, same) for a, b in zip(node.src, other.src, strict=True))


def _without(side: list[UOp], gone: set[UOp]) -> list[UOp]:
    """Return one side of an IF without such nodes as it does not use."""
    used: set[UOp] = set()
    kept: list[UOp] = []
    for node in reversed(side):
        if node in used or node not in gone:
            used.update(node.src)
            kept.append(node)
    return kept[::-1]


def _parts(nodes: list[UOp]) -> list[list[UOp]]:
    """Return the nodes cut into whole IFs and loops, nodes that leave, and runs of other nodes."""
    parts: list[list[UOp]] = []
    depth, part = 0, list[UOp]()
    for node in nodes:
        alone = node.op in STRUCTURE
        if alone and not depth:
            part = []
        if not part:
            parts.append(part)
        part.append(node)
        if alone:
            depth += _DEPTH.get(node.op, 0)
            part = part if depth else []
    return parts
