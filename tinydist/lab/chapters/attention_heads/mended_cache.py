"""Attention with a cache, for prompts and for the tokens after them, with three bugs.

None of them shows in the prompts alone, if they are of one length. The first hides the second: where padding is
counted, all rows have the same length.
"""

from functools import partial

import torch
import torch.nn.functional as F

from ....attention import rotate
from ...alone import Calls, input_of
from ...errors import Wrong
from ...exercise import exercise
from ...own_work import Watched, calls_none_of
from ...verdict import Property
from .attend import close, explained
from .own_work import SOLVED
from .prompts import Prompts, empty, in_pieces
from .results import tensor_like, whole_numbers
from .slots import content

CASES = {
    "a prompt of 4 tokens, at once": Prompts(2, 2, 4, ((4,),)),
    "two prompts of 3 tokens, and 2 steps": Prompts(4, 2, 4, ((3, 3), (1, 1), (1, 1))),
    "a prompt of 5 tokens, in pieces of 3 and 2": Prompts(3, 1, 4, ((3,), (2,))),
    "prompts of 4, 1 and 2 tokens, and 3 steps": Prompts(4, 2, 6, ((4, 1, 2), (1, 1, 1), (1, 1, 1), (1, 1, 1))),
    "prompts of 2 and 3 tokens, and 2 and 4 more at once": Prompts(2, 1, 4, ((2, 3), (2, 4))),
}


def cases():
    for about, prompts in CASES.items():
        yield input_of(partial(empty, prompts), about, prompts)


def properties(answer):
    watched = Watched(answer)
    trials = Calls(in_pieces(watched), cases())
    own_work = calls_none_of(watched, SOLVED, "mend what is given", lent=["tinydist.attention.rotary"])
    yield Property("own work", "torch's attention, not the library's", trials.together(own_work))
    yield Property("runs", "numbers of the shape and dtype of q come back", lambda: came_back(trials))
    yield Property("lengths", "each row is longer by its real tokens", trials.each(longer))
    yield Property("cache", "keys and values where they belong", trials.each(kept))
    yield Property("values", "those without a cache, for each real token", trials.each(right))


def came_back(trials):
    trials.end()
    trials.each(form)()


def form(trial):
    for got, (q, *_) in zip(trial.returned[0][0], trial.case.expected.pieces):
        tensor_like(got, q, "[B, H, T, d]")


def longer(trial):
    prompts, lengths = trial.case.expected, trial.returned[0][1]
    for number, (now, right) in enumerate(zip(lengths, prompts.starts[1:])):
        got = whole_numbers("cache.lengths", now)
        if got != list(right):
            raise Wrong(
                f"after call {number + 1} cache.lengths is {got}, where {list(right)} is right"
                f"{why(got, right, prompts, number)}"
            )


def why(got, right, prompts, number):
    starts, counts = prompts.starts[number], prompts.counts[number]
    if got == [start + max(counts) for start in starts]:
        return ": padding is counted. Of row b only the first counts[b] tokens are real"
    if got == list(starts):
        return ": the next call writes over this one's tokens"
    return f": there were {list(starts)}, and counts is {list(counts)}"


def kept(trial):
    prompts, (_, _, *room) = trial.case.expected, trial.returned[0]
    plan, cache = prompts.plan, trial.arguments[0][0]
    wanted = plan.after(plan.steps)
    for name, mine in zip(("keys", "values"), room):
        if getattr(cache, name) is not mine:
            raise Wrong(f"cache.{name} is another tensor than before: there is room in it, so write into it")
        for row, length in enumerate(prompts.starts[-1]):
            for slot in range(length):
                if not close(mine[row, :, slot], getattr(wanted, name)[row, :, slot]):
                    raise Wrong(f"row {row}, slot {slot}: {content(plan, name, mine, row, slot, slot)}")


def right(trial):
    prompts, (outs, *_) = trial.case.expected, trial.returned[0]
    for number, got in enumerate(outs):
        wanted = prompts.without_cache[number]
        wrong = [row for row, each in enumerate(wanted) if not close(got[row, :, : each.shape[1]], each)]
        if wrong:
            raise Wrong(f"in call {number + 1}, {reason(prompts, number, got) or first_wrong(got, wanted, wrong[0])}")


