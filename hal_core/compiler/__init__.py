"""Compilers: text to binary, cached on disk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from hal_core import cache, config
from hal_core.errors import CompilerUnavailable, InvalidArgument, Unsupported
from hal_core.ir import Kernel, Signature, Source
from hal_core.ir.cost import operations_per_thread

if TYPE_CHECKING:
    from hal_core.render import Renderer


class Binary(NamedTuple):
    """Machine code of one kernel and all that launching it needs."""

    image: bytes
    format: str  # "elf", "opencl", "cubin", "ptx", ...
    target: str  # architecture it was made for
    entry: str
    signature: Signature
    block: tuple[int, int, int] | None = None  # the only block shape it runs with
    shared_nbytes: int = 0  # a block's, besides what a launch adds
    rendered: bool = False  # by one of our renderers, which fixes its calling convention
    work: int | None = None  # operations a thread; None: unknown

    def __repr__(self) -> str:
        return f"<Binary {self.entry} {self.format} {self.target} {len(self.image)} bytes>"


class CompileOptions(NamedTuple):
    """What besides the text decides the machine code; all of it is part of the cache key."""

    entry: str
    signature: Signature
    options: tuple[str, ...] = ()
    defines: tuple[tuple[str, str], ...] = ()
    includes: tuple[str, ...] = ()  # folders
    block: tuple[int, int, int] | None = None
    shared_nbytes: int = 0  # a block; of a `Source` it is not known
    rendered: bool = False
    work: int | None = None

    @classmethod
    def of_source(cls, source: Source) -> CompileOptions:
        """Those of a kernel that is text."""
        return cls(
            source.name,
            source.signature,
            source.options,
            tuple(sorted(source.defines)),
            source.includes,
            source.block,
        )

    @classmethod
    def of_kernel(cls, kernel: Kernel, options: tuple[str, ...]) -> CompileOptions:
        """Those of a kernel whose text a renderer wrote; `options` are what it asks for."""
        return cls(
            kernel.name,
            kernel.signature,
            options,
            block=kernel.block,
            shared_nbytes=kernel.shared_nbytes,
            rendered=True,
            work=operations_per_thread(kernel),
        )


def digest(source: str, options: CompileOptions, identity: str = "") -> str:
    """The content address of a compilation: sixty-four hexadecimal digits."""
    parts = [
        identity,
        options.entry,
        str(options.signature),
        repr(options.options),
        repr(options.defines),
        repr(options.block),
        repr(options.shared_nbytes),
        repr(options.rendered),
        source,
    ]
    state = hashlib.sha256()
    for part in parts:
        data = part.encode()
        state.update(b"%d:" % len(data))
        state.update(data)
    for folder in options.includes:
        _add_folder(state, folder)
    return state.hexdigest()


def _add_folder(state: hashlib._Hash, folder: str) -> None:
    """Headers are part of the program: every file below an include folder counts, those behind
    links too. Pipes and devices are no headers."""
    seen = set()
    try:
        if not os.path.isdir(folder):
            raise NotADirectoryError(f"{folder} is no folder")
        for root, folders, files in os.walk(folder, followlinks=True):
            real = os.path.realpath(root)
            folders[:] = sorted(folders) if real not in seen else []
            seen.add(real)
            for name in sorted(files):
                path = os.path.join(root, name)
                if os.path.isfile(path):
                    _add_file(state, os.path.relpath(path, folder), path)
    except OSError as error:
        raise InvalidArgument(
            "compile", f"an include folder cannot be read: {error}", got=folder
        ) from None
    state.update(b"end of folder")


def _add_file(state: hashlib._Hash, name: str, path: str) -> None:
    with open(path, "rb") as file:
        data = file.read()
    label = os.fsencode(name)
    state.update(b"%d:%b%d:" % (len(label), label, len(data)))
    state.update(data)


class Compiler:
    """Turns text of one language into binaries for one device; a backend's base class.

    Concurrency: `_compile` may be called from several threads.
    """

    language: str  # of the text it takes: "c", "opencl", "llvm", ...
    format: str  # of the binaries it gives
    target: str = ""  # architecture
    identity: str  # vendor, version, architecture, fixed options: all of it enters the cache key

    def _compile(self, source: str, options: CompileOptions) -> bytes:
        """Raises: CompileError with the compiler's log."""
        raise NotImplementedError(f"{type(self).__name__} fills in no _compile")

    def _disassemble(self, image: bytes) -> str:
        raise Unsupported(
            "disassemble", f"{type(self).__name__} has no disassembler", fix="Read program.source."
        )

    def compile(self, source: str, options: CompileOptions) -> bytes:
        """Compiles, whatever the cache holds. Raises: CompileError."""
        return self._compile(source, options)

    def compile_cached(self, source: str, options: CompileOptions) -> bytes:
        """From the cache on disk, else compiles and stores.

        Raises: CompileError; a miss under HAL_CACHE_ONLY=1 is CompilerUnavailable.
        """
        return self.compile_or_reuse(source, options)[0]

    def compile_or_reuse(self, source: str, options: CompileOptions) -> tuple[bytes, bool]:
        """The binary, and whether it came from the cache."""
        key = digest(source, options, self.identity)
        found = cache.load(key)
        if found is not None:
            return found, True
        if config.CACHE_ONLY.read():
            raise CompilerUnavailable(
                f"compile {options.entry}",
                "not in the compile cache, and HAL_CACHE_ONLY=1 forbids compiling",
                got=key[:12],
                fix=f"Run once without it, or look into {cache.folder()}.",
            )
        image = self._compile(source, options)
        cache.store(key, image)
        return image, False

    def disassemble(self, image: bytes) -> str:
        """Assembly text. Raises: Unsupported, naming the tool to install."""
        return self._disassemble(image)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.identity}>"


class CompilerPair(NamedTuple):
    """A way from kernels to binaries; nothing of it is made before it is chosen."""

    name: str  # what CPU_CC=name chooses
    language: str
    renderer: Callable[[], Renderer] | None  # None: takes `Source` kernels only
    compiler: Callable[[], Compiler]  # raises CompilerUnavailable saying what to install
