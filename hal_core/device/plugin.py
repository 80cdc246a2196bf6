"""Checks of plugins: of the object itself, and of the values that its hooks return."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pluggy

from hal_core import concurrency, hookspecs
from hal_core.device.names import join
from hal_core.discovery import API_VERSION
from hal_core.errors import IncompatiblePlugin, PluginError
from hal_core.geometry import Limits
from hal_core.hookspecs import CAPABILITIES, RANKS, Check, DeviceInfo, Foreign

if TYPE_CHECKING:
    from hal_core.compiler import CompilerPair
    from hal_core.device.base import Compiled

T = TypeVar("T")

HOOKS = tuple(name for name in vars(hookspecs) if name.startswith("hal_"))

# Fields of a DeviceInfo besides name and kind, each with its type.
_FACTS: dict[str, type] = {
    "title": str, "memory_nbytes": int, "arch": str, "compute_units": int, "host_visible": bool,
    "limits": Limits, "capabilities": frozenset,
}  # fmt: skip

_reprs = reprlib.Repr()
_reprs.maxother = _reprs.maxstring = 60
short_repr = _reprs.repr  # also of a device whose __init__ did not call super().__init__()


def one_line(error: BaseException) -> str:
    """Return the class and the text of an exception, without line breaks."""
    try:
        text = str(error)
    except concurrency.unless_of_a_signal(Exception) as wrong:  # its __str__ is a plugin's, too
        text = f"its text raises {type(wrong).__name__}"
    # A limit, as what a vendor's compiler says may have megabytes.
    return f"{type(error).__name__}: {' '.join(text.split())[:2000]}".rstrip(". ")


# -- the plugin object


class _Manager(pluggy.PluginManager):
    """The pluggy manager of one plugin: takes all of its hooks, but only the wrappers of others.

    With one manager for all, a `tryfirst` hook of another plugin could run before the owner's, and
    an unknown hook of one plugin would get another plugin refused.
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
        if isinstance(plugin, type):
            raise self.refuse(f"the entry point names the class {plugin.__name__}, not an instance")
        if plugin is None or isinstance(plugin, (str, bytes, int, float, Sequence, Mapping)):
            named = f"the entry point names {short_repr(plugin)}"
            raise self.refuse(f"{named}, which is no plugin object")
        version: Any = getattr(plugin, "hal_api", None)
        has_hooks = any(self.manager.parse_hookimpl_opts(plugin, name) for name in dir(plugin))
        # The version before the hooks: a newer plugin may have hooks that this core lacks.
        if has_hooks or version is not None:
            self._check_version(version)
        if not has_hooks:
            unmarked = [name for name in HOOKS if callable(getattr(plugin, name, None))]
            why = f": {', '.join(unmarked)} not marked @hookimpl" if unmarked else ""
            raise self.refuse(f"{short_repr(plugin)} has no hooks{why}")
        try:
            self.manager.register(plugin, name)
        except pluggy.PluginValidationError as error:
            raise self.refuse("a hook does not match its specification", error) from error
        for name in sorted(vars(self.manager.hook).keys() - set(HOOKS)):
            near = difflib.get_close_matches(name, HOOKS, 1)
            hint = f", did you mean {near[0]!r}" if near else ""
            raise self.refuse(f"unknown hook {name!r}{hint}")

    def _check_version(self, version: Any) -> None:
        is_pair = isinstance(version, tuple) and [type(part) for part in version] == [int, int]
        if not is_pair or version[0] != API_VERSION[0] or version[1] > API_VERSION[1]:
            upgrade = self.distribution or "its package"
            if version is None:
                problem = "does not say which plugin API it was written for (hal_api is missing)"
            elif not is_pair:
                problem = f"says {short_repr(version)} for hal_api, which is not a pair of numbers"
            else:
                problem = f"was written for plugin API {version[0]}.{version[1]}"
                upgrade = "hal-core" if version > API_VERSION else upgrade
            ours = f"hal-core has {'.'.join(map(str, API_VERSION))}"
            problem = f"it {problem}, {ours}; from {self.origin}"
            fix = f"Run: python -m pip install --upgrade {upgrade}"
            raise IncompatiblePlugin(f"plugin {self.name}", problem, fix=fix)

    def refuse(self, problem: str, error: BaseException | None = None) -> PluginError:
        """Return the error that names this plugin, its origin, and what to do about it."""
        if error is not None:
            problem = f"{problem}: {one_line(error)}"
        fix = "Upgrade or uninstall it" + (f": {self.distribution}" if self.distribution else "")
        return PluginError(f"plugin {self.name}", f"{problem}; from {self.origin}", fix=f"{fix}.")

    def implements(self, hook: str) -> bool:
        """Return whether the plugin itself has the hook, other than as a wrapper."""
        return any(
            found.plugin is self.plugin and not (found.wrapper or found.hookwrapper)
            for found in getattr(self.manager.hook, hook).get_hookimpls()
        )


