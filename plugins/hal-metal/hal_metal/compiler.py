"""The compiler inside the system: from the Metal shading language to a library.

Metal keeps the machine code to itself, so the image is the text, sealed. To load it is to compile
it again; the libraries of the last images are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hal_core.compiler import Compiler, CompilerPair, Module
from hal_core.compiler.seal import seal, unseal
from hal_core.concurrency import Late
from hal_core.dtypes import float64
from hal_core.errors import CompileError, Unsupported
from hal_core.signature import Signature
from hal_core.source import Source
from hal_kernel.c_texts.logs import fault_line
from hal_kernel.c_texts.prototypes import Reading
from hal_metal import driver
from hal_metal.arguments import check_room, keep_arguments, wrong_access

if TYPE_CHECKING:
    from hal_metal.device import MetalDevice

render = Late("hal_metal.render")  # at first use: a device whose kernels are text alone needs none

MAKER = "hal-metal 1"  # the format of images and its version
FILE = "program_source"  # the name of the text in the compiler's log


def pairs(device: MetalDevice) -> list[CompilerPair]:
    """List the device's compilers: Metal's own, and Xcode's by name (`METAL_CC=xcrun`)."""

    def make_xcrun() -> Compiler:
        from hal_metal.xcrun import XcrunCompiler

        return XcrunCompiler(device)

    return [
        CompilerPair(
            "system", "metal", lambda: render.MetalRenderer(), lambda: MetalCompiler(device)
        ),
        CompilerPair("xcrun", "metal", lambda: render.MetalRenderer(), make_xcrun),
    ]


class MetalCompiler(Compiler):
    """The compiler of the system. Concurrency: any thread."""

    language = "metal"
    format = "metal"

    def __init__(self, device: MetalDevice) -> None:
        self.device = device
        vendor = device.info.vendor
        self.target = device.info.arch
        # 3.2 has fences between blocks; older systems know the versions up to their own.
        self.version = "3_2" if vendor["system_version"] >= (15, 0) else "3_0"
        self.identity = f"Metal {self.version}, safe math, {self.target}, macOS {vendor['system']}"

    def _compile(self, source: Source) -> bytes:
        return self._compile_module(source).image

    def _compile_module(self, source: Source[Any]) -> Module:
        device, operation = self.device, f"compile {source.name}"
        self._check(source, operation)
        text, reading = with_macros(source), None
        kernels: tuple[Signature, ...] = (source.signature,)
        if not source.interface.rendered:
            reading = Reading(source, "kernel", device.name, three="4")
            keep_arguments(reading)
            kernels = reading.compare()
            text += reading.checks()
        for signature in kernels:
            check_room(signature, source.interface.rendered, operation, device.name)
        image = seal(MAKER, self.version, text.encode())
        with driver.check(operation, device.name):
            try:
                library = driver.build(device.hardware, text, self.version)
            except driver.BuildError as error:
                misfit = reading and reading.misfit(error.log)
                if misfit:
                    raise misfit from None
                line = fault_line(error.log, FILE)
                lines = source.text.split("\n")
                misuse = wrong_access(lines[line - 1], reading) if reading and line else ""
                raise CompileError(
                    operation, misuse or "Metal's compiler refuses the text", log=error.log,
                    source=source.text, line=line, device=device.name,
                ) from None  # fmt: skip
            for signature in kernels:
                check_entry(library, signature.name, operation, device.name)
        device.keep_library(image, library)
        return Module(image, kernels)

    def _disassemble(self, image: bytes) -> str:
        raise Unsupported(
            "disassemble", "Metal keeps its machine code to itself", device=self.device.name,
            fix="Xcode's metal-objdump disassembles a metallib; program.source is the text.",
        )  # fmt: skip

    def _check(self, source: Source, operation: str) -> None:
        """Refuse what Metal's compiler at run time does not take."""
        device = self.device.name
        own = () if source.interface.rendered else source.options
        given = own or source.includes
        if given:
            raise Unsupported(
                operation, "Metal's compiler at run time takes no options and no folders",
                got=given, device=device,
                fix="Use defines={...}, and put headers into the text.",
            )  # fmt: skip
        for param in source.signature.params:
            if param.dtype is float64:
                fix = "Compute in float32."
                raise Unsupported(
                    operation, "Metal has no float64", got=str(param), device=device, fix=fix
                )


def check_entry(library: Any, entry: str, operation: str, device: str) -> None:
    """Raises: CompileError with the kernels that a library has."""
    names = driver.kernel_names(library)
    if entry not in names:
        raise CompileError(
            operation,
            f"the library has no kernel {entry!r}, it has {', '.join(names) or 'none'}",
            device=device,
        )


def library_of(device: MetalDevice, image: bytes, operation: str) -> Any:
    """Return the library of an image, compiled unless it is kept. Raises: CompileError."""
    from hal_metal import xcrun

    library = device.libraries.get(image)
    if library is not None:
        return library
    if image.startswith(xcrun.MAKER.encode()):
        library = xcrun.load_file(device, image, operation)
        device.keep_library(image, library)
        return library
    version, text = unseal(MAKER, image, operation, device.name)
    try:
        library = driver.build(device.hardware, text.decode(), version)
    except driver.BuildError as error:
        raise CompileError(
            operation, "Metal's compiler refuses the text", log=error.log, device=device.name,
            fix="Compile the kernel again from its source.",
        ) from None  # fmt: skip
    device.keep_library(image, library)
    return library


def with_macros(source: Source) -> str:
    """Put macros as lines above a text, which keeps its line numbers."""
    lines = "".join(f"#define {name} {value}\n" for name, value in source.defines)
    return f'{lines}#line 1 "{FILE}"\n{source.text}' if lines else source.text
