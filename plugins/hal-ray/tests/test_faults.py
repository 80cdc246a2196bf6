"""Tests of failures: deaths, refusals, limits; one clear error in time, and the others go on."""

import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from ctrl_c import raise_in_handler
from on_nodes import IN_TIME, fail_there, lives, named, until

import hal_core as hal
from hal_ray import driver
from hal_testing.conformance.kernels import add_one


def adds_up(device):
    y = hal.zeros(100, hal.int32, device)
    device.compile(add_one)(y, vals=(100,), threads=100)
    return y.numpy().tolist() == [1] * 100


@pytest.fixture(params=["read", "copy to another", "allocate", "compile"])
def use(request, other):
    """Things that wait for a device."""
    uses = {
        "read": lambda device, y: y.numpy(),
        "copy to another": lambda device, y: (
            hal.empty(100, hal.int32, other).copy_from(y), other.synchronize(),
        ),
        "allocate": lambda device, y: hal.empty(1 << 20, hal.int32, device),
        "compile": lambda device, y: device.compile(hal.Source("k", "", "y: int32*", language="c")),
    }  # fmt: skip
    return uses[request.param]


def test_a_dead_actor_is_a_fault_that_says_what_was_lost(device, other, use):
    y, program = hal.zeros(100, hal.int32, device), device.compile(add_one)
    program(y, vals=(100,), threads=100)
    device.synchronize()
    os.kill(device.process, signal.SIGKILL)
    begin = time.monotonic()
    with pytest.raises(hal.DeviceFault) as caught:
        use(device, y)
    assert time.monotonic() - begin < IN_TIME
    if caught.value.device == device.name:
        for part in ("head (CPU) is lost", "1 buffers of 400 bytes", " programs"):
            assert part in str(caught.value)
    else:  # the other device tells that it got nothing
        assert "died" in str(caught.value) or "lost" in str(caught.value)
    if other.connection.fault is None:
        other.synchronize()
    assert adds_up(other)
    if device.connection.fault is None:  # nobody has waited for it so far
        with pytest.raises(hal.DeviceFault, match="is lost"):
            device.synchronize()
    device.close()
    again = hal.Device[device.name]
    assert again is not device and adds_up(again)
    with pytest.raises(hal.InvalidState, match="closed"):
        program(y, vals=(100,), threads=100)
    fresh = again.compile(add_one)
    with pytest.raises(hal.InvalidState, match="argument 'y': the device is closed"):
        fresh(y, vals=(100,), threads=100)


def test_a_device_that_is_closed_has_given_what_others_copy(device, other):
    x, y = hal.zeros(1 << 20, hal.uint8, device).fill(7), hal.empty(1 << 20, hal.uint8, other)
    y.copy_from(x)
    device.close()
    assert (y.numpy() == 7).all()


def test_work_after_a_known_fault_is_refused_and_closing_is_quiet(device):
    y, program = hal.zeros(100, hal.int32, device), device.compile(add_one)
    os.kill(device.process, signal.SIGKILL)
    with pytest.raises(hal.DeviceFault):
        device.synchronize()
    for refused in (
        lambda: program(y, vals=(100,), threads=100), lambda: y.fill(1), lambda: y.numpy(),
        lambda: hal.empty(1 << 20, hal.int32, device), device.synchronize, device.synchronize,
    ):  # fmt: skip
        with pytest.raises(hal.DeviceFault, match="is lost"):
            refused()
    device.close()


def test_a_queue_tells_the_fault_of_its_device(device, other):
    queue, program = device.queue(), device.compile(add_one)
    y = hal.zeros(100, hal.int32, device)
    program(y, vals=(100,), threads=100, queue=queue)
    queue.synchronize()
    os.kill(device.process, signal.SIGKILL)
    program(y, vals=(100,), threads=100, queue=queue)
    with pytest.raises(hal.DeviceFault, match="is lost"):
        queue.record().wait(IN_TIME)
    assert adds_up(other)


