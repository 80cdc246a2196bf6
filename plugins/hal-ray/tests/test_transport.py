"""T1: copies by Ray's direct transport, on processors; and by the object store where it is not."""

import sys
from importlib.util import find_spec

import numpy as np
import pytest

import hal_core as hal
from hal_ray import driver

NIXL = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("nixl") is None,
    reason="torch and nixl are not installed; nox -s transport has them",
)


@pytest.fixture
def pair(cluster, monkeypatch):
    """Processors of two nodes, opened to copy by nixl."""
    monkeypatch.setenv("HAL_RAY_TRANSPORT", "nixl")
    names = [
        one.name
        for one in hal.Device.devices("RAY")
        if one.vendor["device"] == "CPU" and one.vendor["node"] != "head"
    ]
    for name in names:
        if name in hal.Device._devices:
            hal.Device[name].close()  # it was opened without
    opened = [hal.Device[name] for name in names]
    yield opened
    for one in opened:
        one.close()


def there(device, work):
    """Do work in the actor of a device, on its host object."""
    connection = device.connection
    cloudpickle = connection.ray.cloudpickle
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # it cannot import this file
    return connection.ray.get(connection.actor.__ray_call__.remote(work))


def count_tensors(host):
    receive, host.received = host._receive, 0

    def counted(ref, view):
        host.received += 1
        receive(ref, view)

    host._receive = counted


def refuse_tensors(host):
    def refuse(view):
        raise ImportError("no torch here")

    host._tensor = refuse


def break_transport(host):
    import ray

    def broken(ref, target):
        raise RuntimeError("the network does not do it")

    ray.experimental.set_target_for_ref = broken


def copies(source, dest, nbytes):
    """Copy a part that begins at an odd byte; overwrite its source behind the copy."""
    data = np.random.default_rng(nbytes).integers(0, 255, nbytes + 9, np.uint8)
    here, into = (hal.empty(data.size, hal.uint8, device) for device in (source, dest))
    here.copyin(data)
    into.fill(5)
    into[2 : 2 + nbytes].copy_from(here[7 : 7 + nbytes])
    here.fill(1)
    wanted = np.full(data.size, 5, np.uint8)
    wanted[2 : 2 + nbytes] = data[7 : 7 + nbytes]
    return np.array_equal(into.numpy(), wanted) and set(here.numpy()) == {1}


@NIXL
@pytest.mark.parametrize("nbytes", [1, 4 << 10, 5 << 20])
def test_T1_data_goes_by_the_transport(pair, nbytes):
    one, two = pair
    there(two, count_tensors)
    assert two.transport_from(one) == "nixl"
    assert copies(one, two, nbytes) and copies(two, one, nbytes)
    assert there(two, lambda host: host.received) == 1


@NIXL
def test_T1_a_transport_that_fails_leaves_the_copy_to_the_object_store(pair):
    one, two = pair
    there(two, break_transport)
    assert two.transport_from(one) == "nixl" and copies(one, two, 3 << 20)
    two.synchronize()


def test_T1_where_one_node_lacks_the_transport_the_object_store_serves(pair):
    there(pair[0], refuse_tensors)
    for one, two in (pair, pair[::-1]):  # the source lacks it, then the destination
        assert two.transport_from(one) == "" and copies(one, two, 1 << 20)


def test_a_transport_is_asked_for_and_one_that_nobody_knows_is_left(pair, monkeypatch):
    monkeypatch.delenv("HAL_RAY_TRANSPORT")
    assert driver.TRANSPORT.read() == "" and pair[1].transport_from(pair[0]) == ""
    monkeypatch.setenv("HAL_RAY_TRANSPORT", "pigeons")
    assert pair[1].transport_from(pair[0]) == "" and copies(*pair, 1000)
