"""A headless Chromium, driven through its debugging pipe: no port, no WebSocket, only the standard library."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

Json = dict[str, Any]
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--ignore-certificate-errors",
    "--remote-debugging-pipe",
)
ANSWER_SECONDS = 60.0


class BrowserError(Exception):
    """The browser can't be started, or doesn't answer; the message is one line."""


def find_chromium() -> str:
    """Return the path of Chromium or Chrome.

    Raises:
        BrowserError: none is installed; the message names the package.
    """
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    raise BrowserError("no chromium on PATH: apt-get install chromium")


class Browser:
    """One browser with a new profile and an empty cache; use it in a ``with``."""

    def __init__(self, program: str) -> None:
        self._profile = tempfile.mkdtemp(prefix="pyrometer-browser-")
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        os.set_blocking(self._in, False)
        self._number = 0
        self._rest = b""
        self.events: list[Json] = []
        command = [program, *_FLAGS, f"--user-data-dir={self._profile}", "about:blank"]
        # The browser reads commands from descriptor 3 and writes answers to 4.
        shell = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)

    def __enter__(self) -> Browser:  # noqa: PYI034  typing.Self is of Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for descriptor in (self._in, self._out):
            os.close(descriptor)
        shutil.rmtree(self._profile, ignore_errors=True)

    def page(self, width: int, height: int) -> Page:
        """Return a new page of a size in pixels.

        Raises:
            BrowserError: the browser does not answer.
        """
        target = self.ask("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.ask("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.ask(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        page.ask("Emulation.setDeviceMetricsOverride", size)
        return page

    def ask(self, method: str, parameters: Json | None = None, session: str = "") -> Json:
        """Send a command and return its result; events that arrive meanwhile are kept.

        Raises:
            BrowserError: the command failed, or was not answered in time.
        """
        self._number += 1
        message: Json = {"id": self._number, "method": method, "params": parameters or {}}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < deadline:
            for answer in self._received(0.2):
                if answer.get("id") == self._number:
                    if "error" in answer:
                        raise BrowserError(f"{method}: {answer['error'].get('message')}")
                    result: Json = answer["result"]
                    return result
                self.events.append(answer)
        raise BrowserError(f"the browser did not answer {method} within {ANSWER_SECONDS:.0f} s")

    def listen(self, seconds: float) -> None:
        """Collect events for so many seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.events.extend(self._received(0.05))

    def _received(self, seconds: float) -> Iterator[Json]:
        poll = select.poll()  # select takes no descriptor above 1,023
        poll.register(self._in, select.POLLIN)
        if not poll.poll(1000 * seconds):
            return
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._in, 1 << 20):
                self._rest += chunk
        *messages, self._rest = self._rest.split(b"\0")
        for message in messages:
            yield json.loads(message)


class Page:
    """One page of a browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def ask(self, method: str, parameters: Json | None = None) -> Json:
        """Send a command to this page and return its result.

        Raises:
            BrowserError: the command failed, or was not answered in time.
        """
        return self._browser.ask(method, parameters, self._session)

    def open(self, url: str) -> None:
        """Start loading a page.

        Raises:
            BrowserError: the browser does not answer.
        """
        self._browser.events.clear()
        self.ask("Page.navigate", {"url": url})

    def evaluate(self, script: str) -> object:
        """Return the JSON value of a JavaScript expression in the page; a promise is awaited.

        Raises:
            BrowserError: the script failed.
        """
        asked = {"expression": script, "returnByValue": True, "awaitPromise": True}
        answer = self.ask("Runtime.evaluate", asked)
        if "exceptionDetails" in answer:
            raise BrowserError(f"script failed: {answer['exceptionDetails'].get('text')}")
        value: object = answer["result"].get("value")
        return value

    def wait(self, seconds: float) -> None:
        """Let the page work for so many seconds."""
        self._browser.listen(seconds)

    def problems(self) -> list[str]:
        """Return the errors on the console since the page was opened."""
        found = []
        for event in self._browser.events:
            parameters = event.get("params", {})
            method = event.get("method")
            if method == "Runtime.exceptionThrown":
                found.append(str(parameters["exceptionDetails"].get("text")))
            elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
                found.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")
            elif method == "Runtime.consoleAPICalled" and parameters["type"] == "error":
                found.append(
                    " ".join(str(value.get("value", value.get("description"))) for value in parameters["args"])
                )
        return found

    def answers(self) -> list[Json]:
        """Return the HTTP responses since the page was opened: url, status."""
        events = [event for event in self._browser.events if event.get("method") == "Network.responseReceived"]
        return [event["params"]["response"] for event in events]

    def picture(self, path: Path) -> None:
        """Write a screenshot of the page.

        Raises:
            BrowserError: the browser does not answer.
            OSError: the file can't be written.
        """
        data = self.ask("Page.captureScreenshot", {"format": "png"})["data"]
        path.write_bytes(base64.b64decode(data))
