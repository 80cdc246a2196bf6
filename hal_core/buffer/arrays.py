"""What a buffer gives to and takes from numpy, and from a backend's vendor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from hal_core.allocator import BufferSpec
from hal_core.buffer.host import Export
from hal_core.dtypes import DType, as_dtype
from hal_core.errors import InvalidArgument, NotShareable
from hal_core.registry import Device

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hal_core.buffer import Lease
    from hal_core.device import Compiled


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
                fix="Copy a part: buffer[:n].numpy(shape).",
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
        Raises: NotShareable where the host does not see it.
        """
        return self._in_place("as_memoryview").view("u1").data

    def __buffer__(self, flags: int) -> memoryview:
        """`memoryview(buffer)`, from Python 3.12 on: the memory itself, where the host sees it.

        Shape: `size` elements of the dtype's format. Owns: keeps the buffer's memory.
        Raises: NotShareable where the host does not see it, or for bfloat16, which has no format.
        """
        if self.dtype.name == "bfloat16":
            raise NotShareable(
                "memoryview",
                "a memoryview has no bfloat16",
                device=self.device,
                fix="Take the bits: buffer.view(dtype=hal.uint16).",
            )
        return self._in_place("memoryview").data

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """`numpy.asarray(buffer)`: no copy, where the host sees the memory."""
        array = self._in_place("numpy.asarray")
        if dtype is None or array.dtype == dtype:
            return array.copy() if copy else array
        if copy is False:
            raise InvalidArgument(
                "numpy.asarray", "another dtype needs a copy", got=dtype, device=self.device,
                fix="Leave out copy=False, or look at the bytes: buffer.view(dtype=...).",
            )  # fmt: skip
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
        if not self._device.allocator._host_sees(self.options):
            raise NotShareable(
                operation,
                "the memory is not visible to the host",
                device=self.device,
                fix="Copy it: buffer.numpy().",
            )

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
