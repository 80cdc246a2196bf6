"""A kernel from its text to its result on a node, and the messages that this takes."""

import importlib.util
from pickle import PicklingError

import numpy as np
import pytest
from on_nodes import named, until

import hal_core as hal
from hal_core.dtypes import DTYPES
from hal_kernel.ir.listing import listing
from hal_testing.conformance.kernels import add_one

pytestmark = pytest.mark.results


@hal.kernel
def divide(y: hal.Ptr[hal.float32], x: hal.float32) -> None:
    y[0] = 1.0 / x


def messages(device):
    return int(device.connection.sent)


def test_every_node_lists_its_devices_by_name(cluster):
    infos = hal.Device.devices("RAY")
    titles = [info.title.partition(" (")[0] for info in infos]
    nodes = "head", "node-a", "node-b"
    npus = [f"{name} on {node}" for node in nodes for name in ("NPU", "NPU:1")]
    assert titles[:9] == [*npus, *(f"CPU on {node}" for node in nodes)]  # accelerators are first
    assert {info.vendor["device"] for info in infos} >= {"CPU", "PYTHON"}
    assert not any(info.host_visible for info in infos)


def test_a_device_that_checks_kernels_knows_the_end_of_a_buffer_and_what_was_written(cluster):
    there = hal.Device[named("PYTHON", "node-b")]
    add = there.compile(add_one)
    hal.zeros(10, hal.int32, there)  # it goes at once: the next block may be this one
    y = hal.empty(10, hal.int32, there)
    for error, n in ((hal.KernelFault, 10), (hal.OutOfBounds, 11)):
        with pytest.raises(error):
            add(y, vals=(n,), threads=n)
            there.synchronize()
        y.fill(0)
    there.close()


def test_launches_copies_and_fills_travel_in_one_message(device):
    program = device.compile(add_one)
    y, z = (hal.empty(100, hal.int32, device) for _ in range(2))
    program(y, vals=(100,), threads=100)
    device.synchronize()
    before = messages(device)
    y.copyin(np.zeros(100, "i4"))
    program(y, vals=(100,), threads=100)
    z.fill(5)
    y[:50].copy_from(z[50:])
    assert z.numpy()[0] == 5  # the question is in it, too
    assert messages(device) - before <= 2  # a pause of this process of 1 ms makes a second one
    assert y.numpy().tolist() == [5] * 50 + [1] * 50


def test_a_thousand_launches_are_few_messages(device):
    program = device.compile(add_one)
    y = hal.zeros(10, hal.int32, device)
    program(y, vals=(10,), threads=10)
    device.synchronize()
    before = messages(device)
    for _ in range(1000):
        program(y, vals=(10,), threads=10)
    device.synchronize()
    assert 3 <= messages(device) - before <= 40  # a pause of 1 ms makes one more
    assert y.numpy().tolist() == [1001] * 10


def test_a_loop_without_a_wait_does_not_fill_the_memory_of_the_actor(device):
    device.connection.most_commands, device.connection.largest = 320, 64
    program, y = device.compile(add_one), hal.zeros(10, hal.int32, device)
    program(y, vals=(10,), threads=10)
    most = 0
    for _ in range(1000):
        program(y, vals=(10,), threads=10)
        most = max(most, device.connection._unanswered)
    assert 128 < most <= 384 and y.numpy().tolist() == [1001] * 10
    device.close()


@pytest.mark.parametrize("kind", ["in the message", "through the store", "from the other device"])
def test_a_loop_of_copies_does_not_fill_messages_and_object_stores(
    device, other, monkeypatch, kind
):
    device.connection.most_carried, device.connection.most_on_the_way = 64 << 10, 1 << 20
    nbytes = (32 << 10) if kind == "in the message" else (128 << 10)
    data, sizes = np.ones(nbytes, np.uint8), [0]
    y, x = hal.zeros(nbytes, hal.uint8, device), hal.Buffer.from_numpy(data, other)
    post, most = device.connection._tell, 0

    def noted(message, *puts):
        sizes.append(len(message))
        post(message, *puts)

    monkeypatch.setattr(device.connection, "_tell", noted)
    for _ in range(80):
        if kind == "from the other device":
            y.copy_from(x)
        else:
            y.copyin(data)
        most = max(most, device.connection._on_the_way)
    assert (1 << 20) < most <= (1 << 20) + nbytes and max(sizes) < (200 << 10)
    assert np.array_equal(y.numpy(), data)
    device.close()


