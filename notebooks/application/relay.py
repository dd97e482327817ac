"""What a client sends to a server, counted between the two: requests, their bytes, and what they say.

client --> relay --> server        with Relay(port) as relay: relay.url is what the client is told
"""

import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

STILL_HERE = {"choices": [{"index": 0, "text": "ok", "finish_reason": "stop"}], "object": "text_completion"}
USAGE = {"usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}}


class Relay:
    """``port``: the server's; None: it answers at once by itself. ``busy``: so many requests are refused with 429."""

    def __init__(self, port=None, busy=0):
        self.port, self.busy = port, busy
        self.heads, self.bodies, self.answers, self.statuses = [], [], [], []

    def __enter__(self):
        handler = type("Passing", (Passing,), {"relay": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    @property
    def sent(self):
        """Of all requests: how many, bytes of their heads and of their bodies, and bytes of the answers' bodies."""
        sizes = [sum(map(len, each)) for each in (self.heads, self.bodies, self.answers)]
        return dict(zip(("requests", "head", "body", "answer"), (len(self.bodies), *sizes)))


class Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.relay.heads.append(self.raw_requestline + bytes(self.headers))
        self.relay.bodies.append(body)
        status, answer = self.answer(body)
        self.relay.answers.append(answer)
        self.relay.statuses.append(status)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def answer(self, body):
        if len(self.relay.bodies) <= self.relay.busy:
            return 429, json.dumps({"error": {"message": "server busy", "type": "rate_limit_error"}}).encode()
        if self.relay.port is None:
            return 200, json.dumps(STILL_HERE | USAGE).encode()
        server = http.client.HTTPConnection("127.0.0.1", self.relay.port)
        server.request("POST", self.path, body, {"Content-Type": self.headers["Content-Type"]})
        response = server.getresponse()
        found = response.status, response.read()
        server.close()
        return found

    def log_message(self, *_):
        pass
