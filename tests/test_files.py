"""Files that are written whole, paths that name none, and what the system refuses."""

import errno
import os
import pickle
import stat

import pytest

import hal_core as hal
from hal_core import files
from hal_core.cli import main
from hal_testing.kit.report import Report

KERNEL = "import hal_core as hal\nk = hal.Source('k', 'text', 'n: int32', language='c')\n"


def writers(fake, folder):
    """Everything that writes a file which the user names, by the suffix of the file."""
    (folder / "kernel.py").write_text(KERNEL)
    return {
        ".graph": lambda path: hal.Graph(fake).save(path),
        ".html": lambda path: hal.Profile().save(path),
        ".json": lambda path: Report("FAKE", {}, (), 0.0).write(path),
        ".c": lambda path: main(["render", str(folder / "kernel.py"), "-o", str(path)]),
    }


@pytest.mark.parametrize("suffix", [".graph", ".html", ".json", ".c"])
def test_two_that_write_one_file_write_it_whole(suffix, fake, tmp_path, monkeypatch):
    """One writes it from begin to end just before the other's file takes its place."""
    write, target, replace = writers(fake, tmp_path)[suffix], tmp_path / f"to{suffix}", os.replace
    planted = {f".{target.name}.{os.getpid()}", f".{target.name}"}
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    for name in planted:
        (tmp_path / name).symlink_to(victim)

    def beside_another(*names):
        monkeypatch.setattr(os, "replace", replace)
        write(target)
        replace(*names)

    monkeypatch.setattr(os, "replace", beside_another)
    write(target)
    assert target.stat().st_size and victim.read_bytes() == b"mine"
    expected = {target.name, "victim", "kernel.py", *planted}
    assert set(os.listdir(tmp_path)) == expected
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~umask


def test_a_pipe_is_written_to_and_a_link_is_replaced(tmp_path):
    out, into = os.pipe()
    files.save("save", f"/dev/fd/{into}", b"a", b"b")
    os.close(into)
    with open(out, "rb") as pipe:
        assert pipe.read() == b"ab"
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "absent")
    files.write_whole(str(link), b"c")
    assert not link.is_symlink() and link.read_bytes() == b"c"
    assert os.listdir(tmp_path) == ["link"]


@pytest.mark.parametrize("path", [42, None, "", "a\0b", b"\0", "\ud800", ["x"], object()])
def test_what_is_no_path_is_refused_everywhere(path, fake):
    made = hal.zeros(4, hal.int8, fake)
    calls = [
        lambda: hal.Graph(fake).save(path), lambda: hal.load_graph(path, fake),
        lambda: hal.Profile().save(path), lambda: hal.finalize_profile(path or 0),
        lambda: made.to_file(path), lambda: hal.Buffer.from_file(path, hal.int8, device=fake),
        lambda: hal.Buffer.from_file(path, hal.int8, 0, 4, fake),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(hal.InvalidArgument, match="not the path of a file .*Give it as text"):
            call()


def test_a_path_may_be_bytes(fake, tmp_path):
    place = os.fsencode(tmp_path / "a.graph")
    hal.Graph(fake).save(place)
    assert len(hal.load_graph(place, fake)) == 0
    hal.Profile().save(os.fsencode(tmp_path / "a.json"))


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("absent/x.json", FileNotFoundError), ("folder.json", IsADirectoryError),
        ("file/x.json", NotADirectoryError),
    ],
)  # fmt: skip
def test_what_the_system_refuses_is_a_hal_error_and_the_os_error(place, kind, fake, tmp_path):
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "file").write_text("")
    path, made = tmp_path / place, hal.zeros(4, hal.int8, fake)
    for call in (hal.Graph(fake).save, hal.Profile().save, made.to_file):
        with pytest.raises(hal.InvalidArgument, match=f"{place}|{path.name}") as caught:
            call(path)
        assert isinstance(caught.value, kind) and not caught.type.__name__.startswith("_")
        assert isinstance(caught.value, OSError) and caught.value.filename == str(path)
        assert caught.value.errno in (errno.ENOENT, errno.EISDIR, errno.ENOTDIR)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
