"""Compilers: text to binary, cached on disk, and which of a device's several serves."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from hal_core import cache, config
from hal_core.errors import CompilerUnavailable, HalError, InvalidArgument, Unsupported
from hal_core.ir import Kernel, Signature, Source
from hal_core.ir.cost import operations_per_thread

if TYPE_CHECKING:
    from hal_core.device import Compiled
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


class Selected(NamedTuple):
    """A pair whose compiler was made."""

    name: str
    compiler: Compiler
    renderer: Callable[[], Renderer] | None

    def make_renderer(self) -> Renderer:
        """Renderers are stateless and cost nothing; a `Source` kernel needs none."""
        if self.renderer is None:
            raise CompilerUnavailable(
                "compile", f"the compiler {self.name} takes hal.Source kernels only"
            )
        return self.renderer()


def forced(family: str, names: list[str]) -> str | None:
    """The pair that the environment asks for: `CPU_CC=clang`, else `CPU_CLANG=1`.

    Raises: InvalidArgument when two are switched on, or the name is unknown.
    """
    chosen = os.environ.get(f"{family}_CC", "").strip()
    if chosen:
        if chosen not in names:
            near = difflib.get_close_matches(chosen, names, 3, 0.4)
            raise InvalidArgument(
                f"{family}_CC",
                "no such compiler",
                got=chosen,
                device=family,
                fix=f"{'Did you mean ' + ', '.join(near) + '? ' if near else ''}"
                f"Known: {', '.join(names)}.",
            )
        return chosen
    on = [name for name in names if _switched_on(f"{family}_{name.upper()}")]
    if len(on) > 1:
        raise InvalidArgument(
            " and ".join(f"{family}_{name.upper()}=1" for name in on),
            "two compilers are forced",
            device=family,
            fix=f"Leave one, or set {family}_CC={on[0]}, which beats them.",
        )
    return on[0] if on else None


def _switched_on(variable: str) -> bool:
    text = os.environ.get(variable)
    if text is None:
        return False
    try:
        return config.flag(text)
    except ValueError as error:
        raise InvalidArgument(f"environment variable {variable}", str(error), got=text) from None


def select(device: Compiled, language: str | None) -> Selected:
    """The pair that serves: the forced one, else the first whose compiler can be made.

    `language` is a `Source` kernel's, None asks for a pair that renders kernel IR. A pair that
    fails is remembered with its reason, and is not tried again.

    Raises: CompilerUnavailable with every reason, when none serves.
    """
    pairs = device.compilers
    name = forced(device.family, [pair.name for pair in pairs])
    able = [
        pair
        for pair in pairs
        if (pair.renderer is not None if language is None else pair.language == language)
    ]
    operation = "compile" if language is None else f"compile a {language!r} source"
    if not able:
        takes = sorted({pair.language for pair in pairs})
        raise CompilerUnavailable(
            operation,
            "no compiler of this device takes it",
            device=device.name,
            fix=f"It takes hal.Source kernels in {', '.join(takes) or 'no language'}.",
        )
    if name is not None:
        able = [pair for pair in able if pair.name == name]
        if not able:
            raise CompilerUnavailable(
                operation,
                f"the compiler {name!r}, which the environment forces, does not take it",
                device=device.name,
            )
    for pair in able:
        chosen = device._selected.get(pair.name)
        if chosen is None and pair.name not in device._failed:
            chosen = _make(device, pair)
        if chosen is not None:
            return chosen
    reasons = "; ".join(f"{pair.name}: {device._failed[pair.name]}" for pair in able)
    raise CompilerUnavailable(operation, f"no compiler can serve: {reasons}", device=device.name)


def _make(device: Compiled, pair: CompilerPair) -> Selected | None:
    with device._lock:
        try:
            chosen = Selected(pair.name, pair.compiler(), pair.renderer)
        except (HalError, ImportError, OSError) as error:
            device._failed[pair.name] = _reason(error)
            return None
        return device._selected.setdefault(pair.name, chosen)


def _reason(error: Exception) -> str:
    """An error as part of a sentence that names operation and device itself."""
    if not isinstance(error, HalError):
        return str(error)
    return f"{error.problem} ({error.fix.rstrip('.')})" if error.fix else error.problem
