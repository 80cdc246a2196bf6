"""Buffers from and to the arrays of other libraries, through DLPack.

Source: `__dlpack__`, `__dlpack_device__` and `from_dlpack` of the array API standard, 2023.12.

A place is DLPack's (device type, number): `(1, 0)` is host memory, `(2, 1)` the second CUDA device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from hal_core.allocator import DEFAULT_SPEC
from hal_core.buffer import arrays
from hal_core.dtypes import as_dtype
from hal_core.errors import InvalidArgument, NotShareable
from hal_core.registry import Device

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hal_core.buffer import Buffer
    from hal_core.buffer.capsule import Taken
    from hal_core.device import Compiled

B = TypeVar("B", bound="Buffer")
Place = tuple[int, int]

_HOST = 1, 0
_NAMELESS = 0, 0  # no device has it; for memory that DLPack has no name for
_HOST_VISIBLE_TYPES = (1, 3, 11, 13)  # host, pinned by CUDA and by ROCm, managed by CUDA
# The errors of a producer that cannot export; libraries disagree on the class.
_REFUSALS = (AttributeError, TypeError, ValueError, BufferError, RuntimeError)


# -- export


def place_of(buffer: Buffer) -> Place:
    """Return the place of the buffer's memory: the host's wherever the host sees it."""
    allocator = buffer._device.allocator
    if allocator._host_sees(buffer.options):
        return allocator.dlpack_pinned or allocator.dlpack_device or _HOST
    if allocator.dlpack_device is None:
        arrays.check_visible(buffer, "__dlpack_device__")  # raises
    return allocator.dlpack_device or _HOST


def export(
    buffer: Buffer, stream: Any, newest: tuple[int, int] | None, target: Any, copy: bool | None
) -> Any:
    """Return a capsule of the buffer's memory, or of a copy, at the place `target`.

    `newest` is the latest DLPack version that the consumer knows.
    """
    allocator = buffer._device.allocator
    native, visible = allocator.dlpack_device, allocator._host_sees(buffer.options)
    home = place_of(buffer) if native or visible or target is None else _HOST
    target = home if target is None else tuple(target)
    if target not in (home, native, _HOST):
        raise NotShareable(
            "__dlpack__",
            "memory goes to its own device or to the host",
            got=target,
            limit=" or ".join(map(str, dict.fromkeys((home, native or home, _HOST)))),
            device=buffer.device,
            fix="Copy it to a buffer of that device first: there.copy_from(buffer).",
        )
    if target == _HOST and not visible:
        return _export_host_copy(buffer, newest, copy)
    if target == _HOST and home != allocator.dlpack_pinned:
        return _export_host_memory(buffer, stream, newest, copy)
    return _export_in_place(buffer, target, stream, newest, copy)


def _export_host_copy(buffer: Buffer, newest: tuple[int, int] | None, copy: bool | None) -> Any:
    """Export a copy on the host of memory that the host does not see."""
    import numpy as np

    from hal_core.buffer import capsule

    if copy is False:
        raise NotShareable(
            "__dlpack__",
            "the host does not see the memory, and a copy is refused",
            device=buffer.device,
            fix="Leave copy=None, which copies where it must.",
        )
    memory = np.empty(buffer.nbytes, np.uint8)
    buffer.copyout(memory)
    return capsule.make(
        memory.ctypes.data, buffer.size, buffer.dtype, _HOST, memory, newest=newest, copied=True
    )


def _export_host_memory(buffer: Buffer, stream: Any, newest: Any, copy: bool | None) -> Any:
    """Export host memory through numpy, which knows all that a consumer may ask."""
    if buffer.dtype.name == "bfloat16":
        raise NotShareable(
            "__dlpack__",
            "numpy, which makes the capsule, has no bfloat16",
            device=buffer.device,
            fix="Export the bits: buffer.view(dtype=hal.uint16).",
        )
    array = arrays.in_place(buffer, "__dlpack__")
    try:
        return array.__dlpack__(stream=stream, max_version=newest, copy=copy)
    except TypeError:  # numpy before 2.1
        return (array.copy() if copy else array).__dlpack__(stream=stream)


def _export_in_place(
    buffer: Buffer, target: Place, stream: Any, newest: Any, copy: bool | None
) -> Any:
    """Export device or pinned memory itself, or a copy of it on the device."""
    from hal_core.buffer import capsule

    device = buffer._device
    exported = buffer
    if copy:
        in_device_memory = target == device.allocator.dlpack_device
        options = DEFAULT_SPEC if in_device_memory else buffer.options._replace(external_ptr=None)
        exported = type(buffer)(device, buffer.size, buffer.dtype, options).copy_from(buffer)
    pointer = exported._opaque_for("__dlpack__")
    if copy or stream != -1:  # -1: the consumer asks for no wait
        device.synchronize()
    owner = exported._share()
    return capsule.make(
        pointer, buffer.size, buffer.dtype, target, owner, newest=newest, copied=bool(copy)
    )


# -- import


def take(cls: type[B], obj: Any, device: str | Compiled | None, copy: bool | None) -> B:
    """Make a buffer over the memory of another library's array, or with a copy of it."""
    opened = Device[device] if device is None or isinstance(device, str) else device
    allocator = opened.allocator
    place: Place
    try:
        kind, number = map(int, obj.__dlpack_device__())
        place = kind, number
    except (NotImplementedError, BufferError):
        place = _NAMELESS
    except (AttributeError, TypeError, ValueError):
        place = _HOST  # where numpy, below, says what is wrong with the object
    if place == allocator.dlpack_device:
        return _borrow(cls, opened, _open_capsule(obj, allocator.dlpack_stream), copy)
    shareable = _computes_on(opened, place)
    if shareable:
        try:
            taken = _open_capsule(obj, None)
        except _REFUSALS:
            pass  # numpy, below, takes more arrays in order to copy them, or says what is wrong
        else:
            return _borrow(cls, opened, taken, copy)
    array = _host_array(obj, place, opened, copy)
    dtype = as_dtype(array.dtype, "from_dlpack")
    obstacle = ""
    if not shareable and not _computes_on(opened, _HOST):
        obstacle = "the device does not compute on host memory of others"
    elif not array.flags.c_contiguous:
        obstacle = "the array is not C-contiguous"
    elif not array.flags.writeable:
        obstacle = "the array is read-only"
    if copy or (obstacle and copy is None) or not array.size:
        return cls.from_numpy(array, opened)
    if obstacle:
        raise _not_shareable(obstacle, opened)
    return arrays.borrow(cls, opened, array.ctypes.data, array.size, dtype, array)