def test_errors_keep_their_class_and_text(device):
    def limit(host):
        host._device.allocator.limit = 1 << 20

    ray = device.connection.ray
    ray.get(device.connection.actor.__ray_call__.remote(limit))
    try:
        with pytest.raises(hal.OutOfMemory) as caught:
            hal.empty(8 << 20, hal.uint8, device)
        assert "limit 1048576 (1 MiB)" in str(caught.value.__cause__)
        assert str(caught.value.__cause__).endswith(f" This is {device.name}, head (CPU).")
    finally:
        device.close()


def test_what_others_have_reserved_cannot_be_opened(device, monkeypatch):
    """The processor of the head has one core, and it is in use."""
    monkeypatch.setenv("HAL_RAY_SECONDS", "2")
    begin = time.monotonic()
    with pytest.raises(hal.DeviceUnavailable, match=r"node head.*num_cpus=1.*HAL_RAY_CPUS"):
        hal.Device[named("PYTHON", "head")]
    assert time.monotonic() - begin < 15
    assert adds_up(device)


def test_a_node_that_joins_is_listed_and_one_that_leaves_is_a_fault(cluster, device):
    before = [info.title for info in hal.Device.devices("RAY")]
    node = cluster.add_node(
        node_name="node-c", num_cpus=1, object_store_memory=100 << 20, node_ip_address="127.0.0.2"
    )
    try:
        assert [info.title for info in hal.Device.devices("RAY")] == before
        hal.Device.refresh()
        name = named("CPU", "node-c")
        assert device.info.title in [info.title for info in hal.Device.devices("RAY")]
        # The numbers have changed: a device that is open keeps its own until it is closed.
        there = driver_device(name)
        y = hal.zeros(100, hal.int32, there)
        there.synchronize()
        cluster.remove_node(node)
        begin = time.monotonic()
        with pytest.raises(hal.DeviceFault, match=r"node-c \(CPU\) is lost, with 1 buffers"):
            y.numpy()
        assert time.monotonic() - begin < IN_TIME
        there.close()
        with pytest.raises(hal.DeviceUnavailable, match=r"refresh|node-c"):
            driver_device(name)
    finally:
        if node in cluster.list_all_nodes():
            cluster.remove_node(node)
        hal.Device.refresh()
    until(lambda: [i.title for i in relisted()] == before, "the node is still listed")
    assert adds_up(device)


def driver_device(name):
    """Open a device of that number, beside the one that may be open with it."""
    known = hal.Device._devices.pop(name, None)
    backend = hal.Device.backend("RAY")
    backend.open_devices.pop(name, None)
    try:
        return hal.Device[name]
    finally:
        opened = hal.Device._devices.pop(name, None)
        backend.open_devices.pop(name, None)
        if known is not None:
            hal.Device._devices[name] = backend.open_devices[name] = known
        del opened


def relisted():
    hal.Device.refresh()
    return hal.Device.devices("RAY")


@pytest.fixture
def listed_anew(cluster):
    hal.Device.refresh()
    yield
    hal.Device.refresh()


def test_nodes_of_another_version_are_refused_by_name(listed_anew, monkeypatch):
    monkeypatch.setattr(driver, "__version__", "9.9")
    with pytest.raises(hal.DeviceUnavailable, match=r"node-a: hal-core .* there, and 9.9 .* here"):
        hal.Device.devices("RAY")
    checks = hal.Device.backend("RAY").doctor()
    assert {c.title for c in checks if not c.ok} == {"node head", "node node-a", "node node-b"}


@pytest.mark.parametrize("lacks", ["backends", "hal-ray"])
def test_a_node_without_plugins_is_named_and_stops_no_other(cluster, listed_anew, tmp_path, lacks):
    env = {"HAL_PLUGINS": "NOTHING"}
    if lacks == "hal-ray":
        (tmp_path / "hal_ray").mkdir()
        (tmp_path / "hal_ray" / "__init__.py").write_text("raise ImportError('no hal-ray')\n")
        env = {"PYTHONPATH": str(tmp_path)}
    node = cluster.add_node(
        node_name="bare", num_cpus=1, object_store_memory=100 << 20,
        node_ip_address="127.0.0.2", env_vars=env,
    )  # fmt: skip
    try:
        assert {one.vendor["node"] for one in relisted()} == {"head", "node-a", "node-b"}
        checks = {check.title: check for check in hal.Device.backend("RAY").doctor()}
        assert not checks["node bare"].ok and checks["node head"].ok
        if lacks == "hal-ray":
            assert "no hal-ray" in checks["node bare"].detail
    finally:
        cluster.remove_node(node)


