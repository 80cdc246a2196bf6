"""C3 and C4: the compile cache under damage, full disks and many processes."""

from __future__ import annotations

import errno
import logging
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hal_core import cache, errors

KEY = "ab" * 32
CONTENT = b"machine code" * 100


@pytest.fixture
def entry(own_cache: Path) -> Path:
    cache.store(KEY, CONTENT)
    (path,) = (path for path in own_cache.rglob("*") if path.is_file())
    return path


def misses() -> dict[str, int]:
    return dict(cache.statistics().reasons)


def test_C3_stored_is_loaded(entry: Path) -> None:
    assert cache.load(KEY) == CONTENT
    assert cache.load("cd" * 32) is None


def test_C3_every_damage_is_a_miss(entry: Path) -> None:
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


def test_C3_an_entry_under_another_name_is_a_miss(entry: Path) -> None:
    other = "ab" + "cd" * 31
    entry.rename(entry.with_name(other))
    before = misses().get("damaged", 0)
    assert cache.load(other) is None
    assert misses()["damaged"] == before + 1


def test_C3_an_unreadable_entry_is_a_miss(entry: Path) -> None:
    entry.unlink()
    entry.mkdir()
    before = misses().get("unreadable", 0)
    assert cache.load(KEY) is None
    assert misses()["unreadable"] == before + 1
    cache.store(KEY, CONTENT)  # cannot replace a folder: no error


def test_C3_what_only_looks_like_an_entry_is_a_miss(entry: Path, tmp_path: Path) -> None:
    whole = entry.read_bytes()
    real = tmp_path / "real"
    real.write_bytes(whole)
    entry.unlink()
    entry.symlink_to(real)
    assert cache.load(KEY) is None, "a link"
    entry.unlink()
    os.mkfifo(entry)
    assert cache.load(KEY) is None, "a pipe, which nobody writes"
    entry.unlink()
    entry.write_bytes(whole)
    entry.chmod(0o666)
    assert cache.load(KEY) is None, "anybody could have written it"
    entry.chmod(0o600)
    assert cache.load(KEY) == CONTENT
    if os.geteuid() == 0:
        os.chown(entry, 12345, -1)
        assert cache.load(KEY) is None, "another user's"


def test_C3_a_folder_that_cannot_be_written_costs_one_log_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("HAL_CACHE_DIR", str(blocked / "cache"))
    with caplog.at_level(logging.WARNING, "hal_core"):
        for _ in range(3):
            cache.store(KEY, CONTENT)
            assert cache.load(KEY) is None
    assert len(caplog.records) == 1 and "cannot be written" in caplog.text


def test_C3_a_full_disk_leaves_nothing_half_written(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fdopen

    def full(*args: Any, **more: Any) -> Any:
        file = real(*args, **more)

        class Full:
            def __enter__(self) -> Any:
                return self

            def __exit__(self, *error: object) -> None:
                file.close()

            def write(self, data: bytes) -> None:
                file.write(data[:10])
                raise OSError(errno.ENOSPC, "No space left on device")

        return Full()

    monkeypatch.setattr(os, "fdopen", full)
    cache.store(KEY, CONTENT)
    assert [path for path in own_cache.rglob("*") if path.is_file()] == []
    assert cache.load(KEY) is None


def test_C3_eight_processes_agree(own_cache: Path) -> None:
    work = (
        "import hashlib, random, sys\n"
        "from hal_core import cache\n"
        "rng = random.Random(int(sys.argv[1]))\n"
        "for _ in range(200):\n"
        "    n = rng.randrange(20)\n"
        "    key = hashlib.sha256(b'%d' % n).hexdigest()\n"
        "    content = bytes([n]) * (1000 + n)\n"
        "    found = cache.load(key)\n"
        "    if found is None: cache.store(key, content)\n"
        "    elif found != content: sys.exit(f'wrong content for {n}')\n"
    )
    env = dict(os.environ, HAL_CACHE_DIR=str(own_cache))
    running = [
        subprocess.Popen([sys.executable, "-c", work, str(seed)], env=env, stderr=subprocess.PIPE)
        for seed in range(8)
    ]
    for process in running:
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 0, stderr.decode()
    assert cache.statistics().entries == 20
    assert not list(own_cache.rglob("tmp*"))


def test_C4_bounded_and_the_longest_unused_goes_first(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_C4_hits_and_misses_are_counted_with_reasons(own_cache: Path) -> None:
    before = cache.statistics()
    cache.load(KEY)
    cache.store(KEY, b"x")
    cache.load(KEY)
    after = cache.statistics()
    assert after.hits == before.hits + 1
    assert after.misses == before.misses + 1
    assert after.reasons["new"] == before.reasons.get("new", 0) + 1
    assert (after.entries, after.nbytes) == (1, 77)


def test_the_cache_can_be_switched_off(monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    monkeypatch.setenv("HAL_CCACHE", "0")
    cache.store(KEY, CONTENT)
    assert cache.folder() == "" and cache.load(KEY) is None and cache.clear() == 0
    assert not own_cache.exists()
    monkeypatch.setenv("HAL_CCACHE", "maybe")
    with pytest.raises(errors.InvalidArgument, match="HAL_CCACHE"):
        cache.folder()


def test_no_home_means_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HAL_CACHE_DIR", "HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert cache.folder() == "" and cache.load(KEY) is None
