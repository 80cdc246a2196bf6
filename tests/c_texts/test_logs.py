"""The line of a kernel's text that a compiler's log names."""

import re

import pytest

from hal_kernel.c_texts.logs import fault_line

NVRTC = re.compile(r"(?m)^(?P<file>\S*?)\((?P<line>\d+)\): (?:catastrophic )?error")


# A log, and the line of its first error in the kernel's text.
LOGS = {
    "k.c:3:5: error: expected ';'": 3,
    "k.c: In function 'k':\nk.c:1:5: warning: unused\nk.c:3:5: error: expected ';'": 3,
    "In file included from k.c:1:\nk.c:3: error: expected ';'\nk.c:9:1: error: and this": 3,
    "k.c:3:1: fatal error: no.h: No such file or directory": 3,
    "/usr/include/a.h:7:1: error: in a header\nk.c:3:5: error: in the kernel": 3,
    "error: k.c:3:5: expected ';'\nDevice pthread failed to build the program": 3,
    'Build log: "k.c:3:5: error: expected"': 3,
    "": None, "no such compiler": None, "k.c:3:5: warning: unused": None,
    "a.h:3:5: error: in a header": None,
}  # fmt: skip


@pytest.mark.parametrize(("log", "line"), LOGS.items())
def test_C5_the_first_error_in_the_kernel_s_text_counts(log, line):
    assert fault_line(log, "k.c") == line


def test_C5_a_compiler_with_messages_of_its_own_form_gives_a_pattern():
    log = 'half.h(9): error: in a header\n<k>(3): error: expected a ";"\n<k>(4): error: again'
    assert fault_line(log, "<k>", NVRTC) == 3
    assert fault_line(log, "<k>") is None
