"""The installed plugins: which one serves a family, each loaded alone, failures remembered."""

from __future__ import annotations

import difflib
import importlib
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from hal_core import config, discovery
from hal_core.concurrency import flights, fresh_copy, refuse_at_exit, unless_of_a_signal
from hal_core.device.backend import Backend
from hal_core.device.names import KNOWN, is_family
from hal_core.device.plugin import Extension, Plugin, one_line
from hal_core.discovery import DEVICES, EXTENSIONS, EntryPoint, Scan, normalize
from hal_core.errors import (
    DeviceUnavailable,
    HalError,
    IncompatiblePlugin,
    InvalidArgument,
    InvalidState,
    PluginConflict,
    PluginError,
    UnknownDevice,
)

log = logging.getLogger("hal_core")

P = TypeVar("P", bound=Plugin)
Key = tuple[str, str, str, str]

_STATES = (
    (IncompatiblePlugin, "incompatible"),
    (PluginConflict, "in conflict"),
    (DeviceUnavailable, "no hardware"),
)


def state_of(error: HalError) -> str:
    """Return the word that `states()` and `hal doctor` have for a failure."""
    return next((state for kind, state in _STATES if isinstance(error, kind)), "broken")


def origin(entry: EntryPoint) -> str:
    """Describe where a plugin comes from, for errors and `hal doctor`."""
    distribution = entry.distribution
    return (
        f"entry point {entry.name} = {entry.value} of {distribution.name} "
        f"{distribution.version} in {distribution.folder}"
    )


