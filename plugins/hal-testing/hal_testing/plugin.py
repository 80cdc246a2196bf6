"""The conformance kit as a pytest plugin.

    pytest -p hal_testing.plugin --pyargs hal_testing.conformance --hal-device OPENCL

It gives the tests their fixtures, above all `device`, an open device of the backend under test. An
author may override the fixtures whose names begin with `hal_`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

import hal_core as hal
from hal_core import config as settings
from hal_core.compiler.selection import forced, select
from hal_testing.kit.abilities import is_declared, need_spec, nothing_to_try, skip_without_renderer
from hal_testing.kit.report import TEST, Collector, check_suffix

if TYPE_CHECKING:
    from hal_testing.conformance.sources import Texts

pytest.register_assert_rewrite("hal_testing.conformance")

CHAPTERS = "hal_testing.conformance."


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("hal-core conformance")
    add = group.addoption
    add("--hal-device", metavar="NAME", help="the device under test, for example OPENCL or CUDA:1")
    add(
        "--hal-require-device",
        action="store_true",
        help="fail if there is no such hardware; else every test is skipped",
    )
    add(
        "--hal-known-gaps",
        metavar="FILE",
        help="a line for each test that is expected to fail: CLASS::TEST and the reason",
    )
    add(
        "--hal-time-limit",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="longest time of one test; then the process ends and says where it hung (%(default)s)",
    )
    add(
        "--hal-report",
        action="append",
        default=[],
        metavar="FILE",
        help="write the result, .json or .md; may be given several times",
    )
    parser.addini("hal_device", "the device under test, if --hal-device is not given")
    parser.addini("hal_known_gaps", "as --hal-known-gaps, relative to the ini file")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STDERR] = number = os.dup(2)
    config.add_cleanup(lambda: os.close(number))
    reports = [Path(path) for path in config.getoption("--hal-report")]
    try:
        for path in reports:
            check_suffix(path)
    except hal.InvalidArgument as error:
        raise pytest.UsageError(str(error)) from None
    if reports and not hasattr(config, "workerinput"):  # xdist's workers write none
        config.pluginmanager.register(_Reporter(config, reports), "hal-report")


class _Reporter(Collector):
    def __init__(self, config: pytest.Config, paths: list[Path]) -> None:
        super().__init__()
        self._config, self._paths = config, paths

    def pytest_sessionfinish(self) -> None:
        made = self.report(_device_name(self._config))
        for path in self._paths:
            made.write(path)


# -- the device


@pytest.fixture(scope="session")
def hal_device_name(request: pytest.FixtureRequest) -> str:
    """The canonical name of the device under test, from `--hal-device` or the ini file."""
    return _device_name(request.config)


def _device_name(config: pytest.Config) -> str:
    name = config.getoption("--hal-device") or config.getini("hal_device")
    if not name:
        raise pytest.UsageError(
            "which device is under test? Give --hal-device NAME, or hal_device in the ini file"
        )
    return hal.Device.canonicalize(str(name))


@pytest.fixture(scope="session", autouse=True)
def hal_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty compile cache that all tests of this run share."""
    folder = tmp_path_factory.mktemp("hal-cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(settings.CACHE_DIR.name, str(folder))
        yield folder


@pytest.fixture
def device(hal_device_name: str, request: pytest.FixtureRequest) -> Iterator[hal.Compiled]:
    """The device under test, open. A test that leaves memory allocated fails."""
    family = hal_device_name.partition(":")[0]
    try:
        opened = hal.Device[hal_device_name]
    except hal.DeviceUnavailable as error:
        if request.config.getoption("--hal-require-device") or family in settings.REQUIRE.read():
            raise
        pytest.skip(f"no hardware: {error}")
    # Counted from here: memory that an earlier test left is not this test's fault.
    before = opened.allocator.statistics().live
    yield opened
    if opened.closed:
        return
    if opened.allocator.statistics().live > before:
        gc.collect()  # buffers in reference cycles are no leak
    left = opened.allocator.statistics().live - before
    if left > 0 and request.node.stash.get(PASSED, False):
        pytest.fail(f"{left} blocks of memory are still allocated after the test")


@pytest.fixture
def second_device(device: hal.Compiled) -> hal.Compiled:
    """Another device of the family to copy to and from; if there is none, the same device."""
    infos = hal.Device.devices(device.family)
    names = [info.name for info in infos if info.name != device.name]
    return hal.Device[names[0]] if names else device


class External(NamedTuple):
    """Memory that the backend did not allocate, as the fixture `hal_external` returns it."""

    pointer: int  # for BufferSpec(external_ptr=...), for as long as the test runs
    nbytes: int
    read: Callable[[], bytes]  # gives all of its bytes, read without the backend


@pytest.fixture
def hal_external(device: hal.Compiled) -> External:
    """64 bytes of host memory; to be overridden if `external_ptr` means another kind of pointer."""
    need_spec(device, "external_ptr")
    if not (device.info.host_visible and device.allocator.wraps_addresses):
        nothing_to_try("override the fixture hal_external: memory that the device has a pointer to")
    memory = np.zeros(64, np.uint8)
    return External(memory.ctypes.data, 64, memory.tobytes)


@pytest.fixture
def hal_fault(device: hal.Compiled) -> Callable[[hal.Program], None]:
    """`hal_fault(program)` makes the program's next launch fail on the device, after it was queued.

    To be overridden if your driver, or a simulator of it, can fail on request.
    """
    nothing_to_try("override the fixture hal_fault: a way to make a launch fail on the device")


@pytest.fixture
def hal_source(device: hal.Compiled) -> Texts:
    """Kernels as text in a language of the device; to be overridden if the kit knows none."""
    from hal_testing.conformance.sources import texts

    chosen = forced(device.family, [pair.name for pair in device.compilers])
    pairs = [pair for pair in device.compilers if chosen in (None, pair.name)]
    for found in filter(None, map(texts, pairs)):
        with contextlib.suppress(hal.CompilerUnavailable):  # test C6 is about that
            if select(device, found.language)[1].takes_source:
                return found
            pytest.skip("it declares no hal.Source (takes_source)")
    languages = ", ".join(sorted({pair.language for pair in pairs}))
    return nothing_to_try(f"override the fixture hal_source: kernels as text in {languages}")


# -- known gaps, undeclared skips, a time limit for every test

PASSED = pytest.StashKey[bool]()
STDERR = pytest.StashKey[int]()  # a duplicate, as pytest redirects stderr during a test


def _is_ours(item: pytest.Item) -> bool:
    return getattr(getattr(item, "cls", None), "__module__", "").startswith(CHAPTERS)


def _gap_id(item: pytest.Item) -> str:
    return f"{item.cls.__name__}::{item.name}" if isinstance(item, pytest.Function) else item.name


def _known_gaps(config: pytest.Config) -> dict[str, str]:
    given = config.getoption("--hal-known-gaps")
    listed = config.getini("hal_known_gaps")
    path = Path(given) if given else config.rootpath / listed if listed else None
    gaps = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path else []
    except (OSError, UnicodeDecodeError) as error:
        raise pytest.UsageError(f"known gaps cannot be read from {path}: {error}") from None
    for line in lines:
        name, _, reason = line.strip().partition(" ")
        if name and not name.startswith("#"):
            if not reason.strip():
                raise pytest.UsageError(f"{path}: {name} has no reason")
            gaps[name] = reason.strip()
    return gaps


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark known gaps as expected failures; a gap that passes is reported as a failure."""
    gaps = _known_gaps(config)
    ours = {_gap_id(item): item for item in items if _is_ours(item)}
    for name, reason in gaps.items():
        if name in ours:
            ours[name].add_marker(pytest.mark.xfail(reason=reason, strict=True))
    # With a part of the kit, gaps of chapters that were not collected are not unknown.
    classes = {name.partition("::")[0] for name in ours}
    unknown = [name for name in gaps if name not in ours and name.partition("::")[0] in classes]
    if unknown and not config.getoption("keyword"):
        raise pytest.UsageError(f"known gaps name tests that do not exist: {', '.join(unknown)}")


def pytest_collection_finish() -> None:
    """Take what was collected out of every later `gc.collect()`, of which the kit has a hundred."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    limit = item.config.getoption("--hal-time-limit")
    if _is_ours(item) and limit:
        faulthandler.dump_traceback_later(limit, exit=True, file=item.config.stash[STDERR])
    with pytest.MonkeyPatch.context() as patch:
        if _is_ours(item):  # under CI pytest shows whole differences, which takes minutes for a MiB
            patch.delenv("CI", raising=False)
            patch.delenv("BUILD_NUMBER", raising=False)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Skip the rest of a test from where it compiles what a device of text kernels cannot take."""
    try:
        return (yield)
    except hal.CompilerUnavailable as error:
        if _is_ours(item):
            skip_without_renderer(hal.Device[_device_name(item.config)], error)
        raise


pytest_runtest_setup = pytest_runtest_call  # fixtures compile, too


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report a skip as a failure unless the device has declared its reason."""
    report = yield
    if report.when == "call":
        item.stash[PASSED] = report.passed  # `device` looks for leaks after tests that passed
    if _is_ours(item):
        report.user_properties.append((TEST, _gap_id(item)))
    if _is_ours(item) and report.skipped and not hasattr(report, "wasxfail"):
        reason = str(call.excinfo.value) if call.excinfo else ""
        if not is_declared(reason):
            report.outcome = "failed"
            report.longrepr = f"skipped, though no ability is declared missing: {reason}"
    return report
