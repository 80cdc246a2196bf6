"""LLVM IR to ELF objects: LLVM works in this process, through llvmlite."""

from __future__ import annotations

import threading
from typing import Any

from hal_core.compiler import CompileOptions
from hal_core.concurrency import hold_during_fork
from hal_core.discovery import distribution_version
from hal_core.errors import CompilerUnavailable, Unsupported
from hal_cpu import processor
from hal_cpu.compilers.objects import ObjectCompiler, failed, line_in
from hal_cpu.threads.stacks import with_room

# Longer texts are not optimised: some passes take the square of the length, minutes from here on.
MOST_LINES = 6_000
_CONVENTION = "void (ptr, ptr, i64, i64)"
_STACK_NBYTES = 4 << 20  # LLVM recurses; a quarter is enough for texts of that length


# A fork waits until it is free: LLVM, and llvmlite's own lock, would otherwise be left to the child
# in the middle of another thread's compilation.
_llvm_lock = threading.RLock()
hold_during_fork(_llvm_lock)


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
        self.identity = f"llvmlite {version or 'unknown'} {how} {processor.cpu_identity()}"
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
                    if not options.rendered:
                        _check_convention(module, options.entry)
                    _run_passes(llvm, machine, module, level)
                    image: bytes = machine.emit_object(module)
            except (RuntimeError, ValueError) as error:
                log = str(error)
                raise failed("llvm", options, log, source, line_in(log, "<string>:")) from None
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


def _check_convention(module: Any, entry: str) -> None:
    """Another function of that name would take a launch's tables for its arguments."""
    try:
        found = str(module.get_function(entry).global_value_type)
    except NameError:  # which the loader tells
        return
    if found != _CONVENTION:
        raise ValueError(
            f"@{entry} is {found}, and a kernel is {_CONVENTION}: its arguments, the launch, the "
            "first block and the one behind the last. `hal render --language llvm` writes such."
        )


def _run_passes(llvm: Any, machine: Any, module: Any, level: int) -> None:
    with llvm.create_pipeline_tuning_options(speed_level=level) as tuning:
        tuning.loop_vectorization = tuning.slp_vectorization = level > 0
        with (
            llvm.create_pass_builder(machine, tuning) as builder,
            builder.getModulePassManager() as manager,
        ):
            manager.run(module, builder)
