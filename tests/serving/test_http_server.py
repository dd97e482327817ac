"""The HTTP server on loopback: many clients at once, rude ones among them; and no block is lost."""

import asyncio
import http.client
import json
import logging
import socket

import pytest
import torch

from tinydist.attention import Decoder, DecoderConfig
from tinydist.serving import ContinuousBatching, Request, command
from tinydist.serving.engine import LLMEngine
from tinydist.serving.http_server import DISCARDED, LARGEST, LOOPBACK, Server
from tinydist.serving.parallel import Replicas

torch.manual_seed(0)
MODEL = Decoder(DecoderConfig(layers=1, heads=2, kv_heads=1, dim=16)).double()


def engine(blocks=40):
    return LLMEngine(MODEL, ContinuousBatching(8, 32), blocks, 4)


def alone(**fields):
    """What an engine writes for it when nobody else asks: text by text."""
    made = Request(list(fields["prompt"].encode()), fields["max_tokens"], seed=fields["seed"], temperature=1.0)
    return bytes(engine().run([made])[0][0]).decode("utf-8", "replace")


def on_loopback(clients, patience=60, **options):
    """Run ``clients(port, server)`` beside a server; then nothing of theirs may be left in the engine."""

    async def program():
        server = Server(engine(), **options)
        http, port = server.listen(0)
        result = await clients(port, server)
        while server.running and not server.running.done():
            await asyncio.sleep(0)
        http.stop()
        await http.close_all_connections()
        assert server.engine.idle and len(server.engine.pool.free) == 40 and not server.states
        return result

    return asyncio.run(asyncio.wait_for(program(), patience))  # a guard: nothing waits so long


async def send(port, body, head="POST /v1/completions", more=""):
    """On a connection of its own. Returns the status, and the body."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    length = "" if "Content-Length" in more or "chunked" in more else f"Content-Length: {len(body)}\r\n"
    host = "" if "Host" in more else f"Host: {LOOPBACK}:{port}\r\n"
    kind = "" if "Content-Type" in more else "Content-Type: application/json\r\n"
    writer.write(f"{head} HTTP/1.1\r\n{host}{kind}Connection: close\r\n{length}{more}\r\n".encode() + body)
    answer = await reader.read()
    writer.close()
    if not answer:
        return 0, b""
    top, _, rest = answer.partition(b"\r\n\r\n")
    return int(top.split()[1]), rest


def ask(prompt="Hello", max_tokens=6, seed=1, **more):
    return dict(prompt=prompt, max_tokens=max_tokens, seed=seed, **more)


def test_a_real_client_gets_what_the_engine_writes():
    """Python's own, from another thread, with one connection for all."""

    def client(port):
        connection, answers = http.client.HTTPConnection(LOOPBACK, port, timeout=60), []
        calls = [("POST", "/v1/completions", json.dumps(ask(n=2))), ("GET", "/v1/models", None), ("GET", "/v2", None)]
        for method, path, body in calls:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answers.append((response.status, json.loads(response.read())))
        return answers

    (status, made), (_, models), (missing, error) = on_loopback(lambda port, _: asyncio.to_thread(client, port))
    assert (status, made["object"], made["model"]) == (200, "text_completion", "tinydist")
    assert [choice["index"] for choice in made["choices"]] == [0, 1] and made["choices"][0]["text"] == alone(**ask())
    assert all(choice["finish_reason"] == "length" and choice["logprobs"] is None for choice in made["choices"])
    assert made["usage"] == {"prompt_tokens": 5, "completion_tokens": 12, "total_tokens": 17}
    assert models["data"][0]["id"] == "tinydist"
    assert missing == 404 and error["error"]["message"].startswith(
        "/v2 does not exist; available: POST /v1/completions"
    )


