"""The programs of notebook 22 (notebooks/application): what they send, and what a relay counts; and what was stored."""

import csv
import importlib.util
import json
import sys
from pathlib import Path
from urllib.error import HTTPError

import pytest

from benchmarks import tracing
from tinydist.serving.completions import parse
from tinydist.syllabus.copy_course import names_in

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "notebooks" / "application"
STORED = FOLDER.parent / "data" / "22_application.csv"
QUESTIONS = ["Which call do all ranks of a group make together?", "What is a bubble?", "Who holds optimizer states?"]


def program(name):
    spec = importlib.util.spec_from_file_location(f"application_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


plain, relay = program("plain"), program("relay")


@pytest.fixture
def notes():
    return plain.read_notes()


@pytest.fixture
def stored():
    with STORED.open() as file:
        return {row["program"]: row for row in csv.DictReader(file)}


def test_a_question_is_one_request_and_its_bytes_are_those_that_were_stored(notes, stored):
    with relay.Relay() as between:
        answers = [plain.ask(between.url, notes, question) for question in QUESTIONS]
    row = stored["plain.py"]
    assert ", ".join(each["source"] for each in answers) == row["sources"] == stored["with_langchain.py"]["sources"]
    assert between.sent["requests"] == int(row["requests"]) == len(QUESTIONS)
    assert between.sent["body"] == int(row["body"]) == sum(map(len, between.bodies))


def test_the_server_reads_what_is_sent(notes):
    with relay.Relay() as between:
        plain.ask(between.url, notes, QUESTIONS[1])
    asked = parse(between.bodies[0], "tinydist")
    assert len(asked.requests) == 1 and asked.requests[0].max_new_tokens == plain.MAX_TOKENS


def test_a_relay_hands_on_what_another_answers(notes):
    with relay.Relay() as server, relay.Relay(int(server.url.split(":")[2].removesuffix("/v1"))) as between:
        answer = plain.ask(between.url, notes, QUESTIONS[1])
    assert answer == {"answer": "ok", "source": "chapter 08"}
    assert server.bodies == between.bodies and server.answers == between.answers


def test_so_many_requests_are_refused(notes, stored):
    with relay.Relay(busy=2) as between:
        for _ in range(2):
            with pytest.raises(HTTPError, match="429"):
                plain.ask(between.url, notes, QUESTIONS[0])
        assert plain.ask(between.url, notes, QUESTIONS[0])["answer"] == "ok"
    assert between.statuses == [429, 429, 200]
    assert int(stored["with_langchain.py"]["retries"]) == 3 and stored["with_langchain.py"]["after_429"] == "answers"


def test_of_notes_that_are_as_near_the_first_is_taken():
    notes = [{"source": name, "text": text} for name, text in [("a", "bubble"), ("b", "ring"), ("c", "ring")]]
    assert plain.retrieve(notes, "ring?")["source"] == "b"
    assert plain.cosine(plain.embed("ring"), plain.embed("Ring ring")) == pytest.approx(1)
    assert plain.cosine(plain.embed(""), plain.embed("ring")) == 0


def test_all_that_the_notebook_reads_is_in_a_copy_of_the_course():
    copied, folders = set(names_in(ROOT)), ("notebooks/application", "notebooks/data/22_locks")
    read = [path for folder in folders for path in (ROOT / folder).glob("*.*")]
    assert len(read) > 10 and {path.relative_to(ROOT).as_posix() for path in read} <= copied


def test_a_stored_answer_has_its_tokens(stored):
    """A token is a byte; of each question the prompt and as many tokens as were asked for."""
    with relay.Relay() as between:
        for question in QUESTIONS:
            plain.ask(between.url, plain.read_notes(), question)
    prompts = [json.loads(each)["prompt"] for each in between.bodies]
    expected = sum(len(each.encode()) + plain.MAX_TOKENS for each in prompts)
    assert {int(row["tokens"]) for row in stored.values()} == {expected}


def test_our_program_connects_to_the_server_alone():
    rows = tracing.traced(sys.executable, "plain.py")
    assert [row["addresses"] for row in rows] == [row["to_server"] for row in rows] == [1, 1]
    assert not any(row["elsewhere"] for row in rows)


def test_langchain_connected_to_the_server_alone_unless_tracing_was_on():
    with STORED.with_name("22_tracing.csv").open() as file:
        off, on = csv.DictReader(file)
    assert (off["addresses"], off["elsewhere"], off["with_question"]) == ("1", "0", "False")
    assert on["addresses"] == "2" and on["with_question"] == "True"
