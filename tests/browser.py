"""A page of a headless Chromium, asked through its DevTools protocol."""

import json
import os
import re
import shutil
import signal
import subprocess
from contextlib import contextmanager
from urllib.request import urlopen

import pytest
from websocket import create_connection


class Page:
    """``events``: what it said besides answers, since ``open`` was called last."""

    def __init__(self, address):
        self.socket = create_connection(address, timeout=60, suppress_origin=True)
        self.events = []

    def ask(self, method, **params):
        self.socket.send(json.dumps({"id": 1, "method": method, "params": params}))
        answer = self.next(lambda message: "id" in message)
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def next(self, wanted):
        """The next message of that kind; others are events, and kept."""
        for message in map(json.loads, iter(self.socket.recv, "")):
            if "method" in message:
                self.events.append(message)
            if wanted(message):
                return message

    def open(self, url):
        self.events.clear()
        self.ask("Page.enable")
        self.ask("Page.navigate", url=url)
        self.next(lambda message: message.get("method") == "Page.loadEventFired")

    def run(self, program):
        """What a JavaScript expression comes to, a promise's value included."""
        result = self.ask("Runtime.evaluate", expression=program, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")


@contextmanager
def chromium(folder, *more):
    """A page of a browser that keeps what it keeps in ``folder``; ``more``: options of its command line."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("there is no Chromium")
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--window-size=1100,900",
        "--remote-debugging-port=0",
    ]
    command = [program, *options, *more, f"--user-data-dir={folder}", "about:blank"]
    browser = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        port = next(found[1] for line in browser.stderr if (found := re.search(r"ws://127\.0\.0\.1:(\d+)", line)))
        with urlopen(f"http://127.0.0.1:{port}/json") as answer:
            (first,) = [each for each in json.load(answer) if each["type"] == "page"]
        yield Page(first["webSocketDebuggerUrl"])
    finally:
        os.killpg(browser.pid, signal.SIGKILL)
        browser.wait()
