"""M1: buffers over several devices give what numpy gives, and their failures name a device."""

import copy
import functools
import itertools
import math
import operator
import threading
from importlib.util import find_spec
from pickle import dumps, loads

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from slices import usual

import hal_core as hal
from hal_core.dtypes import DTYPES
from hal_testing.conformance.forked import findings_of_child
from hal_testing.fake import FakePlugin

FAST = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
FIVE = ["SIM", "SIM:1", "SIM:2", "SIM:3", "SIM:4"]
NAMES = FIVE[:3]


@pytest.fixture
def five_devices():
    hal.Device.register_plugin("SIM", FakePlugin(5))
    opened = [hal.Device[name] for name in FIVE]
    yield opened
    for device in opened:
        device.chip.lost = False
        device.close()


@pytest.fixture
def devices(five_devices):
    return five_devices[:3]


@hal.kernel
def twice(y: hal.Ptr[hal.int32], n: hal.int32, extra: hal.int32) -> None:
    i = hal.global_idx(0)
    if i < n:
        y[i] = 2 * y[i] + extra


@st.composite
def layouts(draw, shape, devices=NAMES):
    """Devices in any order, an axis or none, and sizes: equal ones, or any with that sum."""
    names = draw(st.permutations(devices))[: draw(st.integers(1, len(devices)))]
    axis = draw(st.sampled_from([None, *range(len(shape))]))
    if axis is None or draw(st.booleans()):
        return names, axis, None
    ends = sorted(draw(st.integers(0, shape[axis])) for _ in names[1:])
    cuts = [0, *ends, shape[axis]]
    return names, axis, [b - a for a, b in itertools.pairwise(cuts)]


shapes = st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple)


@FAST
@given(data=st.data())
def test_M1_every_layout_holds_the_array(data, devices):
    shape = data.draw(shapes)
    array = np.random.default_rng(0).integers(-9, 9, shape).astype("i4")
    names, axis, sizes = data.draw(layouts(shape))
    multi = hal.MultiBuffer.from_numpy(array, names, axis, sizes)
    assert [buffer.device for buffer in multi.bufs] == names and multi.nbytes == array.nbytes
    np.testing.assert_array_equal(multi.numpy(), array)
    parts = [multi.numpy()] * len(names)
    if axis is not None:
        cuts = np.cumsum([shard.size for shard in multi.shards])[:-1]
        parts = np.split(array, cuts, axis)
    for shard, part in zip(multi.shards, parts, strict=True):
        assert shard.shape == part.shape
        if part.size:
            np.testing.assert_array_equal(shard.buffer.numpy(shard.shape), part)


@FAST
@given(data=st.data())
def test_M1_a_layout_becomes_any_other(data, devices):
    shape = data.draw(shapes)
    array = np.random.default_rng(1).integers(-9, 9, shape).astype("i2")
    names, axis, sizes = data.draw(layouts(shape))
    others, other, other_sizes = data.draw(layouts(shape))
    multi = hal.MultiBuffer.from_numpy(array, names, axis, sizes)
    made = multi.reshard(other, others, other_sizes)
    assert made.axis == other and [one.device for one in made.bufs] == others
    np.testing.assert_array_equal(made.numpy(), array)
    if other is None and array.size:
        for buffer in made.bufs:
            np.testing.assert_array_equal(buffer.numpy(shape), array)
    np.testing.assert_array_equal(multi.numpy(), array)


# Every sum and product of a few of them is exact in each dtype, or infinite, or not a number.
NUMBERS = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0]
FOLDS = {  # as kernel-language.md has it
    "sum": operator.add,
    "prod": operator.mul,
    "min": lambda a, b: np.where(b < a, b, a),
    "max": lambda a, b: np.where(b > a, b, a),
}
NUMERIC = [
    dtype
    for dtype in DTYPES.values()
    if dtype.kind in "iuf" and (dtype is not hal.bfloat16 or find_spec("ml_dtypes"))
]


def drawn_array(data, dtype):
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple))
    seed = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    if dtype.kind == "f":
        return seed.choice(NUMBERS, shape).astype(dtype.to_numpy())
    least, most = int(dtype.min), int(dtype.max)
    return seed.integers(least, most, shape, dtype.to_numpy(), endpoint=True)


