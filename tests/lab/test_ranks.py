"""An answer on simulated ranks: whatever happens there is seen, and told with its rank and line."""

import threading
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

from tinydist.lab import ranks
from tinydist.lab.errors import Wrong
from tinydist.lab.ranks import Case, Trial, Trials


def cases(sizes=(1, 2, 3, 4)):
    return [Case(size, lambda rank: (torch.ones(3) * rank,), "3 numbers each") for size in sizes]


def told(answer, **options):
    """What the check says of an answer that does not come to its end."""
    with pytest.raises(Wrong) as caught:
        Trials(answer, cases(**options)).end()
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


def test_bare_not_implemented_on_any_rank_of_any_world_goes_before_all_else():
    def answer(tensor):
        if dist.get_world_size() == 4 and dist.get_rank() == 3:
            raise NotImplementedError
        if dist.get_world_size() == 2:
            raise ValueError

    with pytest.raises(NotImplementedError):
        Trials(answer, cases()).end()


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
    monkeypatch.setattr(ranks, "LIMIT", 0.3)

    def answer(tensor):
        while True:
            pass

    assert "it does not end: rank 0, at " in told(answer)


def test_a_loop_that_catches_what_stops_it(monkeypatch):
    monkeypatch.setattr(ranks, "LIMIT", 0.3)
    runs = []

    def answer(tensor):
        runs.append(1)
        try:
            while True:
                dist.all_reduce(tensor)
        except:  # noqa: E722
            return

    assert "it does not end, and its `except:` catches" in told(answer, sizes=(1, 2, 3))
    assert len(runs) == 1  # the other cases would take as long


def test_an_answer_that_is_only_slow(monkeypatch):
    monkeypatch.setattr(ranks, "DEADLINE", 0.0)
    runs = []
    assert "it is too slow to be judged: 1 of 3 runs took more" in told(runs.append, sizes=(1, 1, 1))
    assert len(runs) == 1


def test_a_rank_that_waits_for_no_message(monkeypatch):
    monkeypatch.setattr(ranks, "PATIENCE", 0.3)
    told_to_go_on, threads = threading.Event(), []

    def answer(tensor):
        threads.append(threading.current_thread())
        told_to_go_on.wait(30.0)

    text = told(answer, sizes=(1, 2, 3, 4))
    told_to_go_on.set()
    for thread in threads:
        thread.join(30.0)
    assert "rank 0 " in text and "0.3 s" in text and "It sleeps, or waits for something that is no message" in text
    assert len(threads) == 1


def test_what_the_ranks_printed_is_shown_with_the_failure_and_only_then(capsys):
    def answer(tensor):
        print("here")
        assert dist.get_world_size() < 2

    text = told(answer)
    assert "Your ranks printed:\n  [rank 0] here" in text
    assert capsys.readouterr().out == ""


def test_each_tells_the_smallest_world_that_fails():
    def at_most_two(trial):
        if trial.case.ranks > 2:
            raise Wrong("too many")

    with pytest.raises(Wrong, match=r"With 3 ranks, 3 numbers each: too many\nWith 2 ranks this is right."):
        Trials(lambda tensor: None, cases()).each(at_most_two)()


def test_only_worlds_of_the_same_kind_are_said_to_be_right():
    """Where another setting is to blame, it is not the number of ranks."""

    def not_odd(trial):
        if trial.case.kind == "odd":
            raise Wrong("odd")

    with pytest.raises(Wrong) as caught:
        kinds = [replace(case, kind=kind) for case, kind in zip(cases(), ["even", "even", "odd", "odd"])]
        Trials(lambda tensor: None, kinds).each(not_odd)()
    assert str(caught.value) == "With 3 ranks, 3 numbers each: odd"
