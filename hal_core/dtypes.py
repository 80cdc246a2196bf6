"""Element types of buffers and kernels, and the packing of one value.

Dtypes are classes, so that one name serves as a value (`hal.Buffer("CPU", 8, hal.float32)`), as
an annotation (`x: hal.ConstPtr[hal.float32]`) and as a cast inside a kernel (`hal.float32(i)`).
`dtype.name` is the text form everywhere: `float32`, never `f32` or `f4`.
"""

from __future__ import annotations

import copyreg
import re
import struct
from functools import cache
from math import frexp, isfinite, ldexp
from typing import TYPE_CHECKING, Any

from hal_core.concurrency import Late, unless_of_a_signal
from hal_core.errors import InvalidArgument, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn, Self

    import ml_dtypes
    import numpy as np
    from numpy.typing import NDArray
else:
    ml_dtypes, np = Late("ml_dtypes"), Late("numpy")


class DType(type):
    """The class of every dtype; its instances are `float32`, `int64`, ..."""

    name: str  # text form
    itemsize: int  # bytes
    kind: str  # "f", "i" signed, "u", "b" bool; "c" complex, "V" vector or struct, "I" image
    format: str  # struct letter for one element; "" where struct has none (bfloat16)
    max: float  # largest finite value; an int for integers
    min: float  # smallest finite value
    is_float: bool  # True for a floating-point dtype
    is_integer: bool  # True for an integer dtype, signed or not; False for bool
    _numpy: np.dtype[Any]  # made at the first use

    def __repr__(cls) -> str:
        return cls.name

    def __getitem__(cls, item: object) -> NoReturn:
        """Refuse `hal.float32[:]`, Numba's spelling of a parameter."""
        dtype = f"hal.{cls.__name__}"
        fix = f"Write x: hal.Ptr[{dtype}], or hal.ConstPtr[{dtype}] for memory that is only read."
        raise InvalidArgument(f"{dtype}[...]", "a dtype has no elements", got=item, fix=fix)

    @property
    def dtype(cls) -> np.dtype[Any]:
        """The numpy dtype of the same bits, in the attribute that numpy looks for.

        So `np.zeros(8, hal.float32)` has elements of float32, and not Python objects.
        Raises: Unsupported for bfloat16 without ml_dtypes.
        """
        return cls.to_numpy()

    def to_numpy(cls) -> np.dtype[Any]:
        """Return the numpy dtype of the same bits.

        Raises: Unsupported for bfloat16 without ml_dtypes.
        """
        try:
            return cls._numpy
        except AttributeError:  # the first call
            cls._numpy = _numpy_of(cls.name)
            return cls._numpy


class Scalar(metaclass=DType):
    """A value inside a kernel. Calling a dtype outside one is refused: use numpy there."""

    name, itemsize, kind, format, min, max = "scalar", 0, "", "", 0.0, 0.0
    is_float = is_integer = False

    def __init_subclass__(cls) -> None:
        # Not properties of DType: a compile asks for them hundreds of times.
        cls.is_float, cls.is_integer = cls.kind == "f", cls.kind in "iu"
        if cls.is_integer and cls.kind:
            values, signed = 1 << 8 * cls.itemsize, cls.kind == "i"
            cls.min, cls.max = -(values >> 1) * signed, (values >> signed) - 1

    def __new__(cls, value: object = 0) -> Self:
        raise Unsupported(
            f"{cls.name}({value!r})", "a cast exists inside @hal.kernel functions only",
            fix=f"Outside a kernel use numpy.{cls.name}.",
        )  # fmt: skip

    if TYPE_CHECKING:  # so that type checkers accept `a * x[i] + 1`, `i < n` and `range(n)`

        def __init__(self, value: Scalar | complex = 0) -> None: ...
        def __add__(self, other: Self | float) -> Self: ...
        def __radd__(self, other: float) -> Self: ...
        def __and__(self, other: Self | int) -> Self: ...
        def __rand__(self, other: int) -> Self: ...
        def __neg__(self) -> Self: ...
        def __lt__(self, other: Self | float) -> bool: ...

        __sub__ = __mul__ = __truediv__ = __pow__ = __add__
        __rsub__ = __rmul__ = __rtruediv__ = __rpow__ = __radd__
        __floordiv__ = __mod__ = __or__ = __xor__ = __lshift__ = __rshift__ = __and__
        __rfloordiv__ = __rmod__ = __ror__ = __rxor__ = __rlshift__ = __rrshift__ = __rand__
        __pos__ = __abs__ = __invert__ = __round__ = __neg__
        __le__ = __gt__ = __ge__ = __lt__

        def __eq__(self, other: object) -> bool: ...
        def __ne__(self, other: object) -> bool: ...
        def __bool__(self) -> bool: ...
        def __index__(self) -> int: ...
        def __float__(self) -> float: ...