def test_a_stream_says_the_same_in_pieces():
    async def clients(port, _):
        fields = dict(prompt=["Hello", "World"], max_tokens=9, seed=3, n=2)
        whole = json.loads((await send(port, fields))[1])
        more = dict(stream=True, stream_options={"include_usage": True})
        return whole, await send(port, {**fields, **more})

    whole, (status, stream) = on_loopback(clients)
    lines = [line for line in stream.decode().splitlines() if line.startswith("data: ")]
    *events, usage = [json.loads(line[6:]) for line in lines[:-1]]
    assert status == 200 and lines[-1] == "data: [DONE]" and len({each["id"] for each in events}) == 1
    texts, reasons = [""] * 4, [[] for _ in range(4)]
    for event in events:
        (choice,) = event["choices"]
        texts[choice["index"]] += choice["text"]
        reasons[choice["index"]].append(choice["finish_reason"])
    assert texts == [choice["text"] for choice in whole["choices"]]
    assert all(each[-1] == "length" and not any(each[:-1]) for each in reasons) and len(events) > 8
    assert usage["choices"] == [] and usage["usage"] == whole["usage"]


def test_it_ends_before_a_stop():
    written = alone(**ask(max_tokens=12))
    stop = next(letter for letter in written[3:] if letter.isascii())

    async def clients(port, _):
        body = ask(max_tokens=12, stop=stop)
        return await send(port, body), await send(port, {**body, "stream": True})

    (_, whole), (_, stream) = on_loopback(clients)
    (choice,) = json.loads(whole)["choices"]
    assert choice["text"] == written[: written.index(stop)] and choice["finish_reason"] == "stop"
    pieces = [json.loads(line[6:]) for line in stream.decode().splitlines() if line.startswith("data: {")]
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == choice["text"]


@pytest.mark.parametrize("number", [40, pytest.param(200, marks=pytest.mark.exhaustive)])
def test_many_at_once_get_each_its_own(number):
    """More than there are places and blocks for: they wait, and some are preempted."""
    bodies = [ask(f"client {i}", 2 + i % 5, seed=i % 50, stream=i % 3 == 0) for i in range(number)]

    async def clients(port, _):
        return await asyncio.gather(*[send(port, body) for body in bodies])

    answers = on_loopback(clients)
    assert [status for status, _ in answers] == [200] * number
    for body, (_, answer) in [*zip(bodies, answers)][1::6]:
        text = json.loads(answer)["choices"][0]["text"] if not body["stream"] else None
        assert text is None or text == alone(**body)
    assert all(b"data: [DONE]" in answer for body, (_, answer) in zip(bodies, answers) if body["stream"])


def test_who_is_too_many_is_told_to_come_again():
    async def clients(port, _):
        return await asyncio.gather(*[send(port, ask(max_tokens=40)) for _ in range(12)])

    answers = on_loopback(clients, max_concurrent_requests=3)
    refused = [json.loads(body)["error"] for status, body in answers if status == 429]
    assert 1 <= len(refused) == 12 - [status for status, _ in answers].count(200)
    assert (
        refused[0]["type"] == "rate_limit_error"
        and "server busy (max 3 concurrent requests), retry later" in refused[0]["message"]
    )


