"""Apple's Foundation as far as hal-metal uses it, for software Metal."""

from objc import NSObject


class NSError(NSObject):
    def __init__(self, domain, code, words):
        super().__init__()
        self._domain, self._code, self._words = domain, code, words

    def domain(self):
        return self._domain

    def code(self):
        return self._code

    def localizedDescription(self):
        return self._words


class NSProcessInfo(NSObject):
    _version = 15, 1, 0

    def operatingSystemVersion(self):
        return self._version

    def operatingSystemVersionString(self):
        return "Version 15.1 (Build 24B83)"

    @staticmethod
    def _the_only():
        return _process


_process = NSProcessInfo()
NSProcessInfo.processInfo = NSProcessInfo._the_only


class NSURL(NSObject):
    def initFileURLWithPath_(self, path):
        self._path = path
        return self
