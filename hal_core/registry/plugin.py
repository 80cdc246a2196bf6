"""One plugin object, checked and registered."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import pluggy

from hal_core import hookspecs
from hal_core.discovery import API_VERSION
from hal_core.errors import IncompatiblePlugin, PluginError
from hal_core.registry.answers import said, shown

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


def _is_version(version: object) -> bool:
    return (
        isinstance(version, tuple)
        and len(version) == 2
        and all(type(number) is int for number in version)
    )
