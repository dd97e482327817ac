"""The HTTP front: OpenAI's completions from an engine, on Tornado, which JupyterLab stands on.

    POST /v1/completions     an answer, or with "stream" one event a piece            GET /v1/models     what is served

    one thread     read what has come | a pass of the engine | write what is new | read ...

Between two passes, calls come in and others go. So the engine needs no lock, and many calls share its passes, each with
answers of its own. Who hangs up is taken out of the engine, and his blocks are free; who reads slowly keeps nobody
waiting. What is malformed, too large or could never be served is refused, in OpenAI's form, before it costs a block.
"""

import asyncio
import json
import logging
import secrets
import time

from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler, stream_request_body

from ..rules import count, takes, within
from .completions import Refused, Text, answer, choice, parse, usage_of
from .engine import Engine
from .parallel import Replicas

LARGEST = 2**18  # bytes of a body that is looked at
DISCARDED = 2**26  # of one that is read all the same, so that it can be answered; beyond, the connection is closed
PATIENCE = 60  # seconds for a body to come
LOOPBACK = "127.0.0.1"


@takes(engine=Engine | Replicas, model=str, most=count)
class Front:
    """``engine`` as ``model``; ``most``: calls that are answered at a time, others are told to come again."""

    def __init__(self, engine, model="tinydist", most=256):
        self.engine, self.model, self.most = engine, model, most
        self.served = {}  # call -> what it has in the engine
        self.passes, self.passed, self.pumping = 0, asyncio.Event(), None
        routes = [("/v1/completions", Completions), ("/v1/models", Models)]
        self.application = Application(
            [(path, handler, dict(front=self)) for path, handler in routes],
            default_handler_class=Unknown,
            default_handler_args=dict(front=self),
            log_function=lambda handler: None,
        )

    @takes(port=within(0, 65535), host=str)
    def listen(self, port=8000, host=LOOPBACK):
        """Answer there, from the loop that runs. Returns the server, and its port: for 0 it is a free one."""
        sockets = bind_sockets(port, host)
        patience = dict(body_timeout=PATIENCE, idle_connection_timeout=PATIENCE)
        server = HTTPServer(self.application, max_body_size=DISCARDED, **patience)
        server.add_sockets(sockets)
        return server, sockets[0].getsockname()[1]

    def admit(self, handler, requests):
        """All of them, or none."""
        served = self.served[handler] = []
        for each in requests:
            try:
                served.append(self.engine.add(each))
            except ValueError as error:
                raise Refused(str(error)) from None
        if self.pumping is None or self.pumping.done():
            self.pumping = asyncio.create_task(self.pump())
        return served

    def leave(self, handler):
        """Whatever it has in the engine ends here."""
        for each in self.served.pop(handler, []):
            self.engine.cancel(each)

    async def pump(self):
        """Pass after pass, while there is somebody to serve."""
        while not self.engine.idle:
            await asyncio.sleep(0)  # what has come is read
            try:
                self.engine.step()
            except Exception:  # those who wait find themselves cancelled
                logging.getLogger("tinydist.serving").exception("a pass failed")
                for handler in [*self.served]:
                    self.leave(handler)
                return
            finally:
                self.wake()

    def wake(self):
        self.passes += 1
        self.passed.set()
        self.passed = asyncio.Event()

    async def news(self, since):
        """Wait until there were more passes than ``since``."""
        if self.passes == since:
            await self.passed.wait()


class Answering(RequestHandler):
    def initialize(self, front):
        self.front = front

    def refuse(self, refused):
        self.set_status(refused.status)
        self.finish(refused.form)

    def write_error(self, status, **_):
        """What Tornado refuses, and what nobody foresaw."""
        kind = "server_error" if status >= 500 else "invalid_request_error"
        where = f"{self.request.method} {self.request.path[:60]}"
        self.refuse(Refused(f"{where}: {self._reason}", status=status, kind=kind))


class Unknown(Answering):
    def prepare(self):
        there_are = "POST /v1/completions, GET /v1/models"
        self.refuse(Refused(f"there is no {self.request.path[:60]}, but {there_are}", status=404))


class Models(Answering):
    def get(self):
        made = {"id": self.front.model, "object": "model", "created": 0, "owned_by": "tinydist"}
        self.finish({"object": "list", "data": [made]})


@stream_request_body
class Completions(Answering):
    def prepare(self):
        self.body, self.size, self.gone = [], 0, False
        self.about = {"id": f"cmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": self.front.model}

    def data_received(self, chunk):
        self.size += len(chunk)
        if self.size <= LARGEST:
            self.body.append(chunk)

    async def post(self):
        try:
            call = self.read()
            served = self.front.admit(self, call.requests)
            await (self.stream if call.stream else self.whole)(call, served)
        except Refused as refused:
            self.say(refused)
        except StreamClosedError:  # nobody reads any more
            pass
        finally:
            self.front.leave(self)

    def read(self):
        if self.size > LARGEST:
            raise Refused(f"the body ({self.size:,} bytes) exceeds {LARGEST:,} bytes", status=413)
        if len(self.front.served) >= self.front.most:
            busy = dict(status=429, kind="rate_limit_error", code="rate_limit_exceeded")
            raise Refused(f"server busy (max {self.front.most} concurrent requests), retry later", **busy)
        return parse(b"".join(self.body), self.front.model)

    def say(self, refused):
        """In a stream that has begun, an event."""
        if self.gone:
            return
        if self._headers_written:
            self.event(refused.form)
            self.finish()
        else:
            self.refuse(refused)

    def on_connection_close(self):
        self.gone = True
        self.front.leave(self)
        self.front.wake()

    async def whole(self, call, served):
        samples = [each async for each in self.progress(call, served)][-1]
        choices = [choice(i, Text(each.request.stop).more(each.new, each.reason), each.reason) for i, each in samples]
        self.finish(answer(self.about, choices, usage_of(call, served)))

    async def stream(self, call, served):
        self.set_header("Content-Type", "text/event-stream")
        texts, ended = {}, set()
        async for samples in self.progress(call, served):
            for i, each in samples:
                if i in ended:
                    continue
                piece = texts.setdefault(i, Text(each.request.stop)).more(each.new, each.reason)
                if piece or each.reason:
                    self.event(answer(self.about, [choice(i, piece, each.reason)]))
                ended |= {i} if each.reason else set()
            await self.flush()
        if call.usage:
            self.event(answer(self.about, [], usage_of(call, served)))
        self.write("data: [DONE]\n\n")
        self.finish()

    async def progress(self, call, served):
        """The samples, (index, sequence) each, now and after every pass, until all have ended."""
        done = False
        while not done:
            passes, done = self.front.passes, all(each.done for each in served)
            samples = [
                (i * each.request.n + one.sample, one) for i, each in enumerate(served) for one in each.sequences
            ]
            if any(one.reason == "cancelled" for _, one in samples):
                raise Refused("the engine failed: its log says how", status=500, kind="server_error")
            yield samples
            if not done:
                await self.front.news(passes)

    def event(self, form):
        self.write(f"data: {json.dumps(form)}\n\n")
