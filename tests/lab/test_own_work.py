"""The modules whose functions an answer calls are known, however it came by them."""

import importlib
import sys

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from tinydist import collectives
from tinydist.attention.band import tiles
from tinydist.lab.errors import Wrong
from tinydist.lab.messages import by_hand
from tinydist.lab.own_work import Watched, calls_none_of
from tinydist.lab.ranks import Case, Trial
from tinydist.precision import FORMATS

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


def of_a_class(tensor):
    return FORMATS["bf16"].epsilon + len(str(FORMATS["bf16"]))


@pytest.mark.parametrize(
    "lent, found",
    [
        ([], True),
        (["tinydist.precision"], False),
        (["tinydist.precision.formats.Format"], False),
        (["tinydist.precision.formats.Format.epsilon"], True),  # its name is told, too
        (["tinydist.precision.formats.Form"], True),
    ],
)
def test_what_is_lent_may_be_called(lent, found):
    trial = watched(of_a_class)
    assert trial.error is None
    assert trial.answer.calls("tinydist.precision", RANKS, lent) is found


def test_a_function_can_be_what_is_solved():
    trial = watched(by_its_name)
    assert trial.answer.calls("tinydist.collectives.tree.broadcast", RANKS)
    assert not trial.answer.calls("tinydist.collectives.tree.reduce", RANKS)


def test_what_is_called_is_told_by_its_name_for_a_learner():
    trial = watched(by_its_name)
    calls_none_of(trial.answer, {"tinydist.zero": "ZeRO"}, "do it")(trial)
    with pytest.raises(Wrong) as wrong:
        calls_none_of(trial.answer, {SOLVED: "the library"}, "do it")(trial)
    assert str(wrong.value) == "you call the library, where this is solved; do it"


def attends(tensor):
    q = tensor.view(1, 3, 1)
    list(map(F.scaled_dot_product_attention, [q], [q], [q]))


def in_a_module(tensor):
    q = tensor.view(1, 3, 1)
    torch.nn.MultiheadAttention(1, 1)(q, q, q)


@pytest.mark.parametrize(
    "answer, found", [(attends, "scaled_dot_product_attention"), (in_a_module, "multi_head_attention_forward")]
)
def test_torchs_functions_are_found_by_a_word_in_their_names(answer, found):
    for word, told in (("attention", [found]), ("softmax", []), (None, [])):
        trial = Trial(Watched(answer, torchs=word), Case(1, lambda rank: (torch.ones(3),)))
        assert trial.error is None and sorted(trial.answer.of_torch[1]) == told
    trial = Trial(Watched(answer, torchs="attention"), Case(1, lambda rank: (torch.ones(3),)))
    with pytest.raises(Wrong, match=f"you call torch's {found}, where this is solved; build it"):
        calls_none_of(trial.answer, {}, "build it")(trial)


def test_who_looked_on_before_does_so_after():
    seen = []

    def note(*event):
        seen.append(event)

    def answer(tensor):
        before = sys.gettrace()
        sys.settrace(note)
        try:
            with_another = Watched(lambda: None)
            with_another()
            assert sys.gettrace() is note
        finally:
            sys.settrace(before)

    trial = Trial(answer, Case(1, lambda rank: (torch.ones(1),)))
    assert trial.error is None and seen
