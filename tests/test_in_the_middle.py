"""What comes in the middle of a call, of another thread or of a finalizer: it neither hangs nor
breaks what was begun."""

from __future__ import annotations

import os

import pytest

import hal_core as hal
from hal_core.testing.interrupted import Scene, everywhere

CORE = os.path.dirname(hal.__file__)
KERNEL = hal.Source(
    "set", "def set(t, x, n): x[t[0]] = n", "x: int32*, n: int32", language="python"
)

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
