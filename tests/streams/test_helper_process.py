"""A library in a process of its own: kept, replaced when it dies, gone when we go."""

import os
import sys
from functools import partial
from pathlib import Path

import pytest
from in_threads import results
from run_python import run

from hal_streams.helper_process import HelperDied, HelperProcess

HERE = str(Path(__file__).parent)


@pytest.fixture
def helper(monkeypatch):
    monkeypatch.syspath_prepend(HERE)
    made = HelperProcess("echoing")
    yield made
    made.close()


def _number(helper):
    answer, _ = helper.ask({"do": "echo"})
    return int(answer["process"])


def test_questions_of_any_size_are_answered_by_one_process(helper):
    numbers = set()
    for size in (0, 1, 1 << 20):
        question = {"do": "echo", "text": "\n\x00\N{SNOWMAN}" * 100, "size": size}
        answer, content = helper.ask(question, b"\n" + bytes(size) + b"end")
        assert answer["echo"] == question and content == b"dne" + bytes(size) + b"\n"
        numbers.add(answer["process"])
    assert len(numbers) == 1 and os.getpid() not in numbers


@pytest.mark.parametrize(
    ("question", "words"),
    [({"do": "die", "status": 3}, ("status 3", "last words")),
     ({"do": "raise"}, ("status 1", "a bug of ours")),
     ({"do": "close"}, ("status", "output closed"))],
)  # fmt: skip
def test_a_process_that_dies_says_why_and_is_replaced(helper, question, words):
    first = _number(helper)
    with pytest.raises(HelperDied, match=words[0]) as died:
        helper.ask(question, bytes(1 << 20))
    assert words[1] in died.value.log
    assert _number(helper) != first


def test_a_process_that_was_killed_between_two_questions_is_replaced(helper):
    first = _number(helper)
    os.kill(first, 9)
    for _ in range(2):  # its end may not be known yet
        try:
            assert _number(helper) != first
            return
        except HelperDied:
            pass
    raise AssertionError("it was not replaced")


def test_threads_ask_in_turns(helper):
    def ask(name):
        for turn in range(20):
            answer, content = helper.ask({"do": "echo", "name": name}, b"%d %d" % (name, turn))
            assert answer["echo"]["name"] == name and content[::-1] == b"%d %d" % (name, turn)

    results(*(partial(ask, name) for name in range(8)))


def test_it_ends_with_the_program_and_a_forked_child_leaves_it_alone():
    code = f"""
        import os, sys
        sys.path.insert(0, {HERE!r})
        from hal_streams.helper_process import HelperProcess
        helper = HelperProcess("echoing")
        number = helper.ask({{"do": "echo"}})[0]["process"]
        child = os.fork()
        if not child:
            sys.exit(0)
        os.waitpid(child, 0)
        assert helper.ask({{"do": "echo"}})[0]["process"] == number
        print(number)
    """
    done = run(code)
    assert done.returncode == 0, done.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


def test_a_program_without_python_says_so(helper, monkeypatch):
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(HelperDied, match="no Python to start"):
        helper.ask({"do": "echo"})
