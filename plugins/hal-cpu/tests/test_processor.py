"""Facts of processors and cgroups, read from files that other hosts gave."""

import os

import pytest
from ctrl_c import Scene, press_everywhere

from hal_cpu import driver, processor
from hal_cpu.system import linux

pytestmark = pytest.mark.arm


def host(root, groups, files):
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


V2 = "0::/user/mine\n"
V1 = "4:cpu,cpuacct:/mine\n3:memory:/mine\n2:name=systemd:/x\n0::/\n"


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("", {}, 8),
        (V2, {}, 8),
        (V2, {"user/mine/cpu.max": "max 100000\n"}, 8),
        (V2, {"user/mine/cpu.max": "200000 100000\n"}, 2),
        (V2, {"user/mine/cpu.max": "150000 100000\n"}, 2),
        (V2, {"user/mine/cpu.max": "1000 100000\n"}, 1),
        (V2, {"user/cpu.max": "300000 100000\n", "user/mine/cpu.max": "max 100000\n"}, 3),
        (V2, {"user/mine/cpu.max": "garbage\n"}, 8),
        (V2, {"user/mine/cpu.max": "100000 0\n"}, 8),
        (V2, {"user/mine/cpu.max": "9900000 100000\n"}, 8),
        (V1, {"cpu,cpuacct/mine/cpu.cfs_quota_us": "400000",
              "cpu,cpuacct/mine/cpu.cfs_period_us": "100000"}, 4),
        (V1, {"cpu/mine/cpu.cfs_quota_us": "50000", "cpu/mine/cpu.cfs_period_us": "100000"}, 1),
        (V1, {"cpu/mine/cpu.cfs_quota_us": "-1", "cpu/mine/cpu.cfs_period_us": "100000"}, 8),
        (V1, {"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        ("broken line\n0\n", {}, 8),
    ],
)  # fmt: skip
def test_usable_cores(tmp_path, groups, files, cores):
    assert processor.usable_cores(host(tmp_path, groups, files)) == cores


def test_usable_cores_by_affinity(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 6})
    assert processor.usable_cores(str(tmp_path)) == 3


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [(V2, {"user/mine/memory.max": "1048576\n"}, 1 << 20),
     (V2, {"user/memory.max": "2097152\n", "user/mine/memory.max": "max\n"}, 2 << 20),
     (V1, {"memory/mine/memory.limit_in_bytes": "4194304\n"}, 4 << 20),
     (V1, {"memory/mine/memory.limit_in_bytes": "9223372036854771712\n"}, 0)],
)  # fmt: skip
def test_usable_memory(tmp_path, groups, files, limit):
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert processor.usable_memory(host(tmp_path, groups, files)) == (limit or total)


INTEL = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon 1\nflags\t\t: sse2 avx2\n\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\n"


@pytest.fixture
def fresh():
    for known in (processor._facts, processor.machine):
        known.cache_clear()
    yield
    for known in (processor._facts, processor.machine):
        known.cache_clear()


@pytest.mark.parametrize(
    ("text", "machine", "title", "arch"),
    [
        (INTEL + INTEL.replace("Xeon 1", "Xeon 2"), "x86_64", "Xeon 1", "x86-64 avx2"),
        (ARM, "aarch64", "Arm processor, part 0xd0c", "aarch64 asimd"),
        ("", "arm64", "aarch64 processor", "aarch64 asimd"),
        (INTEL, "aarch64", "aarch64 processor", "aarch64 asimd"),  # emulated: the host's file
        ("", "x86_64", "x86-64 processor", "x86-64"),
    ],
)
def test_the_processor(fresh, monkeypatch, text, machine, title, arch):
    monkeypatch.setattr(linux, "read", lambda path: text)
    monkeypatch.setattr(linux, "_arm_features", lambda: ("fp", "asimd"))
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert (processor.cpu_title(), processor.cpu_arch()) == (title, arch)
    for flag in processor.cpu_flags():
        assert flag in processor.cpu_identity()


def test_symbols_of_the_c_run_time():
    for name in ("expf", "memcpy", "__divti3", "environ"):
        assert driver.symbol_address(name)
    assert driver.symbol_address("nobody_has_this") is None


@pytest.mark.parametrize("data", [b"read only", bytearray(b"writable")])
def test_addresses_of_memory_that_is_held(data):
    address, holder = driver.address_of(memoryview(data))
    assert bytes(driver.memory_at(address, len(data))) == data
    if isinstance(data, bytearray):
        with pytest.raises(BufferError):
            data.append(1)
    del holder


def test_ctrl_c_while_memory_is_held_and_released():
    """It is held no longer than its holder lives, wherever Ctrl-C comes."""

    def scene():
        data = bytearray(8)
        view = memoryview(data).toreadonly()

        def check(heard):
            if not heard.in_finalizer():  # where Python swallows the signal, and the call with it
                view.release()
                data.append(1)

        return Scene(lambda: driver.address_of(view), check)

    assert press_everywhere(scene, 100) >= 5
