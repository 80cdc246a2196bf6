"""Compilers turn kernel text into binaries; `compile_kernel` takes a kernel to a loaded program."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, NamedTuple

from hal_core import config
from hal_core.compiler import cache
from hal_core.compiler.included import add_included
from hal_core.compiler.requirements import check_kernel
from hal_core.compiler.selection import select
from hal_core.concurrency import OfThisProcess
from hal_core.errors import CompilerUnavailable, InvalidArgument, Unsupported
from hal_core.ir import Kernel
from hal_core.ir.cost import operations_per_thread
from hal_core.ir.verify import verify
from hal_core.lang import KernelFunction
from hal_core.profiling import ProfileProgramEvent, record
from hal_core.signature import Signature
from hal_core.source import Source

if TYPE_CHECKING:
    from hal_core.device.base import Compiled
    from hal_core.program import Program
    from hal_core.render import Renderer

log = logging.getLogger("hal_core")


class Binary(NamedTuple):
    """Machine code of one kernel, and the facts that launching it needs.

    These facts are the fields of its `CompileOptions` that a launch reads. They stand here one by
    one, as machine code from elsewhere has a signature but no compile options.
    """

    image: bytes
    format: str  # "elf", "opencl", "cubin", "ptx", ...
    target: str  # the architecture it was compiled for
    entry: str  # the kernel's name in the machine code
    signature: Signature
    block: tuple[int, int, int] | None = None  # the only block shape it runs with
    shared_nbytes: int = 0  # of each block, without the dynamic shared memory of a launch
    rendered: bool = False  # True: the text is a renderer's, which fixes the calling convention
    work: int | None = None  # operations of each thread; None: unknown
    offsets: bool = False  # of a Source: each pointer is followed by its byte offset

    def __repr__(self) -> str:
        return f"<Binary {self.entry} {self.format} {self.target} {len(self.image)} bytes>"


class CompileOptions(NamedTuple):
    """Everything besides the text that decides the machine code; part of the cache key."""

    entry: str
    signature: Signature
    options: tuple[str, ...] = ()
    defines: tuple[tuple[str, str], ...] = ()
    includes: tuple[str, ...] = ()  # folders of headers
    block: tuple[int, int, int] | None = None
    shared_nbytes: int = 0  # of each block; 0 for a `Source`, where it is not known
    rendered: bool = False
    work: int | None = None  # the only field outside the cache key: machine code has no use for it
    offsets: bool = False

    @classmethod
    def of_source(cls, source: Source) -> CompileOptions:
        """Return the options of a kernel that is text."""
        return cls(
            source.name,
            source.signature,
            source.options,
            tuple(sorted(source.defines)),
            source.includes,
            source.block,
            work=source.work,
            offsets=source.offsets,
        )

    @classmethod
    def of_kernel(cls, kernel: Kernel, options: tuple[str, ...]) -> CompileOptions:
        """Return the options of a kernel whose renderer asks for the compiler flags `options`."""
        return cls(
            kernel.name,
            kernel.signature,
            options,
            block=kernel.block,
            shared_nbytes=kernel.shared_nbytes,
            rendered=True,
            work=operations_per_thread(kernel.uops),
        )


def digest(source: str, options: CompileOptions, identity: str = "") -> str:
    """Return the content address of a compilation: sixty-four hexadecimal digits."""
    # An include folder counts by the files that are included, wherever it lies.
    facts = identity, options._replace(includes=(), work=None), len(source)
    state = hashlib.sha256(f"{facts!r}\n{source}".encode())
    if not options.rendered:
        add_included(state, source, options.includes)
    return state.hexdigest()


class Compiler(OfThisProcess):
    """Turns text of one language into binaries for one device; a backend's base class.

    Concurrency: `_compile` may be called from several threads.
    """

    language: str  # of the text: "c", "opencl", "llvm", ...
    format: str  # of the binaries
    target: str = ""  # architecture
    identity: str  # vendor, version, architecture, fixed options: part of the cache key
    takes_offsets: bool = False  # its `Source` kernels may take each pointer as base and offset

    _instead = "Send the kernel, which is compiled there."

    def _compile(self, source: str, options: CompileOptions) -> bytes:
        """Compile the text. Raises: CompileError with the compiler's log."""
        raise NotImplementedError(f"{type(self).__name__} fills in no _compile")

    def _disassemble(self, image: bytes) -> str:
        problem = f"{type(self).__name__} has no disassembler"
        raise Unsupported("disassemble", problem, fix="Read program.source.")

    def _is_current(self, image: bytes) -> bool:
        """Tell whether a cached binary is what its text gives now, though files may have changed
        that the cache's key lacks."""
        return True

    def compile(self, source: str, options: CompileOptions) -> bytes:
        """Compile without looking into the cache. Raises: CompileError."""
        return self._compile(source, options)

    def compile_cached(self, source: str, options: CompileOptions) -> bytes:
        """Take the binary from the cache on disk, or compile and store it.

        Raises: CompileError; CompilerUnavailable for a miss under HAL_CACHE_ONLY=1.
        """
        return self.compile_or_reuse(source, options)[0]

    def compile_or_reuse(self, source: str, options: CompileOptions) -> tuple[bytes, bool]:
        """Do as `compile_cached`; return the binary, and True when it came from the cache."""
        key = digest(source, options, self.identity)
        found = cache.load(key)
        if found is not None and self._is_current(found):
            return found, True
        if config.CACHE_ONLY.read():
            problem = "not in the compile cache, and HAL_CACHE_ONLY=1 forbids compiling"
            fix = f"Run once without it, or look into {cache.folder()}."
            raise CompilerUnavailable(f"compile {options.entry}", problem, got=key[:12], fix=fix)
        image = self._compile(source, options)
        cache.store(key, image)
        return image, False

    def disassemble(self, image: bytes) -> str:
        """Return assembly text. Raises: Unsupported, naming the tool to install."""
        return self._disassemble(image)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.identity}>"


