"""Images: kernels that take them as texture and surface objects, and what is refused. The kit has
what all devices do. Texts are CUDA's, and HIP's by other names of types."""

import gc

import numpy as np
import pytest
from any_order import expect

import hal_core as hal

pytestmark = pytest.mark.results

DOUBLED = """
extern "C" __global__ void k(cudaTextureObject_t x, cudaSurfaceObject_t y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = threadIdx.y;
    float4 one = tex2D<float4>(x, i, j);
    surf2Dwrite(make_float4(2 * one.x, 2 * one.y, 2 * one.z, 2 * one.w), y, 16 * i, j);
}"""
TAKES = "x: const image2d, y: image2d"
# A texture or surface of each number of axes, read at the thread's place.
SAMPLED = """
extern "C" __global__ void k(float *y, cudaTextureObject_t im) {{
    int i = threadIdx.x, j = threadIdx.y, k = threadIdx.z;
    float4 one; {call};
    y[(k * blockDim.y + j) * blockDim.x + i] = one.x + one.w;
}}"""
PLACES = {1: "i", 2: "i, j", 3: "i, j, k"}
READS = {axes: f"one = tex{axes}D<float4>(im, {at})" for axes, at in PLACES.items()}


@pytest.fixture
def compiled(device, monkeypatch):
    monkeypatch.setenv("CUDA_CC", "nvrtc")
    vendor = device.family.lower()

    def compile(text, signature=TAKES):
        text = text.replace("cuda", vendor)
        return device.compile(hal.Source("k", text, signature, language=vendor))

    return compile


def made(device, image, dtype=hal.float32):
    return hal.Buffer(device, int(np.prod(image.shape)), dtype, hal.BufferSpec(image=image))


