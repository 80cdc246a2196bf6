"""Options of an allocation."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple, Self

from hal_core.dtypes import IMAGES, DType, as_dtype, bfloat16
from hal_core.errors import InvalidArgument, as_flag, check_class
from hal_core.geometry import as_count


class _Image(NamedTuple):
    width: int  # pixels
    height: int | None = None  # None: an image of one dimension
    depth: int | None = None  # None: an image of one or two
    channels: int = 4  # 1, 2 or 4
    normalised: bool = False  # kernels see integers of 8 and 16 bits as floats of -1 or 0 to 1
    dtype: DType | None = None  # None: the buffer's


class Image(_Image):
    """Size and format of an image, whose pixels are `channels` elements of its buffer's dtype.

    Rows have no gaps between them: the elements are those of an array of `shape`, in C order.
    Raises: InvalidArgument for sizes and channels that no image has.
    """

    __slots__ = ()

    def __new__(
        cls, width: int, height: int | None = None, depth: int | None = None, channels: int = 4,
        normalised: bool = False, dtype: DType | None = None,
    ) -> Self:  # fmt: skip
        size = "expected an integer from 1 on"
        for name, given, fits, expected in (
            ("width", width, as_count(width) > 0, size),
            ("height", height, (height, depth) == (None, None) or as_count(height) > 0, size),
            ("depth", depth, depth is None or as_count(depth) > 0, size),
            ("channels", channels, as_count(channels) in (1, 2, 4), "expected 1, 2 or 4"),
        ):
            if not fits:
                fix = "Write hal.Image(width, height, depth); three channels are padded to four."
                raise InvalidArgument("Image", f"wrong {name}", got=given, limit=expected, fix=fix)
        return super().__new__(
            cls, as_count(width), height and as_count(height), depth and as_count(depth),
            as_count(channels), as_flag(normalised, "Image", "normalised"),
            None if dtype is None else as_dtype(dtype, "Image"),
        )  # fmt: skip

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the elements: depth, height, width, channels; two to four of them."""
        sizes = self.depth, self.height, self.width, self.channels
        return tuple(one for one in sizes if one is not None)

    @property
    def kind(self) -> DType:
        """The dtype of the image in a signature, `image1d` to `image3d`."""
        return IMAGES[f"image{len(self.shape) - 1}d"]

    @property
    def nbytes(self) -> int:
        """The bytes of all elements; 0 before the dtype is known."""
        return math.prod(self.shape) * (self.dtype.itemsize if self.dtype else 0)

    def _checked(self, dtype: DType, operation: str) -> Image:
        """Return the image with elements of a dtype. Raises: InvalidArgument naming the field."""
        image, problem = Image(*self), ""  # again, as `_replace` asks nothing
        if dtype.kind not in "fiu" or dtype.itemsize > 4 or dtype is bfloat16:
            problem = f"dtype is no {dtype.name}: pixels are numbers of 8 to 32 bits"
        elif self.normalised and (dtype.is_float or dtype.itemsize > 2):
            problem = f"normalised is for integers of 8 and 16 bits, and no {dtype.name}"
        elif image.dtype is not None and image.dtype is not dtype:
            problem = f"dtype is not the buffer's, {dtype.name}"
        if problem:
            fix = "Write hal.Image(width, height), and the dtype in the buffer alone."
            raise InvalidArgument(operation, f"Image: {problem}", got=self, fix=fix)
        return image._replace(dtype=dtype)

    def _size_within(self, limit: tuple[int, ...], device: str) -> tuple[int, ...]:
        """Return the sizes, width first. Raises: InvalidArgument where one is beyond its limit."""
        size = self.shape[-2::-1]
        if any(one > most for one, most in zip(size, limit, strict=False)):
            problem = f"BufferSpec(image=...) is larger than images of {len(size)} axes may be"
            raise InvalidArgument(
                "allocate", problem, got=size, limit=limit[: len(size)], device=device,
                fix="Take several images, or a buffer.",
            )  # fmt: skip
        return size


class BufferSpec(NamedTuple):
    """Options of an allocation. A backend honours each field or refuses it, never ignores it."""

    image: Image | None = None  # memory that kernels read through the texture units
    uncached: bool = False
    cpu_access: bool = False  # device memory the host can map
    host: bool = False  # pinned host memory
    nolru: bool = False  # returned to the device at once when freed
    zero: bool = False  # all zeros, else contents are undefined
    external_ptr: int | None = None  # memory the caller owns and keeps alive


DEFAULT_SPEC = BufferSpec()


def checked_spec(options: BufferSpec | None, operation: str) -> BufferSpec:
    """Return the options; `DEFAULT_SPEC` itself for its equals, so that `is` finds it.

    Raises: InvalidArgument for what is no BufferSpec, and for a field of a wrong kind.
    """
    if options is None or options is DEFAULT_SPEC:
        return DEFAULT_SPEC
    if options.__class__ is not BufferSpec:  # else the call would show in the time of `zeros`
        check_class(options, BufferSpec, operation, "Write hal.BufferSpec(zero=True).")
    try:
        wrong, fields = examined(options)
    except TypeError:  # a value that cannot be a key, such as an array; an image may have one
        fields, plain = frozenset(options._fields), (int, Image, type(None))
        odd = (field for field in fields if not isinstance(getattr(options, field), plain))
        wrong = next(odd, "image")
    if wrong:
        problem = f"BufferSpec({wrong}=...) has a value of the wrong kind"
        fix = f"Its default is {getattr(DEFAULT_SPEC, wrong)}."
        raise InvalidArgument(operation, problem, got=getattr(options, wrong), fix=fix)
    if options.image is not None:
        fix = "Write hal.BufferSpec(image=hal.Image(width, height))."
        check_class(options.image, Image, operation, fix)
    return options if fields else DEFAULT_SPEC


@lru_cache(maxsize=128)  # the same few options, at every allocation
def examined(options: BufferSpec) -> tuple[str, frozenset[str]]:
    """Return a field whose value is of a wrong kind, if any, and the fields that are given."""
    pairs = zip(options._fields, options, DEFAULT_SPEC, strict=True)
    given = {field: value for field, value, default in pairs if value != default}
    flags = given.keys() - {"image", "external_ptr"}
    wrong = next((field for field in flags if given[field] not in (False, True)), "")
    return wrong, frozenset(given)