class CompilerPair(NamedTuple):
    """A renderer and a compiler of one language, neither made before the pair is chosen."""

    name: str  # CPU_CC=name chooses the pair
    language: str
    renderer: Callable[[], Renderer] | None  # None: the pair takes `Source` kernels only
    compiler: Callable[[], Compiler]  # raises CompilerUnavailable saying what to install


def compile_kernel(device: Compiled, kernel: object) -> Program:
    """Make a program of a kernel, whatever was compiled before. Raises: as `Compiled.compile`."""
    if not isinstance(kernel, (KernelFunction, Kernel, Source)):
        fix = "Decorate a function with @hal.kernel, or make a hal.Source. "
        fix += "A hal.Program is compiled already: call it."
        raise InvalidArgument("compile", "not a kernel", got=kernel, device=device.name, fix=fix)
    pair, compiler = select(device, kernel.language if isinstance(kernel, Source) else None)
    if isinstance(kernel, KernelFunction):
        kernel = kernel.lower()
    elif isinstance(kernel, Kernel):
        verify(kernel)  # a user's own IR may have nodes of any form, which the next check reads
    check_kernel(kernel, device.info)
    if isinstance(kernel, Source):
        if kernel.offsets and not compiler.takes_offsets:
            raise Unsupported(
                f"compile {kernel.name}", "kernels of this device take pointers without an offset",
                device=device.name, fix="Leave out offsets=True: a view's pointer has its offset.",
            )  # fmt: skip
        text, options = kernel.text, CompileOptions.of_source(kernel)
    else:
        renderer = pair.renderer()  # type: ignore[misc]  # the pair was selected for having one
        try:
            text = renderer.render(kernel)
        except Unsupported as error:  # a renderer does not know for which device it writes
            facts = {} if error.limit is None else {"limit": error.limit}
            fix = error.fix or "Use a dtype that it has."
            raise Unsupported(
                error.operation, error.problem, got=error.got, **facts, device=device.name, fix=fix
            ) from None
        options = CompileOptions.of_kernel(kernel, renderer.options(kernel))
    start_ns = perf_counter_ns()
    image, cached = compiler.compile_or_reuse(text, options)
    times = start_ns, perf_counter_ns()
    kind = "reuse" if cached else "compile"
    record(ProfileProgramEvent, kind, kernel.name, device.name, times, len(image))
    binary = Binary(
        image,
        compiler.format,
        compiler.target,
        options.entry,
        options.signature,
        options.block,
        options.shared_nbytes,
        options.rendered,
        options.work,
        options.offsets,
    )
    program = device.load(binary, source=text, pair=pair.name)
    device._backend.compiled(device, program, cached)
    log.debug("%s: compiled %s with %s, cached: %s", device.name, kernel.name, pair.name, cached)
    return program
