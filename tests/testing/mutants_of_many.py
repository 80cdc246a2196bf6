"""Mutants that put the elements of several devices into the wrong place, or too early."""

from mutants import mutant

from hal_kernel.multidevice import multi_buffer
from hal_kernel.multidevice.multi_buffer import MultiBuffer


@mutant("M1", "many", MultiBuffer, "_place")
def parts_begin_one_element_late(inner, self, shard):
    return inner(self, shard._replace(start=max(0, shard.start - 1)))


@mutant("M1", "many", multi_buffer, "pieces")
def a_part_is_copied_from_the_beginning_of_its_source(inner, *layouts):
    return [piece._replace(src_start=0) for piece in inner(*layouts)]


@mutant("M1", "many")
def launches_over_devices_have_no_order():
    MultiBuffer._end = lambda self, wait, queue, event: None  # type: ignore[method-assign]
