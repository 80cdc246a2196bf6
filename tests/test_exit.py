"""Public methods that a user's `__del__` calls while Python ends: a result, or InvalidState."""

import inspect

from run_python import printed

import hal_core as hal

# One program: what it holds is dropped when Python clears its module, and imports fail by then.
PROGRAM = """
import asyncio, os, pickle, sys, tempfile
import numpy as np
import hal_core as hal
from hal_kernel.python import plugin

if "PYTHON" not in hal.Device:
    hal.Device.register_plugin("PYTHON", plugin)

@hal.kernel
def fill_in(y: hal.Ptr[hal.int32], v: hal.int32) -> None:
    y[hal.global_idx(0)] = v

@hal.func
def double(x):
    return 2 * x

@hal.kernel
def never_lowered(y: hal.Ptr[hal.int32]) -> None:
    y[hal.global_idx(0)] = 1

dev = hal.Device["PYTHON"]
array, host, folder = np.arange(4, dtype="i4"), bytearray(16), tempfile.mkdtemp()
path = os.path.join(folder, "file")
x, y = hal.Buffer.from_numpy(array, dev), hal.zeros(4, hal.int32, dev)
x.to_file(path)
many = hal.MultiBuffer.from_numpy(array, [dev])
program = dev.compile(fill_in)
graph = hal.Graph(dev)
node = graph.add(program, y, vals=(1,), threads=4)
graph.replay(wait=True)
saved = os.path.join(folder, "graph")
graph.save(saved)
queue = dev.queue()
event = queue.record()
queue.synchronize()
with hal.profile() as profile:
    y.fill(1)
own = hal.Event()

async def wait_for(event):
    await event

CALLS = {
    "Buffer.__init__": lambda: hal.Buffer(dev, 4, hal.int32),
    "Buffer.allocate": lambda: hal.Buffer(dev, 4, hal.int32).allocate(),
    "Buffer.ensure_allocated": lambda: x.ensure_allocated(),
    "Buffer.numpy": lambda: x.numpy(),
    "Buffer.copyin": lambda: y.copyin(array),
    "Buffer.copyout": lambda: x.copyout(host),
    "Buffer.copy_from": lambda: y.copy_from(x),
    "Buffer.fill": lambda: y.fill(2),
    "Buffer.view": lambda: x.view(2, hal.int32, 4),
    "Buffer.__getitem__": lambda: x[1:],
    "Buffer.__len__": lambda: len(x),
    "Buffer.__repr__": lambda: repr(x),
    "Buffer.from_numpy": lambda: hal.Buffer.from_numpy(array, dev),
    "Buffer.from_dlpack": lambda: hal.Buffer.from_dlpack(array, dev),
    "Buffer.from_file": lambda: hal.Buffer.from_file(path, hal.int32, device=dev),
    "Buffer.to_file": lambda: x.to_file(path),
    "Buffer.as_memoryview": lambda: x.as_memoryview(),
    "Buffer.__array__": lambda: np.asarray(x),
    "Buffer.__buffer__": lambda: x.__buffer__(0),
    "Buffer.__dlpack__": lambda: x.__dlpack__(),
    "Buffer.__dlpack_device__": lambda: x.__dlpack_device__(),
    "Buffer.__reduce_ex__": lambda: x.__reduce_ex__(5),
    "Buffer.__setstate__": lambda: hal.Buffer(dev, 4, hal.int32).__setstate__(bytes(16)),
    "Buffer.deallocate": lambda: hal.Buffer(dev, 4, hal.int32).allocate().deallocate(),
    "MultiBuffer.__init__": lambda: hal.MultiBuffer([dev], 4, hal.int32),
    "MultiBuffer.copyin": lambda: many.copyin(array),
    "MultiBuffer.copyout": lambda: many.copyout(host),
    "MultiBuffer.fill": lambda: many.fill(3),
    "MultiBuffer.from_numpy": lambda: hal.MultiBuffer.from_numpy(array, [dev]),
    "MultiBuffer.numpy": lambda: many.numpy(),
    "MultiBuffer.reduce": lambda: many.reduce(),
    "MultiBuffer.reshard": lambda: many.reshard(None),
    "MultiBuffer.__repr__": lambda: repr(many),
    "Compiled.capture": lambda: dev.capture().__enter__(),
    "Compiled.compile": lambda: dev.compile(fill_in),
    "Compiled.load": lambda: dev.load(program.binary),
    "Compiled.queue": lambda: dev.queue(),
    "Compiled.supports": lambda: dev.supports(hal.int32),
    "Compiled.synchronize": lambda: dev.synchronize(),
    "Compiled.__repr__": lambda: repr(dev),
    "Compiled.__enter__": lambda: dev.__enter__(),
    "DeviceRegistry.__getitem__": lambda: hal.Device["PYTHON"],
    "DeviceRegistry.__contains__": lambda: "PYTHON" in hal.Device,
    "DeviceRegistry.__iter__": lambda: list(hal.Device),
    "DeviceRegistry.__len__": lambda: len(hal.Device),
    "DeviceRegistry.__repr__": lambda: repr(hal.Device),
    "DeviceRegistry.backend": lambda: hal.Device.backend("PYTHON"),
    "DeviceRegistry.canonicalize": lambda: hal.Device.canonicalize("python:0"),
    "DeviceRegistry.default": lambda: hal.Device.default("PYTHON").__enter__(),
    "DeviceRegistry.devices": lambda: hal.Device.devices("PYTHON"),
    "DeviceRegistry.get_available_devices": lambda: hal.Device.get_available_devices(),
    "DeviceRegistry.info": lambda: hal.Device.info("PYTHON"),
    "DeviceRegistry.states": lambda: hal.Device.states(),
    "DeviceRegistry.refresh": lambda: hal.Device.refresh(),
    "DeviceRegistry.register_plugin": lambda: hal.Device.register_plugin("OTHER", plugin),
    "Program.__call__": lambda: program(y, vals=(1,), threads=4),
    "Program.__repr__": lambda: repr(program),
    "Program.unload": lambda: program.unload(),
    "Queue.record": lambda: queue.record(),
    "Queue.synchronize": lambda: queue.synchronize(),
    "Queue.wait": lambda: queue.wait(event),
    "Queue.wrap": lambda: hal.Queue.wrap(object(), dev),
    "Queue.__enter__": lambda: queue.__enter__(),
    "Queue.__exit__": lambda: queue.__exit__(None, None, None),
    "Queue.__repr__": lambda: repr(queue),
    "Queue.close": lambda: queue.close(),
    "Event.__init__": lambda: hal.Event(),
    "Event.set": lambda: own.set(),
    "Event.wait": lambda: event.wait(),
    "Event.__await__": lambda: next(event.__await__(), None),
    "Event.seconds_since": lambda: event.seconds_since(event),
    "Event.__repr__": lambda: repr(event),
    "Graph.__init__": lambda: hal.Graph(dev),
    "Graph.add": lambda: graph.add(program, y, vals=(1,), threads=4),
    "Graph.copy": lambda: graph.copy(y, x),
    "Graph.fill": lambda: graph.fill(y, 1),
    "Graph.replay": lambda: graph.replay(),
    "Graph.save": lambda: graph.save(path),
    "Graph.dot": lambda: graph.dot(),
    "Graph.__str__": lambda: str(graph),
    "Graph.__repr__": lambda: repr(graph),
    "Graph.__len__": lambda: len(graph),
    "Graph.__iter__": lambda: list(graph),
    "Graph.__getitem__": lambda: graph[0],
    "load_graph": lambda: hal.load_graph(saved, dev),
    "Node.update": lambda: node.update(vals=(2,)),
    "Node.__repr__": lambda: repr(node),
    "Allocator.__repr__": lambda: repr(dev.allocator),
    "Profile.save": lambda: profile.save(path),
    "Profile.__repr__": lambda: repr(profile),
    "Profile.__enter__": lambda: hal.profile().__enter__(),
    "Profile.__exit__": lambda: profile.__exit__(None, None, None),
    "Profile.__setstate__": lambda: hal.profile().__setstate__(profile.__getstate__()),
    "KernelFunction.lower": lambda: never_lowered.lower(),
    "KernelFunction.__repr__": lambda: repr(fill_in),
    "KernelFunction.__reduce__": lambda: fill_in.__reduce__(),
    "KernelFunction.__init__": lambda: hal.kernel(lambda y: None),
    "InlineFunction.__init__": lambda: hal.func(lambda x: x),
    "InlineFunction.text": lambda: double.text(),
    "InlineFunction.__repr__": lambda: repr(double),
    "InlineFunction.__reduce__": lambda: double.__reduce__(),
    "Allocator.alloc": lambda: dev.allocator.alloc(16),
    "Allocator.free_cache": lambda: dev.allocator.free_cache(),
    "Allocator.statistics": lambda: dev.allocator.statistics(),
    "empty": lambda: hal.empty(4, hal.int32, dev),
    "zeros": lambda: hal.zeros(4, hal.int32, "PYTHON"),
    "launch": lambda: hal.launch(fill_in, many, vals=(1,), threads=4),
    "by_name": lambda: hal.Buffer.from_numpy(array, "PYTHON"),
    "by_default": lambda: hal.zeros(4, hal.int32),
    "Compiled.__exit__": lambda: dev.__exit__(None, None, None),
    "Compiled.close": lambda: dev.close(),
}

class Late:
    def __del__(self):
        assert sys.meta_path is None
        for name, call in CALLS.items():
            try:
                call()
            except hal.InvalidState:
                said = "InvalidState"
            except BaseException as error:
                said = f"{type(error).__name__}: {error}"
            else:
                said = "result"
            os.write(1, f"{name} {said}{os.linesep}".encode())

late = Late()
"""
# Methods that need more than this program has, or belong to those who write backends.
OTHERS = {
    "Compiled.__init__", "Program.__init__", "Program.__new__", "Queue.__init__", "Node.__init__",
    "Node.step", "Node.uses", "Node.writes", "Profile.__init__", "InlineFunction.__call__",
    "KernelFunction.__call__", "KernelFunction.__getitem__", "Allocator.__init__",
    "Allocator.close", "Allocator.free", "DeviceRegistry.__init__", "DeviceRegistry.__getattr__",
    "Queue.event_class", "DeviceRegistry.__call__", "Buffer.wrap", "Buffer.__getattr__",
}  # fmt: skip


