"""The installed plugins: which serves a family, each loaded alone, failures remembered."""

from __future__ import annotations

import difflib
import importlib
import logging
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from hal_core import config, discovery
from hal_core.concurrency import again, flights, fork_safe_lock
from hal_core.discovery import EntryPoint, normalize
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
from hal_core.registry.answers import said
from hal_core.registry.backend import Backend
from hal_core.registry.names import KNOWN, PLANNED, is_family
from hal_core.registry.plugin import Extension, Plugin

log = logging.getLogger("hal_core")


P = TypeVar("P", bound=Plugin)
Key = tuple[str, str, str, str]


class Plugins:
    """What is installed on `path` (`sys.path`), and what of it was loaded.

    Listing is text only; `backend` and `extensions` import. Safe from any thread.
    """

    def __init__(self, path: Sequence[str] | None, prepare: Callable[[Backend], None]) -> None:
        self._path = path
        self._prepare = prepare
        self._lock = fork_safe_lock()
        self._scan: discovery.Scan | None = None
        self._families: dict[str, list[EntryPoint]] | None = None
        self._names: list[str] | None = None  # of all families
        self._registered: dict[str, Backend] = {}  # replaced, never changed
        self._loaded: dict[Key, Plugin] = {}
        self._failed: dict[Key, PluginError] = {}

    # -- text only

    def families(self) -> list[str]:
        """Families that may be used: in the order of HAL_PLUGINS, else by name."""
        installed = self.all_families()
        allowed = _upper(config.PLUGINS.read())
        if allowed:
            installed = [family for family in dict.fromkeys(allowed) if family in installed]
        disabled = _upper(config.DISABLE.read())
        return [family for family in installed if family not in disabled]

    def state(self, family: str) -> str:
        """One word or two for an installed family, without loading it."""
        try:
            chosen = self.choose(family)
        except DeviceUnavailable:
            return "disabled"
        except PluginConflict:
            return "in conflict"
        if isinstance(chosen, EntryPoint) and chosen.key in self._failed:
            return state_of(self._failed[chosen.key])
        return "installed"

    def all_families(self) -> list[str]:
        """Every installed family, those that are switched off too."""
        names = self._names
        if names is None:
            entries, registered = self._entries(), self._registered
            names = sorted(entries.keys() | registered.keys())
            if entries is self._families and registered is self._registered:  # and still are
                self._names = names
        return list(names)

    def entry_points(self, family: str) -> list[EntryPoint]:
        return list(self._entries().get(family, ()))

    def extension_points(self) -> list[EntryPoint]:
        return [entry for entry in self._scanned().entries if entry.group == discovery.EXTENSIONS]

    def misnamed(self) -> list[EntryPoint]:
        """Entry points whose name cannot be a family's."""
        return [
            entry
            for entry in self._scanned().entries
            if entry.group == discovery.DEVICES and not is_family(entry.name)
        ]

    def _scanned(self) -> discovery.Scan:
        if self._scan is None:
            found = discovery.installed() if self._path is None else discovery.scan(self._path)
            discovery.complete(found)
            if self._scan is None:  # else another thread was faster, or has refreshed
                self._scan = found
        return self._scan

    def _entries(self) -> dict[str, list[EntryPoint]]:
        families = self._families
        if families is None:
            families, scan = {}, self._scanned()
            for entry in scan.entries:
                if entry.group == discovery.DEVICES and is_family(entry.name):
                    families.setdefault(entry.name.upper(), []).append(entry)
            if scan is self._scan:
                self._families = families
        return families

    # -- choosing

    def choose(self, family: str) -> EntryPoint | Backend:
        """What serves a family, without loading it. Raises: as `backend`, but for a failed load."""
        entries = self._entries().get(family, [])
        if not entries and family not in self._registered:
            raise self._unknown(family)
        self._check_enabled(family)
        if family in self._registered:
            return self._registered[family]
        if len(entries) == 1:
            return entries[0]
        return self._prefer(family, entries)

    def _check_enabled(self, family: str) -> None:
        if family in _upper(config.DISABLE.read()):
            setting, fix = config.DISABLE, f"Take {family} out of"
        elif config.PLUGINS.read() and family not in _upper(config.PLUGINS.read()):
            setting, fix = config.PLUGINS, f"Add {family} to"
        else:
            return
        listed, installed = _upper(setting.read()), self.all_families()
        fix += f" the environment variable {setting.name}, or unset it."
        if not any(name in installed for name in listed):
            fix += f" Nothing that it lists is installed: {', '.join(listed)}."
        raise DeviceUnavailable(
            "open",
            f"the backend is installed, but switched off by {setting.name}={','.join(listed)}",
            device=family,
            fix=fix,
        )

    def _prefer(self, family: str, entries: list[EntryPoint]) -> EntryPoint:
        choices = {name.upper(): who for name, who in config.PREFER.read().items()}
        wanted = choices.get(family)
        if wanted is not None:
            named = [one for one in entries if one.distribution.name == normalize(wanted)]
            if len(named) == 1:
                return named[0]
        problem = f"{len(entries)} entry points claim this family: "
        problem += "; ".join(repr(entry) for entry in entries)
        if wanted is not None:
            problem += f"; HAL_PREFER names {wanted}, which does not settle it"
        names = list(dict.fromkeys(entry.distribution.name for entry in entries))
        raise PluginConflict(
            "open",
            problem,
            device=family,
            fix=f"Uninstall one, or set HAL_PREFER={family}={names[0]}.",
        )

    def _unknown(self, family: str) -> UnknownDevice:
        installed = self.all_families()
        near = _near(family, installed)
        hints = [f"Did you mean {' or '.join(near)}?"] if near else []
        hints.append(f"Installed: {', '.join(installed) or 'no backend at all'}.")
        hints += [f"Failed to load: {error}" for error in list(self._failed.values())]
        damaged = discovery.scan(self._path, thorough=True).damaged
        hints += [f"Damaged: {file} {problem}." for file, problem in damaged.items()]
        if family in PLANNED:
            hints.append(f"hal-{family.lower()} is planned; there is nothing to install yet.")
        elif family in KNOWN:
            hints.append(f"`python -m pip install hal-{family.lower()}` installs it.")
        return UnknownDevice(
            "open", "no installed backend has this name", got=family, fix=" ".join(hints)
        )

    # -- loading

    def backend(self, family: str) -> Backend:
        """The backend of a family, loaded at the first call.

        Raises: UnknownDevice, PluginConflict, DeviceUnavailable when it is switched off; the
        PluginError of a failed load, again at every call until `refresh`.
        """
        chosen = self.choose(family)
        if isinstance(chosen, Backend):
            return chosen
        return self._load(chosen, self._as_backend)

    def extensions(self) -> list[Extension]:
        """Every extension that can be loaded; one that cannot is logged once."""
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
            except InvalidState:  # asked for by its own import; it will be there at the next open
                continue
        return found

    def extension(self, entry: EntryPoint) -> Extension:
        """Raises: PluginError when it cannot be loaded."""
        return self._load(entry, self._as_extension)

    def is_disabled(self, entry: EntryPoint) -> bool:
        return entry.name.upper() in _upper(config.DISABLE.read())

    def register(self, name: str, plugin: object) -> Backend:
        """Serve a family with a plugin object; it goes before entry points and earlier calls."""
        if not isinstance(name, str) or not is_family(name):
            raise InvalidArgument("register_plugin", "not a family name", got=name)
        backend = Backend(plugin, name.upper(), "Device.register_plugin")
        self._prepare(backend)
        with self._lock:
            self._registered = {**self._registered, backend.family: backend}
            self._names = None
        return backend

    def refresh(self) -> None:
        """Look again: forget what was found and what failed, keep what was loaded."""
        importlib.invalidate_caches()
        fresh = discovery.rescan() if self._path is None else discovery.scan(self._path)
        discovery.complete(fresh)
        with self._lock:
            self._scan, self._families, self._names = fresh, None, None
            self._failed.clear()

    def _load(self, entry: EntryPoint, make: Callable[[object, EntryPoint], P]) -> P:
        loaded = self._loaded.get(entry.key)
        if loaded is not None:
            return loaded  # type: ignore[return-value]  # one key is always made by one function

        def work() -> P:
            failed = self._failed.get(entry.key)
            if failed is not None:
                raise again(failed)
            try:
                plugin = self._make(entry, make)
            except PluginError as error:
                with self._lock:
                    self._failed[entry.key] = error.with_traceback(None)
                raise again(error) from error.__cause__
            with self._lock:
                return self._loaded.setdefault(entry.key, plugin)  # type: ignore[return-value]

        return flights.run((self, entry.key), work, operation=f"load {entry.name}")

    def _make(self, entry: EntryPoint, make: Callable[[object, EntryPoint], P]) -> P:
        return make(_import(entry), entry)

    def _as_backend(self, plugin: object, entry: EntryPoint) -> Backend:
        family = entry.name.upper()
        backend = Backend(plugin, family, origin(entry), entry.distribution.name)
        self._prepare(backend)
        return backend

    def _as_extension(self, plugin: object, entry: EntryPoint) -> Extension:
        return Extension(plugin, entry.name, origin(entry), entry.distribution.name)


