"""A headless Chromium that tests talk to through two pipes, by its DevTools protocol: no driver, no port."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BROWSER = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), "")
_WAIT_S = 30.0


class Browser:
    """One page: opens an address and keeps what the console said, what was thrown, and what was asked for."""

    def __init__(self, send_fd: int, receive_fd: int) -> None:
        self._send_fd, self._receive_fd = send_fd, receive_fd
        self._buffer = b""
        self._number = 0
        self._page = ""
        self.messages: list[str] = []
        self.requests: list[str] = []
        self._loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._page = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401
        """One command of the protocol, and its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._page:
            message["sessionId"] = self._page
        os.write(self._send_fd, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._number:
            self._note(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return dict(answer["result"])

    def open(self, url: str) -> float:
        """Open an address and wait until it has loaded and is painted; returns the seconds this took."""
        self.messages, self.requests, self._loaded = [], [], False
        began = time.monotonic()
        self.call("Page.navigate", url=url)
        while not self._loaded:
            self._note(self._receive())
        painted = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"
        self.run(painted)
        return time.monotonic() - began

    def run(self, script: str) -> Any:  # noqa: ANN401
        """The value of a script in the page; a promise is awaited."""
        done = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def show_as(self, *, width: int = 1280, height: int = 900, dark: bool = False, medium: str = "") -> None:
        """The size of the window, the colour scheme that the user prefers, and screen or print."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=medium, features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def picture(self, path: Path) -> None:
        """The whole page as PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        path.write_bytes(base64.b64decode(shot["data"]))

    def paper(self, path: Path) -> None:
        """The page as PDF, as it would be printed on A4."""
        pdf = self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=False)
        path.write_bytes(base64.b64decode(pdf["data"]))

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._receive_fd], [], [], _WAIT_S)
            assert ready, f"the browser said nothing for {_WAIT_S:.0f} s"
            read = os.read(self._receive_fd, 1 << 20)
            assert read, "the browser ended"
            self._buffer += read
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.consoleAPICalled":
                self.messages.append(" ".join(str(arg.get("value")) for arg in params["args"]))
            case "Runtime.exceptionThrown":
                self.messages.append(params["exceptionDetails"]["text"])
            case "Log.entryAdded":
                self.messages.append(params["entry"]["text"])


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A browser with a profile of its own; it is gone when the block ends."""
    # the protocol's pipes are its descriptors 3 and 4
    take, send_fd = os.pipe()
    receive_fd, give = os.pipe()
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"]
    options += ["--disable-background-networking", "--disable-component-update", "--hide-scrollbars"]
    options += ["--remote-debugging-pipe", f"--user-data-dir={profile}"]
    command = ["bash", "-c", f'exec "$@" 3<&{take} 4>&{give}', "chromium", BROWSER, *options]
    process = subprocess.Popen(
        command, pass_fds=(take, give), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(take)
    os.close(give)
    try:
        yield Browser(send_fd, receive_fd)
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(send_fd)
        os.close(receive_fd)
