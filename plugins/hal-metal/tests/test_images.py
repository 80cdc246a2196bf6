"""Images: formats, samplers, kernels, and what is refused. The kit has what all devices do."""

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


def compiled(device, text, signature=None):
    return device.compile(hal.Source("k", HEAD + text, signature, language="metal"))


def made(device, image, dtype=hal.float32):
    return hal.Buffer(device, int(np.prod(image.shape)), dtype, hal.BufferSpec(image=image))


def filled(device, pixels, **options):
    *sizes, channels = pixels.shape
    image = hal.Image(*sizes[::-1], channels=channels, **options)
    return hal.Buffer.from_numpy(pixels, device, hal.BufferSpec(image=image))


def test_normalised_integers_are_floats_in_a_kernel(device):
    program = compiled(device, SAMPLED)
    assert str(program.signature) == "y: float32x4*, n: int32, im: const image2d"
    pixels = np.arange(3 * 5 * 4, dtype=np.uint8).reshape(3, 5, 4)
    image = filled(device, pixels, normalised=True)
    y = hal.zeros(8, hal.as_dtype("float32x4"), device)
    program(y, image, vals=(8,), threads=8)
    wanted = np.zeros((8, 4), np.float32)  # outside of the image the sampler gives zeros
    wanted[:5] = pixels[1] / np.float32(255)
    np.testing.assert_allclose(y.numpy().reshape(8, 4), wanted, rtol=1e-6)


@pytest.mark.parametrize(("axes", "place"), [(1, "at.x"), (3, "at")])
@pytest.mark.parametrize("kind", ["half", "short", "ushort"])
def test_images_of_one_and_three_axes(device, axes, place, kind):
    copier = compiled(device, f"""
kernel void k(texture{axes}d<{kind}, access::read> x [[texture(0)]],
              texture{axes}d<{kind}, access::write> y [[texture(1)]],
              uint3 at [[thread_position_in_grid]]) {{
    y.write(x.read({place}), {place});
}}""")  # fmt: skip
    dtype = {"half": np.float16, "short": np.int16, "ushort": np.uint16}[kind]
    pixels = np.arange(48, dtype=dtype).reshape((24, 2) if axes == 1 else (2, 3, 4, 2))
    x, y = filled(device, pixels), filled(device, 0 * pixels)
    copier(x, y, threads=pixels.shape[-2::-1])
    assert (y.numpy() == pixels).all()


def test_each_kind_of_argument_is_in_the_order_of_its_numbers(device):
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
def test_samplers(device, sampler, place, wanted):
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


@pytest.mark.parametrize(("text", "signature", "why"), [

    (DOUBLED, "x: const image2d", "takes 2 arguments"),
    ("kernel void k(device float *x [[buffer(0)]]) {}", "x: image2d", "signature says x: image2d"),
    ("kernel void k(constant int &x [[buffer(0)]]) {}", "x: const image1d", "says x: const image1"),
    (DOUBLED.replace("texture(1)", "texture(2)"), None, r"or \[\[texture\(n\)\]\] 0, 2 on METAL"),
    ("kernel void k(device float *x [[buffer(1)]]) {}", None, r"\[\[buffer\(n\)\]\] or \S+ 1 on"),
])  # fmt: skip
def test_P18_a_signature_has_the_image_of_the_text(device, text, signature, why):
    with pytest.raises(hal.CompileError, match=why):
        compiled(device, text, signature)


@pytest.mark.parametrize(("wrong", "why"), [
    (("access::read>", "access::write>"), "reads argument 'x', which is texture2d<float, "),
    (("access::write>", "access::read>"), "writes argument 'y', which is texture2d<float, "),
    ((", access::write>", ">"), r"writes argument 'y', which is texture2d<float> y \[\[texture"),
    (("x.read(at)", "x.sample(sampler(), float2(at))"), "samples argument 'x', which is texture2d"),
])  # fmt: skip
def test_an_image_that_the_text_uses_against_its_access(device, wrong, why):
    with pytest.raises(hal.CompileError, match=why) as caught:
        compiled(device, DOUBLED.replace(*wrong))
    assert caught.value.line == 6 and "no matching member function" in caught.value.log


