"""Renderers, which write kernel IR as text of one language. None needs a vendor's package.

A language is an entry point of the group `hal.languages`, in whichever distribution has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hal_core import discovery
from hal_core.device.installed import import_entry
from hal_core.errors import PluginError
from hal_kernel.render.renderer import ByHand, Renderer

__all__ = ["RENDERERS", "ByHand", "Renderer"]


class _Languages(Mapping[str, type[Renderer]]):
    """The installed languages: their names are known without an import, renderers come at use."""

    def __getitem__(self, language: str) -> type[Renderer]:
        entry = discovery.named(discovery.LANGUAGES)[language]
        found = import_entry(entry)
        if isinstance(found, type) and issubclass(found, Renderer):
            return found
        problem = f"the entry point names no subclass of Renderer; from {entry!r}"
        fix = f"Upgrade or uninstall it: {entry.distribution.name}."
        raise PluginError(f"load {language}", problem, fix=fix)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(discovery.named(discovery.LANGUAGES)))

    def __len__(self) -> int:
        return len(discovery.named(discovery.LANGUAGES))


RENDERERS = _Languages()
