"""Environment settings: each declared once, with its default and its meaning.

The environment is read when a setting is used, never on a hot path. Backends declare settings of
their own with the same function, so that a test finds every one on the page of settings, and a
misspelt one is noticed.
"""

from __future__ import annotations

import os
import sys

from hal_core.errors import InvalidArgument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import Generic, TypeVar

    T = TypeVar("T")
    Number = TypeVar("Number", int, float)
else:  # `typing` costs 7 ms and this module runs at `import hal_core`
    T, Generic = None, {None: object}

SETTINGS: dict[str, Setting[object]] = {}

TRACES = (".json", ".html", ".pickle")  # suffixes of the files that a profile is written to

_FLAGS = dict.fromkeys(("1", "true", "yes", "on"), True)
_FLAGS |= dict.fromkeys(("0", "false", "no", "off", ""), False)


class Setting(Generic[T]):
    """One environment variable, its default and its meaning."""

    __slots__ = ("default", "meaning", "name", "parse")

    name: str
    default: T
    meaning: str
    parse: Callable[[str], T]  # raises ValueError for a text that means nothing

    def __init__(self, name: str, default: T, meaning: str, parse: Callable[[str], T]) -> None:
        self.name, self.default, self.meaning, self.parse = name, default, meaning, parse

    def read(self) -> T:
        """Return the current value in the environment. Raises: InvalidArgument."""
        text = os.environ.get(self.name)
        if text is None:
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            operation, fix = f"environment variable {self.name}", f"It means: {self.meaning}."
            raise InvalidArgument(operation, str(error), got=text, fix=fix) from None

    def __repr__(self) -> str:
        return f"<Setting {self.name}={self.read()!r}>"


def declare(name: str, default: T, meaning: str, parse: Callable[[str], T]) -> Setting[T]:
    """Declare a setting; a second declaration replaces the first, as when a plugin is reloaded."""
    if not (isinstance(name, str) and name and callable(parse)):
        problem, fix = "a setting has a name, and a function that reads it", "See config.flag."
        raise InvalidArgument("declare", problem, got=(name, parse), fix=fix)
    setting: Setting[T] = Setting(name, default, meaning, parse)
    SETTINGS[name] = setting  # type: ignore[assignment]
    return setting


def wrong(names: Iterable[str]) -> dict[str, str]:
    """Return what is wrong with the values of these settings: name -> sentence."""
    found = {}
    for name in names:
        try:
            SETTINGS[name].read()
        except InvalidArgument as error:
            found[name] = str(error)
    return found


def misspelt() -> dict[str, str]:
    """Return what is meant by variables that look like a setting and are none: name -> sentence."""
    unknown = [name for name in os.environ if name.startswith("HAL_") and name not in SETTINGS]
    if not unknown:
        return {}
    from difflib import get_close_matches

    near = {name: get_close_matches(name, SETTINGS, 1, 0.85) for name in unknown}
    sentence = "{} is no setting and does nothing; is it {} that you mean?"
    return {name: sentence.format(name, meant[0]) for name, meant in near.items() if meant}


def check(families: Collection[str], opening: str) -> None:
    """Refuse to open a device of `opening`, one of `families`, while a setting has a wrong value.

    Some settings are needed much later. Those of the other families, `HAL_<FAMILY>_...`, are not
    read. Warns of misspelt names, once in a process.
    Raises: InvalidArgument.
    """
    others = tuple(f"HAL_{family}_" for family in families if family != opening)
    for name, setting in list(SETTINGS.items()):
        if name in os.environ and not name.startswith(others):
            setting.read()
    global _has_warned
    for text in () if _has_warned else misspelt().values():
        _has_warned = True
        warn(text)


def warn(text: str) -> None:
    """Give a UserWarning of the first line outside of this package: the user's."""
    import warnings

    package = os.path.dirname(__file__) + os.sep
    frame, level = sys._getframe(), 1
    while frame.f_code.co_filename.startswith(package) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, UserWarning, stacklevel=level)


_has_warned = False


def flag(text: str) -> bool:
    """Parse `1` or `0`, and the words that mean the same."""
    found = _FLAGS.get(text.strip().lower())
    if found is None:
        raise ValueError("expected 1 or 0")
    return found


