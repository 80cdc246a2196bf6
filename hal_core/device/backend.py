"""The plugin that owns a family: its devices, and every call of a hook."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from hal_core import config, hookspecs
from hal_core.concurrency import (
    OfThisProcess,
    flights,
    fork_error,
    fork_safe_lock,
    forkable,
    fresh_copy,
    survives_fork,
    unless_of_a_signal,
)
from hal_core.device import plugin as checks
from hal_core.device.names import join
from hal_core.device.plugin import Extension, Plugin, Unusable, one_line, short_repr
from hal_core.errors import DeviceUnavailable, HalError, InvalidArgument, UnknownDevice

if TYPE_CHECKING:
    from hal_core.compiler import CompilerPair
    from hal_core.device.base import Compiled, DeviceInfo

log = logging.getLogger("hal_core")

T = TypeVar("T")


class Backend(Plugin, OfThisProcess):
    """The plugin that owns a family, with its devices and the extensions around it.

    Concurrency: any thread may call; devices are listed once, and each is opened once.
    Owns: its open devices, until they are closed.
    """

    _instead = "Send backend.family, and call hal.Device.backend(family) there."

    def __init__(self, plugin: object, family: str, origin: str, distribution: str = "") -> None:
        super().__init__(plugin, family, origin, distribution)
        for hook in hookspecs.REQUIRED:
            if not self.implements(hook):
                forgot = callable(getattr(plugin, hook, None))
                raise self.refuse(f"{hook} is " + ("not marked @hookimpl" if forgot else "missing"))
        ranks: Any = getattr(plugin, "rank", {})
        if not isinstance(ranks, Mapping) or not all(
            kind in hookspecs.RANKS and isinstance(rank, int) for kind, rank in ranks.items()
        ):
            raise self.refuse(f"rank maps device kinds to numbers, and is {short_repr(ranks)}")
        self.family = family
        self.ranks: dict[str, int] = hookspecs.RANKS | dict(ranks)
        self.extensions: list[Extension] = []
        self.open_devices: dict[str, Compiled] = {}  # by canonical name
        self.forked = False  # a parent process has called the driver, which does not survive that
        self._touched = False  # this process has called the driver
        self._survives_fork = False  # as far as is known
        # The answer of hal_enumerate, once there is one. `forget` makes a new list: an answer that
        # arrives later goes into the old one.
        self._answer: list[tuple[DeviceInfo, ...] | HalError] = []
        self._lock = fork_safe_lock()
        self.on_opened: Callable[[Compiled], None] = lambda device: None  # set by the registry
        self.on_closing: Callable[[Compiled], None] = lambda device: None
        forkable.add(self)

    def attach(self, extension: Extension) -> None:
        """Let an extension observe, add compilers and wrap hooks from now on.

        A plugin object that is attached already, or owns the family, is not attached again.
        """
        with self._lock:
            plugin = extension.plugin
            if any(plugin is known.plugin for known in (self, *self.extensions)):
                return
            self.manager.register(plugin, f"{extension.name} {id(extension)}")
            self.extensions.append(extension)

    # -- devices

    @property
    def known(self) -> tuple[DeviceInfo, ...] | HalError | None:
        """The devices, or why there is none; None while nobody has asked."""
        return next(iter(self._answer), None)

    def infos(self) -> tuple[DeviceInfo, ...]:
        """Return the facts of every device, asked for once until `forget`. Never empty.

        Raises: DeviceUnavailable when there is no hardware, asked for again if that is not
        `lasting`; InvalidArgument for a wrong setting, which is read again; PluginError; ForkError.
        """
        answer = self._answer

        def ask() -> None:
            if _lasts(answer):
                return
            self._check_fork()
            self._touched = True
            try:
                infos = self._provide(
                    "hal_enumerate",
                    lambda answer: checks.as_devices(self.family, answer),
                    family=self.family,
                )
                survive = [survives_fork(info.capabilities) for info in infos]
                self._survives_fork = bool(survive) and all(survive)
                if not infos:
                    problem = "the backend is installed, but finds no hardware"
                    fix = "`hal doctor` tells what it looked at."
                    raise DeviceUnavailable("open", problem, device=self.family, fix=fix)
                answer[:] = [infos]
            except unless_of_a_signal(HalError) as error:
                answer[:] = [error.with_traceback(None)]

        if not _lasts(answer):
            flights.run((self, "list", id(answer)), ask, operation=f"list {self.family}")
        known = answer[0]
        if isinstance(known, HalError):
            raise fresh_copy(known)
        return known

    def info(self, index: int) -> DeviceInfo:
        """Return the facts of one device. Raises: UnknownDevice beyond the count; as `infos`."""
        return pick(self.infos(), self.family, index)

    def forget(self) -> None:
        """Forget which devices there are, so that the next call asks the plugin again."""
        self._answer = []

    def open(self, index: int, info: DeviceInfo) -> Compiled:
        """Return the device of that index, opened now unless it is open.

        Raises: DeviceUnavailable, PluginError, ForkError.
        """

        def work() -> Compiled:
            known = self.open_devices.get(info.name)
            if known is not None:
                self.on_opened(known)  # again: Ctrl-C may have ended its `close` half-way
                if self.open_devices.get(info.name) is known:
                    return known
                self.on_closing(known)  # another thread closes it
            device = self._provide(
                "hal_open_device",
                lambda answer: checks.as_device(info, answer),
                family=self.family,
                index=index,
                info=info,
            )
            try:
                device._backend = self
                self.open_devices[info.name] = device
                self.on_opened(device)
                log.debug("opened %s: %s, with %s", info.name, info.title, self.origin)
                self.observe("hal_device_opened", device)
            except BaseException:  # Ctrl-C: nobody gets it
                device.close()
                raise
            return device

        self._check_fork()
        return flights.run((self, "open", index), work, operation=f"open {info.name}")

    def _check_fork(self) -> None:
        if self.forked:
            raise fork_error("open", self.family)

    def _after_fork(self) -> None:
        """Refuse to touch a driver that the parent has used and that does not survive a fork."""
        self.forked = self.forked or (self._touched and not self._survives_fork)

    # -- provider hooks

    def make(self, hook: str, kind: type[T], **arguments: object) -> T:
        """Return what a hook makes, an object of a class that this module may not import."""
        return self._provide(hook, partial(checks.as_made, kind), **arguments)

    def make_compilers(self, device: Compiled) -> list[CompilerPair]:
        """Return the owner's pairs, then what extensions add; the first to use a name has it."""
        owned = self._provide("hal_make_compilers", checks.as_pairs, device=device)
        found = {pair.name: pair for pair in owned}
        for extension in self.extensions:
            with _logged(extension, "hal_make_compilers", device):
                added = extension.manager.hook.hal_make_compilers(device=device)
                pairs = checks.as_pairs(added or ())
                taken = list(filter(found.__contains__, [pair.name for pair in pairs]))
                found = {**found, **{pair.name: pair for pair in pairs}, **found}
                if taken:
                    raise Unusable(f"names that are taken: {', '.join(taken)}")
        return list(found.values())

    def import_buffer(self, device: Compiled, obj: object) -> hookspecs.Foreign | None:
        """Return the memory of a vendor package's own array; None when the plugin knows no such."""
        return self._provide("hal_import_buffer", checks.as_foreign, device=device, obj=obj)

    def doctor(self) -> list[hookspecs.Check]:
        """Return what the plugin tells `hal doctor` beyond its devices."""
        return self._provide("hal_doctor", checks.as_checks, family=self.family)

    def _provide(self, hook: str, checked: Callable[[Any], T], **arguments: object) -> T:
        """Call the owner's hook and check the answer.

        Raises: HalError as the hook raised it; PluginError for any other failure, which names the
        plugin and the extensions that wrap the hook.
        """
        try:
            return checked(getattr(self.manager.hook, hook)(**arguments))
        except unless_of_a_signal(BaseException) as error:
            if isinstance(error, HalError):
                raise
            around = [
                f"{extension.name} ({extension.origin})"
                for extension in self.extensions
                if getattr(extension.manager.hook, hook).get_hookimpls()
            ]
            wrapped = f", wrapped by {', '.join(around)}," if around else ""
            if isinstance(error, Unusable):
                raise self.refuse(f"{hook} gave {error}{wrapped}") from None
            raise self.refuse(f"{hook}{wrapped} failed", error) from error

    # -- observers

    def closing(self, device: Compiled) -> None:
        """Forget a device that is about to close, or that a forked child may not use."""
        self.on_closing(device)
        if self.open_devices.get(device.name) is device:
            del self.open_devices[device.name]
        self.on_closing(device)  # again: `open` may have made it known in between

    def observe(self, hook: str, device: Compiled, **more: object) -> None:
        """Call a hook of observers: the owner's, then that of each extension."""
        for plugin in (self, *self.extensions):
            with _logged(plugin, hook, device):
                getattr(plugin.manager.hook, hook)(device=device, **more)

    def __repr__(self) -> str:
        return f"<Backend {self.family} from {self.origin}>"