class Plugins:
    """The plugins installed on `path` (`sys.path`), and those of them that were loaded.

    Listing is text only; `backend` and `extensions` import. Safe from any thread: each table is
    read or changed in one step under the GIL.
    """

    def __init__(self, path: Sequence[str] | None, prepare: Callable[[Backend], None]) -> None:
        self._path = path
        self._prepare = prepare  # called with each new backend, before anybody else has it
        self._scanned: tuple[Scan, dict[str, list[EntryPoint]]] | None = None
        self._registered: dict[str, Backend] = {}  # by family
        self._loaded: dict[Key, Plugin] = {}
        self._failed: dict[Key, PluginError] = {}

    # -- text only

    def families(self) -> list[str]:
        """Families that may be used: in the order of HAL_PLUGINS, else by name."""
        installed = self.all_families()
        allowed, disabled = config.PLUGINS.read(), config.DISABLE.read()
        if allowed:
            installed = [family for family in dict.fromkeys(allowed) if family in installed]
        return [family for family in installed if family not in disabled]

    def all_families(self) -> list[str]:
        """Every installed family, also one that is switched off."""
        _, claims = self._found()
        return sorted({*claims, *self._registered})

    def state(self, family: str) -> str:
        """Describe an installed family in one word or two, without loading it."""
        try:
            chosen = self.choose(family)
        except DeviceUnavailable:
            return "disabled"
        except PluginConflict:
            return "in conflict"
        if isinstance(chosen, EntryPoint) and chosen.key in self._failed:
            return state_of(self._failed[chosen.key])
        backend = self._loaded.get(chosen.key) if isinstance(chosen, EntryPoint) else chosen
        known = backend.known if isinstance(backend, Backend) else None
        if known is None:
            return "installed"
        return state_of(known) if isinstance(known, HalError) else "ready"

    def entry_points(self, family: str) -> list[EntryPoint]:
        """Every entry point that claims a family."""
        _, claims = self._found()
        return list(claims.get(family, ()))

    def misnamed(self) -> list[EntryPoint]:
        """Entry points whose name cannot be a family's."""
        scan, _ = self._found()
        return [one for one in scan.entries if one.group == DEVICES and not is_family(one.name)]

    def extension_points(self) -> list[EntryPoint]:
        """Every entry point of an extension."""
        scan, _ = self._found()
        return [one for one in scan.entries if one.group == EXTENSIONS]

    def _found(self, again: bool = False) -> tuple[Scan, dict[str, list[EntryPoint]]]:
        """Return all that is installed, and the entry points that claim each family.

        The import path is read the first time and `again`.
        """
        known = self._scanned
        if known is None or again:
            if self._path is not None:
                scan = discovery.scan(self._path)
            else:
                scan = discovery.rescan() if again else discovery.installed()
            discovery.complete(scan)
            claims: dict[str, list[EntryPoint]] = {}
            for entry in scan.entries:
                if entry.group == DEVICES and is_family(entry.name):
                    claims.setdefault(entry.name.upper(), []).append(entry)
            if again or self._scanned is None:  # else another thread was faster, or has refreshed
                self._scanned = scan, claims
            return scan, claims
        return known

    # -- choosing

    def choose(self, family: str) -> EntryPoint | Backend:
        """Return the plugin that serves a family, without loading it.

        Raises: as `backend`, but for a failed load.
        """
        entries = self.entry_points(family)
        if not entries and family not in self._registered:
            raise self._unknown(family)
        self._check_enabled(family)
        if family in self._registered:
            return self._registered[family]
        wanted = ""
        with suppress(InvalidArgument):  # opening a device says so, and `hal doctor`
            wanted = normalize(config.PREFER.read().get(family, ""))
        named = [one for one in entries if wanted in ("", one.distribution.name)]
        if len(named) == 1:
            return named[0]
        problem, fix = f"{len(entries)} entry points claim this family", "Uninstall one, or set"
        if wanted:
            problem = f"HAL_PREFER names {wanted}, and others claim this family"
            fix = f"{family}_CC chooses a compiler, HAL_PREFER a distribution. Set"
        problem += f": {'; '.join(map(repr, entries))}"
        fix += f" HAL_PREFER={family}={entries[0].distribution.name}."
        raise PluginConflict("open", problem, device=family, fix=fix)

    def _check_enabled(self, family: str) -> None:
        if family in config.DISABLE.read():
            setting, fix = config.DISABLE, f"Take {family} out of"
        elif config.PLUGINS.read() and family not in config.PLUGINS.read():
            setting, fix = config.PLUGINS, f"Add {family} to"
        else:
            return
        listed, installed = setting.read(), self.all_families()
        fix += f" the environment variable {setting.name}, or unset it."
        if not any(name in installed for name in listed):
            fix += f" Nothing that it lists is installed: {', '.join(listed)}."
        problem = f"the backend is installed, but switched off by {setting.name}={','.join(listed)}"
        raise DeviceUnavailable("open", problem, device=family, fix=fix)

    def _unknown(self, family: str) -> UnknownDevice:
        installed, near = self.all_families(), list[str]()
        if family not in KNOWN:  # else the name is right, and only not installed
            near = difflib.get_close_matches(family, [*installed, "GPU"], 3, 0.5)
            near = near or difflib.get_close_matches(family, KNOWN, 1, 0.7)
        hints = [f"Did you mean {' or '.join(near)}?"] if near else []
        hints.append(f"Installed: {', '.join(installed) or 'no backend at all'}.")
        hints += [f"Failed to load: {error}" for error in list(self._failed.values())]
        damaged = discovery.scan(self._path, thorough=True).damaged
        hints += [f"Damaged: {file} {problem}." for file, problem in damaged.items()]
        if family in KNOWN or family == "PYTHON":
            part = "kernel" if family == "PYTHON" else family.lower()
            hints.append(f"`python -m pip install hal-{part}` installs it.")
        fix, problem = " ".join(hints), "no installed backend has this name"
        return UnknownDevice("open", problem, got=family, fix=fix)

    # -- loading

    def backend(self, family: str) -> Backend:
        """Return the backend of a family, loaded at the first call.

        Raises: UnknownDevice, PluginConflict, DeviceUnavailable when it is switched off; the
        PluginError of a failed load, again at every call until `refresh`.
        """
        chosen = self.choose(family)
        return chosen if isinstance(chosen, Backend) else self._load(chosen, Backend, family)

    def extensions(self) -> list[Extension]:
        """Return every extension that can be loaded; one that cannot is logged once."""
        found = []
        for entry in self.extension_points():
            if self.is_disabled(entry):
                continue
            known = entry.key in self._failed
            try:
                found.append(self.extension(entry))
            except PluginError as error:
                if not known:
                    log.warning("extension left out: %s", error)
            except InvalidState:  # its own import opens a device; the next one finds it loaded
                continue
        return found

    def extension(self, entry: EntryPoint) -> Extension:
        """Return the extension of an entry point. Raises: PluginError when it cannot be loaded."""
        return self._load(entry, Extension, entry.name)

    def is_disabled(self, entry: EntryPoint) -> bool:
        """Return whether HAL_DISABLE names an entry point."""
        return entry.name.upper() in config.DISABLE.read()

    def register(self, name: str, plugin: object) -> None:
        """Serve a family with a plugin object; it goes before entry points and earlier calls."""
        if not is_family(name):
            raise InvalidArgument("register_plugin", "not a family name", got=name)
        family = name.upper()
        backend = _examined(Backend, plugin, family, "Device.register_plugin")
        backend.forked = any(one.forked for one in self._backends() if one.family == family)
        self._prepare(backend)
        self._registered[family] = backend

    def refresh(self) -> None:
        """Forget which distributions and devices there are, and failures; keep what was loaded."""
        importlib.invalidate_caches()
        self._found(again=True)
        self._failed.clear()
        for backend in self._backends():
            backend.forget()

    def _backends(self) -> list[Backend]:
        loaded = [one for one in list(self._loaded.values()) if isinstance(one, Backend)]
        return [*loaded, *list(self._registered.values())]

    def _load(self, entry: EntryPoint, kind: type[P], name: str) -> P:
        """Return the plugin of an entry point. A failure is remembered, and raised again."""

        def work() -> None:
            if entry.key in self._failed:
                raise fresh_copy(self._failed[entry.key])
            if entry.key in self._loaded:
                return
            try:
                found = import_entry(entry)
                plugin = _examined(kind, found, name, origin(entry), entry.distribution.name)
            except PluginError as error:
                self._failed[entry.key] = error.with_traceback(None)
                raise fresh_copy(error) from error.__cause__
            if isinstance(plugin, Backend):
                self._prepare(plugin)
            self._loaded[entry.key] = plugin

        if entry.key not in self._loaded:
            flights.run((self, entry.key), work, operation=f"load {entry.name}")
        return self._loaded[entry.key]  # type: ignore[return-value]  # one kind for each group


