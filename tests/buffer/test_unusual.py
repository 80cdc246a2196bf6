"""Arrays and dtypes that say more than their bytes, in every public method that takes one.

`docs/memory.md` has the table: what is copied by value is converted, everything else is refused.
"""

import inspect
import re

import numpy as np
import pytest

import hal_core as hal
from hal_core.signature import POINTER, Param
from hal_kernel.cli.arguments import elements
from hal_kernel.interpreter import interpret
from hal_kernel.python import plugin

DEVICE, NUMBERS = "PYTHON", [1, 2, 3, 4]
PLAIN = np.dtype("i4")
PARTS = np.dtype((np.int32, {"low": (np.int16, 0), "high": (np.int16, 2)}))
# Dtypes that are more than a number's format, and the only one that is no more.
DTYPES = {
    "byte order": PLAIN.newbyteorder(), "unit": np.dtype("M8[ns]"),
    "unit of a duration": np.dtype("m8[s]"), "fields": np.dtype([("a", "i4")]),
    "fields of a number": PARTS, "subarray": np.dtype(("i4", (2,))), "no fields": np.dtype("V4"),
    "objects": np.dtype("O"), "bytes": np.dtype("S4"), "text": np.dtype("U1"),
}  # fmt: skip
ELEMENTS = {kind: hal.as_dtype(DTYPES[kind]) for kind in ("fields", "subarray")}
METADATA = np.dtype("i4", metadata={"unit": "m"})


@pytest.fixture(scope="module", autouse=True)
def registered():
    if DEVICE not in hal.Device:
        hal.Device.register_plugin(DEVICE, plugin)


def buffer(values=NUMBERS):
    return hal.Buffer.from_numpy(np.array(values, "i4"), DEVICE)


def multi(values=NUMBERS):
    return hal.MultiBuffer.from_numpy(np.array(values, "i4"), [DEVICE])


@hal.kernel
def twice(y: hal.Ptr[hal.int32]) -> None:
    y[hal.global_idx(0)] *= 2


@hal.kernel
def put(y: hal.Ptr[hal.int32], value: hal.int32) -> None:
    y[hal.global_idx(0)] = value


def read(path, dtype):
    path.write_bytes(bytes(16))
    return hal.Buffer.from_file(path, dtype, device=DEVICE).dtype


def wrapped(dtype):
    memory = np.zeros(4, "i8")
    options = hal.BufferSpec(external_ptr=memory.ctypes.data)
    return hal.Buffer(DEVICE, 4, dtype, options).dtype


# Each takes a dtype, and gives what was made of it.
OF_DTYPES = {
    "Buffer.__init__ dtype": lambda it: hal.Buffer(DEVICE, 4, it).dtype,
    "Buffer.__init__ external_ptr": wrapped,
    "Buffer.view dtype": lambda it: buffer().view(1, it).dtype,
    "empty dtype": lambda it: hal.empty(4, it, DEVICE).dtype,
    "zeros dtype": lambda it: hal.zeros(4, it, DEVICE).dtype,
    "MultiBuffer.__init__ dtype": lambda it: hal.MultiBuffer([DEVICE], 4, it).dtype,
    "Compiled.supports dtype": lambda it: hal.int32 if hal.Device[DEVICE].supports(it) else it,
    "Ptr.__class_getitem__ item": lambda it: getattr(hal.Ptr[it], "dtype"),  # noqa: B009
    "ConstPtr.__class_getitem__ item": lambda it: getattr(hal.ConstPtr[it], "dtype"),  # noqa: B009
}


def copied_in(array, queue):
    made = buffer([0] * 4)
    device = hal.Device[DEVICE]
    if queue:
        made.copyin(array, queue=device.default_queue)
        device.synchronize()
    else:
        made.copyin(array)
    return made.numpy()


def interpreted(array):
    interpret(twice, array, threads=4, block=1)
    return np.asarray(array) // 2


def captured(array):
    @hal.kernel
    def take(y: hal.Ptr[hal.int32]) -> None:
        i = hal.global_idx(0)
        y[i] = array[i]

    return interpreted_of(take)


def interpreted_of(kernel, *vals):
    made = np.zeros(4, "i4")
    interpret(kernel, made, vals=vals, threads=4, block=1)
    return made


def masked_by(mask):
    seen = np.array(mask)
    interpret(twice, np.array(NUMBERS, "i4"), initialised=[mask], threads=4, block=1)
    return seen


