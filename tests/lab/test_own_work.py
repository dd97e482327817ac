"""The modules whose functions an answer calls are known, however it came by them."""

import importlib
import sys

import pytest
import torch
import torch.distributed as dist

from tinydist import collectives
from tinydist.attention.band import tiles
from tinydist.lab.errors import Wrong
from tinydist.lab.messages import by_hand
from tinydist.lab.own_work import Watched
from tinydist.lab.ranks import Case, Trial

RANKS, SOLVED = 2, "tinydist.collectives"
broadcast = collectives.tree.broadcast


def watched(answer):
    answer = Watched(answer)
    return Trial(answer, Case(RANKS, lambda rank: (torch.ones(3),)))


def by_its_name(tensor):
    collectives.tree.broadcast(tensor, 0)


def by_another_name(tensor):
    broadcast(tensor, 0)


def imported(tensor):
    from tinydist.collectives.tree import broadcast as renamed

    renamed(tensor, 0)


def imported_by_a_text(tensor):
    importlib.import_module("tinydist.collectives.tree").broadcast(tensor, 0)


def by_import(tensor):
    __import__("tinydist.collectives.tree").collectives.tree.broadcast(tensor, 0)


def of_sys_modules(tensor):
    sys.modules["tinydist" + ".collectives.tree"].broadcast(tensor, 0)


def through_a_helper(tensor):
    by_another_name(tensor)


def handed_over(tensor):
    list(map(lambda each: broadcast(each, src=0), [tensor]))


@pytest.mark.parametrize(
    "answer",
    [
        by_its_name,
        by_another_name,
        imported,
        imported_by_a_text,
        by_import,
        of_sys_modules,
        through_a_helper,
        handed_over,
    ],
)
def test_the_librarys_own_is_found(answer):
    trial = watched(answer)
    assert trial.error is None and trial.answer.calls(SOLVED, RANKS)
    with pytest.raises(Wrong, match=r"you call tinydist\.collectives, where this is solved"):
        by_hand(trial)


def test_messages_alone_are_ones_own():
    def answer(tensor):
        dist.send(tensor, 1) if dist.get_rank() == 0 else dist.recv(tensor, 0)

    trial = watched(answer)
    by_hand(trial)
    assert trial.answer.calls("torch.distributed", RANKS)
    assert not trial.answer.calls("torch.distributed", RANKS + 1)
    assert not trial.answer.calls("tinydist.coll", RANKS)  # a part of a name is no module


@pytest.mark.parametrize("goes_on", [next, lambda generator: generator.close()])
def test_a_generator_that_goes_on_is_no_call(goes_on):
    def answer(tensor):
        for generator in suspended:
            goes_on(generator)

    def starts_one(tensor):
        next(tiles(range(8), 2))

    suspended = [tiles(range(8), 2) for _ in range(RANKS)]
    for generator in suspended:
        next(generator)
    for program, calls in ((answer, False), (starts_one, True)):
        trial = watched(program)
        assert trial.error is None
        assert trial.answer.calls("tinydist.attention.band", RANKS) is calls


def test_who_looked_on_before_does_so_after():
    seen = []

    def note(*event):
        seen.append(event)

    def answer(tensor):
        sys.setprofile(note)
        try:
            with_another = Watched(lambda: None)
            with_another()
            assert sys.getprofile() is note
        finally:
            sys.setprofile(None)

    trial = Trial(answer, Case(1, lambda rank: (torch.ones(1),)))
    assert trial.error is None and seen
