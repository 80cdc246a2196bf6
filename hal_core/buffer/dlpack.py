"""Buffers from and to the arrays of other libraries, through DLPack.

Source: `__dlpack__`, `__dlpack_device__` and `from_dlpack` of the array API standard, 2023.12.

A place is DLPack's (device type, number): `(1, 0)` is host memory, `(2, 1)` the second CUDA device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from hal_core.allocator import DEFAULT_SPEC
from hal_core.buffer.host import check_visible, empty_array, in_place
from hal_core.concurrency import Late, suppress, unless_of_a_signal
from hal_core.device import opened
from hal_core.dtypes import as_dtype, check_array, uint8
from hal_core.errors import InvalidArgument, NotShareable, as_flag
from hal_core.geometry import integers
from hal_core.queue import check_no_capture

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hal_core.buffer import Buffer, capsule
    from hal_core.device.base import Compiled
    from hal_core.dtypes import DType
else:
    np, capsule = Late("numpy"), Late("hal_core.buffer.capsule")

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
        named = None if allocator.dlpack_handle else allocator.dlpack_device
        return allocator.dlpack_pinned or named or _HOST
    if allocator.dlpack_device is None:
        check_visible(buffer, "__dlpack_device__")  # raises
    return allocator.dlpack_device or _HOST


def export(
    buffer: Buffer, stream: Any, newest: tuple[int, int] | None, target: Any, copy: bool | None
) -> Any:
    """Return a capsule of the buffer's memory, or of a copy, at the place `target`.

    `newest` is the latest DLPack version that the consumer knows.
    """
    for name, pair in (("max_version", newest), ("dl_device", target)):
        if pair is not None and len(integers(pair) or ()) != 2:
            problem, fix = f"{name} is no pair of integers", f"Write {name}=(1, 0)."
            raise InvalidArgument("__dlpack__", problem, got=pair, fix=fix)
    copy = copy if copy is None else as_flag(copy, "__dlpack__", "copy")
    check_no_capture("__dlpack__", "data cannot be read")
    device, allocator = buffer._device, buffer._device.allocator
    native, visible = allocator.dlpack_device, allocator._host_sees(buffer.options)
    home = place_of(buffer) if native or visible or target is None else _HOST
    target = home if target is None else integers(target)
    if target not in (home, native, _HOST):
        raise NotShareable(
            "__dlpack__", "memory goes to its own device or to the host", got=target,
            limit=" or ".join(map(str, dict.fromkeys((home, native or home, _HOST)))),
            device=buffer.device,
            fix="Copy it to a buffer of that device first: there.copy_from(buffer).",
        )  # fmt: skip
    if target == _HOST and not visible and copy is False:
        raise _must_copy("__dlpack__", "the host does not see the memory", device)
    array: NDArray[Any] | None = None
    owner: object
    offset = 0
    if target == _HOST and (copy or not visible):
        device.synchronize()  # a copy comes after the default queue alone
        array, copy = buffer.copyout(empty_array(buffer.nbytes, uint8, "__dlpack__")), True
    elif target == _HOST and home != allocator.dlpack_pinned:
        array = in_place(buffer, "__dlpack__")
    if array is not None:
        pointer, owner = array.ctypes.data, array
    else:
        if copy:
            spec = DEFAULT_SPEC if target == native else buffer.options._replace(external_ptr=None)
            buffer = type(buffer)(device, buffer.size, buffer.dtype, spec).copy_from(buffer)
        opaque = buffer._opaque_for("__dlpack__")
        pointer, offset = allocator._export(opaque) if buffer.nbytes else (0, 0)
        # -1: the consumer asks for no wait.
        ordered = stream == -1 and not copy
        if not ordered and not (target == native and allocator._order_consumer(stream)):
            device.synchronize()
        owner = allocator._lend(stream, buffer._share())
    return capsule.make(
        pointer, buffer.size, buffer.dtype, target, owner,
        offset=offset, newest=newest, copied=bool(copy),
    )  # fmt: skip


# -- import


def take(cls: type[B], obj: Any, device: str | Compiled | None, copy: bool | None) -> B:
    """Make a buffer over the memory of another library's array, or with a copy of it."""
    here = opened(device, "from_dlpack")
    copy = copy if copy is None else as_flag(copy, "from_dlpack", "copy")
    if isinstance(obj, np.ndarray):  # of dtypes, too, that numpy gives to nobody
        check_array(obj, "from_dlpack")
        dtype = as_dtype(obj.dtype, "from_dlpack")
        return _from_host(cls, obj, dtype, not obj.flags.writeable, here, copy, _HOST)
    place: Place
    try:
        kind, number = map(int, obj.__dlpack_device__())
        place = kind, number
    except (NotImplementedError, BufferError):
        place = _NAMELESS
    except (AttributeError, TypeError, ValueError):
        place = _HOST  # where its capsule, below, says what is wrong with the object
    if place == here.allocator.dlpack_device:
        return _share(cls, obj, here, copy, place, {"stream": here.allocator.dlpack_stream})
    # Memory that the host sees is said to be there, and may have a handle of the device, too.
    handle = here.allocator.dlpack_device if here.allocator.dlpack_handle else None
    options: dict[str, Any] = {"stream": None}
    if handle is not None and place == _HOST:
        # A refusal is no error yet: the host, below, may copy the array.
        with suppress(*_REFUSALS):
            asked = options | {"dl_device": handle, "copy": False}
            return _share(cls, obj, here, copy, handle, asked)
    if place[0] not in _HOST_VISIBLE_TYPES:
        if copy is False:
            why = "the host does not see" if place != _NAMELESS else "DLPack has no name for"
            raise _must_copy("from_dlpack", f"{why} the array's memory", here)
        options["dl_device"] = _HOST
    try:
        taken = _ask(obj, options)
    except unless_of_a_signal(*_REFUSALS) as error:
        problem = f"not a DLPack array whose data can come to the host: {error}"
        fix = "Bring it to the host first, or use copyin with its bytes."
        got = type(obj).__name__
        raise InvalidArgument("from_dlpack", problem, got=got, fix=fix) from None
    if taken.device[0] not in _HOST_VISIBLE_TYPES:
        raise _elsewhere(taken, _HOST)
    return _from_host(cls, taken.array, taken.dtype, taken.read_only, here, copy, place)


