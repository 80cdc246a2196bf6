"""Test images: memory with a shape and a format. Of a device that has the capability `images`."""

from __future__ import annotations

import pickle
from math import prod
from pathlib import Path

import numpy as np
import pytest

import hal_core as hal
from hal_testing.conformance.sources import IMAGES, Texts
from hal_testing.kit.abilities import nothing_to_try


def image_of(device: hal.Compiled, image: hal.Image, dtype: hal.DType) -> hal.Buffer:
    return hal.Buffer(device, prod(image.shape), dtype, hal.BufferSpec(image=image))


def compiled(
    device: hal.Compiled, texts: Texts, kind: str, signature: str | None = None, factor: int = 2
) -> hal.Program:
    """Compile the kernel that multiplies pixels of a kind."""
    if kind not in texts.images:
        nothing_to_try(f"the kit knows no images of {kind!r} in {texts.language!r}")
    text = texts.images[kind].replace("FACTOR", str(factor))
    return device.compile(hal.Source("k", text, signature, language=texts.language))


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

    def test_IM3_images_are_copied_to_another_device(
        self, device: hal.Compiled, second_device: hal.Compiled
    ) -> None:
        image, there = (
            image_of(one, hal.Image(4, 4), hal.float32) for one in (device, second_device)
        )
        data, plain = np.arange(64, dtype=np.float32), hal.zeros(64, hal.float32, second_device)
        image.copyin(data)
        second_device.synchronize()
        assert (there.copy_from(image).numpy().reshape(-1) == data).all()
        with second_device.queue() as queue:
            plain.copy_from(image, queue=queue)
            there.fill(0, queue=queue)
        with device.queue() as queue:
            image.copy_from(there, queue=queue)
        assert (plain.numpy() == data).all() and not image.numpy().any()

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
        other = hal.zeros(64, hal.float32, device)
        graph.replay({plain: other})
        assert (other.numpy() == data).all()
        again = hal.load_graph(tmp_path / "graph", device)
        again.replay()
        assert [one.options.image for one in again.buffers] == [made.options.image] * 2 + [None]
        assert (again.buffers[2].numpy() == data).all()
        for wrong in (plain, image_of(device, hal.Image(8, 2), hal.float32)):
            with pytest.raises(hal.InvalidArgument, match="another"):
                graph.replay({made: wrong})

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
        for image in (hal.Image(1 << 20), hal.Image(1 << 20, 1), hal.Image(4, 4, 1 << 20)):
            with pytest.raises(hal.InvalidArgument, match=r"larger than images of \d axes"):
                image_of(device, image, hal.uint8).allocate()

    def test_IM7_kernels_read_and_write_every_format_that_the_device_has(
        self, device: hal.Compiled, hal_source: Texts
    ) -> None:
        if len(hal_source.images) < 3:
            nothing_to_try(f"the kit knows few images in {hal_source.language!r}")
        of_formats = "int8x1" in hal_source.images
        copiers = {kind: compiled(device, hal_source, kind, factor=1) for kind in hal_source.images}
        dtypes = (hal.uint8, hal.int8, hal.uint16, hal.int16, hal.uint32, hal.int32)
        asked = [(dtype, False) for dtype in (*dtypes, hal.float16, hal.float32)]
        found = 0
        for dtype, normalised in (*asked, *((dtype, True) for dtype in dtypes[:4])):
            for channels in (1, 2, 4):
                image = hal.Image(8, 4, channels=channels, normalised=normalised)
                pixels = (3 * np.arange(32 * channels)).astype(dtype.to_numpy())
                x, y = image_of(device, image, dtype), image_of(device, image, dtype)
                try:
                    x.copyin(pixels)
                except hal.Unsupported:
                    continue
                kind = "f" if normalised else dtype.kind
                if of_formats:
                    kind = "" if normalised else f"{dtype}x{channels}"
                    if kind not in copiers:
                        continue
                copiers[kind](x, y, threads=(8, 4))
                assert (y.numpy().reshape(-1) == pixels).all(), image
                found += 1
        assert found >= 10

    def test_IM8_a_signature_has_the_image_of_the_text(
        self, device: hal.Compiled, hal_source: Texts
    ) -> None:
        for given in (None, IMAGES):
            assert str(compiled(device, hal_source, "f", given).signature) == IMAGES
        for wrong, argument in {
            "x: const image2d, y: const image2d": "y", "x: image2d, y: image2d": "x",
            "x: const image3d, y: image2d": "x", "x: const float32*, y: image2d": "x",
            "x: any*, y: image2d": "x", "x: int32, y: image2d": "x",
        }.items():  # fmt: skip
            with pytest.raises(hal.CompileError, match=rf"signature says {argument}: "):
                compiled(device, hal_source, "f", wrong)

    def test_IM9_an_argument_is_an_image_of_the_right_kind(
        self, device: hal.Compiled, hal_source: Texts
    ) -> None:
        program = compiled(device, hal_source, "f")
        plain, cube = hal.zeros(64, hal.float32, device), hal.Image(4, 2, 2)
        x, y = (image_of(device, hal.Image(4, 4), hal.float32).fill(1) for _ in range(2))
        for bufs, why in {
            (plain, y): "argument 'x' is no image",
            (x, plain): "argument 'y' is no image",
            (
                x,
                image_of(device, cube, hal.float32),
            ): "argument 'y' is an image of other axes.*image3d",
            (x, x): "'x' and 'y' are one image",
        }.items():
            with pytest.raises(hal.InvalidArgument, match=why):
                program(*bufs, threads=(4, 4))
        large = image_of(device, hal.Image(1 << 20, 1), hal.float32)
        with pytest.raises(hal.InvalidArgument, match=r"argument 'y: image2d': .*is larger"):
            program(x, large, threads=(4, 4))
        device.synchronize()  # the fills are of another queue
        with device.queue() as queue:
            program(x, y, threads=(4, 4), queue=queue)
        assert (y.numpy() == 2).all()

    def test_IM10_graphs_launch_kernels_with_images(
        self, device: hal.Compiled, hal_source: Texts
    ) -> None:
        program = compiled(device, hal_source, "f")
        x, y, z = (image_of(device, hal.Image(4, 4), hal.float32) for _ in range(3))
        with device.capture() as graph:
            x.fill(1)
            program(x, y, threads=(4, 4))
            program(y, z, threads=(4, 4))
            x.copy_from(z)
            with pytest.raises(hal.InvalidArgument, match="'x' and 'y' are one image"):
                program(x, x, threads=(4, 4))
        assert graph.dependencies == [(), (0,), (1,), (0, 1, 2)]
        graph.replay()
        assert (x.numpy() == 4).all()
        with pytest.raises(hal.InvalidArgument, match="'x' and 'y' are one image"):
            graph.replay({y: x})
        other = image_of(device, hal.Image(4, 4), hal.float32)
        with device.queue() as queue:
            graph.replay({y: other}, queue=queue)
        assert (other.numpy() == 2).all() and (z.numpy() == 4).all()
