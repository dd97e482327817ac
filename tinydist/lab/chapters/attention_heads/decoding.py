"""A step of decoding: each row's new token is kept behind its last one, and gathers from its own past alone."""

import functools
from functools import partial

import torch

from ...alone import Calls, input_of
from ...errors import Wrong
from ...exercise import exercise
from ...own_work import Watched
from ...verdict import Property
from .attend import close
from .cache import SPARE, Plan, generating
from .held import holds_no_copy
from .mistaken_steps import reason
from .own_work import own_work
from .results import tensor_like, whole_numbers
from .slots import same_slots

PLANS = {
    "one row of 3 tokens, multi-query": Plan(3, 1, 4, (3,), 3 + 2 + SPARE, steps=2),
    "two rows of 4 tokens, multi-head": Plan(2, 2, 6, (4, 4), 4 + 2 + SPARE, steps=2),
    "rows of 2, 5 and 0 tokens, grouped heads": Plan(4, 2, 8, (2, 5, 0), 5 + 3 + SPARE, low=True),
}
LONG = {"rows of 500 and 300 tokens in 512 slots": Plan(8, 2, 64, (500, 300), 512)}


def cases():
    for about, plan in (PLANS | LONG).items():
        yield input_of(partial(copies, *start(plan)), about, plan)


@functools.cache
def start(plan):
    return plan.past(), [plan.step(number) for number in range(plan.steps)]


def copies(past, steps):
    """Nothing else is made while the ledger counts."""
    return past.copy(), [[each.clone() for each in step] for step in steps]


def properties(answer):
    watched = Watched(answer, torchs="attention")
    trials = Calls(generating(watched), cases())
    yield Property(
        "own work",
        "built from products and a softmax",
        own_work(watched, trials, lent=["tinydist.attention.rotary"]),
    )
    yield Property("runs", "numbers of the shape and dtype of q come back", lambda: came_back(trials))
    yield Property("lengths", "each row is one longer after a step", trials.each(longer))
    yield Property("cache", "each row writes behind its own last token", trials.each(kept))
    yield Property("values", "step after step, those without a cache", trials.each(right))
    yield Property("memory", "no copy of the cache", trials.each(in_place, long))


def long(case):
    return case.about in LONG


def came_back(trials):
    trials.end()
    trials.each(form)()


def form(trial):
    outs, *_ = trial.returned[0]
    for got in outs:
        tensor_like(got, trial.case.expected.step(0)[0], "[B, H, 1, d]")


def longer(trial):
    plan, lengths = trial.case.expected, trial.arguments[0][0].lengths
    wanted = [length + plan.steps for length in plan.lengths]
    got = whole_numbers("cache.lengths", lengths)
    if got != wanted:
        still = ": the next step writes over this one's token" if got == list(plan.lengths) else ""
        raise Wrong(f"after {plan.steps} steps cache.lengths is {got}, where {wanted} is right{still}")


def kept(trial):
    plan, cache = trial.case.expected, trial.arguments[0][0]
    _, *room = trial.returned[0]
    for name, before in zip(("keys", "values"), room):
        now = getattr(cache, name)
        if not isinstance(now, torch.Tensor) or now.shape != before.shape or now.data_ptr() != before.data_ptr():
            raise Wrong(
                f"cache.{name} is another tensor than before, so all of it was copied, for one token more. There is "
                f"room for {plan.slots} tokens in each row: write into it"
            )
    same_slots(plan, *room)


def right(trial):
    plan, (outs, *_) = trial.case.expected, trial.returned[0]
    for number, got in enumerate(outs):
        wanted = plan.without_cache(number)
        if not close(got, wanted):
            raise Wrong(f"in step {number + 1}, {reason(plan, number, got, wanted)}")


def in_place(trial):
    plan, (cache, steps) = trial.case.expected, trial.arguments[0]
    q, k, _ = steps[0]
    given = cache.nbytes + sum(each.nbytes for step in steps for each in step)
    needed = max(plan.lengths) + plan.steps
    holds_no_copy(trial, given, q[..., 0].numel() * needed * 4, k[..., 0].numel() * needed * plan.d * 4)


@exercise(
    chapter="09_attention_heads",
    title="Decode a token with a cache",
    minutes=35,
    difficulty=4,
    targets={
        "values": "step after step those without a cache, each row as if it were alone: rows of one length and of "
        "different ones, an empty one too",
        "cache": "each row's key, turned, and value stand behind its own last token; all else stays as it was",
        "memory": "with 512 slots at most 8 times the bytes of the scores in each step, by the ledger: no copy of "
        "the cache",
    },
    hints=[
        "A row with n tokens has them in slots 0 to n - 1, at positions 0 to n - 1. Where does the new one stand, and "
        "which slots does it see?",
        "Both are n: position n, slot n; and it sees slots 0 to n. n differs from row to row: cache.lengths, before "
        "you add 1 to it. `rotate` takes positions [B, 1].",
        "Indexing with two tensors writes one slot in each row: cache.keys[torch.arange(B), :, n] = k[:, :, 0]. "
        "cache.keys[:, :, :S], up to the longest row, is a view.",
        "The mask hides the rest of each row: torch.arange(S) > n[:, None, None, None] is [B, 1, 1, S]. If n is "
        "cache.lengths itself, `+= 1` changes it, too: .clone(), or add at the end.",
    ],
    why="Every server for language models runs this step, for sequences that came at different times. What it takes is "
    "the reading of the cache: if each step also copied it, that would be twice as much to write and read again.",
    check=properties,
)
def decode_step(q, k, v, cache):
    """Attend for one new token in each row of a batch, and keep its key and value: [B, H, 1, d].

    q is [B, H, 1, d], k and v are [B, G, 1, d], not yet turned; query head h reads head h // (H/G). ``cache.keys`` and
    ``cache.values`` are [B, G, slots, d], ``cache.lengths`` [B], a tensor of whole numbers: in row b the first
    ``cache.lengths[b]`` slots are in use, keys turned to their positions, and what the others hold has no meaning.
    There is room.

    Write k, turned, and v into the cache, make ``cache.lengths`` one longer, and return what the new tokens gather
    from their own row's tokens, themselves included. ``rotate(x, positions)`` turns x [B, heads, T, d] to positions
    [B, T]; positions count from 0.
    """
    (B, H, _, d), G = q.shape, k.shape[1]
    # where does each row's new token stand?  [B]
    # turn q and k; write k and v, a slot in each row
    # the keys and values up to the longest row: views.  [B, G, S, d]
    # scores, scaled.  [B, H, 1, S]
    # what does each row not see?  [B, 1, 1, S]
    # a mean of the values
    raise NotImplementedError
