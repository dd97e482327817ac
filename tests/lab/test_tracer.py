"""A loop without end is stopped by the count of its lines, also one that catches everything."""

import contextlib
import sys
from threading import Thread

import pytest

from tinydist.lab import tracer as module
from tinydist.lab.tracer import TooLong, Tracer


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(module, "LINES", 500)


def limited(answer):
    """The tracer, once the answer has come to its end, in a thread of its own as a rank has: where a trace function
    raises within an ``except``, CPython may leave the thread that exception as the one that is being handled."""
    tracer = Tracer()

    def traced():
        with contextlib.suppress(TooLong), tracer:
            answer()

    thread = Thread(target=traced)
    thread.start()
    thread.join()
    return tracer


def endless():
    while True:
        pass


def of_one_instruction():
    while True: pass  # fmt: skip  # noqa: E701


def swallows_all():
    count = 0
    while True:
        try:
            count += 1
        except:  # noqa: E722
            count -= 1


def swallows_and_keeps():
    kept = []
    while True:
        try:
            kept.append(1)
        except BaseException as error:
            kept.append(error)
        finally:
            kept.append(2)


def suppresses():
    while True:
        with contextlib.suppress(BaseException):
            endless()


def goes_on_in_finally():
    while True:
        try:
            endless()
        finally:
            continue  # noqa: B012


def calls_what_swallows():
    while True:
        guarded()


def guarded():
    try:
        endless()
    except BaseException:
        return


def of_an_iterator():
    return [None for _ in iter(int, 1)]


def of_a_function_that_is_called():
    return all(iter(lambda: True, False))


ENDLESS = [
    endless,
    of_one_instruction,
    swallows_all,
    swallows_and_keeps,
    suppresses,
    goes_on_in_finally,
    calls_what_swallows,
    of_an_iterator,
    of_a_function_that_is_called,
]


@pytest.mark.parametrize("answer", ENDLESS, ids=lambda answer: answer.__name__)
def test_a_loop_without_end_is_stopped(answer):
    assert limited(answer).passed and sys.gettrace() is None


def test_what_stops_it_says_the_line():
    with pytest.raises(TooLong) as caught, Tracer():
        endless()
    assert caught.traceback[-2].name == "endless"


def test_what_comes_to_its_end_is_left_alone():
    assert not limited(lambda: sum(range(100_000))).passed
    assert limited(lambda: [each for each in range(1000)]).passed


def test_lines_of_libraries_do_not_count():
    import textwrap

    def answer():
        return textwrap.fill("a few words " * 1000)

    tracer = limited(answer)
    assert 0 < module.LINES - tracer.left < 20


def test_who_traced_before_does_so_after():
    seen = []

    def trace(frame, event, argument):
        seen.append(event)

    sys.settrace(trace)
    try:
        limited(lambda: None)
        assert sys.gettrace() is trace
    finally:
        sys.settrace(None)
