"""Graphs where the kit does not reach: what a capture costs others, and what errors teach."""

import os
import threading

import numpy as np
import pytest
from fake_backend import FakeCompiler
from in_threads import results

import hal_core as hal
from hal_core.compiler.seal import seal
from hal_core.graph import saved
from hal_core.program import generated

DOUBLE = hal.Source(
    "double", "def double(t, y, n):\n    if t[0] < n: y[t[0]] = 2 * y[t[0]]", "y: int32*, n: int32",
    language="python",
)  # fmt: skip
N = 8


def double(device):
    program, made = device.compile(DOUBLE), hal.zeros(N, hal.int32, device).fill(1)
    program(made, vals=(N,), threads=N)
    return program, made


def first(buffer):
    return int(buffer.numpy()[0])


def test_G4_a_launch_asks_for_a_capture_while_there_is_one(fake):
    """Any way to say that there is no queue is the same; a program compiled meanwhile is, too."""
    program, made = double(fake)
    with fake.capture() as graph:
        for how in ({}, {"queue": None}, {"vals": [N]}, {"threads": (N,)}):
            program(made, **{"vals": (N,), "threads": N, **how})
        text = "def g(t, y, x): pass"
        other = fake.compile(hal.Source("g", text, "y: int8*, x: int8*", language="python"))
        a, b = (hal.Buffer(fake, N, hal.int8) for _ in range(2))
        other(a, b, threads=N)
        with fake.queue() as queue:  # outside of the graph
            program(made, vals=(N,), threads=N, queue=queue)
    assert [node.kind for node in graph] == ["launch"] * 5 and first(made) == 4
    program(made, vals=(N,), threads=N)
    graph.replay()
    assert first(made) == 8 << 4


def test_G4_two_threads_capture_at_once(fake):
    program, made = double(fake)
    both = threading.Barrier(2, timeout=20)

    def capture(count):
        with fake.capture() as graph:
            both.wait()
            for _ in range(count):
                program(made, vals=(N,), threads=N)
            both.wait()
        return graph

    graphs = results(lambda: capture(3), lambda: capture(5))
    assert list(map(len, graphs)) == [3, 5] and first(made) == 2


def test_a_capture_that_ends_twice_is_refused(fake):
    capture = fake.capture()
    with capture:
        pass
    with pytest.raises(hal.InvalidState, match="ended already"):
        capture.__exit__(None, None, None)


def test_a_capture_that_is_entered_again_makes_another_graph(fake):
    program, made = double(fake)
    capture = fake.capture()
    with capture as outer:
        with pytest.raises(hal.InvalidState, match="captures a graph already"), capture:
            pass
        program(made, vals=(N,), threads=N)
    again = capture.__enter__()
    results(lambda: capture.__exit__(None, None, None))
    assert generated.captures == {} and list(map(len, (outer, again))) == [1, 0]


@pytest.mark.parametrize("how", ["replay", "replay in a queue", "launch in a queue"])
@pytest.mark.parametrize("error", [AttributeError("'NoneType' has no 'entry'"), TypeError("None")])
def test_work_on_a_device_that_another_thread_closes_is_refused(error, how, fake, monkeypatch):
    """Play a driver whose functions are gone with its programs."""
    program, made = double(fake)
    queue = fake.queue()
    with fake.capture() as graph:
        program(made, vals=(N,), threads=N)
    owner, name, work = {
        "replay": (type(fake), "graph", graph.replay),
        "replay in a queue": (queue, "_add_replay", lambda: graph.replay(queue=queue)),
        "launch in a queue": (
            queue, "_launch", lambda: program(made, vals=(N,), threads=N, queue=queue)
        ),
    }[how]  # fmt: skip

    def meanwhile(*anything):
        monkeypatch.undo()
        fake.close()
        raise error

    monkeypatch.setattr(owner, name, meanwhile)
    with pytest.raises(hal.InvalidState, match=f"{how.split()[0]}.*: the device is closed"):
        work()


