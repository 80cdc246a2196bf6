"""The compile stage: the order of what it asks."""

import pytest
from fake_backend import FakeRenderer

import hal_core as hal
from hal_core.dtypes import float64
from hal_core.signature import Signature
from hal_kernel.ir import Kernel


def test_E3_what_the_device_lacks_is_found_before_rendering(plugin):
    """Rendering a large kernel takes seconds, for a refusal that its signature tells."""
    rendered = []

    class Watched(FakeRenderer):
        def render(self, kernel):
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


def test_L1_broken_ir_is_named_before_the_device_is_asked(plugin):
    plugin.renderer = FakeRenderer
    with pytest.raises(hal.InvalidKernel):
        hal.Device["FAKE"].compile(Kernel("k", Signature.parse("k", ""), ("node",)))


def test_a_kernel_at_the_place_of_one_that_is_gone_is_another(fake):
    """Programs are found by the kernel's id, which another kernel may have later."""
    for number in range(200):
        text = f"def k(t, x): x[t[0]] = {number}"
        program = fake.compile(hal.Source("k", text, "x: int32*", language="python"))
        assert program.source == text
