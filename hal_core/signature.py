"""Signatures: a kernel's typed parameters in order, their text form, and what a launch needs."""

from __future__ import annotations

import re
from functools import partial
from math import inf
from typing import Any, NamedTuple

from hal_core.dtypes import DTYPES, IMAGES, DType, alike, any_, as_dtype, check_array, pack
from hal_core.errors import InvalidArgument

POINTER, CONST_POINTER, VALUE = "pointer", "const pointer", "value"

_FORM = 'Write "y: float32*, x: const float32*, n: int32".'
_WIDER = "Give a number that the dtype holds, or use a wider dtype."
LONGEST_NAME = 128  # letters; some compilers crash on a name of 255

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
_PARAM = re.compile(
    r"(const\s+)?([a-z]+[0-9]*(?:x[0-9]+)?|image[123]d|struct<\S+>)\s*(\*)?\s*\Z", re.ASCII
)


class Param(NamedTuple):
    """One parameter. A pointer or an image that is not const is read and written."""

    name: str
    dtype: DType
    kind: str  # "pointer", "const pointer" or "value"
    position: int  # among all parameters

    @property
    def is_pointer(self) -> bool:
        """True for a parameter that takes a buffer at a launch, False where it takes a value."""
        return self.kind != VALUE

    def __str__(self) -> str:
        const = "const " if self.kind == CONST_POINTER else ""
        star = "*" if self.is_pointer and self.dtype.kind != "I" else ""
        return f"{self.name}: {const}{self.dtype.name}{star}"


class Signature(NamedTuple):
    """A kernel's name and parameters, in the order of its definition.

    A launch takes its arguments in this order; or buffers in the order of the pointers, and `vals`
    in that of the values.
    """

    name: str
    params: tuple[Param, ...]

    @property
    def pointers(self) -> tuple[Param, ...]:
        """The parameters that take buffers, in the order of a launch."""
        # A list is twice as fast as a generator; graphs ask for each node.
        return tuple([param for param in self.params if param.kind != VALUE])

    @property
    def values(self) -> tuple[Param, ...]:
        """The parameters that take numbers, in the order of `vals`."""
        return tuple(param for param in self.params if not param.is_pointer)

    @property
    def dtypes(self) -> frozenset[DType]:
        """The dtypes of the parameters and of their elements, without `any_` and images."""
        return frozenset(param.dtype for param in self.params) - {any_, *IMAGES.values()}

    def __str__(self) -> str:
        return ", ".join(map(str, self.params))

    @classmethod
    def parse(cls, name: str, text: str) -> Signature:
        """Read the text form: `"y: float32*, x: const float32*, n: int32"`.

        Raises: InvalidArgument naming the parameter and the form that was expected.
        """
        operation = f"signature of {name!r}"
        refused = partial(InvalidArgument, operation)
        if not (isinstance(name, str) and _NAME.match(name)):
            raise refused("a kernel's name must be a C identifier", got=name)
        _check_length(operation, name)
        given: object = text
        if not isinstance(given, str):
            raise refused("a signature is a str", got=text, fix=_FORM)
        params: list[Param] = []
        for position, part in enumerate(text.split(",")) if text.strip() else ():
            label, _, rest = map(str.strip, part.partition(":"))
            match = _PARAM.match(rest)
            if match is None or not _NAME.match(label):
                raise refused(f"parameter {position} cannot be read", got=part.strip(), fix=_FORM)
            _check_length(operation, label)
            const, word, star = match.groups()
            dtype = any_ if word == "any" and star else DTYPES.get(word)
            if dtype is None and ("x" in word or word[:7] == "struct<"):
                dtype = as_dtype(word, operation)
            image = None if star else IMAGES.get(word)
            dtype = image or dtype
            if dtype is None:
                fix = "C's int, float and float4 are int32, float32 and float32x4. Use one of "
                fix += f"{', '.join(DTYPES)}, complex64, or a vector of them."
                raise refused(f"parameter {label!r} has no known dtype", got=word, fix=fix)
            if const and not (star or image):
                raise refused(f"parameter {label!r}: const is for memory", got=part.strip())
            if any(label == param.name for param in params):
                raise refused("two parameters have the same name", got=label)
            kind = CONST_POINTER if const else POINTER if star or image else VALUE
            params.append(Param(label, dtype, kind, position))
        return cls(name, tuple(params))


