"""Renderers, which write kernel IR as text of one language. None needs a vendor's package.

A language is an entry point of the group `hal.languages`, in whichever distribution has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from hal_core import discovery
from hal_core.errors import PluginError
from hal_kernel.render.renderer import ByHand, Renderer

__all__ = ["RENDERERS", "ByHand", "Renderer"]


class _Languages(Mapping[str, type[Renderer]]):
    """The installed languages: their names are known without an import, renderers come at use."""

    def __getitem__(self, language: str) -> type[Renderer]:
        entry = discovery.named(discovery.LANGUAGES)[language]
        module, _, name = entry.value.partition(":")
        try:
            kind: type[Renderer] = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            problem = (
                f"the language {language} of {entry.distribution.name} cannot be loaded: {error}"
            )
            raise PluginError("render", problem, fix="Install what it needs.") from error
        return kind

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(discovery.named(discovery.LANGUAGES)))

    def __len__(self) -> int:
        return len(discovery.named(discovery.LANGUAGES))


RENDERERS = _Languages()
