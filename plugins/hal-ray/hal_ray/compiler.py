"""The compilers of the node: text is rendered here and compiled there."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from hal_core.compiler import Compiler, CompilerPair
from hal_core.errors import CompilerUnavailable
from hal_core.source import Source

if TYPE_CHECKING:
    from hal_kernel.render import Renderer
    from hal_ray.device import RayDevice


def pairs(device: RayDevice) -> list[CompilerPair]:
    """List the real device's compilers under their own names: `RAY_CC=llvm` chooses one."""

    def renderer(name: str) -> Renderer:
        packed = device.connection.ask("renderer", name)
        try:
            made: Renderer = pickle.loads(packed)
        except (ImportError, AttributeError) as error:
            raise CompilerUnavailable(
                f"render with {name}", f"its renderer is not installed here: {error}",
                device=device.name, fix="Install the node's plugins on this machine, too.",
            ) from None  # fmt: skip
        return made

    def pair(name: str, language: str, renders: bool) -> CompilerPair:
        render: Callable[[], Renderer] | None = partial(_once, {}, renderer, name)
        return CompilerPair(
            name, language, render if renders else None, partial(RayCompiler.of_pair, device, name)
        )

    return [pair(*facts) for facts in device.connection.ask("pairs")]


def _once(known: dict[str, Renderer], make: Callable[[str], Renderer], name: str) -> Renderer:
    if name not in known:
        known[name] = make(name)
    return known[name]


class RayCompiler(Compiler):
    """A compiler on the node. Its binaries are cached on the node, and here."""

    name: str  # of its pair

    def __init__(self, device: RayDevice) -> None:
        self.device = device

    def _compile(self, source: Source) -> bytes:
        image: bytes = self.device.connection.ask("compile", self.name, source)
        return image

    def _disassemble(self, image: bytes) -> str:
        return str(self.device.connection.ask("disassemble", self.name, image))

    def _is_current(self, image: bytes) -> bool:
        return bool(self.device.connection.ask("current", self.name, image))

    @classmethod
    def of_pair(cls, device: RayDevice, name: str) -> RayCompiler:
        """Make the compiler of one pair. Raises: CompilerUnavailable, as on the node."""
        made = cls(device)
        made.name = name
        for fact, value in device.connection.ask("compiler", name).items():
            setattr(made, fact, value)
        return made
