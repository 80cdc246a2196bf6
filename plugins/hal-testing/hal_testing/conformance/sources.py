"""Texts of kernels for `hal.Source`, in every installed language that says how they look."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import hal_core as hal
from hal_core.compiler import CompilerPair
from hal_kernel.render import RENDERERS
from hal_testing.conformance.kernels import doubled

SIGNATURE = "y: float32*, x: const float32*, n: int32"
IMAGES = "x: const image2d, y: image2d"


class Texts(NamedTuple):
    """Texts that the fixture `hal_source` returns: kernels of `SIGNATURE` with a guard `i < n`."""

    language: str
    doubled: str  # kernel `doubled`: y[i] = 2 * x[i]
    broken: str  # `doubled` with a fault in it
    broken_line: int  # where the fault is, counted from 1
    two: str = ""  # kernels `doubled` and `fivefold`, y[i] = 5 * x[i]
    macro: str = ""  # kernel `doubled`: y[i] = FACTOR * x[i]
    unresolved: str = ""  # kernel `doubled`, which calls a function that does not exist
    # By the kind of elements, "f", "i", "u": kernel `k` of IMAGES, y = FACTOR * x at each pixel.
    # Or "f" of float4 and, as "int8x4", each format of its own: y = x.
    images: Mapping[str, str] = MappingProxyType({})

    def source(self, text: str, name: str = "doubled", **options: object) -> hal.Source:
        return hal.Source(name, text, SIGNATURE, language=self.language, **options)  # type: ignore[arg-type]


def texts(pair: CompilerPair) -> Texts | None:
    """Return the texts that a pair takes; None if no renderer says how its language looks."""
    language = pair.language
    known = None if pair.renderer is None else pair.renderer()
    if not hasattr(known, "by_hand"):  # there is none, or it is no renderer of hal-kernel
        known = RENDERERS[language]() if language in RENDERERS else None
    if known is not None and known.by_hand is not None:
        kernel, before, has_macros, images = known.by_hand
        doubled_text = before + kernel.replace("NAME", "doubled")
        line = doubled_text[: doubled_text.index("FACTOR")].count("\n") + 1
        declared = before + "float nobody_has_this(float);\n" + doubled_text[len(before) :]
        return Texts(
            language,
            doubled_text.replace("FACTOR", "2"),
            doubled_text.replace("FACTOR", "2 * there_is_no_such_name"),
            line,
            before + kernel.replace("NAME", "fivefold").replace("FACTOR", "5")
            + kernel.replace("NAME", "doubled").replace("FACTOR", "2"),
            doubled_text if has_macros else "",
            declared.replace("FACTOR", "nobody_has_this(2)") if has_macros else "",
            {kind: before + text.replace("NAME", "k") for kind, text in images.items()},
        )  # fmt: skip
    if known is None or not known.serves_source:
        return None
    text = known.render(doubled.lower())
    lines = text.splitlines(keepends=True)
    number = len(lines) // 2
    lines[number] = "there is no such line\n"
    return Texts(language, text, "".join(lines), number + 1)
