"""A graph as text for people, and as a picture for Graphviz."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hal_core.graph.node import Node

_MOST = 40  # rows of the table; a graph may have thousands
_ENDS = 20


def table(device: str, nodes: Sequence[Node], after: Sequence[tuple[int, ...]] | None) -> str:
    """Return a line for each node: its number, what it does, bytes, and the nodes before it.

    `after` is None where the order is not known, as memory is gone.
    """
    rows = [(str(node.number), node.title, str(node.nbytes)) for node in nodes]
    widths = [max((len(row[at]) for row in rows), default=0) for at in range(3)]
    gone = ", whose memory is gone" if after is None else ""
    lines = [f"graph of {device}: {len(nodes)} nodes{gone}"]
    for row, before in zip(rows, after or [()] * len(rows), strict=True):
        cells = f"{row[0]:>{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}} bytes"
        lines.append(f"{cells}  after {', '.join(map(str, before))}" if before else cells)
    if len(nodes) > _MOST:
        lines[_ENDS + 1 : -_ENDS] = [f"... {len(nodes) - 2 * _ENDS} more"]
    return "\n".join(lines)


def dot(nodes: Sequence[Node], after: Sequence[tuple[int, ...]]) -> str:
    """Return the graph in the language of Graphviz."""
    lines = ["digraph graph_of_work {"]
    lines += [f'  n{node.number} [label="{node.number} {node.title}"];' for node in nodes]
    for number, before in enumerate(after):
        lines += [f"  n{first} -> n{number};" for first in before]
    return "\n".join([*lines, "}"])
