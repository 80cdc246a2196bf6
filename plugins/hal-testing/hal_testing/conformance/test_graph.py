"""Test graphs: promises G1 to G6."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hal_core as hal
from hal_testing.conformance.kernels import add_one, copier, count_up
from hal_testing.conformance.raw import buffer_of, read

N = 96
SECONDS = 20.0
SEQUENCES = 40  # of G6; `nox -s graphs` draws thousands

Work = Callable[[hal.Buffer, hal.Buffer], object]


def ints(device: hal.Compiled, seed: int = 0) -> hal.Buffer:
    start = (
        np.random.default_rng(seed).integers(0, 1000, N, np.int32) if seed else np.zeros(N, "i4")
    )
    return buffer_of(device, start.tobytes(), hal.int32)


def programs(device: hal.Compiled) -> tuple[Any, Any, Any]:
    """Return launches of three kernels; each takes all of the buffers that it is given."""
    one, up, copies = map(device.compile, (add_one, count_up, copier(hal.int32)))
    return (
        lambda y: one(y, vals=(y.size,), threads=y.size),
        lambda y, start: up(y, vals=(start, y.size), threads=y.size),
        lambda y, x: copies(y, x, vals=(y.size,), threads=y.size),
    )


class TestGraph:
    @pytest.mark.parametrize(
        "case",
        [
            "two-writes", "write-after-read", "read-after-write", "copy-after-write",
            "copy-then-read", "views", "partial-writes", "overlapping-copy",
        ],
    )  # fmt: skip
    def test_G1_replays_equal_eager_work(self, device: hal.Compiled, case: str) -> None:
        add, up, copy = programs(device)
        cases: dict[str, Work] = {
            "two-writes": lambda a, b: (up(a, 5), up(a, 7)),
            "write-after-read": lambda a, b: (copy(b, a), up(a, 3)),
            "read-after-write": lambda a, b: (add(a), copy(b, a), add(b)),
            "copy-after-write": lambda a, b: (add(a), b.copy_from(a)),
            "copy-then-read": lambda a, b: (b.copy_from(a), add(b), copy(a, b)),
            "views": lambda a, b: (add(a[5:50]), copy(b[3:40], a[10:47]), add(b)),
            "partial-writes": lambda a, b: (
                a[:30].fill(1),
                a[20:60].fill(2),
                add(a),
                a[40:].fill(3),
            ),
            "overlapping-copy": lambda a, b: (add(a), a[4:80].copy_from(a[:76]), add(a)),
        }
        work = cases[case]
        eager, mine = (ints(device, 1), ints(device, 2)), (ints(device, 1), ints(device, 2))
        before = [read(one) for one in mine]
        with device.capture() as graph:
            work(*mine)
        assert [read(one) for one in mine] == before, "nothing runs during capture"
        for _ in range(5):
            work(*eager)
            graph.replay()
            assert [read(one) for one in mine] == [read(one) for one in eager]

    def test_G1_several_graphs_in_a_row(self, device: hal.Compiled) -> None:
        add, up, _ = programs(device)
        made, graphs = ints(device), []
        for turn in range(4):
            with device.capture() as graph:
                (up(made, 10) if turn == 2 else add(made))
            graphs.append(graph)
        for graph in graphs * 2:
            graph.replay()
        assert read(made) == np.arange(11, 11 + N, dtype=np.int32).tobytes()

    def test_G1_host_data_is_that_of_the_capture(self, device: hal.Compiled) -> None:
        made, data = ints(device), np.full(N, 7, np.int32)
        with device.capture() as graph:
            made.copyin(data)
        data[:] = 9
        del data
        gc.collect()
        graph.replay()
        assert read(made) == np.full(N, 7, np.int32).tobytes()

    def test_G1_built_without_capture(self, device: hal.Compiled) -> None:
        made, other, graph = ints(device), ints(device), hal.Graph(device)
        graph.fill(made, 3)
        node = graph.add(device.compile(add_one), made, vals=(N,), threads=N)
        graph.copy(other, made)
        assert (len(graph), graph[1] is node, node.kind) == (3, True, "launch")
        assert graph.dependencies == [(), (0,), (1,)]
        graph.replay()
        assert read(other) == np.full(N, 4, np.int32).tobytes()

    def test_G2_replay_takes_other_buffers_and_views_follow(self, device: hal.Compiled) -> None:
        add, _, copy = programs(device)
        a, b = ints(device, 1), ints(device, 2)
        with device.capture() as graph:
            add(a[10:20])
            copy(b, a)
        new, expected = ints(device, 3), np.frombuffer(read(ints(device, 3)), "i4").copy()
        kept = read(a)
        graph.replay({a: new})
        expected[10:20] += 1
        assert (read(new), read(b), read(a)) == (expected.tobytes(), expected.tobytes(), kept)
        graph.replay({b: new, a: b})  # now from b to new
        expected[10:20] += 1
        assert read(new) == read(b) == expected.tobytes()
        graph.replay()
        assert read(a) != kept and read(b) == read(a)
        new.deallocate()
        with pytest.raises(hal.InvalidState, match="freed"):
            graph.replay({a: new})
        assert not new.is_allocated

    def test_G2_order_follows_the_buffers_of_the_replay(self, device: hal.Compiled) -> None:
        """Nodes that share nothing at capture come after each other where they share bytes."""
        add, up, copy = programs(device)
        a, b, c, d = (ints(device, seed) for seed in (1, 2, 3, 4))
        with device.capture() as graph:
            up(a, 1)
            copy(c, b)
            add(c)
            copy(d, c)
        assert graph.dependencies == [(), (), (1,), (2,)]
        for _ in range(5):
            graph.replay({b: a})
            assert read(d) == np.arange(2, 2 + N, dtype=np.int32).tobytes()

    def test_G2_updates_count_from_the_next_replay_on(self, device: hal.Compiled) -> None:
        made, other, graph = ints(device), ints(device), hal.Graph(device)
        node = graph.add(device.compile(count_up), made, vals=(5, N), threads=N)
        graph.replay()
        node.update(vals=(8, N))
        assert int.from_bytes(read(made)[:4], "little") == 5 and node.vals == (8, N)
        graph.replay()
        assert read(made) == np.arange(8, 8 + N, dtype=np.int32).tobytes()
        node.update(other, vals=(1, 2), threads=2)
        graph.replay()
        assert read(other) == np.r_[1, 2, np.zeros(N - 2)].astype(np.int32).tobytes()
        every: list[dict[str, Any]] = [
            {"vals": (1,)},
            {"vals": (1.5, N)},
            {"threads": -1},
            {"threads": 0},
        ]
        for wrong in every:
            with pytest.raises(hal.InvalidArgument):
                node.update(**wrong)
        with pytest.raises(hal.InvalidArgument, match="dtype"):
            node.update(hal.empty(N, hal.float32, device))
        assert node.vals == (1, 2) and node.bufs == (other,)
        with pytest.raises(hal.InvalidArgument, match="is a fill"):
            graph.fill(made, 1)
            graph[1].update(vals=())

    def test_G2_dependencies_are_by_byte_range(self, device: hal.Compiled) -> None:
        a, b, graph = ints(device), ints(device), hal.Graph(device)
        graph.fill(a[:40], 1)  # 0
        graph.fill(a[40:], 2)  # 1: beside 0
        graph.copy(b[:10], a[30:40])  # 2: reads 0
        graph.copy(b[10:20], a[35:45])  # 3: reads 0 and 1
        graph.fill(a[36:38], 3)  # 4: over what 2 and 3 read and 0 wrote
        graph.copy(b, a)  # 5: reads all of a, over what 2 and 3 wrote
        assert graph.dependencies == [(), (), (0,), (0, 1), (0, 2, 3), (0, 1, 2, 3, 4)]
        text = str(graph)
        assert "6 nodes" in text and "after 0, 2, 3" in text and "fill" in text
        assert "n3 -> n4;" in graph.dot()

    def test_G2_memory_goes_when_the_graph_goes(self, device: hal.Compiled) -> None:
        gc.collect()  # garbage of other tests
        before = device.allocator.statistics().current
        with device.capture() as graph:
            programs(device)[1](hal.Buffer(device, N, hal.int32), 4)
        graph.replay()
        assert graph.buffers[0].is_allocated and len(graph.buffers) == 1
        assert device.allocator.statistics().current > before
        del graph  # at once: nobody knows when Python's collector runs
        assert device.allocator.statistics().current == before

    def test_G3_in_queues_and_timed(self, device: hal.Compiled) -> None:
        add, _, _ = programs(device)
        made, queue, gate = ints(device), device.queue(), hal.Event()
        with device.capture() as graph:
            for _ in range(10):
                add(made)
        seconds = graph.replay(wait=True)
        assert 0 < seconds < SECONDS
        assert 0 < graph.replay(queue=queue, wait=True) < SECONDS
        queue.wait(gate)
        made.fill(100, queue=queue)
        events = [graph.replay(queue=queue) for _ in range(3)]
        assert not events[0].done
        gate.set()
        assert events[-1].wait(SECONDS)
        assert read(made) == np.full(N, 130, np.int32).tobytes()

    def test_G4_what_a_capture_refuses(self, device: hal.Compiled) -> None:
        add, up, _ = programs(device)
        made, program = ints(device), device.compile(add_one)
        add(made)
        done = hal.Graph(device)
        done.fill(made, 1)
        with device.capture() as graph:
            for refused in (
                made.numpy,
                lambda: made.copyout(bytearray(4 * N)),
                lambda: program(made, vals=(N,), threads=N, wait=True),
                done.replay,
                lambda: device.capture().__enter__(),
            ):
                with pytest.raises(hal.InvalidState, match="captured|captures"):
                    refused()
            up(made, 2)
        assert len(graph) == 1 and int.from_bytes(read(made)[:4], "little") == 1

    def test_G4_other_threads_and_queues_are_outside(self, device: hal.Compiled) -> None:
        add, _, _ = programs(device)
        made, mine, queue = ints(device), ints(device), device.queue()
        with device.capture() as graph:
            thread = threading.Thread(target=lambda: (add(made), made[:1].fill(9)))
            thread.start()
            thread.join(SECONDS)
            mine.fill(4, queue=queue).wait(SECONDS)
        assert len(graph) == 0
        assert read(made)[:8] == bytes([9, 0, 0, 0, 1, 0, 0, 0]) and read(mine)[:1] == b"\4"

    def test_G4_a_failed_capture_leaves_no_trace(self, device: hal.Compiled) -> None:
        add, _, _ = programs(device)
        made = ints(device)
        with pytest.raises(ZeroDivisionError), device.capture() as graph:
            add(made)
            raise ZeroDivisionError
        assert len(graph) == 0
        graph.replay()
        add(made)  # runs
        assert read(made)[:4] == b"\1\0\0\0"
        made.fill(5)
        assert read(made)[:4] == b"\5\0\0\0"

    def test_G5_replays_are_checked_before_anything_runs(self, device: hal.Compiled) -> None:
        _, up, copy = programs(device)
        a, b = ints(device, 1), ints(device, 2)
        with device.capture() as graph:
            up(a, 1)
            copy(b, a)
        graph.replay()
        a.fill(3)
        before = read(a)
        small, other = hal.empty(N - 1, hal.int32, device), hal.empty(N, hal.int32, device)
        wrong: Any = {b: 5}
        for given, why in (
            ({b: small}, "too small"), ({b: b.view(dtype=hal.uint32)}, "another dtype"),
            (wrong, r"not a hal\.Buffer"), ({other: a}, "no node of the graph"),
        ):  # fmt: skip
            with pytest.raises(hal.InvalidArgument, match=why):
                graph.replay(given)
        part = hal.Graph(device)
        part.fill(a, 1)
        with pytest.raises(hal.InvalidArgument, match="only a part of"):
            part.replay({a[3:5]: b})
        other.deallocate()
        with pytest.raises(hal.InvalidState, match="freed"):
            graph.replay({b: other})
        b.deallocate()
        with pytest.raises(hal.InvalidState, match=r"node 1.*freed|freed.*"):
            graph.replay()
        assert read(a) == before
        b.allocate()
        graph.replay()
        assert read(b) == np.arange(1, 1 + N, dtype=np.int32).tobytes()

    def test_G5_work_that_is_refused_is_in_no_graph(self, device: hal.Compiled) -> None:
        graph, program = hal.Graph(device), device.compile(add_one)
        made, wrong = ints(device), hal.empty(N, hal.float32, device)
        with pytest.raises(hal.InvalidArgument, match="wrong dtype"):
            graph.add(program, wrong, vals=(N,), threads=N)
        with pytest.raises(hal.InvalidArgument, match="no threads"):
            graph.add(program, made, vals=(N,), threads=0)
        with pytest.raises(hal.InvalidArgument):
            graph.fill(made, "x")  # type: ignore[arg-type]
        assert len(graph) == 0

    def test_G7_saved_and_loaded(self, device: hal.Compiled, tmp_path: Path) -> None:
        add, up, copy = programs(device)
        a, b = ints(device, 1), ints(device, 2)
        with device.capture() as graph:
            up(a[3:50], 7)
            b.copyin(np.arange(N, dtype=np.int32))
            copy(b[10:20], a[10:20])
            b[:4].fill(9)
            add(b)
            a[50:60].copy_from(b[:10])
        path = tmp_path / "work.graph"
        graph.save(path)
        loaded = hal.load_graph(path, device)
        assert len(loaded) == len(graph) and loaded.dependencies == graph.dependencies
        for old, new in zip(graph.buffers, loaded.buffers, strict=True):
            new.copyin(read(old))
        graph.replay()
        loaded.replay()
        assert [read(one) for one in loaded.buffers] == [read(one) for one in graph.buffers]
        whole = path.read_bytes()
        for damaged in (
            whole[:-1],
            whole[:40],
            b"",
            b"no graph",
            whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:],
        ):
            path.write_bytes(damaged)
            with pytest.raises(hal.InvalidArgument, match="load_graph: the b"):
                hal.load_graph(path, device)
        with pytest.raises(hal.InvalidArgument, match="cannot be used"):
            hal.load_graph(tmp_path / "none", device)
        with pytest.raises(hal.InvalidArgument, match="cannot be written"):
            graph.save(tmp_path / "none" / "work.graph")

    def test_G6_random_sequences(self, device: hal.Compiled) -> None:
        for seed in range(SEQUENCES):
            check_sequence(device, seed)


class Sequence:
    """Random launches, copies and fills over parts of three buffers; the seed decides."""

    def __init__(self, device: hal.Compiled, seed: int) -> None:
        self.device, self.seed = device, seed
        chance = random.Random(seed)
        self.steps: list[tuple[Any, ...]] = [
            (
                chance.choice(["add", "up", "copy", "fill", "move", "data"]),
                *(chance.randrange(3) for _ in range(2)),  # buffers
                *sorted(chance.sample(range(N + 1), 2)),  # the part that is written
                chance.randrange(N),  # where the part that is read begins
                chance.randrange(3),  # queue
            )
            for _ in range(chance.randrange(1, 14))
        ]
        kernels = add_one, count_up, copier(hal.int32)
        self.add, self.up, self.copy = map(device.compile, kernels)

    def fresh(self) -> list[hal.Buffer]:
        return [ints(self.device, 1 + number) for number in range(3)]

    def run(self, bufs: list[hal.Buffer], queues: list[hal.Queue] | None = None) -> None:
        """Do the work; with `queues` each step in one of them, after the step before."""
        last: hal.Event | None = None
        for number, step in enumerate(self.steps):
            queue = queues[step[-1]] if queues else None
            if queue is not None and last is not None:
                queue.wait(last)
            self._do(number, bufs, queue)
            last = None if queue is None else queue.record()
        assert last is None or last.wait(SECONDS)

    def _do(self, number: int, bufs: list[hal.Buffer], queue: hal.Queue | None) -> None:
        what, i, j, low, high, other, _ = self.steps[number]
        size = high - low
        begin = min(other, N - size)
        dest, src = bufs[i][low:high], bufs[j][begin : begin + size]
        if what == "add":
            self.add(dest, vals=(size,), threads=size, queue=queue)
        elif what == "up":
            self.up(dest, vals=(number, size), threads=size, queue=queue)
        elif what == "copy" and i != j:  # a kernel's own buffers may not overlap
            self.copy(dest, src, vals=(size,), threads=size, queue=queue)
        elif what == "fill":
            dest.fill(number, queue=queue)
        elif what == "data":
            dest.copyin(np.arange(size, dtype=np.int32), queue=queue)
        else:
            dest.copy_from(src, queue=queue)


def check_sequence(device: hal.Compiled, seed: int) -> None:
    """Compare one random sequence: eager, in queues, captured, replayed with other buffers."""
    sequence = Sequence(device, seed)
    expected, queued, captured, others = (sequence.fresh() for _ in range(4))
    sequence.run(expected)
    wanted = [read(one) for one in expected]
    sequence.run(queued, [device.queue() for _ in range(3)])
    assert [read(one) for one in queued] == wanted, f"seed {seed}, in queues"
    with device.capture() as graph:
        sequence.run(captured)
    graph.replay()
    assert [read(one) for one in captured] == wanted, f"seed {seed}, captured"
    pairs = zip(captured, others, strict=True)
    graph.replay({old: new for old, new in pairs if old in graph.buffers})
    assert [read(one) for one in others] == wanted, f"seed {seed}, with other buffers"
