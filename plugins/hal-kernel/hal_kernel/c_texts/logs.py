"""Compiler logs: find the line of the text that a compiler complains about."""

from __future__ import annotations

import re

# clang, gcc, zig, LLVM, and OpenCL drivers made of clang write   k.c:3:5: error: expected ';'
# PoCL puts the word in front                                     error: k.c:3:5: expected ';'
CLANG_ERROR = re.compile(
    r"(?m)(?:^|[\s\"'])(?P<word>error: )?(?P<file>[^\s:\"']*):(?P<line>\d+):(?:\d+:)?"
    r"(?(word)| (?:fatal )?error)"
)


def fault_line(log: str, file: str, error: re.Pattern[str] = CLANG_ERROR) -> int | None:
    """Return the line of the first error in `file`; None when the log names none there.

    `file` is the name that the compiler knows the kernel's text by: errors in headers have
    another. `error` matches one error message, and has the groups `file` and `line`.
    """
    for match in error.finditer(log):
        if match["file"] == file:
            return int(match["line"])
    return None
