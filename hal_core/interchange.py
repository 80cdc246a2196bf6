"""What a buffer gives to and takes from numpy and other array libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from hal_core.dtypes import DType, as_dtype
from hal_core.errors import InvalidArgument, Unsupported
from hal_core.host import Export
from hal_core.registry import Device
from hal_core.spec import BufferSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hal_core.buffer import Lease
    from hal_core.device import Compiled

_KDL_CPU = (1, 0)  # DLPack's device type and number of host memory


class Interchange:
    """The part of `Buffer` that other libraries meet; it is no class of its own.

    Owns: memory that was handed out without a copy lives as long as what it was handed to, after
    the buffer too; memory that was taken without a copy lives as long as the buffer.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        device: str
        dtype: DType
        nbytes: int
        size: int
        _device: Compiled

        def __init__(
            self,
            device: str | Compiled,
            size: int,
            dtype: DType,
            options: BufferSpec | None = None,
        ) -> None: ...
        def allocate(self) -> Self: ...
        def copyin(self, src: Any) -> Self: ...
        def copyout(self, dest: Any) -> Any: ...
        def _keep(self, owner: object) -> None: ...
        def _share(self) -> Lease | None: ...
        def _opaque_for(self, operation: str) -> Any: ...
        def copy_from(self, src: Any) -> Self: ...

    # -- copies

    def numpy(self, shape: int | Sequence[int] | None = None) -> NDArray[Any]:
        """A copy on the host, one-dimensional or of `shape`. Raises: InvalidArgument."""
        import numpy as np

        array = np.empty(self.size, self.dtype.to_numpy())
        self.copyout(array.view(np.uint8))
        if shape is None:
            return array
        try:
            return array.reshape(shape)
        except ValueError:
            raise InvalidArgument(
                "numpy",
                "the shape has another number of elements",
                got=shape,
                limit=f"has {self.size}",
                device=self.device,
            ) from None

    @classmethod
    def from_numpy(
        cls,
        array: NDArray[Any],
        device: str | Compiled | None = None,
        options: BufferSpec | None = None,
    ) -> Self:
        """A new buffer with a copy of `array`'s elements in C order; on the default device.

        Raises: InvalidArgument for dtypes no device has (complex, strings, objects).
        """
        import numpy as np

        array = np.ascontiguousarray(array)
        made = cls(
            Device[None] if device is None else device,
            array.size,
            as_dtype(array.dtype, "from_numpy"),
            options,
        )
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        made.allocate()
        made.copyin(array.reshape(-1).view(np.uint8))
        return made

    # -- the memory itself

    def as_memoryview(self) -> memoryview:
        """The memory itself as flat writable bytes, where the host sees it.

        Owns: the view keeps the memory, not the buffer: it stays readable after `deallocate`.
        Raises: Unsupported where memory is not visible to the host.
        """
        return self._in_place("as_memoryview").view("u1").data

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """`numpy.asarray(buffer)`: no copy, where the host sees the memory."""
        array = self._in_place("numpy.asarray")
        if dtype is None or array.dtype == dtype:
            return array.copy() if copy else array
        if copy is False:
            raise InvalidArgument(
                "numpy.asarray", "another dtype needs a copy", got=dtype, device=self.device
            )
        return array.astype(dtype)

    def _in_place(self, operation: str) -> NDArray[Any]:
        import numpy as np

        self._check_visible(operation)
        opaque = self._opaque_for(operation)
        if not self._device.allocator.host_ordered:
            self._device.synchronize()
        if not self.nbytes:
            return np.empty(0, self.dtype.to_numpy())
        memory = self._device.allocator._as_buffer(opaque, self.nbytes)
        return np.asarray(Export(memory, self._share())).view(self.dtype.to_numpy())

    def _check_visible(self, operation: str) -> None:
        if not self._device.info.host_visible:
            raise Unsupported(
                operation,
                "the memory is not visible to the host",
                device=self.device,
                fix="Copy it: buffer.numpy().",
            )

    # -- DLPack

    def __dlpack_device__(self) -> tuple[int, int]:
        """Host memory where the host sees it, whichever device computes on it; else the device's.

        Raises: Unsupported where DLPack has no name for the memory.
        """
        there = self._device.allocator.dlpack_device
        if there is None:
            self._check_visible("__dlpack_device__")
        return there or _KDL_CPU

    def __dlpack__(self, **options: Any) -> Any:
        """What `torch.from_dlpack(buffer)` and `numpy.from_dlpack(buffer)` call: no copy, one
        dimension. `options` are the protocol's own.

        Order: after all work of the device so far.
        Raises: Unsupported where DLPack has no name for the memory, and for bfloat16 on the host.
        """
        there = self._device.allocator.dlpack_device
        if there is not None:
            from hal_core import dlpack

            pointer = self._opaque_for("__dlpack__")
            self._device.synchronize()
            return dlpack.capsule(pointer, self.size, self.dtype, there, self._share())
        if self.dtype.name == "bfloat16":
            raise Unsupported(
                "__dlpack__",
                "numpy, which makes the capsule, has no bfloat16",
                device=self.device,
                fix="Export the bits: buffer.view(dtype=hal.uint16).",
            )
        return self._in_place("__dlpack__").__dlpack__(**options)

    @classmethod
    def from_dlpack(
        cls, obj: Any, device: str | Compiled | None = None, *, copy: bool | None = None
    ) -> Self:
        """A buffer over the memory of another library's array, or with a copy of it.

        Shape: elements in C order; the buffer has one dimension.
        Memory that is the device's own is shared; other memory is the host's.
        `copy`: None shares where the device computes on host memory and copies elsewhere, False
        never copies, True always does.
        Owns: the array, while memory is shared; both see each other's writes.
        Raises: InvalidArgument for what is no DLPack array in host memory, has no dtype of ours,
        is not contiguous or is read-only (with `copy=False`); Unsupported where False cannot be.
        """
        import numpy as np

        opened = Device[device] if device is None or isinstance(device, str) else device
        there = opened.allocator.dlpack_device
        if there is not None and getattr(obj, "__dlpack_device__", tuple)() == there:
            from hal_core import dlpack

            taken = dlpack.take(obj.__dlpack__(stream=opened.allocator.dlpack_stream))
            shared = cls._over(opened, taken.pointer, taken.size, taken.dtype, taken.owner)
            return cls(opened, shared.size, shared.dtype).copy_from(shared) if copy else shared
        array = _array_of(obj)
        dtype = as_dtype(array.dtype, "from_dlpack")
        hinders = _hindrance(array, opened)
        if copy or (hinders and copy is None) or not array.size:
            return cls.from_numpy(np.asarray(array), opened)
        if hinders:
            raise Unsupported(
                "from_dlpack",
                f"cannot share: {hinders}",
                device=opened.name,
                fix="Leave copy=None, which copies where it must.",
            )
        return cls._over(opened, array.ctypes.data, array.size, dtype, array)

    # -- what a backend knows

    @classmethod
    def wrap(cls, obj: Any, device: str | Compiled | None = None) -> Self:
        """A buffer over memory that a library of the vendor allocated, such as PyCUDA's GPUArray.

        What is understood, the device's backend says. Owns: `obj`, which keeps its memory.
        Raises: InvalidArgument for what it does not understand.
        """
        opened = Device[device] if device is None or isinstance(device, str) else device
        found = opened._backend.import_buffer(opened, obj)
        if found is None:
            raise InvalidArgument(
                "wrap",
                "the backend knows no such object",
                got=type(obj).__name__,
                device=opened.name,
                fix="Buffer.from_dlpack and from_numpy take other libraries' arrays.",
            )
        return cls._over(opened, *found)

    @classmethod
    def _over(cls, device: Compiled, pointer: int, size: int, dtype: DType, owner: object) -> Self:
        if not size:
            return cls(device, 0, dtype).allocate()
        made = cls(device, size, dtype, BufferSpec(external_ptr=pointer)).allocate()
        made._keep(owner)
        return made

    def __getattr__(self, name: str) -> Any:
        """Attributes of protocols that only this device's memory has."""
        if name.startswith("__"):
            export = self._device.allocator.exports.get(name)
            if export is not None:
                return export(self)  # type: ignore[arg-type]  # a Buffer, as all of them
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _array_of(obj: Any) -> NDArray[Any]:
    import numpy as np

    try:
        return np.from_dlpack(obj)
    except (AttributeError, TypeError, BufferError, RuntimeError) as error:
        raise InvalidArgument(
            "from_dlpack",
            f"not an array in host memory that DLPack can pass: {error}",
            got=type(obj).__name__,
            fix="Bring it to the host first, or use copyin with its bytes.",
        ) from None


def _hindrance(array: NDArray[Any], device: Compiled) -> str:
    """Why `array`'s memory cannot be a buffer's; empty when it can."""
    if not (device.info.host_visible and "external_ptr" in device.allocator.honours):
        return "the device does not compute on host memory of others"
    if not array.flags.c_contiguous:
        return "the array is not C-contiguous"
    return "" if array.flags.writeable else "the array is read-only"
