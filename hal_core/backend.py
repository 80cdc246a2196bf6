"""A usable plugin, and the only place where hooks are called."""

from __future__ import annotations

import difflib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pluggy

from hal_core import hookspecs
from hal_core.discovery import API_VERSION
from hal_core.errors import HalError, IncompatiblePlugin, PluginError

if TYPE_CHECKING:
    from hal_core.allocator import Allocator
    from hal_core.compiler import Binary, CompilerPair
    from hal_core.device import Compiled, DeviceInfo
    from hal_core.program import Program

log = logging.getLogger("hal_core")

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
        self._check_is_plugin()
        self._check_version()
        try:
            self.manager.register(plugin, name)
        except Exception as error:
            raise self.refuse("a hook does not match its specification", error) from error
        self._check_hooks()

    def refuse(self, problem: str, error: BaseException | None = None) -> PluginError:
        if error is not None:
            text = " ".join(str(error).split())  # pluggy's messages have several lines
            problem = f"{problem}: {type(error).__name__}: {text}".removesuffix(".")
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

    def _check_is_plugin(self) -> None:
        plugin = self.plugin
        if isinstance(plugin, type):
            raise self.refuse(f"the entry point names the class {plugin.__name__}, not an instance")
        if plugin is None or isinstance(plugin, (str, bytes, int, float, Sequence, Mapping)):
            raise self.refuse(f"the entry point names {plugin!r:.60}, which is no plugin object")
        hooks = [name for name in dir(plugin) if self.manager.parse_hookimpl_opts(plugin, name)]
        if not hooks:
            unmarked = [name for name in HOOKS if callable(getattr(plugin, name, None))]
            why = f": {', '.join(unmarked)} not marked @hookimpl" if unmarked else ""
            raise self.refuse(f"{plugin!r:.60} has no hooks{why}")

    def _check_version(self) -> None:
        version: Any = getattr(self.plugin, "hal_api", None)
        core = ".".join(map(str, API_VERSION))
        upgrade = self.distribution or "its package"
        if version is None:
            problem = "does not say which plugin API it was written for (hal_api is missing)"
        elif not _is_version(version):
            problem = f"says {version!r:.40} for hal_api, which is not a pair of numbers"
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
        super().__init__(plugin, family, origin, distribution)
        self.family = family
        self.extensions: list[Extension] = []
        self.after_fork()
        self.ranks = self._read_ranks()
        self.on_closed: Callable[[Compiled], None] = _nothing  # set by the registry

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
            raise self.refuse(f"rank maps device kinds to numbers, and is {ranks!r:.60}")
        return hookspecs.RANKS | dict(ranks)

    def after_fork(self) -> None:
        self._attaching = threading.Lock()

    def attach(self, extension: Extension) -> None:
        """From now on the extension observes, adds and wraps. A second time does nothing."""
        with self._attaching:
            if extension not in self.extensions:
                self.manager.register(extension.plugin, f"{extension.name} {id(extension)}")
                self.extensions.append(extension)

    # -- provider hooks

    def enumerate(self) -> tuple[DeviceInfo, ...]:
        """Raises: DeviceUnavailable; PluginError when the answer is not one."""
        infos = self._provide("hal_enumerate", family=self.family)
        if not isinstance(infos, Sequence):
            raise self.refuse(f"hal_enumerate gave {infos!r:.60}, which is no sequence")
        for index, info in enumerate(infos):
            name = f"{self.family}:{index}" if index else self.family
            if getattr(info, "name", None) != name:
                raise self.refuse(f"hal_enumerate gave {info!r:.60} as device {index}, not {name}")
            if info.kind not in hookspecs.RANKS:
                raise self.refuse(f"hal_enumerate gave {name} the kind {info.kind!r}")
        return tuple(infos)

    def open(self, index: int, info: DeviceInfo) -> Compiled:
        device = self._provide("hal_open_device", family=self.family, index=index, info=info)
        if getattr(device, "name", None) != info.name or not hasattr(device, "close"):
            raise self.refuse(f"hal_open_device gave {device!r:.60} for {info.name}")
        opened: Compiled = device
        opened._backend = self
        return opened

    def make_allocator(self, device: Compiled) -> Allocator[Any]:
        allocator: Allocator[Any] = self._provide("hal_make_allocator", device=device)
        return allocator

    def make_compilers(self, device: Compiled) -> list[CompilerPair]:
        """The owner's pairs, then what extensions add; a name is taken by the first to use it."""
        pairs = {pair.name: pair for pair in self._provide("hal_make_compilers", device=device)}
        for extension in self.extensions:
            try:
                added = extension.manager.hook.hal_make_compilers(device=device)
                for pair in added or ():
                    pairs.setdefault(pair.name, pair)
            except (Exception, SystemExit) as error:
                _log_failure(extension, "hal_make_compilers", device, error)
        return list(pairs.values())

    def make_program(self, device: Compiled, binary: Binary) -> Program:
        program: Program = self._provide("hal_make_program", device=device, binary=binary)
        return program

    def import_buffer(self, device: Compiled, obj: object) -> tuple[Any, object] | None:
        found: tuple[Any, object] | None = self._provide(
            "hal_import_buffer", optional=True, device=device, obj=obj
        )
        return found

    def doctor(self) -> list[hookspecs.Check]:
        checks = self._provide("hal_doctor", optional=True, family=self.family)
        return [hookspecs.Check(*check) for check in checks or ()]

    def _provide(self, hook: str, *, optional: bool = False, **arguments: object) -> Any:
        """Call the owner's hook. What is not a HalError becomes a PluginError that names it."""
        try:
            answer = getattr(self.manager.hook, hook)(**arguments)
        except HalError:
            raise
        except (Exception, SystemExit) as error:
            raise self.refuse(f"{hook} failed", error) from error
        if answer is None and not optional:
            raise self.refuse(f"{hook} gave None")
        return answer

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
            except (Exception, SystemExit) as error:
                _log_failure(plugin, hook, device, error)

    def __repr__(self) -> str:
        return f"<Backend {self.family} from {self.origin}>"


def _log_failure(plugin: Plugin, hook: str, device: Compiled, error: BaseException) -> None:
    log.warning(
        "%s of plugin %s failed on %s: %r; from %s",
        hook, plugin.name, device.name, error, plugin.origin, exc_info=error,
    )  # fmt: skip


def _is_version(version: object) -> bool:
    return (
        isinstance(version, tuple)
        and len(version) == 2
        and all(type(number) is int for number in version)
    )


def _nothing(device: Compiled) -> None:
    pass
