"""A kernel's arguments in Metal's table of them, and the bytes of numbers.

A rendered kernel `(y: float32*, a: float32, x: const float32*, n: int32)` has its pointers first,
and all of its values as one struct behind them; each parameter of a `Source` has the entry of its
position:

    entry       rendered            a Source
    0           y                   y
    1           x                   a
    2           struct { a, n }     x
    3                               n

Images of a `Source` are in a table of their own, in their order.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from hal_core.dtypes import IMAGES, pack
from hal_core.errors import CompileError, Unsupported

if TYPE_CHECKING:
    from hal_core.signature import Param, Signature
    from hal_kernel.c_texts.prototypes import Declared, Reading

MOST_ENTRIES = 31  # of the table
MOST_TEXTURES = 128  # of that of images, from Apple6 on
MOST_BYTES = 4096  # of one entry that is no buffer


_ENTRY = re.compile(r"\[\[\s*(buffer|texture|sampler)\s*\(\s*([0-9]+)\s*\)")
_METAL = r"(?:metal\s*::\s*)?"
_TEXTURE = re.compile(
    rf"{_METAL}texture([123])d\s*<\s*\w+\s*(?:,\s*{_METAL}access\s*::\s*(\w+)\s*)?>"
)

_USE = re.compile(r"\b(\w+)\s*\.\s*(read|write|sample)\s*\(")
_ACCESSES = {
    "read": ("sample", "read", "read_write"),
    "write": ("write", "read_write"),
    "sample": ("sample",),
}


class Entries(NamedTuple):
    """The content of the entries of a kernel's tables."""

    pointers: list[tuple[int, Param]]  # with their entry
    values: list[tuple[int, list[Param]]]  # of the struct that an entry has
    images: list[tuple[int, Param]]  # with their entry, in the table of textures


def entries_of(signature: Signature, rendered: bool) -> Entries:
    """Return which entries the parameters have."""
    pointers, values = signature.pointers, signature.values
    if rendered:
        groups = [(len(pointers), list(values))] if values else []
        return Entries(list(enumerate(pointers)), groups, [])
    images = [param for param in signature.params if param.dtype.kind == "I"]
    others = list(enumerate(param for param in signature.params if param.dtype.kind != "I"))
    return Entries(
        [(index, param) for index, param in others if param.is_pointer],
        [(index, [param]) for index, param in others if not param.is_pointer],
        list(enumerate(images)),
    )


def keep_arguments(reading: Reading) -> None:
    """Leave of the parameters that a text declares those that a launch gives.

    `[[buffer(n)]]` and `[[texture(n)]]` are arguments, each in the order of its n. What has another
    attribute is none, and threadgroup memory never. `constant T &n` is a value.
    Raises: Unsupported for what Metal would launch with nothing bound there.
    """
    reading.text.vectors |= IMAGES
    asked = dict(reading.source.kernels or dict.fromkeys(reading.declared))
    for name, declared in reading.declared.items():
        tables: dict[bool, list[tuple[int, Declared]]] = {False: [], True: []}
        order = []
        for one in declared:
            entry, texture = _ENTRY.search(one.text), _TEXTURE.fullmatch(one.type)
            if texture:
                const = {"const"} if texture[2] in (None, "sample", "read") else set()
                one = one._replace(type=f"image{texture[1]}d", words=one.words | const)
            elif entry is None and ("[[" in one.text or "threadgroup" in one.words):
                continue
            elif entry and entry[1] != "buffer":
                if name in asked:
                    raise _not_taken(reading, one, entry[1])
                continue
            elif "&" in one.text:
                one = one._replace(stars=0)
            table = tables[texture is not None]
            table.append((int(entry[2]) if entry else len(table), one))
            order.append(texture is not None)
        for table in tables.values():
            table.sort(key=lambda found: found[0], reverse=True)
            numbers = [number for number, _ in table[::-1]]
            if name in asked and numbers != list(range(len(table))):
                raise CompileError(
                    f"compile {reading.source.name}",
                    f"the kernel {name} numbers its [[buffer(n)]] or [[texture(n)]] "
                    f"{', '.join(map(str, numbers))}", device=reading.device,
                    source=reading.source.text, fix="Number each kind of argument from 0 on.",
                )  # fmt: skip
        reading.declared[name] = [tables[is_image].pop()[1] for is_image in order]


def wrong_access(line: str, reading: Reading) -> str:
    """Describe a texture that a line uses against its access; else nothing."""
    texts = {one.name: one.text for declared in reading.declared.values() for one in declared}
    for name, use in _USE.findall(line):
        texture = _TEXTURE.search(texts.get(name, ""))
        if texture and (texture[2] or "sample") not in _ACCESSES[use]:
            return f"the text {use}s argument {name!r}, which is {texts[name]}"
    return ""


def _not_taken(reading: Reading, one: Declared, kind: str) -> Unsupported:
    fix = "Take texture1d, texture2d or texture3d."
    if kind == "sampler":
        fix = "Write it into the text: constexpr sampler s(coord::pixel, filter::nearest);"
    return Unsupported(
        f"compile {reading.source.name}",
        f"argument {one.name!r} is a {kind}, and kernels take buffers, values, and images of one "
        "to three axes", got=one.text, device=reading.device, fix=fix,
    )  # fmt: skip


def check_room(signature: Signature, rendered: bool, operation: str, device: str) -> None:
    """Raises: Unsupported for more arguments than Metal has entries for."""
    pointers, values, images = entries_of(signature, rendered)
    if len(images) > MOST_TEXTURES:
        raise Unsupported(
            operation, "the kernel has too many images", got=len(images), limit=MOST_TEXTURES,
            device=device, fix="Put several into one image.",
        )  # fmt: skip
    count = len(pointers) + len(values)
    if count > MOST_ENTRIES:
        raise Unsupported(
            operation, "the kernel has too many arguments", got=count,
            limit=f"{MOST_ENTRIES} entries; all values of a @hal.kernel take one", device=device,
            fix="Put several arrays into one buffer.",
        )  # fmt: skip
    for _, group in values:
        nbytes, _ = packer(group)
        if nbytes > MOST_BYTES:
            raise Unsupported(
                operation, "the kernel's values are too large together", got=nbytes,
                limit=f"{MOST_BYTES} bytes", device=device, fix="Put them into a buffer.",
            )  # fmt: skip


def packer(values: Sequence[Param]) -> tuple[int, Callable[..., bytes]]:
    """Return the size of a struct of these values, and the function that packs one."""
    if len(values) == 1 and values[0].dtype.format:
        alone = struct.Struct(f"={values[0].dtype.format}")
        return alone.size, alone.pack
    codes = "".join(param.dtype.format or "H" for param in values)
    widest = max(codes, key=struct.calcsize)
    whole = struct.Struct(f"@{codes}0{widest}")  # with the padding that ends it
    if all(param.dtype.format for param in values):
        return whole.size, whole.pack
    return whole.size, partial(_pack_bits, whole, tuple(values))


def _pack_bits(whole: struct.Struct, params: tuple[Param, ...], *values: Any) -> bytes:
    """Pack values of which some have a dtype that struct lacks."""
    numbers = [
        value if param.dtype.format else int.from_bytes(pack(value, param.dtype), "little")
        for param, value in zip(params, values, strict=True)
    ]
    return whole.pack(*numbers)
