"""Write a kernel's IR as text, one line per node, and read such text.

    kernel saxpy(y: float32*, x: const float32*, a: float32, n: int32)
    0 = PARAM float32 0 ; line 7
    4 = SPECIAL int32 ('global_idx', 0)
    5 = LT bool %4 %3
    6 = IF %5
    ...

Reading gives the same kernel, with its numbers, names and line numbers.
"""

from __future__ import annotations

import ast
import math
import re

from hal_core.dtypes import DTYPES, DType, any_
from hal_core.signature import Signature
from hal_kernel.errors import InvalidKernel
from hal_kernel.ir.uop import Kernel, UOp

_HEAD = re.compile(r"kernel (\w+)\(([^()]*)\)(?: block=(\(.*?\)))?( contract=False)?\Z")
# The argument is matched lazily, so that a line number after it is not taken for a part of it.
_NODE = re.compile(
    r"\d+ = (?P<op>[A-Z0-9]+)(?: (?P<dtype>[a-z]\w*))?(?P<src>(?: %\d+)*)"
    r"(?: (?P<arg>[^%;\s].*?))??(?: ; line (?P<line>\d+))?\Z"
)
_NAMED: dict[str, DType] = {**DTYPES, any_.name: any_}
# repr writes these floats as names, which are no literals of Python.
_NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def listing(kernel: Kernel) -> str:
    """Return the kernel as text. Equal kernels give equal text."""
    block = "" if kernel.block is None else f" block={kernel.block!r}"
    contract = "" if kernel.contract else " contract=False"
    lines = [f"kernel {kernel.name}({kernel.signature}){block}{contract}"]
    places: dict[UOp, int] = {}
    for place, node in enumerate(kernel.uops):
        places[node] = place
        words = [f"{place} = {node.op}"]
        words += [node.dtype.name] if node.dtype else []
        words += [f"%{places[source]}" for source in node.src]
        words += [repr(node.arg)] if node.arg is not None else []
        words += [f"; line {node.line}"] if node.line else []
        lines.append(" ".join(words))
    return "\n".join(lines) + "\n"


def parse_listing(text: str) -> Kernel:
    """Read the text that `listing` wrote, and return its kernel, which is not verified.

    Raises: InvalidKernel naming the line that cannot be read.
    """
    head, *rest = text.splitlines() or [""]
    match = _HEAD.match(head)
    if match is None:
        raise _unreadable(1, head)
    name, parameters, block, contract = match.groups()
    nodes: list[UOp] = []
    for number, line in enumerate(rest, 2):
        match = _NODE.match(line)
        if match is None:
            raise _unreadable(number, line)
        op, dtype, source, arg, place = match.group("op", "dtype", "src", "arg", "line")
        try:
            src = tuple(nodes[int(word[1:])] for word in source.split())
            value = _NUMBERS[arg] if arg in _NUMBERS else ast.literal_eval(arg) if arg else None
            nodes.append(UOp(op, _NAMED[dtype] if dtype else None, src, value, int(place or 0)))
        except (LookupError, ValueError, SyntaxError):
            raise _unreadable(number, line) from None
    signature = Signature.parse(name, parameters)
    shape = None if block is None else ast.literal_eval(block)
    return Kernel(name, signature, tuple(nodes), shape, not contract)


def _unreadable(number: int, line: str) -> InvalidKernel:
    return InvalidKernel(
        "read a listing",
        f"line {number} cannot be read",
        got=line[:80],
        fix="Write what hal_kernel.ir.listing.listing gives.",
    )
