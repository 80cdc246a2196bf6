"""Test the kit itself: a fake that breaks a promise must fail the test of that promise."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from kit_process import run_kit
from mutants import every

pytestmark = pytest.mark.full
AT_ONCE = 2
MUTANTS = every()


class Runs:
    """Runs of the kit, each on one mutant; the `wanted` ones start before their tests ask."""

    def __init__(self, folder, wanted):
        self._folder, self._pool = folder, ThreadPoolExecutor(AT_ONCE)
        self._ahead = {mutant.name: self._pool.submit(self._run, mutant) for mutant in wanted}

    def of(self, mutant):
        ahead = self._ahead.get(mutant.name)
        return ahead.result() if ahead is not None else self._run(mutant)

    def _run(self, mutant):
        tests = " or ".join(f"test_{promise}_" for promise in mutant.promises)
        folder = self._folder / mutant.name
        return run_kit(folder, "-x", "-k", tests, chapters=mutant.chapters, mutant=mutant.name)

    def close(self):
        self._pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def runs(request, tmp_path_factory):
    wanted = [
        MUTANTS[item.callspec.id]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.path == request.path
        and "mutant" in item.fixturenames
    ]
    # Some mutants wait for seconds. A worker of xdist runs them all where whole files are dealt.
    xdist = getattr(request.config, "workerinput", None)
    if xdist is not None and "loadfile" not in xdist["mainargv"]:
        wanted = []
    made = Runs(tmp_path_factory.mktemp("mutants"), wanted)
    yield made
    made.close()


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_a_mutant_is_caught(mutant, runs):
    done = runs.of(mutant)
    assert done.caught, f"it survives, or the kit fails in a set-up:\n{done.text[-3000:]}"
    test = done.caught.splitlines()[0].rpartition("::test_")[2]
    assert test.startswith(mutant.promises), done.caught


def test_there_are_enough():
    assert len(MUTANTS) >= 30
