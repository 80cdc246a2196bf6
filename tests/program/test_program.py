"""P1-P5, P10 on the fake device: the generated call and the checks behind it."""

import gc
import weakref

import numpy as np
import pytest
from counts import calls
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from in_threads import outcomes

import hal_core as hal
from hal_core.dtypes import DTYPES

pytestmark = [pytest.mark.results, pytest.mark.lowest]

NOTHING = "def k(t, *args): pass"


def program_of(device, signature, text=NOTHING):
    return device.compile(hal.Source("k", text, signature, language="python"))


@pytest.fixture
def axpy(fake):
    text = "def k(t, y, a, x, n):\n  i = t[0]\n  if i < n: y[i] += a * x[i]"
    return program_of(fake, "y: float32*, a: float32, x: const float32*, n: int32", text)


def vector(device, size=8):
    return hal.Buffer.from_numpy(np.ones(size, np.float32), device)


@pytest.mark.parametrize("wrong", [b"code", None, "a.o"])
def test_P1_load_takes_a_binary(fake, wrong):
    with pytest.raises(hal.InvalidArgument, match=r"load: not a hal.Binary.*on FAKE. .*\.binary"):
        fake.load(wrong)


@pytest.mark.parametrize("how", ["at once", "waited for", "queued", "captured"])
def test_P2_arguments_may_stand_in_the_order_of_the_signature(axpy, how):
    device, y, x = axpy.device, vector(axpy.device), vector(axpy.device)
    axpy(y, 2.0, x, np.int32(5), threads=8)
    if how == "captured":
        with device.capture() as graph:
            axpy(y, 1.0, x, 5, threads=8)
        assert graph[0].bufs == (y, x) and graph[0].vals == (1.0, 5)
        graph[0].update(y, 2.0, x, 5)
        graph.add(axpy, y, 2, x, 5, threads=8)
        graph.replay(wait=True)
    else:
        options = {"waited for": {"wait": True}, "queued": {}, "at once": {}}[how]
        options["queue"] = queue = device.queue() if how == "queued" else None
        for number in (2.0, np.float64(2)):
            axpy(y, number, x, 5, threads=8, **options)
        if queue is not None:
            queue.synchronize()
    assert y.numpy().tolist() == [1 + 2 * 3] * 5 + [1] * 3


@pytest.mark.parametrize(
    ("how", "most"),
    [({"vals": [2.0, 5]}, 0), ({"vals": (np.float32(2), np.int64(5))}, 0),
     ({"vals": (np.float64(2), np.uint8(5))}, 0), ({"vals": (True, np.int32(5))}, 0),
     ({"threads": [8]}, 8), ({"threads": [4, 2], "block": [4]}, 8), ({"threads": 7}, 12)],
)  # fmt: skip
def test_P3_forms_of_a_launch_cost_few_calls_more(how, most, axpy):
    y, x = vector(axpy.device), vector(axpy.device)
    usual = {"vals": (2.0, 5), "threads": 8}
    for one in (usual, usual | how):
        if one.get("threads") != 7:  # which are new
            axpy(y, x, **one)
    more = calls(lambda: axpy(y, x, **(usual | how))) - calls(lambda: axpy(y, x, **usual))
    assert more <= most


@pytest.mark.parametrize(
    ("fits", "does_not"),
    [((2.0, np.int64(5)), (2.0, np.int64(2**40))), ((2, 5), (10**39, 5)),
     ((np.float64(2), 5), (np.float64(1e300), 5)),
     ((np.longdouble(2), 5), (np.longdouble("1e300"), 5)),
     ((2.0, np.int32(5)), (2.0, np.float32(5)))],
)  # fmt: skip
def test_P3_a_number_that_does_not_fit_is_refused_after_one_of_its_class_that_does(
    fits, does_not, axpy
):
    y, x = vector(axpy.device), vector(axpy.device)
    axpy(y, x, vals=fits, threads=8)
    for _ in range(2):
        with pytest.raises(hal.InvalidArgument, match="value '[an]'"):
            axpy(y, x, vals=does_not, threads=8)
    axpy(y, x, vals=fits, threads=8)
    assert y.numpy().tolist() == [5.0] * 5 + [1] * 3


