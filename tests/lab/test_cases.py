"""An answer on simulated ranks: whatever happens there is seen, and told with its rank and line."""

import contextlib
import time
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from clock_by_hand import ClockByHand
from lab.mini import worlds

from tinydist.lab import tracer
from tinydist.lab.author import Case, Target, Wrong, alone
from tinydist.lab.cases import Trial
from tinydist.lab.errors import Unjudged
from tinydist.simulator import stuck
from tinydist.simulator.stuck import StuckError


def cases(sizes=(1, 2, 3, 4)):
    return [Case(size, lambda rank: (torch.ones(3) * rank,), "3 numbers each") for size in sizes]


def told(answer, **options):
    """What the check says of an answer that does not come to its end."""
    with pytest.raises(Wrong) as caught:
        worlds(answer, cases(**options)).end()
    return str(caught.value)


def test_what_a_trial_keeps():
    trial = Trial(lambda tensor: tensor.add_(1), cases()[2])
    assert trial.error is None and len(trial.returned) == 3
    assert [arguments[0].tolist() for arguments in trial.arguments] == [[1.0] * 3, [2.0] * 3, [3.0] * 3]


def test_always_on_simulated_ranks(monkeypatch):
    monkeypatch.setenv("TINYDIST_BACKEND", "gloo")
    assert Trial(lambda tensor: None, cases()[1]).run.backend == "simulated"


def test_an_exception_on_one_rank():
    def answer(tensor):
        if dist.get_rank() == 2:
            raise ValueError("mine")

    text = told(answer)
    assert text.startswith("With 3 ranks, 3 numbers each: ValueError: mine\nrank 2, at ")
    assert 'in answer: raise ValueError("mine")\nWith 2 ranks this is right.' in text


def test_bare_not_implemented_on_any_rank_goes_before_all_else():
    def answer(tensor):
        if dist.get_rank() == 1:
            raise NotImplementedError

    with pytest.raises(NotImplementedError):
        worlds(answer, cases()).end()


def test_a_rank_that_waits_for_ever():
    def answer(tensor):
        if dist.get_rank() == 0 and dist.get_world_size() > 1:
            dist.recv(tensor, 1)

    text = told(answer)
    assert "it hangs: the ranks wait for one another" in text and "rank 0 waits in recv(float32[3])" in text


def test_messages_that_do_not_agree():
    def answer(tensor):
        if dist.get_world_size() > 1:
            dist.send(tensor, 1) if dist.get_rank() == 0 else dist.recv(tensor[:2], 0)

    assert "two ranks do not agree on what passes between them" in told(answer, sizes=(2,))


def test_sys_exit_is_no_end():
    def answer(tensor):
        raise SystemExit(0)

    assert "a rank ends by returning, but one called sys.exit: rank 0, at " in told(answer)


def test_a_loop_without_end(monkeypatch):
    monkeypatch.setattr(tracer, "LINES", 500)

    def answer(tensor):
        while True:
            pass

    assert "it runs more than 500 lines: rank 0, at " in told(answer)


def test_a_loop_that_catches_what_stops_it(monkeypatch):
    monkeypatch.setattr(tracer, "LINES", 500)
    runs = []

    def answer(tensor):
        runs.append(1)
        try:
            while True:
                dist.all_reduce(tensor)
        except:  # noqa: E722
            return

    assert "it runs more than 500 lines, and its `except:` catches" in told(answer, sizes=(1, 2, 3))
    assert len(runs) == 2  # on 2 ranks: the other cases would take as long


def test_a_loop_that_catches_it_again_and_again(monkeypatch):
    monkeypatch.setattr(tracer, "LINES", 500)

    def answer(tensor):
        while True:
            with contextlib.suppress(BaseException):
                dist.all_reduce(tensor)

    assert "it runs more than 500 lines" in told(answer, sizes=(2, 3))


