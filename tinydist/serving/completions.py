"""OpenAI's completions API: parses a request body into engine requests, and formats tokens as a response.

    {"model": "tinydist", "prompt": "Once", "max_tokens": 16, "n": 2, "temperature": 0.8, "stop": ["."], "stream": true}

Tokens are UTF-8 bytes. ``prompt`` is a string, a list of strings, a list of tokens, or a list of these; choices come in
this order, ``n`` for each. Unknown fields are rejected, not ignored.

Text is streamed only once it is final: no incomplete UTF-8 characters, and nothing that may be the beginning of a
``stop`` sequence, which is not part of the text.

Source: OpenAI's API reference, completions: names, defaults, and the forms of responses, stream events and errors.
"""

import codecs
import json
import secrets
from dataclasses import dataclass

from ..rules import amount, each_of, flag, listed, many, must, named, shown, stated, validate, within
from .request import Request, above_0_to_1, tokens

MAX_CHOICES = 128  # of one call


def prompts(value):
    """a string, a list of strings, a list of tokens, or a list of these"""
    return isinstance(value, str) or tokens(value) or each_of(str)(value) or each_of(tokens)(value)


def temperatures(value):
    """0, or a number from 0.01 to 2"""
    return amount(value) and (value == 0 or 0.01 <= value <= 2)


def stops(value):
    """a non-empty string, or a list of up to 4"""
    values = [value] if isinstance(value, str) else value
    return many(values) and len(values) <= 4 and all(isinstance(each, str) and each for each in values)


def stream_options(value):
    """a dict with include_usage, true or false"""
    return named(flag)(value) and value.keys() <= {"include_usage"}


def only(neutral):
    return stated(f"{neutral!r} (nothing else is supported)", lambda value: value == neutral)


FIELDS = {
    "model": str, "prompt": prompts, "max_tokens": listed, "n": within(1, MAX_CHOICES),
    "temperature": temperatures, "top_p": above_0_to_1, "top_k": listed, "seed": within(0, 2**63 - 1),
    "stop": stops, "stream": flag, "stream_options": stream_options,
    "user": str, "best_of": only(1), "echo": only(False), "frequency_penalty": only(0), "presence_penalty": only(0),
    "logit_bias": only({}), "logprobs": only(0), "suffix": only(""),
}  # fmt: skip


class APIError(Exception):
    """An API error response. ``param``: the invalid parameter."""

    def __init__(self, message, param=None, status=400, kind="invalid_request_error", code=None):
        super().__init__(message)
        self.status = status
        self.form = {"error": {"message": message, "type": kind, "param": param, "code": code}}


@dataclass(frozen=True)
class CompletionRequest:
    """Requests, in the order of the prompts; ``usage``: whether a stream ends with it."""

    requests: list
    stream: bool
    usage: bool


@validate(body=bytes, model=str)
def parse(body, model):
    """The ``CompletionRequest`` in ``body``. Raises ``APIError``, and nothing else."""
    fields = checked(load(body))
    if fields.get("model", model) != model:
        message = f"completions: model {shown(fields['model'])} does not exist, only {model!r}"
        raise APIError(message, "model", 404, code="model_not_found")
    asked = prompts_in(fields)
    samples = fields.get("n", 1)
    if len(asked) * samples > MAX_CHOICES:
        raise APIError(f"completions: {len(asked)} prompts x n ({samples}) exceed {MAX_CHOICES} choices", "n")
    stop = fields.get("stop", [])
    options = {name: fields[name] for name in ("top_p", "top_k", "n") if name in fields}
    options |= dict(max_new_tokens=fields.get("max_tokens", 16), temperature=fields.get("temperature", 1.0))
    options |= dict(seed=fields.get("seed", secrets.randbits(31)))
    options |= dict(stop=[encode(each, "stop") for each in ([stop] if isinstance(stop, str) else stop)])
    try:
        requests = [Request(prompt, **options) for prompt in asked]
    except (ValueError, TypeError) as error:
        raise APIError(str(error)) from None
    usage = fields.get("stream_options", {}).get("include_usage", False)
    return CompletionRequest(requests, fields.get("stream", False), usage)


def load(body):
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise APIError(f"completions: the body is not valid JSON: {error}") from None
    if not isinstance(fields, dict):
        raise APIError(f"completions: the body must be a JSON object, got {shown(fields)}")
    return fields


def checked(fields):
    """The fields that are not null."""
    for name, value in fields.items():
        if name not in FIELDS:
            raise APIError(f"completions: unknown field {shown(name)}; supported: {', '.join(FIELDS)}", name[:60])
        try:
            value is None or must("completions", name, FIELDS[name], value)
        except (ValueError, TypeError) as error:
            raise APIError(str(error), name) from None
    return {name: value for name, value in fields.items() if value is not None}


def prompts_in(fields):
    """Lists of tokens."""
    if "prompt" not in fields:
        raise APIError("completions: prompt is required", "prompt")
    given = fields["prompt"]
    texts = [given] if isinstance(given, str) or tokens(given) else given
    found = [encode(each, "prompt") if isinstance(each, str) else each for each in texts]
    if not all(found):
        raise APIError("completions: a prompt must have at least one token, got an empty string", "prompt")
    return found


def encode(text, param):
    try:
        return list(text.encode())
    except UnicodeEncodeError:
        raise APIError(f"completions: {param} has an unpaired surrogate", param) from None


class Detokenizer:
    """The text of one sequence, piece by piece."""

    def __init__(self, sequence):
        self.sequence, self.held, self.given = sequence, [], 0
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def next_text(self):
        """What has become certain since the last call; if the sequence has finished, all that is left."""
        tokens, reason = self.sequence.output_tokens, self.sequence.finish_reason
        self.held += tokens[self.given :]
        self.given = len(tokens)
        if reason == "stop":
            stops = self.sequence.request.stop
            ended = max((each for each in stops if self.held[-len(each) :] == each), key=len, default=[])
            self.held = self.held[: len(self.held) - len(ended)]
        sure = len(self.held) if reason else len(self.held) - self.may_stop()
        piece, self.held = self.held[:sure], self.held[sure:]
        return self.decoder.decode(bytes(min(token, 255) for token in piece), final=bool(reason))

    def may_stop(self):
        """Length of the longest suffix that may begin a stop sequence."""
        begins = (
            length
            for stop in self.sequence.request.stop
            for length in range(1, min(len(stop), len(self.held) + 1))
            if self.held[-length:] == stop[:length]
        )
        return max(begins, default=0)


def choice(index, text, reason):
    return {"text": text, "index": index, "logprobs": None, "finish_reason": reason}


def answer(about, choices, usage=None):
    """``about``: id, time of creation, model."""
    form = {**about, "object": "text_completion", "choices": choices}
    return form if usage is None else {**form, "usage": usage}


def usage_of(states):
    prompt = sum(len(one.request.prompt) for one in states)
    written = sum(len(each) for one in states for each in one.output_tokens)
    return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