@FAST
@given(data=st.data(), operation=st.sampled_from(list(FOLDS)), dtype=st.sampled_from(NUMERIC))
def test_M1_a_reduction_has_the_bits_of_the_uncut_one_wherever_it_is_cut(
    data, operation, dtype, five_devices
):
    array = drawn_array(data, dtype)
    names, axis, sizes = data.draw(
        layouts(array.shape, FIVE).filter(lambda one: one[1] is not None)
    )
    made = hal.MultiBuffer.from_numpy(array, names, axis, sizes).reduce(operation)
    with np.errstate(all="ignore"):
        expected = functools.reduce(FOLDS[operation], np.moveaxis(array, axis, 0))
    if operation in ("sum", "prod") and dtype.is_float:
        expected = np.where(np.isnan(expected), array.dtype.type(np.nan), expected)
    for buffer in made.bufs:
        found = buffer.numpy(expected.shape)
        if operation in ("sum", "prod") and dtype.is_float:  # of a NaN's bits IEEE says nothing
            found = np.where(np.isnan(found), array.dtype.type(np.nan), found)
        assert found.tobytes() == expected.astype(array.dtype).tobytes()


@pytest.mark.parametrize("dtype", [one for one in NUMERIC if one.is_float], ids=str)
def test_M1_a_sum_of_floats_is_within_the_documented_bound(dtype, five_devices):
    array = np.random.default_rng(5).standard_normal((60, 3)).astype(dtype.to_numpy())
    exact = array.astype("f8")
    bits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[dtype.name]
    bound = 60 * 2.0**-bits * np.abs(exact).sum(axis=0)
    for sizes in ([60, 0, 0, 0, 0], [1, 2, 0, 7, 50], [12] * 5):
        found = hal.MultiBuffer.from_numpy(array, FIVE, 0, sizes).reduce().numpy()
        assert (np.abs(found.astype("f8") - exact.sum(axis=0)) <= bound).all()


@pytest.mark.parametrize(
    ("shape", "axis", "sizes", "problem"),
    [(-1, 0, None, "shape must be integers"), ("ab", 0, None, "shape must be integers"),
     ({4}, 0, None, "shape must be integers"), ((2, 2.0), 0, None, "shape must be integers"),
     (4, 1, None, "no such axis"), ((2, 2), -3, None, "no such axis"),
     ((), 0, None, "no such axis"), (4, True, None, "no such axis"),
     (4, 0, [1, 2, 2], "sizes do not fit"), (4, 0, [4], "sizes do not fit"),
     (6, 0, {1, 2, 3}, "sizes do not fit"), (4, 0, [5, -1, 0], "sizes do not fit"),
     (5, 0, [True, 4, 0], "sizes do not fit"),
     (4, None, [4, 4, 4], "sizes need an axis")],
)  # fmt: skip
def test_M1_shards_that_do_not_divide_are_refused(shape, axis, sizes, problem, devices):
    with pytest.raises(hal.InvalidArgument, match=problem):
        hal.MultiBuffer(devices, shape, hal.int8, axis, sizes)


def test_M1_the_axis_may_be_of_numpy(devices):
    multi = hal.MultiBuffer(devices, (3, 6), hal.int8, np.int64(-1)).fill(1)
    assert multi.axis == 1 and multi.reshard(np.int8(0)).axis == 0


def test_M1_host_memory_of_another_size_is_refused(devices):
    multi = hal.MultiBuffer(devices, (3, 2), hal.int16).fill(7)
    for wrong in (bytes(11), bytes(13), np.zeros((3, 3), "i2")):
        with pytest.raises(hal.InvalidArgument, match="the sizes differ .*expected 12 bytes"):
            multi.copyin(wrong)
    with pytest.raises(hal.InvalidArgument, match="read-only"):
        multi.copyout(bytes(12))
    assert (multi.numpy() == 7).all()
    out = bytearray(12)
    assert multi.copyout(out) is out and out == b"\7\0" * 6


@pytest.mark.parametrize("written", [0, 1])
def test_M1_memory_that_nothing_has_written_is_not_read(written, devices):
    multi = hal.MultiBuffer(devices, 4, hal.int32)
    for buffer in multi.bufs[:written]:
        buffer.fill(1)
    reads = [
        multi.numpy, lambda: multi.copyout(bytearray(16)), multi.reduce,
        lambda: multi.reshard(None), lambda: multi.reshard(0, sizes=[0, 4, 0]),
    ]  # fmt: skip
    for read in reads:
        with pytest.raises(hal.InvalidState, match="was never allocated, so it holds nothing"):
            read()
    for buffer in multi.bufs[written:]:
        buffer.fill(1)
    assert multi.numpy().tolist() == [1, 1, 1, 1]


