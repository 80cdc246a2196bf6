"""Images among the parameters of kernels, on devices that have none."""

import pickle

import numpy as np
import pytest

import hal_core as hal
from hal_core.signature import Signature


def test_a_signature_names_images():
    text = "x: const image2d, n: int32, y: image3d, z: image1d"
    signature = Signature.parse("k", text)
    assert str(signature) == text and str(pickle.loads(pickle.dumps(signature))) == text
    assert [param.name for param in signature.pointers] == ["x", "y", "z"]
    assert {dtype.name for dtype in signature.dtypes} == {"int32"}


@pytest.mark.parametrize("word", ["image", "image2d*", "const image4d", "image2dx4", "image2d_t"])
def test_what_is_no_image_is_refused(word):
    with pytest.raises(hal.InvalidArgument, match="parameter"):
        Signature.parse("k", f"x: {word}")


@pytest.mark.parametrize(
    ("given", "said"),
    [({"width": 0}, r"wrong width \(got 0; expected an integer from 1 on\)"),
     ({"width": None}, "wrong width"), ({"width": True}, "wrong width"),
     ({"width": 4.0}, "wrong width"), ({"width": 4, "height": -1}, "wrong height"),
     ({"width": 4, "depth": 4}, r"wrong height \(got None"),
     ({"width": 4, "height": 4, "depth": "4"}, "wrong depth"),
     ({"width": 4, "channels": 3}, r"wrong channels \(got 3; expected 1, 2 or 4\)"),
     ({"width": 4, "normalised": "no"}, "normalised="), ({"width": 4, "dtype": 8}, "dtype")],
)  # fmt: skip
def test_an_image_that_cannot_be_is_not_made(given, said):
    with pytest.raises(hal.InvalidArgument, match=f"Image: .*{said}"):
        hal.Image(**given)


def test_an_image_is_pickled_with_its_dtype_and_sizes_of_numpy():
    image = hal.Image(*np.array([4, 2]), dtype=hal.uint8)
    assert type(image.width) is type(image.height) is int
    assert pickle.loads(pickle.dumps(image)) == image == (4, 2, None, 4, False, hal.uint8)


def test_a_device_without_images_says_so(fake):
    source = hal.Source("k", "def k(t, im): pass", "im: const image2d", language="python")
    with pytest.raises(hal.Unsupported, match=r"'im' is an image.*\(images\)"):
        fake.compile(source)
    with pytest.raises(hal.Unsupported, match="image"):
        hal.empty(64, hal.float32, fake, hal.BufferSpec(image=hal.Image(4, 4)))
    with pytest.raises(hal.InvalidArgument, match=r"hal\.Image"):
        hal.Buffer(fake, 4, hal.float32, hal.BufferSpec(image=(2, 2)))
    with pytest.raises(hal.InvalidArgument, match="not a dtype"):
        hal.Buffer(fake, 4, "image2d")