def test_launches_that_are_known_there_have_their_own_numbers_and_memory(device):
    """An actor keeps launches that are ready: 0.0 is no -0.0, and freed memory is given back."""
    program, before = device.compile(divide), device.statistics_there()
    spec = hal.BufferSpec(nolru=True)
    for number in (0.0, -0.0, 2.0):
        y = hal.Buffer(device, 1, hal.float32, spec).allocate()
        for signed in (number, -number):
            program(y, vals=(signed,), threads=1)
            with np.errstate(divide="ignore"):
                assert y.numpy()[0] == np.float32(1) / np.float32(signed)
        del y
    assert device.statistics_there().current == before.current


def test_a_command_is_sent_after_a_millisecond(device):
    y = hal.zeros(10, hal.int32, device)
    device.synchronize()
    before = messages(device)
    y.fill(3)
    until(lambda: messages(device) != before, "it was not sent")
    assert messages(device) == before + 1


def test_a_replay_of_a_graph_is_one_message(device):
    program = device.compile(add_one)
    y = hal.zeros(100, hal.int32, device)
    with device.capture() as graph:
        for _ in range(200):
            program(y, vals=(100,), threads=100)
    graph.replay(wait=True)
    before = messages(device)
    graph.replay(wait=True)
    assert messages(device) - before <= 2
    assert y.numpy().tolist() == [400] * 100


def test_a_backend_that_only_the_node_has_renders_there(npu):
    """The kernel arrives with its line numbers and without contraction."""
    assert importlib.util.find_spec("ray_npu") is None
    exact = hal.kernel(contract=False)(add_one.__wrapped__)
    program, y = npu.compile(exact), hal.zeros(8, hal.int32, npu)
    program(y, vals=(8,), threads=8)
    assert y.numpy().tolist() == [1] * 8
    assert program.source == listing(exact.lower()) and npu.supports(hal.bfloat16)


def test_what_the_nodes_renderer_refuses_names_the_device_here(npu):
    kernel = add_one.lower()
    reserved = kernel._replace(name="half", signature=kernel.signature._replace(name="half"))
    with pytest.raises(hal.Unsupported, match="as text of the NPU") as caught:
        npu.compile(reserved)
    assert caught.value.device == npu.name and caught.value.got == "half"


def test_a_kernel_that_cannot_travel_leaves_the_device_usable(npu):
    with pytest.raises((TypeError, AttributeError, PicklingError), match="pickle"):
        npu.renderer.render(lambda: None)
    assert npu.compile(add_one.lower()).source == listing(add_one.lower())


def test_a_renderer_that_changed_on_the_node_gives_its_new_code(npu):
    """The cache on this side has the binary of the text that was written before."""

    def change(host):
        old = host._device.compilers[0]

        class Changed(old.renderer):
            def render(self, kernel):
                text = super().render(kernel)
                return text.replace("CONST int32 1", "CONST int32 2")

        host._device.compilers[0] = old._replace(renderer=Changed)

    for added in (1, 2):
        y = hal.zeros(8, hal.int32, npu)
        npu.compile(add_one.lower())(y, vals=(8,), threads=8)
        assert y.numpy().tolist() == [added] * 8
        npu.connection.ray.get(npu.connection.actor.__ray_call__.remote(change))


def test_dtypes_are_those_of_the_nodes_compiler(device, monkeypatch):
    for name in ("llvm", "clang"):
        monkeypatch.setenv("RAY_CC", name)
        monkeypatch.setenv("CPU_CC", name)
        assert [*map(device.supports, DTYPES.values())] == [
            *map(hal.Device["CPU"].supports, DTYPES.values())
        ]


@pytest.mark.parametrize("nbytes", [4, 4 << 10, 1 << 20, 5 << 20])
def test_transfers_go_from_actor_to_actor(device, other, nbytes, monkeypatch):
    """T1: no byte of the data comes here."""
    import ray

    from hal_ray.allocator import RayAllocator

    data = np.random.default_rng(1).integers(0, 255, nbytes, np.uint8)
    here = hal.Buffer.from_numpy(data, device)
    there = hal.empty(nbytes, hal.uint8, other)
    device.synchronize()
    with monkeypatch.context() as patch:
        for name in ("_copyin", "_copyout"):
            patch.setattr(RayAllocator, name, lambda *args: pytest.fail("through this process"))
        patch.setattr(ray, "put", lambda *args: pytest.fail("through this process"))
        there.copy_from(here)
        here.fill(7)  # comes after the copy
        other.synchronize()
    assert np.array_equal(there.numpy(), data) and set(here.numpy()) == {7}


def test_statistics_are_of_the_real_device(device):
    before = device.statistics_there()
    spec = hal.BufferSpec(nolru=True)
    y = hal.Buffer(device, 1 << 20, hal.uint8, spec).allocate()
    assert device.statistics_there().current - before.current == 1 << 20
    del y
    assert device.statistics_there().current == before.current
