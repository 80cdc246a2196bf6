"""Images: formats, kernels, and what is refused. The kit has what all devices do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hal_core as hal
from hal_opencl.command_buffer import calls_of

SAMPLED = """
__constant sampler_t nearest = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
__kernel void k(__global float4 *y, int n, __read_only image2d_t im) {
    int i = get_global_id(0);
    if (i < n) y[i] = read_imagef(im, nearest, (int2)(i, 1));
}"""
DOUBLED = """
__kernel void k(__read_only image2d_t x, __write_only image2d_t y) {
    int2 at = (int2)(get_global_id(0), get_global_id(1));
    write_imagef(y, at, 2 * read_imagef(x, at));
}"""


@pytest.fixture(autouse=True)
def need_images(device: hal.Compiled) -> None:
    if "images" not in device.info.capabilities:
        pytest.skip("the device has no images")


def compiled(device: hal.Compiled, text: str, signature: str | None = None) -> hal.Program:
    return device.compile(hal.Source("k", text, signature, language="opencl"))


def made(device: hal.Compiled, image: Any, dtype: hal.DType = hal.float32) -> hal.Buffer:
    return hal.Buffer(device, int(np.prod(image.shape)), dtype, hal.BufferSpec(image=image))


def test_normalised_integers_are_floats_in_a_kernel(device: hal.Compiled) -> None:
    program = compiled(device, SAMPLED)
    assert str(program.signature) == "y: float32x4*, n: int32, im: const image2d"
    pixels = np.arange(3 * 5 * 4, dtype=np.uint8).reshape(3, 5, 4)
    options = hal.BufferSpec(image=hal.Image(5, 3, normalised=True))
    image = hal.Buffer.from_numpy(pixels, device, options)
    y = hal.zeros(8, hal.as_dtype("float32x4"), device)
    program(y, image, vals=(8,), threads=8)
    wanted = np.zeros((8, 4), np.float32)  # outside of the image the sampler gives zeros
    wanted[:5] = pixels[1] / np.float32(255)
    np.testing.assert_allclose(y.numpy().reshape(8, 4), wanted, rtol=1e-6)


def test_kernels_read_and_write_every_format_that_the_device_has(device: hal.Compiled) -> None:
    whole = DOUBLED.replace("2 * ", "")
    copiers = {
        kind: compiled(device, whole.replace("imagef", f"image{kind}")) for kind in ("f", "i", "ui")
    }
    dtypes = (hal.uint8, hal.int8, hal.uint16, hal.int16, hal.uint32, hal.int32)
    asked = [(dtype, False) for dtype in (*dtypes, hal.float16, hal.float32)]
    found = 0
    for dtype, normalised in (*asked, *((dtype, True) for dtype in dtypes[:4])):
        kind = "f" if normalised or dtype.is_float else "i" if dtype.kind == "i" else "ui"
        for channels in (1, 2, 4):
            image = hal.Image(8, 4, channels=channels, normalised=normalised)
            pixels = (3 * np.arange(32 * channels)).astype(dtype.to_numpy()).reshape(image.shape)
            x, y = made(device, image, dtype), made(device, image, dtype)
            try:
                x.copyin(pixels)
            except hal.Unsupported:
                continue
            copiers[kind](x, y, threads=(8, 4))
            assert (y.numpy() == pixels).all(), image
            found += 1
    assert found >= 10  # what every device has of OpenCL 1.2: four channels


@pytest.mark.parametrize("offsets", [False, True])
def test_a_text_with_offsets_has_none_for_images(device: hal.Compiled, offsets: bool) -> None:
    offset = ", long y0" * offsets
    text = SAMPLED.replace("*y,", f"*y{offset},")
    signature = "y: float32x4*, n: int32, im: const image2d"
    image = made(device, hal.Image(4, 2)).fill(3)
    y = hal.zeros(4, hal.as_dtype("float32x4"), device)
    for given in (None, signature):
        source = hal.Source("k", text, given, language="opencl", offsets=offsets)
        device.compile(source)(y, image, vals=(4,), threads=4)
        assert (y.numpy() == 3).all()


@pytest.mark.parametrize(
    ("text", "signature", "why"),
    [
        (DOUBLED, "x: const image2d, y: const image2d", "is __write_only image2d_t y"),
        (DOUBLED, "x: image2d, y: image2d", "is __read_only image2d_t x"),
        (DOUBLED, "x: const image3d, y: image2d", "is __read_only image2d_t x"),
        (DOUBLED, "x: const float32*, y: image2d", "signature says x: const float32"),
        (DOUBLED, "x: any*, y: image2d", r"signature says x: any\*"),
        (DOUBLED, "x: int32, y: image2d", "signature says x: int32"),
        ("__kernel void k(__global void *x) {}", "x: image2d", "signature says x: image2d"),
        ("__kernel void k(__global float *x) {}", "x: const image1d", "says x: const image1d"),
        ("__kernel void k(int x) {}", "x: const image1d", "says x: const image1d"),
    ],
)  # fmt: skip
def test_P18_a_signature_has_the_image_of_the_text(
    device: hal.Compiled, text: str, signature: str, why: str
) -> None:
    with pytest.raises(hal.CompileError, match=why):
        compiled(device, text, signature)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (("__read_only", "__write_only"), "reads argument 'x', which is __write_only image2d_t x"),
        (("__write_only", "read_only"), "writes argument 'y', which is read_only image2d_t y"),
        (("__write_only image2d_t y", "image2d_t y"), "writes argument 'y', which is image2d_t y"),
    ],
)
def test_an_image_that_the_text_uses_against_its_qualifier(
    device: hal.Compiled, wrong: tuple[str, str], why: str
) -> None:
    with pytest.raises(hal.CompileError, match=why) as caught:
        compiled(device, DOUBLED.replace(*wrong))
    assert caught.value.line == 4 and "image" in caught.value.log


def test_an_argument_is_an_image_of_the_right_kind(device: hal.Compiled) -> None:
    program = compiled(device, DOUBLED)
    x, y = made(device, hal.Image(4, 4)).fill(1), made(device, hal.Image(4, 4)).allocate()
    plain, cube = hal.zeros(64, hal.float32, device), made(device, hal.Image(4, 2, 2))
    for bufs, why in {
        (plain, y): "argument 'x' is no image",
        (x, plain): "argument 'y' is no image",
        (x, cube): "argument 'y' is an image.*image3d.*image2d",
        (x, x): "'x' and 'y' are one image",
    }.items():
        with pytest.raises(hal.InvalidArgument, match=why):
            program(*bufs, threads=(4, 4))
    with pytest.raises(hal.InvalidArgument, match=r"argument 'y: image2d': .*is larger"):
        program(x, made(device, hal.Image(1 << 20, 1)), threads=(4, 4))
    takes_any = compiled(device, "__kernel void k(__global float *p) {}", "p: any*")
    takes_any(plain, threads=1)
    for of_plain in (compiled(device, "__kernel void k(__global float *p) {}"), takes_any):
        with pytest.raises(hal.InvalidArgument, match="argument 'p' is an image"):
            of_plain(x, threads=1)
    with device.capture() as graph:
        takes_any(plain, threads=1)
    with pytest.raises(hal.InvalidArgument, match="has another dtype"):
        graph.replay({plain: x})
    with device.queue() as queue:
        program(x, y, threads=(4, 4), queue=queue)
    assert (y.numpy() == 2).all()


def test_a_graph_launches_kernels_with_images(device: hal.Compiled) -> None:
    program = compiled(device, DOUBLED)
    x, y, z = (made(device, hal.Image(4, 4)) for _ in range(3))
    with device.capture() as graph:
        x.fill(1)
        program(x, y, threads=(4, 4))
        program(y, z, threads=(4, 4))
        x.copy_from(z)
        with pytest.raises(hal.InvalidArgument, match="'x' and 'y' are one image"):
            program(x, x, threads=(4, 4))
    assert graph.dependencies == [(), (0,), (1,), (0, 1, 2)]
    graph.replay()
    if calls_of(device.hardware):
        assert graph._plan.native() is not None
    assert (x.numpy() == 4).all()
    with pytest.raises(hal.InvalidArgument, match="'x' and 'y' are one image"):
        graph.replay({y: x})
    other = made(device, hal.Image(4, 4))
    with device.queue() as queue:
        graph.replay({y: other}, queue=queue)
    assert (other.numpy() == 2).all() and (z.numpy() == 4).all()


@pytest.mark.parametrize(
    ("image", "dtype", "why"),
    [
        (hal.Image(1 << 20, 1), hal.uint8, "larger than images of"),
        (hal.Image(1 << 20), hal.uint8, "larger than images of"),
        (hal.Image(4, 0), hal.uint8, "from 1 on"),
        (hal.Image(None), hal.uint8, "from 1 on"),  # type: ignore[arg-type]
        (hal.Image(4.0, 4), hal.uint8, "from 1 on"),  # type: ignore[arg-type]
        (hal.Image(4, None, 4), hal.uint8, "depth needs a height"),
        (hal.Image(4, channels=3), hal.uint8, "channels is 1, 2 or 4.*channels=3"),
        (hal.Image(4), hal.float64, "dtype is no float64"),
        (hal.Image(4), hal.complex64, "dtype is no complex64"),
        (hal.Image(4, normalised=True), hal.float32, "normalised"),
        (hal.Image(4, dtype=hal.int8), hal.uint8, "dtype is not the buffer's"),
    ],
)  # fmt: skip
def test_an_image_that_cannot_be(
    device: hal.Compiled, image: hal.Image, dtype: hal.DType, why: str
) -> None:
    size = [4 if one is None or type(one) is not int else one for one in image.shape]
    with pytest.raises(hal.InvalidArgument, match=why):
        hal.empty(int(np.prod(size)), dtype, device, hal.BufferSpec(image=image))


def test_the_sizes_of_an_image_may_be_of_numpy(device: hal.Compiled) -> None:
    width, height, channels = np.array([4, 2, 1])
    image = made(device, hal.Image(width, height, channels=channels), hal.uint8)
    assert image.options.image == hal.Image(4, 2, channels=1, dtype=hal.uint8)
    assert [type(size) for size in image.options.image[:4]] == [int, int, type(None), int]


def test_a_format_that_the_device_lacks(
    device: hal.Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hal_opencl.driver import cl

    program = compiled(device, DOUBLED)
    monkeypatch.setattr(cl, "get_supported_image_formats", lambda *_: [])
    image = made(device, hal.Image(4, 1, normalised=True), hal.uint8)
    with pytest.raises(hal.Unsupported, match="RGBA, UNORM_INT8"):
        image.allocate()
    plain = made(device, hal.Image(4, 1))
    with pytest.raises(hal.Unsupported, match=r"argument 'x: const image2d': .*RGBA, UNORM_INT8"):
        program(image, plain, threads=(4, 1))
