"""The exercises on flash attention: what they are judged by is right, other right answers pass, and with room."""

import math
from unittest import mock

import pytest
import torch
from lab.shipped import ROOT

from tinydist.attention import attention
from tinydist.attention.online_softmax import Part, finish, merge
from tinydist.lab import judge
from tinydist.lab.chapters.flash_attention import (
    columns,
    flash_column,
    flash_row,
    lengths,
    mended_flash,
    merged_states,
    rows,
)
from tinydist.lab.chapters.flash_attention.compare import alike
from tinydist.lab.chapters.flash_attention.states import NAMES, mistaken
from tinydist.lab.errors import Wrong
from tinydist.lab.exercise import CATALOGUE
from tinydist.lab.notebook import answer_in
from tinydist.lab.ranks import Trial

OF_LSE = list(rows.mistaken(*flash_row.CASES[0].input().arguments(0)))[-6:]
MANY = [
    (flash_row, flash_row.CASES, flash_row.flash_row),
    (flash_column, flash_column.CASES, flash_column.flash_column),
    (mended_flash, lengths.CASES, mended_flash.mended_flash),
]


def solution(name):
    return answer_in(ROOT / "solutions" / "10_flash_attention.ipynb", name)


def heads(*tensors):
    return (tensor[None, None] for tensor in tensors)


# What is right.


def finite(case):
    return [each.nan_to_num() if isinstance(each, torch.Tensor) else each for each in case.arguments(0)]


@pytest.mark.parametrize("case", [tiles.input() for tiles in flash_row.CASES if "NaN in" not in tiles.about], ids=str)
def test_a_row_is_that_of_attention(case):
    q, k, v, start, _ = finite(case)
    _, out, lse = case.expected
    visible = torch.arange(len(k)) <= torch.arange(start, start + len(q))[:, None]
    assert alike(out, attention(*heads(q, k, v), mask=visible)[0, 0])
    scores = (q.double() @ k.double().T / math.sqrt(q.shape[1])).masked_fill(~visible, -math.inf)
    assert alike(lse, scores.logsumexp(1))


@pytest.mark.parametrize("tiles", flash_column.CASES, ids=lambda tiles: tiles.about)
def test_a_column_is_that_of_autograd(tiles):
    *_, dk, dv = tiles.input().expected
    generator = torch.Generator().manual_seed(2)
    n, own = tiles.queries, slice(tiles.start, tiles.start + tiles.keys)
    q, k, v, dout = (torch.randn(n, width, generator=generator) for width in (4, 4, 3, 3))
    q *= 2
    if tiles.loud:
        q[:, 0], k[tiles.start + 1, 0] = 0, 100
        q[tiles.start, 0] = 8
    k, v = k.requires_grad_(), v.requires_grad_()
    attention(*heads(q, k, v), causal=True).backward(dout[None, None])
    assert alike(dk, k.grad[own]) and alike(dv, v.grad[own])


@pytest.mark.parametrize("case", lengths.CASES, ids=lambda case: case.about)
def test_the_whole_is_that_of_attention(case):
    q, k, v = (each.nan_to_num() for each in case.tensors())
    assert alike(lengths.naive(q, k, v), attention(*heads(q, k, v), causal=True)[0, 0])


@pytest.mark.parametrize("case", list(merged_states.cases()), ids=str)
def test_merged_attention_is_that_of_the_library(case):
    parts = [Part(lse[:, None], (lse[:, None] > -math.inf).float(), out) for out, lse in case.arguments(0)]
    out, lse = finish(merge(*parts))
    assert all(map(alike, case.expected, (out, lse[:, 0])))


def test_scores_that_are_said_to_be_low_or_loud_are():
    for about, place, least, most in (("low", (0, 0), -2100, -2000), ("hidden", (0, 5), 390, 410)):
        case = next(each.input() for each in flash_row.CASES if about in each.about.split())
        q, k, *_ = case.arguments(0)
        assert least < (q @ k.T / 2)[place] < most


# Each mistake has one explanation.


def told(cases, mistakes, right):
    """words -> what is told to one who makes that mistake, in the first case that shows it."""
    found, results = {}, [(mistakes(case), right(case)) for case in cases]
    for words in results[0][0]:
        shown = [each for each, expected in results if words in each and not alike(each[words], expected)]
        if shown:
            found[words] = next(other for other in shown[0] if alike(shown[0][other], shown[0][words], nan=True))
    return found


