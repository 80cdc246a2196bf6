"""The compile stage: what a warm and a cold compile touch, and in which order."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from fake_backend import FakePlugin, FakeRenderer

import hal_core as hal
from hal_core.dtypes import float64
from hal_core.signature import Signature
from hal_kernel.ir import Kernel

CORE = os.path.dirname(hal.__file__) + os.sep
# Files of values and checks: asking one for a setting or a parameter leads nowhere else.
VALUES = ("config.py", "dtypes.py", "errors.py", "signature.py", "source.py")


def source(number: int = 0, signature: str = "x: float32*, y: const float32*, n: int32") -> Any:
    text = f"def k(t, *args): pass  # {number}"
    return hal.Source("k", text, signature, language="python")


def entered(work: Callable[[], object]) -> Counter[str]:
    """Count how often each file of the core was entered from another one."""
    counts: Counter[str] = Counter()

    def watch(frame: FrameType, event: str, arg: object) -> None:
        here = frame.f_code.co_filename
        if event != "call" or not here.startswith(CORE):
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(CORE):
            caller = caller.f_back
        if caller is None or caller.f_code.co_filename != here:
            counts[here.removeprefix(CORE)] += 1

    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counts


def test_a_cold_compile_enters_no_file_more_than_twice(plugin: FakePlugin) -> None:
    plugin.renderer = FakeRenderer
    device = hal.Device["FAKE"]
    device.compile(source())  # makes the compilers
    kernel = Kernel("k", source().signature, ())
    for wanted in (source(1), source(2), source(2), kernel):  # two come from the cache on disk
        counts = entered(lambda wanted=wanted: device.compile(wanted))  # type: ignore[misc]
        # A kernel that writes itself asks the device for its renderer, too.
        counts["device/base.py"] -= wanted is kernel
        often = {file: n for file, n in counts.items() if n > 2 and not file.startswith(VALUES)}
        assert not often, often
        assert counts["compiler/__init__.py"] == 1


def test_a_warm_compile_enters_one_file_once(fake: hal.Compiled) -> None:
    kernel = source()
    fake.compile(kernel)
    assert entered(lambda: fake.compile(kernel)) == {"device/base.py": 1}


def test_E3_what_the_device_lacks_is_found_before_rendering(plugin: FakePlugin) -> None:
    """Rendering a large kernel takes seconds, for a refusal that its signature tells."""
    rendered: list[str] = []

    class Watched(FakeRenderer):
        def render(self, kernel: Kernel) -> str:
            rendered.append(kernel.name)
            return super().render(kernel)

    plugin.renderer, plugin.capabilities = Watched, frozenset()
    device = hal.Device["FAKE"]
    with pytest.raises(hal.Unsupported, match="'n' has dtype float64"):
        device.compile(Kernel("k", Signature.parse("k", "n: float64"), ()))
    assert rendered == []
    assert not device.supports(float64)
    device.compile(Kernel("k", Signature.parse("k", "n: float32"), ()))
    assert rendered == ["k"]


def test_L1_broken_ir_is_named_before_the_device_is_asked(plugin: FakePlugin) -> None:
    plugin.renderer = FakeRenderer
    with pytest.raises(hal.InvalidKernel):
        hal.Device["FAKE"].compile(Kernel("k", Signature.parse("k", ""), ("node",)))  # type: ignore[arg-type]


def test_a_kernel_at_the_place_of_one_that_is_gone_is_another(fake: hal.Compiled) -> None:
    """Programs are found by the kernel's id, which another kernel may have later."""
    for number in range(200):
        text = f"def k(t, x): x[t[0]] = {number}"
        program = fake.compile(hal.Source("k", text, "x: int32*", language="python"))
        assert program.source == text
