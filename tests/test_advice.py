"""What users get wrong first is told with what to do about it."""

from typing import NamedTuple

import numpy as np
import pytest

import hal_core as hal
from hal_testing.fake import FakePlugin


@hal.kernel
def scale(y: hal.Ptr[hal.float32], a: hal.float32, n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] = a * y[i]


class Things(NamedTuple):
    device: hal.Compiled
    buffer: hal.Buffer
    program: hal.Program


@pytest.fixture
def things():
    hal.Device.register_plugin("SIM", FakePlugin())
    with hal.Device["SIM"] as device:
        yield Things(device, hal.zeros(8, hal.float32, device), device.compile(scale))


MISTAKES = [
    ("no device", lambda t: hal.Buffer(3, 8, hal.float32)),
    ("a shape", lambda t: hal.zeros((2, 4), hal.float32, t.device)),
    ("another dtype", lambda t: t.buffer.copyin(np.zeros(8))),
    ("another size", lambda t: t.buffer.copyout(bytearray(3))),
    ("read-only", lambda t: t.buffer.copyout(bytes(32))),
    ("a larger buffer", lambda t: t.buffer.copy_from(hal.zeros(9, hal.float32, t.device))),
    ("an array", lambda t: t.buffer.copy_from(np.zeros(8, "f4"))),
    ("a view too large", lambda t: t.buffer.view(9)),
    ("a view between elements", lambda t: t.buffer.view(1, offset=2)),
    ("an element", lambda t: t.buffer[3]),
    ("a step", lambda t: t.buffer[::2]),
    ("a shape of more", lambda t: t.buffer.numpy(shape=(3, 3))),
    ("an unknown dtype", lambda t: hal.zeros(8, "f4", t.device)),
    ("a fill too large", lambda t: t.buffer.fill(1e60)),
    ("a fill that is text", lambda t: t.buffer.fill("1")),
    ("an option", lambda t: _special(t, image=hal.Image(2))),
    ("no address", lambda t: _special(t, external_ptr=0)),
    ("a value too large", lambda t: t.program(t.buffer, vals=(1.0, 1 << 40), threads=8)),
    ("a float too large", lambda t: t.program(t.buffer, vals=(1e60, 8), threads=8)),
    ("a float", lambda t: t.program(t.buffer, vals=(1.0, 8.0), threads=8)),
    ("values before buffers", lambda t: t.program(1.0, t.buffer, 8, threads=8)),
    ("no geometry", lambda t: t.program(t.buffer, vals=(1.0, 8))),
    ("no kernel", lambda t: t.device.compile("scale")),
    ("a kernel that is called", lambda t: scale(t.buffer)),
]


ADVICE = [
    (lambda t: t.buffer[3], "copy out: buffer.numpy()[...]."),
    (lambda t: t.buffer[::2], "For a view write buffer[a:b]"),
    (lambda t: hal.zeros(1e3, hal.float32, t.device), "int(...)"),
    (lambda t: t.device.compile(t.program), "A hal.Program is compiled already: call it."),
    (lambda t: t.program(t.buffer, vals=(1.0, 8), threads=1 << 40), "Launch several times"),
    (lambda t: t.program(t.buffer, vals=(1.0, 8), grid=1, block=1 << 20), "smaller blocks"),
    (lambda t: t.program(t.buffer, vals=(1.0, 8), threads=8, shared=1 << 40), "no shared="),
    (lambda t: hal.Queue(t.device), "device.queue()"),
    (lambda t: hal.Program(t.device, t.program.binary), "device.load(binary)"),
    (lambda t: hal.kernel(64), "@hal.kernel(block=64)"),
    (lambda t: _typed(t), "type it in IPython"),
    (lambda t: _fixed(t), "Leave out block="),
    (lambda t: hal.Buffer.from_file("/", hal.float32, device=t.device), "in this folder"),
    (lambda t: hal.Graph(t.device).replay([t.buffer]), "replay({old: new})"),
]


@pytest.mark.parametrize(("mistake", "advice"), ADVICE, ids=[advice for _, advice in ADVICE])
def test_the_advice_is_of_the_mistake(things, mistake, advice):
    with pytest.raises(hal.HalError) as caught:
        mistake(things)
    assert advice in (caught.value.fix or "")


def _typed(things):
    names = {"hal": hal}
    exec("@hal.kernel\ndef f(y: hal.Ptr[hal.int32]): y[0] = 1", names)
    things.device.compile(names["f"])


def _fixed(things):
    @hal.kernel(block=4)
    def fill(y: hal.Ptr[hal.float32]) -> None:
        y[hal.global_idx(0)] = 1.0

    things.device.compile(fill)(things.buffer, grid=1, block=8)


def _special(things, **options):
    hal.Buffer(things.device, 8, hal.float32, hal.BufferSpec(**options)).allocate()


@pytest.mark.parametrize("mistake", [do for _, do in MISTAKES], ids=[name for name, _ in MISTAKES])
def test_a_mistake_is_told_with_advice(things, mistake):
    with pytest.raises(hal.HalError) as caught:
        mistake(things)
    assert caught.value.fix and str(caught.value).endswith(caught.value.fix)


def test_numpy_takes_a_dtype_for_its_own():
    """Without that numpy makes an array of Python objects, and says nothing."""
    for dtype in (hal.bool_, hal.int8, hal.uint64, hal.float16, hal.float32, hal.float64):
        assert np.zeros(3, dtype).dtype == np.dtype(dtype) == np.dtype(dtype.name)
