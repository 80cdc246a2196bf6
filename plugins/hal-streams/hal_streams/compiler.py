"""A vendor's compiler in a library: options in; a sealed binary, or the line that is wrong, out."""

from __future__ import annotations

import re
from typing import Any

from hal_core.compiler import Compiler, Module
from hal_core.compiler.seal import seal
from hal_core.errors import CompileError, InvalidArgument
from hal_core.signature import Signature
from hal_core.source import Source
from hal_kernel.c_texts.included import digest_of_headers
from hal_kernel.c_texts.logs import fault_line
from hal_kernel.c_texts.options import refuse_files
from hal_kernel.c_texts.prototypes import Reading
from hal_streams.confirmed import confirmation, refused
from hal_streams.device import StreamDevice
from hal_streams.runtime_compiler import CompilerRefused

_ARCHITECTURES = re.compile("--?gpu-architecture|-arch|--offload-arch|-march|-mcpu|--?target")


class StreamCompiler(Compiler):
    """From C++ to machine code for one device, by a library such as NVRTC or hiprtc."""

    title: str  # of the library, for errors
    maker: str  # of the binaries, which are sealed
    label: Any  # that the seal holds: whatever the backend reads of a binary
    headers: tuple[str, ...]  # folders of the vendor's headers
    reads_files: re.Pattern[str]  # matches the beginning of options that name files
    text_name: str  # of the kernel's text in the log; {} is the entry
    error: re.Pattern[str]  # one error of the log: see `fault_line`
    device: StreamDevice

    def _translate(self, source: Source[Any], text: str, flags: tuple[str, ...]) -> bytes:
        """Return the machine code of a source's complete text.

        `flags` are the options, defines and folders of headers.

        Raises: CompilerRefused, with the log.
        """
        raise NotImplementedError

    def _compile(self, source: Source) -> bytes:
        return self._compile_module(source).image

    def _compile_module(self, source: Source[Any]) -> Module:
        operation, device = f"compile {source.name}", self.device.name
        refuse_files(source.options, self.reads_files, operation, device)
        for option in filter(_ARCHITECTURES.match, map(str.strip, source.options)):
            raise InvalidArgument(
                operation, "options cannot name an architecture: the code is for the device",
                got=option, limit=self.target, device=device, fix="Leave it out.",
            )  # fmt: skip
        defines = tuple(f"-D{name}={value}" for name, value in source.defines)
        folders = tuple(f"-I{path}" for path in (*source.includes, *self.headers))
        text, reading = source.text, None
        kernels: tuple[Signature, ...] = (source.signature,)
        if not source.interface.rendered:
            reading = Reading(source, "__global__", device, confirmed=True)
            kernels = reading.compare()
            text += confirmation(kernels, reading.text.text) + reading.checks()
        try:
            image = self._translate(source, text, (*source.options, *defines, *folders))
        except CompilerRefused as error:
            line = fault_line(error.log, self.text_name.format(source.name), self.error)
            misfit = reading and line is None and refused(reading, error.log)
            if misfit:
                raise misfit from None
            raise CompileError(
                operation, f"{self.title} refuses the text: {error}", log=error.log,
                source=source.text, line=line, device=device,
            ) from None  # fmt: skip
        return Module(seal(self.maker, self.label, image), kernels)

    def _headers(self, source: Source[Any]) -> str:
        return digest_of_headers(source)
