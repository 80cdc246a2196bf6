"""`hal.Device`: from a name to an opened device."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from operator import itemgetter
from typing import TYPE_CHECKING, NoReturn, SupportsIndex

from hal_core import config
from hal_core.concurrency import OfThisProcess, do_nothing, fork_safe_lock, refuse_at_exit
from hal_core.device.backend import Backend, pick
from hal_core.device.installed import Plugins
from hal_core.device.names import ELSEWHERE, KNOWN, join, parse
from hal_core.errors import (
    DeviceFault,
    DeviceUnavailable,
    HalError,
    InvalidArgument,
    PluginConflict,
    UnknownDevice,
    as_flag,
)

if TYPE_CHECKING:
    from hal_core.device.base import Compiled, DeviceInfo

__all__ = ["Backend", "Device", "DeviceRegistry", "opened"]

log = logging.getLogger("hal_core")
log.addHandler(logging.NullHandler())  # else the first warning would be printed
with suppress(InvalidArgument):  # an import does not fail for it; opening a device does
    if config.DEBUG.read():
        logging.basicConfig(format="%(name)s: %(message)s")
        log.setLevel(logging.DEBUG)

_MOST_SPELLINGS = 256  # of names that are looked up fast: "cpu", "CPU:0", ...


class DeviceRegistry(OfThisProcess):
    """Every device of every installed backend, opened at the first use.

    Safe from any thread. Iterating, `len`, `in`, `repr` and `states` load no plugin.
    Owns: the devices it opened, until they are closed; at exit the newest is closed first.
    """

    _instead = "Make one there: hal.DeviceRegistry(path)."

    def __init__(self, path: Sequence[str] | None = None) -> None:
        """`path` is searched for distributions instead of `sys.path`."""

        def prepare(backend: Backend) -> None:
            backend.on_opened, backend.on_closing = self._remember, self._forget

        self._devices: dict[str | None, Compiled] = {}  # any spelling -> open device
        self._lock = fork_safe_lock()
        self._plugins = Plugins(path, prepare)
        self._skipped: dict[str, str] = {}
        self._misset: list[str] = []  # sentences about settings, and whom they cost
        # The best device's name, once it is known. `refresh` makes a new list: a choice that is
        # being made from what was there before goes into the old one.
        self._best: list[str] = []
        # What `default` chose, the innermost last; each in a list, to be told from the others.
        self._chosen: ContextVar[tuple[list[str], ...]] = ContextVar("hal_default", default=())
        self._closes_at_exit = False

    # -- opening

    def __getitem__(self, name: str | None) -> Compiled:
        """The device of that name, opened at the first use; None is the default device.

        Raises: InvalidArgument for a malformed name; UnknownDevice; DeviceUnavailable when there
        is no such hardware or it cannot be opened now; PluginError; ForkError.
        """
        try:
            return self._devices[name]
        except (KeyError, TypeError):
            pass
        if name is None:
            name = self.DEFAULT
            try:
                return self[name]
            except UnknownDevice as error:
                if name in self._best and self._skipped and not config.DEVICE.read():
                    why = " ".join(self._skipped.values())
                    _add(error, f"It is the default as there is no other device: {why}")
                raise
        family, index = parse(name)
        if family == "GPU":
            return self._open(*parse(self.info(name).name))
        device = self._open(family, index)
        with self._lock:  # a device that was closed by now must not be found again
            is_open = self._devices.get(device.name) is device
            if is_open and len(self._devices) < _MOST_SPELLINGS:
                self._devices[name] = device
        return device

    def _open(self, family: str, index: int) -> Compiled:
        device = self._devices.get(join(family, index))
        if device is not None:
            return device
        refuse_at_exit(f"open {join(family, index)}")
        try:
            backend = self._plugins.backend(family)
            info = backend.info(index)
            config.check({*self._plugins.all_families(), *KNOWN}, family)
            for extension in self._plugins.extensions():
                backend.attach(extension)
            return backend.open(index, info)
        except HalError as error:
            _add_setting(error, family, index)
            raise

    def _remember(self, device: Compiled) -> None:
        with self._lock:
            if not self._closes_at_exit:
                # Calls come in reverse: behind that of `weakref` finalizers do nothing.
                weakref.finalize(self, do_nothing).detach()
                atexit.register(self._close_all)
                self._closes_at_exit = True
            self._devices[device.name] = device

    def _forget(self, device: Compiled) -> None:
        with self._lock:
            for name, known in list(self._devices.items()):
                if known is not device:
                    continue
                del self._devices[name]

    def _close_all(self) -> None:
        if sys.version_info[:2] == (3, 12):
            # A collection that is due starts there in the middle of the one under way, here the
            # last, and Python crashes: 350 modules make one due, and 700 finalizers of buffers the
            # next. With a threshold of 0 none is due. Not `gc.disable`: that would leave out the
            # collection before the modules are cleared.
            gc.set_threshold(0)
        newest_first = reversed(dict.fromkeys(self._devices.values()))
        fault: DeviceFault | None = None
        for device in list(newest_first):
            try:
                device.close()
            except BaseException as error:  # the others must be closed, and the exit code stays
                log.warning("closing %s at exit failed: %r", device.name, error, exc_info=error)
                fault = error if isinstance(error, DeviceFault) else fault
        if fault is not None:  # work that nobody waited for has failed; Python prints it
            raise fault

    # -- listing

    def info(self, name: str) -> DeviceInfo:
        """Facts of one device, without opening it. Raises: as opening it."""
        family, index = parse(name)
        try:
            if family == "GPU":
                return self._gpu(index)
            return self._plugins.backend(family).info(index)
        except HalError as error:
            _add_setting(error, family, index)
            raise

    def devices(self, family: str, *, kind: str | None = None) -> tuple[DeviceInfo, ...]:
        """Facts of every device of a family, or of those of a kind, such as "gpu". Never empty.

        hal-core asks the backend once, and again after `refresh`.
        Raises: DeviceUnavailable when there is no such hardware; UnknownDevice; PluginError.
        """
        given: object = kind
        if not isinstance(given, str | None):
            fix = 'Give it as text: kind="gpu".'
            raise InvalidArgument("devices", "kind= is no text", got=given, fix=fix)
        infos = self.backend(family).infos()
        found = tuple(info for info in infos if kind in (None, info.kind))
        if not found:
            problem = "the family has no device of this kind"
            fix = f"It has {', '.join(dict.fromkeys(info.kind for info in infos))}."
            raise DeviceUnavailable("devices", problem, got=kind, device=family, fix=fix)
        return found

    def get_available_devices(self, *, interpreters: bool = False) -> list[str]:
        """Canonical names of every device that can be opened, best first.

        Devices of kind interpreter, such as PYTHON, are listed only if there is no other;
        `interpreters=True` always lists them. The call loads every plugin and asks its driver;
        `skipped` has the reason for each family that is left out.
        """
        listed = as_flag(interpreters, "get_available_devices", "interpreters")
        found = [info for backend, info in self._available() if not backend.forked]
        others = [info for info in found if info.kind != "interpreter"]
        return [info.name for info in (others if others and not listed else found)]

    def backend(self, family: str) -> Backend:
        """The plugin that serves a family, loaded. Raises: UnknownDevice, PluginError."""
        return self._plugins.backend(self.canonicalize(family))

    @property
    def skipped(self) -> dict[str, str]:
        """The reason for each family that the last choice left out: broken, no hardware, ..."""
        return dict(self._skipped)

    def _available(self) -> list[tuple[Backend, DeviceInfo]]:
        """Ask every family for its devices, and order them: by HAL_PLUGINS, else by rank."""
        ranked: list[tuple[int, Backend, DeviceInfo]] = []
        in_given_order = bool(config.PLUGINS.read())
        skipped, misset = {}, list[str]()
        for family in self._plugins.families():
            try:
                backend = self._plugins.backend(family)
                for info in backend.infos():
                    rank = 0 if in_given_order else -backend.ranks[info.kind]
                    ranked.append((rank, backend, info))
            except HalError as error:
                skipped[family] = str(error)
                log.debug("%s is left out: %s", family, error)
                if isinstance(error, (InvalidArgument, PluginConflict)):  # a setting
                    misset += [f"{family} is left out: {error}"]
        self._skipped, self._misset = skipped, misset
        # Devices of equal rank stay in the order of their families and indices.
        return [(backend, info) for _, backend, info in sorted(ranked, key=itemgetter(0))]

    def _gpu(self, index: int) -> DeviceInfo:
        available = [info for _, info in self._available()]
        gpus = [info for info in available if info.kind == "gpu"]
        if gpus:
            return pick(gpus, "GPU", index)
        only = ",".join(config.PLUGINS.read())
        hints = [f"Use one of {', '.join(info.name for info in available)}."] if available else []
        hints += [f"Backends that may be used: {', '.join(self) or 'none'}."]
        hints += [f"{config.PLUGINS.name}={only} allows no other."] if only else []
        hints += self._skipped.values()
        known = {*KNOWN} - {*ELSEWHERE, "CPU", *self._plugins.all_families()}
        names = " ".join(f"hal-{family.lower()}" for family in sorted(known))
        hints += [f"Not installed yet: `python -m pip install {names}`."] if names else []
        raise DeviceUnavailable("open", "there is no device of kind gpu", fix=" ".join(hints))

    # -- names

    def canonicalize(self, name: str | None) -> str:
        """Return the canonical form of a name: "CUDA" for "cuda:0", "GPU:1" for "gpu:1".

        None gives the current `DEFAULT`.
        """
        return self.DEFAULT if name is None else join(*parse(name))

    @property
    def DEFAULT(self) -> str:
        """Name of the default device of this thread.

        The innermost `with Device.default(...)`, else `HAL_DEVICE`, else `<FAMILY>=1` in the
        environment, else the best device present (see `skipped`), else CPU. Opens nothing. If a
        named device is not available, no other replaces it.
        Raises: UnknownDevice when `<FAMILY>=1` names a known family that is not installed.
        """
        if chosen := self._chosen.get():
            return chosen[-1][0]
        wanted = config.DEVICE.read()
        if wanted:
            return join(*parse(wanted, f"environment variable {config.DEVICE.name}"))
        # The environment is asked first: it is the cheaper question, and the answer is mostly no.
        installed = self._plugins.all_families()
        on = [family for family in {*installed, *KNOWN} if os.environ.get(family) == "1"]
        on = sorted(family for family in on if family in self or family not in installed)
        if len(on) > 1:
            given, problem = " and ".join(f"{f}=1" for f in on), "two default devices are asked for"
            fix = f"Leave one, or set {config.DEVICE.name}={on[0]}, which beats them."
            raise InvalidArgument(given, problem, fix=fix)
        if on and on[0] not in installed:
            try:
                self._plugins.choose(on[0])  # raises the error that says why
            except HalError as error:
                _add(error, f"{on[0]}=1 asks for it.")
                raise
        if on:
            return on[0]
        best = self._best
        if not best:
            available = self._available()
            best.append(available[0][1].name if available else "CPU")
            for text in self._misset:  # another device takes its place
                config.warn(text)
            log.debug("the default device is %s", best[0])
        return best[0]

    @DEFAULT.setter
    def DEFAULT(self, name: object) -> NoReturn:
        fix = 'Write `with hal.Device.default("CPU"):`, or set HAL_DEVICE=CPU before the start.'
        raise AttributeError(f"hal.Device.DEFAULT = {name!r}: it is chosen, not assigned. {fix}")

    @contextmanager
    def default(self, name: str) -> Iterator[str]:
        """`with Device.default("OPENCL"):` - the default of this thread inside the block.

        Raises: InvalidArgument, UnknownDevice when no device can have this name. Opens nothing.
        """
        family, index = parse(name)
        if family != "GPU" and family not in self:
            self._plugins.backend(family)  # raises the error that says why
        own = [join(family, index)]
        self._chosen.set((*self._chosen.get(), own))
        try:
            yield own[0]
        finally:  # blocks of generators end in any order, and in other threads
            self._chosen.set(tuple(one for one in self._chosen.get() if one is not own))

    # -- looking, without loading a plugin

    def __iter__(self) -> Iterator[str]:
        """The installed families that may be used."""
        return iter(self._plugins.families())

    def __len__(self) -> int:
        return len(self._plugins.families())

    def __contains__(self, name: object) -> bool:
        """Return True if the family of a name is installed; the hardware is not checked."""
        try:
            return parse(name)[0] in self._plugins.families()
        except InvalidArgument:
            return False

    def states(self) -> dict[str, str]:
        """Every installed family with its state: open, ready, installed (not loaded yet),
        no hardware, broken, incompatible, in conflict, disabled."""
        in_use = {device.family for device in list(self._devices.values())}
        return {
            family: "open" if family in in_use else self._plugins.state(family)
            for family in self._plugins.all_families()
        }

    def __repr__(self) -> str:
        states = ", ".join(f"{family}: {state}" for family, state in self.states().items())
        return f"<hal.Device {states or 'no backend installed'}>"

    def __reduce_ex__(self, protocol: SupportsIndex) -> str:
        """Pickle `hal.Device` by name. Raises: Unsupported for another registry."""
        return "Device" if self is Device else super().__reduce_ex__(protocol)

    if not TYPE_CHECKING:  # which reports both itself, where a call and an attribute are missing

        def __call__(self, *name: object) -> NoReturn:
            problem, fix = "devices are looked up, not made", 'Write hal.Device["CPU"].'
            raise InvalidArgument("hal.Device(...)", problem, got=name, fix=fix)

        def __getattr__(self, name: str) -> NoReturn:
            text = f"hal.Device has no attribute {name!r}."
            public = not name.startswith("_")  # else `_plugins` itself may be asked for
            if public and name.upper() in {*KNOWN, "GPU", *self._plugins.all_families()}:
                text += f' Write hal.Device["{name.upper()}"].'
            raise AttributeError(text)

    def _ipython_key_completions_(self) -> list[str]:
        opened = [device.name for device in list(self._devices.values())]
        return list(dict.fromkeys([*self._plugins.families(), *opened]))

    # -- plugins

    def register_plugin(self, name: str, plugin: object) -> None:
        """Serve a family without an entry point: in a frozen application, in a test.

        The plugin takes precedence over installed distributions; a second call replaces the first.
        Raises: PluginError, IncompatiblePlugin; PluginConflict while a device of it is open.
        """
        family, _ = parse(name, "register_plugin")
        if any(device.family == family for device in list(self._devices.values())):
            problem, fix = "the family is in use", "Close its devices."
            raise PluginConflict("register_plugin", problem, device=family, fix=fix)
        self._plugins.register(name, plugin)
        self._best = []

    def refresh(self) -> None:
        """Look for distributions and devices again, after failures too; open devices stay."""
        refuse_at_exit("refresh")
        self._plugins.refresh()
        self._best = []


def _add(error: HalError, sentence: str) -> None:
    error.args = (f"{error} {sentence}",)


def _add_setting(error: HalError, family: str, index: int) -> None:
    """Say that `HAL_DEVICE` asks for the device, if it does: the caller may not know it is set."""
    wanted = config.DEVICE.read()
    with suppress(InvalidArgument):
        if wanted and parse(wanted) == (family, index):
            _add(error, f"{config.DEVICE.name}={wanted} asks for it.")


Device = DeviceRegistry()


def opened(device: str | Compiled | None, operation: str) -> Compiled:
    """Return a device that is given, or by name; None is the default one.

    Raises: as `hal.Device[...]`; InvalidArgument for what is no device; InvalidState when closed.
    """
    found = Device[device] if device is None or isinstance(device, str) else device
    if not hasattr(type(found), "allocator"):
        problem, fix = "neither a device nor a name of one", 'Write hal.Device["CPU"], or "CPU".'
        raise InvalidArgument(operation, problem, got=device, fix=fix)
    found._check_open(operation)
    return found
