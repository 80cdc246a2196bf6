"""C3 and C4: the compile cache under damage, full disks and many processes."""

import errno
import os
import pickle
import random
import subprocess
import sys
from pathlib import Path

import pytest
from fake_backend import FakeCompiler

import hal_core as hal
from hal_core import errors, files
from hal_core.compiler import cache

pytestmark = pytest.mark.lowest

KEY = "ab" * 32
CONTENT = b"machine code" * 100


@pytest.fixture
def entry(own_cache):
    cache.store(KEY, CONTENT)
    (path,) = (path for path in own_cache.rglob("*") if path.is_file())
    return path


def misses():
    return dict(cache.statistics().reasons)


def test_C3_every_damage_is_a_miss(entry):
    whole = entry.read_bytes()
    rng = random.Random(0)
    for cut in [*range(80), len(whole) - 1]:
        entry.write_bytes(whole[:cut])
        assert cache.load(KEY) is None, f"truncated to {cut}"
    for _ in range(300):
        place = rng.randrange(len(whole))
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.randrange(8)
        entry.write_bytes(damaged)
        assert cache.load(KEY) is None, f"bit flipped at {place}"
    entry.write_bytes(whole + b"!")
    assert cache.load(KEY) is None
    entry.write_bytes(whole)
    assert cache.load(KEY) == CONTENT


def test_C3_an_unreadable_entry_is_a_miss(entry, caplog):
    entry.unlink()
    entry.mkdir()
    before, handles = misses().get("unreadable", 0), os.listdir("/proc/self/fd")
    assert cache.load(KEY) is None
    assert misses()["unreadable"] == before + 1
    assert set(os.listdir("/proc/self/fd")) <= set(handles), "the folder stays open"
    cache.store(KEY, CONTENT)  # cannot replace a folder: no error
    assert not caplog.records


def test_C3_what_only_looks_like_an_entry_is_a_miss(entry, tmp_path):
    whole = entry.read_bytes()
    real = tmp_path / "real"
    real.write_bytes(whole)
    entry.unlink()
    entry.symlink_to(real)
    assert cache.load(KEY) is None, "a link"
    entry.unlink()
    os.mkfifo(entry)
    assert cache.load(KEY) is None, "a pipe, which nobody writes"
    cache.store(KEY, CONTENT)  # nobody reads it either
    assert cache.load(KEY) == CONTENT
    entry.chmod(0o666)
    assert cache.load(KEY) is None, "anybody could have written it"
    entry.chmod(0o600)
    assert cache.load(KEY) == CONTENT
    if os.geteuid() == 0:
        os.chown(entry, 12345, -1)
        assert cache.load(KEY) is None, "another user's"


def test_C3_mode_bits_are_asked_where_they_mean_something(entry, monkeypatch):
    """Windows shows every file as writable by all."""
    entry.chmod(0o666)
    assert cache.load(KEY) is None
    monkeypatch.delattr(os, "geteuid")
    assert cache.load(KEY) == CONTENT


def test_C3_an_entry_that_another_process_reads_is_not_replaced(entry, monkeypatch, caplog):
    """Windows refuses to replace an open file; the entry there says the same."""

    def refuse(source, target):
        raise PermissionError(13, "Access is denied", target)

    monkeypatch.setattr(os, "replace", refuse)
    cache.store(KEY, CONTENT)
    assert cache.load(KEY) == CONTENT and not caplog.records
    assert [path.name for path in entry.parent.iterdir()] == [entry.name]
    other = "ab" + "cd" * 31
    cache.store(other, CONTENT)  # it cannot be written at all
    assert cache.load(other) is None and len(caplog.records) == 1


