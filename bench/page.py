"""The page of a device, in Markdown, from the records of one run."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator

import hal_core as hal
from bench import machine, report
from bench.found import Example, Kit, Run, Table

COUNTS = ("passed", "failed", "skipped", "known gap")


def file_name(info: hal.DeviceInfo) -> str:
    return re.sub(r"[^a-z0-9]+", "-", info.title.lower()).strip("-")


def text(run: Run) -> str:
    lines = [f"# {run.info.title}", ""]
    if said := machine.notice(run.info):
        lines += [f"> {said}", ""]
    lines += [_summary(run), ""]
    lines += ["## Machine", "", *_table(("what", "version, size"), run.facts)]
    lines += ["## Conformance kit", "", *_kits(run)]
    lines += ["## Examples", "", *_examples(run.examples)]
    for table in run.tables:
        lines += [f"## {table.title[0].upper()}{table.title[1:]}", "", *_bench(table)]
    return "\n".join(lines).rstrip() + "\n"


def _summary(run: Run) -> str:
    family = run.info.name
    date = time.strftime("%Y-%m-%d", time.gmtime())
    how = f"Written by `nox -s hardware -- {family}{' --quick' * run.quick}` on {date}."
    how += " `--quick`: a part of the kit, small examples, few rounds." * run.quick
    failed = ", ".join(run.failures)
    verdict = f"**Failed: {failed}.**" if failed else "Everything below passed."
    if run.pending:
        verdict += f" **Cut short: {', '.join(run.pending)} did not end.**"
    return f"{how} {verdict}"


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [heads, ("---",) * len(heads), *rows]
    clean = ([" ".join(cell.replace("|", "/").split()) for cell in cells] for cells in lines)
    return [*(f"| {' | '.join(cells)} |" for cells in clean), ""]


def _fenced(said: str) -> list[str]:
    return ["```text", *said.replace("```", "'''").splitlines(), "```", ""]


# -- the kit


def _kits(run: Run) -> Iterator[str]:
    heads = ("compiler", *COUNTS, "seconds", "verdict")
    rows = [*map(_kit, run.kits), *((pair, *"-----", why) for pair, why in run.absent.items())]
    yield from _table(heads, rows)
    for kit in run.kits:
        if kit.report is None:
            yield f"The kit with {kit.pair} came to no report; its last words:"
            yield from ("", *_fenced(kit.ended.last_words))
        else:
            yield from _chapters(kit)
    for outcome, title in (
        ("failed", "Failed"),
        ("known_gap", "Known gaps"),
        ("skipped", "Skipped"),
    ):
        rows = list(_why(run.kits, outcome))
        if rows:
            yield from (f"{title}:", "", *_table(("test", "compiler", "why"), rows))


def _kit(kit: Kit) -> tuple[str, ...]:
    if kit.report is None:
        return (kit.pair, *"----", f"{kit.ended.seconds:.0f}", f"ended with {kit.ended.code}")
    counts = [sum(row[name] for row in kit.report["chapters"].values()) for name in COUNTS]
    seconds = f"{kit.report['seconds']:.0f}"
    return (kit.pair, *(f"{count:g}" for count in counts), seconds, kit.report["verdict"])


def _chapters(kit: Kit) -> Iterator[str]:
    """Yield one line: for each chapter how many tests passed, and of how many if not all."""
    chapters = []
    for name, row in (kit.report or {})["chapters"].items():
        whole = sum(row[count] for count in COUNTS)
        passed = f"{row['passed']:g}"
        chapters.append(f"{name} {passed if row['passed'] == whole else f'{passed} of {whole:g}'}")
    yield from (f"Passed with {kit.pair}: {', '.join(chapters)}.", "")


def _why(kits: list[Kit], outcome: str) -> Iterator[tuple[str, str, str]]:
    """Yield rows of test, compilers and reason; compilers with the same reason share a row."""
    found: dict[tuple[str, str], list[str]] = {}
    for kit in kits:
        for one in (kit.report or {}).get(outcome, ()):
            key = one["test"], one["why"].partition("\n")[0]
            found.setdefault(key, []).append(kit.pair)
    for (test, why), pairs in found.items():
        yield f"`{test}`", ", ".join(pairs), why


# -- examples and benchmarks


def _examples(examples: list[Example]) -> Iterator[str]:
    yield "Seconds of the whole process: imports, compilers and numpy's answer to compare with too."
    yield ""
    yield from _table(("example", "arguments", "answer", "seconds"), map(_example, examples))
    for one in examples:
        if one.ended is not None:
            yield from (f"`{one.name}.py`:", "", *_fenced(one.ended.last_words))


def _example(one: Example) -> tuple[str, ...]:
    if one.ended is None:
        return f"{one.name}.py", "", f"not run: {one.why}", "-"
    answer = f"FAILED, exit code {one.ended.code}" if one.ended.code else "right"
    return f"{one.name}.py", " ".join(one.arguments), answer, f"{one.ended.seconds:.1f}"


def _bench(table: Table) -> Iterator[str]:
    if not table.rows:
        yield f"None: the process ended with {table.ended.code}; its last words:"
        yield from ("", *_fenced(table.ended.last_words))
        return
    yield "Times are medians. A score is a speed, as a multiple of the floor's: the median of the"
    yield "ratios of all pairs of rounds. The floor is the driver's own interface through the"
    yield "binding in brackets. GB/s counts what is read and what is written."
    yield ""
    yield from report.markdown(table.rows)
    yield ""
