"""Finding distributions: agreement with importlib-metadata, duplicates, damage."""

import os
import sys
import zipfile
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import importlib_metadata
import pytest
from fake_site import FakeSite
from hypothesis import given
from hypothesis import strategies as st

from hal_core import discovery

pytestmark = [pytest.mark.alone, pytest.mark.syntax, pytest.mark.lowest, pytest.mark.quick]

GOOD = "[hal.devices]\nGOOD = good:plugin\n"


def names(found):
    return [entry.name for entry in found.entries]


# -- the property: plain folders read as importlib-metadata reads them

WORD = st.from_regex(r"[A-Za-z][A-Za-z0-9_.\-]{0,8}", fullmatch=True)
VALUE = st.from_regex(
    r"[a-z_]{1,5}(\.[a-z]{1,4})?(:[a-z.]{1,6})?( ?\[[a-z, ]{1,6}\])?", fullmatch=True
)
NOISE = st.sampled_from(["", "   ", "# comment", "  # = indented", "\t", "#[hal.devices]"])
GROUP = st.sampled_from(
    ["hal.devices", "hal.extensions", "hal.languages", "console_scripts", "x.y", "hal.device"]
)
EQUALS = st.sampled_from(["=", " = ", "  =\t"])
LINE = st.one_of(NOISE, st.builds("{}{}{}".format, WORD, EQUALS, VALUE))
SECTION = st.builds(lambda group, lines: [f"[{group}]", *lines], GROUP, st.lists(LINE, max_size=4))
TEXT = st.builds(
    lambda before, sections, ending: ending.join([*before, *chain(*sections)]),
    st.lists(NOISE, max_size=2),
    st.lists(SECTION, max_size=4),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
)
DISTRIBUTION = st.tuples(
    st.sampled_from(["a", "hal_cpu", "Hal.CPU", "hal__cpu", "numpy", "x.y_z", "ÄÖ"]),
    st.sampled_from(["dist-info", "egg-info"]),
    st.one_of(st.none(), TEXT),
    st.booleans(),  # whole, or an empty folder left behind
    st.sampled_from([0, 1]),  # in which of two folders of the path
)


def build(root, described):
    sites = [FakeSite(root / "first"), FakeSite(root / "second")]
    seen = set()
    for name, suffix, text, whole, place in described:
        # Two of one name in one folder come in an order that no reader promises.
        if (discovery.normalize(name), place) not in seen:
            seen.add((discovery.normalize(name), place))
            sites[place].distribution(name, text, metadata=whole, suffix=suffix)
    return [str(one) for one in sites]


def reference(path):
    found = importlib_metadata.distributions(path=path)
    # As `entry_points` does from 8.5 on: an empty folder hides no whole one.
    ordered = sorted(
        found, key=lambda dist: not (dist.read_text("METADATA") or dist.read_text("PKG-INFO"))
    )
    result = []
    for dist in importlib_metadata._unique(ordered):
        result += [(one.group, one.name, one.value) for one in dist.entry_points]
    return sorted({one for one in result if one[0] in discovery._GROUPS})


@given(st.lists(DISTRIBUTION, max_size=6))
def test_the_scan_agrees_with_importlib_metadata(described):
    with TemporaryDirectory() as root:
        path = build(Path(root), described)
        found = discovery.scan(path)
        ours = sorted({(one.group, one.name, one.value) for one in found.entries})
        assert ours == reference(path)
        assert found.damaged == {} and found.left == []


def test_the_scan_agrees_on_this_environment():
    path = [place for place in sys.path if os.path.isdir(place)]
    ours = sorted((one.group, one.name, one.value) for one in discovery.scan(path).entries)
    assert ours == reference(path)


# -- duplicates


def test_R11_symlinked_lib64_is_one(site, tmp_path):
    site.distribution("good", GOOD)
    (tmp_path / "lib64").symlink_to(site.folder)
    found = discovery.scan([str(site), str(tmp_path / "lib64"), str(site)])
    assert names(found) == ["GOOD"]


def test_R11_egg_info_in_the_working_directory_is_the_same_distribution(
    site, tmp_path, monkeypatch
):
    site.distribution("hal_good", GOOD)
    checkout = FakeSite(tmp_path / "checkout").distribution("Hal.Good", GOOD, suffix="egg-info")
    checkout.rename(checkout.parent / "hal_good.egg-info")
    monkeypatch.chdir(checkout.parent)
    (entry,) = discovery.scan(["", str(site)]).entries
    assert entry.distribution.folder == str(checkout.parent / "hal_good.egg-info")
    assert entry.distribution.version == "1.0"  # read from PKG-INFO: the name has none


def test_R11_an_editable_install_beside_a_regular_one_is_one(site, tmp_path):
    """The folder that an import would take, too: the first of the path."""
    regular = FakeSite(tmp_path / "regular")
    regular.distribution("hal_good", GOOD, version="1.0")
    editable = site.distribution("hal_good", "[hal.devices]\nGOOD = dev:plugin\n", version="1.1")
    (editable / "direct_url.json").write_text('{"dir_info": {"editable": true}, "url": "x"}')
    for path, version in (([site, regular], "1.1"), ([regular, site], "1.0")):
        (entry,) = discovery.scan(map(str, path)).entries
        assert (entry.name, entry.distribution.version) == ("GOOD", version)


def test_R11_an_empty_dist_info_never_shadows_a_whole_one(site, tmp_path):
    stale = FakeSite(tmp_path / "stale")
    stale.distribution("good", "[hal.devices]\nSTALE = gone:plugin\n", metadata=False)
    site.distribution("good", GOOD)
    assert names(discovery.scan([str(stale), str(site)])) == ["GOOD"]
    assert discovery.scan([str(stale), str(site)]).damaged == {}


