"""A scheduler for a memory budget: who goes on, who is preempted, who begins; and nobody waits forever."""

from tinydist.lab.author import exercise, mistake

from .chapter import BY_HAND
from .passes import Passes, served, traffic


def test_cases():
    yield traffic("one request", 4, 4, (5, 6))
    yield traffic("two that fit", 8, 4, (4, 5), (3, 4))
    yield traffic("the second does not fit yet", 3, 4, (7, 3), (6, 4))
    yield traffic("the second does not fit yet, and the third would", 4, 4, (9, 3), (6, 4), (2, 2))
    yield traffic("three that grow until one is preempted", 6, 2, (2, 7), (3, 6), (4, 5))
    yield traffic("one that can never fit comes as another is preempted", 6, 2, (2, 7), (3, 6), (4, 5), (20, 2, 1))
    yield traffic("blocks of one token", 7, 1, (2, 4), (2, 4), (2, 4))
    yield traffic("one is preempted, and another could begin", 4, 2, (2, 6), (3, 5), (1, 2))
    yield traffic("one needs the blocks of two", 5, 2, (4, 6), (1, 5), (2, 4))
    yield traffic("the youngest finds no block", 4, 2, (3, 3), (3, 3), (2, 4, 2))
    yield traffic("one that can never fit, and others behind it", 4, 4, (3, 14), (20, 2), (14, 3), (5, 2), (12, 9))
    yield traffic("one that can never fit, and one behind it that does", 4, 4, (20, 2), (3, 2))
    yield traffic("an empty pool", 0, 16, (3, 2), (1, 1))
    yield traffic("a prompt that takes all there is", 3, 4, (12, 1), (1, 3), (9, 4))
    yield traffic("many that come one after another", 7, 3, *((1 + i % 4, 4 + i % 3, i) for i in range(8)))


WAY = """\
    go_on = [*running]
    while (more := sum(needed(each.tokens) - each.held for each in go_on)) > free:
        free += go_on.pop().held
    free -= more
"""
ROOM_FOR_ONE = (
    "`tokens` all need room, and no more: the token that a pass adds needs its own in the next one, where it is counted"
)
KEPT_FREE = "Requests begin while there are blocks for the tokens that they have: none is kept free for later tokens"
HIMSELF = """\
    go_on = []
    for each in running:
        more = needed(each.tokens) - each.held
        if more > free:
            free += each.held
        else:
            free -= more
            go_on.append(each)
"""


