"""Run a sample on the device and in the interpreter, and compare every byte."""

from __future__ import annotations

import numpy as np
import pytest

import hal_core as hal
from hal_kernel.interpreter import interpret
from hal_kernel.interpreter.casts import stored_as
from hal_kernel.lang.function import KernelFunction
from hal_testing.conformance.edges import is_right
from hal_testing.conformance.language import Sample
from hal_testing.conformance.raw import buffer_of, pattern, read

_GUARD = 16  # bytes on both sides of an array that must not change
_TIMES = 2  # launches: the first is prepared and checked, the second takes the fast path


def lacking(device: hal.Compiled, kernel: KernelFunction) -> list[str]:
    """Return the dtypes of a kernel that the device cannot compute with."""
    lowered = kernel.lower()
    used = {uop.dtype for uop in lowered.uops if uop.dtype} | lowered.signature.dtypes
    used -= {hal.any_}  # every device takes memory without a dtype
    return sorted(dtype.name for dtype in used if not device.supports(dtype))


def compiled(device: hal.Compiled, kernel: KernelFunction, needs: str = "") -> hal.Program | None:
    """Compile a kernel; None if the device refuses it and names the dtype or ability it lacks."""
    missing = lacking(device, kernel)
    if needs and needs not in device.info.capabilities:
        missing.append(needs)
    if not missing:
        return device.compile(kernel)
    with pytest.raises(hal.Unsupported, match="|".join(missing)):
        device.compile(kernel)
    return None


def check(device: hal.Compiled, sample: Sample) -> None:
    """Run the sample on views inside larger buffers and compare, the surrounding bytes too.

    A device that lacks an ability the sample uses must refuse it.
    """
    program = compiled(device, sample.kernel, sample.needs)
    if program is None:
        return
    params = program.signature.pointers
    dtypes = [hal.uint8 if param.dtype is hal.any_ else param.dtype for param in params]
    expected = [array.copy() for array in sample.arrays]
    # Different bytes for each array, so that a write to the wrong one shows too.
    before = [pattern(_GUARD, place) for place in range(len(params))]
    bases = [
        buffer_of(device, guard + array.tobytes() + guard)
        for guard, array in zip(before, sample.arrays, strict=True)
    ]
    views = [
        base.view(array.size, dtype, _GUARD)
        for base, array, dtype in zip(bases, sample.arrays, dtypes, strict=True)
    ]
    for _ in range(_TIMES):
        program(*views, vals=sample.vals, **sample.launch)
        interpret(sample.kernel, *expected, vals=sample.vals, races=False, **sample.launch)
    for place, (param, dtype) in enumerate(zip(params, dtypes, strict=True)):
        got = read(bases[place])
        assert got[:_GUARD] == got[-_GUARD:] == before[place], f"written beside {param.name!r}"
        inside = np.frombuffer(got[_GUARD:-_GUARD], stored_as(dtype))
        right = is_right(inside, expected[place], dtype, sample.ulps.get(place, 0))
        wrong = np.flatnonzero(~right)
        if len(wrong):
            first, array = int(wrong[0]), expected[place]
            pytest.fail(
                f"{param.name}[{first}] is {inside[first]!r}, not {array[first]!r}; "
                f"{len(wrong)} of {len(right)} elements differ"
            )