MALFORMED = {
    "no JSON": (b"{nonsense", "", 400),
    "nothing": (b"", "", 400),
    "a bomb": (b"[" * 100_000, "", 400),
    "never fits": (json.dumps(ask(max_tokens=10_000)).encode(), "", 400),
    "a token that is none": (json.dumps(ask(prompt=[5, 256])).encode(), "", 400),
    "too many samples": (json.dumps(ask(n=9)).encode(), "", 400),
    "the second never fits": (json.dumps(ask(prompt=["a", "b" * 500])).encode(), "", 400),
    "too large": (b" " * (LARGEST + 1), "", 413),
    "far too large": (b"", f"Content-Length: {DISCARDED + 1}\r\n", 400),
    "two lengths": (b"{}", "Content-Length: 2, 3\r\n", 400),
    "a length that is none": (b"{}", "Content-Length: -2\r\n", 400),
    "chunks that are none": (b"zz\r\n{}\r\n0\r\n\r\n", "Transfer-Encoding: chunked\r\n", 400),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_malformed_or_huge_is_an_error_and_the_next_is_served(name):
    body, more, expected = MALFORMED[name]

    async def clients(port, _):
        return await send(port, body, more=more), await send(port, ask())

    (status, answer), (then, _) = on_loopback(clients)
    assert status == expected and then == 200
    if answer:
        assert json.loads(answer)["error"]["type"] == "invalid_request_error"


def test_what_is_no_http_and_what_is_another_method():
    async def clients(port, _):
        return await send(port, b"", head="\x00\x16\x03"), await send(port, b"", head="PUT /v1/completions")

    (nonsense, _), (method, answer) = on_loopback(clients)
    assert nonsense in (0, 400) and method == 405
    assert json.loads(answer)["error"]["message"] == "PUT /v1/completions: Method Not Allowed"


async def hang_up(port, body, after):
    """A client that leaves when ``after`` bytes of the answer are there, or before all of its own are sent."""
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    length = len(data) if after is not None else len(data) + 1
    writer.write(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode() + data)
    await writer.drain()
    if after:
        await reader.readexactly(after)
    writer.transport.abort()


async def until(true):
    while not true():
        await asyncio.sleep(0)


def test_who_hangs_up_leaves_no_block():
    """In the middle of its body, before its answer, in the middle of a stream; others are served to their end."""

    async def clients(port, server):
        long = ask(max_tokens=100, n=2)
        whole = asyncio.create_task(send(port, ask()))
        await asyncio.gather(
            hang_up(port, long, None), hang_up(port, long, 0), hang_up(port, {**long, "stream": True}, 300)
        )
        status, answer = await whole
        await until(lambda: not server.states)
        return server.engine.idle, status, json.loads(answer)["choices"][0]["text"]

    assert on_loopback(clients) == (True, 200, alone(**ask()))


FOREIGN = {
    "Host: evil.example\r\n": (
        403,
        "Host 'evil.example' is not this machine: use its address, or serve with --allow-host",
    ),
    "Host: [::\r\n": (403, "Host '[::' is not this machine"),
    "Origin: https://evil.example\r\n": (
        403,
        "Origin 'https://evil.example' is another page than the server's '127.0.0.1:",
    ),
    "Origin: null\r\n": (403, "Origin 'null' is another page"),
    "Content-Type: text/plain\r\n": (415, "Content-Type must be application/json, got 'text/plain'"),
}


@pytest.mark.parametrize("more", FOREIGN)
def test_another_page_in_a_browser_cannot_use_it(more):
    status, words = FOREIGN[more]
    told, answer = on_loopback(lambda port, _: send(port, ask(), more=more))
    assert told == status and json.loads(answer)["error"]["message"].startswith(words)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "[::1]:8000", "10.0.0.7", socket.gethostname(), "gpu7"])
def test_this_machine_has_several_names(host):
    status, _ = on_loopback(lambda port, _: send(port, ask(), more=f"Host: {host}\r\n"), allow_hosts=["GPU7"])
    assert status == 200


def test_its_own_page_may_ask():
    async def clients(port, _):
        return await send(port, ask(), more=f"Origin: http://{LOOPBACK}:{port}\r\n")

    assert on_loopback(clients)[0] == 200


def test_more_prompts_than_choices_are_refused():
    status, answer = on_loopback(lambda port, _: send(port, ask(prompt=["a"] * 129)))
    assert status == 400 and b"129 prompts x n (1) exceed 128 choices" in answer


