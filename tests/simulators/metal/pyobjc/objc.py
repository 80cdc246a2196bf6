"""pyobjc's `objc` as far as hal-metal uses it, for software Metal.

Each public method of a class here is a message. Its selector, the number and types of its
arguments and its out-parameters are compared with pyobjc's own table, as the bridge would use it.
"""

import ctypes
import functools
import itertools
import threading

import metal_control as control
from pyobjc_table import table

__version__ = "12.2.2"

# Methods that need no table: the Objective-C run time tells the bridge their types.
_PLAIN = {
    "setLanguageVersion:": "Q",
    "setMathMode:": "q",
    "bindings": "",
    **dict.fromkeys(
        ("setTextureType:", "setPixelFormat:", "setWidth:", "setHeight:", "setDepth:",
         "setStorageMode:", "setUsage:"), "Q"
    ),
    "respondsToSelector:": ":",
    "initFileURLWithPath:": "@",
    **dict.fromkeys(
        ("localizedDescription", "domain", "code", "operatingSystemVersion", "init",
         "operatingSystemVersionString", "processInfo"), ""
    ),
}  # fmt: skip
_registered = {}
_sealed = False  # a device was made: pyobjc has read the table of its class


class error(Exception):
    """An Objective-C exception."""


def registerMetaDataForSelector(owner, selector, facts):
    """Replace the row of a selector in the table, unless a device was made before."""
    from pyobjc_table import _plain

    if owner != b"NSObject":
        raise ValueError(f"the table has the protocols' selectors at NSObject, not at {owner!r}")
    if selector.decode() not in table().selectors:
        raise ValueError(f"the table has no selector {selector!r}")
    if not _sealed:
        _registered[selector.decode()] = _plain(facts)


def seal():
    global _sealed
    _sealed = True


# -- pools

_pools = threading.local()


class autorelease_pool:
    """`with objc.autorelease_pool():` releases at its end what was autoreleased inside."""

    def __enter__(self):
        stack = _pools.__dict__.setdefault("stack", [])
        self._mine = []
        stack.append(self._mine)

    def __exit__(self, *_):
        if _pools.stack.pop() is not self._mine:
            raise control.end_process("a pool ends inside another one")
        del self._mine


def _autorelease(thing, selector):
    stack = getattr(_pools, "stack", None)
    if stack:
        stack[-1].append(thing)
    else:
        control.outside.append((selector, thing))


# -- objects

_at = {}  # address -> weak reference to the object that lies there
_flags = itertools.count(1)


class NSObject:
    """An Objective-C object, which lies at an address and begins with its class."""

    def __init__(self):
        import weakref

        # Bits above 36 count references, as on Apple's processors.
        isa = (id(type(self)) & 0xFFFFFFFF8) | next(_flags) << 48 & 0xFFFF << 48
        self._memory = (ctypes.c_uint64 * 2)(isa, 0)
        _at[ctypes.addressof(self._memory)] = weakref.ref(self)
        control.add(self)

    def __init_subclass__(cls):
        for name, function in list(vars(cls).items()):
            if not name.startswith("_") and callable(function):
                setattr(cls, name, _message(name, function))

    @classmethod
    def _new(cls):
        return cls()

    alloc = _new

    def init(self):
        return self

    def respondsToSelector_(self, selector):
        text = selector.decode() if isinstance(selector, bytes) else selector
        return hasattr(self, text.replace(":", "_"))

    def __hash__(self):
        control.messages["hash"] += 1
        return object.__hash__(self)

    def __eq__(self, other):
        control.messages["isEqual:"] += 1
        return self is other


def pyobjc_id(thing):
    return ctypes.addressof(thing._memory)


def objc_object(*, c_void_p):
    """Return the object at an address."""
    found = _at.get(c_void_p.value or 0, lambda: None)()
    if found is None:
        raise control.end_process(f"there is no object at {c_void_p.value:#x}")
    return found


def _message(name, function):
    """Return a method that is checked as a message: how many arguments, and of which types."""
    selector = name.replace("_", ":")
    count = selector.count(":")
    row = table().selectors.get(selector)
    if row is None and selector not in _PLAIN:
        raise TypeError(f"pyobjc's table has no selector {selector}")

    @functools.wraps(function)
    def send(self, *given):
        control.messages[selector] += 1
        if len(given) != count:
            raise TypeError(f"{selector} takes {count} arguments, not {len(given)}")
        facts = _registered.get(selector, row) or {}
        types = _types(selector, row)
        taken, outs = list(given), 0
        for place, (kind, value) in enumerate(zip(types, given, strict=True)):
            about = facts.get("arguments", {}).get(str(place + 2), {})
            if kind in ("^@", "^Q"):
                if about.get("type_modifier") != "o":
                    raise TypeError(f"{selector}: nobody says that argument {place} is an out one")
                if value is not None:
                    raise TypeError(f"{selector}: argument {place} is an out one: pass None")
                outs += 1
            elif kind == "^v":
                _check_bytes(selector, value, given[about["c_array_length_in_arg"] - 2])
            else:
                _check(selector, place, kind, value)
        made = _failed(selector, row) if control.fails(selector) else function(self, *taken)
        returned = made[0] if outs else made
        kind = (row or {}).get("retval", {}).get("type", "v")
        if returned is not None and kind == "@":
            if not selector.startswith("new"):
                _autorelease(returned, selector)
            elif not facts.get("retval", {}).get("already_retained"):
                control.over_retained.append(returned)
        for extra in made[1:] if outs else ():
            if isinstance(extra, NSObject):
                _autorelease(extra, selector)
        return made

    return send


def _types(selector, row):
    if row is None:
        return list(_PLAIN[selector])
    arguments = row.get("arguments", {})
    return [arguments[str(place + 2)]["type"] for place in range(selector.count(":"))]


_RANGES = {"Q": (0, 2**64), "q": (-(2**63), 2**63), "Z": (0, 2), "z": (-128, 128)}
_LENGTHS = {"{MTLSize=QQQ}": 3, "{MTLOrigin=QQQ}": 3, "{_NSRange=QQ}": 2}


def _check(selector, place, kind, value):
    if kind in _RANGES:
        low, high = _RANGES[kind]
        fits = isinstance(value, int) and low <= value < high
    elif kind in _LENGTHS:
        fits = isinstance(value, (tuple, list)) and len(value) == _LENGTHS[kind]
        fits = fits and all(isinstance(one, int) and 0 <= one < 2**64 for one in value)
    elif kind == "@":
        fits = value is None or isinstance(value, (NSObject, str))
    elif kind == ":":
        fits = isinstance(value, (bytes, str))
    else:
        raise TypeError(f"{selector}: software Metal knows no type {kind}")
    if not fits:
        raise TypeError(f"{selector}: argument {place} is {value!r}, not {kind}")


def _check_bytes(selector, value, length):
    if memoryview(value).nbytes < length:
        raise ValueError(f"{selector}: {memoryview(value).nbytes} bytes, and the length {length}")


def _failed(selector, row):
    """Return what a message gives that fails on request."""
    from Foundation import NSError

    if row is not None and row.get("retval", {}).get("type") == "@":
        outs = sum(one["type"] == "^@" for one in row.get("arguments", {}).values())
        why = NSError("MTLAskedFor", 7, f"{selector} fails on request")
        return (*[None] * outs, why) if outs else None
    raise error(f"NSInternalInconsistencyException - {selector} fails on request")
