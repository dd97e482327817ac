"""HTTP server: OpenAI-compatible completions from an engine, with Tornado (which JupyterLab depends on).

    POST /v1/completions     a response, or with "stream" one event a piece         GET /v1/models     what is served

    one thread     read requests | a pass of the engine | write new tokens | read ...

Requests are admitted and finished between two forward passes, so the engine needs no lock, and concurrent requests
share its passes. When a client disconnects, its request is cancelled and its blocks are freed; a slow reader does not
block others. Malformed, oversized or unservable requests are rejected with an OpenAI error before a block is allocated.
First come, first served: a request waits until one of the ``max_num_seqs`` sequences before it has finished.

A page in a browser of this machine can reach the server, too. It cannot use it: a body has to be JSON, which a page may
not send elsewhere unasked; what another page sends (``Origin``) is refused; and so is a name that is not this machine's
(``Host``), to which a page may have bound this address (DNS rebinding).
"""

import asyncio
import ipaddress
import json
import logging
import secrets
import socket
import time
from urllib.parse import urlsplit

from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler, stream_request_body

from ..rules import count, each_of, validate, within
from .completions import APIError, Detokenizer, answer, choice, parse, usage_of
from .engine import LLMEngine
from .parallel import Replicas

LARGEST = 2**18  # bytes of a body that is parsed
DISCARDED = 2**26  # of one that is read all the same, so that it gets a response; beyond, the connection is closed
TIMEOUT = 60  # seconds for a body to arrive
LOOPBACK = "127.0.0.1"


@validate(engine=LLMEngine | Replicas, model=str, max_concurrent_requests=count, allow_hosts=each_of(str, 0))
class Server:
    """``engine`` as ``model``; beyond ``max_concurrent_requests`` a client gets status 429.

    ``allow_hosts``: names under which clients may call, beside addresses, localhost, and this machine's name.
    """

    def __init__(self, engine, model="tinydist", max_concurrent_requests=256, allow_hosts=()):
        self.engine, self.model, self.max_concurrent_requests = engine, model, max_concurrent_requests
        self.hosts = {"localhost", socket.gethostname().lower(), *map(str.lower, allow_hosts)}
        self.states = {}  # handler -> states of its requests
        self.passes, self.passed, self.running = 0, asyncio.Event(), None
        routes = [("/v1/completions", Completions), ("/v1/models", Models)]
        self.application = Application(
            [(path, handler, dict(server=self)) for path, handler in routes],
            default_handler_class=Unknown,
            default_handler_args=dict(server=self),
            log_function=lambda handler: None,
        )

    @validate(port=within(0, 65535), host=str)
    def listen(self, port=8000, host=LOOPBACK):
        """Listen on this address, in the running event loop. Returns the server and its port (0: any free port)."""
        sockets = bind_sockets(port, host)
        timeouts = dict(body_timeout=TIMEOUT, idle_connection_timeout=TIMEOUT)
        http = HTTPServer(self.application, max_body_size=DISCARDED, **timeouts)
        http.add_sockets(sockets)
        return http, sockets[0].getsockname()[1]

    def add(self, handler, requests):
        """All of them, or none."""
        states = self.states[handler] = []
        for each in requests:
            try:
                states.append(self.engine.add(each))
            except ValueError as error:
                raise APIError(str(error)) from None
        if self.running is None or self.running.done():
            self.running = asyncio.create_task(self.run())
        return states

    def cancel(self, handler):
        for each in self.states.pop(handler, []):
            self.engine.cancel(each)

    async def run(self):
        """Run forward passes until the engine is idle."""
        while not self.engine.idle:
            await asyncio.sleep(0)  # read what has come
            try:
                self.engine.step()
            except Exception:  # requests find themselves cancelled
                logging.getLogger("tinydist.serving").exception("a pass failed")
                for handler in [*self.states]:
                    self.cancel(handler)
                return
            finally:
                self.wake()

    def wake(self):
        self.passes += 1
        self.passed.set()
        self.passed = asyncio.Event()

    async def next_pass(self, since):
        """Wait until there were more passes than ``since``."""
        if self.passes == since:
            await self.passed.wait()