def origin(entry: EntryPoint) -> str:
    distribution = entry.distribution
    return (
        f"entry point {entry.name} = {entry.value} of {distribution.name} "
        f"{distribution.version} in {distribution.folder}"
    )


def state_of(error: HalError) -> str:
    """What `states()` and `hal doctor` call a failure."""
    for kind, state in _STATES:
        if isinstance(error, kind):
            return state
    return "broken"


_STATES = (
    (IncompatiblePlugin, "incompatible"),
    (PluginConflict, "in conflict"),
    (DeviceUnavailable, "no hardware"),
)


def _import(entry: EntryPoint) -> object:
    """The object an entry point names. Whatever its module raises is a PluginError's cause."""
    module, _, attributes = entry.value.partition("[")[0].partition(":")
    module = module.strip()
    try:
        found: object = importlib.import_module(module)
        for attribute in attributes.strip().split(".") if attributes.strip() else ():
            found = getattr(found, attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: a plugin must not end the process
        if isinstance(error, AttributeError) and _is_half_imported(module):
            raise InvalidState(
                f"load {entry.name}",
                "its module is still being imported, and asks for its own device",
                fix="A plugin must not use its device while it imports.",
            ) from None
        raise _broken(entry, error) from error
    return found


def _broken(entry: EntryPoint, error: BaseException) -> PluginError:
    return PluginError(
        f"load {entry.name}",
        f"{said(error)}; from {origin(entry)}",
        fix=f"Upgrade or uninstall it: {entry.distribution.name}.",
    )


def _is_half_imported(module: str) -> bool:
    spec = getattr(sys.modules.get(module), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


def _near(family: str, installed: Sequence[str]) -> list[str]:
    """What a wrong name may have meant; a right one means itself."""
    if family in KNOWN:
        return []
    near = difflib.get_close_matches(family, installed, 3, 0.5)
    return near or difflib.get_close_matches(family, KNOWN, 1, 0.7)


def _upper(names: Sequence[str]) -> list[str]:
    return [name.upper() for name in names]