def test_a_slow_reader_keeps_nobody_waiting():
    async def clients(port, server):
        data = json.dumps(ask(max_tokens=100, stream=True)).encode()
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        head = f"Host: {LOOPBACK}\r\nContent-Type: application/json\r\n"
        writer.write(f"POST /v1/completions HTTP/1.1\r\n{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        await until(lambda: server.states)
        status, _ = await send(port, ask())  # while the other has read nothing
        text = b""
        while b"[DONE]" not in text:
            text += await reader.read(1000)
        writer.close()
        return status, text.count(b"data: {")

    status, events = on_loopback(clients)
    assert status == 200 and events > 50


def test_a_pass_that_fails_is_said_and_the_next_call_is_served(caplog):
    async def clients(port, server):
        step, failures = server.engine.step, iter([True])

        def fails_once():
            written = step()
            if next(failures, False):
                raise RuntimeError("out of memory")
            return written

        server.engine.step = fails_once
        failed = await asyncio.gather(send(port, ask()), send(port, ask(stream=True)))
        return failed, await send(port, ask())

    with caplog.at_level(logging.CRITICAL, "tinydist.serving"):
        failed, (then, _) = on_loopback(clients)
    assert [status for status, _ in failed].count(500) >= 1 and then == 200
    assert b'"type": "server_error"' in failed[0][1] and b"out of memory" not in failed[0][1]


def test_replicas_answer_as_one_engine_does():
    async def program():
        server = Server(Replicas([engine(), engine()]))
        http, port = server.listen(0)
        answers = await asyncio.gather(*[send(port, ask(seed=seed)) for seed in range(6)])
        http.stop()
        assert all(len(each.pool.free) == 40 for each in server.engine.engines)
        return [json.loads(body)["choices"][0]["text"] for _, body in answers]

    assert asyncio.run(program()) == [alone(**ask(seed=seed)) for seed in range(6)]


def test_it_listens_on_loopback_unless_told():
    async def program(**given):
        http, port = Server(engine()).listen(0, **given)
        addresses = [each.getsockname()[0] for each in http._sockets.values()]
        http.stop()
        return addresses, port

    addresses, port = asyncio.run(program())
    assert addresses == ["127.0.0.1"] and port > 0
    assert asyncio.run(program(host="0.0.0.0"))[0] == ["0.0.0.0"]
    assert command.options().parse_args([]).host == "127.0.0.1"


def test_the_command_serves_a_decoder_and_keeps_its_weights(tmp_path, monkeypatch, capsys):
    found = []

    async def one_call():
        port = int(capsys.readouterr().out.split(":")[-1].split("/")[0])
        found.append((await send(port, ask()))[1])
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "forever", one_call)
    words = f"--port 0 --model layers=1,dim=8,heads=2,kv_heads=1 --weights {tmp_path / 'w'} --replicas 2".split()
    for steps in ("1", "0"):  # the second reads what the first has written
        assert command.main([*words, "--steps", steps]) == 0
    assert json.loads(found[0])["choices"] == json.loads(found[1])["choices"]


@pytest.mark.parametrize(
    "words, said",
    [
        (["--model", "wings=2"], "serve: --model takes layers=2,dim=64,heads=4,kv_heads=2, got 'wings=2'"),
        (["--model", "dim=7"], "serve: GroupedQueryAttention: dim (7) must be divisible by heads"),
        (["--steps", "0", "--port", "70000"], "serve: --port must be an integer from 0 to 65535, got 70000"),
        (["--steps", "0", "--port", "0", "--host", "no such host"], "serve: "),
        (["--steps", "0", "--replicas", "0"], "serve: --replicas must be an integer >= 1, got 0"),
        (["--steps", "-1"], "serve: --steps must be an integer >= 0, got -1"),
        (["--steps", "0", "--num-blocks", "0"], "serve: BlockPool: num_blocks must be an integer"),
    ],
)
def test_what_cannot_begin_is_said_in_a_line(words, said, capsys):
    assert command.main(words) == 1
    out = capsys.readouterr().out
    assert out.startswith(said) and out.count("\n") == 1
