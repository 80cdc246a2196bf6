"""Test dtypes: promises D1 and C9. Each dtype works everywhere, or is refused by its name."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import hal_core as hal
from hal_core.dtypes import DTYPES, STORAGE_DTYPES
from hal_core.source import Source
from hal_kernel.interpreter.casts import stored_as
from hal_kernel.lang.function import KernelFunction
from hal_testing.conformance import edges
from hal_testing.conformance.arithmetic import (
    carrier,
    caster,
    narrower,
    sample_of_casts,
    sample_of_operations,
    samples_of_wide_casts,
)
from hal_testing.conformance.differential import check, lacking
from hal_testing.conformance.halves import HALVES, hard_to_round, values
from hal_testing.conformance.kernels import keeper
from hal_testing.conformance.language import Sample
from hal_testing.conformance.raw import buffer_of, pattern, read
from hal_testing.kit.abilities import need

EVERY = list(DTYPES.values())
COMPUTED = [dtype for dtype in EVERY if dtype not in STORAGE_DTYPES]
# Dtypes that a capability declares; of the others `supports` alone tells.
CAPABILITY: dict[hal.DType, str] = {hal.float64: "fp64"}


@hal.kernel
def in_double(y: hal.Ptr[hal.float32]) -> None:
    y[0] = hal.float32(hal.float64(y[0]) * 0.1)


@hal.kernel
def wide_atomic(y: hal.Ptr[hal.int64]) -> None:
    hal.atomic_add(y, 0, 1)


@hal.kernel
def of_a_subgroup(y: hal.Ptr[hal.int32]) -> None:
    y[hal.global_idx(0)] = hal.subgroup_lane()


# Capability -> a kernel that needs it, and no other.
@hal.kernel
def sized(y: hal.Ptr[hal.int32]) -> None:
    y[0] = hal.subgroup_size()


ASKING = {"fp64": in_double, "int64_atomics": wide_atomic, "subgroups": of_a_subgroup}

Refused = Callable[[KernelFunction, list[str]], None]


class TestDtype:
    @pytest.fixture
    def refused(self, device: hal.Compiled, monkeypatch: pytest.MonkeyPatch) -> Refused:
        """A check that a kernel is refused by the name of one of these dtypes, uncompiled."""

        def compiles(source: Source) -> bytes:
            raise AssertionError("it came to the compiler")

        def refuses(kernel: KernelFunction, dtypes: list[str]) -> None:
            with monkeypatch.context() as patch:
                patch.setattr(device.compiler, "_compile", compiles)
                # Or the cache could serve a kernel that must be refused.
                patch.setenv("HAL_CCACHE", "0")
                with pytest.raises(hal.Unsupported, match="|".join(dtypes)):
                    device.compile(kernel)

        return refuses

    @pytest.mark.parametrize("dtype", EVERY, ids=str)
    def test_D1_copies(self, device: hal.Compiled, dtype: hal.DType) -> None:
        """Memory holds every dtype, even one that kernels cannot compute with."""
        data = pattern(40 * dtype.itemsize)
        made = buffer_of(device, data, dtype)
        assert (made.dtype, made.size) == (dtype, 40) and read(made) == data
        other = hal.Buffer(device, 40, dtype).allocate().copy_from(made)
        assert read(other[3:9]) == data[3 * dtype.itemsize : 9 * dtype.itemsize]
        half = HALVES.get(dtype)
        one = np.uint16(half.rounded(1.0) or 0) if half else np.array(1, dtype.to_numpy())
        assert read(made.view(1).fill(1)) == one.tobytes()

    @pytest.mark.parametrize("dtype", EVERY, ids=str)
    def test_C9_what_is_supported_runs(
        self, device: hal.Compiled, dtype: hal.DType, refused: Refused
    ) -> None:
        """Copy every number of `edges` through device memory and shared memory."""
        declared = CAPABILITY.get(dtype)
        supported = device.supports(dtype)
        assert type(supported) is bool
        if declared is not None:
            assert supported == (declared in device.info.capabilities)
        if not supported:
            refused(carrier(dtype), [dtype.name])
            return
        x = edges.numbers(dtype)
        # Whole blocks of 32, as `carrier` wants.
        x = np.resize(x, -(-len(x) // 32) * 32)
        source, made = buffer_of(device, x.tobytes(), dtype), hal.Buffer(device, len(x), dtype)
        device.compile(carrier(dtype))(made, source, threads=len(x))
        got = np.frombuffer(read(made), stored_as(dtype))
        # As `carrier` does: every 32 elements reversed.
        turned = x.reshape(-1, 32)[:, ::-1].reshape(-1).copy()
        assert edges.is_right(got, turned, dtype).all()

    def test_D1_a_kernel_sees_the_size_of_subgroups_that_the_device_says(
        self, device: hal.Compiled
    ) -> None:
        need(device, "subgroups")
        made = hal.zeros(1, hal.int32, device)
        device.compile(sized)(made, grid=1, block=1)
        seen = np.frombuffer(read(made), np.int32)[0]
        assert device.info.subgroup_size in (None, seen)

    @pytest.mark.parametrize("capability", ASKING)
    def test_D1_what_the_device_lacks_is_refused_by_its_capability(
        self, device: hal.Compiled, capability: str, refused: Refused
    ) -> None:
        """The renderer, which knows no device, would write it, and its compiler say something."""
        if capability in device.info.capabilities:
            device.compile(ASKING[capability])
        else:
            refused(ASKING[capability], [rf"\({capability}\)"])

    def test_D1_what_the_device_declares_is_there(self, device: hal.Compiled) -> None:
        """No result shows whether memory is pinned, and whether the driver replays a graph."""
        declared = device.info.capabilities
        assert "graphs" not in declared or device.graph is not None, "graphs, without device.graph"
        honours = "host" in device.allocator.honours
        assert "pinned" not in declared or honours, "pinned, but its allocator honours no host"

    @pytest.mark.parametrize("dtype", COMPUTED, ids=str)
    def test_D1_arithmetic(self, device: hal.Compiled, dtype: hal.DType, refused: Refused) -> None:
        """Apply every operation to every pair: zeros, limits, divisors of zero, NaN, infinities."""
        self._check_or_refused(device, sample_of_operations(dtype), refused)

    @pytest.mark.parametrize("dtype", EVERY, ids=str)
    def test_D1_casts(self, device: hal.Compiled, dtype: hal.DType, refused: Refused) -> None:
        """Cast to all dtypes of up to 32 bits: wrapping, saturating, rounding, NaN."""
        self._check_or_refused(device, sample_of_casts(dtype), refused)

    @pytest.mark.parametrize("dtype", EVERY, ids=str)
    def test_D1_casts_to_64_bits(
        self, device: hal.Compiled, dtype: hal.DType, refused: Refused
    ) -> None:
        for sample in samples_of_wide_casts(dtype):
            self._check_or_refused(device, sample, refused)

    def _check_or_refused(self, device: hal.Compiled, made: Sample, refused: Refused) -> None:
        if missing := lacking(device, made.kernel):
            refused(made.kernel, missing)
        else:
            check(device, made)

    @pytest.mark.parametrize("dtype", HALVES, ids=str)
    def test_D1_reading_a_16_bit_float(self, device: hal.Compiled, dtype: hal.DType) -> None:
        """Read all 65536 patterns, with subnormals, infinities and NaN, as float32."""
        bits = np.arange(1 << 16, dtype=np.uint16)
        expected = np.array(values(HALVES[dtype]), np.float64).astype(np.float32)
        source = buffer_of(device, bits.tobytes(), dtype)
        made = hal.Buffer(device, len(bits), hal.float32)
        device.compile(caster(dtype, hal.float32))(
            made, source, vals=(len(bits),), threads=len(bits)
        )
        got = np.frombuffer(read(made), np.float32)
        wrong = np.flatnonzero(~edges.is_right(got, expected, hal.float32))
        assert not len(wrong), f"{wrong[0]:#06x} is read as {got[wrong[0]]!r}"

    @pytest.mark.parametrize("dtype", HALVES, ids=str)
    def test_D1_writing_a_16_bit_float(self, device: hal.Compiled, dtype: hal.DType) -> None:
        """Round ties to even, subnormals too; too large becomes infinite; NaN stays NaN."""
        x, half = hard_to_round(HALVES[dtype]), HALVES[dtype]
        stored, rounded = hal.Buffer(device, len(x), dtype), hal.Buffer(device, len(x), hal.float32)
        source = buffer_of(device, x.tobytes(), hal.float32)
        program = device.compile(narrower(dtype))
        program(stored, rounded, source, vals=(len(x),), threads=len(x))
        got = np.frombuffer(read(stored), np.uint16).tolist()
        cast = np.frombuffer(read(rounded), np.float32).tolist()
        for value, bits, number in zip(x.tolist(), got, cast, strict=True):
            expected = half.rounded(value)
            if expected is None:
                assert math.isnan(half.value(bits)) and math.isnan(number), hex(bits)
                continue
            assert bits == expected, f"{value!r} is {bits:#06x}, not {expected:#06x}"
            right = half.value(expected)
            assert number == right and math.copysign(1, number) == math.copysign(1, right), value

    @pytest.mark.parametrize("dtype", HALVES, ids=str)
    def test_D1_a_16_bit_float_is_no_value(self, device: hal.Compiled, dtype: hal.DType) -> None:
        with pytest.raises(hal.KernelSyntaxError, match=dtype.name):
            device.compile(keeper(dtype))
