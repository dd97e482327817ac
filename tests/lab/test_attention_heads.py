"""The exercises on attention heads: what they are judged by is right, other right answers pass, and with room."""

import inspect
import math

import pytest
import torch
from lab.shipped import ROOT
from lab.wrong_answers.attention_heads import decode, one_by_one

from tinydist.attention import PUBLISHED, bytes_a_token, rotate
from tinydist.lab import judge
from tinydist.lab.alone import Calls
from tinydist.lab.chapters.attention_heads import cache_budget, decoding, grouped, mended_cache, mistaken_steps
from tinydist.lab.chapters.attention_heads.attend import LOW, WRONG_MASKS, attend, beside_the_last, close, wrong_parts
from tinydist.lab.chapters.attention_heads.cache import generating
from tinydist.lab.chapters.attention_heads.held import ROOM
from tinydist.lab.chapters.attention_heads.measured_cache import DTYPES, measured
from tinydist.lab.chapters.attention_heads.own_work import own_work
from tinydist.lab.chapters.attention_heads.prompts import in_pieces
from tinydist.lab.errors import Wrong
from tinydist.lab.notebook import answer_in
from tinydist.lab.own_work import Watched


def solution(name):
    return answer_in(ROOT / "solutions" / "09_attention_heads.ipynb", name)


# Other right answers.


def test_attention_head_by_head_passes():
    def grouped_attention(q, k, v):
        return one_by_one(q, k, v)

    assert judge(grouped_attention).passed


