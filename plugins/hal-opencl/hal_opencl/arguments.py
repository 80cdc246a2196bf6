"""Check the arguments of a compiled kernel against its signature."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from hal_core.errors import CompileError, Unsupported
from hal_kernel.c_texts.prototypes import Declared, Reading, Text, advice, fits, signature_of
from hal_opencl import driver
from hal_opencl.driver import cl

if TYPE_CHECKING:
    from hal_core.signature import Interface, Signature

# Types of arguments that are neither memory nor a number.
_OPAQUE = re.compile(r"(?!image[123]d_t)image\w*_t|sampler_t|event_t|queue_t|pipe\b.*")


_ACCESSES = {"read_only", "write_only", "read_write"}
_USE = re.compile(r"\b(read|write)_image\w*\s*\(\s*(\w+)")


_INSTEAD = {
    "sampler_t": "Write it into the text: __constant sampler_t nearest = "
    "CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;"
}


class Slot(NamedTuple):
    """One argument of the OpenCL kernel."""

    code: str  # letter of the module struct for a number; empty for memory
    nbytes: int
    position: int  # of the signature's parameter
    what: str
    is_offset: bool = False


GEOMETRY = Slot("8i", 32, 0, "the geometry of the launch")  # an int8
LOCAL = Slot("", 0, 0, "the __local memory of shared=")


def slots_of(kernel: cl.Kernel, asked: Interface) -> list[Slot]:
    """List the arguments that a kernel takes.

    A rendered kernel takes a pointer as base and byte offset, and so does a `Source` kernel that
    asks for it; others take the pointer alone. One argument more is the geometry of a rendered
    kernel whose work-items are blocks; of others, all __local memory is dynamic shared memory.
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
    if asked.rendered and kernel.num_args == len(slots) + 1:
        slots.append(GEOMETRY)
    elif kernel.num_args > len(slots):
        for place in driver.local_arguments(kernel):
            slots.insert(place, LOCAL)
    return slots


def described(kernel: cl.Kernel, text: Text, offsets: bool, device: str) -> Signature:
    """Return the signature that the platform tells. Raises: CompileError; Unsupported."""
    name, declared = kernel.function_name, _declared(kernel)
    if not declared and kernel.num_args:
        raise CompileError(
            f"compile {name}", "the platform tells no types of arguments", device=device,
            fix="Give the kernel's signature.",
        )  # fmt: skip
    _check_expressible(declared, f"compile {name}", device)
    declared = [one for one in declared if "local" not in one.words]
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


def wrong_access(line: str, reading: Reading) -> str:
    """Describe a parameter of an image that a line uses against its qualifier; else nothing."""
    params = {one.name: one for declared in reading.declared.values() for one in declared}
    for use, name in _USE.findall(line):
        one = params.get(name)
        if one is not None and one.type.startswith("image"):
            access = {word.strip("_") for word in one.words} & _ACCESSES or {"read_only"}
            if not access & {f"{use}_only", "read_write"}:
                return f"the text {use}s argument {name!r}, which is {one.text}"
    return ""


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
    slots = slots_of(kernel, asked)
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
        if slot is LOCAL:
            continue
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
            words = [word for word in ("__local", "const") if one and word.strip("_") in one.words]
            written = "of another kind or size"
            if one:
                written = " ".join([*words, one.text, one.name])
            raise CompileError(
                operation,
                f"argument {index} of the kernel is {written}, its signature says {slot.what}",
                device=device,
                fix=f"{advice(one, text)} A signature leaves out __local parameters: shared= of a "
                "launch is their size.",
            )


def _check_expressible(declared: list[Declared], operation: str, device: str) -> None:
    for index, one in enumerate(declared):
        what = f"argument {index} {one.name!r}"
        if _OPAQUE.fullmatch(one.type):
            raise Unsupported(
                operation, f"{what} is {one.type}, and kernels take buffers and values",
                got=one.text, device=device,
                fix=_INSTEAD.get(one.type, "Take a buffer, or an image of one to three axes."),
            )  # fmt: skip
