"""F2: a profile's page in a real browser, without a network: it is clicked, zoomed and read.

`nox -s browser` runs it, where Chromium is installed (Debian: apt-get install chromium). Two pipes
tell the browser what to do, in the Chrome DevTools Protocol.
"""

import itertools
import json
import os
import select
import shutil
import signal
import time

import pytest

from hal_core.profiling import ProfileEvent, trace

SECONDS = 60.0


class Browser:
    """A headless Chromium with one page."""

    def __init__(self, folder, url):
        found = shutil.which("chromium") or shutil.which("chromium-browser")
        assert found, "Chromium is not installed: apt-get install chromium"
        theirs, self._out = os.pipe()
        self._in, ours = os.pipe()
        options = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--window-size=1200,800", "--remote-debugging-pipe", f"--user-data-dir={folder}",
        ]  # fmt: skip
        # Chromium reads what is asked from 3, and answers on 4.
        actions = [
            (os.POSIX_SPAWN_DUP2, theirs, 3), (os.POSIX_SPAWN_DUP2, ours, 4),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ]  # fmt: skip
        self._process = os.posix_spawn(
            found, [found, *options], os.environ, file_actions=actions, setpgroup=0
        )
        os.close(theirs)
        os.close(ours)
        self._numbers, self._rest, self.events = itertools.count(1), b"", []
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.show(url)

    def show(self, url):
        """Open a file of this machine, and wait until it is drawn."""
        self.call("Page.navigate", url=url)
        while (
            self.read("document.readyState + location.href") != f"complete{url}"
            or self.read("typeof draw") == "undefined"
        ):
            time.sleep(0.05)

    def call(self, method, **parameters):
        """Call a method of the protocol and return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + SECONDS
        while True:
            while b"\0" not in self._rest:
                ready, _, _ = select.select([self._in], [], [], until - time.monotonic())
                assert ready, f"{method} has no answer"
                self._rest += os.read(self._in, 1 << 20)
            one, _, self._rest = self._rest.partition(b"\0")
            answer = json.loads(one)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def read(self, expression):
        """Evaluate JavaScript in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def mouse(self, kind, x, y, **more):
        more = {"button": "left", "clickCount": 1} | more if kind != "mouseWheel" else more
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        self.mouse("mousePressed", x, y)
        self.mouse("mouseReleased", x, y)

    def close(self):
        os.killpg(self._process, signal.SIGKILL)  # a group of its own
        os.waitpid(self._process, 0)
        os.close(self._in)
        os.close(self._out)


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
    folder = tmp_path_factory.mktemp("browser")
    (folder / "trace.html").write_text(trace.page(EVENTS, 5), encoding="utf-8")
    opened = Browser(folder / "profile", (folder / "trace.html").as_uri())
    yield opened
    opened.close()


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
    browser.click(*place(browser, "blur </script><b>"))
    assert browser.read(TEXT).split("\n") == [
        "launch: blur </script><b>", "GPU, compute", "from 20.000 us, took 60.000 us",
    ]  # fmt: skip
    browser.click(*place(browser, "copyin"))
    assert browser.read(TEXT).split("\n")[-1] == "4096 bytes"
    x, y = place(browser, "free")
    browser.click(x + 40, y)
    assert browser.read(TEXT) == "Click one."


def test_the_wheel_zooms_around_the_mouse_and_a_double_click_shows_all(browser):
    x, y = map(round, place(browser, "tiny"))  # a mouse is at whole pixels
    time_there = f"timeAt({x} - canvas.getBoundingClientRect().left)"
    before, under = browser.read("x(81) - x(80)"), browser.read(time_there)
    for _ in range(8):
        browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-240)
    after = browser.read("x(81) - x(80)")
    assert after > 10 * before
    assert browser.read(time_there) == pytest.approx(under), "what is under the mouse stays there"
    browser.click(x, y)
    assert browser.read(TEXT).startswith("launch: tiny")
    left, _ = place(browser, "tiny")
    browser.mouse("mousePressed", x, y)
    browser.mouse("mouseMoved", x + 100, y)
    browser.mouse("mouseReleased", x + 100, y)
    assert place(browser, "tiny")[0] == pytest.approx(left + 100, abs=1), "a drag moves it"
    browser.mouse("mousePressed", x, y, clickCount=2)
    browser.mouse("mouseReleased", x, y, clickCount=2)
    assert browser.read("[from, to]") == [0, 100]


def test_the_slowest_are_listed_and_lead_to_their_events(browser):
    rows = browser.read("[...document.querySelectorAll('#slowest tr')].map(row => row.innerText)")
    assert rows[0].split("\t") == ["GPU", "launch", "blur </script><b>", "60.000 us"]
    assert not any("step" in row for row in rows)
    row = "document.querySelector('#slowest tr').getBoundingClientRect()"
    box = browser.read(f"[{row}.left + 20, {row}.top + 5]")
    browser.click(*box)
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
    browser.read("1")
    asked = [
        one["params"]["request"]["url"]
        for one in browser.events
        if one.get("method") == "Network.requestWillBeSent"
    ]
    assert [url.partition("://")[0] for url in asked] == ["file"]
    faults = [
        one
        for one in browser.events
        if one.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded")
        and one["params"].get("entry", {}).get("level")
        != "warning"  # of how this test reads pixels
    ]
    assert not faults


def test_arrows_leave_room_between_them_until_they_are_zoomed(browser, tmp_path):
    """A thousand waits were one red area, which hid the work."""
    events = []
    for turn in range(1000):
        start, (one, two) = 10 * turn, ("one", "two") if turn % 2 else ("two", "one")
        events.append(event("wait", f"GPU, {two}", start, start + 2, "GPU", one))
        events.append(event("launch", "step", start + 2, start + 10, "GPU", one))
    (tmp_path / "dense.html").write_text(trace.page(events, 0), encoding="utf-8")
    browser.show((tmp_path / "dense.html").as_uri())
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
    size = {"width": width, "height": 600, "deviceScaleFactor": 1, "mobile": False}
    browser.call("Emulation.setDeviceMetricsOverride", **size)
    browser.show((tmp_path / "wide.html").as_uri())
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
    browser.call("Emulation.clearDeviceMetricsOverride")
