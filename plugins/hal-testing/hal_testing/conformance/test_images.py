"""Test images: memory with a shape and a format. Of a device that has the capability `images`."""

from __future__ import annotations

import pickle
from math import prod

import numpy as np
import pytest

import hal_core as hal


def image_of(device: hal.Compiled, image: hal.Image, dtype: hal.DType) -> hal.Buffer:
    return hal.Buffer(device, prod(image.shape), dtype, hal.BufferSpec(image=image))


class TestImages:
    @pytest.fixture(autouse=True)
    def need_images(self, device: hal.Compiled) -> None:
        """Skip the tests of the chapter where the device declares no images."""
        if "images" not in device.info.capabilities:
            pytest.skip("it declares no images")

    @pytest.mark.parametrize("image", [hal.Image(7), hal.Image(7, 3), hal.Image(5, 3, 2)])
    @pytest.mark.parametrize("dtype", [hal.uint8, hal.int16, hal.float32], ids=str)
    def test_IM1_pixels_come_back_in_the_shape_of_the_image(
        self, device: hal.Compiled, image: hal.Image, dtype: hal.DType
    ) -> None:
        pixels = np.arange(prod(image.shape)).astype(dtype.to_numpy()).reshape(image.shape)
        made = hal.Buffer.from_numpy(pixels, device, hal.BufferSpec(image=image))
        assert made.numpy().shape == image.shape and (made.numpy() == pixels).all()
        assert bytes(made.copyout(bytearray(made.nbytes))) == pixels.tobytes()
        again = pickle.loads(pickle.dumps(made))
        assert again.options == made.options and (again.numpy() == pixels).all()

    def test_IM2_a_fill_is_of_every_element(self, device: hal.Compiled) -> None:
        made = image_of(device, hal.Image(9, 4), hal.float32)
        assert (made.fill(2.5).numpy() == 2.5).all()
        zero = hal.BufferSpec(image=hal.Image(9, 4), zero=True)
        del made  # whose memory may be handed out again
        assert not hal.empty(144, hal.float32, device, zero).numpy().any()

    def test_IM3_images_and_buffers_are_copied_to_each_other(self, device: hal.Compiled) -> None:
        data = np.arange(144, dtype=np.float32)
        plain, other = hal.Buffer.from_numpy(data, device), hal.zeros(144, hal.float32, device)
        made, more = (image_of(device, hal.Image(9, 4), hal.float32) for _ in range(2))
        made.copy_from(plain)
        more.copy_from(made)
        assert (other.copy_from(more).numpy() == data).all()

    def test_IM4_images_have_no_views_and_no_work_in_queues_and_graphs(
        self, device: hal.Compiled
    ) -> None:
        made = image_of(device, hal.Image(4, 4), hal.float32).fill(1)
        plain, queue = hal.zeros(64, hal.float32, device), device.queue()
        for refused in (
            lambda: made.view(4),
            lambda: made[:4],
            lambda: made.fill(2, queue=queue),
            lambda: made.copyin(bytes(256), queue=queue),
            lambda: made.copyout(bytearray(256), queue=queue),
            lambda: plain.copy_from(made, queue=queue),
        ):
            with pytest.raises(hal.Unsupported, match="is an image"):
                refused()
        with device.capture(), pytest.raises(hal.Unsupported, match="is an image"):
            made.fill(2)
        assert (made.numpy() == 1).all()

    def test_IM5_another_size_is_refused(self, device: hal.Compiled) -> None:
        options = hal.BufferSpec(image=hal.Image(4, 4))
        with pytest.raises(hal.InvalidArgument, match="another size"):
            hal.empty(63, hal.float32, device, options)
        with pytest.raises(hal.InvalidArgument, match="dtype of an image"):
            device.allocator.alloc(256, options)
