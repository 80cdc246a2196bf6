"""Apple's Foundation as far as hal-metal uses it, for software Metal."""

from __future__ import annotations

from objc import NSObject


class NSError(NSObject):
    def __init__(self, domain: str, code: int, words: str) -> None:
        super().__init__()
        self._domain, self._code, self._words = domain, code, words

    def domain(self) -> str:
        return self._domain

    def code(self) -> int:
        return self._code

    def localizedDescription(self) -> str:
        return self._words


class NSProcessInfo(NSObject):
    _version = 15, 1, 0

    def operatingSystemVersion(self) -> tuple[int, int, int]:
        return self._version

    def operatingSystemVersionString(self) -> str:
        return "Version 15.1 (Build 24B83)"

    @staticmethod
    def _the_only() -> NSProcessInfo:
        return _process


_process = NSProcessInfo()
NSProcessInfo.processInfo = NSProcessInfo._the_only  # type: ignore[attr-defined]


class NSURL(NSObject):
    def initFileURLWithPath_(self, path: str) -> NSURL:
        self._path = path
        return self
