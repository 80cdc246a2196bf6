"""Arguments of a wrong kind: every public method says what is wrong, and what to write."""

import sys

import numpy as np
import pytest
from fake_backend import FakeCompiler

import hal_core as hal

pytestmark = pytest.mark.quick

N = 8
SCALE = hal.Source(
    "scale", "def scale(t, y, n):\n    if t[0] < n: y[t[0]] = 2 * y[t[0]]", "y: int32*, n: int32",
    language="python",
)  # fmt: skip

# Calls with `a`, an array of two numbers, which has no truth value and is no key of a table.
CALLS = """
hal.Ptr(hal.float32)
hal.ConstPtr(hal.float32)
hal.Buffer(fake, N, hal.int32, hal.BufferSpec(zero=a))
hal.Buffer(fake, N, hal.int32, hal.BufferSpec(nolru="yes"))
hal.Buffer(fake, N, hal.int32, hal.BufferSpec(image=[1, 2]))
hal.Buffer(fake, N, hal.int32, hal.BufferSpec(external_ptr=a))
hal.Buffer(fake, N, hal.int32, {"zero": True})
hal.Buffer(fake, N, hal.int32, a)
fake.allocator.alloc(8, a)
fake.allocator.alloc(8, hal.BufferSpec(host=a))
fake.allocator.free(a, 8)
fake.allocator.free(3, 8, [])
compiler.compile(None)
compiler.compile_or_reuse("text")
compiler.disassemble(3)
fake.load(hal.Binary(b"x", "fake", "", None))
fake.load(hal.Binary(None, "fake", "", program.binary.interface))
hal.config.declare(None, 1, "meaning", int)
hal.config.declare("HAL_X", 1, "meaning", None)
made[1.0:2.0]
made["a":]
made[a:]
made[1]
made[0:4:2]
made.__dlpack__(dl_device=("a", 1))
made.__dlpack__(copy=a)
made.__array__(copy=a)
hal.Buffer.from_dlpack(a, fake, copy=a)
hal.Buffer.from_dlpack(b"bytes", fake)
hal.Buffer.from_dlpack(None, fake)
hal.Buffer.from_numpy([[1, 2], [3]], fake)
hal.MultiBuffer.from_numpy([[1, 2], [3]], [fake])
hal.Buffer.from_numpy(on_gpu, fake)
hal.Source("f", "text", "y: int32*", language="c", offsets=a)
hal.Source("f", "text", "y: int32*", language="c", rendered=a)
program(made, vals=(N,), threads=N, wait=a)
hal.Graph(fake).replay(wait=a)
hal.Graph(fake).add(made)
hal.Graph(fake).copy(None, made)
hal.Graph(fake).copy(made, None)
hal.Graph(fake).fill(None, 1)
hal.Graph(fake)["fill"]
hal.Queue.wrap(a, fake)
hal.profile(0)
hal.profile_range(b"x")
hal.MultiBuffer([a], 4, hal.int32)
hal.MultiBuffer([None], 4, hal.int32)
hal.MultiBuffer([fake], 4, hal.int32).reduce(a)
hal.launch(SCALE, hal.MultiBuffer([fake], 4, hal.int32), vals=(N,), threads=N, wait=a)
hal.profile(limit=2**70)
hal.profile(limit=a)
hal.profile(limit=True)
hal.Event().wait(a)
hal.Event().wait("1")
fake.allocator.alloc(True)
fake.allocator.alloc(8.0)
program(made, vals=(N,), threads=N, shared=a)
hal.zeros(2, hal.complex64, fake).fill(hal.float32)
hal.Device.devices("CPU", kind=a)
hal.Device.get_available_devices(interpreters=a)
hal.Source("f", "text", "y: int32*", language="c", block=True)
hal.Source("f", "text", "y: int32*", language="c", work=2.0)
""".strip().splitlines()


@pytest.mark.parametrize("call", CALLS)
def test_an_argument_of_a_wrong_kind_is_refused(call, fake):
    made = hal.zeros(N, hal.int32, fake)
    names = {
        "hal": hal, "fake": fake, "N": N, "SCALE": SCALE, "made": made, "a": np.ones(2),
        "compiler": FakeCompiler(), "program": fake.compile(SCALE),
        "on_gpu": type("Tensor", (), {"__array__": lambda *_, **__: int([])})(),  # a TypeError
    }  # fmt: skip
    with pytest.raises(hal.InvalidArgument):
        eval(call, names)


def test_a_flag_may_be_of_numpy(fake):
    program, made = fake.compile(SCALE), hal.zeros(N, hal.int32, fake).fill(1)
    flags = [0, np.False_, 1, np.True_]
    given = [program(made, vals=(N,), threads=N, wait=flag) for flag in flags]
    assert [type(one) for one in given] == [type(None)] * 2 + [float] * 2
    assert made.numpy().tolist() == [16] * N
    options = hal.BufferSpec(zero=flags[3])
    assert hal.Buffer(fake, N, hal.int32, options).allocate().numpy().sum() == 0


def test_a_number_may_be_of_numpy(fake):
    n, block, allocator = np.int64(N), (np.int8(2), np.uint64(4)), fake.allocator
    allocator.free(allocator.alloc(n), n)
    assert allocator.statistics().live == 0
    with hal.profile(n) as profile:
        hal.zeros(N, hal.int32, fake)
    assert profile.dropped == 0
    made = hal.Source("f", "text", "", language="c", block=block, shared_nbytes=n, work=n)
    assert repr(made.interface) == repr(made.interface._replace(block=(2, 4, 1), work=N))
    assert type(made.interface.shared_nbytes) is int
    event = hal.Event()
    assert not any(event.wait(number) for number in (np.float32(0), np.int64(0), -np.inf))
    fake.compile(SCALE)(hal.zeros(N, hal.int32, fake), N, threads=N, shared=np.int64(0))


def test_what_a_closed_device_cannot_make_is_refused(fake):
    fake.close()
    makes = hal.Graph, lambda one: hal.Queue.wrap(1, one)
    for make in (*makes, lambda one: hal.MultiBuffer([one], 4, hal.int32)):
        with pytest.raises(hal.InvalidState, match="the device is closed"):
            make(fake)


# Before Python 3.12 `bytes` knows no protocol of a class, and asks for elements.
BYTES = [bytes] if sys.version_info >= (3, 12) else []


@pytest.mark.parametrize("read", [np.array, *BYTES, np.from_dlpack, lambda one: one.numpy()])
def test_data_is_not_read_and_work_not_waited_for_in_a_capture(read):
    device = hal.Device["PYTHON"]
    made = hal.zeros(N, hal.int32, device)
    for work in (lambda: read(made), device.synchronize):
        with device.capture(), pytest.raises(hal.InvalidState, match="while a graph is captured"):
            work()
