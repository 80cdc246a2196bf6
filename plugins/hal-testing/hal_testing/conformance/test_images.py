"""Test images: memory with a shape and a format. Of a device that has the capability `images`."""

from __future__ import annotations

import pickle
from math import prod
from pathlib import Path

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

    def test_IM4_queues_copy_and_fill_images(self, device: hal.Compiled) -> None:
        data, there = np.arange(144, dtype=np.float32), bytearray(576)
        plain = hal.Buffer.from_numpy(data, device)
        made, more = (image_of(device, hal.Image(9, 4), hal.float32) for _ in range(2))
        with device.queue() as queue:
            made.copyin(data, queue=queue)
            more.copy_from(made, queue=queue)
            made.fill(2.5, queue=queue)
            plain.copy_from(made, queue=queue)
            more.copyout(there, queue=queue)
            made.copy_from(plain, queue=queue)
        assert bytes(there) == data.tobytes()
        assert (made.numpy() == 2.5).all()

    def test_IM5_graphs_copy_and_fill_images(self, device: hal.Compiled, tmp_path: Path) -> None:
        data = np.arange(64, dtype=np.float32)
        plain = hal.zeros(64, hal.float32, device)
        made, more, third = (image_of(device, hal.Image(4, 4), hal.float32) for _ in range(3))
        with device.capture() as graph:
            made.copyin(data)
            more.copy_from(made)
            plain.copy_from(more)
            made.fill(2)
        graph.save(tmp_path / "graph")
        for _ in range(2):
            more.fill(0)
            graph.replay({made: third})
            assert (plain.numpy() == data).all() and (third.numpy() == 2).all()
        with device.queue() as queue:
            graph.replay(queue=queue)
        assert (more.numpy().reshape(-1) == data).all() and (made.numpy() == 2).all()
        again = hal.load_graph(tmp_path / "graph", device)
        again.replay()
        assert [one.options.image for one in again.buffers] == [made.options.image] * 2 + [None]
        assert (again.buffers[2].numpy() == data).all()
        for other in (plain, image_of(device, hal.Image(8, 2), hal.float32)):
            with pytest.raises(hal.InvalidArgument, match="another"):
                graph.replay({made: other})

    def test_IM6_views_and_other_sizes_are_refused(self, device: hal.Compiled) -> None:
        options = hal.BufferSpec(image=hal.Image(4, 4))
        made = image_of(device, hal.Image(4, 4), hal.float32)
        for bounds in (slice(4), slice(None)):
            with pytest.raises(hal.Unsupported, match="is an image"):
                made[bounds]
        with pytest.raises(hal.InvalidArgument, match="another size"):
            hal.empty(63, hal.float32, device, options)
        with pytest.raises(hal.InvalidArgument, match="dtype of an image"):
            device.allocator.alloc(256, options)
