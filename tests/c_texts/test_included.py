"""C2: the key of the compile cache has the files that a text includes."""

import os

import pytest

import hal_core as hal
from hal_kernel.c_texts.included import digest_of_headers


def reading(text, *folders):
    return hal.Source("k", text, "", language="c", includes=folders)


INCLUDED = {  # text, and the files that decide its key
    "": "",
    '#include "a.h"': "a.h",
    "  #  include <a.h>\n#include <sub/b.h>": "a.h sub/b.h",
    '/* first */ # /* second */ include /* third */ "a.h" // last': "a.h",
    '#inc\\\nlude "a\\\n.h"': "a.h",
    '%:include "c.h"': "c.h a.h sub/b.h",
    '#if 0\n#include "a.h"\n#endif': "a.h",
    '#include_next "a.h"\n#embed "data"\n#import "sub/d.h"': "a.h data sub/d.h sub/b.h",
    "#if __has_include(<sub/d.h>)": "sub/d.h sub/b.h",
    '#include "ABSOLUTE/other.h"': "../other.h",
    "#define H <a.h>\n#include H": "a.h c.h data sub/b.h sub/d.h loop.h",
    '#include "loop.h"': "loop.h",
    "#include <stdint.h>": "",
    "// reads a.h": "",
}


@pytest.mark.parametrize(("text", "files"), INCLUDED.items())
def test_C2_the_key_has_the_files_that_are_included_and_no_others(tmp_path, text, files):
    folder = tmp_path / "include"
    (folder / "sub").mkdir(parents=True)
    contents = {
        "a.h": "1", "c.h": '#include "a.h"\n#include "sub/b.h"', "data": "\0\xff",
        "sub/b.h": "2", "sub/d.h": '#include "b.h"', "../other.h": "3",
        "loop.h": '#include "loop.h"',
    }  # fmt: skip
    for name, content in contents.items():
        (folder / name).write_text(content)
    read = reading(text.replace("ABSOLUTE", str(tmp_path)), folder)
    before = digest_of_headers(read)
    decide = {name for name in contents if changes(folder / name, read, before)}
    assert decide == set(files.split())


def changes(path, read, before):
    """Return whether the key changes with the file, and comes back with it."""
    content = path.read_text()
    path.write_text(content + " ")
    changed = digest_of_headers(read) != before
    path.write_text(content)
    assert digest_of_headers(read) == before
    return changed


def test_C2_a_header_that_comes_first_is_another_key(tmp_path):
    folders = tuple(tmp_path / name for name in "ab")
    for folder in folders:
        folder.mkdir()
    (folders[1] / "a.h").write_text("1")
    read = reading('#include "a.h"', *folders)
    before = digest_of_headers(read)
    (folders[0] / "a.h").write_text("2")
    assert digest_of_headers(read) != before


def test_C2_links_and_pipes_in_an_include_folder(tmp_path):
    folder = tmp_path / "include"
    folder.mkdir()
    text = '#define NAME "a.h"\n#include NAME\n#include "pipe"\n'
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "b.h").write_text("1")
    (folder / "link").symlink_to(linked)
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe")
    (folder / "dangling").symlink_to(tmp_path / "nowhere")
    read = reading(text, folder)
    before = digest_of_headers(read)
    (linked / "b.h").write_text("2")
    assert digest_of_headers(read) != before, "a header behind a link"


@pytest.mark.parametrize("method", ["compile", "compile_or_reuse"])
@pytest.mark.parametrize("folder", ["missing", "a file"])
def test_C2_a_folder_that_cannot_be_read_is_refused(tmp_path, folder, method):
    class Blind(hal.Compiler):
        language, identity = "c", "blind 1"

        def _compile(self, source):
            return b"as compilers do, which pass over a folder that is missing"

        def _headers(self, source):
            return digest_of_headers(source)

    (tmp_path / "a file").touch()
    with pytest.raises(hal.InvalidArgument, match="an include folder cannot be read"):
        getattr(Blind(), method)(reading("int i;", tmp_path / folder))
