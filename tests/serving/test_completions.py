"""Bodies that are calls, and bodies that are none; texts as far as they are sure."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinydist.serving.completions import FIELDS, MOST, Call, Refused, Text, parse, usage_of


def called(**fields):
    return parse(json.dumps(fields).encode(), "tiny")


def refused(body):
    with pytest.raises(Refused) as error:
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
    assert (request.max_new, request.temperature, request.top_p, request.n, request.stop) == (16, 1.0, 1.0, 1, [])
    assert not call.stream and not call.usage and call.prompt_tokens == 1
    assert called(prompt="a").requests[0].seed != called(prompt="a").requests[0].seed


def test_what_is_said_arrives():
    call = called(prompt=["a", "b"], max_tokens=5, temperature=0, top_p=0.5, top_k=3, n=2, seed=9, stop=["x", "é"],
                  stream=True, stream_options={"include_usage": True})  # fmt: skip
    for request in call.requests:
        assert (request.max_new, request.temperature, request.top_p, request.top_k) == (5, 0, 0.5, 3)
        assert (request.n, request.seed, request.stop) == (2, 9, [[120], [195, 169]])
    assert call.stream and call.usage


REFUSALS = {
    b"": (400, None, "the body is not JSON: Expecting value"),
    b"\xff\xfe": (400, None, "the body is not JSON"),
    b"[" * 200_000: (400, None, "the body is not JSON: maximum recursion depth"),
    b'{"prompt": "a", "max_tokens": ' + b"9" * 5000 + b"}": (400, None, "the body is not JSON: Exceeds the limit"),
    b"[1]": (400, None, r"the body must be a JSON object, got \[1\]"),
    b"{}": (400, "prompt", "there is no prompt"),
    b'{"prompt": "a", "temperature": NaN}': (400, "temperature", "must be 0, or a number from 0.01 to 2, got nan"),
    b'{"prompt": "a", "temperature": 1e-320}': (
        400,
        "temperature",
        "must be 0, or a number from 0.01 to 2, got 1e-320",
    ),
    b'{"prompt": "\\ud800"}': (400, "prompt", "prompt must be text, but it has half of a surrogate pair"),
    b'{"prompt": "a", "stop": "\\ud800"}': (400, "stop", "stop must be text"),
    b'{"prompt": ""}': (400, "prompt", "a prompt must have a token, got an empty text"),
    b'{"prompt": ["a", ""]}': (400, "prompt", "a prompt must have a token"),
    b'{"prompt": []}': (400, "prompt", r"prompt must be a text, a list of texts, a list of tokens, .* got \[\]"),
    b'{"prompt": [1, -1]}': (400, "prompt", "prompt must be a text"),
    b'{"prompt": [1, true]}': (400, "prompt", "prompt must be a text"),
    b'{"prompt": {"a": 1}}': (400, "prompt", "prompt must be a text"),
    b'{"prompt": "a", "max_tokens": 0}': (400, "max_tokens", "must be an integer from 1 to 1048576, got 0"),
    b'{"prompt": "a", "n": 200}': (400, "n", "n must be an integer from 1 to 128, got 200"),
    b'{"prompt": ["a", "b"], "n": 100}': (400, "n", "2 prompts x 100 are more than 128 answers"),
    b'{"prompt": "a", "stop": ["a", "b", "c", "d", "e"]}': (400, "stop", "not empty, or a list of up to 4"),
    b'{"prompt": "a", "stop": ""}': (400, "stop", "stop must be a text that is not empty"),
    b'{"prompt": "a", "stream": "yes"}': (400, "stream", "stream must be True or False, got 'yes'"),
    b'{"prompt": "a", "logprobs": 5}': (400, "logprobs", "logprobs must be 0, for nothing else is done here, got 5"),
    b'{"prompt": "a", "wings": 2}': (400, "wings", "takes no 'wings', but model, prompt, max_tokens"),
    b'{"prompt": "a", "model": "gpt-4"}': (404, "model", "there is no model 'gpt-4', but 'tiny'"),
}


@pytest.mark.parametrize("body", REFUSALS, ids=lambda body: body[:40].decode("latin1"))
def test_what_cannot_be_is_refused_in_openais_form(body):
    status, param, message = REFUSALS[body]
    got, form = refused(body)
    assert (got, form["param"], form["type"]) == (status, param, "invalid_request_error")
    assert set(form) == {"message", "type", "param", "code"} and len(form["message"]) < 400
    with pytest.raises(Refused, match=message):
        parse(body, "tiny")


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5)


@given(st.binary() | st.dictionaries(st.sampled_from(sorted(FIELDS)) | st.text(), JSON).map(json.dumps).map(str.encode))
def test_nothing_but_a_call_or_a_refusal_comes_of_any_body(body):
    try:
        assert isinstance(parse(body, "tiny"), Call)
    except Refused as error:
        assert error.status in (400, 404)


class Served:
    def __init__(self, *new):
        self.new = new


def test_usage_counts_every_sample():
    counted = usage_of(called(prompt=["abc", "d"], n=2), [Served([1, 2], [3]), Served([4], [])])
    assert counted == {"prompt_tokens": 4, "completion_tokens": 4, "total_tokens": 8}


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
    pieces = Text([list(stop.encode()) for stop in stops])
    for cut in sorted(data.draw(st.sets(st.integers(0, max(0, len(tokens) - 1))))):
        given += pieces.more(tokens[:cut], None)
        assert expected.startswith(given)
    assert given + pieces.more(tokens, reason) == expected


def test_what_is_no_text_is_shown_as_such():
    assert Text([]).more([104, 255, 300, 105], "length") == "h\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}i"
    assert MOST == 128
