"""F2: a profile's page in a real browser, without a network: it is clicked, zoomed and read.

`nox -s browser` runs it, where Chromium is installed (Debian: apt-get install chromium).
"""

import itertools
import json
import shutil

import pytest
from playwright.sync_api import sync_playwright

from hal_core.profiling import trace
from hal_core.profiling.events import ProfileEvent


class Browser:
    """A page in a headless Chromium; `asked` and `faults` are what it loads, and what fails."""

    def __init__(self, page, url):
        self.page, self.mouse, self.read = page, page.mouse, page.evaluate
        self.asked, self.faults = [], []
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("pageerror", lambda error: self.faults.append(error))
        page.on("console", lambda said: said.type == "error" and self.faults.append(said.text))
        page.goto(url)


def event(kind, name, start, end, device, queue=""):
    nbytes = 4096 if kind in ("alloc", "free", "copyin") else 0
    return ProfileEvent(kind, name, device, start * 1000, end * 1000, nbytes, 1, queue)


EVENTS = [
    event("range", "step", 0, 100, ""), event("alloc", "alloc", 2, 3, "GPU"),
    event("copyin", "copyin", 5, 20, "GPU", "upload"),
    event("wait", "GPU, upload", 6, 20, "GPU", "compute"),
    event("launch", "blur </script><b>", 20, 80, "GPU", "compute"),
    event("launch", "tiny", 80, 81, "GPU", "compute"), event("free", "free", 90, 91, "GPU"),
]  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    path = tmp_path_factory.mktemp("browser") / "trace.html"
    path.write_text(trace.page(EVENTS, 5), encoding="utf-8")
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    assert found, "Chromium is not installed: apt-get install chromium"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield Browser(chromium.new_page(viewport={"width": 1200, "height": 800}), path.as_uri())
        chromium.close()


def place(browser, name):
    """The middle of an event's bar, in pixels of the window."""
    code = f"""(() => {{
        const box = canvas.getBoundingClientRect();
        for (const line of lines) if (line.row) {{
            const at = line.row.events.findIndex(event => event[0] === {json.dumps(name)});
            if (at < 0) continue;
            const [left, top, wide, high] = bar(line, at);
            return [box.left + left + wide / 2, box.top + top + high / 2];
        }}
    }})()"""
    x, y = browser.read(code)
    return x, y


TEXT = "document.getElementById('text').textContent"


def test_a_click_shows_the_text_of_an_event(browser):
    browser.mouse.click(*place(browser, "blur </script><b>"))
    assert browser.read(TEXT).split("\n") == [
        "launch: blur </script><b>", "GPU, compute", "from 20.000 us, took 60.000 us",
    ]  # fmt: skip
    browser.mouse.click(*place(browser, "copyin"))
    assert browser.read(TEXT).split("\n")[-1] == "4096 bytes"
    x, y = place(browser, "free")
    browser.mouse.click(x + 40, y)
    assert browser.read(TEXT) == "Click one."


def test_the_wheel_zooms_around_the_mouse_and_a_double_click_shows_all(browser):
    x, y = map(round, place(browser, "tiny"))  # a mouse is at whole pixels
    time_there = f"timeAt({x} - canvas.getBoundingClientRect().left)"
    before, under = browser.read("x(81) - x(80)"), browser.read(time_there)
    browser.mouse.move(x, y)
    for _ in range(8):
        browser.mouse.wheel(0, -240)
    browser.read("new Promise(requestAnimationFrame)")  # behind the last turn of the wheel
    after = browser.read("x(81) - x(80)")
    assert after > 10 * before
    assert browser.read(time_there) == pytest.approx(under), "what is under the mouse stays there"
    browser.mouse.click(x, y)
    assert browser.read(TEXT).startswith("launch: tiny")
    left, _ = place(browser, "tiny")
    browser.mouse.down()
    browser.mouse.move(x + 100, y)
    browser.mouse.up()
    assert place(browser, "tiny")[0] == pytest.approx(left + 100, abs=1), "a drag moves it"
    browser.mouse.dblclick(x, y)
    assert browser.read("[from, to]") == [0, 100]


def test_the_slowest_are_listed_and_lead_to_their_events(browser):
    rows = browser.read("[...document.querySelectorAll('#slowest tr')].map(row => row.innerText)")
    assert rows[0].split("\t") == ["GPU", "launch", "blur </script><b>", "60.000 us"]
    assert not any("step" in row for row in rows)
    row = "document.querySelector('#slowest tr').getBoundingClientRect()"
    box = browser.read(f"[{row}.left + 20, {row}.top + 5]")
    browser.mouse.click(*box)
    assert browser.read(TEXT).startswith("launch: blur")
    assert browser.read("[from, to]") == [-100, 200]
    browser.read("look(0, end)")


