"""Compiler options that name files."""

from __future__ import annotations

import re

import pytest

import hal_core as hal
from hal_kernel.c_texts.options import refuse_files

NAMES_FILE = re.compile(r"-I|-include")


def test_C2_an_option_that_names_a_file_is_refused() -> None:
    for option in ("-I/usr/include", " -I.", "-include"):
        with pytest.raises(hal.InvalidArgument, match="compile k: options cannot.* on X. Give"):
            refuse_files(("-O2", option), NAMES_FILE, "compile k", "X")
    refuse_files(("-O2", "-DA=-I"), NAMES_FILE, "compile k", "X")
