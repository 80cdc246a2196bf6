"""The compiled kernels of one text: their signatures, and the machine code that they share."""

from __future__ import annotations

from typing import NamedTuple

from hal_core.compiler.seal import seal, unseal
from hal_core.errors import CompileError
from hal_core.signature import Signature
from hal_core.source import Source

_MAKER = "hal-kernels 1"


class Module(NamedTuple):
    """Machine code and its kernels."""

    image: bytes
    kernels: tuple[Signature, ...]

    def to_bytes(self) -> bytes:
        """Return one string of bytes, for the compile cache."""
        return seal(_MAKER, [(one.name, str(one)) for one in self.kernels], self.image)

    @classmethod
    def of_bytes(cls, content: bytes, operation: str, device: str) -> Module:
        """Read what `to_bytes` wrote. Raises: CompileError."""
        kernels, image = unseal(_MAKER, content, operation, device)
        return cls(image, tuple(Signature.parse(*one) for one in kernels))


def asked(source: Source, found: list[str], device: str) -> dict[str, Signature | None]:
    """Return the kernels to compile and their given signatures, of those that a text holds.

    Raises: CompileError for a text without kernels, and for a kernel that it lacks.
    """
    operation = f"compile {source.name}"
    if not found:
        raise CompileError(
            operation, "the text has no kernel", source=source.text, device=device,
            fix="Mark a function as the language says: docs/source-kernels.md has one of each.",
        )  # fmt: skip
    kernels = dict.fromkeys(found) if source.kernels is None else dict(source.kernels)
    for name in kernels:
        if name not in found:
            problem = f"the text has no kernel {name!r}, it has {', '.join(found)}"
            raise CompileError(operation, problem, device=device)
    return kernels
