"""Environment settings: each declared once, with its default and its meaning.

A setting is read when it is asked for, never on a hot path. Backends declare their own with the
same function, so `hal doctor` and the documentation can list every one.
"""

from __future__ import annotations

import os

from hal_core.errors import InvalidArgument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Generic, TypeVar

    T = TypeVar("T")
else:
    # `typing` costs 7 ms and this module runs at `import hal_core`.
    class Generic:
        def __class_getitem__(cls, item: object) -> type:
            return cls

    T = None

SETTINGS: dict[str, Setting[object]] = {}

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off", "")


class Setting(Generic[T]):
    """One environment variable; `read()` gives its parsed value as the environment is now."""

    __slots__ = ("default", "meaning", "name", "parse")

    name: str
    default: T
    meaning: str
    parse: Callable[[str], T]  # raises ValueError for a text that means nothing

    def __init__(self, name: str, default: T, meaning: str, parse: Callable[[str], T]) -> None:
        self.name, self.default, self.meaning, self.parse = name, default, meaning, parse

    def read(self) -> T:
        """What it is now. Raises: InvalidArgument when the environment's text cannot be read."""
        text = os.environ.get(self.name)
        if text is None:
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            raise InvalidArgument(
                f"environment variable {self.name}",
                str(error),
                got=text,
                fix=f"It means: {self.meaning}.",
            ) from None

    def __repr__(self) -> str:
        return f"<Setting {self.name}={self.read()!r}>"


def declare(name: str, default: T, meaning: str, parse: Callable[[str], T]) -> Setting[T]:
    """Declares a setting; declaring the same name again replaces it (a reloaded plugin)."""
    setting: Setting[T] = Setting(name, default, meaning, parse)
    SETTINGS[name] = setting  # type: ignore[assignment]
    return setting


def misspelt() -> dict[str, str]:
    """Variables that nobody has declared, and the setting that each of them looks like."""
    unknown = [name for name in os.environ if name.startswith("HAL_") and name not in SETTINGS]
    if not unknown:
        return {}
    from difflib import get_close_matches

    near = {name: get_close_matches(name, SETTINGS, 1, 0.85) for name in unknown}
    return {name: found[0] for name, found in near.items() if found}


def flag(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError("expected 1 or 0")


def words(text: str) -> tuple[str, ...]:
    """Comma-separated words, in order, without blanks."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def pairs(text: str) -> dict[str, str]:
    """`A=x,B=y`."""
    result = {}
    for word in words(text):
        key, equals, value = word.partition("=")
        if not (equals and key.strip() and value.strip()):
            raise ValueError("expected NAME=value, separated by commas")
        result[key.strip()] = value.strip()
    return result


def nbytes(text: str) -> int:
    """A size: `1048576`, `512M`, `2G` (powers of 1024)."""
    lowered = text.strip().lower().removesuffix("b").removesuffix("i")
    factor = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}.get(lowered[-1:], 0)
    digits = lowered[:-1] if factor else lowered
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError("expected a size such as 1048576, 512M or 2G")
    return int(digits) * (factor or 1)


DEVICE = declare("HAL_DEVICE", "", "the default device, for example CUDA:1", str.strip)
NO_WORDS: tuple[str, ...] = ()
NO_PAIRS: dict[str, str] = {}
PLUGINS = declare("HAL_PLUGINS", NO_WORDS, "families to use, best first; no other is used", words)
DISABLE = declare("HAL_DISABLE", NO_WORDS, "families that are not used", words)
PREFER = declare("HAL_PREFER", NO_PAIRS, "which distribution serves a family: CUDA=hal-cuda", pairs)
REQUIRE = declare("HAL_REQUIRE", NO_WORDS, "families whose tests must not be skipped", words)
DEBUG = declare("HAL_DEBUG", False, "1 logs what discovery, caches and compilers decide", flag)
CACHE_DIR = declare("HAL_CACHE_DIR", "", "folder of compiled kernels; else the user's", str)
CCACHE = declare("HAL_CCACHE", True, "0 turns the compile cache off", flag)
CACHE_ONLY = declare("HAL_CACHE_ONLY", False, "1 makes a compile-cache miss an error", flag)
LRU = declare("HAL_LRU", True, "0 returns freed memory to the device at once", flag)
LRU_LIMIT = declare("HAL_LRU_LIMIT", 0, "bytes of freed memory kept a device; 0 = built-in", nbytes)
MEMORY_LIMIT = declare("HAL_MEMORY_LIMIT", 0, "bytes a device may hold; 0 = no limit", nbytes)
PROFILE = declare(
    "HAL_PROFILE", False, "1 records what devices do, for hal.finalize_profile()", flag
)
CHECK = declare(
    "HAL_CHECK", False, "1 fills fresh memory with 0xCB; on CPU it watches kernels and memory", flag
)
