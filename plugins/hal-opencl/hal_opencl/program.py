"""A loaded kernel and its launch."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from hal_core.compiler.requirements import check
from hal_core.errors import CompileError, InvalidArgument, Unsupported
from hal_core.geometry import Dim3
from hal_core.program import Program, ProgramInfo, Shared
from hal_core.program.generated import define, spare_storage
from hal_core.source import Binary
from hal_kernel.ir.uop import MOST_THREADS
from hal_opencl import driver
from hal_opencl.arguments import GEOMETRY, LOCAL, check_arguments, slots_of
from hal_opencl.build_lock import build_lock
from hal_opencl.compiler import OpenCLCompiler, Sealed
from hal_opencl.device import OpenCLDevice
from hal_opencl.driver import cl

_pack_geometry = struct.Struct(GEOMETRY.code).pack
# PoCL makes other machine code for a launch of 65535 and more groups along an axis.
_MOST_GROUPS = 1 << 15
# PoCL counts the groups of a launch in 32 bits, and ends the process where the count is 0.
_MOST_IN_ALL = (1 << 32) - 2
# To begin a work-item takes 20 to 40 ns; in that time 100 threads of a short kernel run.
_ITEM_THREADS = 4096
_ITEMS_OF_UNIT = 32  # or more: a compute unit that is done takes over items of the others

# A kernel object holds the arguments of one launch, so each launch in progress has its own.
_LAUNCH = """
def launch(geometry{names}, owner=owner):
    memory = ({memory})  # a sub-buffer has no other owner until the kernel is queued
    numbers = ({numbers})
    try:
        try:
            place = take()
        except IndexError:
            place = make()
        kernel, set_memory, set_numbers = place
        {set_memory}
        {set_numbers}
        event = enqueue(owner.commands, kernel, geometry.items, geometry.group)
        give_back(place)
        owner.commands.flush()
    except Error as error:
        raise explain(error, f"launch {{name}}", device) from None
    except BaseException as error:
        interrupted(error)
        raise
    owner.last_event, owner.last_launched = event, name
    return event
