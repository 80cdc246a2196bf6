"""The compilers of the node: a kernel is rendered and compiled there, and its text comes back."""

from __future__ import annotations

import pickle
from functools import partial
from typing import TYPE_CHECKING, Any

from hal_core.compiler import Compiler, CompilerPair
from hal_core.source import Source

if TYPE_CHECKING:
    from hal_core.dtypes import DType
    from hal_ray.device import RayDevice


def pairs(device: RayDevice) -> list[CompilerPair]:
    """List the real device's compilers under their own names: `RAY_CC=llvm` chooses one."""
    return [
        CompilerPair(
            name, language, partial(RayRenderer, device, name, language) if renders else None,
            partial(RayCompiler.of_pair, device, name),
        )
        for name, language, renders in device.connection.ask("pairs")
    ]  # fmt: skip


class RayRenderer:
    """The renderer of a pair, which stays on the node: its class need not be installed here.

    No text is kept, so that the cache's key has what the renderer writes now.
    """

    def __init__(self, device: RayDevice, pair: str, language: str) -> None:
        self.device, self.pair, self.language = device, pair, language

    def supports(self, dtype: DType) -> bool:
        """Tell whether the renderer's language can compute with `dtype`."""
        return bool(self._call("supports", dtype))

    def render(self, kernel: object) -> str:
        """Return the kernel's text. Raises: as on the node."""
        return str(self._call("render", kernel))

    def options(self, kernel: object) -> tuple[str, ...]:
        """Return the compiler options that the text needs."""
        return tuple(self._call("options", kernel))

    def _call(self, method: str, argument: object) -> Any:
        # As bytes: what only one side can pickle fails as this call, and not as the connection.
        packed = pickle.dumps(argument)
        return self.device.connection.ask("render", self.pair, method, packed)


class RayCompiler(Compiler):
    """A compiler on the node. Its binaries are cached on the node, and here."""

    name: str  # of its pair

    def __init__(self, device: RayDevice) -> None:
        self.device = device

    def _compile(self, source: Source) -> bytes:
        image: bytes = self.device.connection.ask("compile", self.name, source)
        return image

    def _headers(self, source: Source[Any]) -> str:
        return str(self.device.connection.ask("headers", self.name, source))

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