class bool_(Scalar):
    """True or False, in one byte."""

    name, itemsize, kind, format, min, max = "bool", 1, "b", "?", 0, 1


class int8(Scalar):
    """Whole numbers from -128 to 127; arithmetic wraps."""

    name, itemsize, kind, format = "int8", 1, "i", "b"


class int16(Scalar):
    """Whole numbers from -32768 to 32767; arithmetic wraps."""

    name, itemsize, kind, format = "int16", 2, "i", "h"


class int32(Scalar):
    """Whole numbers from `-2**31` to `2**31 - 1`; arithmetic wraps. Indices are int32 or int64."""

    name, itemsize, kind, format = "int32", 4, "i", "i"


class int64(Scalar):
    """Whole numbers from `-2**63` to `2**63 - 1`; arithmetic wraps."""

    name, itemsize, kind, format = "int64", 8, "i", "q"


class uint8(Scalar):
    """Whole numbers from 0 to 255; arithmetic wraps."""

    name, itemsize, kind, format = "uint8", 1, "u", "B"


class uint16(Scalar):
    """Whole numbers from 0 to 65535; arithmetic wraps."""

    name, itemsize, kind, format = "uint16", 2, "u", "H"


class uint32(Scalar):
    """Whole numbers from 0 to `2**32 - 1`; arithmetic wraps."""

    name, itemsize, kind, format = "uint32", 4, "u", "I"


class uint64(Scalar):
    """Whole numbers from 0 to `2**64 - 1`; arithmetic wraps."""

    name, itemsize, kind, format = "uint64", 8, "u", "Q"


class float32(Scalar):
    """IEEE single precision: 24 significant bits, up to 3.4e38."""

    name, itemsize, kind, format = "float32", 4, "f", "f"
    min, max = -3.4028234663852886e38, 3.4028234663852886e38


class float64(Scalar):
    """IEEE double precision: 53 significant bits, up to 1.8e308; not every GPU has it."""

    name, itemsize, kind, format = "float64", 8, "f", "d"
    min, max = -1.7976931348623157e308, 1.7976931348623157e308


if TYPE_CHECKING:
    _Stored = float32  # a kernel that reads a float16 or bfloat16 gets a float32
else:
    _Stored = Scalar


class float16(_Stored):
    """IEEE half precision: 11 significant bits, up to 65504; kernels compute it as float32."""

    name, itemsize, kind, format = "float16", 2, "f", "e"
    min, max = -65504.0, 65504.0


class bfloat16(_Stored):
    """The upper half of a float32: 8 significant bits; kernels compute it as float32."""

    name, itemsize, kind, format = "bfloat16", 2, "f", ""
    min, max = -3.3895313892515355e38, 3.3895313892515355e38


class any_(Scalar):
    """No dtype: `hal.Ptr[hal.any_]` takes memory of every dtype, and `hal.bitcast` gives it one."""

    name, itemsize, kind, format = "any", 1, "", ""  # counted in bytes


class complex64(Scalar):
    """A complex number of two float32, in buffers and in kernels that are text."""

    name, itemsize, kind, format = "complex64", 8, "c", "8s"


class complex128(Scalar):
    """A complex number of two float64, in buffers and in kernels that are text."""

    name, itemsize, kind, format = "complex128", 16, "c", "16s"


def _made(name: str, nbytes: int, kind: str) -> DType:
    """Make the dtype of a vector, a struct or an image, which no class stands for."""
    facts = {"name": name, "itemsize": nbytes, "kind": kind, "format": f"{nbytes}s"}
    return DType(name, (Scalar,), facts)


