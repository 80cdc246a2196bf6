"""No test proves speed by a clock: on a busy machine it would fail. Count, or write a bench row.

A count is of calls (`counts.py`), allocations, looks at a clock of the test's own, or events in
their order.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time", "timeit"}
FOLDERS = ("tests", *(f"plugins/{path.parent.name}/tests" for path in ROOT.glob("plugins/*/tests")),
           "plugins/hal-testing/hal_testing/conformance")  # fmt: skip
# What begins like this may read a clock, for this reason.
RIGHT = {
    "a limit, generous, after which a test fails rather than hang": {
        "plugins/hal-testing/hal_testing/conformance/forked.py::_read",
        "plugins/hal-testing/hal_testing/conformance/test_process.py::_found_not_refused",
        "plugins/hal-testing/hal_testing/conformance/test_queue.py::test_Q2_done_and_wait_with_a_timeout",
        "plugins/hal-cpu/tests/test_program.py::begun", "tests/in_threads.py::wait_until",
        "tests/interrupts/campaign.py::", "tests/interrupts/scenes.py::",
        "plugins/hal-cuda/tests/test_device.py::_errors_while",
        "plugins/hal-cuda/tests/test_queue_failures.py::test_P10_closing_a_queue_while_others_launch",
        "plugins/hal-ray/tests/test_faults.py::", "plugins/hal-ray/tests/test_missing.py::",
        "plugins/hal-ray/tests/on_nodes.py::until",
        "tests/cli/test_doctor.py::test_plugins_that_hang",
    },
    "a wait or a delay takes at least as long as was asked": {
        "plugins/hal-cpu/tests/test_checked.py::test_a_loop_that_does_not_end",
        "tests/simulators/cuda/test_driver_faults.py::",
    },
    "times that a device tells lie within those of its caller": {
        "plugins/hal-testing/hal_testing/conformance/test_event.py::",
        "plugins/hal-testing/hal_testing/conformance/test_program.py::test_P4_wait_gives_seconds",
        "plugins/hal-cuda/tests/test_clock.py::",
        "plugins/hal-opencl/tests/test_clock.py::",
        "plugins/hal-ray/tests/test_clock.py::",
    },
    "tried until a quiet moment shows it; what is false never shows it": {
        "plugins/hal-testing/hal_testing/conformance/test_program.py::test_synchronize_waits",
    },
    "the clock is the test's own": {
        "tests/testing/test_fake.py::test_a_slow_copy_is_queued_and_can_be_waited_for_in_vain",
    },
    "work lasts for a while, however much that is": {
        "plugins/hal-testing/hal_testing/conformance/slow.py::_seconds",
        "plugins/hal-cpu/tests/test_pool.py::test_a_thread_begins_with_the_same_part_of_each_launch",
        "plugins/hal-ray/tests/test_chaos.py::", "tests/ctrl_c.py::disarm", "tests/fuzz/",
        "tests/interrupts/__main__.py::", "tests/interrupts/child.py::count",
    },
    "a backend in software, or a broken one, has a clock": {
        "tests/simulators/metal/",
        "tests/streams/third_backend.py::record",
        "tests/testing/mutants_of",
    },
    "the list itself": {"tests/repository/test_no_timed_tests.py::"},
}  # fmt: skip


def _uses():
    """Yield `file::function` of each place outside of imports that names a clock."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            text = path.read_text(encoding="utf-8")
            for top in ast.parse(text).body if any(clock in text for clock in CLOCKS) else ():
                if isinstance(top, ast.Import | ast.ImportFrom):
                    continue
                methods = top.body if isinstance(top, ast.ClassDef) else [top]
                for one in methods:
                    words = {
                        getattr(node, "attr", getattr(node, "id", getattr(node, "value", None)))
                        for node in ast.walk(one)
                    }
                    if any(isinstance(w, str) and w.removesuffix("_ns") in CLOCKS for w in words):
                        yield f"{name}::{getattr(one, 'name', '')}"


def test_clocks_are_read_where_no_machine_changes_the_result():
    right = set[str]().union(*RIGHT.values())
    found = list(_uses())
    unknown = [use for use in found if not use.startswith(tuple(right))]
    assert not unknown, "count what it costs, or make it a row of the bench"
    gone = [one for one in right if not any(use.startswith(one) for use in found)]
    assert not gone, "it reads no clock any more"
