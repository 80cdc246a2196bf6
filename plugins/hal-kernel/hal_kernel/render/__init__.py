"""Renderers, which write kernel IR as text of one language. None needs a vendor's package.

A language is an entry point of the group `hal.languages`, in whichever distribution has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from hal_core import discovery
from hal_kernel.render.renderer import ByHand, Renderer

__all__ = ["RENDERERS", "ByHand", "Renderer"]


class _Languages(Mapping[str, type[Renderer]]):
    """The installed languages: their names are known without an import, renderers come at use."""

    def __getitem__(self, language: str) -> type[Renderer]:
        module, _, name = discovery.named(discovery.LANGUAGES)[language].value.partition(":")
        kind: type[Renderer] = getattr(import_module(module), name)
        return kind

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(discovery.named(discovery.LANGUAGES)))

    def __len__(self) -> int:
        return len(discovery.named(discovery.LANGUAGES))


RENDERERS = _Languages()
