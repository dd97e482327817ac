"""The modules whose functions an answer calls are known, however it came by them."""

import importlib
import sys
from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from lab.mini import exercise

from tinydist import collectives
from tinydist.attention.mask import tiles
from tinydist.lab.author import Case, Own, Wrong
from tinydist.lab.cases import Trial
from tinydist.lab.tracer import Tracer, within
from tinydist.precision import FORMATS

RANKS, SOLVED = 2, "tinydist.collectives"
broadcast = collectives.tree.broadcast


CASE = Case(RANKS, lambda rank: (torch.ones(3),))


def watched(answer, listen=""):
    trial = Trial(answer, CASE, listen=listen)
    assert trial.error is None, trial.error
    return trial


def calls(trial, module):
    return any(within(module, name) for name in trial.called)


def held(trial, instead="build it yourself", solved=(SOLVED,), **options):
    made = exercise(lambda tensor: None, [CASE])
    Own("", instead, solved, **options).judge(made, trial, made.right(CASE))


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
    with pytest.raises(Wrong, match=r"you call tinydist\.collectives, which already solves this; build it yourself"):
        held(watched(answer))


def test_messages_alone_are_ones_own():
    def answer(tensor):
        dist.send(tensor, 1) if dist.get_rank() == 0 else dist.recv(tensor, 0)

    trial = watched(answer)
    held(trial, only=["message"])
    assert calls(trial, "torch.distributed") and not calls(trial, "tinydist.coll")  # a part of a name is no module


@pytest.mark.parametrize("collective", [dist.all_reduce, lambda tensor: dist.broadcast(tensor, 0)])
def test_collectives_of_torch_are_named(collective):
    with pytest.raises(
        Wrong, match=r"torch\.distributed\.(all_reduce|broadcast) is not allowed here; build it yourself"
    ):
        held(watched(collective), only=["message"])


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
    for program, found in ((answer, False), (starts_one, True)):
        assert calls(watched(program), "tinydist.attention.mask") is found


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
    with pytest.raises(Wrong) if found else nullcontext():
        held(watched(of_a_class), solved=["tinydist.precision"], lent=lent)


def test_a_function_can_be_what_is_solved():
    trial = watched(by_its_name)
    assert calls(trial, "tinydist.collectives.tree.broadcast") and not calls(trial, "tinydist.collectives.tree.reduce")


def test_what_is_called_is_told_by_its_name_for_a_learner():
    trial = watched(by_its_name)
    held(trial, "do it", {"tinydist.zero": "ZeRO"})
    with pytest.raises(Wrong) as wrong:
        held(trial, "do it", {SOLVED: "the library"})
    assert str(wrong.value) == "you call the library, which already solves this; do it"


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
    for word, told in (("attention", {found}), ("softmax", set()), ("", set())):
        assert watched(answer, word).torchs == told
    with pytest.raises(Wrong, match=f"you call torch's {found}, which already solves this; build it"):
        held(watched(answer, "attention"), "build it", (), torchs="attention")


def test_who_looked_on_before_does_so_after():
    seen = []

    def note(*event):
        seen.append(event)

    def answer(tensor):
        before = sys.gettrace()
        sys.settrace(note)
        try:
            with Tracer():
                pass
            assert sys.gettrace() is note
        finally:
            sys.settrace(before)

    trial = Trial(answer, Case(1, lambda rank: (torch.ones(1),)))
    assert trial.error is None and seen