# Images of one to three dimensions, among the parameters of kernels that are text.
IMAGES = {name: _made(name, 1, "I") for name in ("image1d", "image2d", "image3d")}

# Of elements that are several numbers, which kernels written as text alone compute with. Vectors
# and structs are added at their first use.
COMPOUND: dict[str, DType] = {one.name: one for one in (complex64, complex128)}

DTYPES: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (
        bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
        float16, bfloat16, float32, float64,
    )
}  # fmt: skip

# By numpy's format; from the last one, so that "f2" is float16, which numpy has, and not bfloat16.
_BY_FORMAT = {f"{one.kind}{one.itemsize}": one for one in reversed(DTYPES.values())}

# Formats in memory only: kernels compute with them as float32.
STORAGE_DTYPES = frozenset({float16, bfloat16})


# By the kind of a numpy dtype: what to do where it says more than a number's format.
_TIME = "Take its numbers, array.view(np.int64), and keep the unit beside them."
_FIELDS = "Take one field, array[name], or the bytes, array.view(np.uint8)."
_IMAGE = "Give the dtype of its pixels, and hal.BufferSpec(image=hal.Image(width, height))."
_INSTEAD = {"M": _TIME, "m": _TIME, "V": _FIELDS, "I": _IMAGE}


def as_dtype(value: object, operation: str = "dtype") -> DType:
    """Return the dtype named by `value`: a dtype, its text form, a numpy dtype or scalar type.

    A numpy dtype with fields is a struct. Raises: InvalidArgument for anything else, such as `f32`
    and Python's `float`, whose width is a guess, and a numpy dtype with another byte order or a
    unit.
    """
    if isinstance(value, DType) and (value.name in DTYPES or value.name in COMPOUND):
        return value
    found = None
    if isinstance(value, str):
        found = DTYPES.get(value.rstrip("_")) or _compound(value, operation)
    elif isinstance(value, np.dtype):  # whose `name` is slow
        if value.type.__name__ == "bfloat16":
            found = bfloat16
        elif value.kind in "cV" and value.isnative and not value.hasobject:
            found = _compound(_text_of(value, operation), operation)
        elif not value.fields:
            found = _BY_FORMAT.get(f"{value.kind}{value.itemsize}")
        if found is not None and not value.isnative:
            fix = f"Use {found.name}. Buffer.from_numpy converts an array of either order."
            raise InvalidArgument(operation, "not this machine's byte order", got=value, fix=fix)
    elif isinstance(value, type) and value.__module__.split(".")[0] in ("numpy", "ml_dtypes"):
        known = value.__name__.rstrip("_")
        found = DTYPES.get(known) or COMPOUND.get(known)
    if found is None:
        fix = _INSTEAD.get(getattr(value, "kind", ""), "")
        fix = fix or f"Use one of {', '.join(DTYPES)}."
        if isinstance(value, str) and value in _BY_FORMAT:
            fix = f"Did you mean {_BY_FORMAT[value].name}? {fix}"
        raise InvalidArgument(operation, "not a dtype", got=value, fix=fix)
    return found


_VECTOR = re.compile(r"(?!complex)([a-z]+[0-9]*)x([0-9]+)", re.ASCII)
_WIDTHS = (2, 4, 8, 16)
_ITEM = re.compile(r"(?:([A-Za-z_]\w*):)?(struct<|[a-z]+[0-9]*(?:x[0-9]+)?)", re.ASCII)
_AFTER = re.compile(r"((?:\[[0-9]+\])*)(?:@([0-9]+);)?", re.ASCII)


def elements_of(flat: NDArray[Any], dtype: DType, shape: tuple[int, ...] = (-1,)) -> NDArray[Any]:
    """Return bytes as an array of this shape, which has an axis more where elements are vectors."""
    kind = dtype.to_numpy()
    return flat.view(kind.base).reshape((*shape, *kind.shape))


def plain_bytes(array: Any, dtype: DType) -> Any:
    """Return the bytes of an array of structs of this dtype; another object as it is."""
    if dtype.kind != "V" or not isinstance(array, np.ndarray) or array.dtype != dtype.to_numpy():
        return array
    return array.reshape(-1).view(np.uint8) if array.flags.c_contiguous else array


