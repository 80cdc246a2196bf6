"""No kernel, however wrong, does more than be refused."""

from __future__ import annotations

import warnings
from types import ModuleType

import pytest
import wrong_kernels

import hal_core as hal
from hal_kernel.ir.verify import verify

EACH = 60


def lowered(source: str) -> bool:
    """Tell whether the text is a kernel. Anything but a kernel or a refusal is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python's, of `is` with a number and of calls of a tuple
        module: ModuleType = wrong_kernels.loaded(source)
    try:
        kernel = module.f.lower()
    except hal.KernelSyntaxError as error:
        assert error.fix and error.lineno and error.text and error.offset, str(error)
        assert 0 < error.offset <= len(error.text) and error.end_offset > error.offset, str(error)
        return False
    verify(kernel)
    return True


@pytest.mark.parametrize("source", wrong_kernels.SOURCES)
def test_what_is_changed_are_kernels(source: str) -> None:
    assert lowered(source)


@pytest.mark.parametrize("seed", range(10))
def test_a_changed_kernel_is_a_kernel_or_refused(seed: int) -> None:
    found = []
    for source in wrong_kernels.mutated(seed, EACH):
        try:
            found.append(lowered(source))
        except Exception as error:
            pytest.fail(f"{type(error).__name__}: {error}\n{source}")
    assert any(found) and not all(found)


@pytest.mark.parametrize("snippet", wrong_kernels.SNIPPETS)
def test_anything_may_stand_where_a_value_stands(snippet: str) -> None:
    for use in ("v = {}", "y[0] = {}", "y[{}] = 1", "if {}:\n        pass", "n = n + ({})", "{}"):
        body = use.format(snippet.strip())
        head = "@hal.kernel\ndef f(y: hal.Ptr[hal.int32], x: hal.ConstPtr[hal.float32], "
        head += "a: hal.float32, n: hal.int32):\n    tile = hal.shared(hal.int32, (2, 2))\n"
        lowered(f"{head}    {body}\n")