def _lasts(answer: Sequence[object]) -> bool:
    """Tell whether a family has answered, and need not be asked again."""
    is_final = bool(answer) and not isinstance(answer[0], InvalidArgument)
    return is_final and getattr(answer[0], "lasting", True)


def pick(infos: Sequence[DeviceInfo], family: str, index: int) -> DeviceInfo:
    """Return one device of a family, or of the kind GPU. Raises: UnknownDevice."""
    if index < len(infos):
        return infos[index]
    count = f"{len(infos)} device{'' if len(infos) == 1 else 's'}"
    fix = f"Use one of {', '.join(info.name for info in infos)}."
    parts = config.SETTINGS.get(f"HAL_{family}_DEVICES")  # of hardware that may be split
    if parts is not None:
        with suppress(ValueError):
            parts.parse(str(index + 1))
            fix += f" {parts.name}={index + 1} splits it into more, if it is set at the start."
    problem = f"{family} has {count}, numbered from 0"
    raise UnknownDevice("open", problem, got=join(family, index), fix=fix)


@contextmanager
def _logged(plugin: Plugin, hook: str, device: Compiled) -> Iterator[None]:
    """Log a failure inside the block: an observer or an extension stops no other."""
    try:
        yield
    except unless_of_a_signal(BaseException) as error:
        log.warning(
            "%s of plugin %s failed on %s: %s; from %s",
            hook, plugin.name, device.name, one_line(error), plugin.origin, exc_info=error,
        )  # fmt: skip