"""


class Geometry(NamedTuple):
    """The extents of a launch, in work-items as OpenCL counts them."""

    items: tuple[int, ...]  # of the whole launch
    group: tuple[int, ...]  # of one group
    launch: Any  # the argument GEOMETRY or LOCAL of kernels that have one


class OpenCLProgram(Program):
    """A kernel on an OpenCL device.

    Concurrency: every launch in progress has argument storage of its own, a kernel object.
    """

    device: OpenCLDevice
    formats = ("opencl",)

    def __init__(self, device: OpenCLDevice, binary: Binary) -> None:
        super().__init__(device, binary)
        operation = f"load {binary.name}"
        locked = build_lock(device.hardware, binary.name)
        with locked, driver.check(operation, device.name):
            shared = self._shared(lambda: self._build(operation))
            kernel = driver.find_kernel(shared.made, binary.name, operation, device.name)
            facts = driver.kernel_facts(kernel, device.hardware)
            check_arguments(kernel, binary.interface, operation, device.name)
            # Of a text, only the driver knows it, and some end the process where it is too much.
            check(binary.interface._replace(shared_nbytes=facts.shared_nbytes), device.info)
            self._slots = slots_of(kernel, binary.interface)
            self._whole_blocks = GEOMETRY in self._slots
            if self._whole_blocks:
                self._launch_no_blocks(kernel)
        max_threads = facts.max_block_threads
        if self._whole_blocks:  # its threads are loops, which the platform does not count
            fixed = binary.interface.block
            max_threads = fixed[0] * fixed[1] * fixed[2] if fixed else MOST_THREADS
        self.info = ProgramInfo(
            shared_nbytes=max(facts.shared_nbytes, binary.interface.shared_nbytes),
            local_nbytes=facts.private_nbytes,
            max_block_threads=max_threads,
            block_multiple=facts.block_multiple,
            block=binary.interface.block or (None if self._whole_blocks else facts.block),
        )
        self._program: Shared | None = shared
        self._enqueue: Callable[..., cl.Event] | None = None  # generated at the first launch

    def _geometry(self, grid: Dim3, block: Dim3, shared: int) -> Geometry:
        pieces = self._slots.count(LOCAL)
        room = self.device.info.limits.shared_nbytes - (self.info.shared_nbytes or 0)
        if pieces and not 0 < shared <= room // pieces:
            raise InvalidArgument(
                f"launch {self.name}", f"the kernel has {pieces} __local argument"
                f"{'s' * (pieces > 1)}, and shared= is the size of each in bytes", got=shared,
                limit=room // pieces, device=self.device.name, fix="Give its bytes: shared=...",
            )  # fmt: skip
        if shared and not pieces:
            raise Unsupported(
                f"launch {self.name}", "the kernel has no __local argument, whose size is shared=",
                got=shared, device=self.device.name,
                fix="Give the text a parameter such as `__local float *tile`, or shared=0.",
            )  # fmt: skip
        launch: Any = cl.LocalMemory(shared) if shared else None
        if self._whole_blocks:
            of_each = self._blocks_of_item(grid, block)
            launch = _pack_geometry(*block, *grid, of_each, 0)
            grid, block = (-(-grid[0] // of_each), *grid[1:]), (1, 1, 1)
        groups = grid[0] * grid[1] * grid[2]
        if groups > _MOST_IN_ALL and driver.is_pocl(self.device.hardware):
            raise InvalidArgument(
                f"launch {self.name}", "too many work-groups for PoCL", got=groups,
                limit=_MOST_IN_ALL, device=self.device.name, fix="Launch several times.",
            )  # fmt: skip
        axes = 3 if block[2] * grid[2] > 1 else 2 if block[1] * grid[1] > 1 else 1
        items = tuple(g * b for g, b in zip(grid, block, strict=True))
        return Geometry(items[:axes], block[:axes], launch)

    def _bind(self) -> Callable[..., Any]:
        if self._enqueue is None:
            self._enqueue = self._generated()
        return self._enqueue

    def _launch_timed(self, geometry: Geometry, args: tuple[Any, ...]) -> float:
        event = (self._enqueue or self._bind())(geometry, *args)
        try:
            self.device.wait_for(event)
            return (event.profile.end - event.profile.start) * 1e-9
        except cl.Error as error:
            device = self.device
            raise driver.explain(error, "wait", device.name, device.last_launched) from None

    def _unload(self) -> None:
        # Replaced, not deleted: another thread may be between its checks and its launch.
        self._enqueue = self._refuse_unloaded
        self._program = None

    def _blocks_of_item(self, grid: Dim3, block: Dim3) -> int:
        """Return how many blocks that follow each other along x are one work-item."""
        blocks = grid[0] * grid[1] * grid[2]
        spare = blocks // (_ITEMS_OF_UNIT * self.device.info.compute_units)
        wanted = _ITEM_THREADS // (block[0] * block[1] * block[2])
        return max(-(-grid[0] // _MOST_GROUPS), min(wanted, spare, grid[0]), 1)

    def _generated(self) -> Callable[..., cl.Event]:
        """Return `launch(geometry, *args, owner)`: the owner of a command queue, or no owner."""
        name, program = self.name, self._shared_program()
        interface = self.binary.interface
        offsets = interface.rendered or interface.offsets
        memory: list[str] = []
        numbers: list[str] = []
        packs: dict[str, Any] = {}
        for index, slot in enumerate(self._slots):
            code, _, position, *_ = slot
            if slot in (LOCAL, GEOMETRY):
                (memory if slot is LOCAL else numbers).append(f"{index}, geometry.launch")
                continue
            if not code:
                # A kernel that takes no offset is given a view as a sub-buffer.
                part = "" if offsets else f" if not a{position}[1] else part_of(*a{position})"
                memory.append(f"{index}, a{position}[0]{part}")
                continue
            # Of a pointer, only the offset is a number.
            offset = "[1]" if self.signature.params[position].is_pointer else ""
            numbers.append(f"{index}, pack_{index}(a{position}{offset})")
            packs[f"pack_{index}"] = struct.Struct(code).pack

        def make() -> tuple[Any, ...]:
            kernel = cl.Kernel(program, name)
            return kernel, *driver.argument_setters(kernel)

        names: dict[str, Any] = {
            **spare_storage(make), **packs, "part_of": _part_of,
            "enqueue": cl.enqueue_nd_range_kernel, "owner": self.device, "device": self.device.name,
            "name": name, "Error": cl.Error, "explain": driver.explain,
            "interrupted": self.device.interrupted,
        }  # fmt: skip
        text = _LAUNCH.format(
            names="".join(f", a{param.position}" for param in self.signature.params),
            memory=", ".join(memory),
            numbers=", ".join(numbers),
            set_memory="set_memory(memory)" if memory else "pass",
            set_numbers="set_numbers(numbers)" if numbers else "pass",
        )
        return define(text, "launch", f"launch of {name}", names)

    def kernel_with(self, geometry: Geometry, args: tuple[Any, ...]) -> tuple[cl.Kernel, Any]:
        """Return a kernel object that has the arguments of a launch, and the memory among them.

        Raises: cl.Error.
        """
        kernel = cl.Kernel(self._shared_program(), self.name)
        set_memory, set_numbers = driver.argument_setters(kernel)
        memory = []
        for index, slot in enumerate(self._slots):
            code, _, position, _, is_offset = slot
            if slot in (LOCAL, GEOMETRY):
                (set_memory if slot is LOCAL else set_numbers)((index, geometry.launch))
                continue
            value = args[position]
            if code:
                set_numbers((index, struct.pack(code, value[1] if is_offset else value)))
                continue
            takes_offset = self.binary.interface.rendered or self.binary.interface.offsets
            memory.append(value[0] if takes_offset or not value[1] else _part_of(*value))
            set_memory((index, memory[-1]))
        return kernel, memory

    def _shared_program(self) -> Any:
        shared = self._program
        return shared.made if shared else self._refuse_unloaded()

    def _build(self, operation: str) -> driver.Program:
        device = self.device
        built, device.built = device.built, None
        if built is not None and built[0] == self.binary.image:
            return built[1]
        sealed = Sealed.of_bytes(self.binary.image, operation, device.name)
        here = OpenCLCompiler(device).identity
        fix = "Compile the kernel again from its source."
        if sealed.identity != here:
            problem = f"the binary was made by another driver ({sealed.identity}); this is {here}"
            raise CompileError(operation, problem, device=device.name, fix=fix)
        code = sealed.payload if sealed.kind == "binary" else sealed.payload.decode()
        try:
            return driver.build(device.context, code, sealed.flags)
        except driver.BuildError as error:
            problem = f"the driver refuses the binary: {error.problem}"
            raise CompileError(
                operation, problem, log=error.log, device=device.name, fix=fix
            ) from None

    def _launch_no_blocks(self, kernel: cl.Kernel) -> None:
        """Launch the kernel with no blocks to run, so that PoCL makes its machine code now.

        PoCL makes the code for a size of groups when it first runs one. All groups have one
        work-item here, so later launches find the code compiled, and already loaded if they have at
        most `_MOST_GROUPS` groups along x.
        """
        set_memory, set_numbers = driver.argument_setters(kernel)
        for index, slot in enumerate(self._slots):
            if slot.code:
                set_numbers((index, bytes(slot.nbytes)))
            else:
                set_memory((index, None))
        queue = cl.CommandQueue(self.device.context)  # of its own: nothing is queued ahead of this
        event = cl.enqueue_nd_range_kernel(queue, kernel, (_MOST_GROUPS,), (1,))
        queue.flush()
        self.device.wait_for(event)


def _part_of(base: cl.Buffer, offset: int) -> cl.Buffer:
    """Return memory from an offset to its end as a sub-buffer."""
    return base.get_sub_region(offset, base.size - offset)