def test_M1_a_reduction_needs_an_axis_and_numbers(devices):
    with pytest.raises(hal.InvalidArgument, match="every device has all elements"):
        hal.MultiBuffer(devices, 4, hal.int8, None).fill(0).reduce()
    with pytest.raises(hal.InvalidArgument, match="no such operation .*sum, prod, min, max"):
        hal.MultiBuffer(devices, 4, hal.int8).fill(0).reduce("mean")
    with pytest.raises(hal.InvalidArgument, match="bools have no arithmetic"):
        hal.MultiBuffer(devices, 4, hal.bool_).fill(False).reduce()
    pairs = hal.MultiBuffer(devices, (4, 1), hal.as_dtype("float32x2")).fill([1, 2])
    assert pairs.numpy().tolist() == [[[1, 2]]] * 4
    with pytest.raises(hal.InvalidArgument, match="reduce: not a number's dtype"):
        pairs.reduce()


# -- launches


def test_M1_a_launch_runs_each_part_on_its_device(devices):
    array = np.arange(11, dtype="i4")
    multi = hal.MultiBuffer.from_numpy(array, devices, sizes=[6, 0, 5])
    seen = []

    def count(shard):
        seen.append((shard.number, shard.device.name, shard.start, shard.size))
        return shard.size

    hal.launch(twice, multi, vals=lambda shard: (shard.size, shard.number), threads=count)
    for _ in range(2):
        hal.launch(
            twice, multi, count, lambda shard: shard.number, threads=lambda shard: shard.size
        )
    extra = np.repeat([0, 2], [6, 5]) * 7
    np.testing.assert_array_equal(multi.numpy(), array * 8 + extra)
    assert seen[:3] == [(0, "SIM", 0, 6), (1, "SIM:1", 6, 0), (2, "SIM:2", 6, 5)]


def test_M1_all_are_started_before_one_is_waited_for(devices):
    """Each device's launch waits until those of the others have begun."""
    met = threading.Barrier(3, timeout=20)
    multi = hal.MultiBuffer(devices, 3, hal.int32).fill(1)
    for device in devices:
        inner = device.chip.launch
        device.chip.launch = lambda *args, inner=inner: (met.wait(), inner(*args))[1]
    hal.launch(twice, multi, vals=(1, 0), threads=1)
    assert (multi.numpy() == 2).all()


def test_M1_one_devices_failure_names_it_and_the_others_go_on(devices):
    multi = hal.MultiBuffer(devices, 3, hal.int32).fill(1)
    multi.numpy()
    devices[1].chip.fail("run")
    with pytest.raises(
        hal.DeviceFault, match="launch of twice failed in queue .* of SIM"
    ) as caught:
        hal.launch(twice, multi, vals=(1, 0), threads=1, wait=True)
    assert str(caught.value).count(" on SIM:1") == 1 and caught.value.device == "SIM:1"
    assert [buffer.numpy()[0] for buffer in multi.bufs] == [2, 1, 2]
    hal.launch(twice, multi, vals=(1, 0), threads=1, wait=True)  # the next one works
    assert [buffer.numpy()[0] for buffer in multi.bufs] == [4, 2, 4]


@pytest.mark.timeout(60)
def test_M1_a_device_lost_in_the_middle_of_a_reduction(devices):
    multi = hal.MultiBuffer(devices, (6, 5), hal.int32).fill(1)
    multi.reduce()  # compiled
    launch, calls = devices[1].chip.launch, list[int]()

    def lost(*arguments):
        calls.append(1)
        devices[1].chip.lost = len(calls) == 2  # the share of the results
        return launch(*arguments)

    device = devices[1].chip
    device.launch = lost
    with pytest.raises(hal.DeviceFault, match="SIM:1"):
        multi.reduce()
    assert len(calls) == 2
    devices[1].chip.lost = False
    del device.launch
    assert (multi.bufs[0].numpy() == 1).all()


def test_M1_a_launch_refuses_what_it_cannot_place(devices):
    multi = hal.MultiBuffer(devices, 6, hal.int32).fill(0)
    other = hal.MultiBuffer(devices[::-1], 6, hal.int32)
    for bufs in ((), (multi.bufs[0],), (multi, multi.bufs[0])):
        with pytest.raises(hal.InvalidArgument, match="one or more hal.MultiBuffer"):
            hal.launch(twice, *bufs, vals=(2, 0), threads=2)
    with pytest.raises(hal.InvalidArgument, match="the devices differ .*reshard"):
        hal.launch(twice, multi, other, vals=(2, 0), threads=2)
    with pytest.raises(hal.InvalidArgument, match="wrong number of vals .* on SIM"):
        hal.launch(twice, multi, vals=(2,), threads=2)
    assert "axis 0 over SIM, SIM:1, SIM:2" in repr(multi) and math.prod(multi.shape) == 6


def raises_for(number, wrong, right):
    def given(shard):
        if shard.number != number:
            return right
        if isinstance(wrong, Exception):
            raise wrong
        return wrong

    return given


