"""Exercises in one file: each mistake that a check knows is an edit of the solution, and is told its own words."""

import pytest
import torch.distributed as dist

from tinydist.lab import judge
from tinydist.lab.exercise import Exercise
from tinydist.lab.find import course

EXERCISES = [each for each in course() if isinstance(each, Exercise)]
MISTAKES = [(exercise, mistake) for exercise in EXERCISES for mistake in exercise.mistakes]
EACH = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)


@pytest.mark.parametrize(
    "exercise, mistake", MISTAKES, ids=[f"{exercise.name}-{mistake.words[:40]}" for exercise, mistake in MISTAKES]
)
def test_each_mistake_is_told_its_own_words(exercise, mistake):
    verdict = judge(exercise.variant(mistake))
    assert verdict.state == "wrong" and mistake.words in str(verdict.wrong), verdict


@EACH
def test_of_several_bugs_that_are_left_one_is_told(exercise):
    given = [each.words for each in exercise.mistakes if each.given]
    for several in exercise.suspects[len(exercise.mistakes) :]:
        verdict = judge(exercise.variant(several))
        assert verdict.state == "wrong" and any(words in str(verdict.wrong) for words in given), verdict


def test_a_deadlock_of_other_calls_is_told_no_mistakes_words():
    def mended_all_reduce(tensor):
        dist.recv(tensor, (dist.get_rank() + 1) % dist.get_world_size())

    wrong = str(judge(mended_all_reduce).wrong)
    assert "it hangs" in wrong and "wait in recv" in wrong and "All ranks send first" not in wrong


@EACH
def test_other_right_ways_pass(exercise):
    assert all(judge(exercise.variant(way)).passed for way in exercise.ways)


@EACH
def test_worlds_are_of_several_kinds(exercise):
    """Sizes of one kind would let an answer assume it."""
    sizes = {case.ranks for case in exercise.cases}
    assert len(exercise.cases) >= 5 and (sizes == {1} or {1, 2, 3} <= sizes)


@EACH
def test_what_is_sent_counts(exercise):
    """Where ranks send at all, there is a world where what one of them sends is changed on the way."""
    sends = any(any(map(any, exercise.right(case).run.traffic)) for case in exercise.cases if case.ranks > 1)
    assert not sends or exercise.hidden or not exercise.follows


@EACH
def test_the_last_hint_is_not_the_code(exercise):
    lines = [line.strip() for line in exercise.solution.splitlines() if line.strip() not in exercise.source]
    told = [line for line in lines if len(line) > 20 and line in exercise.hints[-1]]
    assert len(told) < max(2, len(lines) / 2)
