"""What comes in the middle of a call, of another thread or of a finalizer: it neither hangs nor
breaks what was begun."""

from __future__ import annotations

import _weakrefset
import itertools
import os

import pytest
from fake_backend import FakePlugin

import hal_core as hal
from hal_core.profiling import recorder
from hal_core.testing.interrupted import Scene, everywhere

CORE, WEAK = os.path.dirname(hal.__file__), _weakrefset.__file__
NUMBERS = itertools.count(100)


def numbered(number: int) -> hal.Source:
    """One of many kernels that differ."""
    text = f"def set(t, x, n): x[t[0]] = n  # {number}"
    return hal.Source("set", text, "x: int32*, n: int32", language="python")


both = pytest.mark.parametrize("thread", [False, True], ids=["finalizer", "thread"])


@both
def test_X1_a_buffer_exported_twice_at_once_has_one_owner(fake: hal.Compiled, thread: bool) -> None:
    def scene() -> Scene:
        buffer, leases = hal.zeros(16, hal.int32, fake), list[object]()
        allocator, handle = fake.allocator, buffer._buf[0]

        def share() -> None:
            leases.append(buffer._share())

        def check() -> None:
            assert len(leases) == 2 and leases[0] is leases[1]
            leases.clear()
            allocator.free_cache()
            assert handle in allocator.memory, "freed while it is in use"
            buffer.deallocate()
            allocator.free_cache()
            assert handle not in allocator.memory, "never freed"

        return Scene(share, share, check)

    assert everywhere([CORE], scene, on_another_thread=thread) > 1


@both
def test_X1_a_view_made_while_another_is_made_goes_with_its_base(
    fake: hal.Compiled, thread: bool
) -> None:
    """Beside many that were made before, of which half are gone."""

    def scene() -> Scene:
        base = hal.zeros(64, hal.int32, fake)
        views = [base.view(1, offset=4 * number) for number in range(16)]
        del views[::2]

        def view() -> None:
            views.append(base.view(1))

        def check() -> None:
            assert len(views) == 10
            base.deallocate()
            assert not any(view.is_allocated for view in views), "a view of freed memory"

        return Scene(view, view, check)

    assert everywhere([CORE], scene, on_another_thread=thread) > 10


@both
def test_X1_a_program_loaded_while_the_device_closes(plugin: FakePlugin, thread: bool) -> None:
    def scene() -> Scene:
        device = hal.Device["FAKE"]
        programs = [device.compile(numbered(n)) for n in range(3)]

        def load() -> None:
            try:
                programs.append(device.compile(numbered(3)))
            except hal.InvalidState:  # it was too late
                return

        def check() -> None:
            assert device.closed and hal.Device["FAKE"] is not device
            for program in programs[:3]:
                with pytest.raises(hal.InvalidState):
                    program(hal.zeros(4, hal.int32, "FAKE"), vals=(1,), threads=4)

        return Scene(device.close, load, check)

    assert everywhere([CORE, WEAK], scene, on_another_thread=thread) > 20


@both
@pytest.mark.parametrize("opens", [True, False], ids=["opened", "closed"])
def test_T1_a_profile_opened_or_closed_while_a_program_is_launched_first(
    fake: hal.Compiled, opens: bool, thread: bool
) -> None:
    def scene() -> Scene:
        profile, buffer = hal.profile(), hal.zeros(4, hal.int32, fake)
        if not opens:
            profile.__enter__()
        program = fake.load(fake.compile(numbered(0)).binary)

        def launch() -> None:
            program(buffer, vals=(5,), threads=4)

        def switch() -> None:
            profile._begin() if opens else profile._end()

        def check() -> None:
            assert buffer.numpy().tolist() == [5] * 4
            if opens:
                launch()
                assert "launch" in [event.kind for event in profile.events]
                profile._end()
            for value in (6, 7):  # the fast way
                program(buffer, vals=(value,), threads=4)
                assert buffer.numpy().tolist() == [value] * 4
            assert not recorder.rings

        return Scene(launch, switch, check)

    assert everywhere([CORE, WEAK], scene, on_another_thread=thread) > 20


