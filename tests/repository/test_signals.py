"""No `except` or `suppress` takes what the handler of a signal raised, such as a TimeoutError."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TAKES = re.compile(r"(except |contextlib.suppress\().*((OS|Runtime)Error|Exception|_REFUSALS)")
PASSES = re.compile(r"of_a_signal\(|may_be_ctrl_c\(|\n    raise( error)?$")
HARMLESS = ("hal_testing/", "/cli/", "hal_ray/host.py")  # tests, programs, a process of Ray
ALLOWED = {
    "runs in a thread of its own": "serve_alone _tried _do help run init _make_kept_calls",
    "runs in a process of its own": "answer",
    "raises the first error at its end": "run_each abandon",
    "runs at exit, where nobody catches it": "_close_all",
    "stands before `concurrency`, and compares two values": "as_flag",
}


def takers(node, function=""):
    """Yield the functions that take a wide error, and neither raise it nor ask for signals."""
    function = node.name if isinstance(node, ast.FunctionDef) else function
    text = ast.unparse(node) if isinstance(node, ast.ExceptHandler | ast.Call) else ""
    if TAKES.match(text) and not PASSES.search(text):
        yield function
    for child in ast.iter_child_nodes(node):
        yield from takers(child, function)


def test_what_a_handler_raises_passes_every_except():
    found = set()
    for path in [*ROOT.glob("hal_core/**/*.py"), *ROOT.glob("plugins/*/hal_*/**/*.py")]:
        text = path.read_text("utf-8")
        if re.search("from contextlib import .*suppress", text):
            text = text.replace(" suppress(", " contextlib.suppress(")
        if not any(part in path.as_posix() for part in HARMLESS):
            found |= set(takers(ast.parse(text)))
    assert found == set(" ".join(ALLOWED.values()).split())