def test_a_full_object_store_is_out_of_memory(device, monkeypatch):
    ray = device.connection.ray

    def full(data):
        raise ray.exceptions.ObjectStoreFullError("no room")

    y = hal.zeros(1 << 20, hal.uint8, device)
    with monkeypatch.context() as patch:
        patch.setattr(ray, "put", full)
        with pytest.raises(
            hal.OutOfMemory, match=r"copyin: the object store is full.*Copy in parts"
        ):
            y.copyin(bytes(1 << 20))
    assert not y.numpy().any() and adds_up(device)


def test_a_copy_that_is_larger_than_the_object_store_arrives(device):
    """The store has 120 MiB; Ray puts the rest on the disk."""
    data = np.random.default_rng(1).integers(0, 255, 150 << 20, np.uint8)
    y = hal.Buffer.from_numpy(data, device)
    assert np.array_equal(y.numpy(), data)
    y.deallocate()
    device.allocator.free_cache()


CHILD = """
import sys, time
import ray
import hal_core as hal
ray.init(address={address!r}, log_to_driver=False, logging_level="ERROR")
name, = [one.name for one in hal.Device.devices("RAY")
         if one.vendor["device"] == "NPU" and one.vendor["node"] == "node-b"]
device = hal.Device[name]
y = hal.zeros(100, hal.int32, device)
print(device.process, flush=True)
"""


def test_the_end_of_the_driver_frees_everything(cluster):
    code = CHILD.format(address=cluster.address) + "time.sleep(60)\n"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert child.stdout is not None
        process = int(child.stdout.readline())
        assert lives(process)
    finally:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()
    until(lambda: not lives(process), "the actor lives on")


ADD_ONE = """
import hal_core as hal

@hal.kernel
def add_one(y: hal.Ptr[hal.int32], n: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] = y[i] + 1
"""
LEFT = """
ray.shutdown()
ray.init(address={address!r}, log_to_driver=False, logging_level="ERROR")
again = None
def launch():
    again.compile(add_one)(y, vals=(100,), threads=100)
def copy():
    hal.zeros(100, hal.int32, again).copy_from(y)
for use in (y.numpy, launch, copy):
    try:
        if use is launch:
            device.close()
            again = hal.Device[name]
        use()
    except hal.HalError as error:
        print(type(error).__name__, error)
print(int(hal.zeros(9, hal.int32, again).numpy().sum()))
"""


def test_memory_of_a_cluster_that_was_left_is_refused_on_another(cluster, tmp_path):
    program = tmp_path / "left.py"  # kernels are read from their file
    program.write_text(ADD_ONE + CHILD.format(address=cluster.address)
                       + LEFT.format(address=cluster.address))  # fmt: skip
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120)
    _, fault, launch, copy, zero = done.stdout.splitlines()
    assert fault.startswith("DeviceFault") and "left the cluster" in fault, done.stderr
    assert launch.startswith("InvalidState") and "argument 'y': the device is closed" in launch
    assert copy.startswith("InvalidState") and "closed" in copy and zero == "0"


ENDS = """
hal.Buffer(device, 100, hal.int32, hal.BufferSpec(nolru=True)).allocate()
y = y.numpy()  # what is freed here is freed there by the next message
ray.shutdown()
time.sleep(float(sys.argv[1]))
"""


