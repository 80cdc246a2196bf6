"""Images of the HIP runtime, and what its surfaces do where CUDA's do something else."""

import ctypes

import numpy as np
import pytest
from images import *  # noqa: F403
from images import made

import hal_core as hal
from hal_hip.calls import HIP

MOVED = """
extern "C" __global__ void k(hipSurfaceObject_t y, int from, int to) {
    float1 one; surf2Dread(&one, y, 2 * from, 1);
    surf2Dwrite(one, y, 2 * to, 0);
}"""


def test_beyond_a_surface_zeros_are_read_and_nothing_is_written(device, compiled):
    """A surface of float16, which kernels see as float."""
    y = made(device, hal.Image(2, 2, channels=1), hal.float16)
    program = compiled(MOVED, "y: image2d, from: int32, to: int32")
    for vals, wanted in {(1, 0): [4, 2, 3, 4], (9, 1): [1, 0, 3, 4], (0, -1): [1, 2, 3, 4]}.items():
        y.copyin(np.arange(1, 5, dtype=np.float16))
        program(y, vals=vals, threads=1)
        assert y.numpy().reshape(-1).tolist() == wanted


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("surf2Dwrite(make_float1(__int_as_float(256)), y, 0, 0);", "does not hold: 256"),
        ("auto t = x; *z = tex1Dfetch<float>(t, 0);", "does not know: buffer_load_format_x"),
        ("*z = tex2DGrad<float>(x, 0, 0, {}, {});", "does not know: image_sample_d"),
        ("surf2Dread(z, (hipSurfaceObject_t)z, 0, 0);", "no image that the engine"),
    ],
)
def test_what_a_kernel_does_wrong_with_an_image(device, compiled, runtime, body, message):
    head = "hipTextureObject_t x, hipSurfaceObject_t y, float *z"
    text = f'extern "C" __global__ void k({head}) {{ {body} }}'
    x, y = (made(device, hal.Image(4, 4, channels=1), hal.uint8).fill(0) for _ in range(2))
    program = compiled(text, "x: const image2d, y: image2d, z: float32*")
    program(x, y, hal.zeros(99, hal.float32, device), threads=1)
    for work in (device.synchronize, device.close):
        with pytest.raises(hal.DeviceFault, match="got 719"):
            work()
    runtime.driver.sim_message.restype = ctypes.c_char_p
    assert message in runtime.driver.sim_message().decode()


def test_a_device_without_images_refuses_them(device, runtime):
    device.close()
    runtime.fail("hipDeviceGetAttribute", 1, [*HIP.attributes].index("image_support") + 1)
    hal.Device.refresh()
    with hal.Device["HIP"] as opened, pytest.raises(hal.Unsupported, match="image"):
        made(opened, hal.Image(4)).allocate()
    hal.Device.refresh()
