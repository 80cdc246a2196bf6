"""Graphs in files: nodes as JSON, machine code and data as plain bytes, and a checksum."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hal_core.buffer import Buffer
from hal_core.compiler import Binary
from hal_core.compiler.seal import seal, unseal
from hal_core.compiler.selection import select
from hal_core.dtypes import DTYPES
from hal_core.errors import CompileError, InvalidArgument
from hal_core.graph.node import COPY, FILL, Node
from hal_core.ir import Signature

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hal_core.device.base import Compiled
    from hal_core.program import Program

_MAKER = "hal-graph 1"  # the format of the file and its version

Label = dict[str, Any]


def to_bytes(device: Compiled, nodes: Sequence[Node], roots: Sequence[Buffer]) -> bytes:
    """Return a graph as bytes; contents of buffers are left out.

    Raises: InvalidArgument for a launch whose sizes are no plain integers.
    """
    payload = bytearray()

    def stored(data: bytes) -> tuple[int, int]:
        payload.extend(data)
        return len(payload) - len(data), len(data)

    programs = list({id(node.program): node.program for node in nodes if node.program}.values())
    places = {id(root): number for number, root in enumerate(roots)}
    label: Label = {
        "family": device.family,
        "arch": device.info.arch,
        "buffers": [(root.size, root.dtype.name) for root in roots],
        "programs": [
            {
                **program.binary._replace(image=b"", signature=None)._asdict(),  # type: ignore[arg-type]
                "image": stored(program.binary.image),
                "signature": str(program.signature),
                "pair": program.pair,
                "identity": _identity(device, program.pair),
            }
            for program in programs
        ],
        "nodes": [
            {
                "kind": node.kind,
                "bufs": [
                    (places[id(one if one.base is None else one.base)], one.size, one.dtype.name,
                     one.offset)
                    for one in node.bufs
                ],
                "program": programs.index(node.program) if node.program else None,
                "vals": node.vals,
                "extents": _extents(node),
                "data": stored(node.data),
            }
            for node in nodes
        ],
    }  # fmt: skip
    return seal(_MAKER, label, bytes(payload))


def _identity(device: Compiled, pair: str) -> str:
    """Return what, with its text, decides the machine code of a compiler pair; empty if unknown."""
    languages = [one.language for one in device.compilers if one.name == pair]
    if not languages:
        return ""
    compiler = select(device, languages[0])[1]
    return compiler.identity


def _extents(node: Node) -> Any:
    """Return grid, block, threads and shared as the launch was given them."""
    if node.program is None:
        return None
    for key, geometry in node.program._geometries.items():
        if geometry is node.geometry:
            return key
    fix = "Give grid, block and threads as integers and tuples of them."
    problem = f"the sizes of node {node.number} are no plain integers"
    raise InvalidArgument("save", problem, device=node.program.device.name, fix=fix)


def from_bytes(device: Compiled, data: bytes, graph: Any) -> None:
    """Fill an empty graph. Raises: InvalidArgument; the graph is then unusable."""
    try:
        label, payload = unseal(_MAKER, data, "load_graph", device.name)
    except CompileError as error:
        fix = "Save the graph again."
        raise InvalidArgument("load_graph", error.problem, device=device.name, fix=fix) from None
    ours = device.family, device.info.arch
    theirs = label["family"], label["arch"]
    if ours != theirs:
        raise _foreign(device, theirs, ours)
    buffers = [Buffer(device, size, DTYPES[name]).allocate() for size, name in label["buffers"]]
    programs = [_program(device, facts, payload) for facts in label["programs"]]
    for node in label["nodes"]:
        bufs = [
            buffers[root].view(size, DTYPES[name], offset)
            if (size, name, offset) != (buffers[root].size, buffers[root].dtype.name, 0)
            else buffers[root]
            for root, size, name, offset in node["bufs"]
        ]
        start, nbytes = node["data"]
        content = payload[start : start + nbytes]
        if node["program"] is not None:
            grid, block, threads, shared = (_plain(one) for one in node["extents"])
            graph.add(
                programs[node["program"]], *bufs, vals=node["vals"], grid=grid, block=block,
                threads=threads, shared=shared,
            )  # fmt: skip
        elif node["kind"] == COPY:
            graph.copy(*bufs)
        elif node["kind"] == FILL:
            graph._recorder._add_fill(bufs[0], None, content)
        else:
            bufs[0].copyin(content, queue=graph._recorder)


def _program(device: Compiled, facts: Label, payload: bytes) -> Program:
    identity, here = facts.pop("identity"), _identity(device, pair := facts.pop("pair"))
    if identity and identity != here:
        raise _foreign(device, identity, here)
    start, nbytes = facts.pop("image")
    facts["signature"] = Signature.parse(facts["entry"], facts["signature"])
    facts["block"] = _plain(facts["block"])
    return device.load(Binary(payload[start : start + nbytes], **facts), pair=pair)


def _plain(extent: Any) -> Any:
    return tuple(extent) if isinstance(extent, list) else extent


def _foreign(device: Compiled, theirs: object, ours: object) -> InvalidArgument:
    problem, limit = "the graph was made for another target", f"this is {ours}"
    fix = "Capture and save it on this machine."
    return InvalidArgument(
        "load_graph", problem, got=theirs, limit=limit, device=device.name, fix=fix
    )


def write(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file whole or not at all. Raises: InvalidArgument naming the path and the cause."""
    place = Path(path)
    half = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        try:
            half.write_bytes(content)
            half.replace(place)
        finally:
            half.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidArgument(
            "save", f"the file cannot be written: {error.strerror}", got=str(place)
        ) from None


def read(path: str | os.PathLike[str]) -> bytes:
    """Read a file. Raises: InvalidArgument naming the path and the cause."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        problem = f"the file cannot be read: {error.strerror}"
        raise InvalidArgument("load_graph", problem, got=str(path)) from None