def _computes_on(device: Compiled, place: Place) -> bool:
    """Tell whether kernels of `device` run on another owner's memory at `place`."""
    if place == device.allocator.dlpack_pinned:
        return True
    of_the_host = device.info.host_visible and "external_ptr" in device.allocator.honours
    return of_the_host and place[0] in _HOST_VISIBLE_TYPES


def _open_capsule(obj: Any, stream: int | None) -> Taken:
    from hal_core.buffer import capsule

    try:
        made = obj.__dlpack__(stream=stream, max_version=capsule.VERSION)
    except TypeError:  # a producer from before 2023.12
        made = obj.__dlpack__(stream=stream)
    return capsule.take(made)


def _borrow(cls: type[B], device: Compiled, taken: Taken, copy: bool | None) -> B:
    """Make a buffer over memory that `device` computes on, or a copy where one is needed."""
    if taken.read_only and copy is False:
        raise _not_shareable("the array is read-only", device)
    shared = arrays.borrow(cls, device, taken.pointer, taken.size, taken.dtype, taken.owner)
    if not (copy or taken.read_only):
        return shared
    copied = cls(device, shared.size, shared.dtype).copy_from(shared)
    device.synchronize()  # the producer may use its memory again
    return copied


class _CopiedToHost:
    """An array on another device that asks its own library for a copy on the host."""

    def __init__(self, obj: Any) -> None:
        self._obj = obj

    def __dlpack_device__(self) -> Place:
        return _HOST

    def __dlpack__(self, **options: Any) -> Any:
        return self._obj.__dlpack__(**{**options, "dl_device": _HOST})


def _host_array(obj: Any, place: Place, device: Compiled, copy: bool | None) -> NDArray[Any]:
    """Return a numpy array over the array's memory, or over a copy of it on the host."""
    import numpy as np

    on_host = place[0] in _HOST_VISIBLE_TYPES
    if not on_host and copy is False:
        raise _not_shareable("the host does not see the array's memory", device)
    try:
        return np.from_dlpack(obj if on_host else _CopiedToHost(obj))
    except _REFUSALS as error:
        raise InvalidArgument(
            "from_dlpack",
            f"not a DLPack array whose data can come to the host: {error}",
            got=type(obj).__name__,
            fix="Bring it to the host first, or use copyin with its bytes.",
        ) from None


def _not_shareable(why: str, device: Compiled) -> NotShareable:
    return NotShareable(
        "from_dlpack",
        f"cannot share: {why}",
        device=device.name,
        fix="Leave copy=None, which copies where it must.",
    )
