"""The report as a browser shows it: Chromium without a window, driven over its DevTools protocol."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from websockets.sync.client import ClientConnection, connect

from gif_core.reporting.page import SECTIONS

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
)
SECONDS = 90
WIDE, NARROW = 1200, 400
SECOND_LEVEL = "1"
"""A node of the code tree below the root."""
READABLE = 4.5
"""Contrast of text and ground that the WCAG asks for (level AA)."""
CONTRASTS = """(() => {
  const numbers = colour => [...(colour.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number), 1].slice(0, 4);
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3]));
  const ground = node => node ? over(numbers(getComputedStyle(node).backgroundColor), ground(node.parentElement))
                              : [255, 255, 255];
  const linear = value => value <= 0.04045 * 255 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const contrast = node => {
    const style = getComputedStyle(node), below = ground(node);
    const ink = over(numbers(node.tagName === 'text' ? style.fill : style.color), below);
    const [dark, bright] = [light(ink), light(below)].sort((a, b) => a - b);
    return [node.tagName, (bright + 0.05) / (dark + 0.05)];
  };
  const plots = '.xtick text, .ytick text, .y2tick text, .legendtext, .xtitle, .ytitle';
  const nodes = document.querySelectorAll(`td, th, small, figcaption, p, code, ${plots}`);
  return [...nodes].filter(node => node.textContent.trim()).map(contrast);
})()"""
"""What every text of tables, notes and plots is, and its contrast."""


class Tab:
    """A page in a browser, and everything it complains about or asks for."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket, self.numbers, self.session = socket, itertools.count(1), ""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self.numbers)
        session = {"sessionId": self.session} if self.session else {}
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters, **session}))
        while True:
            message = json.loads(self.socket.recv(timeout=SECONDS))
            if message.get("id") == number:
                assert "error" not in message, message
                return dict(message["result"])
            self.note(message)

    def note(self, message: dict[str, Any]) -> None:
        method, about = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(about["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(about["args"]))
        elif method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.complaints.append(str(about["entry"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])

    def run(self, script: str) -> Any:
        """The value of a script; a promise is waited for."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait_for(self, script: str) -> None:
        for _ in range(SECONDS * 10):
            if self.run(script):
                return
            time.sleep(0.1)
        raise AssertionError(f"never true: {script}")

    def open(self, page: Path, width: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=page.as_uri())
        self.wait_for("document.readyState === 'complete' && location.protocol === 'file:'")

    def click(self, script: str) -> None:
        """Press the mouse in the middle of the element that a script finds."""
        self.run(f"({script}).scrollIntoView({{block: 'center', behavior: 'instant'}})")
        box = f"JSON.stringify((({script})).getBoundingClientRect())"
        place = json.loads(self.run(box))
        at = {"x": place["x"] + place["width"] / 2, "y": place["y"] + place["height"] / 2}
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    def picture(self, path: Path) -> np.ndarray:
        """The whole page, from top to bottom; also written to a file."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))
        return cv2.imread(str(path))


@contextmanager
def start_browser(program: str, folder: Path) -> Iterator[ClientConnection]:
    command = [program, *OPTIONS, f"--user-data-dir={folder}", "--remote-debugging-port=0", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        where = folder / "DevToolsActivePort"
        for _ in range(SECONDS * 10):
            if (where.exists() and where.read_text().count("\n")) or process.poll() is not None:
                break
            time.sleep(0.1)
        assert process.poll() is None, f"{program} ended with {process.returncode}"
        port, path = where.read_text().split()
        with connect(f"ws://127.0.0.1:{port}{path}", max_size=None, open_timeout=SECONDS) as socket:
            yield socket
    finally:
        process.terminate()
        process.wait(timeout=SECONDS)


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("NOTICE: there is no Chromium here, so no report was opened in a browser; install chromium")
    with start_browser(program, tmp_path_factory.mktemp("chromium")) as socket:
        yield Tab(socket)


@pytest.fixture(scope="module")
def page(small_run: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    run = small_run(folder / "store", held_out=0.5)
    run.report(folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go: `$GIF_SCREENSHOTS` to keep them."""
    folder = Path(os.environ.get("GIF_SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(params=[WIDE, NARROW])
def opened(tab: Tab, page: Path, request: pytest.FixtureRequest) -> Tab:
    tab.complaints.clear()
    tab.requests.clear()
    tab.open(page, request.param)
    return tab


def visible(tab: Tab) -> dict[str, int]:
    """Height of every section."""
    script = "[...document.querySelectorAll('main > section')].map(s => [s.id, s.getBoundingClientRect().height])"
    return {name: round(height) for name, height in json.loads(tab.run(f"JSON.stringify({script})"))}


def test_a_page_that_complains_or_asks_the_network_is_noticed(tab: Tab, tmp_path: Path) -> None:
    tab.complaints.clear()
    (tmp_path / "bad.html").write_text("<img src='http://127.0.0.1:9/x.png'><script>null.length</script>")
    tab.open(tmp_path / "bad.html", WIDE)
    assert "http://127.0.0.1:9/x.png" in tab.requests
    assert any("TypeError" in complaint for complaint in tab.complaints)


def test_page_complains_about_nothing_and_asks_the_network_for_nothing(opened: Tab) -> None:
    opened.wait_for("document.querySelectorAll('#node-faces figure:not([hidden])').length > 0")
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith(("file:", "data:"))] == []


def test_every_section_is_drawn(opened: Tab) -> None:
    heights = visible(opened)
    assert set(heights) == {*SECTIONS, "beside"}
    assert min(heights.values()) > 40
    plots = opened.run("[...document.querySelectorAll('.plot')].map(p => p.querySelectorAll('.main-svg').length)")
    assert len(plots) > 10
    assert 0 not in plots, "a figure without a drawing"


def test_nothing_is_wider_than_the_screen(opened: Tab) -> None:
    assert opened.run("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0


def test_a_click_into_the_code_tree_shows_the_faces_of_that_node(opened: Tab) -> None:
    opened.wait_for("document.querySelectorAll('#node-faces figure:not([hidden])').length > 0")
    all_rows = opened.run("document.querySelectorAll('#node-faces figure:not([hidden])').length")
    box = f"[...document.querySelectorAll('#plot-tree .slice')].find(s => s.__data__.data.data.id === '{SECOND_LEVEL}')"
    opened.click(box)
    opened.wait_for(f"document.getElementById('node-name').textContent === 'node {SECOND_LEVEL}'")
    codes = opened.run("[...document.querySelectorAll('#node-faces figure:not([hidden])')].map(f => f.dataset.code)")
    assert 0 < len(codes) < all_rows
    assert all(code.startswith(f"{SECOND_LEVEL}.") for code in codes)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_text_stands_out_in_both_colour_schemes(tab: Tab, page: Path, pictures: Path, width: int, scheme: str) -> None:
    tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    tab.open(page, width)
    image = tab.picture(pictures / f"report-{width}-{scheme}.png")
    assert image.shape[1] == width
    ground = np.median(image[:200].mean(axis=2))
    assert ground > 230 if scheme == "light" else ground < 40
    colours = tab.run("(s => [s.color, s.backgroundColor])(getComputedStyle(document.body))")
    ink, paper = (np.mean([int(part) for part in text.strip("rgb()").split(",")]) for text in colours)
    assert abs(ink - paper) > 150
    contrasts = tab.run(CONTRASTS)
    assert {what for what, _ in contrasts} >= {"TD", "TH", "SMALL", "FIGCAPTION", "P", "text"}
    faint = [(what, ratio) for what, ratio in contrasts if ratio < READABLE]
    assert not faint, "text of tables, notes and plots"
    tab.call("Emulation.setEmulatedMedia", features=[])


def test_page_can_be_printed(tab: Tab, page: Path, pictures: Path) -> None:
    tab.open(page, WIDE)
    tab.complaints.clear()
    printed = base64.b64decode(tab.call("Page.printToPDF", printBackground=True)["data"])
    (pictures / "report.pdf").write_bytes(printed)
    assert printed.startswith(b"%PDF")
    assert tab.complaints == []
