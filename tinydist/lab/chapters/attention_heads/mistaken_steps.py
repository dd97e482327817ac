"""What a step of decoding gives if the cache is right, and something else is not."""

from functools import partial

import torch

from .attend import (
    AFTER,
    FINITE,
    ITSELF,
    LOW,
    LOWER,
    NOT_INF,
    ZERO,
    attend,
    close,
    explained,
    first_difference,
    reordered,
    wrong_parts,
)
from .cache import rotate


def reason(plan, number, got, wanted):
    q, cache, seen = at_step(plan, number)
    if close(got, plan.step(number)[0]):
        return "q came back as it was"
    found = explained(got, [(words, partial(make, plan, number)) for words, make in mistakes(plan)])
    found = found or reordered(q, cache.keys, cache.values, got, visible=seen)
    if not found and got.isnan().any():
        return (
            f"it has NaN. Is there a row whose scores are all so low, {LOW:,} say, that exp of each is 0? {LOWER}. Or "
            "one that sees no key?"
        )
    return found or first_difference(got, wanted)


def mistakes(plan):
    """(Words, what (plan, number of the step) then gives). The cache is right: other things are not."""

    def option(**options):
        return partial(gathered, **options)

    made = {
        "a row reads slots behind its own last token: padding, which no token wrote. Its own length says what it sees, "
        "not the longest row's": option(visible=up_to_the_longest),
        "all rows read as many slots as row 0 has tokens: each has a length of its own": option(
            visible=up_to_the_first
        ),
        "all rows read as many slots as the shortest has tokens: each has a length of its own": option(
            visible=up_to_the_shortest
        ),
        "a row reads all slots of the cache, also those that no token has written yet": option(visible=all_slots),
        "a row reads one slot too many: its new token is the last that it sees": option(beyond=1),
        ITSELF.replace("a query", "the new token"): option(beyond=-1),
        "the query is not turned to its position, and the keys are": option(turn=None),
        "the query is turned to a position one too large: with n tokens before it, it stands at n": option(turn=1),
        "the query is turned to a position one too small: with n tokens before it, it stands at n": option(turn=-1),
        "the query is turned to the longest row's position, not to its own": option(turn="longest"),
        **{words: option(**options) for words, options in wrong_parts(plan.heads).items() if "dim" not in options},
        NOT_INF: option(how=FINITE),
    }
    hows = {ZERO: 0, AFTER: "after", NOT_INF: FINITE}
    return [*made.items(), *((words, option(how=how, to_longest=True)) for words, how in hows.items())]


def gathered(plan, number, turn=0, beyond=0, visible=None, to_longest=False, **options):
    """``turn``: the query to a position so much too large. ``beyond``: sees so many slots too many. ``to_longest``: the
    slots behind the longest row's are not there."""
    q, cache, mask = at_step(plan, number, turn, beyond)
    mask = visible(cache) if visible else mask
    S = int(cache.lengths.max()) if to_longest else plan.slots
    return attend(q, cache.keys[:, :, :S], cache.values[:, :, :S], visible=mask[..., :S], **options)


def at_step(plan, number, turn=0, beyond=0):
    """q, turned; the cache; who sees what in it, [B, 1, 1, slots]."""
    q, cache = plan.step(number)[0], plan.after(number + 1)
    at = cache.lengths[:, None] - 1
    if turn is not None:
        q = rotate(q, at.max().expand(len(at), 1) if turn == "longest" else at + turn)
    return q, cache, torch.arange(plan.slots) <= at[:, None, None] + beyond


def up_to_the_longest(cache):
    return torch.arange(cache.keys.shape[2]) < cache.lengths.max()


def up_to_the_first(cache):
    return torch.arange(cache.keys.shape[2]) < cache.lengths[0]


def up_to_the_shortest(cache):
    return torch.arange(cache.keys.shape[2]) < cache.lengths.min()


def all_slots(cache):
    return torch.ones(cache.keys.shape[2], dtype=torch.bool)
