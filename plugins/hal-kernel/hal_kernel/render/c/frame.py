"""Write the text around a kernel's body: headers, helpers, the kernel's head and parameters."""

from __future__ import annotations

from hal_core.dtypes import DType
from hal_core.signature import CONST_POINTER, Param
from hal_kernel.ir import Kernel, UOp
from hal_kernel.render.c.body import Text
from hal_kernel.render.c.language import Language
from hal_kernel.render.c.words import AXES


def whole(row: Language, kernel: Kernel, uops: tuple[UOp, ...], reserved: frozenset[str]) -> str:
    """Return the text of a kernel; `uops` are its nodes, split into regions if threads are loops.

    No parameter or variable gets a name that is `reserved`.
    """
    text = Text(row, kernel, uops, reserved)
    aliased = _aliased_dtypes(row, kernel) if row.alias else frozenset[DType]()
    parameters, arguments = [], []
    values = text.names.take("values") if row.packed else ""
    for param in kernel.signature.params:
        parameter, argument = _parameter(text, param, param.dtype in aliased, values)
        parameters += [parameter] if parameter else []
        arguments += [argument] if argument else []
    struct, packed = _packed(text, values)
    parameters += packed
    text.write()
    parameters += row.last_parameters
    if "subgroups" in text.spelling.features:
        parameters += row.subgroup_parameters
    blocks = {"$arguments": arguments, "$shared": text.shared, "$body": text.lines}
    frame: list[str] = []
    for line in _frame(row, kernel, parameters).splitlines():
        bare = line.lstrip()
        indent = line[: len(line) - len(bare)]
        frame += [indent + part for part in blocks.get(bare, [bare])]
    spelling = text.spelling
    features = spelling.features | {"always"} | (set() if kernel.contract else {"no contract"})
    headers = [line for feature, line in row.headers.items() if feature in features]
    headers += [row.alias.format(type=kind, alias=f"hal_any_{kind}") for kind in spelling.aliases]
    tables = "\n".join(text.tables)
    parts = ["\n".join(headers), *spelling.helpers.values(), tables, struct, "\n".join(frame)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _frame(row: Language, kernel: Kernel, parameters: list[str]) -> str:
    """Return the language's frame with `$name`, `$parameters` and similar words replaced."""
    attribute = ""
    if kernel.block is not None:
        x, y, z = kernel.block
        attribute = row.block_attribute.format(x=x, y=y, z=z, threads=x * y * z)
    words = {"$attributes": attribute, "$name": kernel.name, "$parameters": ", ".join(parameters)}
    dims = kernel.block or row.block_dims
    words |= {f"$block_{axis}": str(dim) for axis, dim in zip(AXES, dims, strict=True)}
    frame = row.frame
    for word, meaning in words.items():
        frame = frame.replace(word, meaning)
    return frame


def _aliased_dtypes(row: Language, kernel: Kernel) -> frozenset[DType]:
    """Return the dtypes of pointers that need a type which may alias others.

    Two parameters may be views of one buffer. A C compiler assumes that pointers to float and to
    int never alias, and reorders their accesses. A char may alias anything.
    """
    pointers = kernel.signature.pointers
    # In C signed and unsigned integers of one size may alias. A language without a type of 16-bit
    # floats stores them as uint16.
    kinds = {(param.dtype.is_float and row.types[param.dtype.name] != row.types["uint16"],
              param.dtype.itemsize)
             for param in pointers if param.dtype.itemsize > 1}  # fmt: skip
    if len(kinds) < 2 or all(param.kind == CONST_POINTER for param in pointers):
        return frozenset()
    return frozenset(param.dtype for param in pointers if param.dtype.itemsize > 1)


def _packed(text: Text, name: str) -> tuple[str, list[str]]:
    """Return the struct of all values and its parameter, in a language that passes them as one."""
    row, signature = text.row, text.kernel.signature
    values = [param for param in signature.params if not param.is_pointer]
    if not (row.packed and values):
        return "", []
    typed = ((text.spelling.storage(param.dtype), text.params[param.position]) for param in values)
    fields = "\n".join(row.packed_field.format(type=kind, name=field) for kind, field in typed)
    words = {"type": "hal_values", "name": name, "buffer": len(signature.pointers)}
    return row.packed.format(fields=fields, **words), [row.packed_parameter.format(**words)]


def _parameter(text: Text, param: Param, aliased: bool, values: str) -> tuple[str, str]:
    """Return a parameter's declaration in the kernel's head, and the line that reads it."""
    row, name = text.row, text.params[param.position]
    kind = text.spelling.storage(param.dtype)
    fields = {
        "const": "const " if param.kind == "const pointer" else "",
        "type": kind,
        "element": text.spelling.aliasing(param.dtype) if aliased else kind,
        "name": name,
        "values": values,
        "slot": 8 * param.position,
        "buffer": text.kernel.signature.pointers.index(param) if param.is_pointer else None,
    }
    if not param.is_pointer:
        return row.value_parameter.format(**fields), row.value_line.format(**fields)
    fields["base"] = text.names.take(f"{name}_base")
    fields["offset"] = text.names.take(f"{name}_offset")
    return row.pointer_parameter.format(**fields), row.pointer_line.format(**fields)