# Each takes an array of int32, and gives its numbers; those that copy values take either order.
OF_ARRAYS = {
    "Buffer.copyin src": lambda it: copied_in(it, queue=False),
    "Buffer.copyin queue": lambda it: copied_in(it, queue=True),
    "Buffer.copyout dest": lambda it: buffer().copyout(it),
    "Buffer.from_dlpack obj": lambda it: hal.Buffer.from_dlpack(it, DEVICE).numpy(),
    "Buffer.from_numpy array": lambda it: hal.Buffer.from_numpy(it, DEVICE).numpy(),
    "MultiBuffer.copyin src": lambda it: multi([0] * 4).copyin(it).numpy(),
    "MultiBuffer.copyout dest": lambda it: multi().copyout(it),
    "MultiBuffer.from_numpy array": lambda it: hal.MultiBuffer.from_numpy(it, [DEVICE]).numpy(),
    "testing.interpret given": interpreted, "a captured table": captured,
    "hal bench NAME=VALUE": lambda it: elements(
        it, Param("x", hal.int32, POINTER, 0), "bench", 1 << 10, "the memory"
    ),
}  # fmt: skip
CONVERT = {
    "Buffer.from_numpy array", "MultiBuffer.from_numpy array", "a captured table",
    "hal bench NAME=VALUE",
}  # fmt: skip


def given(value, in_order):
    """Return a value as a launch takes it: behind its buffers, or in `vals`."""
    return ((value,), {}) if in_order else ((), {"vals": (value,)})


def launched(value, in_order):
    made, (values, named) = buffer([0] * 4), given(value, in_order)
    hal.Device[DEVICE].compile(put)(made, *values, **named, threads=4)
    return made.numpy()


def launched_everywhere(value, in_order):
    made, (values, named) = multi([0] * 4), given(value, in_order)
    hal.launch(put, made, *values, **named, threads=4, wait=True)
    return made.numpy()


def replayed(value, update, in_order):
    made, graph = buffer([0] * 4), hal.Graph(DEVICE)
    values, named = given(0 if update else value, in_order)
    node = graph.add(hal.Device[DEVICE].compile(put), made, *values, **named, threads=4)
    if update:
        values, named = given(value, in_order)
        node.update(made, *values, **named)
    graph.replay(wait=True)
    return made.numpy()


def filled_by_graph(value):
    made, graph = buffer([0] * 4), hal.Graph(DEVICE)
    graph.fill(made, value)
    graph.replay(wait=True)
    return made.numpy()


def captured_number(value):
    @hal.kernel
    def take(y: hal.Ptr[hal.int32]) -> None:
        y[hal.global_idx(0)] = value

    return interpreted_of(take)


# Each takes a number, and gives elements that are all that number.
OF_NUMBERS = {
    "Buffer.fill value": lambda it: buffer().fill(it).numpy(),
    "MultiBuffer.fill value": lambda it: multi().fill(it).numpy(),
    "Graph.fill value": filled_by_graph,
    "Graph.add given": lambda it: replayed(it, update=False, in_order=True),
    "Graph.add vals": lambda it: replayed(it, update=False, in_order=False),
    "Node.update given": lambda it: replayed(it, update=True, in_order=True),
    "Node.update vals": lambda it: replayed(it, update=True, in_order=False),
    "Program.__call__ given": lambda it: launched(it, in_order=True),
    "Program.__call__ vals": lambda it: launched(it, in_order=False),
    "launch given": lambda it: launched_everywhere(it, in_order=True),
    "launch vals": lambda it: launched_everywhere(it, in_order=False),
    "testing.interpret vals": lambda it: interpreted_of(put, it),
    "a captured number": captured_number,
}
STRANGE_NUMBERS = {
    "masked": np.ma.masked,
    "duration of nanoseconds": np.timedelta64(5, "ns"),  # its item() is an int
    "date": np.datetime64(5, "ns"),
    "record": np.zeros(1, [("a", "i4")])[0],
    "bytes": np.bytes_(b"1"),
    "object": np.array(object(), "O"),
}
# Parameters that are no arrays of a user, or no business of the core.
OTHERS = {
    "Buffer.__array__ dtype": "numpy converts",
    "Buffer.wrap obj": "the backend's: its own tests have every kind",
    "Node.update how": "sizes of a launch", "Node.__init__ geometry": "made by Graph.add",
    "Renderer.supports dtype": "of backends: a hal dtype", "UOp.__init__ arg": "of compilers",
    "as_dtype value": "takes all that `Buffer.__init__` takes",
    "UOp.__init__ dtype": "of compilers: a hal dtype", "DType.__getitem__ item": "always refused",
}  # fmt: skip


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("door", [*OF_DTYPES, "Buffer.from_file dtype"])
def test_a_dtype_that_says_more_is_refused(door, kind, tmp_path):
    take = OF_DTYPES.get(door, lambda it: read(tmp_path / "file", it))
    assert take(PLAIN) is take(METADATA) is hal.int32
    if kind in ELEMENTS and "item" not in door:
        # Elements of several numbers, which kernels of Python do not compute with.
        assert take(DTYPES[kind]) is (DTYPES[kind] if "supports" in door else ELEMENTS[kind])
        return
    with pytest.raises(hal.InvalidArgument):
        take(DTYPES[kind])


def _ordinary():
    yield np.array(NUMBERS, PLAIN)
    yield np.array(NUMBERS, METADATA)
    yield np.ma.array(NUMBERS, PLAIN)  # without a mask, or with nothing masked
    yield np.ma.array(NUMBERS, PLAIN, mask=[0, 0, 0, 0])
    yield np.frombuffer(b"-" + np.array(NUMBERS, PLAIN).tobytes(), PLAIN, offset=1).copy()


