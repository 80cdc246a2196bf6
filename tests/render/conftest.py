"""Fixtures: every toolchain on this machine that can run rendered text."""

import sys
from contextlib import closing
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "interpreter"))

from launched import launched
from offline import OFFLINE
from slices import usual
from toolchains import TOOLCHAINS

# gcc and zig compile the same text as clang, other architectures the same text as the first; the
# kit runs what is written for HIP and METAL.
RUN = usual(TOOLCHAINS, "clang", "llvm", "opencl")
COMPILED = usual(OFFLINE, "nvrtc", "nvrtc-ptx", "hiprtc")
# Modules that go over dtypes: C's operators and types are OpenCL's, and its blocks LLVM's.
BY_DTYPE = ("test_atomics", "test_bits", "test_tables", "test_vectors", "test_views")


def pytest_itemcollected(item):
    given = item.callspec.params if hasattr(item, "callspec") else {}
    if given.get("compiler") == "clang" and item.path.stem in BY_DTYPE:
        item.add_marker(pytest.mark.full)


def _made(kinds, name, folders):
    made = kinds[name](folders.mktemp(name))
    if made.missing:
        pytest.skip(made.missing)
    return made


@pytest.fixture(scope="session", params=RUN)
def compiler(request, tmp_path_factory):
    with closing(_made(TOOLCHAINS, request.param, tmp_path_factory)) as made:
        yield made


@pytest.fixture(scope="module")
def toolchain(request, compiler):
    """A toolchain that has compiled the kernels of the module's tests together."""
    kernels = []
    for item in request.session.items if compiler.joins else ():
        given = dict(item.callspec.params) if hasattr(item, "callspec") else {}
        mine = TOOLCHAINS.get(given.pop("compiler", "")) is type(compiler)
        if mine and item.getparent(pytest.Module) is request.node:
            kernels += launched(item.function, compiler, **given)
    compiler.prepare(kernels)
    return compiler


@pytest.fixture(scope="module")
def llvm(tmp_path_factory):
    return _made(TOOLCHAINS, "llvm", tmp_path_factory)


@pytest.fixture(scope="module")
def metal(tmp_path_factory):
    return _made(TOOLCHAINS, "msl", tmp_path_factory)


@pytest.fixture(scope="session", params=COMPILED)
def offline(request, tmp_path_factory):
    with closing(_made(OFFLINE, request.param, tmp_path_factory)) as made:
        yield made