BAD_LAUNCHES = {
    "no buffers": (lambda y, x: ((), (1.0, 1)), "wrong number of buffers.*got 0; expected 2"),
    "a buffer too many": (lambda y, x: ((y, x, x), (1.0, 1)), "got 3; expected 2"),
    "no vals": (lambda y, x: ((y, x), ()), "wrong number of vals.*got 0; expected 2"),
    "vals is no tuple": (lambda y, x: ((y, x), 3),
     "vals must be a tuple of numbers.*got 3; expected 2 of them"),
    "numbers as buffers": (lambda y, x: ((y, x, 1.0, 3), ()),
     r"Write program\(y, a, x, n, ...\), .*, or buffers first and vals=\(a, n\)"),
    "too few in order": (lambda y, x: ((y, 1.0), None),
     "wrong number of arguments: 'x', 'n' missing .got 2; expected 4"),
    "too many in order": (lambda y, x: ((y, 1.0, x, 1, 2), None),
     "wrong number of arguments; shared= gives shared memory .got 5; expected 4"),
    "a buffer for a number": (lambda y, x: ((y, x, 1.0, 1), None),
     "'a' is a number, not a buffer .got <Buffer .* expected a: float32"),
    "a number for a buffer": (lambda y, x: ((y, 1.0, 1, x), None),
     "'x' is not a hal.Buffer .got 'int'; expected x: const float32"),
    "an int too large in order": (lambda y, x: ((y, 1.0, x, 2**31), None), "'n' is out of range"),
    "an array": (lambda y, x: ((y, np.ones(8)), (1.0, 1)),
     "'x' is not a hal.Buffer.*ndarray.*from_numpy"),
    "None": (lambda y, x: ((None, x), (1.0, 1)), r"'y' is not a .*hal.Buffer\(device, 0, dtype"),
    "dtype": (lambda y, x: ((y, x.view(4, hal.float64)), (1.0, 1)),
     "'x' has the wrong dtype .got 'float64'.*array.astype"),
    "int too large": (lambda y, x: ((y, x), (1.0, 2**31)), "'n' is out of range.*2147483648"),
    "int too small": (lambda y, x: ((y, x), (1.0, -(2**31) - 1)), "'n' is out of range"),
    "far too large": (lambda y, x: ((y, x), (1.0, 2**40)), "'n' is out of range"),
    "float for int": (lambda y, x: ((y, x), (1.0, 2.0)), "'n' is a float where an integer"),
    "float32 overflow": (lambda y, x: ((y, x), (1e39, 1)), "'a' is out of range"),
    "vals is a set": (lambda y, x: ((y, x), {1, 2}), "vals must be a tuple"),
    "a time": (lambda y, x: ((y, x), (np.timedelta64(1, "s"), 1)), "'a' is not a number"),
    "a huge int": (lambda y, x: ((y, x), (10**400, 1)), "'a' is out of range"),
    "text": (lambda y, x: ((y, x), ("1", 1)), "'a' is not a number.*expected float32"),
    "complex": (lambda y, x: ((y, x), (1j, 1)), "'a' is not a number"),
    "an array value": (lambda y, x: ((y, x), (np.ones(1), 1)), "'a' is not a number"),
}  # fmt: skip


