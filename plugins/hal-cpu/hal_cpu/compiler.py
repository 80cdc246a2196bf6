"""LLVM IR and C to ELF objects.

LLVM works in this process, through llvmlite; the C compilers are programs on the machine. Both
give relocatable objects, which `loader` loads.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from hal_core.compiler import CompileOptions, Compiler, CompilerPair
from hal_core.discovery import distribution_version
from hal_core.errors import CompileError, CompilerUnavailable, Unsupported
from hal_cpu import driver
from hal_cpu.source import arguments_of, how_to_write, text_of
from hal_cpu.stacks import with_room

if TYPE_CHECKING:
    from hal_core.render import Renderer


class ObjectCompiler(Compiler):
    """What the compilers of this backend share: the form of what they make."""

    format = "elf"

    def __init__(self) -> None:
        self.target = driver.machine()

    def _disassemble(self, image: bytes) -> str:
        objdump = driver.find_tool("objdump") or driver.find_tool("llvm-objdump")
        if objdump is None:
            raise Unsupported(
                "disassemble",
                "objdump is not installed",
                device="CPU",
                fix="Install binutils (apt-get install binutils).",
            )
        import subprocess

        with tempfile.TemporaryDirectory(prefix="hal-cpu-") as folder:
            path = os.path.join(folder, "kernel.o")
            with open(path, "wb") as file:
                file.write(image)
            command = [objdump, "-d", "-r", "--no-show-raw-insn", path]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if done.returncode:
            raise CompileError("disassemble", "objdump refused", log=done.stderr, device="CPU")
        return done.stdout.partition(":\n\n")[2] or done.stdout


# -- LLVM


# Longer texts are not optimised: some passes take the square of the length, minutes from here on.
MOST_LINES = 6_000
_STACK_NBYTES = 4 << 20  # LLVM recurses; a quarter is enough for texts of that length


# A fork waits until it is free: LLVM, and llvmlite's own lock, would otherwise be left to the child
# in the middle of another thread's compilation.
_llvm_lock = threading.RLock()
os.register_at_fork(
    before=_llvm_lock.acquire,
    after_in_parent=_llvm_lock.release,
    after_in_child=_llvm_lock.release,
)


class LLVMCompiler(ObjectCompiler):
    """llvmlite, imported at the first kernel that the compile cache does not have.

    Concurrency: one compilation at a time, as LLVM's context wants.
    """

    language = "llvm"

    def __init__(self) -> None:
        super().__init__()
        from importlib.util import find_spec

        version = distribution_version("llvmlite")
        if version is None and find_spec("llvmlite") is None:
            raise CompilerUnavailable(
                "compiler llvm",
                "llvmlite is not installed",
                device="CPU",
                fix="pip install llvmlite",
            )
        how = f"O3 to {MOST_LINES} lines pic"
        self.identity = f"llvmlite {version or 'unknown'} {how} {driver.cpu_identity()}"
        self._machines: dict[int, Any] = {}  # LLVM's target machines, by how much they optimise

    def _compile(self, source: str, options: CompileOptions) -> bytes:
        if options.options or options.defines or options.includes:
            raise Unsupported(
                f"compile {options.entry}",
                "options, defines and includes mean nothing to LLVM IR",
                got=(options.options, options.defines, options.includes),
                device="CPU",
                fix="Leave them out.",
            )
        return with_room(_STACK_NBYTES, lambda: self._optimised(source, options))

    def _optimised(self, source: str, options: CompileOptions) -> bytes:
        level = 3 if source.count("\n") <= MOST_LINES else 0
        with _llvm_lock:
            llvm = self._llvm()
            machine = self._machine(llvm, level)
            try:
                # Closed here: a finalizer would call LLVM when the lock is another's.
                with llvm.parse_assembly(source) as module:
                    module.triple = machine.triple
                    module.data_layout = str(machine.target_data)
                    module.verify()
                    _run_passes(llvm, machine, module, level)
                    image: bytes = machine.emit_object(module)
            except (RuntimeError, ValueError) as error:
                log = str(error)
                raise _failed("llvm", options, log, source, _line_in(log, "<string>:")) from None
        return image

    def _llvm(self) -> Any:
        try:
            import llvmlite.binding as llvm
        except (ImportError, OSError) as error:
            raise CompilerUnavailable(
                "compile",
                f"llvmlite cannot be imported: {error}",
                device="CPU",
                fix="pip install --force-reinstall llvmlite",
            ) from error
        if not self._machines:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
        return llvm

    def _machine(self, llvm: Any, level: int) -> Any:
        machine = self._machines.get(level)
        if machine is None:
            machine = self._machines[level] = (
                llvm.Target.from_default_triple().create_target_machine(
                    cpu=llvm.get_host_cpu_name(),
                    features=llvm.get_host_cpu_features().flatten(),
                    opt=level,
                    reloc="pic",
                    codemodel="small",
                )
            )
        return machine


def _run_passes(llvm: Any, machine: Any, module: Any, level: int) -> None:
    with llvm.create_pipeline_tuning_options(speed_level=level) as tuning:
        tuning.loop_vectorization = tuning.slp_vectorization = level > 0
        with (
            llvm.create_pass_builder(machine, tuning) as builder,
            builder.getModulePassManager() as manager,
        ):
            manager.run(module, builder)


# -- C


class CCompiler(NamedTuple):
    """A C compiler as data."""

    name: str
    command: Callable[[], tuple[str, ...] | None]
    native: dict[str, str]  # machine -> the option for this very processor
    install: str
    flags: tuple[str, ...] = ()  # of this compiler only


def _on_path(name: str) -> Callable[[], tuple[str, ...] | None]:
    def find() -> tuple[str, ...] | None:
        path = driver.find_tool(name)
        return None if path is None else (path,)

    return find


def _zig() -> tuple[str, ...] | None:
    from importlib.util import find_spec

    if find_spec("ziglang") is not None:
        return sys.executable, "-m", "ziglang", "cc"
    path = driver.find_tool("zig")
    return None if path is None else (path, "cc")


_MARCH = {"x86-64": "-march=native", "aarch64": "-mcpu=native"}
C_COMPILERS = {
    row.name: row
    for row in (
        CCompiler("clang", _on_path("clang"), _MARCH, "apt-get install clang"),
        # gcc 12 makes -x of 0 - x, which has another zero, unless it respects other roundings.
        CCompiler("gcc", _on_path("gcc"), _MARCH, "apt-get install gcc", ("-frounding-math",)),
        CCompiler("zig", _zig, dict.fromkeys(_MARCH, "-mcpu=native"), "pip install ziglang"),
    )
}

_FLAGS = (
    "-c", "-x", "c", "-std=gnu11", "-O3",
    "-fPIC", "-fno-semantic-interposition",  # code can lie anywhere, and nobody replaces parts
    "-fwrapv",  # integers wrap, as the kernel language says
    "-fno-math-errno", "-fno-trapping-math",  # nobody looks; results are the same
    "-fno-stack-protector", "-fno-sanitize=all",  # some distributions switch them on
    "-fno-asynchronous-unwind-tables",
    "-Werror=incompatible-pointer-types", "-Werror=implicit-function-declaration",
)  # fmt: skip


class CCompilerProgram(ObjectCompiler):
    """One of `C_COMPILERS`, run as a program for each kernel.

    Raises: CompilerUnavailable saying what to install.
    """

    language = "c"

    def __init__(self, row: CCompiler) -> None:
        super().__init__()
        command = row.command()
        if command is None:
            raise CompilerUnavailable(
                f"compiler {row.name}", "not installed", device="CPU", fix=row.install
            )
        self.name = row.name
        self._command = (*command, *_FLAGS, *row.flags, row.native[self.target])
        version = _run([*command, "--version"])
        if version.returncode:
            raise CompilerUnavailable(
                f"compiler {row.name}",
                f"{' '.join(command)} --version fails: {version.stderr.strip()[:200]}",
                device="CPU",
                fix=row.install,
            )
        fixed = " ".join(self._command)  # `native` means what the processor's flags say
        self.identity = f"{fixed} {version.stdout.strip()} {driver.cpu_identity()}"

    def _compile(self, source: str, options: CompileOptions) -> bytes:
        arguments = arguments_of(options)
        text = text_of(source, options)
        with tempfile.TemporaryDirectory(prefix="hal-cpu-") as folder:
            written, made = (os.path.join(folder, f"kernel.{end}") for end in "co")
            with open(written, "w", encoding="utf-8") as file:
                file.write(text)
            command = [*self._command, *arguments, written, "-o", made]
            done = _run(command)
            if done.returncode or not os.path.exists(made):
                log = done.stderr.strip() or f"exit status {done.returncode}"
                line = _line_in(log, f"{options.entry}.c:")
                raise _failed(self.name, options, log, source, line)
            with open(made, "rb") as file:
                return file.read()


# Compilers read folders and options from these too, which no cache key would know.
_NOT_PASSED = {
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH", "SDKROOT",
    "GCC_EXEC_PREFIX", "COMPILER_PATH", "LIBRARY_PATH", "CCC_OVERRIDE_OPTIONS",
    "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES",
}  # fmt: skip


def _run(command: list[str]) -> Any:
    import subprocess

    passed = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED}
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env={**passed, "LC_ALL": "C"},  # in English
    )


# -- the device's list


def _llvm_renderer() -> Renderer:
    from hal_core.render import LLVMRenderer

    return LLVMRenderer(half=driver.has_half(), fma=driver.has_fma())


def _c_renderer() -> Renderer:
    from hal_core.render import CRenderer

    return CRenderer()


def _checked_renderer() -> Renderer:
    from hal_core.render import UOpsRenderer

    return UOpsRenderer()


def _checked_compiler() -> Compiler:
    from hal_cpu.interpreted import UOpsCompiler

    return UOpsCompiler()


CHECKED = CompilerPair("checked", "uops", _checked_renderer, _checked_compiler)


def pairs(checked: bool = False) -> list[CompilerPair]:
    """LLVM first: it is always there. Then the C compilers, for those who ask for one by name
    and for `Source` kernels in C. Of a checked device the interpreter comes before all of them."""
    return [
        *([CHECKED] if checked else []),
        CompilerPair("llvm", "llvm", _llvm_renderer, LLVMCompiler),
        *(
            CompilerPair(name, "c", _c_renderer, partial(CCompilerProgram, row))
            for name, row in C_COMPILERS.items()
        ),
    ]


# -- errors


def _failed(
    compiler: str, options: CompileOptions, log: str, text: str, line: int | None
) -> CompileError:
    return CompileError(
        f"compile {options.entry}",
        f"{compiler} refused the kernel",
        log=log,
        source=text,
        line=line,
        device="CPU",
        fix=how_to_write(options.signature, log),
    )


def _line_in(log: str, mark: str) -> int | None:
    """The first line number after `mark` in an error message of the log."""
    for message in log.splitlines():
        if "error" not in message or mark not in message:
            continue
        digits = message.partition(mark)[2].partition(":")[0]
        if digits.isdigit():
            return int(digits)
    return None
