"""No wrong answer passes, and each is told what is meant for it."""

from pathlib import Path

import pytest
from lab.wrong_answers import (
    attention_heads,
    collectives,
    collectives_on_clusters,
    data_parallel,
    flash_attention,
    hardware_and_cost,
    mixed_precision,
    pipeline_parallel,
    ranks_and_groups,
    start_here,
    zero,
)

from tinydist.lab import judge, limit
from tinydist.lab.find import course

WRONG_ANSWERS = [
    *start_here.WRONG_ANSWERS,
    *ranks_and_groups.WRONG_ANSWERS,
    *collectives.WRONG_ANSWERS,
    *hardware_and_cost.WRONG_ANSWERS,
    *collectives_on_clusters.WRONG_ANSWERS,
    *mixed_precision.WRONG_ANSWERS,
    *data_parallel.WRONG_ANSWERS,
    *zero.WRONG_ANSWERS,
    *pipeline_parallel.WRONG_ANSWERS,
    *attention_heads.WRONG_ANSWERS,
    *flash_attention.WRONG_ANSWERS,
]


@pytest.fixture(autouse=True)
def endless_ones_are_stopped_soon(monkeypatch):
    monkeypatch.setattr(limit, "LINES", 50_000)


class Judged:
    """A class for each chapter, since tests of different classes run side by side."""

    def test_wrong_answer(self, answer, rejected_by, told):
        verdict = judge(answer)
        assert verdict.state == "wrong"
        assert [line.name for line in verdict.lines if line.state == "wrong"] == [rejected_by], verdict.wrong
        assert told in str(verdict.wrong)


class TestStartHere(Judged):
    answers = start_here.WRONG_ANSWERS


class TestRanksAndGroups(Judged):
    answers = ranks_and_groups.WRONG_ANSWERS


class TestCollectives(Judged):
    answers = collectives.WRONG_ANSWERS


class TestHardwareAndCost(Judged):
    answers = hardware_and_cost.WRONG_ANSWERS


class TestCollectivesOnClusters(Judged):
    answers = collectives_on_clusters.WRONG_ANSWERS


class TestMixedPrecision(Judged):
    answers = mixed_precision.WRONG_ANSWERS


class TestDataParallel(Judged):
    answers = data_parallel.WRONG_ANSWERS


class TestZero(Judged):
    answers = zero.WRONG_ANSWERS


class TestPipelineParallel(Judged):
    answers = pipeline_parallel.WRONG_ANSWERS


class TestAttentionHeads(Judged):
    answers = attention_heads.WRONG_ANSWERS


class TestFlashAttention(Judged):
    answers = flash_attention.WRONG_ANSWERS


def pytest_generate_tests(metafunc):
    if "rejected_by" in metafunc.fixturenames:
        names = [name for name, *_ in metafunc.cls.answers]
        metafunc.parametrize("answer, rejected_by, told", [case for _, *case in metafunc.cls.answers], ids=names)


def test_every_chapter_is_judged():
    files = list((Path(__file__).parent / "wrong_answers").glob("*.py"))
    assert len(Judged.__subclasses__()) == len(files)
    assert sum(len(each.answers) for each in Judged.__subclasses__()) == len(WRONG_ANSWERS)


def test_every_exercise_has_four_wrong_answers():
    names = [answer.__name__ for _, answer, *_ in WRONG_ANSWERS]
    assert {each.name for each in course() if names.count(each.name) < 4} == set()


def test_every_property_rejects_an_answer():
    """A target that no wrong answer fails, in any exercise, might be one that cannot fail. After right values, what is
    published and the clock confirm them alone."""
    rejecting = {rejected_by for *_, rejected_by, _ in WRONG_ANSWERS}
    judged = {name for exercise in course() for name, *_ in exercise.check(lambda *_: None)}
    assert judged - rejecting == {"clock", "published"}
