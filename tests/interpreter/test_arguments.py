"""Wrong arguments of `interpret` are refused as at a launch, and the text says how to call it."""

import re

import numpy as np
import pytest
from test_faults import SIZE, floats, ints, shift

import hal_core as hal
from hal_kernel.interpreter import interpret


@hal.kernel
def scale(y: hal.Ptr[hal.float32], n: hal.int32, a: hal.float32) -> None:
    if hal.global_idx(0) < n:
        y[hal.global_idx(0)] *= a


SHIFTED = re.escape("Write interpret(shift, y, x, by, ...).")
REFUSED = [
    ((floats(),), {"vals": (1,), "threads": 1}, rf"of buffers \(got 1; expected 2\).*{SHIFTED}"),
    ((floats(), floats()), {"threads": 1}, rf"of arguments \(got 2; expected 3\).*{SHIFTED}"),
    ((floats(), ints(1)), {"vals": (1,), "threads": 1},
     r"'x' has the wrong dtype \(got 'int32'.*x\.astype\('float32'\).*y, x, by"),
    ((floats(), [1.0]), {"vals": (1,), "threads": 1}, "'x' is not a C-contiguous numpy array"),
    ((floats(), floats()[::2]), {"vals": (1,), "threads": 1},
     "is not a C-contiguous numpy array.*np.ascontiguousarray"),
    ((floats(), floats()), {"vals": (1.5,), "threads": 1}, "'by' is a float"),
    ((floats(), floats()), {"vals": ("1",), "threads": 1}, SHIFTED),
    ((floats(), floats()), {"vals": (1,)}, "nothing says how many threads run"),
    ((floats(), floats()), {"vals": (1,), "threads": 1, "grid": 1}, "both grid and threads"),
    *(((floats(), floats()), {"vals": (1,), "threads": 1, name: x}, f"{name}( masks|) (must|.got)")
      for name, x in (("turns", 1.5), ("turns", 0), ("turns", "9"), ("subgroup", 32.0),
                      ("vals", ()), ("vals", 5), ("initialised", [None]), ("initialised", 5))),
]  # fmt: skip


@pytest.mark.parametrize(("bufs", "how", "text"), REFUSED, ids=range(len(REFUSED)))
def test_refused(bufs, how, text):
    with pytest.raises(hal.InvalidArgument, match=text):
        interpret(shift, *bufs, **how)


def test_memory_that_cannot_be_written_is_refused_where_it_would_be():
    frozen = floats()
    frozen.flags.writeable = False
    interpret(shift, floats(), frozen, vals=(0,), threads=SIZE, block=SIZE)
    with pytest.raises(hal.InvalidArgument, match="'y' cannot be written"):
        interpret(shift, frozen, floats(), vals=(0,), threads=SIZE)


def test_a_buffer_is_refused_with_what_to_do(fake):
    y = hal.Buffer.from_numpy(floats(), device=fake)
    with pytest.raises(hal.InvalidArgument, match=r"'y' is not a .*Buffer.*buffer\.numpy\(\)"):
        interpret(shift, y, floats(), vals=(0,), threads=1)


def test_arguments_may_stand_in_the_order_of_the_kernel():
    y = floats()
    interpret(shift, y, np.arange(SIZE + 1, dtype=np.float32), 1, threads=SIZE, block=SIZE)
    assert y.tolist() == list(range(1, SIZE + 1))


def test_an_error_shows_the_right_order_of_values():
    text = "'n' is a float where .* Write interpret(scale, y, n, a, ...)."
    with pytest.raises(hal.InvalidArgument, match=re.escape(text).replace(r"\.\*", ".*", 1)):
        interpret(scale, floats(), vals=(0.5, 8), threads=8)
