"""An opened device: the base class of every backend's device."""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack
from time import perf_counter_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

from hal_core import concurrency, profiling
from hal_core.allocator import Allocator
from hal_core.compiler import Binary, CompileOptions
from hal_core.compiler.requirements import check_kernel, has_dtype
from hal_core.compiler.selection import Selected, select
from hal_core.concurrency import Living
from hal_core.dtypes import as_dtype
from hal_core.errors import InvalidArgument, InvalidState, Unsupported
from hal_core.geometry import Limits
from hal_core.hookspecs import CAPABILITIES, DeviceInfo
from hal_core.ir import Kernel, Source
from hal_core.lang import KernelFunction
from hal_core.program import Program
from hal_core.registry.answers import shown

if TYPE_CHECKING:
    from hal_core.compiler import Compiler, CompilerPair
    from hal_core.dtypes import DType
    from hal_core.registry import Backend
    from hal_core.render import Renderer

log = logging.getLogger("hal_core")

__all__ = ["CAPABILITIES", "BufferKey", "Compiled", "DeviceInfo", "Limits"]


class BufferKey:
    """Stands for (device, dtype, aligned): a live buffer carries it, a program expects it.

    One identity test at a launch covers device, dtype and liveness: freeing takes it away. A view
    is aligned if its offset divides by the device's `view_alignment`; `Source` kernels take no
    other.
    """

    __slots__ = ("aligned", "device", "dtype")

    def __init__(self, device: str, dtype: DType, aligned: bool) -> None:
        self.device, self.dtype, self.aligned = device, dtype, aligned

    def __repr__(self) -> str:
        return f"<BufferKey {self.device} {self.dtype.name}{'' if self.aligned else ' misaligned'}>"