class Extension(Plugin):
    """A plugin that owns no device: observers, more compilers, wrappers of provider hooks."""

    def __init__(self, plugin: object, name: str, origin: str, distribution: str = "") -> None:
        super().__init__(plugin, name, origin, distribution)
        for hook in HOOKS:
            allowed = hook in hookspecs.ADDED or hook in hookspecs.OBSERVERS
            if not allowed and self.implements(hook):
                raise self.refuse(f"an extension can wrap {hook}, but only a device implements it")


# -- the values that hooks return


class Unusable(Exception):
    """A hook returned a wrong value; the text names it and goes on from "the hook gave"."""


def as_made(kind: type[T], answer: object) -> T:
    """Check what a hook makes, which is None where the hook is missing."""
    if isinstance(answer, kind):
        return answer
    raise Unusable(f"{short_repr(answer)}, which is no {kind.__name__}")


def as_devices(family: str, answer: object) -> tuple[DeviceInfo, ...]:
    """Check the answer of `hal_enumerate`: the facts of each device, under its canonical name."""
    if not isinstance(answer, Sequence):
        raise Unusable(f"{short_repr(answer)}, which is no sequence of devices")
    for index, info in enumerate(answer):
        name = join(family, index)
        if not isinstance(info, DeviceInfo) or info.name != name:
            raise Unusable(f"{short_repr(info)} as device {index}, not a DeviceInfo of {name}")
        if info.kind not in list(RANKS):
            kinds = ", ".join(RANKS)
            raise Unusable(f"{name} the kind {short_repr(info.kind)}, not one of {kinds}")
        for field, kind in _FACTS.items():
            fact = getattr(info, field)
            if not isinstance(fact, kind):
                raise Unusable(f"{name} {short_repr(fact)} for {field}, not a {kind.__name__}")
        unknown = sorted(map(short_repr, info.capabilities - CAPABILITIES))
        if unknown:
            raise Unusable(f"{name} unknown capabilities: {', '.join(unknown)}")
    return tuple(answer)


def as_device(info: DeviceInfo, answer: Any) -> Compiled:
    """Check the answer of `hal_open_device`: the open device that `info` describes."""
    if answer not in concurrency.devices:
        why = "no hal.Compiled, or one whose __init__ did not call super().__init__"
        raise Unusable(f"{short_repr(answer)} for {info.name}, which is {why}")
    opened: Compiled = answer
    if opened.name != info.name or opened.info != info:
        name = info.name
        raise Unusable(f"{short_repr(answer)}, not the device {name} of the info it was given")
    if opened.closed:
        raise Unusable(f"{short_repr(answer)}, which is closed")
    taken = opened._overwritten()
    if taken:
        kept = f"names that hal.Compiled keeps for itself: {', '.join(taken)}"
        raise Unusable(f"{short_repr(answer)}, whose class uses {kept}")
    return opened


def as_foreign(answer: Any) -> Foreign | None:
    """Check the answer of `hal_import_buffer`: memory, or None for an object of no known kind."""
    if answer is None or isinstance(answer, Foreign):
        return answer
    raise Unusable(f"{short_repr(answer)}, which is neither a Foreign nor None")


def as_pairs(answer: object) -> list[CompilerPair]:
    """Check the answer of `hal_make_compilers`: compiler pairs of different names."""
    if not isinstance(answer, Sequence) or isinstance(answer, str):
        raise Unusable(f"{short_repr(answer)}, which is no sequence of compiler pairs")
    found: dict[str, CompilerPair] = {}
    for pair in answer:
        # CompilerPair is in a module that this one may not import, so its fields are checked.
        match pair:
            case (str(name), str(), _, compiler) if callable(compiler):
                if name in found:
                    raise Unusable(f"two compilers named {name!r}")
                found[name] = pair
            case _:
                raise Unusable(f"{short_repr(pair)}, which is no CompilerPair")
    return list(found.values())


def as_checks(answer: object) -> list[Check]:
    """Check the answer of `hal_doctor`: lines of a diagnosis; None is an empty one."""
    if answer is None:
        return []
    if not isinstance(answer, Iterable) or isinstance(answer, str):
        raise Unusable(f"{short_repr(answer)}, which is no list of checks")
    found = [Check(*check) for check in answer]
    for check in found:
        texts = (check.title, check.detail, check.hint)
        if not isinstance(check.ok, bool) or not all(isinstance(text, str) for text in texts):
            raise Unusable(f"{short_repr(check)}, which is no Check")
    return found
