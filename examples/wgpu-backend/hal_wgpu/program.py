"""A loaded kernel and its launch."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hal_core.errors import CompileError, Unsupported
from hal_core.program import Program
from hal_wgpu import driver
from hal_wgpu.compiler import END, PRELUDE

if TYPE_CHECKING:
    from hal_core.source import Binary
    from hal_wgpu.device import WGPUDevice


class WGPUProgram(Program):
    """Bindings of group 0: the pointers in their order, then the values.

    The values are one uniform struct. In a rendered kernel the byte offsets of the pointers stand
    before them and buffers are bound whole; a `hal.Source` has its views bound where they begin.
    """

    device: WGPUDevice

    def __init__(self, device: WGPUDevice, binary: Binary) -> None:
        super().__init__(device, binary)
        self.rendered = binary.interface.rendered
        self.entry = f"hal_{binary.name}" if binary.interface.rendered else binary.name
        self.codes = "I" * len(self.signature.pointers) * binary.interface.rendered
        self.codes += "".join(_code(param.dtype) for param in self.signature.values)
        self.values = device.make_buffer(-(-max(4 * len(self.codes), 4) // 16) * 16)
        try:
            self._load(binary)
        except (driver.library().GPUError, UnicodeDecodeError) as error:
            raise CompileError(f"load {self.name}", str(error), device=device.name) from None
        self.info = self.info._replace(max_block_threads=device.info.limits.max_block_threads)

    def _load(self, binary: Binary) -> None:
        gpu, text = self.device.gpu, binary.image.decode()
        if not text.endswith(END.decode()):
            raise UnicodeDecodeError("wgsl", binary.image, 0, len(binary.image), "it is cut off")
        self.module = gpu.create_shader_module(code=PRELUDE + text)
        kinds = ["storage"] * len(self.signature.pointers) + ["uniform"]
        stage = driver.library().ShaderStage.COMPUTE
        self.group = gpu.create_bind_group_layout(
            entries=[
                {"binding": at, "visibility": stage, "buffer": {"type": kind}}
                for at, kind in enumerate(kinds)
            ]
        )
        self.layout = gpu.create_pipeline_layout(bind_group_layouts=[self.group])
        self._pipeline(binary.interface.block or (1, 1, 1))  # so that a missing entry is found here

    def _pipeline(self, block: tuple[int, int, int]) -> Any:
        constants = {f"block_{axis}": size for axis, size in zip("xyz", block, strict=True)}
        return self.device.gpu.create_compute_pipeline(
            layout=self.layout,
            compute={"module": self.module, "entry_point": self.entry, "constants": constants},
        )

    def _geometry(self, grid: Any, block: Any, shared: int) -> Any:
        if shared:
            problem = "WebGPU has no dynamic shared memory"
            raise Unsupported(f"launch {self.name}", problem, got=shared, device=self.device.name)
        with driver.calling("create_compute_pipeline", self.device.name):
            return tuple(grid), self._pipeline(block)

    def _bind(self) -> Callable[..., None]:
        return self.enqueue

    def enqueue(self, geometry: Any, *args: Any, **timed: Any) -> None:
        device, queue = self.device, self.device.commands
        grid, pipeline = geometry
        group, packed = self.bound(args)
        # The values belong to the program, so nobody may write others before the work is queued.
        with device.lock, driver.calling(f"launch {self.name}", device.name):
            queue.write_buffer(self.values, 0, packed)
            encoder = device.gpu.create_command_encoder()
            work = encoder.begin_compute_pass(**timed)
            work.set_pipeline(pipeline)
            work.set_bind_group(0, group)
            work.dispatch_workgroups(*grid)
            work.end()
            queue.submit([encoder.finish()])

    def bound(self, args: tuple[Any, ...]) -> tuple[Any, bytes]:
        pairs = list(zip(self.signature.params, args, strict=True))
        blocks = [given for param, given in pairs if param.is_pointer]
        offsets = [block.offset for block in blocks]
        values = [given for param, given in pairs if not param.is_pointer]
        packed = struct.pack(f"={self.codes}", *(offsets if self.rendered else []), *values)
        bound = [block.buffer or self.device.spare for block in blocks] + [self.values]
        starts = [0] * len(bound) if self.rendered else [*offsets, 0]
        with driver.calling(f"bind {self.name}", self.device.name):
            group = self.device.gpu.create_bind_group(
                layout=self.group,
                entries=[
                    {"binding": at, "resource": {"buffer": buffer, "offset": start}}
                    for at, (buffer, start) in enumerate(zip(bound, starts, strict=True))
                ],
            )
        return group, packed.ljust(4, b"\0")

    def _launch_timed(self, geometry: Any, args: tuple[Any, ...]) -> float:
        device, usage = self.device, driver.library().BufferUsage
        with driver.calling(f"time {self.name}", device.name):
            stamps = device.gpu.create_query_set(type="timestamp", count=2)
            ticks = device.gpu.create_buffer(size=16, usage=usage.QUERY_RESOLVE | usage.COPY_SRC)
        self.enqueue(
            geometry,
            *args,
            timestamp_writes={
                "query_set": stamps,
                "beginning_of_pass_write_index": 0,
                "end_of_pass_write_index": 1,
            },
        )
        with driver.calling(f"time {self.name}", device.name):
            encoder = device.gpu.create_command_encoder()
            encoder.resolve_query_set(stamps, 0, 2, ticks, 0)
            device.commands.submit([encoder.finish()])
            start, end = memoryview(device.commands.read_buffer(ticks)).cast("B").cast("Q")
        return (end - start) * 1e-9


def _code(dtype: Any) -> str:
    """Of `struct`: every value is a word."""
    return "f" if dtype.is_float else "i" if dtype.name.startswith("int") else "I"
