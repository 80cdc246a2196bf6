"""A kernel as text in a device's own language."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hal_core.errors import InvalidArgument
from hal_core.ir.signature import Signature


class Source:
    """Text, its entry's name and typed signature, and how it is compiled.

    `Source("scale", text, "y: float32*, x: const float32*, n: int32", language="opencl")`.
    `defines` are preprocessor macros, `includes` folders searched for headers (what is in them is
    part of the compile cache's key), `options` go to the compiler as they stand. `block` states
    that the text depends on that block shape.

    Raises: InvalidArgument for a name or signature that cannot be read.
    """

    __slots__ = (
        "__weakref__", "block", "defines", "includes", "language", "name", "options",
        "signature", "text",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        text: str,
        signature: str | Signature,
        *,
        language: str,
        options: Iterable[str] = (),
        defines: Mapping[str, object] | None = None,
        includes: Iterable[str] = (),
        block: tuple[int, int, int] | None = None,
    ) -> None:
        if not isinstance(text, str):
            raise InvalidArgument(f"Source {name!r}", "the text is a str", got=type(text).__name__)
        if isinstance(options, str) or isinstance(includes, str):
            raise InvalidArgument(
                f"Source {name!r}",
                "options and includes are sequences of str",
                fix='Write options=("-O2",).',
            )
        self.name = name
        self.text = text
        self.signature = (
            signature if isinstance(signature, Signature) else Signature.parse(name, signature)
        )
        self.language = language
        self.options = tuple(options)
        self.defines = {key: str(value) for key, value in (defines or {}).items()}
        self.includes = tuple(str(folder) for folder in includes)
        self.block = block

    def __repr__(self) -> str:
        return f"<Source {self.name}({self.signature}) {self.language}>"
