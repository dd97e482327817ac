"""Random requests to the server, sensible and not: each is answered, none by a server's error, and no block is lost."""

import asyncio
import json
import random

import pytest
from serving.test_http_server import ask, on_loopback, send

VALUES = [None, True, False, 0, 1, 2, -1, 3.5, 1e300, float("nan"), float("inf"), 10**20, "", "a", "\ud800", "x" * 300]
VALUES += [[], ["a", "b"], ["a"] * 129, [[1, 2]], [5, 256], [1.5], {}, {"include_usage": True}, {"a": 1}, [[]], [None]]
NAMES = [
    *("prompt", "max_tokens", "n", "seed", "temperature", "top_p", "stop", "stream", "stream_options", "model", "echo"),
    *("logprobs", "best_of", "suffix", "user", "presence_penalty", "frequency_penalty", "logit_bias", "no such"),
]
HEADS = ["", "", "", "", "Content-Type: text/plain\r\n", "Origin: null\r\n", "Host: x\r\n", "Content-Length: 3\r\n"]


def drawn(number):
    """(body, headers)"""
    draw = random.Random(number)
    body = ask(max_tokens=draw.randint(1, 6), seed=number)
    for name in draw.sample(NAMES, draw.randint(0, 3)):
        body[name] = draw.choice(VALUES)
    data = json.dumps(body).encode("utf-8", "replace")
    if draw.random() < 0.1:
        at = draw.randrange(len(data))
        data = data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :]
    return data, draw.choice(HEADS)


@pytest.mark.parametrize("numbers", [range(20), pytest.param(range(20, 600), marks=pytest.mark.exhaustive)], ids=str)
def test_each_is_answered(numbers):
    asked = [drawn(number) for number in numbers]

    async def clients(port, _):
        answers = []
        for begin in range(0, len(asked), 20):
            several = asked[begin : begin + 20]
            answers += await asyncio.gather(*[send(port, data, more=more) for data, more in several])
        return answers, await send(port, ask())

    answers, (then, _) = on_loopback(clients, patience=600)
    assert then == 200 and len({status for status, _ in answers}) >= 2
    for (data, more), (status, answer) in zip(asked, answers):
        assert 200 <= status < 500, (data, more, status)
        if status >= 400 and answer:
            assert json.loads(answer)["error"]["message"].isprintable(), (data, more, answer)
