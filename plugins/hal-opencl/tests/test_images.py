"""Images: formats, kernels, and what is refused. The kit has what all devices do."""

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
def need_images(device):
    if "images" not in device.info.capabilities:
        pytest.skip("the device has no images")


def compiled(device, text, signature=None):
    return device.compile(hal.Source("k", text, signature, language="opencl"))


def made(device, image, dtype=hal.float32):
    return hal.Buffer(device, int(np.prod(image.shape)), dtype, hal.BufferSpec(image=image))


def test_normalised_integers_are_floats_in_a_kernel(device):
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


@pytest.mark.parametrize("offsets", [False, True])
def test_a_text_with_offsets_has_none_for_images(device, offsets):
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
    ("wrong", "why"),
    [(("__read_only", "__write_only"), "reads argument 'x', which is __write_only image2d_t x"),
     (("__write_only", "read_only"), "writes argument 'y', which is read_only image2d_t y"),
     (("__write_only image2d_t y", "image2d_t y"), "writes argument 'y', which is image2d_t y")],
)  # fmt: skip
def test_an_image_that_the_text_uses_against_its_qualifier(device, wrong, why):
    with pytest.raises(hal.CompileError, match=why) as caught:
        compiled(device, DOUBLED.replace(*wrong))
    assert caught.value.line == 4 and "image" in caught.value.log


def test_an_image_is_no_memory_of_any_type(device):
    x, plain = made(device, hal.Image(4, 4)).fill(1), hal.zeros(64, hal.float32, device)
    takes_any = compiled(device, "__kernel void k(__global float *p) {}", "p: any*")
    takes_any(plain, threads=1)
    for of_plain in (compiled(device, "__kernel void k(__global float *p) {}"), takes_any):
        with pytest.raises(hal.InvalidArgument, match="argument 'p' is an image"):
            of_plain(x, threads=1)
    with device.capture() as graph:
        takes_any(plain, threads=1)
    with pytest.raises(hal.InvalidArgument, match="has another size or format"):
        graph.replay({plain: x})


def test_a_graph_with_images_is_one_of_the_driver(device):
    program = compiled(device, DOUBLED)
    x, y = (made(device, hal.Image(4, 4)) for _ in range(2))
    with device.capture() as graph:
        x.fill(1)
        program(x, y, threads=(4, 4))
    graph.replay()
    assert not calls_of(device.hardware) or graph._plan.native() is not None
    assert (y.numpy() == 2).all()


@pytest.mark.parametrize(
    ("image", "dtype", "why"),
    [
        (hal.Image(4), hal.float64, "dtype is no float64"),
        (hal.Image(4, normalised=True), hal.float32, "normalised"),
        (hal.Image(4, dtype=hal.int8), hal.uint8, "dtype is not the buffer's"),
    ],
)  # fmt: skip
def test_an_image_that_cannot_be(device, image, dtype, why):
    with pytest.raises(hal.InvalidArgument, match=why):
        made(device, image, dtype)


def test_a_format_that_the_device_lacks(device, monkeypatch):
    from hal_opencl.driver import cl

    program = compiled(device, DOUBLED)
    monkeypatch.setattr(cl, "get_supported_image_formats", lambda *_: [])
    image = made(device, hal.Image(4, 1, normalised=True), hal.uint8)
    with pytest.raises(hal.Unsupported, match="RGBA, UNORM_INT8"):
        image.allocate()
    plain = made(device, hal.Image(4, 1))
    with pytest.raises(hal.Unsupported, match=r"argument 'x: const image2d': .*RGBA, UNORM_INT8"):
        program(image, plain, threads=(4, 1))


def test_F3_an_image_is_read_from_a_file_and_written_to_one(device, tmp_path):
    pixels = np.arange(3 * 5 * 4, dtype=np.float32).reshape(3, 5, 4)
    options = hal.BufferSpec(image=hal.Image(5, 3))
    path = tmp_path / "pixels"
    hal.Buffer.from_numpy(pixels, device, options).to_file(path, offset=8)
    image = hal.Buffer.from_file(path, hal.float32, 8, device=device, options=options)
    assert np.array_equal(image.numpy(), pixels)
