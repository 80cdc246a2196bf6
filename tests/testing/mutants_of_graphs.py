"""Mutants whose graphs run too early, too little, in a wrong order or on wrong memory."""

from mutants import mutant

from hal_core.graph import capture, plan
from hal_core.graph.capture import Recorder
from hal_core.graph.node import Node
from hal_core.graph.plan import Plan
from hal_core.queue import in_capture


@mutant("G1 G4", "graph", Recorder, "_add_launch")
def work_runs_during_capture(inner, self, program, geometry, bufs, args, *more):
    inner(self, program, geometry, bufs, args, *more)
    program._launch(geometry, *args)


@mutant("G1", "graph", Plan, "work")
def replays_run_nodes_backwards(inner, self):
    self.steps.reverse()
    work = inner(self)
    self.steps.reverse()
    return work


@mutant("G1 G6", "graph", Node, "step")
def views_lose_their_offset(inner, self, bufs, after):
    whole = [one if one.base is None else one.base.view(one.size, one.dtype) for one in bufs]
    return inner(self, whole, after)


@mutant("G1", "graph", Recorder, "_add_memory_work")
def host_data_is_read_at_the_replay(inner, self, method, args, *bufs):
    event = inner(self, method, args, *bufs)
    if method == "_copyin":
        self._nodes[-1].data = args[-1]
    return event


@mutant("G2", "graph")
def other_buffers_are_ignored():
    plan.exchanged = lambda device, nodes, buffers: {}


@mutant("G2", "graph", plan, "_part_of")
def views_of_exchanged_buffers_stay(inner, old, new, buffer):
    made = inner(old, new, buffer)
    return buffer if buffer.base is not None else made


@mutant("G2", "graph", Node, "update")
def updates_are_forgotten(inner, self, *bufs, **how):
    before = self.bufs, self._args, self.geometry
    inner(self, *bufs, **how)
    self.bufs, self._args, self.geometry = before


@mutant("G2", "graph", Node, "uses")
def dependencies_are_by_buffer(inner, self, bufs):
    return inner(self, [one if one.base is None else one.base for one in bufs])


@mutant("G2", "graph", Node, "uses")
def reads_order_nothing(inner, self, bufs):
    return [use for use in inner(self, bufs) if use.writes]


@mutant("G3", "graph")
def replays_in_queues_run_at_once():
    from hal_core.queue import WorkerQueue

    WorkerQueue._add_replay = lambda self, plan: plan.work()()  # type: ignore[method-assign]


@mutant("G4", "graph")
def captures_may_be_nested():
    class Blind(dict):
        def __contains__(self, key):
            return False

    blind = Blind()
    capture.captures = in_capture.captures = blind


@mutant("G4", "graph")
def captures_take_the_work_of_all_threads():
    in_capture.capturing.__globals__["get_ident"] = lambda: next(iter(in_capture.captures), 0)


@mutant("G4", "graph")
def a_failed_capture_keeps_its_nodes():
    from hal_core import graph

    class Nodes(list):
        def clear(self):
            """Keep them."""

    def init(self, device=None):
        whole(self, device)
        self.nodes = Nodes()
        self._recorder = graph.Recorder(self.device, self.nodes, self._changes)

    whole, graph.Graph.__init__ = graph.Graph.__init__, init


@mutant("G5", "graph")
def replays_are_checked_once():
    Plan.is_current = lambda self, buffers: True  # type: ignore[method-assign]