def trace_suffix(path: str) -> str:
    """Return the suffix of a trace's file. Raises: ValueError for one that no trace has."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in TRACES:
        raise ValueError(f"expected a file that ends in {' or '.join(TRACES)}")
    return suffix


def profiled(text: str) -> str:
    """Parse a flag or the file of a trace: `` is off, `1` is on, all else is a path."""
    try:
        return "1" if flag(text) else ""
    except ValueError:
        if os.path.splitext(text)[1].lower() not in TRACES:
            raise ValueError(f"expected 1, 0 or a file: {', '.join(TRACES)}") from None
        return os.path.expanduser(text)


def words(text: str) -> tuple[str, ...]:
    """Parse names separated by commas, in order, without blanks, in upper case as families are."""
    return tuple(word.strip() for word in text.upper().split(",") if word.strip())


def pairs(text: str) -> dict[str, str]:
    """Parse names with values: `A=x,B=y`."""
    result = {}
    for word in words(text):
        key, equals, value = word.partition("=")
        if not (equals and key.strip() and value.strip()):
            raise ValueError("expected NAME=value, separated by commas")
        result[key.strip()] = value.strip()
    return result


def number(
    convert: type[Number], is_valid: Callable[[Number], bool], expected: str
) -> Callable[[str], Number]:
    """Return a parser of numbers that satisfy `is_valid`; `expected` says which those are."""

    def parse(text: str) -> Number:
        try:
            value = convert(text)
        except ValueError:
            value = convert(-1)  # which no setting accepts
        if not is_valid(value):
            raise ValueError(f"expected {expected}")
        return value

    return parse


def nbytes(text: str) -> int:
    """Parse a size: `1048576`, `512M`, `2G` (powers of 1024)."""
    lowered = text.strip().lower().removesuffix("b").removesuffix("i")
    factor = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}.get(lowered[-1:], 0)
    digits = lowered[:-1] if factor else lowered
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError("expected a size such as 1048576, 512M or 2G")
    return int(digits) * (factor or 1)


def size(nbytes: float) -> str:
    """Return a number of bytes as people read it, for example `1.5 MiB`."""
    if nbytes < 1 << 59:
        for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
            if nbytes < 1024:
                return f"{nbytes:.3g} {unit}" if nbytes < 1000 else f"{nbytes:.0f} {unit}"
            nbytes /= 1024
    return "more than 500 PiB"


def both_sizes(nbytes: int) -> str:
    """Return a number of bytes exactly and as people read it: `1572864 (1.5 MiB)`; `512`."""
    return f"{nbytes} ({size(nbytes)})" if nbytes >= 1024 else str(nbytes)


DEVICE = declare("HAL_DEVICE", "", "the default device, for example CUDA:1", str.strip)
PLUGINS = declare("HAL_PLUGINS", words(""), "families to use, best first; no other is used", words)
DISABLE = declare("HAL_DISABLE", words(""), "families that are not used", words)
PREFER = declare(
    "HAL_PREFER", pairs(""), "which distribution serves a family: CUDA=hal-cuda", pairs
)
REQUIRE = declare("HAL_REQUIRE", words(""), "families whose tests must not be skipped", words)
DEBUG = declare("HAL_DEBUG", False, "1 logs what discovery, caches and compilers decide", flag)
CACHE_DIR = declare(
    "HAL_CACHE_DIR", "", "folder of compiled kernels; unset = the user's cache", os.path.expanduser
)
CACHE_LIMIT = declare(
    "HAL_CACHE_LIMIT",
    512 << 20,
    "bytes of compiled kernels kept on disk; checked as a process stores one, 65, 129, ... of them",
    nbytes,
)
CCACHE = declare("HAL_CCACHE", True, "0 turns the compile cache off", flag)
CACHE_ONLY = declare("HAL_CACHE_ONLY", False, "1 makes a compile-cache miss an error", flag)
LRU = declare("HAL_LRU", True, "0 returns freed memory to the device at once", flag)
LRU_LIMIT = declare(
    "HAL_LRU_LIMIT",
    0,
    "bytes of freed memory cached on a device; 0 = an eighth of its memory",
    nbytes,
)
MEMORY_LIMIT = declare("HAL_MEMORY_LIMIT", 0, "bytes a device may hold; 0 = no limit", nbytes)
PROFILE = declare(
    "HAL_PROFILE",
    "",
    "1 records the work of devices for hal.finalize_profile(); a path is written at exit",
    profiled,
)
CHECK = declare(
    "HAL_CHECK", False, "1 fills fresh memory with 0xCB; on CPU it watches kernels and memory", flag
)
