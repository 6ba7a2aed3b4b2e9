"""A headless Chromium for tests, spoken to over two pipes by its DevTools protocol."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
"""What the program may be called."""

PATIENCE = 60.0
"""Seconds after which an answer is given up."""


def program() -> str | None:
    """Path of a Chromium; None where there is none."""
    named = os.environ.get("OPTPLAN_CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """
    One page of one browser.

    ``events`` holds everything the page reported: console messages, exceptions, requests.
    """

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._number, self._rest = 0, b""
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask the browser for something and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next(PATIENCE)
            if found.get("id") == self._number:
                if "error" in found:
                    raise AssertionError(f"{method}: {found['error']}")
                answer: dict[str, Any] = found["result"]
                return answer
            self.events.append(found)

    def _next(self, seconds: float) -> dict[str, Any]:
        """Read one message."""
        until = time.monotonic() + seconds
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._reading], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser says nothing")
            piece = os.read(self._reading, 1 << 20)
            if not piece:
                raise AssertionError("the browser is gone")
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def open(self, path: Path, width: int, scheme: str, height: int = 900) -> None:
        """Open a file at a width, in a light or dark scheme, and forget what was said before."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        feature = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=feature)
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self._next(PATIENCE))

    def run(self, script: str) -> Any:
        """Run a script in the page and return its value, which must be plain data."""
        told = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in told:
            raise AssertionError(told["exceptionDetails"])
        return told["result"].get("value")

    def move(self, x: float, y: float) -> None:
        """Put the pointer somewhere in the window."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def key(self, name: str) -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name)

    def picture(self, path: Path, whole: bool = True) -> None:
        """Save the page, or its window, as a PNG."""
        told = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(told["data"]))

    def complaints(self) -> list[str]:
        """What the page complained of: exceptions, errors and warnings of console and log."""
        said = []
        for event in self.events:
            method, told = event.get("method"), event.get("params", {})
            loud = method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning")
            if loud or method in ("Runtime.exceptionThrown", "Page.javascriptDialogOpening"):
                said.append(json.dumps(told))
            elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
                said.append(told["entry"]["text"])
        return said

    def requests(self) -> list[str]:
        """Every address that the page asked for, data in the address itself left out."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
            and not event["params"]["request"]["url"].startswith("data:")
        ]


def _high(ends: tuple[int, int]) -> tuple[int, int]:
    """Move both ends of a pipe out of the way of 3 and 4, by which the browser is spoken to."""
    moved = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a Chromium with a profile of its own, and end it afterwards."""
    found = program()
    assert found is not None
    to_it, ours_out = _high(os.pipe())
    ours_in, from_it = _high(os.pipe())
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            found,
            "--headless=new",
            "--remote-debugging-pipe",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
        ]

        def places() -> None:
            os.dup2(to_it, 3, inheritable=True)
            os.dup2(from_it, 4, inheritable=True)

        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=places,
            close_fds=False,
        ) as process:
            os.close(to_it)
            os.close(from_it)
            try:
                yield Browser(ours_in, ours_out)
            finally:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                os.close(ours_in)
                os.close(ours_out)