BOTH = """
kernel void k(texture2d<uint, access::read_write> x [[texture(0)]],
              uint2 at [[thread_position_in_grid]]) { x.write(x.read(at) + 1, at); }"""


def test_a_texture_takes_images_of_its_type(device):
    """Metal does not compare them, and what a kernel read would be undefined."""
    program, both = compiled(device, DOUBLED), compiled(device, BOTH)
    x, y = made(device, hal.Image(4, 4)).fill(1), made(device, hal.Image(4, 4), hal.int8)
    with pytest.raises(hal.InvalidArgument, match=r"argument 'y' is an image.*got 'RGBA8Sint'"):
        program(x, y, threads=(4, 4))
    with pytest.raises(hal.InvalidArgument, match=r"argument 'x' is an image.*got 'RGBA32Float'"):
        both(x, threads=(4, 4))
    pair = made(device, hal.Image(4, 4, channels=2), hal.uint8)  # of which no kernel does both
    with pytest.raises(hal.InvalidArgument, match=r"argument 'x' is an image.*got 'RG8Uint'"):
        both(pair, threads=(4, 4))
    bytes_ = filled(device, np.full((4, 4, 4), 254, np.uint8))
    both(bytes_, threads=(4, 4))
    both(bytes_, threads=(4, 4))
    assert (bytes_.numpy() == 255).all()  # values beyond an integer's are the largest
    with device.capture() as graph:
        program(x, y, threads=(4, 4))
    with pytest.raises(hal.InvalidArgument, match="argument 'y' is an image"):
        graph.replay()
    with device.queue() as queue, pytest.raises(hal.InvalidArgument, match="'y' is an image"):
        program(x, y, threads=(4, 4), queue=queue)


def test_a_gpu_that_reads_and_writes_few_formats(device, control):
    control.read_write_tier = 1
    both = compiled(device, BOTH)
    with pytest.raises(hal.InvalidArgument, match="got 'RGBA8Uint'; expected R32Uint"):
        both(made(device, hal.Image(4, 4), hal.uint8).fill(0), threads=(4, 4))
    one = made(device, hal.Image(4, 4, channels=1), hal.uint32).fill(6)
    both(one, threads=(4, 4))
    assert (one.numpy() == 7).all()


@pytest.mark.parametrize("option", ["host", "cpu_access"])
def test_an_image_is_no_memory_of_the_host(device, option):
    options = hal.BufferSpec(image=hal.Image(4, 4), **{option: True})
    with pytest.raises(hal.Unsupported, match=r"memory of the device.*Leave out host"):
        hal.Buffer(device, 64, hal.float32, options).allocate()


def test_copies_to_and_from_parts_of_a_buffer(device):
    """Metal copies pixels at multiples of bytes that few views begin at."""
    numbers = np.arange(200, dtype=np.float32)
    plain, image = hal.Buffer.from_numpy(numbers, device), made(device, hal.Image(4, 2))
    for start in (0, 1, 4, 64):
        part = plain.view(32, hal.float32, 4 * start)
        image.copy_from(part)
        assert (image.numpy().reshape(-1) == numbers[start : start + 32]).all()
        part.fill(0)
        part.copy_from(image)
        assert (plain.numpy() == numbers).all()
    small = made(device, hal.Image(3, 3, channels=1), hal.uint8)
    small.copyin(bytearray(range(9)))
    bytes_ = hal.zeros(32, hal.uint8, device)
    bytes_.view(9, hal.uint8, 5).copy_from(small)
    assert bytes_.numpy().tolist() == [0] * 5 + [*range(9)] + [0] * 18


def test_other_libraries_take_a_copy_of_an_image(device):
    image = filled(device, np.arange(16, dtype=np.float32).reshape(2, 2, 4))
    with pytest.raises(hal.NotShareable):
        image.__dlpack__()
    assert np.from_dlpack(image, device="cpu", copy=True).tolist() == list(range(16))
