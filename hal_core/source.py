"""Kernels outside of a front end: as text in a device's own language, and as machine code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol

from hal_core.errors import InvalidArgument, Unsupported, as_flag
from hal_core.geometry import as_count
from hal_core.signature import Interface, Signature

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from hal_core.device.base import Compiled

    Given = str | Signature | None  # None: as the compiler or the text tells
    N = TypeVar("N", bound=str | Mapping[str, Given] | None, default=str, covariant=True)
else:
    from typing import TypeVar

    N = TypeVar("N")

SEVERAL = "several-kernels"  # the name of a text of several, in errors and logs
# Compilers written in C would stop at a zero; a lone surrogate cannot be encoded.
_UNREADABLE = re.compile("[\0\ud800-\udfff]")
_LINES = re.compile(r"[\r\n]|\\\Z")  # the next line would be a macro's, too
_MACRO = re.compile(r"[A-Za-z_]\w*(\([\w\s,.]*\))?", re.ASCII)  # WIDTH, or MAX(a, b)

_COUNTED = {"shared_nbytes": "bytes of a block", "work": "operations of a thread"}


class _Described:
    """Has an `Interface`."""

    __slots__ = ()
    interface: Interface

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.interface.signature.name

    @property
    def signature(self) -> Signature:
        """The kernel's parameters."""
        return self.interface.signature


class Source(_Described, Generic[N]):
    """A kernel's text, name and typed signature, and how it is compiled. Frozen.

    `Source("scale", text, "y: float32*, x: const float32*, n: int32", language="opencl")`. Without
    a signature, hal-core reads it in the text or asks the driver. To compile several kernels of a
    text, give a dict in the place of the name, `{"scale": "y: float32*, n: int32", "sum": None}`,
    or None for all kernels: the text is compiled once, to a dict of programs. `defines` are
    preprocessor macros, `includes` are folders with headers, and `options` go to the compiler
    unchanged. `block` is the only block shape that the text works with. `work` is the number of
    operations that a thread does, by which the CPU finds short launches: during these it keeps the
    GIL. With `offsets=True` each pointer is followed by its offset in bytes, 64 bits wide, as
    OpenCL needs it for views at any offset. A front end that writes text by a device's renderer
    sets `rendered=True`, and gives the `shared_nbytes` of a block.

    Raises: InvalidArgument for a name, a signature or a block that cannot be read.
    """

    __slots__ = (
        "__weakref__", "defines", "includes", "interface", "kernels", "language", "options",
        "text",
    )  # fmt: skip

    text: str  # without a byte-order mark at its beginning
    interface: Interface  # of one kernel; of several what they share
    kernels: tuple[tuple[str, Signature | None], ...] | None  # None: all that the text holds
    language: str
    options: tuple[str, ...]
    defines: tuple[tuple[str, str], ...]
    includes: tuple[str, ...]  # folders of headers

    def __init__(
        self, name: N, text: str, signature: str | Signature | None = None, *, language: str,
        options: Iterable[str] = (), defines: Mapping[str, object] | None = None,
        includes: Iterable[str] = (), block: int | tuple[int, ...] | None = None,
        shared_nbytes: int = 0, rendered: bool = False, work: int | None = None,
        offsets: bool = False,
    ) -> None:  # fmt: skip
        kernels, signature = _kernels(name, signature)
        operation = f"Source {signature.name!r}"
        texts: dict[str, object] = {"text": text, "language": language}
        for what, one in texts.items():
            if not isinstance(one, str):
                raise InvalidArgument(operation, f"{what} must be a str", got=type(one).__name__)
        done = 0 if work is None else work
        for what, number in (("shared_nbytes", shared_nbytes), ("work", done)):
            if as_count(number) < 0:
                problem = f"{what} must be the number of {_COUNTED[what]}, 0 or more"
                raise InvalidArgument(operation, problem, got=number)
        interface = Interface(
            signature, block_shape(block, operation), as_count(shared_nbytes),
            as_flag(rendered, operation, "rendered"), work if work is None else as_count(work),
            as_flag(offsets, operation, "offsets"),
        )  # fmt: skip
        fields = {
            "text": text.removeprefix("\ufeff"), "interface": interface, "kernels": kernels,
            "language": language, "options": _texts(options, "options", operation),
            "defines": _macros(defines, operation),
            "includes": _texts(includes, "includes", operation),
        }  # fmt: skip
        for field, value in fields.items():
            object.__setattr__(self, field, value)
        for part in (text, *self.options, *self.includes, *sum(self.defines, ())):
            # Long texts are ASCII, and to look for one zero takes no time.
            is_plain = part.isascii() and "\0" not in part
            wrong = None if is_plain else _UNREADABLE.search(part)
            if wrong:
                problem = "it has a character that no compiler can read"
                fix = "Take it out of the text, the options, the macros or the folders."
                raise InvalidArgument(operation, problem, got=wrong[0], fix=fix)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Source is frozen: make a new one instead of setting {name}")

    __delattr__ = None  # type: ignore[assignment]

    @property
    def block(self) -> tuple[int, int, int] | None:
        """The only block shape that the kernel runs with."""
        return self.interface.block

    def __reduce__(self) -> tuple[object, ...]:
        facts = self.interface._asdict()
        keywords: dict[str, Any] = {
            "language": self.language, "options": self.options, "defines": dict(self.defines),
            "includes": self.includes,
        }  # fmt: skip
        signature: Signature | None = facts.pop("signature")
        signature = signature if self.is_plain else None
        name: Any = self.kernels and dict(self.kernels) if self.is_several else self.name
        return partial(Source, **keywords, **facts), (name, self.text, signature)

    @property
    def is_plain(self) -> bool:
        """True for one kernel with a signature."""
        return self.kernels == ((self.name, self.signature),)

    @property
    def is_several(self) -> bool:
        """True for a text whose compilation gives a dict of programs."""
        return self.name == SEVERAL

    def __repr__(self) -> str:
        if self.kernels is None:
            return f"<Source of all kernels {self.language}>"
        several = ", ".join(
            f"{name}({'...' if one is None else one})" for name, one in self.kernels
        )
        return f"<Source {several} {self.language}>"


