"""The fake backend for the core's own tests: it counts calls and fails on request.

Device and memory are those of `hal_testing.fake`, except that its chip does all work at once
instead of queueing it. Kernels are `hal.Source` text in Python: a function of the thread's global
index and the arguments, called once for each thread.
"""

import itertools
import weakref

from hal_core.compiler import Compiler, CompilerPair
from hal_core.device.base import Compiled, Limits
from hal_core.errors import CompileError, OutOfMemory
from hal_core.hookspecs import hookimpl
from hal_core.program import Program
from hal_kernel.render import Renderer
from hal_testing.fake import allocator, chip, device

MEMORY = 64 << 20
LIMITS = Limits(
    max_block=(64, 64, 64), max_block_threads=128, max_grid=(1 << 20, 1 << 16, 1 << 25),
    shared_nbytes=1024, view_alignment=16, max_alloc_nbytes=MEMORY,
)  # fmt: skip


class Chip(chip.Chip):
    """A chip that does its work at once, so kernels in Python find copies done."""

    def _enqueue(self, call, name, work):
        super()._enqueue(call, name, work)
        self._drain(tell=False)


class FakeDevice(device.FakeDevice):
    """A device whose `log` lists waits and the end."""

    def __init__(self, name, info):
        # Not a chip of the driver, which has only so many: not all tests close their devices.
        Compiled.__init__(self, name, info)
        self.chip = Chip(info.memory_nbytes)
        self.log = []

    def _synchronize(self, timeout):
        self.log.append("synchronize")
        return super()._synchronize(timeout)

    def _close(self):
        self.log.append("close")


class FakeAllocator(allocator.FakeAllocator):
    """An allocator that counts; the next `fail_next` calls of `_alloc` raise `error`."""

    honours = frozenset({"nolru", "zero", "external_ptr"})

    def __init__(self, device):
        super().__init__(device)
        self.memory = self.device.chip._memory
        self.fail_next = 0
        self.error = OutOfMemory("fake alloc", "fails on request")
        self.allocs = self.frees = 0
        self.on_free = lambda: None

    def _alloc(self, nbytes, options):
        if self.fail_next:
            self.fail_next -= 1
            raise self.error
        self.allocs += 1
        return super()._alloc(nbytes, options)

    def _free(self, opaque, nbytes, options):
        self.frees += 1
        if len(self.memory[opaque.handle]) != nbytes:
            raise RuntimeError("freed with another size")
        super()._free(opaque, nbytes, options)
        self.on_free()

    def _wrap(self, pointer, nbytes):
        return chip.Block(pointer, 0)


class FakeCompiler(Compiler):
    language, format, target = "python", "python", "fake"
    identity = "fake 1"
    compiled = 0

    def _compile(self, source):
        type(self).compiled += 1
        try:
            compile(source.text, source.name, "exec")
        except SyntaxError as error:
            raise CompileError(
                f"compile {source.name}", "syntax", log=str(error), source=source.text,
                line=error.lineno,
            ) from None  # fmt: skip
        return source.text.encode()


class FakeRenderer(Renderer):
    """Renders every kernel as a Python function that does nothing."""

    name, language = "Python", "python"

    def _render(self, kernel):
        return f"def {kernel.name}(t, *args): pass"


class FakeProgram(Program):
    """A kernel in Python; `launches` lists the geometry and the arguments of each launch."""

    def __init__(self, device, binary):
        super().__init__(device, binary)
        space = {}
        exec(binary.image.decode(), space)
        if binary.name not in space:
            raise CompileError(f"load {binary.name}", "no such entry", device=device.name)
        self.function = space[binary.name]
        self.launches = []

    def _bind(self):
        program = weakref.ref(self)  # no cycle: programs go at once
        return lambda *args: program()._run(*args)  # type: ignore[union-attr]

    def _run(self, geometry, *args):
        self.launches.append((geometry, args))
        (gx, gy, gz), (bx, by, bz), _ = geometry
        device = self.device
        ready = []
        for param, arg in zip(self.signature.params, args, strict=True):
            if param.is_pointer and arg is not None:
                whole = device.chip._at(arg)
                step = param.dtype.itemsize
                arg = whole[: len(whole) // step * step].cast(param.dtype.format)
            ready.append(arg)
        for z, y, x in itertools.product(range(gz * bz), range(gy * by), range(gx * bx)):
            self.function((x, y, z), *ready)
        return ready  # as a driver's command

    def _launch_timed(self, geometry, args):
        self._run(geometry, *args)
        return 1e-6


def put(queue, work, what="launch"):
    """Put a function of Python behind the work of a queue, as a backend does with its own."""
    made = queue
    made._add(work, what, ())


class FakePlugin:
    """`kinds`: one device of each kind given, in order."""

    hal_api = (1, 0)

    def __init__(self, *kinds, rank=None):
        self.kinds = kinds or ("accelerator",)
        self.opened = 0
        self.capabilities = frozenset({"fp64", "fp16"})
        self.renderer = None
        if rank is not None:
            self.rank = rank

    @hookimpl
    def hal_enumerate(self, family):
        facts = {"memory_nbytes": MEMORY, "limits": LIMITS, "capabilities": self.capabilities}
        infos = device.enumerate_devices(family, len(self.kinds), arch="fake", **facts)
        return [
            info._replace(kind=kind, title=f"Fake {kind}")
            for info, kind in zip(infos, self.kinds, strict=True)
        ]

    @hookimpl
    def hal_open_device(self, family, index, info):
        self.opened += 1
        return FakeDevice(info.name, info)

    @hookimpl
    def hal_make_allocator(self, device):
        return FakeAllocator(device)

    @hookimpl
    def hal_make_compilers(self, device):
        return [CompilerPair("python", "python", self.renderer, FakeCompiler)]

    @hookimpl
    def hal_make_program(self, device, binary):
        return FakeProgram(device, binary)
