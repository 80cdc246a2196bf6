"""Every exception that the library raises on purpose, in one tree.

Each class is also the builtin that a caller would catch. A message is always built from values,
in one form, and the values can be read as attributes:

    operation: what is wrong (got X; limit Y) on DEVICE. What to do.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")

_ABSENT = object()


class HalError(Exception):
    """Base of everything hal-core and its backends raise on purpose."""

    def __init__(
        self, operation: str, problem: str, *, got: object = _ABSENT, limit: object = _ABSENT,
        device: str | None = None, fix: str | None = None,
    ) -> None:  # fmt: skip
        self.operation = operation
        self.problem = problem
        self.got = None if got is _ABSENT else got
        self.limit = None if limit is _ABSENT else limit
        self.device = device
        self.fix = fix
        facts = []
        if got is not _ABSENT:
            facts.append(f"got {shown(got)}")
        if limit is not _ABSENT:
            facts.append(f"limit {shown(limit)}" if isinstance(limit, (int, float)) else str(limit))
        text = f"{operation}: {problem}"
        if facts:
            text += f" ({'; '.join(facts)})"
        if device:
            text += f" on {device}"
        if not text.endswith("."):  # a driver's own sentence may end with one
            text += "."
        if fix:
            text += f" {fix}"
        super().__init__(text)

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[object, ...]:
        # Constructors take values, Exception's default reduction would hand them the text.
        return _bare, (type(self), self.args), self.__dict__.copy()


def shown(value: object) -> str:
    """Return `repr(value)`, or its size where it has an integer that Python refuses to write out.

    Python writes no integer of more than 4,300 digits, and raises ValueError.
    """
    try:
        return repr(value)
    except ValueError:
        if isinstance(value, int):
            return f"an integer of {value.bit_length()} bits"
        return f"a {type(value).__name__} with an integer too long to be shown"


def check_class(given: object, kind: type[T], operation: str, fix: str, device: str = "") -> T:
    """Return an argument that is of a public class. Raises: InvalidArgument for any other."""
    if isinstance(given, kind):
        return given
    problem, got = f"not a hal.{kind.__name__}", type(given).__name__
    raise InvalidArgument(operation, problem, got=got, device=device or None, fix=fix)


def as_flag(given: object, operation: str, name: str) -> bool:
    """Return an argument that is True or False, or equals one. Raises: InvalidArgument."""
    try:
        is_flag = given in (0, 1)
    except Exception:  # an array has no truth value
        is_flag = False
    if is_flag:  # behind the `try`: at a call Python hears signals
        return bool(given)
    problem = f"{name}= is neither True nor False"
    raise InvalidArgument(operation, problem, got=given, fix=f"Write {name}=True.")


def _bare(kind: type[BaseException], args: tuple[object, ...]) -> BaseException:
    """Make an error without its constructor.

    By the `__new__` of the builtin that lays out its memory: Python refuses any other, such as
    MemoryError's for OutOfMemory, and Exception's for a backend's own class that is an OSError.
    """
    builtin: type = kind
    while builtin.__module__ != "builtins":
        builtin = builtin.__base__  # type: ignore[assignment]  # ends at BaseException
    error: BaseException = builtin.__new__(kind)  # type: ignore[call-overload]
    error.args = args
    return error


class InvalidArgument(HalError, ValueError):
    """A value the caller passed cannot be accepted; nothing was done."""


class InvalidState(HalError, RuntimeError):
    """The object is not in a state that allows the call: freed, closed, never allocated."""


class Unsupported(HalError, NotImplementedError):
    """The device or its compiler declares that it cannot do this."""


class NotShareable(Unsupported, BufferError):
    """Memory cannot be shared in the way that was requested, such as without a copy."""


class UnknownDevice(HalError, LookupError):
    """No installed backend has this name, or the family has fewer devices."""


class DeviceUnavailable(HalError, RuntimeError):
    """The backend works, but the device cannot be opened: the machine lacks the hardware, or the
    driver refuses."""

    # As the answer of `hal_enumerate`. True: it is remembered until `hal.Device.refresh()`. False:
    # the program may change it, as by connecting to a cluster, and the plugin is asked each time.
    lasting: bool = True


class PluginError(HalError, ImportError):
    """An installed backend cannot be used: it fails at import or is not a plugin.

    The original exception, where there is one, is ``__cause__``.
    """


class IncompatiblePlugin(PluginError):
    """The backend was written for another version of the plugin API."""


class PluginConflict(PluginError):
    """Two distributions provide the same family, and no setting chooses one."""


class OutOfMemory(HalError, MemoryError):
    """The device, or the limit set for it, has no room; cached blocks were released first."""


class CompileError(HalError, RuntimeError):
    """A compiler or a loader refused a kernel.

    ``log`` is everything the compiler said, ``source`` the text it was given; the message shows
    the lines around the first fault when the log names one.
    """

    def __init__(
        self, operation: str, problem: str, *, log: str = "", source: str = "",
        line: int | None = None, device: str | None = None, fix: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(operation, problem, device=device, fix=fix)
        self.log = log
        self.source = source
        self.line = line
        parts = [str(self.args[0])]
        if log.strip():
            parts.append(log.strip())
        if source and line is not None:
            lines = source.splitlines()
            for number in range(max(1, line - 2), min(len(lines), line + 2) + 1):
                mark = ">" if number == line else " "
                parts.append(f"{mark} {number:4d} | {lines[number - 1]}")
        self.args = ("\n".join(parts),)


class CompilerUnavailable(HalError, RuntimeError):
    """No compiler can serve: the chosen one is missing, or every candidate failed."""


class ForkError(HalError, RuntimeError):
    """A driver or a queue of the parent process was used in a forked child."""


class DeviceFault(HalError, RuntimeError):
    """The device reported a failure while it ran queued work."""
