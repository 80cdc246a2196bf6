"""Images: formats, samplers, kernels, and what is refused. The kit has what all devices do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hal_core as hal

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
SAMPLED = """
constexpr sampler nearest(coord::pixel, address::clamp_to_zero, filter::nearest);
kernel void k(device float4 *y [[buffer(0)]], constant int &n [[buffer(1)]],
              texture2d<float> im [[texture(0)]], uint i [[thread_position_in_grid]]) {
    if (int(i) < n) y[i] = im.sample(nearest, float2(i + 0.5, 1.5));
}"""
DOUBLED = """
kernel void k(texture2d<float, access::read> x [[texture(0)]],
              texture2d<float, access::write> y [[texture(1)]], uint2 at [[thread_position_in_grid]]) {
    y.write(2 * x.read(at), at);
}"""  # noqa: E501


def compiled(device: hal.Compiled, text: str, signature: str | None = None) -> hal.Program:
    return device.compile(hal.Source("k", HEAD + text, signature, language="metal"))


def made(device: hal.Compiled, image: Any, dtype: hal.DType = hal.float32) -> hal.Buffer:
    return hal.Buffer(device, int(np.prod(image.shape)), dtype, hal.BufferSpec(image=image))


def filled(device: hal.Compiled, pixels: Any, **options: Any) -> hal.Buffer:
    *sizes, channels = pixels.shape
    image = hal.Image(*sizes[::-1], channels=channels, **options)
    return hal.Buffer.from_numpy(pixels, device, hal.BufferSpec(image=image))


def test_normalised_integers_are_floats_in_a_kernel(device: hal.Compiled) -> None:
    program = compiled(device, SAMPLED)
    assert str(program.signature) == "y: float32x4*, n: int32, im: const image2d"
    pixels = np.arange(3 * 5 * 4, dtype=np.uint8).reshape(3, 5, 4)
    image = filled(device, pixels, normalised=True)
    y = hal.zeros(8, hal.as_dtype("float32x4"), device)
    program(y, image, vals=(8,), threads=8)
    wanted = np.zeros((8, 4), np.float32)  # outside of the image the sampler gives zeros
    wanted[:5] = pixels[1] / np.float32(255)
    np.testing.assert_allclose(y.numpy().reshape(8, 4), wanted, rtol=1e-6)


FORMATS = [
    (dtype, channels, normalised)
    for dtype in (hal.uint8, hal.int8, hal.uint16, hal.int16, hal.uint32, hal.int32, hal.float16,
                  hal.float32)
    for channels in (1, 2, 4)
    for normalised in ((False, True) if dtype.itemsize < 4 and not dtype.is_float else (False,))
]  # fmt: skip


@pytest.mark.parametrize(("axes", "place"), [(1, "at.x"), (2, "at.xy"), (3, "at")])
def test_kernels_read_and_write_every_format(device: hal.Compiled, axes: int, place: str) -> None:
    copiers = {
        kind: compiled(device, f"""
kernel void k(texture{axes}d<{kind}, access::read> x [[texture(0)]],
              texture{axes}d<{kind}, access::write> y [[texture(1)]],
              uint3 at [[thread_position_in_grid]]) {{
    y.write(x.read({place}), {place});
}}""")
        for kind in ("float", "int", "uint")
    }  # fmt: skip
    for dtype, channels, normalised in FORMATS:
        kind = "float" if normalised or dtype.is_float else "int" if dtype.kind == "i" else "uint"
        pixels = (3 * np.arange(24 * channels)).astype(dtype.to_numpy())
        pixels = pixels.reshape(*(2, 3, 4)[3 - axes :], -1)[..., :channels].copy()
        x, y = (filled(device, one, normalised=normalised) for one in (pixels, 0 * pixels))
        copiers[kind](x, y, threads=pixels.shape[-2::-1])
        assert (y.numpy() == pixels).all(), (dtype, channels, normalised)


def test_each_kind_of_argument_is_in_the_order_of_its_numbers(device: hal.Compiled) -> None:
    """Images have a table of their own; what stands first in the text is an argument first."""
    program = compiled(device, """
kernel void k(metal::texture2d<float, metal::access::read_write> b [[ texture(1) ]],
              device float *z [[buffer(1)]], texture1d<uint> a [[texture(0)]],
              constant float &n [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    z[i] = n * a.read(i).x + b.read(uint2(i, 1)).y;
    b.write(float4(n), uint2(i, 0));
}""")  # fmt: skip
    assert str(program.signature) == "a: const image1d, n: float32, b: image2d, z: float32*"
    a = filled(device, np.arange(4, dtype=np.uint8).reshape(4, 1))
    b = filled(device, np.arange(32, dtype=np.float32).reshape(2, 4, 4))
    z = hal.zeros(4, hal.float32, device)
    program(a, b, z, vals=(100,), threads=4)
    assert z.numpy().tolist() == [17.0, 121.0, 225.0, 329.0]
    assert (b.numpy()[0] == 100).all() and (b.numpy()[1] == np.arange(16, 32).reshape(4, 4)).all()


@pytest.mark.parametrize(("sampler", "place", "wanted"), [
    ("coord::pixel", "i", [0, 1, 2, 3, 3, 3]),
    ("coord::pixel, filter::linear", "i", [0, 0.5, 1.5, 2.5, 3, 3]),
    ("coord::pixel, address::clamp_to_zero", "float(i) - 1", [0, 0, 1, 2, 3, 0]),
    ("filter::linear, address::repeat", "i / 4.0", [1.5, 0.5, 1.5, 2.5, 1.5, 0.5]),
    ("address::repeat, filter::nearest", "(i + 0.5) / 4.0", [0, 1, 2, 3, 0, 1]),
    ("address::mirrored_repeat, filter::nearest", "(i + 0.5) / 4.0", [0, 1, 2, 3, 3, 2]),
])  # fmt: skip
def test_samplers(device: hal.Compiled, sampler: str, place: str, wanted: list[float]) -> None:
    program = compiled(device, f"""
kernel void k(texture1d<float> im [[texture(0)]], device float *y [[buffer(0)]],
              uint i [[thread_position_in_grid]]) {{
    constexpr sampler s({sampler});
    y[i] = im.sample(s, {place}).x;
}}""")  # fmt: skip
    image = filled(device, np.arange(4, dtype=np.float32).reshape(4, 1))
    y = hal.zeros(6, hal.float32, device)
    program(image, y, threads=6)
    assert y.numpy().tolist() == wanted
