"""Completions, in OpenAI's form: what a client sends becomes requests, and tokens become what it reads.

    {"model": "tinydist", "prompt": "Once", "max_tokens": 16, "n": 2, "temperature": 0.8, "stop": ["."], "stream": true}

A token is a byte of UTF-8. ``prompt`` is a text, a list of texts, a list of tokens, or a list of these; answers come in
this order, ``n`` for each. What is not known here is refused by its name, rather than ignored.

A text is given out as far as it is sure: not the first byte of two, nor what may turn out to be the beginning of a
``stop``, which is no part of the text.

Source: OpenAI's API reference, completions: names, defaults, and the forms of answers, of parts of a stream, of errors.
"""

import codecs
import json
import secrets
from dataclasses import dataclass

from ..rules import amount, each_of, flag, listed, many, must, named, shown, stated, takes, within
from .request import Request, above_0_to_1, tokens

MOST = 128  # answers to one call


def prompts(value):
    """a text, a list of texts, a list of tokens, or a list of these"""
    return isinstance(value, str) or tokens(value) or each_of(str)(value) or each_of(tokens)(value)


def heat(value):
    """0, or a number from 0.01 to 2"""
    return amount(value) and (value == 0 or 0.01 <= value <= 2)


def stops(value):
    """a text that is not empty, or a list of up to 4"""
    values = [value] if isinstance(value, str) else value
    return many(values) and len(values) <= 4 and all(isinstance(each, str) and each for each in values)


def only(neutral):
    """What has no effect may be said."""
    return stated(f"{neutral!r}, for nothing else is done here", lambda value: value == neutral)


FIELDS = {
    "model": str, "prompt": prompts, "max_tokens": listed, "temperature": heat, "top_p": above_0_to_1, "top_k": listed,
    "n": within(1, MOST), "seed": within(0, 2**63 - 1), "stop": stops, "stream": flag, "stream_options": named(flag),
    "user": str, "best_of": only(1), "echo": only(False), "frequency_penalty": only(0), "presence_penalty": only(0),
    "logit_bias": only({}), "logprobs": only(0), "suffix": only(""),
}  # fmt: skip


class Refused(Exception):
    """An answer that is an error. ``param``: the field that it is about."""

    def __init__(self, message, param=None, status=400, kind="invalid_request_error", code=None):
        super().__init__(message)
        self.status = status
        self.form = {"error": {"message": message, "type": kind, "param": param, "code": code}}


@dataclass(frozen=True)
class Call:
    """What a client asks for: requests, in the order of its prompts."""

    requests: list
    stream: bool
    usage: bool  # at the end of a stream

    @property
    def prompt_tokens(self):
        return sum(len(each.prompt) for each in self.requests)


@takes(body=bytes, model=str)
def parse(body, model):
    """The ``Call`` that ``body`` makes to ``model``. Raises ``Refused``, and nothing else."""
    fields = checked(load(body))
    if fields.get("model", model) != model:
        message = f"completions: there is no model {shown(fields['model'])}, but {model!r}"
        raise Refused(message, "model", 404, code="model_not_found")
    asked = prompts_in(fields)
    if len(asked) * fields.get("n", 1) > MOST:
        raise Refused(f"completions: {len(asked)} prompts x {fields['n']} are more than {MOST} answers", "n")
    stop = fields.get("stop", [])
    options = {name: fields[name] for name in ("top_p", "top_k", "n") if name in fields}
    options |= dict(max_new=fields.get("max_tokens", 16), temperature=fields.get("temperature", 1.0))
    options |= dict(seed=fields.get("seed", secrets.randbits(31)))
    options |= dict(stop=[encode(each, "stop") for each in ([stop] if isinstance(stop, str) else stop)])
    try:
        requests = [Request(prompt, **options) for prompt in asked]
    except (ValueError, TypeError) as error:
        raise Refused(str(error)) from None
    usage = fields.get("stream_options", {}).get("include_usage", False)
    return Call(requests, fields.get("stream", False), usage)


def load(body):
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(f"completions: the body is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise Refused(f"completions: the body must be a JSON object, got {shown(fields)}")
    return fields


def checked(fields):
    """Those that say something: null is as good as nothing."""
    for name, value in fields.items():
        if name not in FIELDS:
            raise Refused(f"completions: takes no {shown(name)}, but {', '.join(FIELDS)}", name[:60])
        try:
            value is None or must("completions", name, FIELDS[name], value)
        except (ValueError, TypeError) as error:
            raise Refused(str(error), name) from None
    return {name: value for name, value in fields.items() if value is not None}


def prompts_in(fields):
    """Lists of tokens."""
    if "prompt" not in fields:
        raise Refused("completions: there is no prompt", "prompt")
    given = fields["prompt"]
    texts = [given] if isinstance(given, str) or tokens(given) else given
    found = [encode(each, "prompt") if isinstance(each, str) else each for each in texts]
    if not all(found):
        raise Refused("completions: a prompt must have a token, got an empty text", "prompt")
    return found


def encode(text, param):
    try:
        return list(text.encode())
    except UnicodeEncodeError:
        raise Refused(f"completions: {param} must be text, but it has half of a surrogate pair", param) from None


class Text:
    """Of one sample, as far as it has been given out."""

    def __init__(self, stop):
        self.stop, self.held, self.given = stop, [], 0
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def more(self, new, reason):
        """The next piece, where ``new`` are all tokens so far; with a reason, the last."""
        self.held += new[self.given :]
        self.given = len(new)
        if reason == "stop":
            ended = max((each for each in self.stop if self.held[-len(each) :] == each), key=len, default=[])
            self.held = self.held[: len(self.held) - len(ended)]
        sure = len(self.held) if reason else len(self.held) - self.may_stop()
        piece, self.held = self.held[:sure], self.held[sure:]
        return self.decoder.decode(bytes(min(token, 255) for token in piece), final=bool(reason))

    def may_stop(self):
        """How many of the last tokens may be the beginning of a stop."""
        begins = (
            length
            for stop in self.stop
            for length in range(1, min(len(stop), len(self.held) + 1))
            if self.held[-length:] == stop[:length]
        )
        return max(begins, default=0)


def choice(index, text, reason):
    return {"text": text, "index": index, "logprobs": None, "finish_reason": reason}


def answer(about, choices, usage=None):
    """``about``: its id, when it was made, and by which model."""
    form = {**about, "object": "text_completion", "choices": choices}
    return form if usage is None else {**form, "usage": usage}


def usage_of(call, served):
    written = sum(len(each) for one in served for each in one.new)
    return {
        "prompt_tokens": call.prompt_tokens,
        "completion_tokens": written,
        "total_tokens": call.prompt_tokens + written,
    }