def _kernels(
    name: str | Mapping[str, Given] | None, signature: Given
) -> tuple[tuple[tuple[str, Signature | None], ...] | None, Signature]:
    """Return the kernels of a text, and the signature that stands for them."""
    if isinstance(name, str):
        known = _read(name, signature)
        return ((name, known),), known or Signature.parse(name, "")
    several = Signature(SEVERAL, ())
    fix = 'Write {"scale": "y: float32*, n: int32", "sum": None}, or None for all kernels.'
    if signature is not None:
        problem = "the signatures of several kernels stand beside their names"
        raise InvalidArgument("Source", problem, got=signature, fix=fix)
    if name is None:
        return None, several
    if not isinstance(name, Mapping) or not name:
        raise InvalidArgument("Source", "neither a name nor a dict of kernels", got=name, fix=fix)
    return tuple((one, _read(one, given)) for one, given in name.items()), several


def _read(name: str, given: Given) -> Signature | None:
    if isinstance(given, Signature):
        return given if given.name == name else given._replace(name=name)
    parsed = Signature.parse(name, "" if given is None else given)
    return None if given is None else parsed


def _texts(given: Iterable[str], what: str, operation: str) -> tuple[str, ...]:
    texts = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (None,)
    if not all(isinstance(one, (str, PathLike)) for one in texts):
        problem, fix = f"{what} must be a sequence of str", f'Write {what}=("...",).'
        raise InvalidArgument(operation, problem, got=given, fix=fix)
    return tuple(map(str, texts))


def _macros(given: Mapping[str, object] | None, operation: str) -> tuple[tuple[str, str], ...]:
    macros, fix = {} if given is None else given, 'Write defines={"WIDTH": 16}.'
    if not isinstance(macros, Mapping):
        raise InvalidArgument(operation, "defines must be a dict", got=given, fix=fix)
    for name in macros:
        if not (isinstance(name, str) and _MACRO.fullmatch(name)):
            raise InvalidArgument(operation, "no name of a macro", got=name, fix=fix)
    found = tuple((key, _macro(key, value, operation)) for key, value in macros.items())
    for name, text in found:
        if _LINES.search(name + text):
            fix = "Write it in one line, or in the text, as #define."
            problem = f"the macro {name!r} has a line break"
            raise InvalidArgument(operation, problem, got=text, fix=fix)
    return found


def _macro(name: str, value: Any, operation: str) -> str:
    if isinstance(value, str):
        return value
    number = value.item() if getattr(value, "shape", None) == () else value  # numpy's as Python's
    if not isinstance(number, (int, float)) or number - number != 0:
        fix = "Give a finite number, a bool or the text of the macro."
        raise InvalidArgument(operation, f"the macro {name!r} has no text in C", got=value, fix=fix)
    try:
        return str(+number)  # True is 1: no compiler knows True, and #if takes it for 0
    except ValueError:  # an integer of more than 4,300 digits, which Python does not write
        raise InvalidArgument(operation, "a macro's number is too long", got=value) from None


def refuse_flags(source: Source, language: str, device: str) -> None:
    """Raise Unsupported if a text in a language without a preprocessor has flags."""
    given = source.options, source.defines, source.includes
    if any(given):
        problem = f"options, defines and includes mean nothing to {language}"
        fix, operation = "Leave them out.", f"compile {source.name}"
        raise Unsupported(operation, problem, got=given, device=device, fix=fix)


class Writable(Protocol):
    """A kernel of any front end, which writes itself as text for a device.

    `device.renderer` is the renderer of the compiler that serves kernels without a language of
    their own; a kernel may use it, or write a text in any language that the device takes.
    """

    def __hal_source__(self, device: Compiled) -> Source: ...


def written(kernel: object, device: Compiled) -> Source:
    """Return the kernel as text. Raises: InvalidArgument for an object that is no kernel."""
    if isinstance(kernel, Source):
        return kernel
    write = getattr(kernel, "__hal_source__", None)
    if not callable(write) or isinstance(kernel, type):
        fix = "Decorate a function with @hal.kernel, or make a hal.Source. "
        fix += "A hal.Program is compiled already: call it."
        raise InvalidArgument("compile", "not a kernel", got=kernel, device=device.name, fix=fix)
    source = write(device)
    if not isinstance(source, Source):
        problem = f"__hal_source__ of {type(kernel).__name__} gave no hal.Source"
        raise InvalidArgument("compile", problem, got=source, device=device.name)
    return source


class _Binary(NamedTuple):
    image: bytes
    format: str  # "elf", "opencl", "cubin", "ptx", ...
    target: str  # the architecture it was compiled for
    interface: Interface


class Binary(_Binary, _Described):
    """Machine code of one kernel, and the facts that launching it needs."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<Binary {self.name} {self.format} {self.target} {len(self.image)} bytes>"


def block_shape(block: int | tuple[int, ...] | None, operation: str) -> tuple[int, int, int] | None:
    """Return a fixed block as (x, y, z). Raises: InvalidArgument."""
    if block is None:
        return None
    sizes = tuple(map(as_count, block if isinstance(block, tuple) else (block,)))
    if not 1 <= len(sizes) <= 3 or min(sizes) < 1:
        problem, fix = "block must be one to three positive ints", "Write block=(16, 16, 1)."
        raise InvalidArgument(operation, problem, got=block, fix=fix)
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z
