"""A whole text around a kernel's body: headers, helpers, the kernel's head and its parameters."""

from __future__ import annotations

from hal_core.dtypes import DType
from hal_core.ir import CONST_POINTER, Kernel, Param, UOp
from hal_core.render.c.body import Text
from hal_core.render.c.language import Language
from hal_core.render.c.spelling import Spelling
from hal_core.render.c.words import AXES


def whole(row: Language, kernel: Kernel, uops: tuple[UOp, ...], reserved: frozenset[str]) -> str:
    """The text of a kernel whose nodes, as this language runs them, are `uops`.

    No parameter or variable gets a name that is `reserved`.
    """
    text = Text(row, kernel, uops, reserved)
    meeting = _meeting(kernel) if row.alias else frozenset[DType]()
    fields = [_fields(text, param, param.dtype in meeting) for param in kernel.signature.params]
    text.write()
    blocks = {
        "$arguments": [line for _, line in fields if line],
        "$shared": text.shared,
        "$body": text.lines,
    }
    frame: list[str] = []
    for line in _with_words(row, kernel, [head for head, _ in fields if head]).splitlines():
        bare = line.lstrip()
        indent = line[: len(line) - len(bare)]
        frame += [indent + part for part in blocks.get(bare, [bare])]
    headers = _headers(text.spelling, kernel)
    headers += dict.fromkeys(_alias(text, dtype) for dtype in sorted(meeting, key=str))
    parts = ["\n".join(headers), *text.spelling.helpers.values()]
    return "\n\n".join(part for part in (*parts, "\n".join(frame)) if part) + "\n"


def _with_words(row: Language, kernel: Kernel, parameters: list[str]) -> str:
    """The frame, with what stands inside its lines."""
    attribute = ""
    if kernel.block is not None:
        x, y, z = kernel.block
        attribute = row.block_attribute.format(x=x, y=y, z=z, threads=x * y * z)
    words = {
        "$attributes": attribute,
        "$name": kernel.name,
        "$parameters": ", ".join((*parameters, *row.last_parameters)),
    }
    dims = kernel.block or row.block_dims
    words |= {f"$block_{axis}": str(dim) for axis, dim in zip(AXES, dims, strict=True)}
    frame = row.frame
    for word, meaning in words.items():
        frame = frame.replace(word, meaning)
    return frame


def _headers(spelling: Spelling, kernel: Kernel) -> list[str]:
    features = spelling.features | {"always"}
    if not kernel.contract:
        features.add("no contract")
    return [line for feature, line in spelling.row.headers.items() if feature in features]


def _meeting(kernel: Kernel) -> frozenset[DType]:
    """The dtypes of pointers that may be views of one buffer although C, by their types, takes it
    that they never meet. A char may be part of anything."""
    pointers = kernel.signature.pointers
    kinds = {(param.dtype.is_float and param.dtype.itemsize > 2, param.dtype.itemsize)
             for param in pointers if param.dtype.itemsize > 1}  # fmt: skip
    if len(kinds) < 2 or all(param.kind == CONST_POINTER for param in pointers):
        return frozenset()
    return frozenset(param.dtype for param in pointers if param.dtype.itemsize > 1)


def _alias(text: Text, dtype: DType) -> str:
    kind = text.spelling.storage(dtype)
    return text.row.alias.format(type=kind, alias=f"hal_any_{kind}")


def _fields(text: Text, param: Param, meets: bool) -> tuple[str, str]:
    """A parameter in the kernel's head, and the line that makes a variable of it."""
    row, name = text.row, text.params[param.position]
    kind = text.spelling.storage(param.dtype)
    fields = {
        "const": "const " if param.kind == "const pointer" else "",
        "type": kind,
        "element": f"hal_any_{kind}" if meets else kind,
        "name": name,
        "slot": 8 * param.position,
        "position": param.position,
    }
    if not param.is_pointer:
        return row.value_parameter.format(**fields), row.value_line.format(**fields)
    fields["base"] = text.names.take(f"{name}_base")
    fields["offset"] = text.names.take(f"{name}_offset")
    return row.pointer_parameter.format(**fields), row.pointer_line.format(**fields)
