"""The HTML report in a headless Chromium: no message in the console, and no request but for itself."""

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

REPORT = Path(__file__).parents[1] / "golden" / "report.html"
BROWSER = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), "")
if not BROWSER:
    pytest.skip("needs Chromium: apt-get install chromium", allow_module_level=True)


class Recorder(SimpleHTTPRequestHandler):
    """Serves one folder and keeps the paths that were asked for."""

    asked: list[str]

    def __init__(self, *args: object, asked: list[str], **options: object) -> None:
        self.asked = asked
        super().__init__(*args, **options)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """A web server on ``folder``: its address, and a list that grows with each request."""
    asked: list[str] = []
    handler = partial(Recorder, asked=asked, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def browse(url: str, profile: Path) -> tuple[str, list[str]]:
    """The document as the browser holds it, and what stands in its console."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--no-first-run"]
    options += ["--disable-background-networking", f"--user-data-dir={profile}", "--dump-dom", url]
    done = subprocess.run([BROWSER, *options], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def test_the_report_says_nothing_to_the_console_and_asks_for_nothing(tmp_path: Path) -> None:
    shutil.copy(REPORT, tmp_path / "report.html")
    with served(tmp_path) as (address, asked):
        document, console = browse(f"{address}/report.html", tmp_path / "profile")
    assert console == []
    assert asked == ["/report.html"]
    assert document.count("<svg") == REPORT.read_text().count("<svg") > 5


def test_this_test_would_see_a_request_and_a_message(tmp_path: Path) -> None:
    page = REPORT.read_text().replace("<main", '<img src="picture.png" alt=""><main')
    (tmp_path / "forbidden.html").write_text(page)
    (tmp_path / "allowed.html").write_text(page.replace("http-equiv", "data-was"))
    with served(tmp_path) as (address, asked):
        _, console = browse(f"{address}/forbidden.html", tmp_path / "profile")
        assert asked == ["/forbidden.html"]
        assert any("Content Security Policy" in line for line in console)
        browse(f"{address}/allowed.html", tmp_path / "profile")
        assert "/picture.png" in asked