@pytest.mark.parametrize("wait", [False, True], ids=["", "waited for"])
@pytest.mark.parametrize("warm", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("case", BAD_LAUNCHES)
def test_P2_bad_arguments_are_named(axpy, case, warm, wait):
    y, x = vector(axpy.device), vector(axpy.device)
    if warm:
        axpy(y, x, vals=(1.0, 0), threads=8)
    make, pattern = BAD_LAUNCHES[case]
    launches = len(axpy.launches)
    bufs, vals = make(y, x)
    with pytest.raises(hal.InvalidArgument, match=pattern) as caught:
        axpy(*bufs, vals=vals, threads=8, wait=wait)
    assert str(caught.value).startswith("launch k: ") and "on FAKE" in str(caught.value)
    assert len(axpy.launches) == launches, "nothing ran"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from([d for n, d in DTYPES.items() if n != "bfloat16"]),
    st.one_of(
        st.booleans(), st.integers(-(2**65), 2**65), st.floats(), st.sampled_from([2**31 - 1, 255]),
    ),
    st.booleans(),
)  # fmt: skip
def test_P3_values_arrive_as_the_signature_says_or_are_refused(fake, dtype, value, scalar):
    program = program_of(fake, f"v: {dtype.name}")
    program.launches.clear()
    given_value = value
    if scalar and not (isinstance(value, int) and abs(value) >= 2**63):
        given_value = np.asarray(value)[()]
    fits = (
        isinstance(value, (bool, int)) and dtype.min <= value <= dtype.max
        if dtype.kind != "f"
        else value != value or abs(value) == float("inf") or abs(value) <= dtype.max
    )
    for _ in range(2):
        if fits:
            program(vals=(given_value,), threads=1)
            (got,) = program.launches[-1][1]
            assert type(got) is {"f": float, "b": bool}.get(dtype.kind, int)
            wanted = float(value) if dtype.kind == "f" else value
            assert got == wanted or value != value
        else:
            with pytest.raises(hal.InvalidArgument):
                program(vals=(given_value,), threads=1)
            assert not program.launches


def test_P3_a_bfloat16_scalar_is_a_number(fake):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="numpy has no bfloat16 of its own")
    program = program_of(fake, "v: float32, w: float64")
    for number in (1.5, float("inf"), float("-inf")):
        scalar = ml_dtypes.bfloat16(number)
        program(vals=(scalar, scalar), threads=1)
        assert program.launches[-1][1] == (number, number)
    with pytest.raises(hal.InvalidArgument, match="'v' is not a number"):
        program(vals=(ml_dtypes.int4(1), 0.0), threads=1)


def test_a_launch_that_is_waited_for_is_checked_as_fast_as_others(axpy):
    """The checks of an unusual launch take ten times as long as a small kernel."""
    y, x = vector(axpy.device), vector(axpy.device)

    def launch(**how):
        return axpy(y, x, vals=(1.0, 8), threads=8, **how)

    with hal.Device["FAKE"].queue() as queue:
        for how in ({}, {"wait": True}, {"wait": True, "queue": queue}):
            assert (launch(**how) is None) is (not how)
    # An unusual launch has 1.7 times as many calls.
    assert calls(lambda: launch(wait=True)) < 1.5 * calls(launch)
    with pytest.raises(hal.InvalidArgument, match="queue"):
        launch(wait=True, queue="q")
    axpy.unload()
    with pytest.raises(hal.InvalidState, match="the program was unloaded"):
        launch(wait=True)


def test_sizes_of_other_integers_are_known_by_their_value(axpy):
    class Size:
        """An integer whose value may change, as a tensor's."""

        value = 3

        def __index__(self):
            return self.value

    y, x, size = vector(axpy.device), vector(axpy.device), Size()
    for size.value in (3, 4):
        for threads in (size, (1, size)):
            axpy(y, 1.0, x, 8, threads=threads)
            assert axpy.launches[-1][0][1] in ((size.value, 1, 1), (1, size.value, 1))


