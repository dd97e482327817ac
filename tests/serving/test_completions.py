"""Bodies that are calls, and bodies that are none; texts as far as they are sure."""

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinydist.serving.completions import FIELDS, MAX_CHOICES, APIError, CompletionRequest, Detokenizer, parse, usage_of


def called(**fields):
    return parse(json.dumps(fields).encode(), "tiny")


def refused(body):
    with pytest.raises(APIError) as error:
        parse(body if isinstance(body, bytes) else json.dumps(body).encode(), "tiny")
    return error.value.status, error.value.form["error"]


@pytest.mark.parametrize(
    "prompt, tokens",
    [
        ("hé", [[104, 195, 169]]),
        (["a", "b"], [[97], [98]]),
        ([7, 8], [[7, 8]]),
        ([[7], [8, 9]], [[7], [8, 9]]),
    ],
)
def test_a_prompt_is_texts_or_tokens(prompt, tokens):
    assert [each.prompt for each in called(prompt=prompt).requests] == tokens


def test_what_is_not_said_is_as_openai_has_it():
    call = called(prompt="a", stop=None, model="tiny", user="me", best_of=1, echo=False)
    (request,) = call.requests
    assert (request.max_new_tokens, request.temperature, request.top_p, request.n, request.stop) == (
        16,
        1.0,
        1.0,
        1,
        [],
    )
    assert not call.stream and not call.usage and len(request.prompt) == 1
    assert called(prompt="a").requests[0].seed != called(prompt="a").requests[0].seed


def test_what_is_said_arrives():
    call = called(prompt=["a", "b"], max_tokens=5, temperature=0, top_p=0.5, top_k=3, n=2, seed=9, stop=["x", "é"],
                  stream=True, stream_options={"include_usage": True})  # fmt: skip
    for request in call.requests:
        assert (request.max_new_tokens, request.temperature, request.top_p, request.top_k) == (5, 0, 0.5, 3)
        assert (request.n, request.seed, request.stop) == (2, 9, [[120], [195, 169]])
    assert call.stream and call.usage


REFUSALS = {
    b"": (400, None, "the body is not valid JSON: Expecting value"),
    b"\xff\xfe": (400, None, "the body is not valid JSON"),
    b"[" * 200_000: (400, None, "the body is not valid JSON: maximum recursion depth"),
    b'{"prompt": "a", "max_tokens": ' + b"9" * 5000 + b"}": (
        400,
        None,
        "the body is not valid JSON: Exceeds the limit",
    ),
    b"[1]": (400, None, r"the body must be a JSON object, got \[1\]"),
    b"{}": (400, "prompt", "prompt is required"),
    b'{"prompt": "a", "temperature": NaN}': (400, "temperature", "must be 0, or a number from 0.01 to 2, got nan"),
    b'{"prompt": "a", "temperature": 1e-320}': (
        400,
        "temperature",
        "must be 0, or a number from 0.01 to 2, got 1e-320",
    ),
    b'{"prompt": "\\ud800"}': (400, "prompt", "prompt has an unpaired surrogate"),
    b'{"prompt": "a", "stop": "\\ud800"}': (400, "stop", "stop has an unpaired surrogate"),
    b'{"prompt": ""}': (400, "prompt", "a prompt must have at least one token, got an empty string"),
    b'{"prompt": ["a", ""]}': (400, "prompt", "a prompt must have at least one token"),
    b'{"prompt": []}': (400, "prompt", r"prompt must be a string, a list of strings, a list of tokens, .* got \[\]"),
    b'{"prompt": [1, -1]}': (400, "prompt", "prompt must be a string"),
    b'{"prompt": [1, true]}': (400, "prompt", "prompt must be a string"),
    b'{"prompt": {"a": 1}}': (400, "prompt", "prompt must be a string"),
    b'{"prompt": "a", "max_tokens": 0}': (400, "max_tokens", "must be an integer from 1 to 1048576, got 0"),
    b'{"prompt": "a", "n": 200}': (400, "n", "n must be an integer from 1 to 128, got 200"),
    b'{"prompt": ["a", "b"], "n": 100}': (400, "n", r"2 prompts x n \(100\) exceed 128 choices"),
    b'{"prompt": "a", "stop": ["a", "b", "c", "d", "e"]}': (400, "stop", "non-empty string, or a list of up to 4"),
    b'{"prompt": "a", "stop": ""}': (400, "stop", "stop must be a non-empty string"),
    b'{"prompt": "a", "stream": "yes"}': (400, "stream", "stream must be True or False, got 'yes'"),
    b'{"prompt": "a", "logprobs": 5}': (400, "logprobs", r"logprobs must be 0 \(nothing else is supported\), got 5"),
    b'{"prompt": "a", "wings": 2}': (400, "wings", "unknown field 'wings'; supported: model, prompt, max_tokens"),
    b'{"prompt": "a", "model": "gpt-4"}': (404, "model", "model 'gpt-4' does not exist, only 'tiny'"),
}


@pytest.mark.parametrize("body", REFUSALS, ids=lambda body: body[:40].decode("latin1"))
def test_what_cannot_be_is_refused_in_openais_form(body):
    status, param, message = REFUSALS[body]
    got, form = refused(body)
    assert (got, form["param"], form["type"]) == (status, param, "invalid_request_error")
    assert set(form) == {"message", "type", "param", "code"} and len(form["message"]) < 400
    with pytest.raises(APIError, match=message):
        parse(body, "tiny")


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5)


@given(st.binary() | st.dictionaries(st.sampled_from(sorted(FIELDS)) | st.text(), JSON).map(json.dumps).map(str.encode))
def test_nothing_but_a_call_or_a_refusal_comes_of_any_body(body):
    try:
        assert isinstance(parse(body, "tiny"), CompletionRequest)
    except APIError as error:
        assert error.status in (400, 404)


def test_usage_counts_every_sample():
    written, requests = ([[1, 2], [3]], [[4], []]), called(prompt=["abc", "d"], n=2).requests
    counted = usage_of([SimpleNamespace(request=one, output_tokens=new) for one, new in zip(requests, written)])
    assert counted == {"prompt_tokens": 4, "completion_tokens": 4, "total_tokens": 8}


def written_by(stop, tokens=(), reason=None):
    return SimpleNamespace(request=SimpleNamespace(stop=stop), output_tokens=tokens, finish_reason=reason)


ALPHABET = "ab.é€"
STOPS = st.lists(st.text(ALPHABET, min_size=1, max_size=3), max_size=3)


@given(st.text(ALPHABET, max_size=12), STOPS, st.data())
def test_pieces_make_the_text_up_to_the_stop(text, stops, data):
    """Whatever the pieces in which tokens come; and no piece is ever taken back."""
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    written = text[: min(ends)] if ends else text
    ended = [stop for stop in stops if written.endswith(stop)]
    expected = written[: len(written) - max(map(len, ended))] if ends else written
    tokens, given, reason = list(written.encode()), "", "stop" if ends else "length"
    one = written_by([list(stop.encode()) for stop in stops])
    pieces = Detokenizer(one)
    for cut in sorted(data.draw(st.sets(st.integers(0, max(0, len(tokens) - 1))))):
        one.output_tokens = tokens[:cut]
        given += pieces.next_text()
        assert expected.startswith(given)
    one.output_tokens, one.finish_reason = tokens, reason
    assert given + pieces.next_text() == expected


def test_what_is_no_text_is_shown_as_such():
    text = Detokenizer(written_by([], [104, 255, 300, 105], "length")).next_text()
    assert text == "h\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}i" and MAX_CHOICES == 128