@pytest.mark.parametrize("image", [hal.Image(7), hal.Image(7, 3), hal.Image(5, 3, 2)])
@pytest.mark.parametrize("access", ["const ", ""])
def test_kernels_read_images_of_each_number_of_axes(device, compiled, image, access):
    axes = len(image.shape) - 1
    text = SAMPLED.format(call=READS[axes])
    if not access:
        text = SAMPLED.format(call=f"surf{axes}Dread(&one, im, 16 * {PLACES[axes]})")
        text = text.replace("Texture", "Surface")
    program = compiled(text, f"y: float32*, im: {access}image{axes}d")
    pixels = np.random.default_rng(1).random(image.shape, np.float32)
    x = hal.Buffer.from_numpy(pixels, device, hal.BufferSpec(image=image))
    y = hal.zeros(pixels.size // 4, hal.float32, device)
    program(y, x, grid=1, block=image.shape[-2::-1])
    expect((y.numpy().reshape(pixels.shape[:-1]) == pixels[..., 0] + pixels[..., 3]).all())


def test_normalised_integers_and_float16_are_floats_in_a_kernel(device, compiled):
    program = compiled(SAMPLED.format(call=READS[2]), "y: float32*, im: const image2d")
    pixels = np.arange(3 * 5 * 4).reshape(3, 5, 4)
    for dtype, normalised, most in (
        (hal.uint8, True, 255), (hal.int16, True, 32767), (hal.float16, False, 1),
    ):  # fmt: skip
        x = made(device, hal.Image(5, 3, normalised=normalised), dtype)
        x.copyin(pixels.astype(dtype.to_numpy()))
        y = hal.zeros(15, hal.float32, device)
        program(y, x, grid=1, block=(5, 3))
        wanted = (pixels[..., 0] + pixels[..., 3]) / most
        np.testing.assert_allclose(y.numpy().reshape(3, 5), wanted, rtol=1e-6)


def test_a_texture_gives_the_edge_beyond_it(device, compiled):
    call = READS[2].replace("i, j", "i - 4, 9")
    program = compiled(SAMPLED.format(call=call), "y: float32*, im: const image2d")
    x, y = made(device, hal.Image(4, 1)), hal.zeros(12, hal.float32, device)
    x.copyin(np.repeat(np.arange(4, dtype=np.float32), 4))
    program(y, x, grid=1, block=12)
    expect(y.numpy().tolist() == [0, 0, 0, 0, 0, 2, 4, 6, 6, 6, 6, 6])


def test_a_replay_that_was_refused_leaves_copies_of_images_as_they_are(device, compiled, control):
    program = compiled(DOUBLED)
    x, y, z, other = (made(device, hal.Image(8, 4)).fill(n) for n in range(4))
    with device.capture() as graph:
        program(x, y, grid=1, block=(8, 4))
        z.copy_from(y)
    graph.replay()
    control.fail(f"{control.prefix}GraphExecKernelNodeSetParams", 999)
    graph[0].update(other, y)
    with pytest.raises(hal.HalError, match="GraphExecKernelNodeSetParams"):
        graph.replay()
    control.clear()
    graph.replay()
    expect((z.numpy() == 6).all())


def test_large_images_are_copied_in_a_queue_and_to_those_of_another_shape(device):
    wide, high = hal.Image(512, 768), hal.Image(768, 512)  # 6 MiB, beyond one pinned block
    data = np.random.default_rng(2).random(wide.shape, np.float32)
    first, second, there = made(device, wide), made(device, high), np.empty(high.shape, np.float32)
    with device.queue() as queue:
        first.copyin(data, queue=queue)
        second.copy_from(first, queue=queue)
        second.copyout(there, queue=queue)
    expect((there == data.reshape(high.shape)).all())
    first.fill(0).copy_from(second)
    expect((first.numpy() == data).all())
    narrow, single = (
        made(device, hal.Image(4, 3)).fill(5),
        made(device, hal.Image(16, 3, channels=1)),
    )
    with device.capture() as graph:
        single.copy_from(narrow)  # rows of as many bytes, pixels of another size
    graph.replay()
    expect((single.numpy() == 5).all())


@pytest.mark.parametrize("seed", range(1, 9))
def test_queues_copy_images_in_any_order_that_streams_allow(device, compiled, shuffle, seed):
    program, shape = compiled(DOUBLED), hal.Image(8, 4)
    x, y, z = (made(device, shape).fill(n) for n in range(3))
    there, wanted = [np.empty(shape.shape, np.float32) for _ in range(4)], []
    shuffle(seed)
    with device.queue() as first, device.queue() as second:
        for number, dest in enumerate(there):
            x.copyin(np.full(shape.shape, number, np.float32), queue=first)
            program(x, y, grid=1, block=(8, 4), queue=first)
            second.wait(first.record())
            z.copy_from(y, queue=second)
            z.copyout(dest, queue=second)
            y.fill(9, queue=second)
            first.wait(second.record())
            wanted.append(2 * number)
    expect([dest.min() for dest in there] == wanted == [dest.max() for dest in there])
    expect((y.numpy() == 9).all())


@pytest.mark.parametrize("declared", ["unsigned long long x", "float *x", "cudaTextureObject_t *x"])
def test_P18_an_image_is_an_object_in_the_text(compiled, declared):
    with pytest.raises(hal.CompileError, match="argument 0 of the kernel is"):
        compiled(f'extern "C" __global__ void k({declared}) {{}}', "x: const image2d")


def test_P18_functions_tell_the_axes_of_an_image(compiled):
    expect(str(compiled(DOUBLED, None).signature) == TAKES)
    shaped = "float v; surf3Dread(&v, s, 4 * i, 0, 0); s2 = tex1Dfetch<float>(t, i) + v;"
    text = f"""extern "C" __global__ void k(cudaSurfaceObject_t s, cudaTextureObject_t t) {{
        float s2; int i = threadIdx.x; {shaped}
    }} extern "C" __global__ void other(cudaTextureObject_t s) {{ tex2D<float>(s, 0, 0); }}"""
    expect(str(compiled(text, None).signature) == "s: image3d, t: const image1d")
    helped = """__device__ float of(cudaTextureObject_t t) { return tex2D<float>(t, 0, 0); }
    extern "C" __global__ void k(cudaTextureObject_t x, float *y) { *y = of(x); }"""
    with pytest.raises(
        hal.CompileError, match=r"'x' does not tell how many axes.*x: const image2d"
    ):
        compiled(helped, None)
    compiled(helped, "x: const image2d, y: float32*")


def test_an_object_of_the_users_own_is_a_number(compiled):
    text = "typedef cudaTextureObject_t Tex;" + DOUBLED.replace("cudaTextureObject_t x", "Tex x")
    expect(str(compiled(text, "x: uint64, y: image2d").signature) == "x: uint64, y: image2d")
    compiled(text)


def test_an_image_has_no_address_for_other_libraries(device):
    x = made(device, hal.Image(8, 4)).fill(1)
    for share in (lambda: x.__cuda_array_interface__, x.__dlpack__):
        with pytest.raises(hal.NotShareable, match="address"):
            share()
    expect((np.from_dlpack(x, device="cpu", copy=True) == 1).all())


def test_an_image_is_no_memory_of_the_host(device):
    options = hal.BufferSpec(image=hal.Image(4, 4), host=True)
    with pytest.raises(hal.Unsupported, match=r"memory of the device.*Leave out host"):
        hal.Buffer(device, 64, hal.float32, options).allocate()


def test_an_image_outlives_its_device_and_leaves_nothing(device, control):
    device.close()
    gc.collect()  # graphs of other tests, which are cycles
    clean = control.live()
    with hal.Device[device.family] as opened:
        kept, cached = (made(opened, hal.Image(8, 4)).fill(1) for _ in range(2))
        cached.deallocate()
        more = control.live() - clean
        expect((more["arrays"], more["images"]) == (2, 4))
    del kept
    expect(control.live() == clean)


@pytest.mark.parametrize("name", ["Array3DCreate", "TexObjectCreate", "SurfObjectCreate"])
def test_A4_an_image_that_there_is_no_memory_for(device, control, name):
    if control.prefix == "hip":
        name = name.replace("SurfObjectCreate", "CreateSurfaceObject")
    image, clean = made(device, hal.Image(8, 5)), control.live()  # which is not in the cache
    for nth in (1, 2):  # it tries again without the cache
        control.fail(control.prefix + name, 2, nth)
    with pytest.raises(hal.OutOfMemory, match="no room for 640 B"):
        image.allocate()
    control.clear()
    expect(+(control.live() - clean) == {})
