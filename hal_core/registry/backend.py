"""The plugin that owns a family, and the only place where hooks are called."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from hal_core import hookspecs
from hal_core.concurrency import fork_safe_lock
from hal_core.errors import HalError
from hal_core.registry import answers
from hal_core.registry.answers import Unusable, said, shown
from hal_core.registry.plugin import Extension, Plugin

if TYPE_CHECKING:
    from hal_core.allocator import Allocator
    from hal_core.compiler import Binary, CompilerPair
    from hal_core.device import Compiled, DeviceInfo
    from hal_core.program import Program

log = logging.getLogger("hal_core")

T = TypeVar("T")


class Backend(Plugin):
    """The plugin that owns a family, with the extensions around it."""

    def __init__(self, plugin: object, family: str, origin: str, distribution: str = "") -> None:
        self.family = family
        self.extensions: list[Extension] = []
        self.ranks: dict[str, int] = {}
        self._attaching = fork_safe_lock()
        super().__init__(plugin, family, origin, distribution)
        self.on_closed: Callable[[Compiled], None] = _nothing  # set by the registry

    def _check(self) -> None:
        super()._check()
        self.ranks = self._read_ranks()

    def _check_hooks(self) -> None:
        super()._check_hooks()
        for hook in hookspecs.REQUIRED:
            if not self.implements(hook):
                forgot = callable(getattr(self.plugin, hook, None))
                raise self.refuse(f"{hook} is " + ("not marked @hookimpl" if forgot else "missing"))

    def _read_ranks(self) -> dict[str, int]:
        ranks: Any = getattr(self.plugin, "rank", {})
        if not isinstance(ranks, Mapping) or not all(
            kind in hookspecs.RANKS and isinstance(rank, int) for kind, rank in ranks.items()
        ):
            raise self.refuse(f"rank maps device kinds to numbers, and is {shown(ranks)}")
        return hookspecs.RANKS | dict(ranks)

    def attach(self, extension: Extension) -> None:
        """From now on the extension observes, adds and wraps. A second time does nothing, and
        so does an object that is here already: the owner itself, or another entry point's."""
        with self._attaching:
            if extension.plugin is self.plugin:
                return
            if not any(extension.plugin is known.plugin for known in self.extensions):
                try:
                    self.manager.register(extension.plugin, f"{extension.name} {id(extension)}")
                except KeyboardInterrupt:
                    raise
                except BaseException as error:
                    _log_failure(extension, "registration", self.family, error)
                    return
                self.extensions.append(extension)

    # -- provider hooks

    def enumerate(self) -> tuple[DeviceInfo, ...]:
        """Raises: DeviceUnavailable; PluginError when the answer is not one."""
        return self._provide(
            "hal_enumerate", partial(answers.devices, self.family), family=self.family
        )

    def open(self, index: int, info: DeviceInfo) -> Compiled:
        checked = partial(answers.device, info)
        opened = self._provide(
            "hal_open_device", checked, family=self.family, index=index, info=info
        )
        opened._backend = self
        return opened

    def make_allocator(self, device: Compiled) -> Allocator[Any]:
        return self._provide("hal_make_allocator", _given, device=device)

    def make_compilers(self, device: Compiled) -> list[CompilerPair]:
        """The owner's pairs, then what extensions add; a name is taken by the first to use it."""
        owned = self._provide("hal_make_compilers", answers.pairs, device=device)
        found = {pair.name: pair for pair in owned}
        for extension in self.extensions:
            try:
                added = extension.manager.hook.hal_make_compilers(device=device)
                for pair in answers.pairs(added or ()):
                    if found.setdefault(pair.name, pair) is not pair:
                        taken = Unusable(f"the name {pair.name!r} is taken")
                        _log_failure(extension, "hal_make_compilers", device.name, taken)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                _log_failure(extension, "hal_make_compilers", device.name, error)
        return list(found.values())

    def make_program(self, device: Compiled, binary: Binary) -> object:
        """Whatever it gave; the device looks whether it is a program."""
        given: object = self._provide("hal_make_program", _given, device=device, binary=binary)
        return given

    def import_buffer(self, device: Compiled, obj: object) -> hookspecs.Foreign | None:
        return self._provide("hal_import_buffer", answers.foreign, device=device, obj=obj)

    def doctor(self) -> list[hookspecs.Check]:
        return self._provide("hal_doctor", answers.checks, family=self.family)

    def _provide(self, hook: str, checked: Callable[[Any], T], **arguments: object) -> T:
        """What the owner's hook answers. What is not a HalError becomes a PluginError that names
        the plugin, and the extensions that wrap the hook."""
        try:
            return checked(getattr(self.manager.hook, hook)(**arguments))
        except (HalError, KeyboardInterrupt):
            raise
        except Unusable as error:
            raise self.refuse(f"{hook} gave {error}{self._wrappers(hook)}") from None
        except BaseException as error:  # SystemExit too
            raise self.refuse(f"{hook}{self._wrappers(hook)} failed", error) from error

    def _wrappers(self, hook: str) -> str:
        around = [
            f"{extension.name} ({extension.origin})"
            for extension in self.extensions
            if getattr(extension.manager.hook, hook).get_hookimpls()
        ]
        return f", wrapped by {', '.join(around)}," if around else ""

    # -- observers

    def opened(self, device: Compiled) -> None:
        self._observe("hal_device_opened", device, {"device": device})

    def compiled(self, device: Compiled, program: Program, cached: bool) -> None:
        arguments = {"device": device, "program": program, "cached": cached}
        self._observe("hal_compiled", device, arguments)

    def closed(self, device: Compiled) -> None:
        """The registry forgets the device, then the observers hear of it."""
        self.on_closed(device)
        self._observe("hal_device_closed", device, {"device": device})

    def _observe(self, hook: str, device: Compiled, arguments: dict[str, object]) -> None:
        for plugin in (self, *self.extensions):
            try:
                getattr(plugin.manager.hook, hook)(**arguments)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                _log_failure(plugin, hook, device.name, error)

    def __repr__(self) -> str:
        return f"<Backend {self.family} from {self.origin}>"


def _log_failure(plugin: Plugin, what: str, where: str, error: BaseException) -> None:
    log.warning(
        "%s of plugin %s failed on %s: %s; from %s",
        what, plugin.name, where, said(error), plugin.origin, exc_info=error,
    )  # fmt: skip


def _given(answer: T) -> T:
    if answer is None:
        raise Unusable("None")
    return answer


def _nothing(device: Compiled) -> None:
    pass
