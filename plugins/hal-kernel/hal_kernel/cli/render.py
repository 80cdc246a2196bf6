"""`hal render`: print the text of a kernel in one language, or its machine code."""

from __future__ import annotations

import argparse

from hal_core.compiler.selection import select
from hal_core.device import Device
from hal_core.errors import InvalidArgument
from hal_core.files import save
from hal_core.source import Source
from hal_kernel.cli.kernels import FORMS, KernelFile, lowered
from hal_kernel.render import RENDERERS

HELP = "Print the text of a kernel in one language."

ASSEMBLY = "asm"  # the language of the machine code, which a device's compiler makes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("kernel", metavar="FILE[:KERNEL]", help=FORMS)
    languages = f"Write {', '.join(RENDERERS)} (default: c), or {ASSEMBLY}, the machine code."
    add("--language", metavar="L", help=languages)
    add("--device", metavar="DEVICE", help="Print the machine code for this device.")
    add("-o", "--output", metavar="FILE", help="Write to this file.")


def run(options: argparse.Namespace) -> int:
    language, device = options.language, options.device
    if language is None and device is not None:
        language = ASSEMBLY
    if device is not None and language != ASSEMBLY:
        options.parser.error(f"--device is for --language {ASSEMBLY}: text needs no device")
    if language == ASSEMBLY:
        text = assembly(options.kernel, Device.DEFAULT if device is None else device)
    else:
        text = rendered(options.kernel, language)
    if options.output is None:
        print(text)
        return 0
    save("render", options.output, text.encode(), b"\n")
    return 0


def assembly(target: str, device: str) -> str:
    """Return the machine code of a kernel on one device, as text.

    Raises: Unsupported for a device without a disassembler, naming the tool to install.
    """
    opened = Device[device]
    kernel = lowered(KernelFile(target).one(), device)
    program = opened.compile(kernel)
    language = kernel.language if isinstance(kernel, Source) else None
    _, compiler = select(opened, language)  # the one that made the program
    return compiler.disassemble(program.binary.image)


def rendered(target: str, language: str | None) -> str:
    """Return the text of the kernel that `FILE:KERNEL` names. Raises: InvalidArgument."""
    renderer = RENDERERS.get("c" if language is None else language)
    if renderer is None:
        known = ", ".join((*RENDERERS, ASSEMBLY))
        fix = f"Known: {known}. The language of a vendor comes with its backend."
        raise InvalidArgument("render", "no such language", got=language, fix=fix)
    kernel = lowered(KernelFile(target).one())
    if not isinstance(kernel, Source):
        return renderer().render(kernel)
    if language not in (None, kernel.language):
        problem = f"{kernel.name} is text in {kernel.language} already"
        fix = "A hal.Source is not translated; a function with @hal.kernel is."
        raise InvalidArgument("render", problem, got=language, fix=fix)
    return kernel.text