def import_entry(entry: EntryPoint) -> Any:
    """Return the object that an entry point names, imported now.

    Raises: PluginError, with whatever the module raised as its cause; InvalidState when it, or a
    module that it needs, is still being imported, which is no failure to remember.
    """
    refuse_at_exit(f"load {entry.name}")
    module, _, attributes = entry.value.partition("[")[0].partition(":")
    module = module.strip()
    try:
        found: Any = importlib.import_module(module)
        for attribute in attributes.strip().split(".") if attributes.strip() else ():
            found = getattr(found, attribute)
    except unless_of_a_signal(BaseException) as error:  # SystemExit must not end the process
        lacking = getattr(error, "obj", None)  # of an AttributeError: the module that lacks it
        if isinstance(error, ImportError):
            lacking = sys.modules.get(error.name or "")
        if getattr(getattr(lacking, "__spec__", None), "_initializing", False):
            problem = f"{one_line(error)}; it is still being imported, and asks for this device"
            fix = "Open devices after the import, in a plugin and in a signal's handler."
            raise InvalidState(f"load {entry.name}", problem, fix=fix) from None
        problem = f"{one_line(error)}; from {origin(entry)}"
        fix = f"Upgrade or uninstall it: {entry.distribution.name}."
        raise PluginError(f"load {entry.name}", problem, fix=fix) from error
    return found


def _examined(kind: type[P], found: object, name: str, origin: str, distribution: str = "") -> P:
    """Return a plugin of an object, whose attributes may raise. Raises: PluginError."""
    try:
        return kind(found, name, origin, distribution)
    except unless_of_a_signal(BaseException) as error:
        if isinstance(error, HalError):
            raise
        problem = f"its object cannot be examined: {one_line(error)}; from {origin}"
        fix = f"Upgrade or uninstall it: {distribution or 'its package'}."
        raise PluginError(f"plugin {name}", problem, fix=fix) from error