@both
def test_R14_devices_opened_while_others_are(plugin: FakePlugin, thread: bool) -> None:
    """By any spelling of their names. A finalizer in the middle of what it asks for is told so."""

    def scene() -> Scene:
        hal.Device["FAKE"].close()
        hal.Device["FAKE:1"].close()
        hal.Device.refresh()
        found: list[hal.Compiled] = []

        def open_another() -> None:
            try:
                found.append(hal.Device["fake:1"])
            except hal.InvalidState:
                assert not thread

        def check() -> None:
            assert not any(device.closed for device in found)
            for name in ("FAKE", "FAKE:1"):
                assert hal.Device[name] is hal.Device[name.lower()]
            assert hal.Device["FAKE"] in found

        return Scene(lambda: found.append(hal.Device["fake:0"]), open_another, check)

    assert everywhere([CORE], scene, on_another_thread=thread) > 50


@both
def test_C1_a_kernel_compiled_while_another_is(fake: hal.Compiled, thread: bool) -> None:
    def scene() -> Scene:
        programs: list[hal.Program] = []
        sources = numbered(next(NUMBERS)), numbered(next(NUMBERS))

        def check() -> None:
            buffer = hal.zeros(4, hal.int32, fake)
            for program in programs:
                program(buffer, vals=(9,), threads=4)
            assert len(programs) == 2

        work, other = (lambda one=one: programs.append(fake.compile(one)) for one in sources)
        return Scene(work, other, check)

    assert everywhere([CORE], scene, on_another_thread=thread) > 50


@both
def test_L1_a_kernel_lowered_while_another_is(thread: bool) -> None:
    def scene() -> Scene:
        lowered: list[object] = []

        @hal.kernel
        def one(y: hal.Ptr[hal.int32]) -> None:
            y[0] = 1

        @hal.kernel
        def two(y: hal.Ptr[hal.int32]) -> None:
            y[0] = 2

        def check() -> None:
            assert sorted(kernel.name for kernel in lowered) == ["one", "two"]

        first, second = (lambda k=k: lowered.append(k.lower()) for k in (one, two))
        return Scene(first, second, check)

    places = [os.path.join(CORE, "lang", "function.py")]
    assert everywhere(places, scene, on_another_thread=thread) > 1


@both
def test_R14_a_plugin_registered_while_others_look(thread: bool) -> None:
    """What was looked up before is not kept beyond it."""

    def scene() -> Scene:
        registry = hal.DeviceRegistry([])
        registry.register_plugin("ONE", FakePlugin("accelerator"))

        def look() -> None:
            registry.get_available_devices()
            assert registry.DEFAULT in ("ONE", "TWO")

        def register() -> None:
            registry.register_plugin("ONE", FakePlugin("accelerator", "accelerator"))
            registry.register_plugin("TWO", FakePlugin("gpu"))

        def check() -> None:
            assert list(registry) == ["ONE", "TWO"] and registry.DEFAULT == "TWO"
            assert registry.get_available_devices() == ["TWO", "ONE", "ONE:1"]

        return Scene(look, register, check)

    places = [os.path.join(CORE, "plugins.py"), os.path.join(CORE, "registry.py")]
    assert everywhere(places, scene, on_another_thread=thread) > 20


def test_X2_an_allocation_while_a_forked_child_counts_what_there_is(fake: hal.Compiled) -> None:
    def scene() -> Scene:
        allocator, size = fake.allocator, 1 << next(NUMBERS) % 16
        allocator.cache_limit = 1 << 20
        kept = [hal.Buffer(fake, size, hal.int8).allocate() for _ in range(2)]

        def allocate() -> None:
            kept.append(hal.Buffer(fake, 100_000 + 8192 * next(NUMBERS), hal.int8).allocate())
            allocator.free(allocator.alloc(300_000), 300_000)

        def check() -> None:
            kept.clear()
            allocator.free_cache()

        return Scene(fake.allocator._after_fork, allocate, check)

    assert everywhere([CORE], scene) > 2