@pytest.mark.parametrize("number", usual([0, 1, 2], "2"))
@pytest.mark.parametrize(
    ("what", "wrong", "right"),
    [
        ("vals", (2, "x"), (2, 0)), ("vals", (2,), (2, 0)), ("vals", (2, 1 << 40), (2, 0)),
        ("vals", 2, (2, 0)), ("vals", KeyError("mine"), (2, 0)), ("threads", -1, 2),
        ("threads", 1 << 40, 2), ("threads", None, 2), ("threads", 2.5, 2),
        ("threads", KeyError("mine"), 2),
    ],
    ids=str,
)  # fmt: skip
def test_M1_a_launch_that_one_device_refuses_starts_on_none(number, what, wrong, right, devices):
    multi = hal.MultiBuffer(devices, 6, hal.int32).fill(1)
    how = {"vals": (2, 0), "threads": 2, what: raises_for(number, wrong, right)}
    for _ in range(2):
        with pytest.raises((hal.InvalidArgument, KeyError), match=r"twice: .*SIM|mine"):
            hal.launch(twice, multi, **how)
        assert (multi.numpy() == 1).all()
        hal.launch(twice, multi, vals=(0, 0), threads=2)  # the next one's geometry is known


@pytest.mark.parametrize("lost", ["memory that was freed", "memory that is not to be had"])
@pytest.mark.parametrize("number", usual([0, 1, 2], "1"))
def test_M1_work_without_memory_on_one_device_is_done_on_none(number, lost, devices):
    multi = hal.MultiBuffer(devices, (3, 50), hal.int32)
    others = [buffer.fill(1) for buffer in multi.bufs if buffer is not multi.bufs[number]]
    if lost == "memory that was freed":
        multi.bufs[number].allocate().deallocate()
    else:
        devices[number].allocator.limit = 100
    works = [
        lambda: multi.copyin(np.zeros((3, 50), "i4")), lambda: multi.fill(0), multi.numpy,
        multi.reduce, lambda: multi.reshard(0, sizes=[0, 1, 2]), lambda: multi.reshard(1),
        lambda: hal.launch(twice, multi, vals=(50, 0), threads=50),
    ]  # fmt: skip
    for work in works:
        with pytest.raises((hal.InvalidState, hal.OutOfMemory), match=devices[number].name):
            work()
    assert all((buffer.numpy() == 1).all() for buffer in others)


@pytest.mark.parametrize(("axis", "sizes"), [(0, [1, 0, 3]), (None, None)], ids=str)
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda m: loads(dumps(m))])
def test_M1_a_copy_has_data_of_its_own(axis, sizes, again, devices):
    array = np.arange(8).reshape(4, 2)
    multi = hal.MultiBuffer.from_numpy(array, NAMES, axis, sizes)
    made = again(multi)
    multi.fill(0)
    assert (made.numpy() == array).all() and made.devices == multi.devices
    assert [(one.start, one.size) for one in made.shards] == [
        (one.start, one.size) for one in multi.shards
    ]


def test_M1_devices_may_be_given_as_they_are_listed():
    infos = hal.Device.devices("PYTHON", kind="interpreter")
    multi = hal.MultiBuffer(infos, (4, 2), hal.float32).fill(1)
    assert multi.devices == (hal.Device["PYTHON"],) and multi.numpy().sum() == 8


@pytest.mark.parametrize(
    "work",
    [lambda multi: multi.fill(1), lambda multi: multi.copyin(np.ones(4, "i4")),
     lambda multi: multi.numpy(), lambda multi: multi.reduce("sum"), lambda multi: multi.reshard(0),
     lambda multi: hal.launch(twice, multi, vals=(4, 0), threads=4)],
    ids=["fill", "copyin", "numpy", "reduce", "reshard", "launch"],
)  # fmt: skip
def test_M1_work_is_refused_in_a_capture(devices, work):
    """It would run at once, beside a graph that lacks it."""
    multi = hal.MultiBuffer.from_numpy(np.arange(4, dtype="i4"), devices[:1])
    with pytest.raises(hal.InvalidState, match="while a graph is captured"), devices[0].capture():
        work(multi)
    assert multi.numpy().tolist() == [0, 1, 2, 3]


def test_M1_a_forked_child_goes_on_where_its_device_does():
    """The queues of the parent have no thread in the child, which makes its own."""
    multi = hal.MultiBuffer.from_numpy(np.arange(4), ["PYTHON"])
    found = findings_of_child(lambda: [str(multi.numpy()), str(multi.fill(3).numpy())])
    assert found == ["[0 1 2 3]", "[3 3 3 3]"] and multi.numpy().tolist() == [0, 1, 2, 3]