@pytest.mark.parametrize("place", [0, 1], ids=NAMES)
def test_mistakes_in_a_merge_are_told_apart(place):
    def mistakes(case):
        return mistaken(*case.arguments(0))[NAMES[place]]

    words = told(merged_states.cases(), mistakes, lambda case: case.expected[place])
    assert len(words) >= (7 if place else 10) and all(mistake == said for mistake, said in words.items())


@pytest.mark.parametrize("place", [0, 1], ids=["out", "lse"])
def test_mistakes_in_a_row_are_told_apart(place):
    """The output is looked at first."""

    def mistakes(case):
        wrong = rows.mistaken(*finite(case)).items()
        return {words: pair[place] for words, pair in wrong if (words in OF_LSE) == place}

    words = told([tiles.input() for tiles in flash_row.CASES[:-3]], mistakes, lambda case: case.expected[1 + place])
    assert len(words) >= (6 if place else 14) and all(mistake == said for mistake, said in words.items())


@pytest.mark.parametrize("place", [0, 1], ids=["dk", "dv"])
def test_mistakes_in_a_column_are_told_apart(place):
    def mistakes(case):
        return {words: pair[place] for words, pair in columns.mistaken(*finite(case)).items()}

    words = told([tiles.input() for tiles in flash_column.CASES[:-2]], mistakes, lambda case: case.expected[1 + place])
    assert len(words) >= 10 and all(mistake == said for mistake, said in words.items())


# The given program has the four bugs that it claims, each of which shows in a property of its own.


def test_the_bugs_of_the_given_program():
    stub = CATALOGUE["mended_flash"].stub
    found = {}
    for case in lengths.CASES[:-2]:
        trial = Trial(stub, case.input())
        if trial.error is not None:
            found[case.about] = "error"
            continue
        try:
            (mended_flash.zeros if "nothing" in case.about else mended_flash.attended)(trial)
        except Wrong as wrong:
            found[case.about] = str(wrong)
    assert "one tile" not in found
    assert "rescaling is forgotten" in found["three tiles by three"]
    assert "tiles of one" in found
    assert "-inf - -inf" in found["more queries, of which some see nothing"]
    assert found["short last tiles"] == "error"


# Room, and other right answers.


@pytest.mark.parametrize("module, cases, stub", MANY, ids=lambda each: getattr(each, "__name__", ""))
def test_solutions_hold_half_of_what_is_granted_at_most(module, cases, stub):
    many = next(each for each in cases if "many" in each.about)
    trial = Trial(solution(stub.__name__), many.input())
    with mock.patch.object(module, "TILES", module.TILES / 2):
        module.held(trial)


def test_merging_by_a_sigmoid_passes():
    """As ring attention does: the output moves to b by b's part of the total."""

    def merge_states(a, b):
        of_b = (b[1] - a[1]).sigmoid().nan_to_num()[:, None]
        return a[0] + of_b * (b[0] - a[0]), torch.logaddexp(a[1], b[1])

    assert judge(merge_states).passed


def test_a_row_by_normalized_outputs_passes():
    """In the order of FlashAttention: the output is divided in every tile."""

    def flash_row(q, k, v, start, tile):
        lse, out = torch.full((len(q), 1), -math.inf), torch.zeros(len(q), v.shape[1])
        p = torch.arange(start, start + len(q))[:, None]
        for first in range(0, min(len(k), start + len(q)), tile):
            seen = slice(first, min(first + tile, start + len(q)))
            scores = torch.einsum("td,sd->ts", q, k[seen]) / math.sqrt(q.shape[1])
            scores = scores.masked_fill(torch.arange(first, first + scores.shape[1]) > p, -math.inf)
            new = torch.logaddexp(lse, scores.logsumexp(1, keepdim=True))
            out, lse = out * (lse - new).exp() + (scores - new).exp() @ v[seen], new
        return out, lse.squeeze(1)

    assert judge(flash_row).passed


def test_a_column_from_its_own_first_query_on_passes():
    def flash_column(k, v, q, dout, lse, delta, start, tile):
        dk, dv, root = torch.zeros_like(k), torch.zeros_like(v), math.sqrt(q.shape[1])
        for first in range(start, len(q), tile):
            rows = slice(first, first + tile)
            scores = k @ q[rows].T / root
            unseen = torch.arange(first, first + scores.shape[1]) < torch.arange(start, start + len(k))[:, None]
            weights = (scores - lse[rows]).exp().masked_fill(unseen, 0)
            dk += weights * (v @ dout[rows].T - delta[rows]) @ q[rows] / root
            dv += weights @ dout[rows]
        return dk, dv

    assert judge(flash_column).passed