def _from_host(
    cls: type[B], array: NDArray[Any], dtype: DType, read_only: bool,
    device: Compiled, copy: bool | None, place: Place,
) -> B:  # fmt: skip
    """Make a buffer over an array on the host, whose owner has it at `place`, or with a copy."""
    obstacle = ""
    if not _computes_on(device, place) and not _computes_on(device, _HOST):
        obstacle = "the device does not compute on host memory of others"
    elif not array.flags.c_contiguous:
        obstacle = "the array is not C-contiguous"
    elif read_only:
        obstacle = "the array is read-only"
    elif array.ctypes.data % dtype.itemsize:
        obstacle = "the array's address is not a multiple of its element size"
    if copy or (obstacle and copy is None) or not array.size:
        made = cls(device, array.size, dtype).allocate()
        return made.copyin(np.asarray(array, order="C").reshape(-1).view(np.uint8))
    if obstacle:
        raise _must_copy("from_dlpack", obstacle, device)
    return cls._borrow(device, array.ctypes.data, array.size, dtype, array)


def _computes_on(device: Compiled, place: Place) -> bool:
    """Tell whether kernels of `device` run on another owner's memory at `place`."""
    if place == device.allocator.dlpack_pinned:
        return True
    of_the_host = device.info.host_visible and device.allocator.wraps_addresses
    return of_the_host and place[0] in _HOST_VISIBLE_TYPES


def _ask(obj: Any, options: dict[str, Any]) -> capsule.Taken:
    """Take the content of the capsule that an array makes for `options`."""
    try:
        made = obj.__dlpack__(max_version=capsule.VERSION, **options)
    except TypeError:  # a producer older than version 2023.12 of the array API
        if "dl_device" in options:
            raise
        made = obj.__dlpack__(**options)
    return capsule.take(made)


def _share(
    cls: type[B], obj: Any, device: Compiled, copy: bool | None, place: Place,
    options: dict[str, Any],
) -> B:  # fmt: skip
    """Make a buffer over the device's own memory at `place`, or a copy where one is needed.

    The producer is asked with `options`.
    """
    taken = _ask(obj, options)
    if taken.device != place:
        raise _elsewhere(taken, place)
    array = taken.array
    if not array.flags.c_contiguous:
        raise InvalidArgument(
            "from_dlpack", "the array is not C-contiguous",
            got=f"shape {array.shape}, strides {array.strides}",
            fix="Make it contiguous in its own library first.",
        )  # fmt: skip
    if taken.read_only and copy is False:
        raise _must_copy("from_dlpack", "the array is read-only", device)
    shared = cls._borrow(device, taken.pointer, array.size, taken.dtype, array, taken.offset)
    if not (copy or taken.read_only):
        return shared
    copied = cls(device, shared.size, shared.dtype).copy_from(shared)
    device.synchronize()  # the producer may use its memory again
    return copied


def _elsewhere(taken: capsule.Taken, limit: Place) -> InvalidArgument:
    problem = "the memory in the capsule is on another device than its array said"
    return InvalidArgument("from_dlpack", problem, got=taken.device, limit=limit)


def _must_copy(operation: str, why: str, device: Compiled) -> NotShareable:
    fix = "Leave copy=None, which copies where it must."
    return NotShareable(operation, f"cannot share: {why}", device=device.name, fix=fix)
