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
        """Host memory, whichever device computes on it. Raises: Unsupported where it is not."""
        self._check_visible("__dlpack_device__")
        return _KDL_CPU

    def __dlpack__(self, **options: Any) -> Any:
        """What `torch.from_dlpack(buffer)` and `numpy.from_dlpack(buffer)` call: no copy, one
        dimension. `options` are the protocol's own.

        Raises: Unsupported where the memory is not visible to the host, and for bfloat16.
        """
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
        `copy`: None shares where the device computes on host memory and copies elsewhere, False
        never copies, True always does.
        Owns: the array, while memory is shared; both see each other's writes.
        Raises: InvalidArgument for what is no DLPack array in host memory, has no dtype of ours,
        is not contiguous or is read-only (with `copy=False`); Unsupported where False cannot be.
        """
        import numpy as np

        array = _array_of(obj)
        dtype = as_dtype(array.dtype, "from_dlpack")
        opened = Device[device] if device is None or isinstance(device, str) else device
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
        made = cls(opened, array.size, dtype, BufferSpec(external_ptr=array.ctypes.data))
        made.allocate()
        made._keep(array)
        return made


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
