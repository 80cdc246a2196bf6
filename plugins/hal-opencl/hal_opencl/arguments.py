"""Check the arguments of a compiled kernel against its signature."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from hal_core.errors import CompileError, Unsupported
from hal_kernel.c_texts.prototypes import Declared, Text, fits, signature_of
from hal_opencl import driver
from hal_opencl.driver import cl

if TYPE_CHECKING:
    from hal_core.signature import Interface, Signature

# Types of arguments that are neither memory nor a number.
_OPAQUE = re.compile(r"(?!image[123]d_t)image\w*_t|sampler_t|event_t|queue_t|pipe\b.*")


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
        if (asked.rendered or asked.offsets) and param.dtype.kind != "I":
            slots.append(Slot("q", 8, param.position, f"the byte offset of {param}", True))
    return slots


def runs_whole_blocks(kernel: cl.Kernel, asked: Interface) -> bool:
    """Return whether the work-items of a rendered kernel are blocks, which take the geometry."""
    return asked.rendered and kernel.num_args == len(slots_of(asked)) + 1


def described(kernel: cl.Kernel, text: Text, offsets: bool, device: str) -> Signature:
    """Return the signature that the platform tells. Raises: CompileError; Unsupported."""
    name, declared = kernel.function_name, _declared(kernel)
    if not declared and kernel.num_args:
        raise CompileError(
            f"compile {name}", "the platform tells no types of arguments", device=device,
            fix="Give the kernel's signature.",
        )  # fmt: skip
    _check_expressible(declared, f"compile {name}", device)
    if offsets:  # what follows a pointer is its offset
        ahead = [None, *declared]
        declared = [
            one for before, one in zip(ahead, declared, strict=False)
            if not (before and before.stars and one.type == "long")
        ]  # fmt: skip
    return signature_of(name, declared, text, device)


def _declared(kernel: cl.Kernel) -> list[Declared]:
    """Return the arguments as the platform tells them; none where it does not."""
    found = []
    for name, type, space, const, access in driver.argument_facts(kernel):
        base = type.rstrip("* ")
        words = {space, access} | ({"const"} if const else set())
        text = type if access == "none" else f"__{access} {type}"
        found.append(Declared(name, text, base, type.count("*"), frozenset(words)))
    return found


def check_arguments(
    kernel: cl.Kernel, asked: Interface, operation: str, device: str, text: Text | None = None
) -> None:
    """Compare the arguments that the platform describes with those of the signature.

    `text` has the typedefs; without it types are not compared, as of a binary.
    Raises: CompileError naming the argument; Unsupported for one that no signature can express.
    """
    spaces = driver.argument_spaces(kernel)
    signature = asked.signature
    declared = [] if asked.rendered or text is None else _declared(kernel)
    _check_expressible(declared, operation, device)
    for param in signature.values:
        if not param.dtype.format:
            problem = f"OpenCL C has no {param.dtype.name} values"
            raise Unsupported(operation, problem, got=str(param), device=device)
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
        fit = not (spaces and (spaces[index] in ("global", "constant")) != (slot.code == ""))
        if declared and text is not None:
            given, param = declared[index], signature.params[slot.position]
            fit &= given.text == "long" if slot.is_offset else fits(given, param, text)
        try:
            if slot.code:  # a platform that tells no types still knows the sizes of numbers
                set_numbers((index, bytes(slot.nbytes)))
        except cl.Error:
            fit = False
        if not fit:
            one = declared[index] if declared else None
            const = "const " if one and "const" in one.words else ""
            written = f"{const}{one.text} {one.name}" if one else "of another kind or size"
            raise CompileError(
                operation,
                f"argument {index} of the kernel is {written}, its signature says {slot.what}",
                device=device,
                fix="Write the signature as the kernel declares it, or leave it out.",
            )


def _check_expressible(declared: list[Declared], operation: str, device: str) -> None:
    for index, one in enumerate(declared):
        what = f"argument {index} {one.name!r}"
        if "local" in one.words:
            raise Unsupported(
                operation, f"{what} is __local memory, which no signature can express",
                got=one.text, device=device,
                fix="Declare it inside the kernel, with a size from defines={...}.",
            )  # fmt: skip
        if _OPAQUE.fullmatch(one.type):
            raise Unsupported(
                operation, f"{what} is an {one.type}, and kernels take buffers and values",
                device=device, fix="Read elements from a buffer; declare samplers in the text.",
            )  # fmt: skip
