"""Every public object in other processes and as a copy: it travels, or says what does instead."""

import copy
import pickle

import pytest
from fake_backend import FakeRenderer

import hal_core as hal
from hal_core import errors as core_errors
from hal_kernel import errors as kernel_errors

SOURCE = hal.Source("k", "def k(t, y):\n    y[t[0]] = 1", "y: int32*", language="python")


def made():
    @hal.func
    def twice(x):
        return x + x

    @hal.kernel
    def doubled(y: hal.Ptr[hal.int32]) -> None:
        y[0] = twice(y[0])

    return doubled, twice


def public_objects(plugin):
    """One of each public class, by the class's name."""
    plugin.renderer = FakeRenderer
    device = hal.Device["FAKE"]
    program, kernel = device.compile(SOURCE), made()[0].lower()
    with hal.profile() as profile, hal.profile_range("here"):
        buffer = hal.zeros(4, hal.int32, device)
        program(buffer, threads=4)
    graph = hal.Graph(device)
    graph.fill(buffer, 1)
    found = [
        device, device.info, device.info.limits, device.allocator, hal.BufferSpec(zero=True),
        device.allocator.statistics(), buffer, program, program.info, program.binary, SOURCE,
        *made(), kernel, kernel.uops[0], kernel.signature, kernel.signature.params[0],
        device.compilers[0], device.compiler, FakeRenderer(), profile, *profile.events,
        hal.int32, hal.Ptr[hal.int32], hal.ConstPtr[hal.int32], hal.Device, hal.cache.statistics(),
        hal.Interface(kernel.signature), hal.OutOfMemory("allocate", "no room"),
        device.queue(), hal.Event(), hal.Programs([program]), hal.Image(4), graph, *graph.nodes,
        hal.MultiBuffer([device], 4, hal.int32),
    ]  # fmt: skip
    return {name.__name__: one for one in found for name in type(one).__mro__} | {
        "Ptr": hal.Ptr[hal.int32], "ConstPtr": hal.ConstPtr[hal.int32],
        "a view": buffer[1:3], "an open profile": hal.start_profile(),
    }  # fmt: skip


INSTEAD = {
    "Compiled": r"device\.name.* hal\.Device\[name\]", "Allocator": r"hal\.Buffer",
    "Program": r"kernel.*program\.binary.*device\.load", "Programs": r"source.*program\.binary",
    "Compiler": r"kernel", "CompilerPair": r"kernel",
    "Queue": r"device\.queue\(\)", "Event": r"Wait for it here",
    "Graph": r"device\.capture\(\)", "Node": r"graph\.add",
    "InlineFunction": r"cannot import it\. Send a kernel that calls it",
}  # fmt: skip


def test_every_public_object_travels_or_names_what_does(plugin):
    objects = public_objects(plugin)
    try:
        public = {name for name in hal.__all__ if isinstance(getattr(hal, name), type)}
        kinds = {name for name in public if not isinstance(getattr(hal, name), hal.DType)}
        errors = {*vars(core_errors), *vars(kernel_errors)} - {"OutOfMemory"}
        kinds -= errors
        assert kinds - {"DType"} <= objects.keys(), "a public class without an example here"
        for name, one in objects.items():
            if any(kind.__name__ in INSTEAD for kind in type(one).__mro__):
                instead = next(
                    INSTEAD[k.__name__] for k in type(one).__mro__ if k.__name__ in INSTEAD
                )
                with pytest.raises(hal.Unsupported, match=f"pickle.*process.*{instead}"):
                    pickle.dumps(one)
                assert copy.copy(one) is one and copy.deepcopy([one])[0] is one
                continue
            for protocol in range(2, 6):
                assert type(pickle.loads(pickle.dumps(one, protocol))) is type(one), name
            assert type(copy.copy(one)) is type(copy.deepcopy(one)) is type(one), name
    finally:
        hal.finalize_profile()


def test_the_registry_of_the_process_is_the_same_everywhere():
    assert pickle.loads(pickle.dumps(hal.Device)) is hal.Device
    assert copy.copy(hal.Device) is copy.deepcopy(hal.Device) is hal.Device
    with pytest.raises(hal.Unsupported, match=r"of this process.*hal\.DeviceRegistry\(path\)"):
        pickle.dumps(hal.DeviceRegistry(["."]))


def test_a_profile_travels_with_its_events(fake):
    with hal.profile(limit=2) as profile:
        for _ in range(3):
            hal.zeros(4, hal.int32, fake)
        still_open = pickle.loads(pickle.dumps(profile))
        assert still_open.events and still_open.dropped > 0
    there = pickle.loads(pickle.dumps(profile))
    assert (there.events, there.dropped) == (profile.events, profile.dropped)
    with pytest.raises(hal.InvalidState, match="opened before"), there:
        pass


def test_what_holds_a_device_can_be_copied(fake):
    model = {"device": fake, "weights": hal.zeros(4, hal.int32, fake)}
    made = copy.deepcopy(model)
    assert made["device"] is fake and made["weights"] is not model["weights"]


def test_no_public_object_calls_the_backend_to_say_what_it_is(plugin, monkeypatch):
    """A repr is for logs, debuggers and errors, whatever has happened to the device."""
    objects = public_objects(plugin)
    hal.finalize_profile()
    device = hal.Device["FAKE"]
    freed = hal.zeros(4, hal.int32, device)
    with device.capture() as graph:
        freed.fill(1)
    freed.deallocate()
    assert "1 nodes, whose memory is gone\n0  fill  16 bytes" in str(graph)
    for closed in (False, True):
        if closed:
            device.close()
        for name in ("_alloc", "_free", "_fill", "_copyin", "_copyout"):
            monkeypatch.setattr(device.allocator, name, None, raising=False)
        for one in (*objects.values(), graph, graph[0], device.default_queue):
            for text in (repr(one), str(one), f"{one}"):
                assert text
        monkeypatch.undo()
