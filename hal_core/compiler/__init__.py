"""Compilers turn kernel text into binaries; `compile_source` takes a text to a loaded program."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from hal_core import config
from hal_core.compiler import cache
from hal_core.compiler.module import Module as Module
from hal_core.compiler.requirements import check
from hal_core.compiler.selection import select
from hal_core.concurrency import OfThisProcess, unless_of_a_signal
from hal_core.errors import CompilerUnavailable, InvalidArgument, Unsupported, check_class
from hal_core.profiling.events import ProfileProgramEvent, record
from hal_core.source import Binary, Source

if TYPE_CHECKING:
    from hal_core.device.base import Compiled
    from hal_core.program import Program
    from hal_core.signature import Signature

_A_SOURCE = "hal.Source(name, text, signature, language=...) makes one."
log = logging.getLogger("hal_core")


def digest(source: Source, identity: str = "", headers: str = "") -> str:
    """Return the content address of a compilation: sixty-four hexadecimal digits.

    It covers all that decides the machine code. An include folder counts by the digest of its
    headers, wherever it lies; how much work a thread has, the compiler does not know.
    """
    interface = source.interface._replace(work=None)
    text, macros = source.text, tuple(sorted(source.defines))
    facts = identity, interface, source.options, macros, headers, len(text)
    state = hashlib.sha256(f"{facts!r}\n{text}".encode())
    if not source.is_plain:
        state.update(repr(source.kernels).encode())
    return state.hexdigest()


class Compiler(OfThisProcess):
    """Turns text of one language into binaries for one device; a backend's base class.

    Concurrency: `_compile` may be called from several threads.
    """

    language: str  # of the text: "c", "opencl", "llvm", ...
    format: str  # of the binaries
    target: str = ""  # architecture
    identity: str  # vendor, version, architecture, fixed options: part of the cache key
    takes_source: bool = True  # False: it compiles what its renderer writes, and no other text
    takes_offsets: bool = False  # its `Source` kernels may take each pointer as base and offset

    _instead = "Send the kernel, which is compiled there."

    def _compile(self, source: Source) -> bytes:
        """Compile the text with its options, macros and folders of headers.

        Raises: CompileError with the compiler's log.
        """
        raise NotImplementedError(f"{type(self).__name__} fills in no _compile")

    def _compile_module(self, source: Source[Any]) -> Module:
        """Compile a text of several kernels, or one whose signature the text tells.

        Raises: CompileError; Unsupported where a compiler takes one kernel and its signature.
        """
        raise Unsupported(
            f"compile {source.name}", f"a text in {self.language!r} tells no signatures here",
            fix="Make a hal.Source of each kernel, with its name and its signature.",
        )  # fmt: skip

    def _headers(self, source: Source[Any]) -> str:
        """Return a digest of the files that a text by hand includes, for the cache's key.

        Raises: InvalidArgument for a folder that cannot be read; Unsupported where no text includes
        files.
        """
        if source.includes:
            raise Unsupported(
                f"compile {source.name}", f"texts in {self.language!r} include no files here",
                got=source.includes, fix="Leave out includes=, and put headers into the text.",
            )  # fmt: skip
        return ""

    def _disassemble(self, image: bytes) -> str:
        problem = f"{type(self).__name__} has no disassembler"
        raise Unsupported("disassemble", problem, fix="Read program.source.")

    def _is_current(self, image: bytes) -> bool:
        """Tell whether a cached binary is what its text gives now, though files may have changed
        that the cache's key lacks."""
        return True

    def compile(self, source: Source) -> bytes:
        """Compile without looking into the cache.

        Raises: CompileError; InvalidArgument for a folder of `includes` that cannot be read.
        """
        if check_class(source, Source, "compile", _A_SOURCE).includes:
            self._headers(source)  # compilers themselves pass over a folder that is missing
        return self._compile(source)

    def compile_or_reuse(self, source: Source) -> tuple[bytes, bool]:
        """Take the binary from the cache, or compile and store it; True if the cache had it.

        Raises: CompileError; CompilerUnavailable for a miss under HAL_CACHE_ONLY=1.
        """
        check_class(source, Source, "compile", _A_SOURCE)
        headers = "" if source.interface.rendered else self._headers(source)
        key = digest(source, self.identity, headers)
        found = cache.load(key)
        if found is not None and self._is_current(found):
            return found, True
        if config.CACHE_ONLY.read():
            problem = "not in the compile cache, and HAL_CACHE_ONLY=1 forbids compiling"
            fix = "The cache is off, by HAL_CCACHE=0 or for want of a home folder: turn it on."
            if place := cache.folder():
                fix = f"Run once without it, or look into {place}."
            raise CompilerUnavailable(f"compile {source.name}", problem, got=key[:12], fix=fix)
        if source.is_plain:
            image = self._compile(source)
        else:
            image = self._compile_module(source).to_bytes()
        cache.store(key, image)
        return image, False

    def disassemble(self, image: bytes) -> str:
        """Return assembly text. Raises: Unsupported, naming the tool to install."""
        given: object = image
        if not isinstance(given, bytes):
            problem, got = "machine code is bytes", type(image).__name__
            raise InvalidArgument("disassemble", problem, got=got, fix="Give program.binary.image.")
        return self._disassemble(image)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.identity}>"


class _CompilerPair(NamedTuple):
    name: str  # CPU_CC=name chooses the pair
    language: str
    renderer: Callable[[], Any] | None  # None: the pair takes `Source` kernels only
    compiler: Callable[[], Compiler]  # raises CompilerUnavailable saying what to install


class CompilerPair(_CompilerPair, OfThisProcess):
    """A renderer and a compiler of one language, neither made before the pair is chosen."""

    _instead = Compiler._instead


def compile_source(device: Compiled, source: Source[Any]) -> list[Program]:
    """Make the programs of a text, whatever was compiled before. Raises: as `Compiled.compile`."""
    interface = source.interface
    pair, compiler = select(device, None if interface.rendered else source.language)
    check(interface, device.info)
    if not (interface.rendered or compiler.takes_source):
        raise Unsupported(
            f"compile {source.name}", f"the compiler {pair.name!r} takes what its renderer writes",
            device=device.name, fix="Write the kernel as a function with @hal.kernel.",
        )  # fmt: skip
    if interface.offsets and not compiler.takes_offsets:
        raise Unsupported(
            f"compile {source.name}", "kernels of this device take pointers without an offset",
            device=device.name, fix="Leave out offsets=True: a view's pointer has its offset.",
        )  # fmt: skip
    start_ns = perf_counter_ns()
    try:
        image, cached = compiler.compile_or_reuse(source)
    except unless_of_a_signal(BaseException):  # raises what an error has replaced
        raise
    times = start_ns, perf_counter_ns()
    kind = "reuse" if cached else "compile"
    record(ProfileProgramEvent, kind, source.name, device.name, times, len(image))
    kernels: Iterable[Signature] = (source.signature,)
    if not source.is_plain:
        image, kernels = Module.of_bytes(image, f"compile {source.name}", device.name)
    programs = []
    for signature in kernels:
        own = interface._replace(signature=signature)
        if not source.is_plain:
            check(own, device.info)
        binary = Binary(image, compiler.format, compiler.target, own)
        program = device._load(binary, source.text, pair.name)
        device._backend.observe("hal_compiled", device, program=program, cached=cached)
        programs.append(program)
    device._modules.pop(id(image), None)
    log.debug("%s: compiled %s with %s, cached: %s", device.name, source.name, pair.name, cached)
    return programs
