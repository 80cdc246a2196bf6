"""Functions written as text, and storage for launches that come in the middle of others."""

from __future__ import annotations

import gc
import itertools
import traceback
import weakref

import pytest

from hal_core.program.generated import define, spare_storage

TEXT = """
def launch(inner):
    try:
        storage = take()
    except IndexError:
        storage = make()
    if inner:
        used.append(launch_inside(inner - 1))
    used.append(storage)
    give_back(storage)
    return storage
"""


def test_a_launch_in_the_middle_of_another_has_storage_of_its_own() -> None:
    used: list[int] = []
    numbers = itertools.count(1)
    names = {"used": used, **spare_storage(lambda: next(numbers), 0)}
    names["launch_inside"] = launch = define(TEXT, "launch", "launch of k", names)
    assert launch(0) == 0 and launch(0) == 0
    used.clear()
    launch(2)
    assert set(used) == {0, 1, 2}
    launch(2)
    assert next(numbers) == 3, "what was given back is taken again"


def test_a_generated_function_shows_its_title_and_goes_with_its_last_user() -> None:
    function = define("def f():\n    return 1 / 0", "f", "launch of k", {})
    with pytest.raises(ZeroDivisionError) as caught:
        function()
    assert traceback.extract_tb(caught.value.__traceback__)[-1].filename == "<launch of k>"
    del caught
    gc.disable()
    try:
        alive = weakref.ref(function)
        del function
        assert alive() is None
    finally:
        gc.enable()
