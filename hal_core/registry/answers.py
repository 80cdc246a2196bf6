"""What the hooks of a plugin may answer; anything else is said to be what it is.

A plugin's objects may raise when they are looked at, so everything here runs inside the `try` of
the hook's call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from hal_core import concurrency
from hal_core.geometry import Limits
from hal_core.hookspecs import CAPABILITIES, RANKS, Check, DeviceInfo, Foreign
from hal_core.registry.names import join

if TYPE_CHECKING:
    from hal_core.compiler import CompilerPair
    from hal_core.device import Compiled

_MOST_DEVICES = 4096  # of one family
_LONGEST = 60  # characters of an object's repr
_LONGEST_TEXT = 2000  # of an error's

# Fields of a DeviceInfo besides name and kind; the type, and what to call it.
_FACTS: dict[str, type] = {
    "title": str, "memory_nbytes": int, "arch": str, "compute_units": int, "host_visible": bool,
    "limits": Limits, "capabilities": frozenset,
}  # fmt: skip


class Unusable(Exception):
    """The answer is not one; the text says what it is instead."""


def shown(thing: object) -> str:
    """Its repr, however it behaves."""
    try:
        return repr(thing)[:_LONGEST]
    except KeyboardInterrupt:
        raise
    except BaseException:
        return f"an object of {type(thing).__name__} whose repr fails"


def said(error: BaseException) -> str:
    """An exception in one line, however it behaves."""
    try:
        text = " ".join(str(error).split())[:_LONGEST_TEXT]
    except KeyboardInterrupt:
        raise
    except BaseException:
        text = "its text cannot be had"
    return f"{type(error).__name__}: {text}".rstrip(". ")


def devices(family: str, answer: object) -> tuple[DeviceInfo, ...]:
    if not isinstance(answer, Sequence) or len(answer) > _MOST_DEVICES:
        raise Unusable(f"{shown(answer)}, which is no sequence of devices")
    return tuple(_info(join(family, index), index, one) for index, one in enumerate(answer))


def _info(name: str, index: int, info: Any) -> DeviceInfo:
    if not isinstance(info, DeviceInfo) or info.name != name:
        raise Unusable(f"{shown(info)} as device {index}, not a DeviceInfo of {name}")
    if not isinstance(info.kind, str) or info.kind not in RANKS:
        raise Unusable(f"{name} the kind {shown(info.kind)}, not one of {', '.join(RANKS)}")
    for field, kind in _FACTS.items():
        fact = getattr(info, field)
        if not isinstance(fact, kind):
            raise Unusable(f"{name} {shown(fact)} for {field}, not a {kind.__name__}")
    unknown = [shown(one) for one in info.capabilities if one not in CAPABILITIES]
    if unknown:
        raise Unusable(f"{name} unknown capabilities: {', '.join(sorted(unknown))}")
    return info


def foreign(answer: Any) -> Foreign | None:
    if answer is None or isinstance(answer, Foreign):
        return answer
    raise Unusable(f"{shown(answer)}, which is neither a Foreign nor None")


def device(info: DeviceInfo, answer: Any) -> Compiled:
    if answer not in concurrency.devices:
        why = "no hal.Compiled, or one whose __init__ did not call super().__init__"
        raise Unusable(f"{shown(answer)} for {info.name}, which is {why}")
    opened: Compiled = answer
    if opened.name != info.name or opened.info != info:
        raise Unusable(f"{shown(answer)}, not the device {info.name} of the info it was given")
    if opened.closed:
        raise Unusable(f"{shown(answer)}, which is closed")
    return opened


def pairs(answer: object) -> list[CompilerPair]:
    if not isinstance(answer, Sequence) or isinstance(answer, str):
        raise Unusable(f"{shown(answer)}, which is no sequence of compiler pairs")
    found: dict[str, CompilerPair] = {}
    for pair in answer:
        if not _is_pair(pair):
            raise Unusable(f"{shown(pair)}, which is no CompilerPair")
        if pair.name in found:
            raise Unusable(f"two compilers named {pair.name!r}")
        found[pair.name] = pair
    return list(found.values())


def _is_pair(pair: Any) -> bool:
    words = (getattr(pair, "name", None), getattr(pair, "language", None))
    if not all(isinstance(word, str) and word for word in words):
        return False
    makers = (getattr(pair, "renderer", 0), getattr(pair, "compiler", 0))
    return (makers[0] is None or callable(makers[0])) and callable(makers[1])


def checks(answer: object) -> list[Check]:
    if answer is None:
        return []
    if not isinstance(answer, Iterable) or isinstance(answer, str):
        raise Unusable(f"{shown(answer)}, which is no list of checks")
    found = [Check(*check) for check in answer]
    for check in found:
        texts = (check.title, check.detail, check.hint)
        if not isinstance(check.ok, bool) or not all(isinstance(text, str) for text in texts):
            raise Unusable(f"{shown(check)}, which is no Check")
    return found