class Interface(NamedTuple):
    """The facts of a kernel that its compilation, its loading and its launch need.

    `rendered` says that a renderer wrote the text, which fixes the calling convention; `offsets`
    that each pointer of a text by hand is followed by its offset in bytes.
    """

    signature: Signature  # its name is the entry in the text and in the machine code
    block: tuple[int, int, int] | None = None  # the only block shape it runs with
    shared_nbytes: int = 0  # of each block, without the dynamic shared memory of a launch
    rendered: bool = False
    work: int | None = None  # operations of each thread; None: unknown
    offsets: bool = False


def _check_length(operation: str, name: str) -> None:
    if len(name) > LONGEST_NAME:
        problem = f"the name {name[:20]!r}... has too many letters"
        raise InvalidArgument(operation, problem, got=len(name), limit=LONGEST_NAME)


_PYTHON = frozenset({int, float, bool})
_COMPOUND_KINDS = frozenset("cV")


def convert_value(value: Any, param: Param, operation: str, device: str) -> Any:
    """Convert an int, float, bool or numpy scalar to a Python number of the parameter's kind.

    A complex number, a vector and a struct become bytes.

    Raises: InvalidArgument for other types, a float where an integer is wanted, and numbers the
    dtype cannot hold. NaN and infinities pass.
    """
    dtype = param.dtype
    if dtype.kind in _COMPOUND_KINDS:
        return _bytes_of(value, param, operation, device)
    plain = value
    if type(value) not in _PYTHON and getattr(value, "shape", None) == ():
        check_array(value, operation)  # numpy.ma.masked
        # The kind of bfloat16 is V, void.
        kind = "f" if value.dtype.name == "bfloat16" else value.dtype.kind
        plain = float(value) if kind == "f" else value.item() if kind in "biu" else None
    problem, limit, fix = "is out of range", f"expected {dtype.name}", _WIDER
    if not isinstance(plain, (int, float)):
        problem = "is not a number"
        fix = "Give a Python number or a numpy scalar; arrays go into buffers."
    elif dtype.kind == "f":
        try:
            number = float(plain)
            pack(number, dtype)
        except OverflowError:
            number = inf
        # The caller may have written an infinity; a longdouble may be beyond a float, as an int.
        if abs(number) != inf or value == number:
            return number
    elif isinstance(plain, float):
        problem = "is a float where an integer is expected"
        fix = "Convert it by int(...), or use a float dtype."
    elif dtype.min <= plain <= dtype.max:
        return bool(plain) if dtype.kind == "b" else int(plain)
    else:
        limit = f"{dtype.name} holds {dtype.min} to {dtype.max}"
    raise InvalidArgument(
        operation, f"{_named(param)} {problem}", got=value, limit=limit, device=device, fix=fix
    )


def _named(param: Param) -> str:
    """Return the words of an error for a value: that of a fill has no name."""
    return f"value {param.name!r}" if param.name.isidentifier() else f"value {param.name}"


def _bytes_of(value: Any, param: Param, operation: str, device: str) -> bytes:
    """Return the bytes of a complex number, a vector or a struct."""
    dtype = param.dtype
    if isinstance(value, bytes) and len(value) == dtype.itemsize:
        return value
    base, _, count = dtype.name.partition("x")
    parts, given = value, None if isinstance(value, type) else getattr(value, "dtype", None)
    if dtype.kind == "c":
        base, count = f"float{4 * dtype.itemsize}", "2"
    fix = f"Give {count} numbers{', also for a float3' * (count == '4')}."
    is_record = getattr(value, "shape", None) == () and getattr(given, "kind", "") == "V"
    if is_record and (given == dtype.to_numpy() or dtype in alike(as_dtype(given, operation))):
        return bytes(value.tobytes())
    if base not in DTYPES:  # a struct
        parts = None
        fix = f"Give numpy's scalar of {dtype.to_numpy()}: np.array((...), dtype)[()]."
    elif len(alike(dtype)) > 1 and getattr(value, "shape", ()) == ():
        # A complex number is two floats, whichever of both the text calls its parameter.
        is_complex = isinstance(value, complex) or getattr(given, "kind", "") == "c"
        is_number = isinstance(value, (int, float)) or getattr(given, "kind", "") in tuple("biuf")
        if is_complex or (is_number and dtype.kind == "c"):
            parts = value.real, value.imag
    try:
        if len(parts) == int(count or 0):
            scalar = Param(param.name, DTYPES[base], VALUE, param.position)
            numbers = [convert_value(one, scalar, operation, device) for one in parts]
            return b"".join(pack(one, DTYPES[base]) for one in numbers)
    except TypeError:  # no sequence
        pass
    raise InvalidArgument(
        operation, f"{_named(param)} does not fit", got=value, limit=f"expected {dtype.name}",
        device=device, fix=fix,
    )  # fmt: skip