def reason(prompts, number, got):
    real = torch.arange(got.shape[2]) < torch.tensor(prompts.counts[number])[:, None]  # [B, T]

    def of_real(x):
        return x.transpose(1, 2)[real]

    if close(of_real(got), of_real(prompts.pieces[number][0])):
        return "q came back as it was"
    made = [(words, partial(prompts.gathered, number, *how)) for words, how in MISTAKES.items()]
    return explained(of_real(got), [(words, lambda make=make: of_real(make())) for words, make in made])


def first_wrong(got, wanted, row):
    off = ~torch.isclose(got[row, :, : wanted[row].shape[1]].double(), wanted[row], rtol=1e-4, atol=1e-5)
    head, query, number = off.nonzero()[0].tolist()
    return (
        f"row {row}, head {head}, query {query} begins to differ at {got[row, head, query, number].item():.5g}, where "
        f"{wanted[row][head, query, number].item():.5g} is right"
    )


# Who sees what: positions [B, T] -> bool [B, 1, T, S].


def own_past(positions, T, S, beyond=0):
    return torch.arange(S) <= positions[:, None, :, None] + beyond


def beside_the_first(positions, T, S):
    return torch.ones(T, S, dtype=torch.bool).tril()


def beside_the_last(positions, T, S):
    return torch.ones(T, S, dtype=torch.bool).tril(S - T)


def all_keys(positions, T, S):
    return torch.ones(T, S, dtype=torch.bool)


MISTAKES = {
    "query 0 sees key 0 alone, query 1 two keys: is_causal=True puts the first query beside the first key. With a past "
    "in the cache, query i stands at its position, and sees the keys up to there: give a mask": (beside_the_first,),
    "the last query stands beside the longest row's last key, in all rows: in a shorter one it sees padding": (
        beside_the_last,
    ),
    "the mask is missing: a query sees all slots, also those of tokens after itself": (all_keys,),
    "a query does not see itself: its own key is among those that it sees": (partial(own_past, beyond=-1),),
    "a query sees one slot too many, the one behind itself": (partial(own_past, beyond=1),),
    "keys are turned to their row's positions, and queries to the longest row's": (own_past, "longest"),
    "queries are turned to a position one too large": (own_past, 1),
}


@exercise(
    chapter="09_attention_heads",
    title="Find three bugs in attention with a cache",
    minutes=15,
    difficulty=3,
    targets={
        "lengths": "each row grows by counts[b], not by its padding",
        "cache": "each row's keys, turned to their positions, and values in its first lengths[b] slots; behind them "
        "anything",
        "values": "those without a cache: prompts at once, in pieces, of one length and of different ones, and steps "
        "after them",
    },
    hints=[
        "For a prompt alone it is right, and for two of one length. Run check: what do prompts of different lengths "
        "leave in cache.lengths?",
        "A row with n tokens writes slots n, n + 1, ... At which positions do these tokens stand? `rotate` takes "
        "positions [B, T].",
        "is_causal=True is tril() of [T, S]: with one query, it sees key 0. attn_mask takes bool [B, 1, T, S], true "
        "for what is seen: compare torch.arange(S) with each query's position.",
    ],
    why="The prefill of one prompt hides all three, and so would a test with one. A decode loop with "
    "is_causal=True still writes fluent text, from the first token alone, and with one position for all rows a "
    "batch changes its answers with what else is in it.",
    check=properties,
)
def mended_cache(q, k, v, cache, counts):
    """Mend this attention with a cache: it has three bugs.

    q [B, H, T, d], k and v [B, G, T, d] are T tokens of each row, not yet turned: of row b the first ``counts[b]`` are
    real, the rest is padding. It is called for a prompt, or piece after piece of it, and then for a token at a time,
    with the cache of exercise 2: the next real tokens stand behind those of before. Padding may be
    written behind them, as the next call writes over it, and what comes back for it has no meaning.
    """
    n, T = cache.lengths.clone(), q.shape[2]
    S = int(n.max()) + T
    slots = n[:, None] + torch.arange(T)  # [B, T]
    positions = torch.arange(S - T, S)
    q, k = rotate(q, positions), rotate(k, positions)
    rows = torch.arange(len(q))[:, None]
    cache.keys[rows, :, slots] = k.transpose(1, 2)
    cache.values[rows, :, slots] = v.transpose(1, 2)
    cache.lengths += T
    keys, values = cache.keys[:, :, :S], cache.values[:, :, :S]
    return F.scaled_dot_product_attention(q, keys, values, is_causal=True, enable_gqa=True)