def test_an_answer_that_is_only_slow_is_judged(monkeypatch):
    """Days pass between any two looks at a clock."""
    clock = ClockByHand()
    monkeypatch.setattr(stuck, "time", clock)

    def answer(tensor):
        clock.a_day_passes(computing=True)

    worlds(answer, cases()).end()


def test_a_rank_that_waits_for_no_message_is_not_judged(monkeypatch):
    clock = ClockByHand()
    monkeypatch.setattr(stuck, "time", clock)
    runs = []

    def answer(tensor):
        runs.append(1)
        clock.go_on()
        while True:
            time.sleep(0.01)

    with pytest.raises(StuckError) as caught:
        worlds(answer, [replace(case, how={"timeout": 0.1}) for case in cases()]).end()
    assert (caught.value.rank, caught.value.seconds) == (0, 0.1) and "in answer" in str(caught.value.site)
    assert len(runs) == 1  # the other cases would take as long


# Wrong values.


class ItsRank(Target):
    decides = True

    def judge(self, exercise, trial, right):
        for rank, value in enumerate(trial.returned):
            if value != rank:
                raise Wrong(f"{value}, where {rank} is right")


@pytest.mark.parametrize("wrong_from, ran", [(2, [2]), (3, [2, 3]), (9, [1, 2, 3, 4])])
def test_no_world_is_run_after_the_first_with_wrong_values(wrong_from, ran):
    """One rank comes last: with others there is more to say."""
    sizes = []

    def answer(tensor):
        sizes.append(dist.get_world_size())
        return dist.get_rank() + (dist.get_world_size() >= wrong_from)

    target = ItsRank("")
    found = worlds(answer, cases(), target)
    if wrong_from > 4:
        found.end()
        found.hold(target)
    else:
        with pytest.raises(Unjudged):
            found.end()
        with pytest.raises(Wrong, match=f"With {wrong_from} rank"):
            found.hold(target)
    assert sorted(set(sizes)) == ran and len(sizes) == sum(ran)


def test_worlds_are_run_once_asked_for():
    runs = []
    found = worlds(lambda tensor: runs.append(1), cases((1, 2)))
    assert runs == []
    for _ in range(2):
        found.end()
    assert len(runs) == 3


def test_what_the_ranks_printed_is_shown_with_the_failure_and_only_then(capsys):
    def answer(tensor):
        print("here")
        assert dist.get_world_size() < 2

    text = told(answer)
    assert "Your ranks printed:\n  [rank 0] here" in text
    assert capsys.readouterr().out == ""


class AtMostTwo(Target):
    def judge(self, exercise, trial, right):
        if trial.case.ranks > 2:
            raise Wrong("too many")


def test_the_smallest_world_that_fails_is_told():
    target = AtMostTwo("")
    with pytest.raises(Wrong, match=r"With 3 ranks, 3 numbers each: too many\nWith 2 ranks this is right."):
        worlds(lambda tensor: None, cases(), target).hold(target)


def test_a_world_that_differs_in_more_than_ranks_and_sizes_is_not_told():
    target, more = AtMostTwo(""), replace(cases()[2], about="5 numbers each, bfloat16")
    with pytest.raises(Wrong) as caught:
        worlds(lambda tensor: None, [*cases((1, 2)), more], target).hold(target)
    assert str(caught.value) == "With 3 ranks, 5 numbers each, bfloat16: too many"


# Without ranks.


def test_nothing_is_said_of_ranks_where_there_are_none():
    def answer(number):
        raise ValueError("mine")

    with pytest.raises(Wrong) as caught:
        worlds(answer, [alone(lambda: (1,), "the number 1")]).end()
    text = str(caught.value)
    assert text.startswith("With the number 1: ValueError: mine\nat ") and "rank" not in text


def test_arguments_are_made_anew():
    kept = []
    case = alone(lambda: (torch.zeros(1),), "a zero")
    for _ in range(2):
        Trial(lambda tensor: kept.append(tensor.add_(1).item()), case)
    assert kept == [1, 1]
