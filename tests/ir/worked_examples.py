"""The form of the examples that modules of `hal_kernel.ir` begin with: nodes before and after."""

from itertools import zip_longest


def side_by_side(before, after):
    rows = list(zip_longest(_lines(before), _lines(after), fillvalue=""))
    width = max(len(left) for left, _ in rows)
    return "\n".join(f"    {left:{width}} | {right}".rstrip() for left, right in rows)


def _lines(uops):
    places = {node: place for place, node in enumerate(uops)}
    made, depth = [], 0
    for place, node in enumerate(uops):
        depth -= node.op.startswith("END") or node.op == "ELSE"
        words = [node.op, *(f"%{places[source]}" for source in node.src)]
        words += [] if node.arg is None else [str(node.arg)]
        made.append(f"{place:2} {'  ' * depth}{' '.join(words)}")
        depth += node.op in ("IF", "ELSE", "RANGE", "LOOP", "THREADS")
    return made