def _public():
    """The methods of the objects that a user holds."""
    registry = type(hal.Device)
    kinds = (
        hal.Buffer, hal.MultiBuffer, hal.Compiled, registry, hal.Program, hal.Queue, hal.Event,
        hal.Graph, hal.Node, hal.Profile, hal.KernelFunction, hal.Allocator,
        hal.InlineFunction,
    )  # fmt: skip
    copies = {"__copy__", "__deepcopy__", "__reduce_ex__", "__del__", "__getstate__"}
    return {
        f"{kind.__name__}.{name}"
        for kind in kinds
        for base in kind.__mro__ if base.__module__.startswith("hal_core")
        for name in vars(base)
        if (name[0] != "_" or name[:2] == "__") and name not in copies
        and callable(getattr(kind, name)) and not inspect.isclass(getattr(kind, name))
    }  # fmt: skip


def test_public_methods_give_a_result_or_InvalidState_while_python_ends(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    said = dict(line.split(" ", 1) for line in printed(path).splitlines())
    assert {
        name: text for name, text in said.items() if text not in ("result", "InvalidState")
    } == {}
    missing = _public() - said.keys() - OTHERS
    assert not missing, f"not called: {sorted(missing)}"
    assert len(said) > 100 and said["Buffer.__len__"] == "result"


# Finalizers that keep something, and `in_a_cycle`, which leaves them to the last collection. In
# this order of objects Python 3.12 crashed every time.
MANY_FINALIZERS = """
import sys, types
import hal_core as hal
from hal_kernel.python import plugin

class Ending:
    kept = []
    def __del__(self):
        self.kept.append((self.held,))

class Cycle:
    def __init__(self):
        self.me = self
    def __del__(self):
        print("finalized before the modules", sys.meta_path is not None)

def in_a_cycle():
    pass

if "PYTHON" not in hal.Device:
    hal.Device.register_plugin("PYTHON", plugin)
hal.Device["PYTHON"]
for number in range(400):
    module = sys.modules[f"module_{number}"] = types.ModuleType("module")
    module.me = module
many = [Ending()]
for _ in range(1000):
    many.append(Ending())
    many[-2].held = ([],)
many[-1].held = ()
Cycle()
"""


LATE_THREAD = """
import sys, threading
import hal_core as hal

def work():
    threading.main_thread().join()
    dev = hal.Device["PYTHON"]
    x = hal.zeros(9 << 20, hal.uint8, dev).fill(3)
    x.to_file(sys.argv[1])
    print(hal.Buffer.from_file(sys.argv[1], hal.uint8, device=dev).numpy().min())
    try:
        print(x.fill(1, queue=dev.queue()).wait(20))
    except hal.InvalidState as error:
        print("join this thread" in str(error))

threading.Thread(target=work).start()
"""


def test_a_thread_that_outlives_the_main_one_uses_devices_and_files(tmp_path):
    assert printed(LATE_THREAD, str(tmp_path / "file")).split() == ["3", "True"]


def test_R15_many_modules_and_finalizers_at_exit_leave_the_exit_code():
    assert printed(MANY_FINALIZERS) == "finalized before the modules True\n"


def test_P10_a_program_is_unloaded_when_its_device_is_closed_at_exit(tmp_path):
    """By a finalizer, which does nothing once `weakref` has had its part of the exit."""
    file = tmp_path / "program.py"
    file.write_text(
        "import logging\nimport hal_core as hal\nfrom hal_testing.fake import FakePlugin\n"
        "logging.basicConfig()\nhal.Device.register_plugin('SIM', FakePlugin(1))\n"
        "@hal.kernel\ndef one(y: hal.Ptr[hal.int32]) -> None:\n    y[0] = 1\n"
        "program = hal.Device['SIM'].compile(one)\n"
    )
    assert printed(file) == ""
