"""The compiler inside the driver: from OpenCL C to the platform's binary, with a checksum."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from hal_core.compiler import Compiler, CompilerPair, Module
from hal_core.compiler.seal import seal, unseal
from hal_core.dtypes import IMAGES
from hal_core.errors import CompileError, InvalidArgument, Unsupported, check_class
from hal_core.source import Source
from hal_kernel.c_texts.included import digest_of_headers
from hal_kernel.c_texts.logs import fault_line
from hal_kernel.c_texts.options import refuse_files
from hal_kernel.c_texts.prototypes import Reading, Text, asked
from hal_opencl import driver
from hal_opencl.arguments import check_arguments, described, wrong_access
from hal_opencl.build_lock import build_lock
from hal_opencl.driver import cl

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hal_core.signature import Signature
    from hal_kernel.render import Renderer
    from hal_opencl.device import OpenCLDevice

_MAKER = "hal-opencl 3"  # the format of binaries and its version
_FIXED = ("-cl-kernel-arg-info",)  # lets a wrong signature be found before the first launch
_CORRECT_DIVISION = "-cl-fp32-correctly-rounded-divide-sqrt"  # else `/` may be off by 2.5 ulp
# Options that make compilers read files, whose texts the cache key would not have.
_READS_FILES = re.compile("-I|-i|--include")


def pairs(device: OpenCLDevice) -> list[CompilerPair]:
    """List the device's compilers: `OPENCL_CC=driver`, the platform's own, is the only one."""

    def make_renderer() -> Renderer:  # its module is imported here: text alone needs none
        if driver.is_pocl(device.hardware):
            from hal_opencl.pocl import BlockRenderer, ItemRenderer

            # Of loops over threads version 7.1 makes wrong code, or compiles some for ever.
            return BlockRenderer() if driver.has_old_pocl(device.hardware) else ItemRenderer()
        from hal_opencl.render import OpenCLRenderer

        return OpenCLRenderer()

    return [CompilerPair("driver", "opencl", make_renderer, lambda: OpenCLCompiler(device))]


class OpenCLCompiler(Compiler):
    """The platform's own compiler.

    Concurrency: any thread; builds of one process take turns.
    """

    language = "opencl"
    format = "opencl"
    takes_offsets = True

    def __init__(self, device: OpenCLDevice) -> None:
        self.device = device
        self.target = device.info.title
        self._rendered: tuple[str, ...] = ()  # options for rendered kernels alone
        if device.hardware.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
            self._rendered += (_CORRECT_DIVISION,)
        if driver.is_simulator(device.hardware):
            # Oclgrind cannot interpret the integers of 33 bits that its optimiser makes of loops.
            self._rendered += ("-cl-opt-disable",)
        self.identity = " ".join((driver.identity_of(device.hardware), *_FIXED, *self._rendered))

    def _compile(self, source: Source) -> bytes:
        return self._compile_module(source).image

    def _compile_module(self, source: Source[Any]) -> Module:
        operation = f"compile {source.name}"
        flags = self._flags(source, operation)
        reading = None
        if not source.interface.rendered:
            reading = Reading(source, "(?:__)?kernel", self.device.name, three="4")
            reading.declared = {
                name: [one for one in params if not one.words & {"local", "__local"}]
                for name, params in reading.declared.items()
            }
            reading.text.vectors |= {f"{name}_t": dtype for name, dtype in IMAGES.items()}
        head = _head(source, reading.declared if reading else ())
        text = head + source.text + (reading.confirmed() if reading else "")
        with build_lock(self.device.hardware, source.name):
            try:
                program = driver.build(self.device.context, text, flags)
            except driver.BuildError as error:
                misfit = reading and reading.misfit(error.log)
                if misfit:
                    raise misfit from None
                line = fault_line(error.log, _file(source))
                if line is None:
                    # Oclgrind ignores #line, and counts the lines that we put above the text.
                    counted = fault_line(error.log, "input.cl")
                    line = counted and max(1, counted - head.count("\n"))
                lines = source.text.split("\n")
                misuse = wrong_access(lines[line - 1], reading) if reading and line else ""
                raise CompileError(
                    operation, misuse or error.problem, log=error.log, source=source.text,
                    line=line, device=self.device.name,
                ) from None  # fmt: skip
            with driver.check(operation, self.device.name):
                kernels = self._kernels_of(program, source, reading.text if reading else None)
            # To give a binary, PoCL compiles for any size of groups, with the GIL held, and again
            # at the first launch. Its own cache has what is built from text, but loads more
            # slowly: rendered kernels, which have one size, are kept as binaries.
            as_text = driver.is_pocl(self.device.hardware) and not source.interface.rendered
            binary = b"" if as_text else driver.binary_of(program)
        if binary:
            return Module(Sealed("binary", self.identity, binary).to_bytes(), kernels)
        image = Sealed("source", self.identity, text.encode(), flags).to_bytes()
        self.device.built = image, program
        return Module(image, kernels)

    def _headers(self, source: Source[Any]) -> str:
        return digest_of_headers(source)

    def _disassemble(self, image: bytes) -> str:
        sealed = Sealed.of_bytes(image, "disassemble", self.device.name)
        try:
            text = sealed.payload.rstrip(b"\0").decode("ascii")
        except UnicodeDecodeError:
            text = ""
        if sealed.kind == "binary" and text:
            return text
        raise Unsupported(
            "disassemble",
            f"the binaries of {self.device.info.vendor['platform']} are not text",
            device=self.device.name,
            fix="PoCL: install poclcc. AMD: llvm-objdump. Intel: ocloc disasm. "
            "NVIDIA's are PTX, which is shown.",
        )

    def compile_or_reuse(self, source: Source) -> tuple[bytes, bool]:
        """Do as the base class; after a wait for another process, take what that one stored."""
        check_class(source, Source, "compile", "Make a hal.Source.")
        with build_lock(self.device.hardware, source.name):
            return super().compile_or_reuse(source)

    def _kernels_of(
        self, program: driver.Program, source: Source[Any], text: Text | None
    ) -> tuple[Signature, ...]:
        """Return the signatures of the kernels, each compared with what the platform tells."""
        checked, device = [], self.device.name
        for name, given in asked(source, driver.kernel_names(program), device).items():
            kernel = cl.Kernel(program, name)
            signature = given
            if signature is None:
                signature = described(kernel, text or Text(""), source.interface.offsets, device)
            interface = source.interface._replace(signature=signature)
            check_arguments(kernel, interface, f"compile {name}", device, text)
            checked.append(signature)
        return tuple(checked)

    def _flags(self, source: Source, operation: str) -> tuple[str, ...]:
        for folder in source.includes:
            if re.search(r"[\s\"']", folder):
                raise Unsupported(
                    operation,
                    "OpenCL options cannot carry an include folder with blanks or quotes",
                    got=folder,
                    device=self.device.name, fix="Rename it, or give a link to it.",
                )  # fmt: skip
        # One string may hold several options, as the driver splits them at blanks.
        parts = " ".join(source.options).split()
        refuse_files(parts, _READS_FILES, operation, self.device.name)
        if parts and parts[-1] == "-D":  # at which PoCL ends the process
            problem = "the option -D has no macro behind it"
            raise InvalidArgument(operation, problem, device=self.device.name)
        exact = self._rendered if source.interface.rendered else ()
        includes = tuple(f"-I{folder}" for folder in source.includes)
        return (*_FIXED, *exact, *source.options, *includes)


def _file(source: Source) -> str:
    """Return the name of the text in the compiler's log."""
    return f"<{source.name}>"


def _head(source: Source[Any], declared: Iterable[str]) -> str:
    """Return macros to put above the text: how -D splits and quotes differs between drivers."""
    lines = "".join(f"#define {name} {value}\n" for name, value in source.defines)
    # PoCL's built-in functions are macros: a kernel called `dot` would become `_cl_dot`.
    names = dict.fromkeys([*(name for name, _ in source.kernels or ()), *declared])
    plain = "".join(f"#undef {name}\n" for name in names)
    return f'{plain}{lines}#line 1 "{_file(source)}"\n'


class Sealed(NamedTuple):
    """A platform's binary and the name of the driver that made it, stored with a checksum.

    Where a platform gives no binary, the payload is the text, which is compiled at each load.
    """

    kind: str  # "binary" or "source"
    identity: str
    payload: bytes
    flags: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        return seal(_MAKER, [self.kind, self.identity, list(self.flags)], self.payload)

    @classmethod
    def of_bytes(cls, image: bytes, operation: str, device: str) -> Sealed:
        """Read a stored binary. Raises: CompileError naming the cause."""
        (kind, identity, flags), payload = unseal(_MAKER, image, operation, device)
        return cls(kind, identity, payload, tuple(flags))