@pytest.mark.parametrize(
    ("call", "grid", "block"),
    [({"grid": 3, "block": 4}, (3, 1, 1), (4, 1, 1)),
     ({"grid": (3, 2), "block": (4, 2, 2)}, (3, 2, 1), (4, 2, 2)),
     ({"grid": [1, 2, 3], "block": [2]}, (1, 2, 3), (2, 1, 1)),
     ({"threads": 10, "block": 4}, (3, 1, 1), (4, 1, 1)),
     ({"threads": (10, 3), "block": (4, 2)}, (3, 2, 1), (4, 2, 1)),
     ({"threads": 10}, (1, 1, 1), (10, 1, 1)), ({"threads": 1000}, (16, 1, 1), (64, 1, 1)),
     ({"threads": (1, 1000)}, (1, 16, 1), (1, 64, 1)),
     ({"threads": (8, 100)}, (1, 7, 1), (8, 16, 1)),
     ({"threads": (2, 3, 100)}, (1, 1, 5), (2, 3, 21)),
     ({"threads": np.int64(5)}, (1, 1, 1), (5, 1, 1)),
     ({"threads": 5.0, "shared": 0.0}, (1, 1, 1), (5, 1, 1)),
     ({"grid": (np.float32(3), 2.0), "block": np.array([4.0])}, (3, 2, 1), (4, 1, 1)),
     ({"threads": np.array([5, 6])}, (1, 1, 1), (5, 6, 1)),
     ({"grid": np.array([3]), "block": np.array(4)}, (3, 1, 1), (4, 1, 1))],
    ids=str,
)  # fmt: skip
def test_P5_geometry(fake, call, grid, block):
    program = program_of(fake, "")
    for _ in range(2):
        program(**call)
        assert program.launches[-1][0] == (grid, block, 0)


@pytest.mark.parametrize(
    ("call", "pattern"),
    [
        ({}, r"k: nothing says how many threads run on FAKE\. Give grid= \(blocks\) and"),
        ({"grid": 1}, r"nothing says how large the grid's blocks are .*got 1\)"),
        ({"block": 1}, "nothing says how many threads run"),
        ({"grid": 1, "block": 1, "threads": 1}, r"both grid and threads are .*got \(1, 1\)\)"),
        ({"grid": -1, "block": 1}, "not negative"),
        ({"grid": (1, 1, 1, 1), "block": 1}, "one to three"),
        ({"grid": (), "block": 1}, "one to three"),
        ({"grid": 1.5, "block": 1}, "one to three"),
        ({"grid": "8", "block": 1}, "one to three"),
        ({"grid": 1, "block": 65}, "block.x is too large.*got 65; limit 64"),
        ({"grid": 1, "block": (16, 16)}, "too many threads.*got 256; limit 128"),
        ({"grid": (1, 65537), "block": 1}, "grid.y is too large.*got 65537; limit 65536"),
        ({"grid": (1 << 21), "block": 1}, "grid.x is too large"),
        ({"grid": (1 << 20, 1 << 16, 1 << 25), "block": 64}, "too many threads"),
        ({"grid": (1, 1, 1 << 25), "block": (1, 1, 64)}, "threads along z exceed a 32-bit index"),
        # So that i + 65536 does not wrap.
        (
            {"grid": (1, 1, (1 << 25) - 1024), "block": (1, 1, 64)},
            "got 2147418112; limit 2147418111",
        ),
        ({"threads": 4.5}, "one to three integers"),
        ({"threads": [[4]]}, "one to three integers"),
        ({"grid": ([4],), "block": 1}, "one to three integers"),
        ({"threads": 1, "shared": [0]}, "shared memory"),
        ({"threads": 1, "shared": 1025}, "shared memory.*got 1025; limit 1024"),
        ({"threads": 1, "shared": -1}, "shared memory"),
    ],
    ids=str,
)
def test_P5_other_geometry_is_refused(fake, call, pattern):
    program = program_of(fake, "")
    program(threads=1)
    for _ in range(2):
        with pytest.raises(hal.InvalidArgument, match=pattern):
            program(**call)
    assert len(program.launches) == 1


