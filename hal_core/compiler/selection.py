"""Which of a device's compilers serves."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from hal_core import config
from hal_core.compiler import Compiler, CompilerPair
from hal_core.errors import CompilerUnavailable, HalError, InvalidArgument

if TYPE_CHECKING:
    from hal_core.device import Compiled
    from hal_core.render import Renderer


class Selected(NamedTuple):
    """A pair whose compiler was made."""

    name: str
    compiler: Compiler
    renderer: Callable[[], Renderer] | None

    def make_renderer(self) -> Renderer:
        """Renderers are stateless and cost nothing; a `Source` kernel needs none."""
        if self.renderer is None:
            raise CompilerUnavailable(
                "compile", f"the compiler {self.name} takes hal.Source kernels only"
            )
        return self.renderer()


def forced(family: str, names: list[str]) -> str | None:
    """The pair that the environment asks for: `CPU_CC=clang`, else `CPU_CLANG=1`.

    Raises: InvalidArgument when two are switched on, or the name is unknown.
    """
    chosen = os.environ.get(f"{family}_CC", "").strip()
    if chosen:
        if chosen not in names:
            near = difflib.get_close_matches(chosen, names, 3, 0.4)
            raise InvalidArgument(
                f"{family}_CC",
                "no such compiler",
                got=chosen,
                device=family,
                fix=f"{'Did you mean ' + ', '.join(near) + '? ' if near else ''}"
                f"Known: {', '.join(names)}.",
            )
        return chosen
    on = [name for name in names if _switched_on(f"{family}_{name.upper()}")]
    if len(on) > 1:
        raise InvalidArgument(
            " and ".join(f"{family}_{name.upper()}=1" for name in on),
            "two compilers are forced",
            device=family,
            fix=f"Leave one, or set {family}_CC={on[0]}, which beats them.",
        )
    return on[0] if on else None


def _switched_on(variable: str) -> bool:
    text = os.environ.get(variable)
    if text is None:
        return False
    try:
        return config.flag(text)
    except ValueError as error:
        raise InvalidArgument(f"environment variable {variable}", str(error), got=text) from None


def select(device: Compiled, language: str | None) -> Selected:
    """The pair that serves: the forced one, else the first whose compiler can be made.

    `language` is a `Source` kernel's, None asks for a pair that renders kernel IR. A pair that
    fails is remembered with its reason, and is not tried again.

    Raises: CompilerUnavailable with every reason, when none serves.
    """
    pairs = device.compilers
    name = forced(device.family, [pair.name for pair in pairs])
    able = [
        pair
        for pair in pairs
        if (pair.renderer is not None if language is None else pair.language == language)
    ]
    operation = "compile" if language is None else f"compile a {language!r} source"
    if not able:
        takes = sorted({pair.language for pair in pairs})
        raise CompilerUnavailable(
            operation,
            "no compiler of this device takes it",
            device=device.name,
            fix=f"It takes hal.Source kernels in {', '.join(takes) or 'no language'}.",
        )
    if name is not None:
        able = [pair for pair in able if pair.name == name]
        if not able:
            raise CompilerUnavailable(
                operation,
                f"the compiler {name!r}, which the environment forces, does not take it",
                device=device.name,
            )
    for pair in able:
        chosen = device._selected.get(pair.name)
        if chosen is None and pair.name not in device._failed:
            chosen = _make(device, pair)
        if chosen is not None:
            return chosen
    reasons = "; ".join(f"{pair.name}: {device._failed[pair.name]}" for pair in able)
    raise CompilerUnavailable(operation, f"no compiler can serve: {reasons}", device=device.name)


def _make(device: Compiled, pair: CompilerPair) -> Selected | None:
    with device._lock:
        try:
            chosen = Selected(pair.name, pair.compiler(), pair.renderer)
        except (Exception, SystemExit) as error:  # a plugin may do anything
            device._failed[pair.name] = _reason(error)
            return None
        return device._selected.setdefault(pair.name, chosen)


def _reason(error: BaseException) -> str:
    """An error as part of a sentence that names operation and device itself."""
    if isinstance(error, (ImportError, OSError)):
        return str(error)
    if not isinstance(error, HalError):
        return f"{type(error).__name__}: {error}"
    return f"{error.problem} ({error.fix.rstrip('.')})" if error.fix else error.problem
