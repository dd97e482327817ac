"""Where the cache's memory goes: tokens, or three kinds of waste.

    reserved for 2048    a b c d e . . . - - - - - - - - - - -       reserved: . , tokens that will come
                                                                     internal: - , none will ever be there
    free                 between two pieces, or too little           external: it is of no use to those who wait

In blocks of B, a sequence holds less than one block that it does not fill, (B - 1)/2 slots on the mean, if its length
has nothing to do with B; so of what n sequences of T tokens hold,

    waste = (B - 1)/2 / (T + (B - 1)/2)        ShareGPT, T = 499, B = 16: 1.5 %     Alpaca, T = 78: 8.8 %; B = 4: 1.9 %

Reserved in one piece for L tokens, each wastes 1 - T/L: three quarters of 2048.

Source: Kwon et al. 2023, PagedAttention, section 3.1 and figure 2, where the three kinds have these names.
"""

from ..rules import count, each_of, positive, takes
from .policies import Reserving
from .trace import Ask

KINDS = "tokens", "reserved", "internal", "external", "free"  # free: nobody waits for it


@takes(tokens=positive, block_size=count)
def expected_waste(tokens, block_size=16):
    """The part of what sequences hold in blocks that no token is in, at a mean length of so many tokens."""
    spare = (block_size - 1) / 2
    return spare / (tokens + spare)


@takes(trace=each_of(Ask), block_size=count)
def waste_in_blocks(trace, block_size=16):
    """The same, counted: when all of a trace's requests have their last token."""
    held = sum(-(-each.tokens // block_size) * block_size for each in trace)
    return 1 - sum(each.tokens for each in trace) / held


@takes(trace=each_of(Ask), reserved=count)
def waste_reserved(trace, reserved=2048):
    """Counted, if so many tokens are reserved for each."""
    longest = max(each.tokens for each in trace)
    if longest > reserved:
        raise ValueError(f"waste_reserved: request length ({longest}) exceeds the reservation ({reserved})")
    return 1 - sum(each.tokens for each in trace) / (reserved * len(trace))


def memory_of(scheduler):
    """Now, in slots: kind -> how many. A sequence that has ended, and keeps its place, has tokens that nobody needs."""
    pool, kinds = scheduler.pool, dict.fromkeys(KINDS, 0)
    spare = {}  # of the block that is filled next, which samples may share: slots that will be filled, that never will
    for sequence in scheduler.running:
        table = sequence.table
        to_come = 0 if sequence.reason else min(table.waste, sequence.request.longest - table.length)
        spare[table.blocks[-1]] = to_come, table.waste - to_come
        kinds["internal"] += table.length if sequence.reason else 0
    kinds["reserved"] = sum(to_come for to_come, _ in spare.values())
    kinds["internal"] += sum(never for _, never in spare.values())
    kinds["external" if waits_for_memory(scheduler) else "free"] = len(pool.free) * pool.block_size
    kinds["tokens"] = pool.blocks * pool.block_size - sum(kinds.values())
    return kinds


def waits_for_memory(scheduler):
    """There is a place, and somebody who wants it; but what is free is in pieces, or too little."""
    pool, policy = scheduler.pool, scheduler.policy
    if not scheduler.waiting or len(scheduler.running) >= policy.slots:
        return False
    return isinstance(policy, Reserving) or pool.needed(len(scheduler.waiting[0].tokens)) > len(pool.free)