def alignment(dtype: DType) -> int:
    """Return the alignment that C gives a number, a vector or a struct of such."""
    if dtype.kind == "c":
        return dtype.itemsize // 2
    parts = re.findall(r":([a-z]+[0-9]*(?:x[0-9]+)?)[\[@]", dtype.name)
    return max((alignment(as_dtype(one)) for one in parts), default=dtype.itemsize)


@cache
def alike(dtype: DType) -> tuple[DType, ...]:
    """Return the dtypes of the same memory.

    A complex number is a vector of two floats, and a struct whose fields have one dtype, in order
    and without gaps, a vector of them.
    """
    name, pair = dtype.name, _PAIRS.get(dtype.name)
    fields, kinds = re.findall(r"(\w+):", name), re.findall(r":([a-z]+[0-9]*)@", name)
    if len(fields) in _WIDTHS and kinds and kinds[0] in DTYPES:
        step = DTYPES[kinds[0]].itemsize
        text = "".join(f"{one}:{kinds[0]}@{step * place};" for place, one in enumerate(fields))
        if name == f"struct<{text}{step * len(fields)}>":
            return (dtype, *alike(as_dtype(f"{kinds[0]}x{len(fields)}")))
    return (dtype,) if pair is None else (dtype, as_dtype(pair))


_PAIRS = {"complex64": "float32x2", "complex128": "float64x2"}
_PAIRS |= {value: key for key, value in _PAIRS.items()}


def _compound(name: str, operation: str) -> DType | None:
    """Return the dtype of elements of several numbers; None for a text that names no such."""
    found = COMPOUND.get(name)
    if found is not None:
        return found
    match = _VECTOR.fullmatch(name)
    if match and match[1] in DTYPES:
        if int(match[2]) not in _WIDTHS:
            raise InvalidArgument(
                operation, "a vector has 2, 4, 8 or 16 elements", got=name,
                fix="One of three takes the memory of four in OpenCL and Metal, and is a struct of "
                "three in CUDA.",
            )  # fmt: skip
        nbytes = DTYPES[match[1]].itemsize * int(match[2])
    elif name.startswith("struct<"):
        try:
            nbytes = _numpy_of(name).itemsize
            if not nbytes:
                raise ValueError(name)
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
            raise InvalidArgument(
                operation, "a struct cannot be read", got=name,
                fix="Write struct<a:float32@0;b:int32@4;8>, or give a numpy dtype with fields.",
            ) from None  # fmt: skip
    else:
        return None
    return COMPOUND.setdefault(name, _made(name, nbytes, "V"))


def _text_of(kind: np.dtype[Any], operation: str) -> str:
    """Return the text form: `struct<x:float32@0;y:int32x4@16;32>`, the offsets and the size."""
    if kind.subdtype is not None:
        base, shape = kind.subdtype
        inner = _text_of(base, operation)
        if len(shape) == 1 and inner in DTYPES:
            return f"{inner}x{shape[0]}"
        return inner + "".join(f"[{one}]" for one in shape)
    if not kind.fields:
        if kind.kind == "V" and kind.type.__name__ != "bfloat16":
            fix = "Name its fields, or take the bytes: array.view(np.uint8)."
            raise InvalidArgument(operation, "not a dtype", got=kind, fix=fix)
        if kind.kind == "c":
            return kind.name
        return as_dtype(kind, operation).name
    text = ""
    for name in kind.names or ():
        if not (name.isidentifier() and name.isascii()):
            problem, fix = "a field's name is no identifier", "Rename it, as the kernel has it."
            raise InvalidArgument(operation, problem, got=name, fix=fix)
        field, offset, *_ = kind.fields[name]
        part, shape = field.subdtype or (field, ())
        bounds = "".join(f"[{one}]" for one in shape)
        text += f"{name}:{_text_of(part, operation)}{bounds}@{offset};"
    return f"struct<{text}{kind.itemsize}>"


def _numpy_of(text: str) -> np.dtype[Any]:
    """Return the numpy dtype of a text form."""
    return _read_item(text, 0)[1]


