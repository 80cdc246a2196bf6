"""Check the arguments of a compiled kernel against its signature."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from hal_core.dtypes import any_
from hal_core.errors import CompileError, Unsupported
from hal_opencl import driver
from hal_opencl.driver import cl

if TYPE_CHECKING:
    from hal_core.signature import Interface, Param, Signature

# OpenCL types for a dtype's elements: its own type, or an integer type of the same size.
_TYPES = {
    "bool": ("bool", "uchar", "char"), "float16": ("half", "ushort"), "bfloat16": ("ushort",),
    "int8": ("char",), "int16": ("short",), "int32": ("int",), "int64": ("long",),
    "uint8": ("uchar",), "uint16": ("ushort",), "uint32": ("uint",), "uint64": ("ulong",),
    "float32": ("float",), "float64": ("double",),
}  # fmt: skip

# A scalar's or vector's type, as drivers write it: "float*", "unsigned char", "uchar16 *".
_PLAIN = re.compile(
    r"(?:(un)signed |(u))?(bool|char|short|int|long|half|float|double)(?:2|3|4|8|16)? ?(\*?)"
)


class Slot(NamedTuple):
    """One argument of the OpenCL kernel."""

    code: str  # letter of the module struct for a number; empty for memory
    nbytes: int
    position: int  # of the signature's parameter
    what: str
    is_offset: bool = False


GEOMETRY = Slot("8i", 32, 0, "the geometry of the launch")  # an int8


def slots_of(asked: Interface) -> list[Slot]:
    """List the arguments that a kernel takes.

    A rendered kernel takes a pointer as base and byte offset, and so does a `Source` kernel that
    asks for it; others take the pointer alone.
    """
    slots = []
    for param in asked.signature.params:
        if not param.is_pointer:
            code = param.dtype.format
            slots.append(Slot(code, param.dtype.itemsize, param.position, str(param)))
            continue
        slots.append(Slot("", 8, param.position, str(param)))
        if asked.rendered or asked.offsets:
            slots.append(Slot("q", 8, param.position, f"the byte offset of {param}", True))
    return slots


def runs_whole_blocks(kernel: cl.Kernel, asked: Interface) -> bool:
    """Return whether the work-items of a rendered kernel are blocks, which take the geometry."""
    return asked.rendered and kernel.num_args == len(slots_of(asked)) + 1


def check_arguments(kernel: cl.Kernel, asked: Interface, operation: str, device: str) -> None:
    """Compare the arguments that the platform describes with those of the signature.

    Raises: CompileError naming the argument; Unsupported for one that no signature can express.
    """
    spaces = driver.argument_spaces(kernel)
    signature = asked.signature
    types = [] if asked.rendered else driver.argument_types(kernel)
    _check_expressible(spaces, signature, operation, device)
    slots = slots_of(asked)
    if runs_whole_blocks(kernel, asked):
        slots.append(GEOMETRY)
    if kernel.num_args != len(slots):
        raise CompileError(
            operation,
            f"the kernel takes {kernel.num_args} arguments, its signature "
            f"({signature}) gives {len(slots)}",
            device=device,
            fix="With offsets=True, and only with it, each pointer is followed by a long.",
        )
    _, set_numbers = driver.argument_setters(kernel)
    for index, slot in enumerate(slots):
        written = types[index] if types else ""
        fits = True
        if written:
            parameter = signature.params[slot.position]
            fits = written == "long" if slot.is_offset else _holds(written, parameter)
        if spaces and (spaces[index] in ("global", "constant")) != (slot.code == ""):
            fits = False
        try:
            if slot.code:  # a platform that tells no types still knows the sizes of numbers
                set_numbers((index, bytes(slot.nbytes)))
        except cl.Error:
            fits = False
        if not fits:
            raise CompileError(
                operation,
                f"argument {index} of the kernel is {written or 'of another size'}, its signature "
                f"says {slot.what}",
                device=device,
                fix="Write the signature as the kernel declares it.",
            )


def _check_expressible(
    spaces: list[str], signature: Signature, operation: str, device: str
) -> None:
    if "local" in spaces:
        raise Unsupported(
            operation,
            f"argument {spaces.index('local')} is __local memory, which no signature can express",
            device=device,
            fix="Declare it inside the kernel, with a size from defines={...}.",
        )
    for param in signature.values:
        if not param.dtype.format:
            raise Unsupported(
                operation,
                f"OpenCL C has no {param.dtype.name} values",
                got=str(param),
                device=device,
            )


def _holds(written: str, param: Param) -> bool:
    """Return whether a type is the parameter's: its scalar, or a vector of it."""
    match = _PLAIN.fullmatch(written)
    if match is None:  # a struct, a typedef or void tells no dtype
        return True
    if param.dtype is any_:
        return bool(match[4])
    scalar = ("u" if match[1] or match[2] else "") + match[3]
    return scalar in _TYPES[param.dtype.name] and bool(match[4]) == param.is_pointer