# -- damage


DAMAGE = {
    "no equals sign": b"[hal.devices]\nnonsense\n",
    "latin-1": "[hal.devices]\nCUD\u00c9 = x:y\n".encode("latin-1"),
    "NUL": b"[hal.devices]\nA\0B = x:y\n",
    "byte-order mark": b"\xef\xbb\xbf[hal.devices]\n",
    "ten megabytes": b"[hal.devices]\n" + b"# padding\n" * (1 << 20),
    "binary": bytes(range(256)) + b"[hal.devices]\n",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_R12_a_damaged_file_hides_nothing_else(site, damage):
    site.distribution("aaa", damage)
    site.distribution("good", GOOD)
    found = discovery.scan([str(site)])
    assert "GOOD" in names(found)
    assert list(found.damaged) == [str(site.folder / "aaa-1.0.dist-info/entry_points.txt")]


def test_R12_a_damaged_line_costs_its_own_file_no_other_line(site):
    site.distribution("one", "[console_scripts]\nbroken\n" + GOOD)
    found = discovery.scan([str(site)])
    assert names(found) == ["GOOD"]
    assert "line 2" in next(iter(found.damaged.values()))


def test_R12_only_a_thorough_scan_looks_at_files_without_our_groups(site):
    site.distribution("other", "[console_scripts]\nbroken\n")
    assert discovery.scan([str(site)]).damaged == {}
    assert len(discovery.scan([str(site)], thorough=True).damaged) == 1


def test_R12_strange_path_entries_are_passed_over(site, tmp_path):
    site.distribution("good", GOOD)
    (site.distribution("folder") / "entry_points.txt").mkdir()
    strange = None, 7, b"bytes", "nul\0", str(tmp_path / "gone"), site.folder
    path = [*strange, str(site)]
    assert names(discovery.scan(path)) == ["GOOD"]


@given(st.one_of(st.binary(max_size=200), TEXT.map(str.encode)))
def test_R12_no_content_makes_the_reader_raise(data):
    lines, problem = discovery.parse(data)
    assert all(len(line) == 3 for line in lines) and isinstance(problem, str)


# -- zip files and foreign finders


def zipped(folder, archive):
    with zipfile.ZipFile(archive, "w") as file:
        for member in folder.rglob("*"):
            file.write(member, member.relative_to(folder))
    return str(archive)


def test_R18_a_distribution_in_a_zip_is_found(site, tmp_path):
    site.distribution("good", GOOD, version="2.5")
    path = [zipped(site.folder, tmp_path / "site.zip")]
    found = discovery.scan(path)
    assert names(found) == [] and found.left == path
    discovery.complete(found)
    discovery.complete(found)
    (entry,) = found.entries
    assert (entry.name, entry.distribution.name, entry.distribution.version) == (
        "GOOD", "good", "2.5",
    )  # fmt: skip


def test_R18_a_plain_folder_goes_before_the_same_distribution_in_a_zip(site, tmp_path):
    site.distribution("good", GOOD)
    found = discovery.scan([zipped(site.folder, tmp_path / "site.zip"), str(site)])
    discovery.complete(found)
    assert names(found) == ["GOOD"]


class ForeignFinder:
    """A finder as frozen applications have, whose distributions lie nowhere."""

    def __init__(self, text):
        self.text = text

    def find_spec(self, *_):
        return None

    def find_distributions(self, context):
        text = self.text

        class Found(importlib_metadata.Distribution):
            def read_text(self, filename):
                files = {"entry_points.txt": text, "METADATA": "Name: foreign\nVersion: 3\n"}
                return files.get(str(filename))

            def locate_file(self, path):
                return Path(str(path))

        yield Found()


def test_R12_a_finder_that_raises_hides_nothing_of_others(site, monkeypatch):
    class Broken(ForeignFinder):
        def find_distributions(self, context):
            yield from super().find_distributions(context)
            raise RuntimeError("no such archive")

    site.distribution("good", GOOD)
    good = ForeignFinder("[hal.devices]\nF = f:plugin\n")
    monkeypatch.setattr(sys, "meta_path", [Broken(""), *sys.meta_path, good])
    found = discovery.scan([str(site)])
    discovery.complete(found)
    assert sorted(names(found)) == ["F", "GOOD"]
    assert ["no such archive" in problem for problem in found.damaged.values()] == [True]


# -- versions


@pytest.mark.parametrize("metadata", [b"", b"Name: old\n", b"\xff\xfe", b"\0" * 9])
def test_R12_damaged_metadata_has_no_version_and_raises_nothing(tmp_path, metadata):
    (tmp_path / "old.egg-info").mkdir()
    (tmp_path / "old.egg-info" / "entry_points.txt").write_text(GOOD)
    (tmp_path / "old.egg-info" / "PKG-INFO").write_bytes(metadata)
    (entry,) = discovery.scan([str(tmp_path)]).entries
    assert entry.distribution.version == "?"
    assert "old ?" in repr(entry)


def test_versions_come_from_folder_names():
    for name in ("numpy", "importlib_metadata", "Importlib.Metadata", "pytest"):
        assert discovery.distribution_version(name) == importlib_metadata.version(name)
    assert discovery.distribution_version("no-such-thing") is None


def test_a_half_removed_distribution_has_no_version(site, monkeypatch):
    site.distribution("gone", metadata=False)
    monkeypatch.setattr(discovery, "_latest", discovery.scan([str(site)]))
    assert discovery.distribution_version("gone") is None
