"""The Python of pages, for the type checkers."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from sessions.distributions import ROOT


def write_code(folder: Path) -> list[Path]:
    """Write what a user would paste from the README, and the kernels of each page."""
    readme = folder / "readme.py"
    readme.write_text(_code_of(ROOT / "README.md"), encoding="utf-8")
    written = [readme]
    for page in sorted((ROOT / "docs").glob("*.md")):
        written.append(folder / f"{page.stem.replace('-', '_')}.py")
        written[-1].write_text(_kernels_of(_code_of(page)), encoding="utf-8")
    return written


def _code_of(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    return "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))


def _kernels_of(code: str) -> str:
    """Keep the kernels, and the imports and constants that they use."""
    lines, kept = code.splitlines(), list[str]()
    used: set[str] = set()
    for node in reversed(ast.parse(code).body):
        if isinstance(node, ast.Import | ast.ImportFrom):
            named = {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            named = {node.name}
        else:
            stores = [part for part in ast.walk(node) if isinstance(part, ast.Name)]
            named = {part.id for part in stores if isinstance(part.ctx, ast.Store)}
        is_kernel = isinstance(node, ast.FunctionDef) and "@hal." in ast.unparse(node)
        if is_kernel or named & used:
            first = min(part.lineno for part in (node, *getattr(node, "decorator_list", ())))
            kept.append("\n".join(lines[first - 1 : node.end_lineno]))
            used |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return "\n\n".join(reversed(kept))