def test_rows_memory_and_arrows_are_drawn(browser):
    """Judged by the colours of pixels on the canvas."""
    labels = browser.read("lines.map(line => (line.row ? line.row.name : 'memory'))")
    assert labels == ["thread 1", "thread 1", "compute", "upload", "memory"]
    assert "7 events in 100.000 us, 5 earlier ones dropped" in browser.read("summary.textContent")

    def pixel(x, y):
        scale = "(window.devicePixelRatio || 1)"
        code = f"[...context.getImageData(({x}) * {scale}, ({y}) * {scale}, 1, 1).data].slice(0, 3)"
        return browser.read(code)

    assert pixel("x(50)", "lines[2].top + 16") == [0x48, 0x78, 0xCF], "a launch"
    assert pixel("x(50)", "lines[4].top + lines[4].height - 6") == [0xCC, 0xDD, 0xEE], "memory"
    red = browser.read(
        "(() => { const d = context.getImageData(0, 0, canvas.width, canvas.height).data;"
        "let n = 0; for (let i = 0; i < d.length; i += 4)"
        "n += d[i] > 150 && d[i+1] < 120 && d[i+2] < 120; return n; })()"
    )
    assert red >= 16, "the head of an arrow, and its line"


def test_nothing_but_the_file_is_asked_for_and_nothing_fails(browser):
    assert [url.partition("://")[0] for url in browser.asked] == ["file"]
    assert not browser.faults


def test_arrows_leave_room_between_them_until_they_are_zoomed(browser, tmp_path):
    """A thousand waits were one red area, which hid the work."""
    events = []
    for turn in range(1000):
        start, (one, two) = 10 * turn, ("one", "two") if turn % 2 else ("two", "one")
        events.append(event("wait", f"GPU, {two}", start, start + 2, "GPU", one))
        events.append(event("launch", "step", start + 2, start + 10, "GPU", one))
    (tmp_path / "dense.html").write_text(trace.page(events, 0), encoding="utf-8")
    browser.page.goto((tmp_path / "dense.html").as_uri())
    assert len(browser.read("data.arrows")) == 999
    wide = browser.read("canvas.clientWidth")
    assert 20 <= browser.read("drawArrows()") <= 2 * (wide // 16 + 1)
    assert browser.read("(look(4000, 4100), drawArrows())") in range(9, 13), "all that there are"


TEXTS = """(() => {
    const texts = [], real = context.fillText;
    context.fillText = (text, left, top) =>
        texts.push([text, left, left + context.measureText(text).width, top]);
    draw();
    context.fillText = real;
    const isAxis = one => one[3] === AXIS / 2;
    return [texts.filter(isAxis), texts.filter(one => !isAxis(one)), x(from)];
})()"""


@pytest.mark.parametrize("width", [320, 800, 1400, 3000])
def test_no_text_runs_into_another_at_any_width_and_zoom(browser, tmp_path, width):
    events = [
        event("range", "step", 0, 30_000_000, ""),
        event("launch", "one", 5, 6_000_000, "RAY:12", "queue 1234 of a device with a long name"),
        event("launch", "two", 10_000_000, 30_000_000, "OPENCL:10", "queue 2 of OPENCL:10"),
    ]
    (tmp_path / "wide.html").write_text(trace.page(events, 0), encoding="utf-8")
    browser.page.set_viewport_size({"width": width, "height": 600})
    browser.page.goto((tmp_path / "wide.html").as_uri())
    for length in (0.0001, 0.02, 3.0, 777.0, 41_000.0, 1e6, 2e7, 3e7, 9e9):
        for begin in (0.0, 29_999_999.0, -length / 2):
            browser.read(f"look({begin}, {begin} + {length})")
            axis, rows, start = browser.read(TEXTS)
            assert len({text for text, *_ in axis}) == len(axis), axis
            for (_, _, end, _), (_, left, _, _) in itertools.pairwise(axis):
                assert end < left, (axis, begin, length)
            for text, left, end, _ in rows:
                assert end <= start or left >= start, (text, left, end, start)
            assert axis or width < 800
    # The names of devices end where those of rows begin.
    rows = browser.read(TEXTS)[1]
    ends = [end for _, left, end, _ in rows if left < 20]
    assert len(ends) == 3 and max(ends) < min(left for _, left, _, _ in rows if left >= 20)