class Compiled:
    """An opened device: kernel IR -> text -> binary -> program, and memory to run it on.

    Get one from the registry, `hal.Device["CPU"]`; there is one object a device.

    Order: work of one device runs in the order of the calls, whatever thread made them.
    Owns: its allocator, compilers and programs; `close` invalidates what they made. Buffers and
    programs keep their device alive.
    """

    name: str  # canonical: "CUDA:1"
    family: str  # "CUDA"
    index: int  # 1
    info: DeviceInfo
    closed: bool
    forked: bool  # in a child whose parent made it: of no use there
    allocator: Allocator[Any]  # made at the first use, as are the compilers
    compilers: list[CompilerPair]  # best first

    def __init__(self, name: str, info: DeviceInfo) -> None:
        unknown = info.capabilities - CAPABILITIES
        if unknown:
            raise InvalidArgument("open", "unknown capabilities", got=sorted(unknown), device=name)
        self.name = name
        self.info = info
        self.family, _, index = name.partition(":")
        self.index = int(index or 0)
        self.closed = False
        self.forked = False
        self._backend: Backend = None  # type: ignore[assignment]  # set by the registry
        self._lock = threading.RLock()
        self._keys: dict[DType, BufferKey] = {}
        self._misaligned_keys: dict[DType, BufferKey] = {}
        self._failed: dict[str, str] = {}  # compiler pair -> why it cannot serve
        self._selected: dict[str, Selected] = {}
        self._loaded: Living[Program] = Living()
        self._programs: WeakKeyDictionary[object, dict[str, Program]] = WeakKeyDictionary()
        concurrency.devices.add(self)
        profiling.device_made(self)

    # -- what a backend fills in

    def _synchronize(self, timeout: float | None) -> bool:
        """Wait for all queued work; False when `timeout` seconds have passed first."""
        return True

    def _close(self) -> None:
        """Release the context. The queue is idle; allocator and programs are already gone."""

    def _make_clock(self) -> profiling.HostClock:
        """What tells, for a profile, when the device did its work. May queue work to find out."""
        return profiling.HostClock(self)

    def _missing(self, part: object, method: str) -> Unsupported:
        """What is raised where a backend left out a method that it has to fill in."""
        origin = "" if self._backend is None else f"; from {self._backend.origin}"
        problem = f"{type(part).__name__} fills in no {method}{origin}"
        return Unsupported(method, problem, device=self.name, fix="Upgrade the backend.")

    # -- parts, made at the first use

    def __getattr__(self, name: str) -> Any:
        # Reached only while the attribute does not exist, so later reads are plain ones.
        if name not in ("allocator", "compilers"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        with self._lock:
            if name not in self.__dict__:
                self._check_open(name)
                made = getattr(self._backend, f"make_{name}")(self)
                if name == "allocator" and not isinstance(made, Allocator):
                    wrong = f"hal_make_allocator gave {shown(made)}, which is no Allocator"
                    raise self._backend.refuse(wrong)
                self.__dict__[name] = made
                if name == "allocator":
                    profiling.allocator_made(self.allocator)
            return self.__dict__[name]

    @property
    def graph(self) -> None:
        """The native graph class; None: graphs are recorded."""
        return None

    @property
    def renderer(self) -> Renderer:
        """The renderer of the compiler pair that serves `@hal.kernel` functions now."""
        return self._select(None).make_renderer()

    @property
    def compiler(self) -> Compiler:
        """The compiler of the pair that serves `@hal.kernel` functions now."""
        return self._select(None).compiler

    def supports(self, dtype: DType) -> bool:
        """Whether the device and its selected compiler both take `dtype` in kernels.

        Raises: InvalidArgument for what is no dtype.
        """
        kind = as_dtype(dtype, "supports")
        return self.renderer.supports(kind) and has_dtype(self.info, kind)

    def _key(self, dtype: DType, aligned: bool = True) -> BufferKey:
        keys = self._keys if aligned else self._misaligned_keys
        return keys.get(dtype) or keys.setdefault(dtype, BufferKey(self.name, dtype, aligned))

    # -- compile

    def _select(self, language: str | None) -> Selected:
        self._check_open("compile")
        return select(self, language)

    def compile(self, kernel: KernelFunction | Kernel | Source) -> Program:
        """Render, compile (or take from the cache on disk) and load.

        The same kernel gives the same program as long as the kernel lives.

        Raises: KernelSyntaxError, InvalidKernel, CompileError, CompilerUnavailable; Unsupported
        for a dtype, an atomic operation, a block or shared memory that the device lacks.
        """
        if not isinstance(kernel, (KernelFunction, Kernel, Source)):
            raise InvalidArgument(
                "compile",
                "not a kernel",
                got=kernel,
                device=self.name,
                fix="Decorate a function with @hal.kernel, or make a hal.Source.",
            )
        chosen = self._select(kernel.language if isinstance(kernel, Source) else None)
        if isinstance(kernel, Kernel):
            return self._build(kernel, chosen)
        known = self._programs.get(kernel)
        program = known.get(chosen.name) if known else None
        if program is None:
            with self._lock:
                known = self._programs.setdefault(kernel, {})
                program = known.get(chosen.name)
                if program is None:
                    lowered = kernel if isinstance(kernel, Source) else kernel.lower()
                    program = known[chosen.name] = self._build(lowered, chosen)
        return program

    def _build(self, kernel: Kernel | Source, chosen: Selected) -> Program:
        if isinstance(kernel, Source):
            text, options = kernel.text, CompileOptions.of_source(kernel)
        else:
            text, options = self._rendered(kernel, chosen.make_renderer())
        check_kernel(kernel, self.info)
        compiler = chosen.compiler
        start_ns = perf_counter_ns()
        image, cached = compiler.compile_or_reuse(text, options)
        profiling.compiled(self, kernel.name, image, cached, start_ns)
        binary = Binary(
            image=image,
            format=compiler.format,
            target=compiler.target,
            entry=kernel.name,
            signature=kernel.signature,
            block=kernel.block,
            shared_nbytes=options.shared_nbytes,
            rendered=options.rendered,
            work=options.work,
        )
        program = self.load(binary, source=text, pair=chosen.name)
        self._backend.compiled(self, program, cached)
        log.debug(
            "%s: compiled %s with %s, cached: %s", self.name, kernel.name, chosen.name, cached
        )
        return program

    def _rendered(self, kernel: Kernel, renderer: Renderer) -> tuple[str, CompileOptions]:
        try:
            text = renderer.render(kernel)
        except Unsupported as error:  # it does not know for which device it writes
            limit = {} if error.limit is None else {"limit": error.limit}
            fix = error.fix or "Use a dtype that it has."
            raise Unsupported(
                error.operation, error.problem, got=error.got, **limit, device=self.name, fix=fix
            ) from None
        return text, CompileOptions.of_kernel(kernel, renderer.options(kernel))

    def load(self, binary: Binary, *, source: str = "", pair: str = "") -> Program:
        """The run-time step alone: a program from machine code made before.

        Raises: CompileError when the bytes are not a binary of this device, lack the entry or
        need symbols nobody has.
        """
        self._check_open("load")
        given: object = binary
        if not isinstance(given, Binary):
            fix = "program.binary is one; text is compiled, by device.compile(hal.Source(...))."
            raise InvalidArgument("load", "not a hal.Binary", got=given, device=self.name, fix=fix)
        program = self._backend.make_program(self, binary)
        if not isinstance(program, Program):
            wrong = f"hal_make_program gave {shown(program)}, which is no Program"
            raise self._backend.refuse(wrong)
        program.source, program.pair = source, pair
        self._loaded.add(program)
        profiling.program_loaded(program)
        return program

    # -- order and end

    def synchronize(self, timeout: float | None = None) -> bool:
        """Wait for all queued work.

        Units: seconds. False when the timeout passed first.
        Raises: DeviceFault when work failed on the device.
        """
        self._check_open("synchronize")
        return self._synchronize(timeout)

    def close(self) -> None:
        """Wait for queued work and release everything; a second call does nothing.

        What the device made - buffers, programs - raises InvalidState afterwards.
        """
        with self._lock:
            if self.closed:
                return
            with ExitStack() as steps:  # the last first; each is taken, whatever another raises
                if self._backend is not None:
                    steps.callback(self._backend.closed, self)
                steps.callback(self._close)
                if "allocator" in self.__dict__:
                    steps.callback(self.allocator.close)
                for program in self._loaded:
                    steps.callback(program.unload)
                steps.callback(self._end)
                self._synchronize(None)

    def _end(self) -> None:
        self.closed = True
        self._programs.clear()

    # -- fork

    def _after_fork(self) -> None:
        """In the child. Another thread of the parent may have held the locks."""
        self._lock = threading.RLock()
        allocator = self.__dict__.get("allocator")
        if allocator is not None:
            allocator._after_fork()
        if not concurrency.survives_fork(self.info.capabilities):
            self._abandon(allocator)

    def _abandon(self, allocator: Allocator[Any] | None) -> None:
        """From now on all that the device made refuses, and the driver is left alone."""
        programs = list(self._loaded)
        concurrency.never_release(self, dict(self.__dict__), programs)
        for program in programs:
            program._stop()
        for chosen in self._selected.values():
            for step in ("_compile", "_disassemble"):
                setattr(chosen.compiler, step, concurrency.refuse_after_fork(step[1:], self.name))
        if allocator is not None:
            allocator._abandon()
        self.closed = self.forked = True
        for part in ("allocator", "compilers"):  # to ask for them is to be refused
            self.__dict__.pop(part, None)

    def _check_open(self, operation: str) -> None:
        if self.forked:
            raise concurrency.fork_error(operation, self.name)
        if self.closed:
            raise InvalidState(
                operation,
                "the device is closed",
                device=self.name,
                fix=f'Open it again with hal.Device["{self.name}"].',
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = " closed" if self.closed else ""
        return f"<{type(self).__name__} {self.name} {self.info.title!r}{state}>"
