"""A page of another origin, in a real browser: it can neither make the server write nor read what it says."""

import asyncio
import http.server
import json
import threading

import pytest
from browser import chromium
from serving.test_http_server import ask, on_loopback, send

pytestmark = pytest.mark.exhaustive

REBOUND = "--host-resolver-rules=MAP evil.example 127.0.0.1"  # what DNS rebinding comes to
BODY = json.dumps(ask())
TRIES = {
    "a simple request": "{method: 'POST', body}",
    "as text": "{method: 'POST', body, headers: {'Content-Type': 'text/plain'}}",
    "as JSON, with a preflight": "{method: 'POST', body, headers: {'Content-Type': 'application/json'}}",
    "without an answer": "{method: 'POST', body, mode: 'no-cors'}",
    "as a form": "{method: 'POST', body: new URLSearchParams({body}), mode: 'no-cors'}",
    "only to read": "{method: 'GET'}",
}


class Empty(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html></html>")

    def log_message(self, *words):
        pass


@pytest.fixture
def elsewhere():
    """The address of a page that another server has."""
    other = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Empty)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{other.server_port}"
    other.shutdown()


def fetched(page, url, options):
    """What a page's script gets of it: (status, text), or the name of the error."""
    program = f"""(async () => {{
        const body = {BODY!r};
        try {{
            const answer = await fetch({url!r}, {options});
            return [answer.status, await answer.text()];
        }} catch (error) {{ return error.name; }}
    }})()"""
    return page.run(program)


@pytest.mark.parametrize("how", TRIES)
def test_another_origin_can_neither_drive_nor_read(how, elsewhere, tmp_path):
    path = "/v1/models" if how == "only to read" else "/v1/completions"

    async def clients(port, server):
        added = []
        add = server.engine.add
        server.engine.add = lambda *given, **more: added.append(given) or add(*given, **more)

        def browse():
            with chromium(tmp_path) as page:
                page.open(elsewhere)
                return fetched(page, f"http://127.0.0.1:{port}{path}", TRIES[how])

        got = await asyncio.to_thread(browse)
        by_strangers = len(added)
        status, _ = await send(port, ask())  # whoever may ask is heard by the same ears
        return got, by_strangers, status, len(added)

    got, by_strangers, status, then = on_loopback(clients)
    assert got == "TypeError" or got == [0, ""]  # what a script is told of an answer that is not for it
    assert (by_strangers, status, then) == (0, 200, 1)


@pytest.mark.parametrize("how", ["as JSON, with a preflight", "only to read"])
def test_a_name_that_is_made_to_mean_this_machine_is_refused(how, tmp_path):
    path = "/v1/models" if how == "only to read" else "/v1/completions"

    async def clients(port, _):
        def browse():
            with chromium(tmp_path, REBOUND) as page:
                page.open(f"http://evil.example:{port}/")
                return fetched(page, f"http://evil.example:{port}{path}", TRIES[how])

        return await asyncio.to_thread(browse)

    status, text = on_loopback(clients)
    assert status == 403 and "Host 'evil.example" in text
