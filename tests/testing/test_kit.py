"""Test the kit on fakes that keep every promise, and together with an author's own tests."""

import re

import pytest
from kit_process import run_kit

# Why the fake is not asked for something: nothing else may be skipped.
SKIPPED = re.compile(
    r"SKIPPED \[\d+\] \S+ (its allocator honours no (uncached|cpu_access|host|external_ptr)"
    r"|it declares no memory that (the host sees|DLPack has a name for) .*"
    r"|it declares no (subgroups|images)"
    r"|nothing to try: .* 'uops'.*)"
)


# A fake that survives a fork differs in what the chapter on processes asks.
@pytest.mark.parametrize(
    ("fake", "chapters", "least"),
    [("forks", ("process",), 10), pytest.param("", (), 400, marks=pytest.mark.full),
     pytest.param("least", (), 400, marks=pytest.mark.full)],
    ids=["forks", "plain", "least"],
)  # fmt: skip
def test_a_fake_that_keeps_every_promise(fake, chapters, least, tmp_path):
    done = run_kit(tmp_path, chapters=chapters, fake=fake)
    assert done.code == 0, done.text[-4000:]
    skipped = [line for line in done.text.splitlines() if line.startswith("SKIPPED")]
    assert [line for line in skipped if not SKIPPED.fullmatch(line)] == []
    passed = re.search(r"^(\d+) passed(?:, (\d+) skipped)? in", done.text, re.MULTILINE)
    assert passed is not None and int(passed[1]) >= least and int(passed[2] or 0) < 50


OURS = "import pytest\nimport hal_core as hal\nfrom hal_testing.conformance import TestView\n"


def test_memory_that_a_test_leaves_behind_is_an_error(tmp_path):
    text = """
kept = []
def test_keeps(device):
    kept.append(hal.empty(10, hal.int8, device))
"""
    done = run_kit(tmp_path, "-k", "keeps", text=OURS + text)
    assert done.code == 1 and "1 blocks of memory are still allocated" in done.text


def test_a_skip_for_no_declared_reason_is_a_failure(tmp_path):
    text = """
def skips(self, device):
    pytest.skip("not today")
TestView.test_V4_view_and_base_see_each_other = skips
"""
    done = run_kit(tmp_path, "-k", "V4", text=OURS + text)
    assert done.code == 1, done.text
    assert "skipped, though no ability is declared missing: not today" in done.text
