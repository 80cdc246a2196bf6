"""Settings of Sphinx for the site: `nox -s site` builds it from the pages as they stand.

The pages are Markdown with relative links, as a code host shows them. The site's source is the
whole repository, so that these links hold; those to files that are no pages lead to the code host.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from sphinx.util.matching import Matcher

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ADDRESS = PROJECT["urls"]["Source"]

project, author, release = "hal-core", "The hal-core authors", PROJECT["version"]
html_title = f"hal-core {release}"
extensions = ["myst_parser"]
root_doc = "README"
source_suffix = {".md": "markdown", ".ipynb": "markdown"}
include_patterns = [
    "*.md", "docs/*.md", "docs/*.ipynb", "docs/design/*.md", "docs/hardware/*.md",
    "examples/README.md", "plugins/*/README.md",
]  # fmt: skip
html_theme, pygments_dark_style = "furo", "monokai"
html_theme_options = {
    "source_repository": ADDRESS, "source_branch": "main", "source_directory": "",
}  # fmt: skip
html_copy_source = html_use_index = False
myst_heading_anchors = 4  # with the names that a code host gives them

MENU = {
    "Begin": "docs/tutorial docs/concepts docs/kernel-language docs/recipes docs/coming-from"
    " examples/README docs/command-line",
    "Use": "docs/memory docs/testing-kernels docs/checked-mode docs/queues docs/graphs"
    " docs/many-devices docs/clusters docs/source-kernels",
    "Be fast": "docs/speed docs/profiling docs/speed-table docs/hardware/README",
    "Look up": "docs/api docs/errors docs/environment docs/versions CHANGELOG docs/README",
    "Backends": "plugins/hal-cpu/README plugins/hal-cuda/README plugins/hal-hip/README"
    " plugins/hal-metal/README plugins/hal-opencl/README plugins/hal-ray/README"
    " plugins/hal-kernel/README",
    "Build on it": "docs/compilers docs/ir docs/writing-a-backend"
    " plugins/hal-testing/README plugins/hal-streams/README",
    "Change it": "CONTRIBUTING docs/design/README SECURITY",
}
BELOW = {"docs/design/README": "docs/design/*.md", "docs/hardware/README": "docs/hardware/*.md"}


def setup(app: Any) -> None:
    app.connect("source-read", read)


def read(app: Any, name: str, source: list[str]) -> None:
    """Change a page's text, before it is parsed."""
    if source[0].startswith("{"):
        source[0] = "\n\n".join(map(cell_text, json.loads(source[0])["cells"]))
    folder = (ROOT / name).parent
    source[0] = re.sub(
        r"\]\(((?!https?:|data:|#)[^)#]+)", lambda found: link(folder, found[1]), source[0]
    )
    if name == root_doc:
        source[0] += "".join(map(contents, MENU, map(str.split, MENU.values())))
    elif name in BELOW:
        pages = sorted(ROOT.glob(BELOW[name]))
        below = [f"/{page.relative_to(ROOT).with_suffix('')}" for page in pages]
        source[0] += contents("", [page for page in below if page != f"/{name}"])


def contents(title: str, pages: list[str]) -> str:
    caption = f":caption: {title}\n" if title else ""
    return "\n".join(["\n```{toctree}", f":hidden:\n{caption}", *pages, "```\n"])


def link(folder: Path, target: str) -> str:
    """Return a link to a page as it is, and one to another file to the code host."""
    path = (folder / target).resolve()
    inside, is_page = path.relative_to(ROOT), Matcher(include_patterns)
    if is_page(str(inside / "README.md")):
        return f"]({target}/README.md"
    here = is_page(str(inside)) or path.suffix in (".svg", ".png")
    return f"]({target}" if here else f"]({ADDRESS}/blob/v{release}/{inside}"


def cell_text(cell: dict[str, Any]) -> str:
    """Return a notebook's cell as Markdown, with what it printed and drew."""
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return text
    parts = [f"```python\n{text}\n```"]
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            parts.append(
                f"![A picture](data:image/png;base64,{''.join(data['image/png']).strip()})"
            )
        elif printed := "".join(output.get("text", data.get("text/plain", ""))).rstrip():
            parts.append(f"```text\n{printed}\n```")
    return "\n\n".join(parts)
