"""Judging: in order, up to the first property that does not hold; "not yet" and nothing else."""

import sys
import warnings

import pytest
import torch
from lab.mini import Stated, course_of

from tinydist.lab.errors import Unjudged, Wrong
from tinydist.lab.judging import judge
from tinydist.simulator.stuck import StuckError


@pytest.fixture(autouse=True)
def doubling(monkeypatch):
    """An exercise that needs no ranks."""

    def double(x):
        raise NotImplementedError

    course_of(monkeypatch, Stated(double, properties))
    return double


def properties(answer):
    yield "zero", "0 gives 0", lambda: gives(answer, 0, 0)
    yield "two", "2 gives 4", lambda: gives(answer, 2, 4)
    yield "three", "3 gives 6", lambda: gives(answer, 3, 6)


def gives(answer, x, right):
    if answer(x) != right:
        raise Wrong(f"{x} gives {answer(x)}, where {right} is right")


def states(verdict):
    return [line.state for line in verdict.lines]


def test_right():
    def double(x):
        return 2 * x

    verdict = judge(double)
    assert verdict.passed and states(verdict) == ["ok", "ok", "ok"]


def test_first_failure_is_explained_and_the_rest_not_judged():
    def double(x):
        return x

    verdict = judge(double)
    assert not verdict.passed and states(verdict) == ["ok", "wrong", "-"]
    assert str(verdict).splitlines() == [
        "double: wrong",
        "  zero          ok     0 gives 0",
        "  two           wrong  2 gives 4",
        "  three         -      3 gives 6 (not judged)",
        "",
        "2 gives 2, where 4 is right",
    ]


def test_untouched_stub(doubling):
    assert str(judge(doubling)) == "double: not yet"


def test_bare_not_implemented_error_is_not_yet_and_one_with_a_reason_is_not():
    def double(x):
        if x == 2:
            raise NotImplementedError
        return 2 * x

    assert str(judge(double)) == "double: not yet"

    def double(x):
        raise NotImplementedError("no such type")

    assert "NotImplementedError: no such type\nat " in str(judge(double).wrong)


def test_an_exception_does_not_pass():
    def double(x):
        return 1 // x

    verdict = judge(double)
    assert states(verdict) == ["wrong", "-", "-"]
    assert str(verdict.wrong).startswith("ZeroDivisionError") and "return 1 // x" in str(verdict.wrong)


def test_what_is_no_function():
    with pytest.raises(TypeError, match=r"check takes your function: check\(double\), got 'double'"):
        judge("double")


def test_what_was_not_run_is_not_judged_and_one_asleep_is_not_wrong():
    def double(x):
        if x == 0:
            raise Unjudged
        return x

    assert states(judge(double)) == ["-", "wrong", "-"]

    def double(x):
        raise StuckError(0, 60.0, False, sys._getframe())

    verdict = judge(double)
    assert verdict.state == "not judged" and not verdict.passed
    assert str(verdict).startswith("double: not judged\n\nrank 0 does nothing for 60 s. It sleeps")


def test_memory_that_nobody_has_written_is_no_number():
    def double(x):
        return torch.empty(1).item()

    assert "0 gives nan, where 0 is right" in str(judge(double).wrong)
    assert not torch.are_deterministic_algorithms_enabled()


def test_what_will_change_in_torch_is_not_told_in_every_run(recwarn):
    def double(x):
        warnings.warn("will be gone", FutureWarning, stacklevel=1)
        return 2 * x

    assert judge(double).passed and not recwarn.list