@pytest.mark.parametrize("seconds", ["0", "0.1"], ids=["at once", "after messages"])
def test_a_program_may_leave_the_cluster_and_end_with_an_idle_device(cluster, seconds):
    code = CHILD.format(address=cluster.address) + ENDS
    done = subprocess.run(
        [sys.executable, "-c", code, seconds], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_cluster_that_gave_its_job_the_same_number_is_another(device, monkeypatch):
    """There `ray.kill` would end this process after a minute."""

    def not_found(*message):
        raise Exception("Can't find actor. It might be dead or it's from a different cluster")

    ray, y = device.connection.ray, hal.zeros(100, hal.int32, device)
    device.synchronize()
    number = ray.get_runtime_context().get_job_id()
    there = SimpleNamespace(get_job_id=lambda: number, get_node_id=lambda: "another")
    with monkeypatch.context() as patch:
        patch.setattr(ray, "get_runtime_context", lambda: there)
        patch.setattr(device.connection, "_ask", not_found)
        patch.setattr(ray, "kill", lambda actor: pytest.fail("an actor of another cluster"))
        with pytest.raises(hal.DeviceFault, match="left the cluster"):
            y.numpy()
        device.close()
    device.connection.close()


TERMINATED = """
import os, signal, threading
import ray
import hal_core as hal
ray.init(address={address!r}, log_to_driver=False, logging_level="ERROR")
of_head = {{one.vendor["device"]: one.name for one in hal.Device.devices("RAY")
           if one.vendor["node"] == "head"}}
busy = hal.Device[of_head["CPU"]]
threading.Timer(1, os.kill, (os.getpid(), signal.SIGTERM)).start()
try:
    hal.Device[of_head["PYTHON"]]  # waits for the core of the head
except Exception as error:
    print(error)
print("still here")
"""


def test_SIGTERM_while_a_device_opens_ends_the_program(cluster, device):
    device.close()
    code = TERMINATED.format(address=cluster.address)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr


def test_what_a_handler_raises_as_ray_unpacks_an_answer_loses_no_device(device, monkeypatch):
    ray, y = device.connection.ray, hal.zeros(4, hal.int32, device)

    def get(*_, timeout=None):
        monkeypatch.undo()
        try:
            raise_in_handler(TimeoutError("rang"))
        except TimeoutError as error:
            raise ray.exceptions.RaySystemError(error, "its traceback") from None

    monkeypatch.setattr(ray, "get", get)
    with pytest.raises(TimeoutError, match="rang"):
        y.numpy()
    assert y.numpy().tolist() == [0] * 4


@pytest.mark.parametrize("sent", [False, True], ids=["before it is sent", "after it was sent"])
@pytest.mark.parametrize("post", ["_tell", "_ask"])
def test_Ctrl_C_in_a_message_loses_nothing_and_repeats_nothing(device, post, sent, monkeypatch):
    program, y = device.compile(add_one), hal.zeros(100, hal.int32, device)
    program(y, vals=(100,), threads=100)
    device.synchronize()
    real, armed, count = getattr(device.connection, post), [True], 1

    def interrupted(*message):
        if armed and threading.current_thread() is threading.main_thread():
            armed.clear()
            if sent:
                real(*message)
            raise KeyboardInterrupt
        return real(*message)

    monkeypatch.setattr(device.connection, post, interrupted)
    with pytest.raises(KeyboardInterrupt):
        while True:
            count += 1
            program(y, vals=(100,), threads=100)
            if post == "_ask":
                device.synchronize()
    device.synchronize()
    assert y.numpy().tolist() == [count] * 100


def test_a_failure_is_told_once_after_a_wait_that_Ctrl_C_ended(npu, monkeypatch):
    def interrupted(*answer, **how):
        raise KeyboardInterrupt

    y, program = hal.zeros(8, hal.int32, npu), npu.compile(add_one)
    fail_there(npu)
    program(y, vals=(8,), threads=8)
    with monkeypatch.context() as patch:
        patch.setattr(npu.connection.ray, "get", interrupted)
        with pytest.raises(KeyboardInterrupt):
            npu.synchronize()
    with pytest.raises(hal.DeviceFault, match="add_one"):
        npu.synchronize()
    y.fill(4)
    assert y.numpy().tolist() == [4] * 8  # told once


def test_what_is_of_this_process_cannot_travel(device):
    with pytest.raises(hal.Unsupported, match=r"program.binary"):
        device.connection.ray.put(device.compile(add_one))
