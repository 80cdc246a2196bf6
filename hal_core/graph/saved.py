"""Graphs in files: nodes as JSON, machine code and data as plain bytes, and a checksum."""

from __future__ import annotations

import io
import os
from functools import cache
from typing import TYPE_CHECKING, Any

from hal_core.allocator import BufferSpec, Image
from hal_core.buffer import Buffer
from hal_core.buffer.files import open_file
from hal_core.compiler.seal import seal, unseal
from hal_core.compiler.selection import select
from hal_core.concurrency import unless_of_a_signal
from hal_core.dtypes import as_dtype
from hal_core.errors import CompileError, HalError, InvalidArgument
from hal_core.graph.node import COPY, COPYIN, FILL, LAUNCH, Node
from hal_core.signature import Interface, Signature
from hal_core.source import Binary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hal_core.device.base import Compiled
    from hal_core.program import Program

_MAKER = "hal-graph 2"  # the format of the file and its version

Label = dict[str, Any]


def to_bytes(device: Compiled, nodes: Sequence[Node], roots: Sequence[Buffer]) -> bytes:
    """Return a graph as bytes; contents of buffers are left out."""
    payload = bytearray()
    pieces: dict[int, tuple[int, int]] = {}

    def stored(data: bytes) -> tuple[int, int]:
        if id(data) not in pieces:  # programs of one text have one image
            pieces[id(data)] = len(payload), len(data)
            payload.extend(data)
        return pieces[id(data)]

    programs = list(dict.fromkeys(node.program for node in nodes if node.program))
    for program in programs:
        program._check_loaded()
    places = {root: number for number, root in enumerate(roots)}
    label: Label = {
        "family": device.family,
        "arch": device.info.arch,
        "buffers": [
            (one.size, one.dtype.name, (image := one.options.image) and image[:-1]) for one in roots
        ],
        "programs": [
            {
                **program.binary.interface._asdict(),
                "format": program.binary.format,
                "target": program.binary.target,
                "entry": program.name,
                "signature": str(program.signature),
                "image": stored(program.binary.image),
                "pair": program.pair,
                "identity": _identity(device, program.pair),
            }
            for program in programs
        ],
        "nodes": [
            {
                "kind": node.kind,
                "bufs": [
                    (places[one if one.base is None else one.base], one.size, one.dtype.name,
                     one.offset)
                    for one in node.bufs
                ],
                "program": programs.index(node.program) if node.program else None,
                "vals": [stored(one) if isinstance(one, bytes) else one for one in node.vals],
                "extents": node._sizes,
                "data": stored(node.data),
            }
            for node in nodes
        ],
    }  # fmt: skip
    return seal(_MAKER, label, bytes(payload))


def _identity(device: Compiled, pair: str) -> str:
    """Return what, with its text, decides the machine code of a compiler pair; empty if unknown."""
    languages = [one.language for one in device.compilers if one.name == pair]
    return select(device, languages[0])[1].identity if languages else ""


def from_bytes(device: Compiled, data: bytes, graph: Any) -> None:
    """Fill an empty graph. Raises: InvalidArgument; the graph is then unusable."""
    fix = "Save the graph again."
    try:
        label, payload = unseal(_MAKER, data, "load_graph", device.name)
        ours, theirs = (device.family, device.info.arch), (label["family"], label["arch"])
        if ours != theirs:
            raise _foreign(device, theirs, ours)
        _fill(device, label, payload, graph)
    except CompileError as error:
        raise InvalidArgument("load_graph", error.problem, device=device.name, fix=fix) from None
    except unless_of_a_signal(Exception) as error:  # another program has sealed it
        if isinstance(error, HalError):
            raise
        problem = f"the file does not describe a graph: {type(error).__name__}: {error}"
        raise InvalidArgument("load_graph", problem, device=device.name, fix=fix) from error


def _fill(device: Compiled, label: Label, payload: bytes, graph: Any) -> None:
    buffers = []
    for size, name, image in label["buffers"]:
        options = BufferSpec(image=Image(*image)) if image else None
        buffers.append(Buffer(device, size, as_dtype(name), options).allocate())
    # Cached: programs that have one image share what the driver makes of it, as when compiled.
    piece = cache(lambda start, nbytes: payload[start : start + nbytes])
    programs = [_program(device, facts, piece) for facts in label["programs"]]
    for program in programs:
        device._modules.pop(id(program.binary.image), None)
    for node in label["nodes"]:
        bufs = [
            buffers[root].view(size, as_dtype(name), offset)
            if (size, name, offset) != (buffers[root].size, buffers[root].dtype.name, 0)
            else buffers[root]
            for root, size, name, offset in node["bufs"]
        ]
        content = piece(*node["data"])
        if node["kind"] == LAUNCH:
            grid, block, threads, shared = node["extents"]
            vals = [piece(*one) if isinstance(one, list) else one for one in node["vals"]]
            graph.add(
                programs[node["program"]], *bufs, vals=vals, grid=grid, block=block,
                threads=threads, shared=shared,
            )  # fmt: skip
        elif node["kind"] == COPY:
            graph.copy(*bufs)
        elif node["kind"] == FILL and not bufs[0].nbytes % len(content):
            graph._recorder._add_memory_work("_fill", (content,), bufs[0])
        elif node["kind"] == COPYIN:
            bufs[0].copyin(content, queue=graph._recorder)
        else:
            raise ValueError(node["kind"])


def _program(device: Compiled, facts: Label, piece: Callable[..., bytes]) -> Program:
    image, block = piece(*facts.pop("image")), facts.pop("block")
    identity, here = facts.pop("identity"), _identity(device, pair := facts.pop("pair"))
    if identity and identity != here:
        raise _foreign(device, identity, here)
    signature = Signature.parse(facts.pop("entry"), facts.pop("signature"))
    format, target = facts.pop("format"), facts.pop("target")
    interface = Interface(signature=signature, block=block and tuple(block), **facts)
    return device._load(Binary(image, format, target, interface), "", pair)


def _foreign(device: Compiled, theirs: object, ours: object) -> InvalidArgument:
    problem, limit = "the graph was made for another target", f"this is {ours}"
    fix = "Capture and save it on this machine."
    return InvalidArgument(
        "load_graph", problem, got=theirs, limit=limit, device=device.name, fix=fix
    )


def read(path: str | os.PathLike[str]) -> bytes:
    """Read a file. Raises: InvalidArgument naming the path and the cause."""
    with (
        open_file(path, os.O_RDONLY, "load_graph") as number,
        io.open(number, "rb", closefd=False) as file,  # noqa: UP020  # lives while Python ends
    ):
        return file.read()