def ways_to_launch(program):
    device, graph = program.device, hal.Graph(program.device)
    queue = device.queue()
    node = graph.add(program, threads=1)
    kernel = hal.Source("k", NOTHING, "y: int32*", language="python")
    multi = hal.MultiBuffer([device], 1, hal.int32)

    def capture(**how):
        with device.capture():
            program(**how)

    return {
        "now": program, "timed": lambda **how: program(wait=True, **how),
        "in a queue": lambda **how: program(queue=queue, **how), "captured": capture,
        "added to a graph": lambda **how: graph.add(program, **how),
        "updated in a graph": node.update,
        "on several devices": lambda **how: hal.launch(kernel, multi, **how),
    }  # fmt: skip


@pytest.mark.parametrize("way", ["now", "timed", "in a queue", "captured", "added to a graph",
                                 "updated in a graph", "on several devices"])  # fmt: skip
def test_P5_threads_in_blocks_of_none_and_huge_sizes_are_refused(fake, way):
    program = program_of(fake, "")
    launch = ways_to_launch(program)[way]
    for threads, block in ((4, 0), (np.int64(4), 0), ((4, 3), (4, 0)), ((1, 1, 2), [1, 1, 0])):
        for _ in range(2):
            with pytest.raises(hal.InvalidArgument, match="in blocks of none .*Leave out block="):
                launch(threads=threads, block=block)
    for size in (-1, 2**31, 2**63, np.uint64(2**63), 2**70, 10**5000, 4.5, float("inf"), "4"):
        for how in ({"threads": size}, {"threads": (1, size)}, {"threads": size, "block": 4},
                    {"grid": size, "block": 0}, {"grid": 1, "block": (0, size)}):  # fmt: skip
            with pytest.raises(hal.InvalidArgument, match="too large|exceed|not negative"):
                launch(**how)
    assert not program.launches


def test_P10_a_kernel_is_compiled_again_once_its_program_is_unloaded(fake):
    kernel = hal.Source("f", "def f(t, y): y[t[0]] = 1", "y: int32*", language="python")
    program, made = fake.compile(kernel), hal.zeros(4, hal.int32, fake)
    program.unload()
    fake.compile(kernel)(made, threads=4)
    assert made.numpy().tolist() == [1, 1, 1, 1]
    assert fake.compile(kernel) is fake.compile(kernel)


def test_P10_closing_while_launches_run(plugin):
    for _ in range(20):
        device = hal.Device["FAKE:1"]
        program = program_of(device, "n: int32")

        def work(program=program):
            for count in range(10**6):
                program(vals=(1,), threads=1 + count % 50)

        *found, closed = outcomes(*[work] * 3, device.close)
        assert [type(one) for one in found] == [hal.InvalidState] * 3 and closed is None


def test_a_buffer_of_a_closed_device_says_so(plugin):
    old = hal.zeros(4, hal.int32, "FAKE:1")
    hal.Device["FAKE:1"].close()
    program = program_of(hal.Device["FAKE:1"], "y: int32*")
    with pytest.raises(hal.InvalidState, match="argument 'y': the device is closed"):
        program(old, threads=1)


def test_P10_a_program_goes_with_its_kernel(fake):
    source = hal.Source("k", NOTHING, "", language="python")
    program = fake.compile(source)
    assert fake.compile(source) is program
    gone = weakref.ref(program)
    del program
    gc.collect()
    assert gone() is not None, "the kernel keeps it"
    del source
    gc.collect()
    assert gone() is None


def test_an_error_inside_a_launch_is_not_taken_for_a_bad_argument(fake):
    program = program_of(fake, "n: int32", "def k(t, n):\n  if n: raise KeyError('kernel')")
    program(vals=(0,), threads=1)
    with pytest.raises(KeyError, match="kernel"):
        program(vals=(1,), threads=1)
    assert len(program.launches) == 2, "it ran once"