def test_zeros_of_an_allocation_are_no_node(fake):
    with fake.capture() as graph:
        once, each = hal.zeros(4, hal.uint8, fake), hal.empty(4, hal.uint8, fake).fill(0)
        copied = hal.Buffer.from_numpy(np.arange(4, dtype="u1"), fake)
    assert [node.kind for node in graph] == ["fill", "copyin"]
    for made in (once, each, copied):
        made.fill(1)
    graph.replay()
    assert once.numpy().all() and not each.numpy().any() and copied.numpy()[3] == 3


def test_G7_what_has_no_end_is_no_graph(fake, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in ("/dev/zero", pipe):
        with pytest.raises(hal.InvalidArgument, match="no regular file"):
            hal.load_graph(path, fake)


def test_a_graph_is_loaded_while_another_is_captured(fake, tmp_path):
    hal.Graph(fake).save(tmp_path / "graph")
    with fake.capture():
        assert len(hal.load_graph(tmp_path / "graph", fake)) == 0


@pytest.mark.parametrize("changed", ["family", "arch", "compiler"])
def test_G7_a_graph_that_was_made_for_another_target_is_refused(
    changed, fake, tmp_path, monkeypatch
):
    program, made = double(fake)
    with fake.capture() as graph:
        program(made, vals=(N,), threads=N)
    path, device = tmp_path / "double.graph", fake
    graph.save(path)
    assert len(hal.load_graph(path, hal.Device["FAKE:1"])) == 1
    if changed == "family":
        device = hal.Device["PYTHON"]
    elif changed == "arch":
        fake.info = fake.info._replace(arch="newer")
    else:
        monkeypatch.setattr(FakeCompiler, "identity", "fake 2")
    with pytest.raises(hal.InvalidArgument, match="made for another target .*Capture and save"):
        hal.load_graph(path, device)


@pytest.mark.parametrize("threads", [N, [N], (np.int64(N),), np.int64(N), float(N)])
def test_G7_a_launch_of_sizes_of_any_kind_is_saved_whatever_its_program_ran_since(
    threads, fake, tmp_path
):
    program, made = double(fake)
    with fake.capture() as graph:
        program(made, vals=(N,), threads=threads)
        program(made, vals=(N,), threads=N)
    graph[1].update(threads=threads, shared=4)
    for size in range(1, 1100):
        program._resolved(None, None, size, 0)
    graph.save(tmp_path / "graph")
    again = hal.load_graph(tmp_path / "graph", fake)
    [root] = again.buffers
    root.fill(1)
    again.replay()
    assert root.numpy().tolist() == [4] * N


def test_G7_a_graph_of_an_unloaded_program_is_not_saved(fake, tmp_path):
    program, made = double(fake)
    with fake.capture() as graph:
        program(made, vals=(N,), threads=N)
    program.unload()
    with pytest.raises(hal.InvalidState, match="the program was unloaded"):
        graph.save(tmp_path / "graph")


def test_G7_a_sealed_file_of_wrong_contents_is_refused(fake):
    with pytest.raises(hal.InvalidArgument, match="does not describe a graph: KeyError"):
        saved.from_bytes(fake, seal(saved._MAKER, {}, b""), hal.Graph(fake))


@pytest.mark.parametrize("device", [42, b"FAKE", object(), hal.Compiled])
def test_a_graph_of_what_is_no_device_is_refused(device, fake, tmp_path):
    hal.Graph(fake).save(tmp_path / "empty.graph")
    calls = (lambda: hal.Graph(device), lambda: hal.load_graph(tmp_path / "empty.graph", device))
    for call in calls:
        with pytest.raises(hal.InvalidArgument, match="neither a device nor a name of one"):
            call()


def test_a_replay_compares_what_it_is_given_by_identity_and_order(fake):
    program, made = double(fake)
    part, other, third = made[:2], hal.zeros(N, hal.int32, fake), hal.zeros(2, hal.int32, fake)
    graph = hal.Graph(fake)
    graph.add(program, part, vals=(2,), threads=2)
    graph.replay({made: other, part: third})
    third.fill(1)
    other.fill(1)
    graph.replay({part: third, made: other})  # the later one holds
    assert (first(third), first(other)) == (1, 2)
    wrong = {made: np.zeros(2, "i4"), part: np.zeros(N, "i4")}
    with pytest.raises(hal.InvalidArgument, match="replay"):
        graph.replay(wrong)


def test_a_launch_on_another_device_inside_a_capture_says_what_to_do(fake):
    other = hal.Device["FAKE:1"]
    program, made = double(other)
    works = [
        lambda: program(made, vals=(N,), threads=N), lambda: made.fill(3),
        lambda: made.copyin(bytes(4 * N)),
    ]  # fmt: skip
    with fake.capture() as graph:
        for work in works:
            with pytest.raises(hal.InvalidArgument, match="FAKE alone .*FAKE:1.*queue= the work"):
                work()
        with other.queue() as queue:
            program(made, vals=(N,), threads=N, queue=queue)
    assert not len(graph) and first(made) == 4


def test_a_node_that_is_not_there_says_how_many_there_are(fake):
    _, made = double(fake)
    graph = hal.Graph(fake)
    with pytest.raises(IndexError, match=r"0 nodes.* has no such node .got 0; it has none"):
        graph[0]
    graph.fill(made, 1)
    graph.fill(made, 2)
    assert graph[-1] is graph[1]
    for number in (2, -3, 9):
        with pytest.raises(IndexError, match=rf"2 nodes.* .got {number}; nodes 0 to 1"):
            graph[number]
        with pytest.raises(hal.InvalidArgument):
            graph[number]


@pytest.mark.parametrize(
    ("sizes", "update", "same"),
    [({"threads": 9, "block": 2, "shared": 8}, {"threads": 7},
      {"grid": 4, "block": 2, "shared": 8}),
     ({"threads": 9, "block": 2, "shared": 8}, {"grid": 3}, {"grid": 3, "block": 2, "shared": 8}),
     ({"grid": 3, "block": 2}, {"threads": 8}, {"threads": 8, "block": 2}),
     ({"grid": 3, "block": 2}, {"block": 4, "threads": None}, {"grid": 3, "block": 4}),
     ({"threads": 9}, {"shared": 16}, {"threads": 9, "shared": 16})],
)  # fmt: skip
def test_G3_an_update_keeps_the_sizes_that_are_left_out(sizes, update, same, fake):
    program, made = double(fake)
    graph = hal.Graph(fake)
    node = graph.add(program, made, vals=(N,), **sizes)
    node.update(**update)
    assert node.geometry == graph.add(program, made, vals=(N,), **same).geometry


@pytest.mark.parametrize(
    ("given", "advice"),
    [({"thread": 4}, "Did you mean threads="), ({"grids": 4}, "Did you mean grid="),
     ({"val": (4,)}, "Did you mean vals="),
     ({"queue": None}, "It takes vals, grid, block, threads, shared")],
)  # fmt: skip
def test_an_update_suggests_the_argument_that_is_meant(given, advice, fake):
    program, made = double(fake)
    graph = hal.Graph(fake)
    node = graph.add(program, made, vals=(N,), threads=N)
    with pytest.raises(hal.InvalidArgument, match=advice):
        node.update(**given)
    assert node.vals == (N,)


def test_a_misspelt_argument_of_a_launch_is_told_with_those_there_are(fake):
    program, made = double(fake)
    with pytest.raises(TypeError, match="vals.*threads.*unexpected keyword argument 'thread'"):
        program(made, vals=(N,), thread=N)
    with fake.capture(), pytest.raises(TypeError, match="grid, block, threads.*'thread'"):
        program(made, vals=(N,), thread=N)
    assert first(made) == 2 and generated.captures == {}


def test_G2_buffers_of_the_last_replay_make_room(fake):
    x = hal.zeros(64, hal.int32, fake)
    with fake.capture() as graph:
        x.fill(1)
    fake.allocator.limit = fake.allocator.statistics().current + 4096
    for _ in range(3):
        other = hal.zeros(1024, hal.int32, fake)
        graph.replay({x: other})
        assert other.numpy()[0] == 1
        del other
