"""What a buffer gives to and takes from any array library: memory, by way of DLPack.

Source: `__dlpack__`, `__dlpack_device__` and `from_dlpack` of the array API standard, 2023.12.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from hal_core.allocator import DEFAULT_SPEC, BufferSpec
from hal_core.buffer.arrays import Interchange
from hal_core.dtypes import as_dtype
from hal_core.errors import InvalidArgument, NotShareable, Unsupported
from hal_core.registry import Device

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hal_core.buffer.capsule import Taken
    from hal_core.device import Compiled

_CPU = (1, 0)  # DLPack's device type and number of host memory
_NAMELESS = (0, 0)  # of no device, for memory that DLPack has no name for
_REFUSALS = (AttributeError, TypeError, ValueError, BufferError, RuntimeError)
_SEEN_BY_THE_HOST = (1, 3, 11, 13)  # types: its own, pinned by CUDA and ROCm, CUDA's managed memory


class DLPack(Interchange):
    """The part of `Buffer` that consumers and producers of DLPack meet; no class of its own."""

    __slots__ = ()

    def __dlpack_device__(self) -> tuple[int, int]:
        """Host memory where the host sees it, whichever device computes on it; else the device's.

        Raises: Unsupported where DLPack has no name for the memory.
        """
        allocator = self._device.allocator
        home = allocator.dlpack_device
        if allocator._host_sees(self.options):
            home = allocator.dlpack_pinned or home
        elif home is None:
            self._check_visible("__dlpack_device__")
        return home or _CPU

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """What `torch.from_dlpack(buffer)` and `numpy.from_dlpack(buffer, device="cpu")` call.

        `dl_device`: where the consumer wants it: where it is (None), on the host, `(1, 0)`, or, of
        pinned memory, on the device. `copy`: None copies where it must, False never does, True
        always does.
        Shape: one dimension.
        Order: after all work of the device so far; `stream=-1` asks for no wait.
        Raises: NotShareable for what cannot be, and what to do instead.
        """
        allocator = self._device.allocator
        far, seen = allocator.dlpack_device, allocator._host_sees(self.options)
        home = self.__dlpack_device__() if far or seen or dl_device is None else _CPU
        target = home if dl_device is None else tuple(dl_device)
        if target not in (home, far, _CPU):
            raise NotShareable(
                "__dlpack__",
                "it is exported where it is, or to the host",
                got=target,
                limit=" or ".join(map(str, dict.fromkeys((home, far or home, _CPU)))),
                device=self.device,
                fix="Copy it to a buffer of that device first: there.copy_from(buffer).",
            )
        if target == _CPU and not seen:
            return self._on_host(max_version, copy)
        if target == _CPU and home != allocator.dlpack_pinned:
            return self._in_host_memory(stream, max_version, copy)
        return self._where_it_is(target, stream, max_version, copy)

    def _on_host(self, newest: tuple[int, int] | None, copy: bool | None) -> Any:
        import numpy as np

        from hal_core.buffer import capsule

        if copy is False:
            raise NotShareable(
                "__dlpack__",
                "the host does not see the memory, and a copy is refused",
                device=self.device,
                fix="Leave copy=None, which copies where it must.",
            )
        memory = np.empty(self.nbytes, np.uint8)
        self.copyout(memory)
        return capsule.make(
            memory.ctypes.data, self.size, self.dtype, _CPU, memory, newest=newest, copied=True
        )

    def _in_host_memory(self, stream: Any, newest: Any, copy: bool | None) -> Any:
        if self.dtype.name == "bfloat16":
            raise NotShareable(
                "__dlpack__",
                "numpy, which makes the capsule, has no bfloat16",
                device=self.device,
                fix="Export the bits: buffer.view(dtype=hal.uint16).",
            )
        array = self._in_place("__dlpack__")
        try:
            return array.__dlpack__(stream=stream, max_version=newest, copy=copy)
        except TypeError:  # numpy before 2.1
            return (array.copy() if copy else array).__dlpack__(stream=stream)

    def _where_it_is(self, there: Any, stream: Any, newest: Any, copy: bool | None) -> Any:
        from hal_core.buffer import capsule

        far = there == self._device.allocator.dlpack_device
        options = DEFAULT_SPEC if far else self.options._replace(external_ptr=None)
        given = self._twin(options).copy_from(self) if copy else self
        pointer = given._opaque_for("__dlpack__")
        if copy or stream != -1:
            self._device.synchronize()
        return capsule.make(
            pointer, self.size, self.dtype, there, given._share(), newest=newest, copied=bool(copy)
        )

    def _twin(self, options: BufferSpec = DEFAULT_SPEC) -> Self:
        return type(self)(self._device, self.size, self.dtype, options)

    @classmethod
    def from_dlpack(
        cls, obj: Any, device: str | Compiled | None = None, *, copy: bool | None = None
    ) -> Self:
        """A buffer over the memory of another library's array, or with a copy of it.

        Memory that is the device's own is shared; other memory is the host's, or comes by there.
        `copy`: None shares where the device computes on that memory and copies elsewhere, False
        never copies, True always does.
        Shape: elements in C order; the buffer has one dimension.
        Owns: the array, while memory is shared; both see each other's writes.
        Raises: InvalidArgument for what is no DLPack array, has no dtype of ours or cannot come to
        the host; NotShareable with `copy=False` where it must be copied.
        """
        opened = Device[device] if device is None or isinstance(device, str) else device
        place, allocator = _place(obj), opened.allocator
        if place == allocator.dlpack_device:
            return cls._over_taken(opened, _taken(obj, allocator.dlpack_stream), copy)
        there = _computes_there(opened, place)
        if there:
            taken = None
            with suppress(*_REFUSALS):  # numpy takes more, to copy it, or tells why not
                taken = _taken(obj, None)
            if taken is not None:
                return cls._over_taken(opened, taken, copy)
        array = _array_of(obj, opened, copy)
        dtype = as_dtype(array.dtype, "from_dlpack")
        hinders = _hindrance(array, there or _computes_there(opened, _CPU))
        if copy or (hinders and copy is None) or not array.size:
            return cls.from_numpy(array, opened)
        if hinders:
            raise _not_shared(hinders, opened)
        return cls._over(opened, array.ctypes.data, array.size, dtype, array)

    @classmethod
    def _over_taken(cls, device: Compiled, taken: Taken, copy: bool | None) -> Self:
        """Memory that this device computes on."""
        if taken.read_only and copy is False:
            raise _not_shared("the array is read-only", device)
        shared = cls._over(device, taken.pointer, taken.size, taken.dtype, taken.owner)
        if not (copy or taken.read_only):
            return shared
        copied = shared._twin().copy_from(shared)
        device.synchronize()  # the producer may use its memory again
        return copied


def _taken(obj: Any, stream: int | None) -> Taken:
    from hal_core.buffer import capsule

    try:
        made = obj.__dlpack__(stream=stream, max_version=capsule.VERSION)
    except TypeError:  # a producer from before 2023.12
        made = obj.__dlpack__(stream=stream)
    return capsule.take(made)


def _place(obj: Any) -> tuple[int, int]:
    """Where an array says that it is; where it says nothing, numpy tells why."""
    try:
        kind, number = map(int, obj.__dlpack_device__())
    except (NotImplementedError, BufferError):
        return _NAMELESS
    except (AttributeError, TypeError, ValueError):
        return _CPU
    return kind, number


class _Brought:
    """An array of another device, which its library copies to the host."""

    def __init__(self, obj: Any) -> None:
        self._obj = obj

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU

    def __dlpack__(self, **options: Any) -> Any:
        return self._obj.__dlpack__(**{**options, "dl_device": _CPU})


def _array_of(obj: Any, device: Compiled, copy: bool | None) -> NDArray[Any]:
    import numpy as np

    away = _place(obj)[0] not in _SEEN_BY_THE_HOST
    if away and copy is False:
        raise _not_shared("the host does not see the array's memory", device)
    try:
        return np.from_dlpack(_Brought(obj) if away else obj)
    except _REFUSALS as error:
        raise InvalidArgument(
            "from_dlpack",
            f"not an array in host memory that DLPack can pass: {error}",
            got=type(obj).__name__,
            fix="Bring it to the host first, or use copyin with its bytes.",
        ) from None


def _computes_there(device: Compiled, place: tuple[int, int]) -> bool:
    """Whether host memory of others is as good as the device's own."""
    if place == device.allocator.dlpack_pinned:
        return True
    of_the_host = device.info.host_visible and "external_ptr" in device.allocator.honours
    return of_the_host and place[0] in _SEEN_BY_THE_HOST


def _hindrance(array: NDArray[Any], there: bool) -> str:
    """Why `array`'s memory cannot be a buffer's; empty when it can."""
    if not there:
        return "the device does not compute on host memory of others"
    if not array.flags.c_contiguous:
        return "the array is not C-contiguous"
    return "" if array.flags.writeable else "the array is read-only"


def _not_shared(why: str, device: Compiled) -> Unsupported:
    return NotShareable(
        "from_dlpack",
        f"cannot share: {why}",
        device=device.name,
        fix="Leave copy=None, which copies where it must.",
    )
