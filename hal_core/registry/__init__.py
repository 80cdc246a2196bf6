"""`hal.Device`: from a name to an opened device."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING

from hal_core import concurrency, config
from hal_core.concurrency import again, flights
from hal_core.errors import (
    DeviceUnavailable,
    HalError,
    InvalidArgument,
    PluginConflict,
    UnknownDevice,
)
from hal_core.registry.backend import Backend
from hal_core.registry.installed import Plugins, state_of
from hal_core.registry.names import KNOWN, join, parse

if TYPE_CHECKING:
    from hal_core.device import Compiled, DeviceInfo

__all__ = ["Backend", "Device", "DeviceRegistry"]

log = logging.getLogger("hal_core")
log.addHandler(logging.NullHandler())  # else the first warning would be printed
if config.DEBUG.read():
    logging.basicConfig(format="%(name)s: %(message)s")
    log.setLevel(logging.DEBUG)

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_MOST_ALIASES = 256  # spellings of names kept for a fast lookup: "cpu", "CPU:0", ...


class DeviceRegistry:
    """Every device of every installed backend, opened at the first use.

    Safe from any thread. Iterating, `len`, `in`, `repr` and `states` load no plugin.
    Owns: the devices it opened, until they are closed; at exit the newest is closed first.
    """

    def __init__(self, path: Sequence[str] | None = None) -> None:
        """`path` is searched for distributions instead of `sys.path`."""
        self._fast: dict[str | None, Compiled] = {}  # any spelling -> device
        self._opened: dict[str, Compiled] = {}  # canonical name -> device, oldest first
        self._lock = concurrency.fork_safe_lock()
        self._plugins = Plugins(path, self._prepare)
        # A new one whenever answers are forgotten, so that what was asked before is not kept.
        self._enumerated: dict[str, tuple[DeviceInfo, ...] | HalError] = {}
        self._touched: set[str] = set()  # families whose driver this process has used
        self._forked: set[str] = set()  # families whose driver the parent had used
        self._skipped: dict[str, str] = {}
        self._best: str | None = None
        self._override: ContextVar[str | None] = ContextVar("hal_default", default=None)
        self._closes_at_exit = False
        concurrency.forkable.add(self)

    # -- opening

    def __getitem__(self, name: str | None) -> Compiled:
        """The device of that name, opened at the first use; None is the default device.

        Raises: InvalidArgument for a malformed name; UnknownDevice; DeviceUnavailable when there
        is no such hardware or it cannot be opened now; PluginError; ForkError.
        """
        try:
            return self._fast[name]
        except (KeyError, TypeError):
            pass
        return self._find(name)

    def _find(self, name: str | None) -> Compiled:
        if name is None:
            return self._find_default()
        family, index = parse(name)
        if family == "GPU":
            device = self._open(*parse(self._gpu(index).name))
        else:
            device = self._open(family, index)
            with self._lock:
                live = self._opened.get(device.name) is device
                if live and len(self._fast) < _MOST_ALIASES:
                    self._fast[name] = device
        return device

    def _find_default(self) -> Compiled:
        name = self.DEFAULT
        try:
            return self[name]
        except UnknownDevice as error:
            if name == self._best and self._skipped and not config.DEVICE.read():
                why = " ".join(self._skipped.values())
                _add(error, f"It is the default as there is no other device: {why}")
            raise

    def _open(self, family: str, index: int) -> Compiled:
        name = join(family, index)
        device = self._opened.get(name)
        if device is not None:
            return device
        try:
            return self._open_new(family, index)
        except HalError as error:
            wanted = config.DEVICE.read()
            if _names(wanted, name):
                _blame(error, f"{config.DEVICE.name}={wanted}")
            raise

    def _open_new(self, family: str, index: int) -> Compiled:
        info = self._info(family, index)
        self._check_fork(family)
        _warn_of_misspelt()
        backend = self._plugins.backend(family)
        for extension in self._plugins.extensions():
            backend.attach(extension)

        def work() -> Compiled:
            device = self._opened.get(info.name)
            if device is None:
                device = backend.open(index, info)
                self._publish(device)
                log.debug("opened %s: %s, with %s", info.name, info.title, backend.origin)
                backend.opened(device)
            return device

        return flights.run((self, "open", info.name), work, operation=f"open {info.name}")

    def _publish(self, device: Compiled) -> None:
        with self._lock:
            self._opened[device.name] = self._fast[device.name] = device
            first, self._closes_at_exit = not self._closes_at_exit, True
        if first:
            atexit.register(self._close_all)

    def _prepare(self, backend: Backend) -> None:
        backend.on_closed = self._forget

    def _forget(self, device: Compiled) -> None:
        with self._lock:
            for names in (self._fast, self._opened):
                for name in [key for key, value in list(names.items()) if value is device]:
                    names.pop(name, None)  # type: ignore[arg-type]

    def _close_all(self) -> None:
        for device in reversed(list(self._opened.values())):
            try:
                device.close()
            except BaseException as error:  # the others must be closed, the exit code kept
                log.warning("closing %s at exit failed: %r", device.name, error, exc_info=error)

    # -- what there is

    def info(self, name: str) -> DeviceInfo:
        """Facts of one device, without opening it. Raises: as opening it."""
        family, index = parse(name)
        return self._gpu(index) if family == "GPU" else self._info(family, index)

    def get_available_devices(self) -> list[str]:
        """Canonical names of every device that can be opened, best first.

        Loads every plugin and asks its driver; what was left out and why is in `skipped`.
        """
        available = [info.name for info in self._available()]
        return [name for name in available if name.partition(":")[0] not in self._forked]

    def backend(self, family: str) -> Backend:
        """The plugin that serves a family, loaded. Raises: UnknownDevice, PluginError."""
        return self._plugins.backend(family)

    @property
    def skipped(self) -> dict[str, str]:
        """Why a family had no part in the last choice: broken, no hardware, switched off, ..."""
        return dict(self._skipped)

    def _info(self, family: str, index: int) -> DeviceInfo:
        infos = self.devices(family)
        if index < len(infos):
            return infos[index]
        raise UnknownDevice(
            "open",
            f"{family} has {_count(len(infos))}, numbered from 0",
            got=join(family, index),
            fix=f"Use one of {', '.join(info.name for info in infos)}.",
        )

    def devices(self, family: str) -> tuple[DeviceInfo, ...]:
        """Every device of a family, without opening one; kept until `refresh`. Never empty.

        Raises: DeviceUnavailable when there is no hardware; UnknownDevice; PluginError.
        """
        enumerated = self._enumerated  # before the backend, which may be replaced behind it
        backend = self._plugins.backend(family)

        def work() -> tuple[DeviceInfo, ...] | HalError:
            if family not in enumerated:
                self._check_fork(family)
                self._touched.add(family)
                enumerated[family] = _enumerate(backend)
            return enumerated[family]

        known = enumerated.get(family)
        if known is None:
            key = self, "list", family, id(enumerated)
            known = flights.run(key, work, operation=f"list {family}")
        if isinstance(known, HalError):
            raise again(known)
        return known

    def _available(self) -> list[DeviceInfo]:
        ranked: list[tuple[int, int, int, DeviceInfo]] = []
        ordered = bool(config.PLUGINS.read())
        skipped = {}
        for place, family in enumerate(self._plugins.families()):
            try:
                infos = self.devices(family)
                ranks = self._plugins.backend(family).ranks
            except HalError as error:
                skipped[family] = str(error)
                log.debug("%s is left out: %s", family, error)
                continue
            for index, info in enumerate(infos):
                rank = 0 if ordered else -ranks[info.kind]
                ranked.append((rank, place, index, info))
        self._skipped = skipped
        return [info for *_, info in sorted(ranked, key=lambda row: row[:3])]

    def _gpu(self, index: int) -> DeviceInfo:
        gpus = [info for info in self._available() if info.kind == "gpu"]
        if index < len(gpus):
            return gpus[index]
        if gpus:
            raise UnknownDevice(
                "open",
                f"kind gpu has {_count(len(gpus))}, numbered from 0",
                got=join("GPU", index),
            )
        only = ",".join(config.PLUGINS.read())
        hints = [f"Asked: {', '.join(self) or 'no backend at all'}."]
        hints += [f"{config.PLUGINS.name}={only} allows no other."] if only else []
        hints += self._skipped.values()
        raise DeviceUnavailable("open", "there is no device of kind gpu", fix=" ".join(hints))

    # -- names

    def canonicalize(self, name: str | None) -> str:
        """`"metal" -> "METAL"`, `"cuda:0" -> "CUDA"`, `"gpu:1" -> "GPU:1"`: text only.

        None gives the current `DEFAULT`.
        """
        return self.DEFAULT if name is None else join(*parse(name))

    @property
    def DEFAULT(self) -> str:
        """Name of the default device of this thread.

        The innermost `with Device.default(...)`, else `HAL_DEVICE`, else `<FAMILY>=1` in the
        environment, else the best device present (see `skipped`), else CPU. Opens nothing. What
        is named is not replaced by another when it cannot be had.
        Raises: UnknownDevice when `<FAMILY>=1` names a known family that is not installed.
        """
        chosen = self._override.get()
        if chosen is not None:
            return chosen
        wanted = config.DEVICE.read()
        if wanted:
            return join(*parse(wanted, f"environment variable {config.DEVICE.name}"))
        return self._switched_on() or self._best_present()

    def _switched_on(self) -> str | None:
        # The environment is asked first: it is the cheaper question, and the answer is mostly no.
        installed = self._plugins.all_families()
        on = [name for name in {*installed, *KNOWN} if os.environ.get(name) == "1"]
        on = sorted(name for name in on if name in self or name not in installed)
        if len(on) > 1:
            raise InvalidArgument(
                " and ".join(f"{family}=1" for family in on),
                "two default devices are asked for",
                fix=f"Leave one, or set {config.DEVICE.name}={on[0]}, which beats them.",
            )
        if on and on[0] not in installed:
            try:
                self._plugins.choose(on[0])  # raises, with all that can be said
            except HalError as error:
                _blame(error, f"{on[0]}=1")
                raise
        return on[0] if on else None

    def _best_present(self) -> str:
        best = self._best
        if best is None:
            enumerated = self._enumerated
            available = self._available()
            best = available[0].name if available else "CPU"
            log.debug("the default device is %s", best)
            if enumerated is self._enumerated:
                self._best = best
        return best

    @contextlib.contextmanager
    def default(self, name: str) -> Iterator[str]:
        """`with Device.default("OPENCL"):` - the default of this thread inside the block.

        Raises: InvalidArgument, UnknownDevice when the name cannot be one. Opens nothing.
        """
        family, index = parse(name)
        if family != "GPU" and family not in self:
            self._plugins.backend(family)  # raises, with all that can be said
        chosen = join(family, index)
        token = self._override.set(chosen)
        try:
            yield chosen
        finally:
            self._override.reset(token)

    # -- looking without touching

    def __iter__(self) -> Iterator[str]:
        """The installed families that may be used."""
        return iter(self._plugins.families())

    def __len__(self) -> int:
        return len(self._plugins.families())

    def __contains__(self, name: object) -> bool:
        """Whether the family of a name is installed; says nothing about hardware."""
        try:
            return parse(name)[0] in self._plugins.families()
        except InvalidArgument:
            return False

    def states(self) -> dict[str, str]:
        """Every installed family and what is known of it: open, ready, installed (not loaded
        yet), no hardware, broken, incompatible, in conflict, disabled."""
        return {family: self._state(family) for family in self._plugins.all_families()}

    def _state(self, family: str) -> str:
        if any(device.family == family for device in list(self._opened.values())):
            return "open"
        state = self._plugins.state(family)
        known = self._enumerated.get(family)
        if state != "installed" or known is None:
            return state
        return state_of(known) if isinstance(known, HalError) else "ready"

    def __repr__(self) -> str:
        states = ", ".join(f"{family}: {state}" for family, state in self.states().items())
        return f"<hal.Device {states or 'no backend installed'}>"

    def _ipython_key_completions_(self) -> list[str]:
        return [*self._plugins.families(), *(name for name in list(self._opened))]

    # -- plugins

    def register_plugin(self, name: str, plugin: object) -> None:
        """Serve a family without an entry point: in a frozen application, in a test.

        Goes before installed distributions of that family; a second call replaces the first.
        Raises: PluginError, IncompatiblePlugin; PluginConflict while a device of it is open.
        """
        family, _ = parse(name, "register_plugin")
        still = [device for device in list(self._opened.values()) if device.family == family]
        if still:
            raise PluginConflict(
                "register_plugin", "the family is in use", device=family, fix="Close its devices."
            )
        self._plugins.register(name, plugin)
        known = list(self._enumerated.items())
        self._enumerated = {other: infos for other, infos in known if other != family}
        self._best = None

    def refresh(self) -> None:
        """Look again for distributions and devices; failures are forgotten, open devices stay."""
        self._plugins.refresh()
        self._enumerated = {}
        self._best = None

    # -- fork

    def _check_fork(self, family: str) -> None:
        if family in self._forked:
            raise concurrency.fork_error("open", family)

    def _after_fork(self) -> None:
        """Forget devices, and in a child families whose driver the parent had used."""
        self._forked |= {family for family in self._touched if not self._survives(family)}
        self._fast.clear()
        self._opened.clear()

    def _survives(self, family: str) -> bool:
        infos = self._enumerated.get(family)
        return isinstance(infos, tuple) and all(
            concurrency.survives_fork(info.capabilities) for info in infos
        )


def _enumerate(backend: Backend) -> tuple[DeviceInfo, ...] | HalError:
    """The devices, or the answer to give until the next refresh."""
    try:
        infos = backend.enumerate()
    except HalError as error:
        return error.with_traceback(None)
    return infos or DeviceUnavailable(
        "open",
        "the backend is installed, but finds no hardware",
        device=backend.family,
        fix="`hal doctor` tells what it looked at.",
    )


@functools.cache  # once in a process
def _warn_of_misspelt() -> None:
    for name, meant in config.misspelt().items():
        text = f"{name} is no setting and does nothing; is it {meant} that you mean?"
        warnings.warn(text, UserWarning, stacklevel=_callers_level())


def _callers_level() -> int:
    """Of the first frame outside of the package, as `warnings.warn` counts from its caller."""
    frame, level = sys._getframe(1), 1
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    return level


def _count(number: int) -> str:
    return "1 device" if number == 1 else f"{number} devices"


def _blame(error: HalError, setting: str) -> None:
    """Adds who asked for the device."""
    _add(error, f"{setting} asks for it.")


def _add(error: HalError, sentence: str) -> None:
    error.args = (f"{error} {sentence}",)


def _names(wanted: str, name: str) -> bool:
    try:
        return bool(wanted) and join(*parse(wanted)) == name
    except InvalidArgument:
        return False


Device = DeviceRegistry()