@exercise(
    title="A scheduler that never deadlocks",
    minutes=35,
    difficulty=4,
    test_cases=test_cases,
    program=served,
    targets=[
        BY_HAND,
        Passes(
            "who goes on, begins and is refused, pass after pass until all have ended; never more blocks than "
            "there are",
            variants=[
                (ROOM_FOR_ONE, "-(-tokens // size)", "-(-(tokens + 1) // size)"),
                (
                    ROOM_FOR_ONE,
                    "-(-tokens // size)",
                    "-(-(tokens + 1) // size)",
                    "needed(each.longest) > blocks",
                    "-(-each.longest // size) > blocks",
                ),
                (
                    f"{ROOM_FOR_ONE}. Here it is so of requests that begin",
                    "needed(each.tokens) > free",
                    "needed(each.tokens + 1) > free",
                ),
                (
                    f"{ROOM_FOR_ONE}. Here it is so of requests that begin",
                    "needed(each.tokens)\n            begin",
                    "needed(each.tokens + 1)\n            begin",
                    "needed(each.tokens) > free",
                    "needed(each.tokens + 1) > free",
                ),
                (
                    f"{ROOM_FOR_ONE}. Here it is so of requests that go on",
                    "needed(each.tokens) - each.held",
                    "needed(each.tokens + 1) - each.held",
                ),
                (
                    "`longest` is the most that a request can come to: it needs room for so many tokens, and no more",
                    "needed(each.longest) > blocks",
                    "needed(each.longest + 1) > blocks",
                ),
                (
                    KEPT_FREE,
                    "needed(each.tokens) > free",
                    "needed(each.tokens) + len(go_on) > free",
                ),
                (
                    KEPT_FREE,
                    "needed(each.tokens) > free",
                    "needed(each.tokens) + len(go_on) + len(begin) > free",
                ),
                ("A block that is not full counts, too: round up", "-(-tokens // size)", "tokens // size"),
                (
                    "Who would fit alone, if all others were gone, is not refused: compare with all blocks, not with "
                    "the free ones",
                    "needed(each.longest) > blocks",
                    "needed(each.longest) > free",
                ),
                (
                    "Who needs all blocks fits: refuse who needs more",
                    "needed(each.longest) > blocks",
                    "needed(each.longest) >= blocks",
                ),
                (
                    "A request that is refused holds up no other: those behind it may begin",
                    "                continue\n            if needed",
                    "                break\n            if needed",
                ),
                (
                    "Waiting requests begin while there are blocks, and not one in each pass",
                    "            begin.append(each.name)\n",
                    "            begin.append(each.name)\n            break\n",
                ),
                (
                    "What a request takes that begins is no longer free for the next one",
                    "            free -= needed(each.tokens)\n",
                    "",
                ),
                (
                    "Those that go on take their blocks first, and these are not free for others",
                    "    free -= more\n",
                    "",
                ),
                (
                    "What running requests hold they need not take again: needed(tokens) - held",
                    "needed(each.tokens) - each.held for",
                    "needed(each.tokens) for",
                ),
                (
                    "One may be too few to preempt: go on until there are blocks enough",
                    WAY,
                    WAY.replace("while (", "if (").replace(
                        "free += go_on.pop().held\n", "free += go_on.pop().held\n        more = 0\n"
                    ),
                ),
                (
                    "What needs just as many blocks as are free fits",
                    "needed(each.tokens) > free",
                    "needed(each.tokens) >= free",
                ),
                ("What needs just as many blocks as are free fits", "in go_on)) > free", "in go_on)) >= max(free, 1)"),
            ],
        ),
    ],
    mistakes=[
        mistake(
            "One that can never fit is not refused. It stands first in the queue, and those behind it wait forever",
            "needed(each.longest) > blocks",
            "False",
        ),
        mistake(
            "Its prompt fits, and all that it will write does not: then it runs alone until it has no block, and can "
            "go neither on nor back. Refuse it at once",
            "needed(each.longest) > blocks",
            "needed(each.tokens) > blocks",
        ),
        mistake(
            "A request that finds no block is preempted itself, though others came after it. So may each be in turn: "
            "preempt the last, and the first always goes on",
            WAY,
            HIMSELF,
        ),
        mistake(
            "The request that came first is preempted, and computes again; none need ever come to its end. Preempt "
            "the last",
            "go_on.pop()",
            "go_on.pop(0)",
        ),
        mistake(
            "The blocks of a preempted request are free: others may take them in this pass",
            "free += go_on.pop().held",
            "go_on.pop()",
        ),
        mistake(
            "It is preempted and takes memory again in the same pass. Where one was preempted none begins",
            "if len(go_on) == len(running):",
            "if True:",
        ),
        mistake(
            "A request that does not fit is overtaken, and may be again and again while smaller ones come: requests "
            "begin in their order, and the first that does not fit ends it",
            "                break\n            free -=",
            "                continue\n            free -=",
        ),
        mistake(
            "A request begins only if all that it will ever write fits. It is never known before how much that is; "
            "room for the tokens that it has is enough",
            "needed(each.tokens) > free",
            "needed(each.longest) > free",
            "free -= needed(each.tokens)",
            "free -= needed(each.longest)",
        ),
    ],
    hints=[
        "Where does it hang? If all hold what they have and wait for more; and if the first in the queue can never "
        "begin. Which rule rules out each?",
        "How many blocks more do all need who run: needed(tokens) - held of each? While there are too few, the last of "
        "them is preempted, and what it held is free.",
        "That may be the one that found no block, but never the first: alone it fits, or it would have been refused.",
        "Then those that wait, in their order, if none was preempted; until there are too few for the next one.",
    ],
    why="Most requests write less than they may, so servers admit more than they could hold at the worst, and take "
    "memory back when it comes to that. That somebody always goes on is then no luck: it is the order that is kept.",
)
def next_pass(blocks, free, size, running, waiting):
    """Decide who computes in the next pass of a server, whose cache has ``blocks`` blocks of ``size`` tokens.

    ``running`` and ``waiting`` are lists of requests, in the order in which they came. Each request has ``name``;
    ``tokens``, which all need room when it takes part in a pass, and a pass adds one; ``longest``, the most tokens that
    it can come to; ``held``, the blocks that it has, 0 if it waits. ``free`` blocks belong to nobody.

    Return (go_on, begin, refused), three lists of names. All running requests go on, if there are blocks for their
    tokens. If there are too few, the one that came last is preempted and gives all its blocks back, and so on: it waits
    again, and will compute all its tokens anew. If none was preempted, waiting requests begin, in their order, while
    there are blocks for the tokens that they have; none overtakes another. A request that would not fit even alone is
    refused in any case, and holds up no other.
    """

    def needed(tokens):
        return -(-tokens // size)

    # ? who is refused?
    # ? who goes on, and whose blocks does that take?
    # ? who begins?
    refused = [each.name for each in waiting if needed(each.longest) > blocks]
    go_on = [*running]
    while (more := sum(needed(each.tokens) - each.held for each in go_on)) > free:
        free += go_on.pop().held
    free -= more
    begin = []
    if len(go_on) == len(running):
        for each in waiting:
            if each.name in refused:
                continue
            if needed(each.tokens) > free:
                break
            free -= needed(each.tokens)
            begin.append(each.name)
    return [each.name for each in go_on], begin, refused