@pytest.mark.parametrize("door", OF_ARRAYS)
def test_an_array_that_says_more_is_converted_or_refused(door):
    take = OF_ARRAYS[door]
    for array in _ordinary():
        if door == "a captured table" and isinstance(array, np.ma.MaskedArray):
            continue  # such objects are no tables
        assert np.array_equal(take(array), NUMBERS), array.dtype
    swapped = np.array(NUMBERS, DTYPES["byte order"])
    if door in CONVERT:
        assert np.array_equal(take(swapped), NUMBERS)
        assert np.array_equal(swapped, NUMBERS)
    refused = [np.ma.array(NUMBERS, PLAIN, mask=[0, 1, 0, 0])]
    for kind, dtype in DTYPES.items():
        if kind == "fields" and door.endswith(("from_numpy array", "from_dlpack obj")):
            record = np.ma.array([(1,), (2,)], dtype)
            assert all(np.array_equal(take(one), record) for one in (record, record.data))
            refused.append(np.ma.array(record, mask=[(0,), (1,)]))
        elif kind != "subarray" and (kind != "byte order" or door not in CONVERT):
            refused.append(np.zeros(16 // dtype.itemsize if dtype.itemsize else 4, dtype))
    for array in refused:
        before = array.tobytes()
        with pytest.raises((hal.InvalidArgument, hal.KernelSyntaxError)) as raised:
            take(array)
            pytest.fail(f"{door} took {array!r}")
        assert array.dtype.kind != "O" or "view(" not in str(raised.value)  # numpy has none
        assert array.tobytes() == before


@pytest.mark.parametrize("door", OF_NUMBERS)
def test_a_number_that_says_more_is_refused(door):
    take = OF_NUMBERS[door]
    assert take(3).tolist() == take(np.zeros(1, DTYPES["byte order"])[0] + 3).tolist() == [3] * 4
    for kind, value in STRANGE_NUMBERS.items():
        with pytest.raises((hal.InvalidArgument, hal.KernelSyntaxError)):
            take(value)
            pytest.fail(f"{door} took {kind}")


def test_a_mask_of_initialised_elements_has_no_mask_of_its_own():
    assert masked_by(np.ones(4, bool)).all()
    with pytest.raises(hal.InvalidArgument, match="the array has masked elements"):
        masked_by(np.ma.array([True] * 4, mask=[0, 1, 0, 0]))


def test_bfloat16_goes_in_and_out_by_every_way():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array(NUMBERS, ml_dtypes.bfloat16)
    many = hal.MultiBuffer.from_numpy(array, [DEVICE])
    one = hal.zeros(4, hal.bfloat16, DEVICE).copyin(array)
    shared = [hal.Buffer.from_dlpack(array, DEVICE, copy=copy).numpy() for copy in (None, True)]
    for out in (many.numpy(), one.copyout(np.zeros_like(array)), *shared):
        assert out.tolist() == NUMBERS


def _parameters():
    """Public parameters that may be an array, a dtype or a number, by their annotation."""
    public = {name: getattr(hal, name) for name in hal.__all__}
    for name, thing in (public | {"testing.interpret": interpret}).items():
        methods = {name: thing}
        if inspect.isclass(thing) and not issubclass(thing, BaseException):
            methods = {
                f"{name}.{own}": getattr(thing, own)
                for kind in thing.__mro__ if kind.__module__.startswith(("hal_core", "hal_kernel"))
                for own in vars(kind)
                if own in ("__init__", "__call__", "__array__", "__getitem__", "__class_getitem__")
                or (own[0] != "_" and callable(getattr(thing, own)))
            }  # fmt: skip
        elif getattr(thing, "__module__", "").startswith("hal_kernel.lang"):
            continue  # exists in kernels only
        for method, function in methods.items():
            if not inspect.isroutine(function):
                continue
            for parameter in inspect.signature(function).parameters.values():
                kind = str(parameter.annotation)
                if re.search(r"\b(DType|NDArray|Array)\b|^Any$", kind) or (
                    parameter.name in ("value", "vals", "item")
                ):
                    yield f"{method} {parameter.name}"


def test_every_public_method_that_takes_arrays_or_dtypes_is_in_a_table():
    tables = {*OF_DTYPES, *OF_ARRAYS, *OF_NUMBERS, *OTHERS}
    tables |= {"Buffer.from_file dtype", "testing.interpret initialised"}
    found = set(_parameters())
    assert len(found) > 25 and found <= tables, f"in no table: {sorted(found - tables)}"
    assert found >= OTHERS.keys()


def test_memory_that_was_released_is_refused():
    gone = memoryview(bytearray(4))
    gone.release()
    buffer = hal.zeros(4, hal.uint8, DEVICE)
    for copy in (buffer.copyin, buffer.copyout):
        with pytest.raises(hal.InvalidArgument, match="exposes no host memory"):
            copy(gone)
