"""X1: two threads use one buffer, one of them interrupted at every place by the other."""

import os

from interrupted import Scene, everywhere

import hal_core as hal

CORE = os.path.dirname(hal.__file__)


def test_X1_a_buffer_exported_twice_at_once_has_one_owner(fake):
    def scene():
        buffer, leases = hal.zeros(16, hal.int32, fake), list[object]()
        allocator = fake.allocator
        handle = buffer._buf[0]

        def share():
            leases.append(buffer._share())

        def check():
            assert len(leases) == 2 and leases[0] is leases[1]
            leases.clear()
            allocator.free_cache()
            assert handle in allocator.memory, "freed while it is in use"
            buffer.deallocate()
            allocator.free_cache()
            assert handle not in allocator.memory, "never freed"

        return Scene(share, share, check)

    assert everywhere([CORE], scene, on_another_thread=True) > 1


def test_X1_a_view_made_while_another_is_made_goes_with_its_base(fake):
    """Beside many that were made before, of which half are gone."""

    def scene():
        base = hal.zeros(64, hal.int32, fake)
        views = [base.view(1, offset=4 * number) for number in range(16)]
        del views[::2]

        def view():
            views.append(base.view(1))

        def check():
            assert len(views) == 10
            base.deallocate()
            assert not any(view.is_allocated for view in views), "a view of freed memory"

        return Scene(view, view, check)

    assert everywhere([CORE], scene, on_another_thread=True) > 10


def test_X1_a_buffer_first_used_by_two_threads_is_allocated_once(fake):
    def scene():
        buffer = hal.Buffer(fake, 16, hal.int32)

        def check():
            assert buffer.is_allocated and fake.allocator.statistics().live == 1
            buffer.deallocate()
            assert fake.allocator.statistics().live == 0

        return Scene(buffer.ensure_allocated, buffer.ensure_allocated, check)

    assert everywhere([CORE], scene, on_another_thread=True) > 3
