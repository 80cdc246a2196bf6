"""A loaded kernel and its launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hal_core.errors import CompileError, InvalidArgument, Unsupported
from hal_core.geometry import Dim3
from hal_core.program import Program, ProgramInfo
from hal_core.program.generated import define
from hal_core.source import Binary
from hal_metal import driver
from hal_metal.arguments import entries_of, packer
from hal_metal.compiler import check_entry, library_of
from hal_metal.device import MOST_PENDING, MetalDevice
from hal_metal.images import formats_taken


class MetalProgram(Program):
    """A kernel on a Metal device. Concurrency: a launch has a command buffer of its own."""

    device: MetalDevice
    formats = ("metal", "metallib")

    def __init__(self, device: MetalDevice, binary: Binary) -> None:
        super().__init__(device, binary)
        operation = f"load {binary.name}"
        with driver.check(operation, device.name):
            library = library_of(device, binary.image, operation)
            check_entry(library, binary.name, operation, device.name)
            images = entries_of(self.signature, binary.interface.rendered).images
            try:
                by_hand = not binary.interface.rendered
                found = driver.pipeline_of(device.hardware, library, binary.name, by_hand)
            except driver.BuildError as error:
                raise CompileError(
                    operation, "the GPU's compiler refuses the kernel", log=error.log,
                    device=device.name,
                ) from None  # fmt: skip
        # By the position of each image: the formats that it may have. Metal checks none.
        self._formats = {
            param.position: formats_taken(device, param, found.textures[index], operation)
            for index, param in images
            if index in found.textures
        }
        self._threadgroups = found.threadgroups
        self._pipeline: Any = found.state
        self._enqueue: Callable[..., driver.Work] | None = None  # generated at the first launch
        self._encode: Callable[..., None] | None = None
        self.info = ProgramInfo(
            shared_nbytes=max(found.shared_nbytes, binary.interface.shared_nbytes),
            max_block_threads=found.max_block_threads,
            block_multiple=found.width,
        )
        fixed = binary.interface.block
        if fixed and fixed[0] * fixed[1] * fixed[2] > found.max_block_threads:
            raise Unsupported(
                operation, "the GPU runs fewer threads in a block than the kernel fixes",
                got=fixed, limit=found.max_block_threads, device=device.name,
                fix="Fix a smaller block, or use fewer variables at a time.",
            )  # fmt: skip

    def _geometry(self, grid: Dim3, block: Dim3, shared: int) -> Geometry:
        rounded = shared + 15 & -16  # Metal takes multiples of 16
        room = self.device.info.limits.shared_nbytes - (self.info.shared_nbytes or 0)
        room //= max(1, len(self._threadgroups))
        if rounded > room:
            raise InvalidArgument(
                f"launch {self.name}", "bytes of shared memory of each [[threadgroup(n)]], rounded "
                "up to a multiple of 16", got=rounded, limit=room, device=self.device.name,
            )  # fmt: skip
        if self._threadgroups and not shared:
            raise InvalidArgument(
                f"launch {self.name}", "no memory for the kernel's [[threadgroup(n)]]", got=shared,
                device=self.device.name, fix="Give the bytes of each: shared=...",
            )  # fmt: skip
        return Geometry(grid, block, rounded)

    def _bind(self) -> Callable[..., Any]:
        if self._enqueue is None:
            device, name = self.device, self.name
            names: dict[str, Any] = {
                **driver.launch_names(), "encode": self.encoder(),
                "check_images": self.check_images, "queue": device.commands,
                "pending": device.pending, "withdraw": device.withdraw, "settle": device.settle,
                "most": MOST_PENDING, "title": f"launch of {name}", "operation": f"launch {name}",
                "device": device.name,
            }  # fmt: skip
            check = f"check_images(({self._names()[2:]},))" if self._formats else ""
            text = driver.LAUNCH.format(names=self._names(), check=check)
            self._enqueue = define(text, "launch", f"launch of {name}", names)
        return self._enqueue

    def _launch_timed(self, geometry: Geometry, args: tuple[Any, ...]) -> float:
        work = (self._enqueue or self._bind())(geometry, *args)
        self.device.wait_for(work)
        start, end = driver.passed(work)
        return end - start

    def _unload(self) -> None:
        # Replaced, not deleted: another thread may be between its checks and its launch.
        self._enqueue = self._encode = self._refuse_unloaded
        self._pipeline = None

    def check_images(self, args: tuple[Any, ...]) -> None:
        """Raises: InvalidArgument for an image of a format that the kernel's texture lacks."""
        for position, formats in self._formats.items():
            format = args[position].format
            if format not in formats:
                self._refuse(
                    f"argument {self.signature.params[position].name!r} is an image of a format "
                    "that its texture in the text does not take", format,
                    ", ".join(sorted(formats)),
                    "Write texture2d<uint> or <int> for integers, and <float> for floats and "
                    "normalised ones; access::read_write takes few formats.",
                )  # fmt: skip

    def encoder(self) -> Callable[..., None]:
        """Return `encode(encoder, geometry, *args)`, which adds a launch to an encoder."""
        if self._encode is None:
            lines, packs = self._arguments_of()
            text = driver.ENCODE.format(names=self._names(), arguments="\n    ".join(lines))
            names = {"pipeline": self._pipeline, **packs}
            self._encode = define(text, "encode", f"launch of {self.name}", names)
        return self._encode

    def _names(self) -> str:
        return "".join(f", a{param.position}" for param in self.signature.params)

    def _arguments_of(self) -> tuple[list[str], dict[str, Any]]:
        """Return the lines that bind the arguments, and the functions that pack numbers."""
        pointers, values, images = entries_of(self.signature, self.binary.interface.rendered)
        lines = [
            driver.SET_BUFFER.format(memory=f"a{param.position}", index=index)
            for index, param in pointers
        ]
        lines += [
            driver.SET_TEXTURE.format(memory=f"a{param.position}", index=index)
            for index, param in images
        ]
        packs: dict[str, Any] = {}
        for index, group in values:
            nbytes, packs[f"pack_{index}"] = packer(group)
            data = f"pack_{index}({', '.join(f'a{param.position}' for param in group)})"
            lines.append(driver.SET_BYTES.format(data=data, nbytes=nbytes, index=index))
        lines += [driver.SET_SHARED.format(index=index) for index in self._threadgroups]
        return lines, packs


class Geometry(NamedTuple):
    """The extents of a launch, as Metal takes them."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int  # bytes of dynamic shared memory
