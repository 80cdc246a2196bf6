"""Compile LLVM IR to objects in this process, through llvmlite."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from hal_core.concurrency import hold_during_fork, unless_of_a_signal
from hal_core.discovery import distribution_version
from hal_core.errors import CompilerUnavailable, OutOfMemory
from hal_core.source import Source, refuse_flags
from hal_cpu import __version__, driver, processor
from hal_cpu.compilers.objects import ObjectCompiler
from hal_cpu.compilers.seal import sealed
from hal_cpu.threads.job import call_in_thread

# Longer texts are not optimised: the time of some passes grows as its square, to minutes.
MOST_LINES = 6_000
# In longer ones, whose barriers leave thousands of instructions in one block, instructions are not
# put in the best order: LLVM spent 60 % of its time on that, and the code was no faster.
MOST_LINES_ORDERED = 2_000
# A rendered text says what is known once, ahead of all loops that do not change it, so a few passes
# are enough; all of LLVM's take several times as long. They find more where the text asks.
_FEW = (
    "always_inliner", "sroa", "simplify_cfg", "instruction_combine", "loop_rotate", "loop_unroll",
    "instruction_combine", "simplify_cfg", "aggressive_dce",
)  # fmt: skip
ALL_PASSES = "; all passes"
# Where LLVM 22 joins straight code to vectors (SLP), it narrows sign-extended 64-bit integers to
# 32 bits, and then converts these as unsigned ones: float(-1 as uint64) became 4.29e9.
_MISTAKEN = "uitofp i64"
# Processors of Intel that run slower while they compute with vectors of 512 bits. For all with
# AVX-512 LLVM prefers 256; for the later ones 512 took 0.6 to 1.04 times as long.
_SLOWED = frozenset({"skylake-avx512", "cascadelake", "cooperlake"})
_CONVENTION = "void (ptr, ptr, i64, i64)"
# Words of a `define` that a kernel may have; attributes that pass a parameter elsewhere.
_LINKAGE = re.compile(r"\b(?:weak\w*|dso_local|hidden|protected) ")
_MOVING = re.compile(r"\b(?:byval|byref|inalloca|nest|preallocated|sret|swift\w+)\b")
# Address space, not memory that is touched. Measured: 153 MiB, 30 MiB, 8 bytes.
_IMPORT_NBYTES, _COMPILE_NBYTES, _CHARACTER_NBYTES = 256 << 20, 96 << 20, 32
_STACK_NBYTES = 4 << 20  # LLVM recurses; a quarter is enough for MOST_LINES


# LLVM ends the process at these words, as llvmlite has no parser of assembly and no collector of
# garbage, and at an intrinsic of another processor. Names are those of LLVM's targets.
_BESIDE = re.compile(r'"[^"\n]*"|;[^\n]*')  # strings and comments
_PROCESSOR = re.compile(r'"(?:target-(?:cpu|features)|tune-cpu)"="[^"\n]*"')  # as clang writes them
_WORD = re.compile(r"(?<![@%$\w.-])(asm|gc|vscale|x86_amx)\b(?!:)")
_INTRINSIC = re.compile(
    r"@llvm\.(aarch64|amdgcn|arm|bpf|dx|hexagon|loongarch|mips|nvvm|ppc|r600|riscv|s390|spv|ve|wasm"
    r"|x86|xcore)\.[\w.]+"
)
_OWN_INTRINSICS = {"x86-64": "x86", "aarch64": "aarch64"}


# A fork waits for this lock. Without it a child could inherit LLVM, and llvmlite's own lock, in the
# middle of another thread's compilation.
llvm_lock = threading.RLock()
hold_during_fork(llvm_lock)


class LLVMCompiler(ObjectCompiler):
    """LLVM through llvmlite, which is imported at the first kernel that the compile cache lacks.

    Concurrency: one compilation at a time, as LLVM's context requires.
    """

    language = "llvm"
    name = "llvm"
    # LLVM's engine makes no stubs for calls of libraries in Mach-O objects, so the code holds whole
    # addresses.
    _code_model = "large" if ObjectCompiler.format == "macho" else "small"

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
        limits = f"O3 to {MOST_LINES_ORDERED} and {MOST_LINES} lines, no SLP for {_MISTAKEN}"
        limits += f", 256 bits on {', '.join(sorted(_SLOWED))}, fast-gather, {' '.join(_FEW)}"
        how = f"{limits} pic for {self.system}, sealed, hal-cpu {__version__},"
        self.identity = f"llvmlite {version or 'unknown'} {how} {processor.cpu_identity()}"
        self._machines: dict[int, Any] = {}  # optimisation level -> LLVM's target machine

    def _compile(self, source: Source) -> bytes:
        refuse_flags(source, "LLVM IR", "CPU")
        if not source.interface.rendered:
            self._refuse_unwritten(source)
        needed = _COMPILE_NBYTES + _CHARACTER_NBYTES * len(source.text)
        check = partial(_check_memory, needed, f"compile {source.name}")
        check()  # here, too: Python waits for ever for a thread that has no memory to begin
        make = partial(self._make_object, source, check)
        # llvmlite frees an object twice, which ends the process, if Ctrl-C comes as it closes it.
        return call_in_thread(make, _STACK_NBYTES)

    def _refuse_unwritten(self, source: Source) -> None:
        """Raise CompileError for a text whose code LLVM cannot write."""
        text = _BESIDE.sub("", source.text)
        own = _OWN_INTRINSICS.get(processor.machine())
        foreign = [one for one in _INTRINSIC.finditer(text) if one[1] != own]
        if foreign:
            raise self.refusal(source, f"{foreign[0][0]} is of another processor", "<string>")
        word = _WORD.search(text)
        if word:
            raise self.refusal(source, f"{word[0]!r} is not supported", "<string>")

    def _make_object(self, source: Source, check: Callable[[], object]) -> bytes:
        lines = source.text.count("\n")
        level = 3 if lines <= MOST_LINES else 0
        ordering = min(level, 3 if lines <= MOST_LINES_ORDERED else 1)
        with llvm_lock:
            llvm = import_llvm()
            check()
            machine = self._machines.get(ordering)
            if machine is None:
                target = llvm.Target.from_triple(self._triple(llvm))
                machine = self._machines[ordering] = target.create_target_machine(
                    cpu=llvm.get_host_cpu_name(),
                    features=_features(llvm),
                    opt=ordering,
                    reloc="pic",
                    codemodel=self._code_model,
                )
            try:
                # Closed by `with`: a finalizer would call LLVM while another thread holds the lock.
                # All of this processor counts. LLVM ends the process at features of others.
                with llvm.parse_assembly(_PROCESSOR.sub("", source.text)) as module:
                    module.triple = machine.triple
                    module.data_layout = str(machine.target_data)
                    module.verify()
                    if not source.interface.rendered:
                        _check_convention(module, source.name)
                    _run_passes(llvm, machine, module, level, source)
                    image = sealed(machine.emit_object(module))
            except unless_of_a_signal(RuntimeError, ValueError) as error:
                raise self.refusal(source, str(error), "<string>") from None
        return image

    def _triple(self, llvm: Any) -> str:
        """Return the machine, system and form of the objects, as LLVM writes them."""
        triple: str = llvm.get_default_triple()
        return f"{triple}-elf" if self.system == "win32" else triple  # there it would be COFF


def _features(llvm: Any) -> str:
    """Return what the processor has; vectors may be as wide as it has them, gathers instructions.

    LLVM takes the gathers of most processors with AVX2 for slow, and writes five instructions for
    each lane, for which it takes four times as long. On Zen 3 they were no faster.
    """
    found: str = llvm.get_host_cpu_features().flatten()
    wide = "+avx512f" in found.split(",") and llvm.get_host_cpu_name() not in _SLOWED
    gathers = ",+fast-gather" if "+avx2" in found.split(",") else ""
    return found + gathers + (",-prefer-256-bit" if wide else "")


def _check_memory(needed: int, operation: str) -> None:
    """Raise OutOfMemory if LLVM may find no memory: it would end the process (abort)."""
    try:
        driver.unmap_pages(driver.map_pages(needed), needed)
    except driver.Refused as error:
        raise OutOfMemory(
            operation,
            f"LLVM may need that many bytes: {error}",
            got=needed,
            device="CPU",
            fix="Free memory, raise the process's limit (ulimit -v), or let gcc or clang compile, "
            "with CPU_CC=gcc.",
        ) from None


def import_llvm() -> Any:
    """Import llvmlite and initialise its target. The caller holds the lock."""
    if "llvmlite.binding" not in sys.modules:
        _check_memory(_IMPORT_NBYTES, "import llvmlite")
    try:
        import llvmlite.binding as llvm
    except unless_of_a_signal(ImportError, OSError) as error:
        raise CompilerUnavailable(
            "compile",
            f"llvmlite cannot be imported: {error}",
            device="CPU",
            fix="pip install --force-reinstall llvmlite",
        ) from error
    llvm.initialize_native_target()  # a second time does nothing
    llvm.initialize_native_asmprinter()
    return llvm


def _check_convention(module: Any, entry: str) -> None:
    """Raise ValueError for an entry that takes other parameters than a launch passes."""
    found = "missing"
    with suppress(NameError):
        function = module.get_function(entry)
        head = re.search(r"(?m)^define (.*?)void @(.*)", _BESIDE.sub("", str(function)))
        moved = [_LINKAGE.sub("", head[1]), *_MOVING.findall(head[2])] if head else ["declared"]
        found = " ".join([*" ".join(moved).split(), str(function.global_value_type)])
    if found != _CONVENTION:
        raise ValueError(
            f"@{entry} is {found}, and a kernel is {_CONVENTION}: its arguments, the launch, the "
            "first block and the block after the last. `hal render --language llvm` shows one."
        )


def _run_passes(llvm: Any, machine: Any, module: Any, level: int, source: Source) -> None:
    """Optimise a module. A rendered one has its vectors already: LLVM looks for none."""
    own = not source.interface.rendered
    few = not own and level > 0 and not source.text.startswith(ALL_PASSES)
    with llvm.create_pipeline_tuning_options(speed_level=level if own else min(level, 2)) as tuning:
        tuning.loop_vectorization = own and level > 0
        tuning.slp_vectorization = own and level > 0 and _MISTAKEN not in source.text
        with llvm.create_pass_builder(machine, tuning) as builder:
            if few:
                manager = llvm.create_new_module_pass_manager()
                for name in _FEW:
                    getattr(manager, f"add_{name}_pass")()
            else:
                manager = builder.getModulePassManager()
            try:
                manager.run(module, builder)
            finally:
                _release(manager)


def _release(manager: Any) -> None:
    """Free a pass manager. In llvmlite 0.50 `close` does not: it finds the `_dispose` of another
    base class, which does nothing, and 80 KiB stay behind."""
    from llvmlite.binding import newpassmanagers

    free = getattr(newpassmanagers.NewPassManager, "_dispose", None)
    if free is None:
        manager.close()
    else:
        free(manager)
        manager.detach()  # or a later version frees it once more
