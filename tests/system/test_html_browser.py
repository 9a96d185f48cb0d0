"""The HTML report in a real browser: it draws all plots, loads nothing, and can be used by everybody."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest
from chromium import BROWSER, Browser, chromium
from loopback_server import serving

pytestmark = [pytest.mark.system, pytest.mark.beside]

GOLDEN = Path(__file__).parents[1] / "golden"
# axe-core 4.14.1 by Deque Systems, MPL-2.0, as published; used by tests only
AXE = (Path(__file__).parents[1] / "support" / "data" / "axe.min.js").read_text()
AXE_RUN = """axe.run(document, {resultTypes: ["violations"]}).then(found => found.violations.map(
    v => `${v.impact}: ${v.id}: ${v.nodes.length} times, first ${v.nodes[0].target}`))"""
SIZES = {"desktop": {}, "phone": {"width": 390, "height": 844}, "paper": {"width": 794, "medium": "print"}}

if not BROWSER:
    pytest.skip("needs Chromium: apt-get install chromium", allow_module_level=True)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """A web server on ``folder``, so that a page could ask for more if it were to."""
    with serving(partial(Silent, directory=str(folder))) as port:
        yield f"http://127.0.0.1:{port}"


class Silent(SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module", params=["report.html", "trend.html"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    with served(GOLDEN) as server:
        yield f"{server}/{request.param}"


def test_the_page_opens_within_two_seconds_asks_for_nothing_and_says_nothing(
    browser: Browser, address: str
) -> None:
    browser.show_as()
    assert browser.open(address) < 2.0
    assert browser.requests == [address]
    assert browser.messages == []


def test_every_plot_is_drawn_with_lines_or_marks_that_have_a_size(browser: Browser, address: str) -> None:
    browser.show_as()
    browser.open(address)
    sizes = browser.run("""[...document.querySelectorAll("svg")].map(svg => {
        const drawn = [...svg.querySelectorAll(".curve, .thin, .mark, .interval, .dot")];
        const seen = drawn.map(shape => shape.getBoundingClientRect()).filter(box => box.width + box.height);
        return [svg.getAttribute("aria-label"), svg.getBoundingClientRect().height, seen.length];
    })""")
    assert sizes
    assert [name for name, height, shapes in sizes if height < 50 or not shapes] == []


@pytest.mark.parametrize("size", SIZES)
def test_nothing_is_wider_than_the_page(browser: Browser, address: str, size: str) -> None:
    browser.show_as(**SIZES[size])
    browser.open(address)
    width = SIZES[size].get("width", 1280)
    assert browser.run("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_the_first_screen_has_verdict_cause_cost_and_next_step(
    browser: Browser, address: str, size: str
) -> None:
    browser.show_as(**SIZES[size])
    browser.open(address)
    ends = browser.run("""[".verdict", ".answers"].map(name => document.querySelector(name))
        .filter(part => part).map(part => part.getBoundingClientRect().bottom)""")
    assert len(ends) == (
        2 if address.endswith("report.html") else 1
    )  # sessions side by side only say what changed
    assert max(ends) < SIZES[size].get("height", 720)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_axe_has_no_finding(browser: Browser, address: str, size: str, dark: bool) -> None:
    browser.show_as(**SIZES[size], dark=dark)
    browser.open(address)
    background = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") is not dark
    browser.run(f"{AXE}; 1")
    assert browser.run(AXE_RUN) == []


def test_the_keyboard_reaches_the_results_first_and_every_table_that_scrolls(
    browser: Browser, address: str
) -> None:
    browser.show_as(**SIZES["phone"])
    browser.open(address)
    regions = browser.run('document.querySelectorAll(".scroll").length')
    links = browser.run('document.querySelectorAll("a").length')
    reached = []
    for _ in range(regions + links):
        for kind in ("keyDown", "keyUp"):
            browser.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        reached.append(browser.run("document.activeElement.className"))
    assert reached[0] == "skip"
    assert reached.count("scroll") == regions


def test_these_tests_would_see_a_request_a_message_and_a_fault(browser: Browser, tmp_path: Path) -> None:
    page = (GOLDEN / "report.html").read_text()
    (tmp_path / "picture.html").write_text(page.replace("<main", '<img src="picture.png"><main'))
    (tmp_path / "allowed.html").write_text(
        page.replace("<main", '<img src="picture.png"><main').replace("http-equiv", "data-was")
    )
    with served(tmp_path) as server:
        browser.open(f"{server}/picture.html")
        assert any("Content Security Policy" in message for message in browser.messages)
        browser.run(f"{AXE}; 1")
        assert any(violation.startswith("critical: image-alt") for violation in browser.run(AXE_RUN))
        browser.open(f"{server}/allowed.html")
        assert f"{server}/picture.png" in browser.requests