def _numpy_number(name: str) -> np.dtype[Any]:
    """Return the numpy dtype of a number. Raises: LookupError; Unsupported."""
    if (DTYPES.get(name) or COMPOUND[name]) is not bfloat16:
        return np.dtype(name)
    try:
        made: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    except ImportError:
        raise Unsupported(
            "bfloat16 as a numpy dtype", "numpy has none of its own",
            fix="Install ml_dtypes, or copy bytes with copyin/copyout.",
        ) from None  # fmt: skip
    return made


def _read_item(text: str, place: int) -> tuple[str | None, np.dtype[Any], int]:
    match = _ITEM.match(text, place)
    if match is None:
        raise ValueError(text)
    name, kind, place = match[1], match[2], match.end()
    if kind != "struct<":
        vector = _VECTOR.fullmatch(kind)
        made = _numpy_number(kind if vector is None else vector[1])
        return name, np.dtype((made, int(vector[2]))) if vector else made, place
    fields: dict[str, list[Any]] = {"names": [], "formats": [], "offsets": []}
    while not (end := re.compile("([0-9]+)>").match(text, place)):
        field, inner, place = _read_item(text, place)
        after = _AFTER.match(text, place)
        shape = [int(one) for one in re.findall("[0-9]+", after[1])] if after else []
        fields["names"].append(field)
        fields["formats"].append((inner, tuple(shape)) if shape else inner)
        fields["offsets"].append(int(after[2]) if after and after[2] else 0)
        place = after.end() if after else place
    return name, np.dtype({**fields, "itemsize": int(end[1])}), end.end()  # type: ignore[call-overload]


def check_array(array: Any, operation: str) -> None:
    """Refuse an array with masked elements. Raises: InvalidArgument."""
    if not isinstance(array, np.ndarray):
        return
    masks: Any = np.ma  # whose functions have no types in older versions of numpy
    marks = masks.getmask(array).tobytes()  # a byte for each element, or for each of its fields
    if 1 in marks:
        got, fix = f"{marks.count(1)} of {len(marks)}", "Fill them first: array.filled(0)."
        raise InvalidArgument(operation, "the array has masked elements", got=got, fix=fix)


def values_of(
    array: Any, operation: str, read: Callable[[object, str], DType] = as_dtype
) -> tuple[NDArray[Any], DType]:
    """Return an array's elements in C order and this machine's byte order, and their dtype.

    `read` is `as_dtype`, or a function that refuses more.

    Raises: InvalidArgument for a dtype that no device has, for masked elements, and for an object
    that numpy does not take, such as an array on a GPU or rows of several lengths.
    """
    check_array(array, operation)
    try:
        given = np.asarray(array, order="C")
    except unless_of_a_signal(TypeError, ValueError, RuntimeError) as error:
        got, fix = type(array).__name__, "Give a numpy array, or use Buffer.from_dlpack."
        problem = f"numpy makes no array of it: {error}"
        raise InvalidArgument(operation, problem, got=got, fix=fix) from error
    # Strings of any length have no byte order to change.
    native = given.dtype.newbyteorder("=") if given.dtype.kind != "T" else given.dtype
    dtype = read(native, operation)
    return given if given.dtype.isnative else given.astype(native), dtype


def pack(number: float, dtype: DType) -> bytes:
    """Return the bytes of one element of `dtype`, which must hold `number`.

    A float is rounded half to even: 1.00390625 (3F 80 80 00 as a float32) is 3F 80 as a bfloat16.
    Raises: OverflowError when that makes a finite float infinite.
    """
    if dtype.format:
        return struct.pack(f"={dtype.format}", number)
    # bfloat16 is the upper half of a float32, rounded here. Neither struct nor numpy has it.
    if isfinite(number):
        last = max(frexp(number)[1], -125) - 8  # the place of the last of eight digits
        number = ldexp(round(ldexp(number, -last), 0), last)
    return struct.pack("=H", struct.unpack("=I", struct.pack("=f", number))[0] >> 16)


def _named(name: str) -> DType:
    return IMAGES.get(name) or as_dtype(name)


def _reduce(dtype: DType) -> str | tuple[Any, ...]:
    return (_named, (dtype.name,)) if dtype.kind in ("V", "I") else dtype.__qualname__


copyreg.pickle(DType, _reduce)  # dtypes of `_made` have no global name
