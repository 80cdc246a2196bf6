"""Read the source text of a function, parse it, and make errors that point into it."""

from __future__ import annotations

import ast
import functools
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy
from importlib.machinery import SourceFileLoader
from types import CodeType, FunctionType

from hal_core.concurrency import unless_of_a_signal
from hal_core.errors import InvalidState
from hal_kernel.errors import KernelSyntaxError

_STARTED = time.time()
_TRIES = 100
_CHANGED = "the file has changed since it was imported", "Start the program again."


class SourceText:
    """The text of a function; `lines` are those of its whole file.

    Raises: KernelSyntaxError when there is no text: a lambda, the interactive prompt, `exec`, a
    file that changed before its definition ran.
    """

    def __init__(self, function: FunctionType, lines: Sequence[str]) -> None:
        code = function.__code__
        self.kernel: str | None = function.__name__
        self.within = ""  # for an inlined function: the calls that lead to it
        self.at = 0  # for an inlined function of another file: the line of the kernel's file
        self.filename = code.co_filename
        self.lines = lines
        self.shift = 0  # a line of the file minus the same line of the tree
        # co_firstlineno is the line of the first decorator.
        tree = self._parse(code.co_firstlineno)
        if tree is None:
            problem, fix = _CHANGED
            if not os.path.exists(self.filename):
                problem = "its source text cannot be read"
                fix = "Put the function into a file, type it in IPython, or build its IR with "
                fix += "hal.Kernel: Python keeps no text of its own prompt, -c and exec."
            at, line = self.filename, code.co_firstlineno
            raise KernelSyntaxError(problem, fix=fix, filename=at, lineno=line, kernel=self.kernel)
        self.tree = tree
        names = [arg.arg for arg in parameters_of(tree)]
        is_other = tree.name != code.co_name or set(names) != set(code.co_varnames[: len(names)])
        if is_other or is_edited(function, lines):
            raise self.error(tree, *_CHANGED)

    def _parse(self, first: int) -> ast.FunctionDef | None:
        if not 0 < first <= len(self.lines):
            return None
        indented = self.lines[first - 1][:1] in " \t"
        # `if 1:` in front makes indented text valid and leaves its columns as they are.
        self.shift = first - 2 if indented else first - 1
        for block in _blocks(self.lines[first - 1 :]):
            try:
                body = _parsed("if 1:\n" + block if indented else block)
            except (SyntaxError, MemoryError, ValueError, RecursionError):
                continue  # cut too short: inside the decorator, the signature, a long string
            found = body[0].body if indented and isinstance(body[0], ast.If) else body
            if len(found) == 1 and isinstance(found[0], ast.FunctionDef):
                return found[0]
            return None
        return None

    def within_call(self, kernel: str | None, within: str, at: int) -> SourceText:
        """Return a copy for one call of an inlined function, whose errors name that call."""
        text = copy(self)
        text.kernel, text.within, text.at = kernel, within, at
        return text

    def mark(self, node: ast.stmt | ast.expr) -> int:
        """Return the line number for IR nodes, which is one of the kernel's file."""
        return self.at or node.lineno + self.shift

    def line(self, node: ast.AST) -> int:
        """Return the line of the file that a node of the tree stands in."""
        return int(getattr(node, "lineno", 1)) + self.shift

    def in_brackets(self, node: ast.expr) -> bool:
        """Tell whether an operand has parentheses of its own, which the tree does not keep."""
        first, last = self.line(node) - 1, (node.end_lineno or 0) + self.shift - 1
        above, below = "".join(self.lines[:first]), "".join(self.lines[last + 1 :])
        before = above.encode() + self.lines[first].encode()[: node.col_offset]
        after = self.lines[last].encode()[node.end_col_offset or 0 :] + below.encode()
        return before.rstrip().endswith(b"(") and after.lstrip().startswith(b")")

    def parameter(self, name: str) -> ast.arg | None:
        return next((arg for arg in parameters_of(self.tree) if arg.arg == name), None)

    def error(self, node: ast.AST | None, problem: str, fix: str) -> KernelSyntaxError:
        """Return an error with what is wrong at `node` and what to write instead."""
        if self.within:
            problem = f"{self.within}: {problem}"
        if node is None or not hasattr(node, "lineno"):
            return KernelSyntaxError(problem, fix=fix, filename=self.filename, kernel=self.kernel)
        number = self.line(node)
        text = self.lines[number - 1] if number <= len(self.lines) else ""
        # The tree counts columns in bytes. Before 3.13 Python underlines one line only.
        raw = text.encode()
        start = len(raw[: getattr(node, "col_offset", 0)].decode(errors="replace"))
        end = len(text.rstrip())
        if getattr(node, "end_lineno", None) == getattr(node, "lineno", None):
            end = len(raw[: getattr(node, "end_col_offset", 0)].decode(errors="replace"))
        return KernelSyntaxError(
            problem,
            fix=fix,
            filename=self.filename,
            lineno=number,
            offset=start + 1,
            end_offset=end + 1,
            text=text,
            kernel=self.kernel,
        )


def _parsed(text: str) -> list[ast.stmt]:
    """Parse text. Raises: as `ast.parse`; InvalidState when it is disturbed again and again."""
    for _ in range(_TRIES):
        with suppress(SystemError):  # of Python 3.11, when another thread parses in the middle
            return ast.parse(text).body
    fix = "Call it again, when no other thread parses Python."
    raise InvalidState("read kernel", "Python could not parse its text", fix=fix)


def is_edited(function: FunctionType, lines: Sequence[str]) -> bool:
    """Tell whether the lines of a file, compiled anew, give another code than a function has.

    Only a file that changed in the time of this process is compiled; two seconds are allowed for
    file systems that round times down. False too for a module whose loader compiles another text
    than the file's, as pytest's does.
    """
    try:
        facts = os.stat(function.__code__.co_filename)
    except unless_of_a_signal(OSError, ValueError):  # no file, as in a notebook
        return False
    if max(facts.st_mtime, facts.st_ctime) < _STARTED - 2:
        return False
    loader = function.__globals__.get("__loader__")
    if loader is not None and type(loader) is not SourceFileLoader:
        return False
    return function.__code__ not in codes_of("".join(lines))


@functools.lru_cache(8)
def codes_of(text: str) -> list[CodeType]:
    """Return the code of every function in a file; none when it is no Python."""
    try:
        with warnings.catch_warnings(action="ignore"):  # the import gave them
            codes = [compile(text, "<file>", "exec", dont_inherit=True)]
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []
    for code in codes:  # which grows
        codes += [part for part in code.co_consts if isinstance(part, CodeType)]
    return codes


def parameters_of(tree: ast.FunctionDef) -> list[ast.arg]:
    """Return the parameters of every kind, also of kinds that the language refuses."""
    has = tree.args
    kinds = [*has.posonlyargs, *has.args, has.vararg, *has.kwonlyargs, has.kwarg]
    return [arg for arg in kinds if arg is not None]


def _blocks(lines: Sequence[str]) -> Iterator[str]:
    """Yield longer and longer beginnings of `lines`, each cut before a line that is not indented
    deeper than the first.

    The first that parses is the function: shorter ones end in its parameters or a string of
    several lines.
    """
    indent = len(lines[0]) - len(lines[0].lstrip())
    begun = False  # the decorators are over
    for number, line in enumerate(lines):
        body = line.lstrip()
        # A line with a closing bracket ends the parameters, not the function.
        if begun and body and body[0] not in "#)" and len(line) - len(body) <= indent:
            yield "".join(lines[:number])
        begun = begun or "def" in body
    yield "".join(lines)
