"""Grouped-query attention: neighboring query heads read one head of keys and values, where it lies."""

from functools import partial

import torch
import torch.nn.functional as F

from ...alone import Calls, copied, input_of
from ...errors import Wrong
from ...exercise import exercise
from ...own_work import Watched
from ...verdict import Property
from .attend import (
    FINITE,
    LOW,
    LOWER,
    NOT_INF,
    WRONG_MASKS,
    attend,
    beside_the_last,
    close,
    explained,
    first_difference,
    folded_masks,
    reordered,
    with_score,
    wrong_parts,
)
from .held import holds_no_copy
from .own_work import own_work
from .results import tensor_like

# B, H, G, T, S, d
EACH_ITS_OWN = [(2, 3, 3, 5, 5, 7), (1, 1, 1, 1, 1, 2)]
SHARED = [(2, 6, 3, 5, 5, 7), (3, 5, 1, 4, 4, 3)]
FEW_QUERIES = [(2, 6, 2, 3, 8, 5), (2, 4, 2, 1, 9, 6)]
LARGE_SCORES = (1, 4, 2, 5, 5, 4)
LOW_SCORE = (1, 2, 1, 3, 3, 4)
LONG = (2, 8, 2, 1, 512, 64)


def tensors(B, H, G, T, S, d, size=None):
    """``size``: of queries, for large scores. Whole numbers then, so that these are exact, and so are the weights."""
    generator = torch.Generator().manual_seed(T * S + H)
    q, k, v = (torch.randn(B, heads, tokens, d, generator=generator) for heads, tokens in ((H, T), (G, S), (G, S)))
    return (q, k, v) if size is None else ((q * size).round(), (k * 8).round() / 8, v)


def with_a_low_score(q, k, v):
    """Query 0 and key 0, the only one that it sees, have a score of LOW."""
    q[:, :, 0] = with_score(LOW, k[:, :, 0], q.shape[1])
    return q, k, v


def case(kind, shape, given=None):
    given, (_, H, G, T, S, _) = given or tensors(*shape), shape
    about = f"{H} query heads on {G} of keys and values, {T} quer{'ies' if T > 1 else 'y'} on {S} key{'s' * (S > 1)}"
    return input_of(partial(copied, given), about, given, kind)


def cases():
    for kind, shapes in (("own", EACH_ITS_OWN), ("shared", SHARED), ("few", FEW_QUERIES), ("long", [LONG])):
        for shape in shapes:
            yield case(kind, shape)
    yield case("large", LOW_SCORE, with_a_low_score(*tensors(*LOW_SCORE)))
    yield case("large", LARGE_SCORES, tensors(*LARGE_SCORES, size=200))


def properties(answer):
    watched = Watched(answer, torchs="attention")
    trials = Calls(watched, cases())
    own, shared, few, large, long = (partial(of, kind) for kind in ("own", "shared", "few", "large", "long"))
    yield Property("own work", "built from products and a softmax", own_work(watched, trials))
    yield Property("runs", "numbers of the shape and dtype of q come back", lambda: came_back(trials))
    yield Property("multi-head", "each query head has keys and values of its own", trials.each(right, own))
    yield Property("grouped", "neighboring query heads share keys and values", trials.each(right, shared))
    yield Property("few queries", "the last of them beside the last key", trials.each(right, few))
    yield Property("overflow", "scores may be large", trials.each(right, large))
    yield Property("memory", "no copy of keys and values", trials.each(in_place, long))


def of(kind, case):
    return case.kind == kind


def came_back(trials):
    trials.end()
    trials.each(form)()


def form(trial):
    given = trial.case.expected
    tensor_like(trial.returned[0], given[0], "[B, H, T, d]")
    for name, before, after in zip("qkv", given, trial.arguments[0]):
        if not torch.equal(before, after):
            raise Wrong(f"{name} itself was changed. Whoever called you still needs it: work on new numbers")


def right(trial):
    q, k, v = trial.case.expected
    got, (T, S) = trial.returned[0], (q.shape[2], k.shape[2])
    mask = beside_the_last(T, S)
    wanted = F.scaled_dot_product_attention(*(each.double() for each in (q, k, v)), attn_mask=mask, enable_gqa=True)
    if not close(got, wanted):
        raise Wrong(reason(got, wanted, q, k, v))


