"""Calls of wgpu-py, and one place where its exceptions become those of hal-core."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Iterator
from typing import Any

from hal_core.errors import DeviceFault, DeviceUnavailable, HalError, InvalidArgument, OutOfMemory

# Beyond what every WebGPU device has; taken where the adapter offers it.
WANTED = ("timestamp-query",)
LIMITS = (
    "max-buffer-size", "max-storage-buffer-binding-size", "max-storage-buffers-per-shader-stage",
    "max-compute-workgroup-storage-size", "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-size-x", "max-compute-workgroup-size-y", "max-compute-workgroup-size-z",
    "max-compute-workgroups-per-dimension", "min-storage-buffer-offset-alignment",
)  # fmt: skip


@functools.cache
def library() -> Any:
    """The package wgpu. Raises: DeviceUnavailable where it is missing."""
    try:
        wgpu: Any = importlib.import_module("wgpu")
        extras: Any = importlib.import_module("wgpu.backends.wgpu_native.extras")
    except ImportError as error:
        raise DeviceUnavailable("import wgpu", str(error), fix="pip install wgpu") from error
    with contextlib.suppress(RuntimeError):  # somebody has started it already
        extras.set_instance_extras(
            backends=["Vulkan", "Metal", "DX12"],
            flags=["Default", "AutomaticTimestampNormalization"],  # to nanoseconds
        )
    return wgpu


@functools.cache
def adapters() -> list[Any]:
    """OpenGL's are left out: they show the same hardware again, with less of it."""
    found = library().gpu.enumerate_adapters_sync()
    return [adapter for adapter in found if adapter.info["backend_type"] != "OpenGL"]


def version() -> str:
    """Of all that turns WGSL into machine code, but for the adapter's driver."""
    return f"wgpu {library().__version__} wgpu-native {library().backends.wgpu_native.__version__}"


def open_device(index: int, name: str) -> Any:
    """Raises: DeviceUnavailable when the adapter refuses."""
    adapter = adapters()[index]
    try:
        return adapter.request_device_sync(
            required_features=[feature for feature in WANTED if feature in adapter.features],
            required_limits={limit: adapter.limits[limit] for limit in LIMITS},
        )
    except RuntimeError as error:
        raise DeviceUnavailable("request_device", str(error), device=name) from error


@contextlib.contextmanager
def calling(call: str, device: str) -> Iterator[None]:
    """Raises: what an exception of wgpu means, with the call and wgpu's own words."""
    wgpu = library()
    kinds: dict[type[Exception], type[HalError]] = {
        wgpu.GPUOutOfMemoryError: OutOfMemory,
        wgpu.GPUValidationError: InvalidArgument,
        wgpu.GPUInternalError: DeviceFault,
        wgpu.GPUError: HalError,
    }
    try:
        yield
    except tuple(kinds) as error:
        kind = next(kinds[kind] for kind in kinds if isinstance(error, kind))
        raise kind(f"wgpu {call}", str(error), device=device) from error
