"""A usable plugin, and the only place where hooks are called."""

from __future__ import annotations

import difflib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pluggy

from hal_core import answers, hookspecs
from hal_core.answers import Unusable, said, shown
from hal_core.discovery import API_VERSION
from hal_core.errors import HalError, IncompatiblePlugin, PluginError

if TYPE_CHECKING:
    from hal_core.allocator import Allocator
    from hal_core.compiler import Binary, CompilerPair
    from hal_core.device import Compiled, DeviceInfo
    from hal_core.program import Program

log = logging.getLogger("hal_core")

T = TypeVar("T")

HOOKS = tuple(name for name in vars(hookspecs) if name.startswith("hal_"))


class _Manager(pluggy.PluginManager):
    """Holds one plugin with all its hooks; of any other plugin it takes the wrappers alone.

    One manager a plugin: a stranger's `tryfirst` implementation cannot come before the owner's,
    because it is not there, and one plugin's broken hook cannot refuse another.
    """

    def __init__(self, owner: object) -> None:
        super().__init__(hookspecs.PROJECT)
        self.owner = owner
        self.add_hookspecs(hookspecs)

    def parse_hookimpl_opts(self, plugin: object, name: str) -> Any:
        options = super().parse_hookimpl_opts(plugin, name)
        if options is None or plugin is self.owner:
            return options
        return options if options.get("wrapper") or options.get("hookwrapper") else None


class Plugin:
    """A loaded plugin object, checked and registered.

    `origin` says where it comes from: entry point, distribution, version and path.

    Raises: PluginError when the object is no plugin or a hook of it is wrong;
    IncompatiblePlugin when it was written for another version of the interface.
    """

    def __init__(self, plugin: object, name: str, origin: str, distribution: str = "") -> None:
        self.plugin, self.name, self.origin, self.distribution = plugin, name, origin, distribution
        self.manager = _Manager(plugin)
        try:
            self._check()
        except (PluginError, KeyboardInterrupt):
            raise
        except BaseException as error:  # attributes may do anything, SystemExit included
            raise self.refuse("it fails when it is looked at", error) from error

    def refuse(self, problem: str, error: BaseException | None = None) -> PluginError:
        """The error that names this plugin, where it comes from, and what to do about it."""
        if error is not None:
            problem = f"{problem}: {said(error)}"
        return PluginError(
            f"plugin {self.name}",
            f"{problem}; from {self.origin}",
            fix="Upgrade or uninstall it"
            + (f": {self.distribution}." if self.distribution else "."),
        )

    def implements(self, hook: str) -> bool:
        """Whether the plugin itself has the hook, other than as a wrapper."""
        return bool(self._implementations(hook))

    def _implementations(self, hook: str) -> list[Any]:
        caller = getattr(self.manager.hook, hook)
        return [
            implementation
            for implementation in caller.get_hookimpls()
            if not (implementation.wrapper or implementation.hookwrapper)
            and implementation.plugin is self.plugin
        ]

    def after_fork(self) -> None:
        """In the child: another thread of the parent may have held a lock."""

    # -- checks, in the order in which they run

    def _check(self) -> None:
        self._check_is_plugin()
        self._check_version()
        try:
            self.manager.register(self.plugin, self.name)
        except pluggy.PluginValidationError as error:
            raise self.refuse("a hook does not match its specification", error) from error
        self._check_hooks()

    def _check_is_plugin(self) -> None:
        plugin = self.plugin
        if isinstance(plugin, type):
            raise self.refuse(f"the entry point names the class {plugin.__name__}, not an instance")
        if plugin is None or isinstance(plugin, (str, bytes, int, float, Sequence, Mapping)):
            raise self.refuse(f"the entry point names {shown(plugin)}, which is no plugin object")
        hooks = [name for name in dir(plugin) if self.manager.parse_hookimpl_opts(plugin, name)]
        if not hooks:
            unmarked = [name for name in HOOKS if callable(getattr(plugin, name, None))]
            why = f": {', '.join(unmarked)} not marked @hookimpl" if unmarked else ""
            raise self.refuse(f"{shown(plugin)} has no hooks{why}")

    def _check_version(self) -> None:
        version: Any = getattr(self.plugin, "hal_api", None)
        core = ".".join(map(str, API_VERSION))
        upgrade = self.distribution or "its package"
        if version is None:
            problem = "does not say which plugin API it was written for (hal_api is missing)"
        elif not _is_version(version):
            problem = f"says {shown(version)} for hal_api, which is not a pair of numbers"
        elif version[0] == API_VERSION[0] and version[1] <= API_VERSION[1]:
            return
        else:
            problem = f"was written for plugin API {version[0]}.{version[1]}"
            upgrade = "hal-core" if version > API_VERSION else upgrade
        raise IncompatiblePlugin(
            f"plugin {self.name}",
            f"it {problem}, hal-core has {core}; from {self.origin}",
            fix=f"Run: python -m pip install --upgrade {upgrade}",
        )

    def _check_hooks(self) -> None:
        for name in sorted(vars(self.manager.hook).keys() - set(HOOKS)):
            near = difflib.get_close_matches(name, HOOKS, 1)
            raise self.refuse(
                f"unknown hook {name!r}" + (f", did you mean {near[0]!r}" if near else "")
            )


class Extension(Plugin):
    """A plugin that owns no device: observers, more compilers, wrappers of provider hooks."""

    def _check_hooks(self) -> None:
        super()._check_hooks()
        for hook in HOOKS:
            mine = hook in hookspecs.ADDED or hook in hookspecs.OBSERVERS
            if not mine and self.implements(hook):
                raise self.refuse(f"an extension can wrap {hook}, but only a device implements it")


class Backend(Plugin):
    """The plugin that owns a family, with the extensions around it."""

    def __init__(self, plugin: object, family: str, origin: str, distribution: str = "") -> None:
        self.family = family
        self.extensions: list[Extension] = []
        self.ranks: dict[str, int] = {}
        self.after_fork()
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

    def after_fork(self) -> None:
        self._attaching = threading.Lock()

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


def _is_version(version: object) -> bool:
    return (
        isinstance(version, tuple)
        and len(version) == 2
        and all(type(number) is int for number in version)
    )


def _nothing(device: Compiled) -> None:
    pass