class Handler(RequestHandler):
    def initialize(self, server):
        self.server = server

    def prepare(self):
        host, origin = self.request.headers.get("Host", ""), self.request.headers.get("Origin")
        if not known(host, self.server.hosts):
            refused = f"Host {host[:60]!r} is not this machine: use its address, or serve with --allow-host"
            self.reject(APIError(refused, status=403, kind="permission_error"))
        elif origin is not None and urlsplit(origin).netloc != host:
            refused = f"Origin {origin[:60]!r} is another page than the server's {host!r}"
            self.reject(APIError(refused, status=403, kind="permission_error"))

    def reject(self, error):
        self.set_status(error.status)
        self.finish(error.form)

    def write_error(self, status, **_):
        """What Tornado rejects, and unexpected exceptions."""
        kind = "server_error" if status >= 500 else "invalid_request_error"
        where = f"{self.request.method} {self.request.path[:60]}"
        self.reject(APIError(f"{where}: {self._reason}", status=status, kind=kind))


def known(host, names):
    """An address, or one of the names; a port may follow."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name in names or bool(ipaddress.ip_address(name))
    except ValueError:
        return False


class Unknown(Handler):
    def prepare(self):
        super().prepare()
        if self._finished:
            return
        there_are = "POST /v1/completions, GET /v1/models"
        self.reject(APIError(f"{self.request.path[:60]} does not exist; available: {there_are}", status=404))


class Models(Handler):
    def get(self):
        made = {"id": self.server.model, "object": "model", "created": 0, "owned_by": "tinydist"}
        self.finish({"object": "list", "data": [made]})


@stream_request_body
class Completions(Handler):
    def prepare(self):
        super().prepare()
        self.body, self.size, self.gone = [], 0, False
        self.about = {"id": f"cmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": self.server.model}

    def data_received(self, chunk):
        self.size += len(chunk)
        if self.size <= LARGEST:
            self.body.append(chunk)

    async def post(self):
        try:
            asked = self.read()
            states = self.server.add(self, asked.requests)
            await (self.stream(states, asked.usage) if asked.stream else self.complete(states))
        except APIError as error:
            self.fail(error)
        except StreamClosedError:  # the client has disconnected
            pass
        finally:
            self.server.cancel(self)

    def read(self):
        if self.size > LARGEST:
            raise APIError(f"the body ({self.size:,} bytes) exceeds {LARGEST:,} bytes", status=413)
        kind = self.request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise APIError(f"Content-Type must be application/json, got {kind[:60]!r}", status=415)
        most = self.server.max_concurrent_requests
        if len(self.server.states) >= most:
            busy = dict(status=429, kind="rate_limit_error", code="rate_limit_exceeded")
            raise APIError(f"server busy (max {most} concurrent requests), retry later", **busy)
        return parse(b"".join(self.body), self.server.model)

    def fail(self, error):
        """In a stream that has begun, an event."""
        if self.gone:
            return
        if self._headers_written:
            self.event(error.form)
            self.finish()
        else:
            self.reject(error)

    def on_connection_close(self):
        self.gone = True
        self.server.cancel(self)
        self.server.wake()

    async def complete(self, states):
        sequences = [each async for each in self.progress(states)][-1]
        choices = [choice(i, Detokenizer(each).next_text(), each.finish_reason) for i, each in sequences]
        self.finish(answer(self.about, choices, usage_of(states)))

    async def stream(self, states, usage):
        self.set_header("Content-Type", "text/event-stream")
        texts, finished = {}, set()
        async for sequences in self.progress(states):
            for i, each in sequences:
                if i in finished:
                    continue
                piece = texts.setdefault(i, Detokenizer(each)).next_text()
                if piece or each.finish_reason:
                    self.event(answer(self.about, [choice(i, piece, each.finish_reason)]))
                if each.finish_reason:
                    finished.add(i)
            await self.flush()
        if usage:
            self.event(answer(self.about, [], usage_of(states)))
        self.write("data: [DONE]\n\n")
        self.finish()

    async def progress(self, states):
        """(index, sequence) of all samples, now and after every pass, until all have finished."""
        finished = False
        while not finished:
            passes, finished = self.server.passes, all(each.finished for each in states)
            sequences = [
                (i * each.request.n + one.sample, one) for i, each in enumerate(states) for one in each.sequences
            ]
            if any(one.finish_reason == "cancelled" for _, one in sequences):
                raise APIError("the engine failed, see its log", status=500, kind="server_error")
            yield sequences
            if not finished:
                await self.server.next_pass(passes)

    def event(self, form):
        self.write(f"data: {json.dumps(form)}\n\n")
