"""Figures of the code: lines of rooms, lengths of functions, helpers that serve one caller.

    python tests/repository/figures.py [--files]

`nox -s size` prints them. A helper is a private function or method (`_name`); it serves one caller
when its name is used once in its own file. Comments are counted as lines with one; the ratio is to
lines of code, docstrings counted as neither.
"""

import ast
import io
import re
import statistics
import sys
import tokenize
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = sorted(
    path.parent / path.parent.name.replace("-", "_")
    for path in (ROOT / "plugins").glob("*/pyproject.toml")
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Figures(NamedTuple):
    """Figures of one file, or of several together: all are counts of lines or functions."""

    lines: int
    code: int
    comments: int
    lengths: tuple[int, ...]  # of functions, docstrings left out
    helpers: int
    single_use: int  # helpers that serve one caller

    @property
    def single_share(self):
        return self.single_use / max(1, self.helpers)

    @property
    def comment_ratio(self):
        return self.comments / max(1, self.code)

    @property
    def median_length(self):
        return statistics.median(self.lengths or (0,))


def of_file(path):
    """The figures of one Python file."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    documented = set(_docstring_lines(tree))
    coded = set()
    comments = 0
    blank = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments += 1
        elif token.type not in blank:
            coded.update(range(token.start[0], token.end[0] + 1))
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    helpers, single_use = helpers_of(tree)
    return Figures(
        lines=len(text.splitlines()),
        code=len(coded - documented),
        comments=comments,
        lengths=tuple(map(length_of, functions)),
        helpers=helpers,
        single_use=single_use,
    )


def helpers_of(tree):
    """The numbers of private helpers, and of those that serve one caller."""
    used = Counter()
    helpers = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            used[node.id] += 1
        elif isinstance(node, ast.Attribute):
            used[node.attr] += 1
        elif isinstance(node, Function) and re.match("_(?!_)", node.name):
            helpers.append(node.name)
    return len(helpers), sum(used[name] == 1 for name in helpers)


def together(paths):
    """The sum over several files."""
    found = [of_file(path) for path in paths]
    return Figures(
        lines=sum(one.lines for one in found),
        code=sum(one.code for one in found),
        comments=sum(one.comments for one in found),
        lengths=tuple(length for one in found for length in one.lengths),
        helpers=sum(one.helpers for one in found),
        single_use=sum(one.single_use for one in found),
    )


def length_of(node):
    """Lines of a function from `def` to its end, without its docstring."""
    return (node.end_lineno or node.lineno) - node.lineno + 1 - len(_own_docstring(node))


def _docstring_lines(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function):
            yield from _own_docstring(node)


def _own_docstring(node):
    first = node.body[0] if node.body else None
    if not (isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)):
        return range(0)
    if not isinstance(first.value.value, str):
        return range(0)
    return range(first.lineno, (first.end_lineno or first.lineno) + 1)


def rooms():
    """The files of each entry of the core's listing and the language's, and of each plugin."""
    found = {
        f"{package.name}/{path.name}": sorted(path.rglob("*.py")) if path.is_dir() else [path]
        for package in (ROOT / "hal_core", ROOT / "plugins" / "hal-kernel" / "hal_kernel")
        for path in sorted(package.iterdir())
        if path.suffix == ".py" or (path.is_dir() and path.name != "__pycache__")
    }
    return found | {path.name: sorted(path.rglob("*.py")) for path in PLUGINS}


def main():
    """Print a table, a line each room; with `--files` a line each file, the longest last."""
    core = sorted((ROOT / "hal_core").rglob("*.py"))
    rows = {**rooms(), "hal_core": core}
    if "--files" in sys.argv:
        rows = {str(path.relative_to(ROOT)): [path] for paths in rows.values() for path in paths}
        rows = dict(sorted(rows.items(), key=lambda row: of_file(row[1][0]).lines))
    print(f"{'':40}{'lines':>7}{'median':>8}{'longest':>9}{'one caller':>12}{'comments':>10}")
    for name, paths in rows.items():
        one = together(paths)
        share = f"{one.single_use}/{one.helpers} {one.single_share:.0%}"
        print(
            f"{name:40}{one.lines:7}{one.median_length:8.0f}{max(one.lengths, default=0):9}"
            f"{share:>12}{one.comment_ratio:10.3f}"
        )


if __name__ == "__main__":
    main()