def test_attention_by_einsum_passes():
    def grouped_attention(q, k, v):
        (H, T, d), (G, S) = q.shape[1:], k.shape[1:3]
        groups = q.unflatten(1, (G, H // G)) / math.sqrt(d)
        scores = torch.einsum("bgrtd,bgsd->bgrts", groups, k)
        unseen = torch.arange(S) > torch.arange(T)[:, None] + S - T
        weights = torch.softmax(scores.masked_fill(unseen, float("-inf")), -1)
        return torch.einsum("bgrts,bgsd->bgrtd", weights, v).flatten(1, 2)

    assert judge(grouped_attention).passed


def test_a_step_that_reads_all_slots_and_hides_most_passes():
    def decode_step(q, k, v, cache):
        return decode(q, k, v, cache)

    assert judge(decode_step).passed


def test_a_step_row_by_row_passes():
    def decode_step(q, k, v, cache):
        rows = []
        for row, n in enumerate(cache.lengths.tolist()):
            mine = [each[row : row + 1] for each in (q, k, v, cache.keys, cache.values)]
            at = torch.tensor([n])
            mine[3][:, :, n], mine[4][:, :, n] = rotate(mine[1], at)[:, :, 0], mine[2][:, :, 0]
            rows.append(one_by_one(rotate(mine[0], at), mine[3][:, :, : n + 1], mine[4][:, :, : n + 1]))
        cache.lengths += 1
        return torch.cat(rows)

    assert judge(decode_step).passed


# Each mistake has one explanation.


@pytest.mark.parametrize("shape", [grouped.SHARED[0], grouped.FEW_QUERIES[0]])
def test_no_two_mistakes_in_attention_are_alike(shape):
    q, k, v = grouped.tensors(*shape)
    options = [{}, *({"visible": mask} for mask in WRONG_MASKS.values()), *wrong_parts(q.shape[1]).values()]
    all_different([attend(q, k, v, **each) for each in options], but=shape[3] == shape[4])


def test_no_two_mistakes_in_decoding_are_alike():
    plan = list(decoding.PLANS.values())[-1]
    made = [make(plan, 0) for _, make in mistaken_steps.mistakes(plan)]
    all_different([plan.without_cache(0), *made])


def test_no_two_mistakes_with_a_cache_are_alike():
    prompts = mended_cache.CASES["prompts of 2 and 3 tokens, and 2 and 4 more at once"]
    hows = [(mended_cache.own_past,), *mended_cache.MISTAKES.values()]
    all_different([prompts.gathered(1, *how) for how in hows])


def all_different(results, but=False):
    """``but``: the mask of as many queries as keys is right beside the first, too."""
    alike = [(i, j) for j in range(len(results)) for i in range(j) if close(results[i], results[j])]
    right = list(WRONG_MASKS).index(next(words for words in WRONG_MASKS if words.startswith("the first query")))
    assert alike == ([(0, 1 + right)] if but else [])


# The references.


def test_attend_is_what_torch_gives():
    for shape in grouped.SHARED + grouped.FEW_QUERIES:
        q, k, v = (each.double() for each in grouped.tensors(*shape))
        mask = beside_the_last(shape[3], shape[4])
        right = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        torch.testing.assert_close(attend(q, k, v), right, rtol=0, atol=1e-12)


def test_large_scores_overflow_and_are_exact():
    q, k, _ = grouped.tensors(*grouped.LARGE_SCORES, 200)
    scores = q @ k[:, [0, 0, 1, 1]].mT / 2
    assert scores.max() > 89 and torch.equal(scores.double(), q.double() @ k[:, [0, 0, 1, 1]].mT.double() / 2)


@pytest.mark.parametrize("model, tokens, gigabytes", cache_budget.SMALL + cache_budget.LLAMA, ids=str)
def test_what_is_measured_is_the_formula(model, tokens, gigabytes):
    right = bytes_a_token(model.layers, model.kv_heads, model.head_dim, DTYPES[model.dtype])
    assert measured(model, tokens) == right * tokens
    if model.name in PUBLISHED:
        assert PUBLISHED[model.name] == (model.layers, model.kv_heads, model.head_dim)


def test_a_low_score_is_one():
    q, k, _ = grouped.with_a_low_score(*grouped.tensors(*grouped.LOW_SCORE))
    scores = q @ k.mT / 2  # one head of keys
    torch.testing.assert_close(scores[:, :, 0, 0], torch.full((1, 2), float(LOW)))
    plan = list(decoding.PLANS.values())[-1]
    q, k, _ = plan.step(0)
    (row,) = (row for row, length in enumerate(plan.lengths) if length == 0)
    scores = (q[row, :, 0].unflatten(0, (2, 2)) * k[row]).sum(-1) / 8**0.5
    torch.testing.assert_close(scores, torch.full((2, 2), float(LOW)))


@pytest.mark.parametrize("about, wrong", [("a prompt of 4", False), ("two prompts", True), ("pieces", True)])
def test_given_program_is_right_for_a_prompt_alone(about, wrong):
    """Its bugs show where a past is in the cache."""
    case = next(case for case in mended_cache.cases() if about in case.about)
    trials = Calls(in_pieces(mended_cache.mended_cache), [case])
    for judge_it in (mended_cache.longer, mended_cache.kept):
        trials.each(judge_it)()
    if wrong:
        with pytest.raises(Wrong, match="in call 2, query 0 sees key 0 alone"):
            trials.each(mended_cache.right)()
    else:
        trials.each(mended_cache.right)()


def test_prompts_are_attended_as_without_a_cache():
    for prompts in mended_cache.CASES.values():
        for number, right in enumerate(prompts.without_cache):
            got = prompts.gathered(number, mended_cache.own_past)
            for row, each in enumerate(right):
                torch.testing.assert_close(got[row, :, : each.shape[1]], each, rtol=1e-5, atol=1e-6)


def test_llamas_are_as_published():
    """In GiB for the tokens that are asked for: what the configurations of the models give."""
    found = {model.name: measured(model, tokens) / cache_budget.GiB for model, tokens, _ in cache_budget.LLAMA}
    assert found == {
        "Llama 2 7B": 2,
        "Llama 2 70B": 1.25,
        "Llama 3 8B": 1,
        "Llama 3 70B": 2.5,
        "Llama 3.1 405B": 63,
        "OPT 13B": 1.5625,
    }


def test_one_case_has_room_for_no_sequence():
    assert 0 in [int(GB * 10**9) // measured(model, tokens) for model, tokens, GB in cache_budget.LLAMA]


# Room.


@pytest.mark.parametrize("wrap, module", [(lambda answer: answer, grouped), (generating, decoding)])
def test_solutions_hold_half_of_what_is_granted(wrap, module):
    name = "grouped_attention" if module is grouped else "decode_step"
    *_, last = [case for case in module.cases() if getattr(case, "kind", None) == "long" or "500" in case.about]
    (trial,) = Calls(wrap(Watched(solution(name), torchs="attention")), [last]).all
    given = sum(each.nbytes for each in trees(trial.arguments[0]))
    scores = (2 * 8 * 512 if module is grouped else 2 * 8 * 503) * 4
    assert trial.run.memory[0].peak - given <= ROOM * scores / 2


def trees(value):
    if isinstance(value, list | tuple):
        return [tensor for each in value for tensor in trees(each)]
    return [value]


def test_answers_may_call_what_is_lent():
    def turns(q, k, v, cache):
        return rotate(q, cache.lengths[:, None])

    watched = Watched(turns, torchs="attention")
    trials = Calls(generating(watched), list(decoding.cases())[:1])
    own_work(watched, trials, lent=["tinydist.attention.rotary"])()
    with pytest.raises(Wrong, match=r"you call tinydist\.attention, where this is solved"):
        own_work(watched, trials)()
    assert "rotate" in inspect.getdoc(decoding.decode_step)
