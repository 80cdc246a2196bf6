"""The installer of sessions: uv, with the settings of pip that it does not read, or pip."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

# uv's variables for pip's settings of where packages come from, which uv does not read; and the
# settings for which uv has no variable.
_UV_WORDS = {
    "index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE", "constraint": "UV_CONSTRAINT",
}  # fmt: skip
_PIP_ALONE = {"no-index", "trusted-host", "client-cert", "proxy", "pre"}


def set_up() -> str:
    """Set the variables of uv and pip, and return nox's name of the one to use.

    uv takes a second where pip takes twenty, but a machine may lack it.
    """
    # Some containers forbid Python to keep what it has compiled. Tests that start processes would
    # then compile every module again in each: three times the work of a short run of the kit.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # The modules that a session imports are compiled then; pip would compile all of scipy, too.
    os.environ["PIP_NO_COMPILE"] = "1"
    os.environ["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    command = (sys.executable, "-m", "pip", "config", "list")
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found: dict[str, list[str]] = {}
    for line in listed.splitlines():  # `global.find-links='/a /b'`, after variables' `:env:.name`
        name, _, value = line.partition("=")
        found.setdefault(name.rpartition(".")[2], str(ast.literal_eval(value)).split())
    if not _PIP_ALONE.isdisjoint(found):
        return "virtualenv"
    for name in _UV_WORDS.keys() & found.keys():
        between = "," if name == "find-links" else " "
        os.environ.setdefault(_UV_WORDS[name], between.join(found[name]))
    # As pip does: the newest of all indexes, the machine's certificates and its own Pythons.
    os.environ.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    os.environ.setdefault("UV_SYSTEM_CERTS", "true")
    os.environ.setdefault("UV_PYTHON_DOWNLOADS", "never")
    return "uv|virtualenv"
