"""Answers that would end, block or fill the process that judges them, or change what they are judged by."""

import itertools
import multiprocessing
import os
import signal
import sys

import pytest
import torch
from lab.test_fooled import named, right
from lab.toy_course import toy as toy

from tinydist.lab import isolation, judge
from tinydist.lab.judging import judge_isolated

pytestmark = pytest.mark.skipif(not isolation.AVAILABLE, reason="forks, which is safe on Linux")


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(isolation, "PATIENCE", 1)


def reason(answer, exercise):
    verdict = judge_isolated(named(answer), exercise)
    assert verdict.state == "wrong", verdict
    return str(verdict.wrong)


def test_a_right_answer_passes_in_a_process_of_its_own(toy):
    verdict = judge_isolated(named(right), toy)
    assert verdict.passed and verdict.exercise is toy
    assert verdict.told == judge(named(right), toy).told


def test_what_a_process_says_last_counts_though_it_has_ended_before_one_looks(monkeypatch):
    gate, has_ended = multiprocessing.Event(), isolation._Limits.ended

    def late(limits):
        gate.set()
        while not has_ended(limits):
            pass
        return True

    monkeypatch.setattr(isolation, "LOOK", 0)
    monkeypatch.setattr(isolation._Limits, "ended", late)
    assert isolation.run_isolated(lambda: gate.wait(60)) is True


def ends(tensor):
    os._exit(0)


def aborts(tensor):
    os.abort()


def kills(tensor):
    os.kill(os.getpid(), signal.SIGKILL)


def closes_all(tensor):
    os.closerange(0, 100)
    os._exit(1)


ENDS = {
    ends: "it ends its process (exit status 0)",
    aborts: "it ends its process (SIGABRT)",
    kills: "its process was killed",
    closes_all: "it ends its process (exit status 1)",
}


@pytest.mark.parametrize("answer", ENDS)
def test_an_answer_ends_its_own_process_alone(toy, answer):
    assert f"With 2 ranks, 4 numbers each: {ENDS[answer]}" in reason(answer, toy)


def untraced(tensor):
    sys.settrace(None)
    sys._getframe().f_trace = None
    while True:
        tensor = tensor + 0 if tensor is None else tensor


def in_native_code(tensor):
    return max(iter(int, 1))


def counts_for_ever(tensor):
    return sum(itertools.count())


class Endless(Exception):
    def __str__(self):
        return str(max(iter(int, 1)))


def cannot_be_told(tensor):
    raise Endless


@pytest.mark.parametrize("answer", [untraced, in_native_code, counts_for_ever, cannot_be_told])
def test_a_loop_that_python_does_not_see_is_stopped_by_its_processor_time(toy, answer):
    assert "it takes more than 1 s of processor time, and was stopped" in reason(answer, toy)


def takes_80_gib(tensor):
    return torch.ones(20 * 2**30)  # of 4 bytes


def test_memory_is_limited(toy):
    assert "can't allocate memory" in reason(takes_80_gib, toy)


def replaces_the_reference(tensor):
    module = sys.modules["98_toys.average"]
    module.EXERCISE.reference = module.average = lambda tensor: tensor
    return tensor


def drops_the_targets(tensor):
    sys.modules["98_toys.average"].EXERCISE.targets = ()
    return tensor


def finds_nothing_wrong(tensor):
    sys.modules["tinydist.lab.judging"].Runs.raise_wrong = lambda self, target: None
    return tensor


@pytest.mark.parametrize("answer", [replaces_the_reference, drops_the_targets, finds_nothing_wrong])
@pytest.mark.parametrize("how", [judge, judge_isolated])
def test_what_judges_an_answer_cannot_be_replaced(toy, answer, how):
    verdict = how(named(answer), toy)
    assert verdict.state == "wrong" and "with which the lab measures" in str(verdict.wrong)
    assert judge(named(right), toy).passed
