"""The compiled kernels of one text: their signatures, and the machine code that they share."""

from __future__ import annotations

from typing import NamedTuple

from hal_core.compiler.seal import seal, unseal
from hal_core.signature import Signature

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
