"""A whole backend in memory, for the core's own tests: strict, and able to fail on request.

Kernels are `hal.Source` text in Python: a function of the thread's global index and the
arguments, called once a thread. Handles are integers that mean nothing to the host.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any

from hal_core.allocator import BufferSpec, LRUAllocator
from hal_core.compiler import Binary, CompileOptions, Compiler, CompilerPair
from hal_core.device import Compiled, DeviceInfo, Limits
from hal_core.errors import CompileError, OutOfMemory
from hal_core.hookspecs import hookimpl
from hal_core.ir import Kernel
from hal_core.program import Program
from hal_core.render import Renderer

MEMORY = 64 << 20
LIMITS = Limits(
    max_block=(64, 64, 64),
    max_block_threads=128,
    max_grid=(1 << 20, 1 << 16, 1 << 25),
    shared_nbytes=1024,
    view_alignment=16,
    max_alloc_nbytes=MEMORY,
)


class FakeDevice(Compiled):
    def __init__(self, name: str, info: DeviceInfo) -> None:
        super().__init__(name, info)
        self.log: list[str] = []

    def _synchronize(self, timeout: float | None) -> bool:
        self.log.append("synchronize")
        return True

    def _close(self) -> None:
        self.log.append("close")


class FakeAllocator(LRUAllocator[tuple[int, int]]):
    """Opaque: (handle, offset). `fail_next` is how many of the next `_alloc` calls fail."""

    honours = frozenset({"nolru", "zero", "external_ptr"})

    def __init__(self, device: Compiled) -> None:
        super().__init__(device)
        self.memory: dict[int, bytearray] = {}
        self.handles = itertools.count(1000)
        self.fail_next = 0
        self.error: Exception = OutOfMemory("fake alloc", "told to fail")
        self.allocs = self.frees = 0
        self.on_free: Any = None

    def _alloc(self, nbytes: int, options: BufferSpec) -> tuple[int, int]:
        if self.fail_next:
            self.fail_next -= 1
            raise self.error
        self.allocs += 1
        handle = next(self.handles)
        self.memory[handle] = bytearray(b"\xaa" * nbytes)
        return handle, 0

    def _free(self, opaque: tuple[int, int], nbytes: int, options: BufferSpec) -> None:
        self.frees += 1
        if len(self.memory.pop(opaque[0])) != nbytes:
            raise RuntimeError("freed with another size")
        if self.on_free is not None:
            self.on_free()

    def _wrap(self, pointer: int, nbytes: int) -> tuple[int, int]:
        return pointer, 0

    def _offset(self, opaque: tuple[int, int], nbytes: int, offset: int) -> tuple[int, int]:
        return opaque[0], opaque[1] + offset

    def bytes_at(self, opaque: tuple[int, int], nbytes: int) -> memoryview:
        handle, offset = opaque
        view = memoryview(self.memory[handle])[offset : offset + nbytes]
        if len(view) != nbytes:
            raise RuntimeError("out of bounds on the fake device")
        return view

    def _copyin(self, dest: tuple[int, int], src: memoryview) -> None:
        self.bytes_at(dest, src.nbytes)[:] = src

    def _copyout(self, dest: memoryview, src: tuple[int, int]) -> None:
        dest[:] = self.bytes_at(src, dest.nbytes)


class FakeCompiler(Compiler):
    language, format, target = "python", "python", "fake"
    identity = "fake 1"
    compiled = 0

    def _compile(self, source: str, options: CompileOptions) -> bytes:
        type(self).compiled += 1
        try:
            compile(source, options.entry, "exec")
        except SyntaxError as error:
            raise CompileError(
                f"compile {options.entry}", "syntax", log=str(error), source=source,
                line=error.lineno,
            ) from None  # fmt: skip
        return source.encode()


class FakeRenderer(Renderer):
    """Writes a function that does nothing, whatever the kernel says."""

    name, language = "Python", "python"

    def _render(self, kernel: Kernel) -> str:
        return f"def {kernel.name}(t, *args): pass"


class FakeProgram(Program):
    def __init__(self, device: Compiled, binary: Binary) -> None:
        super().__init__(device, binary)
        space: dict[str, Any] = {}
        exec(binary.image.decode(), space)
        if binary.entry not in space:
            raise CompileError(f"load {binary.entry}", "no such entry", device=device.name)
        self.function = space[binary.entry]
        self.launches: list[tuple[Any, tuple[Any, ...]]] = []

    def _bind(self) -> Any:
        program = weakref.ref(self)  # no cycle: programs go at once
        return lambda *args: program()._run(*args)  # type: ignore[union-attr]

    def _run(self, geometry: Any, *args: Any) -> None:
        self.launches.append((geometry, args))
        (gx, gy, gz), (bx, by, bz), _ = geometry
        allocator: Any = self.device.allocator
        ready = []
        for param, arg in zip(self.signature.params, args, strict=True):
            if param.is_pointer and arg is not None:
                whole = memoryview(allocator.memory[arg[0]])[arg[1] :]
                step = param.dtype.itemsize
                arg = whole[: len(whole) // step * step].cast(param.dtype.format)
            ready.append(arg)
        for z, y, x in itertools.product(range(gz * bz), range(gy * by), range(gx * bx)):
            self.function((x, y, z), *ready)

    def _launch_timed(self, geometry: Any, args: tuple[Any, ...]) -> float:
        self._run(geometry, *args)
        return 1e-6


class FakePlugin:
    """`kinds`: one device of each kind given, in order."""

    hal_api = (1, 0)

    def __init__(self, *kinds: str, rank: dict[str, int] | None = None) -> None:
        self.kinds = kinds or ("accelerator",)
        self.opened = 0
        self.capabilities = frozenset({"fp64", "fp16"})
        self.renderer: Any = None
        if rank is not None:
            self.rank = rank

    @hookimpl
    def hal_enumerate(self, family: str) -> list[DeviceInfo]:
        return [
            DeviceInfo(
                name=family if index == 0 else f"{family}:{index}",
                kind=kind,
                title=f"Fake {kind}",
                memory_nbytes=MEMORY,
                arch="fake",
                compute_units=1,
                host_visible=False,
                limits=LIMITS,
                capabilities=self.capabilities,
            )
            for index, kind in enumerate(self.kinds)
        ]

    @hookimpl
    def hal_open_device(self, family: str, index: int, info: DeviceInfo) -> Compiled:
        self.opened += 1
        return FakeDevice(info.name, info)

    @hookimpl
    def hal_make_allocator(self, device: Compiled) -> FakeAllocator:
        return FakeAllocator(device)

    @hookimpl
    def hal_make_compilers(self, device: Compiled) -> list[CompilerPair]:
        return [CompilerPair("python", "python", self.renderer, FakeCompiler)]

    @hookimpl
    def hal_make_program(self, device: Compiled, binary: Binary) -> Program:
        return FakeProgram(device, binary)