def test_C3_a_full_disk_leaves_nothing_half_written(own_cache, monkeypatch):
    def full(*args, **more):
        file = open(*args, **more)  # noqa: SIM115  # closed by `Full`

        class Full:
            def __enter__(self):
                return self

            def __exit__(self, *error):
                file.close()

            def writelines(self, parts):
                file.write(parts[0][:10])
                raise OSError(errno.ENOSPC, "No space left on device")

        return Full()

    monkeypatch.setattr(files.io, "open", full)
    cache.store(KEY, CONTENT)
    assert [path for path in own_cache.rglob("*") if path.is_file()] == []
    assert cache.load(KEY) is None


def test_C3_ctrl_c_behind_the_replacement_is_not_lost(own_cache, monkeypatch):
    real = os.replace

    def interrupted(*paths):
        real(*paths)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cache.store(KEY, CONTENT)
    assert cache.load(KEY) == CONTENT


COMPILES = """
import os, sys, time
sys.path.insert(0, {tests!r})
from fake_backend import FakeCompiler, FakePlugin
import hal_core as hal
hal.Device.register_plugin("FAKE", FakePlugin())
device = hal.Device["FAKE"]
print(flush=True)
sys.stdin.read()  # until all are ready
texts = [f"def k(t):\\n    return {{n}}" for n in range(20)]
for text in texts:
    program = device.compile(hal.Source("k", text, "", language="python"))
    if program.binary.image != text.encode() or program.function(0) != int(text[-2:]):
        sys.exit(f"another's program: {{program.binary.image}}")
facts = hal.cache.statistics()
if facts.misses != FakeCompiler.compiled or facts.hits + facts.misses != 20:
    sys.exit(str(facts))
if set(facts.reasons) - {{"absent"}}:
    sys.exit(f"damaged: {{facts.reasons}}")
print(facts.misses)
"""


def test_C3_processes_that_compile_the_same_sources_agree(own_cache):
    command = [sys.executable, "-c", COMPILES.format(tests=str(Path(__file__).parents[1]))]
    env = dict(os.environ, HAL_CACHE_DIR=str(own_cache))
    pipe = subprocess.PIPE

    def start():
        return subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    for number, compiled in ((4, None), (1, 0)):
        running = [start() for _ in range(number)]
        for process in running:
            assert process.stdout is not None and process.stdout.readline() == "\n"
        for process in running:
            assert process.stdin is not None
            process.stdin.close()
            process.stdin = None
        for process in running:
            said, stderr = process.communicate(timeout=60)
            assert (process.returncode, stderr) == (0, "")
            assert compiled is None or int(said) == compiled
        assert cache.statistics().entries == 20


def test_C4_bounded_and_the_longest_unused_goes_first(own_cache, monkeypatch):
    keys = [f"{n:064x}" for n in range(10)]
    for age, key in enumerate(keys):
        cache.store(key, bytes(1000))
        path = next(own_cache.rglob(key))
        os.utime(path, (1000 + age, 1000 + age))
    cache.load(keys[0])  # used just now
    foreign = own_cache / "00" / "README"
    foreign.write_text("mine")
    assert cache.evict(str(own_cache), 5500) == 5
    left = [key for key in keys if list(own_cache.rglob(key))]
    assert left == [keys[0], *keys[6:]]
    assert cache.clear() == 5 and foreign.exists()


def test_C4_what_is_not_the_caches_own_stays(entry, own_cache, tmp_path):
    """An entry is known by its header, half-written ones by their key; links lead elsewhere."""
    whole, elsewhere = entry.read_bytes(), tmp_path / "elsewhere"
    elsewhere.mkdir()
    other = "cd" * 32
    cache.store(other, CONTENT)
    (own_cache / "cd").rename(elsewhere / "cd")
    (own_cache / "cd").symlink_to(elsewhere / "cd")
    (entry.parent / ("ab" + "0" * 62)).symlink_to(elsewhere / "cd" / other)
    (own_cache / "xy").mkdir()
    foreign = [
        entry.with_name("ab" + "1" * 62),  # named as an entry
        entry.with_name("ab" + "2" * 62),
        entry.with_name("new-notes"),
        own_cache / "xy" / ("xy" + "3" * 62),
    ]
    for path in foreign:
        path.write_bytes(b"the user's own" * 10)
        os.utime(path, (1000, 1000))
    foreign[1].write_bytes(whole)  # the entry of another key
    assert cache.statistics()[1:3] == (1, len(whole))
    assert cache.clear() == 1 and not entry.exists()
    assert (elsewhere / "cd" / other).exists() and all(path.exists() for path in foreign)
    assert cache.statistics()[1:3] == (0, 0)