def reason(got, wanted, q, k, v):
    if close(got, q):
        return "q came back as it was"
    H, G = q.shape[1], k.shape[1]
    masks = WRONG_MASKS | folded_masks(H, G)
    options = {words: dict(visible=mask) for words, mask in masks.items()} | wrong_parts(H)
    if (q @ k.repeat_interleave(H // G, 1).mT).min() < LOW:
        options = {NOT_INF: dict(how=FINITE), **options}
    made = [(words, partial(attend, q, k, v, **each)) for words, each in options.items()]
    found = explained(got, made) or reordered(q, k, v, got) or misplaced(got, wanted)
    if found:
        return found
    if got.isnan().any():
        scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT / q.shape[3] ** 0.5
        if scores.abs().max() > 89:
            ends = f"{scores.min():,.0f} to {scores.max():,.0f}"
            return f"it has NaN, and scores from {ends}: exp overflows float32 from 89 on, and is 0 below -104. {LOWER}"
        return "it has NaN. A row of scores that are all -inf gives that: does each query see a key?"
    return first_difference(got, wanted)


def misplaced(got, wanted):
    """The right heads, in another order."""
    for head in range(wanted.shape[1]):
        same = [other for other in range(wanted.shape[1]) if close(got[:, head], wanted[:, other])]
        if not same:
            return None
        if head not in same:
            return f"head {head} of the result is what head {same[0]} should be: heads change their places on the way"
    return None


def in_place(trial):
    right(trial)
    q, k, v = trial.case.expected
    scores = q[..., 0].numel() * k.shape[2] * q.itemsize
    holds_no_copy(trial, q.nbytes + k.nbytes + v.nbytes, scores, k.nbytes)


@exercise(
    chapter="09_attention_heads",
    title="Grouped-query attention without a copy",
    minutes=25,
    difficulty=2,
    targets={
        "values": "those of torch's scaled_dot_product_attention with enable_gqa: G = H, 1 < G < H, G = 1, odd sizes, "
        "scores of several hundred, and of -2,000",
        "mask": "causal, also where queries are fewer than keys: the last query stands beside the last key",
        "memory": "for one query and 512 keys at most 8 times the bytes of the scores, by the ledger: half of what K "
        "alone has",
    },
    hints=[
        "With H = G it is q @ k.mT / sqrt(d), a mask, a softmax over the keys, @ v. Which head of K does query head h "
        "read if G is smaller? Which query heads have their K in common?",
        "Query heads 0 to H/G - 1 read head 0. To repeat K for them takes memory. Instead, lay their queries one under "
        "the other: they are rows that meet the same keys.",
        "q.reshape(B, G, H // G * T, d) @ k.mT gives all scores with no copy of K; .view(B, H, T, S) puts them back in "
        "order. Scale q, not K.",
        "Query i stands at i + S - T: it sees key j where j <= i + S - T. torch.ones(T, S, dtype=torch.bool) has "
        ".tril(diagonal) for that; scores.masked_fill(~seen, -math.inf). The weights meet v as q met k.",
    ],
    why="A decode step reads all of K and V for one query: Llama 3 70B has 8 heads of them for 64 of queries, so an "
    "eighth of the bytes. A repeat_interleave would write 64 into memory at each step, and with repeat a "
    "converted checkpoint talks nonsense, although all shapes fit.",
    check=properties,
)
def grouped_attention(q, k, v):
    """Causal attention of ``H`` query heads on ``G`` heads of keys and values, in groups of neighbors: [B, H, T, d].

    q is [B, H, T, d], k and v are [B, G, S, d]; G divides H, and T <= S. Query head h reads head h // (H/G). The last
    query stands beside the last key: each sees the key beside it, and all keys before that. K and V may be large: do
    not copy them. A loop over heads copies nothing, and may be used.
    """
    (B, H, T, d), (G, S) = q.shape, k.shape[1:3]
    # which query heads read the same keys? Let them meet these in one product, scaled.  [B, H, T, S]
    # who sees whom?  [T, S]
    # weights that sum to 1 over the keys
    # a mean of the values, with heads in the order of q.  [B, H, T, d]
    raise NotImplementedError
