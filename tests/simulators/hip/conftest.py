"""The GFX9 engine and hiprtc, each in a process that is kept for all of a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "render"))

import hip_build
import rtc
from gfx9 import Engine
from offline import HIPRTC

Compile = Callable[..., bytes]


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    try:
        made = Engine(hip_build.build_engine(hip_build.kept()))
    except hip_build.NoCompiler as missing:
        pytest.skip(str(missing))
    yield made
    made.close()


@pytest.fixture(scope="session")
def hiprtc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compile]:
    """Compiles a text for gfx906, with more options as they are given."""
    made = HIPRTC(tmp_path_factory.mktemp("hiprtc"))
    if made.missing:
        pytest.skip(made.missing)

    def compile(text: str, *options: str) -> bytes:
        try:
            return made.library.compile(text, ["--gpu-architecture=gfx906", *options])
        except rtc.RefusedError as refused:
            raise AssertionError(str(refused)) from None

    yield compile
    made.close()