def test_C4_hits_and_misses_are_counted_with_reasons(own_cache, monkeypatch):
    monkeypatch.setenv("HOME", str(own_cache.parent))
    monkeypatch.setenv("HAL_CACHE_DIR", f"~/{own_cache.name}")
    before = cache.statistics()
    cache.load(KEY)
    cache.store(KEY, b"x")
    cache.load(KEY)
    after = cache.statistics()
    assert after.hits == before.hits + 1
    assert after.misses == before.misses + 1
    assert after.reasons["absent"] == before.reasons.get("absent", 0) + 1
    assert (after.entries, after.nbytes, after.folder) == (1, 77, str(own_cache))
    assert after.limit == 512 << 20 and hal.cache.statistics() == after


def test_the_cache_can_be_switched_off(monkeypatch, own_cache):
    monkeypatch.setenv("HAL_CCACHE", "0")
    cache.store(KEY, CONTENT)
    before = misses().get("switched off", 0)
    assert cache.folder() == "" and cache.load(KEY) is None and cache.clear() == 0
    assert misses()["switched off"] == before + 1
    assert cache.statistics()[:3] == ("", 0, 0)
    assert not own_cache.exists()
    monkeypatch.setenv("HAL_CACHE_ONLY", "1")
    with pytest.raises(errors.CompilerUnavailable, match="The cache is off, by HAL_CCACHE=0"):
        FakeCompiler().compile_or_reuse(hal.Source("k", "text", "", language="python"))
    monkeypatch.setenv("HAL_CCACHE", "maybe")
    with pytest.raises(errors.InvalidArgument, match="HAL_CCACHE"):
        cache.folder()


def test_a_relative_folder_is_that_of_its_first_use(monkeypatch, tmp_path):
    monkeypatch.setenv("HAL_CACHE_DIR", "relative to the start")
    before = cache.folder()
    monkeypatch.chdir(tmp_path)
    assert cache.folder() == before


def test_no_home_means_no_cache(monkeypatch):
    for name in ("HAL_CACHE_DIR", "HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert cache.folder() == "" and cache.load(KEY) is None


def test_C4_what_a_killed_process_left_is_cleared(own_cache):
    cache.store(KEY, CONTENT)
    shelf = own_cache / KEY[:2]
    old, fresh = shelf / f"{KEY}.new-old", shelf / f"{KEY}.new-fresh"
    for path in (old, fresh):
        path.write_bytes(bytes(1000))
    os.utime(old, (1000, 1000))
    assert cache.evict(str(own_cache)) == 0
    assert not old.exists() and fresh.exists()
    assert cache.load(KEY) == CONTENT


def test_C4_storing_keeps_the_bound(own_cache, monkeypatch):
    """The folder is looked at once in 64 stores, so it may hold 64 entries more."""
    monkeypatch.setenv("HAL_CACHE_LIMIT", "20K")
    for n in range(300):
        cache.store(f"{n:064x}", bytes(924))
        assert cache.statistics().nbytes <= (20 + 64) * 1024
    assert cache.load(f"{299:064x}") == bytes(924), "the last one is there"
    assert cache.load(f"{0:064x}") is None


def test_C3_nothing_is_ever_unpickled(entry):
    class Bomb:
        def __reduce__(self):
            return (os._exit, (9,))

    bomb = pickle.dumps(Bomb())
    cache.store(KEY, bomb)
    assert cache.load(KEY) == bomb
    entry.write_bytes(bomb)
    assert cache.load(KEY) is None
