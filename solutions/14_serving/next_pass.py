"""A scheduler for a memory budget: who goes on, who gives way, who begins; and nobody waits forever."""

from typing import NamedTuple

from tinydist.lab.author import Target, Wrong, alone, exercise, mistake

from .chapter import BY_HAND

MOST = 100  # passes


class Sequence(NamedTuple):
    name: str
    tokens: int
    longest: int
    held: int = 0  # blocks


def traffic(about, blocks, size, *asks):
    """``asks``: tokens of a prompt, and how many are written; and in which pass it comes, if not in the first."""
    given = [
        (pass_, Sequence(name, prompt, prompt + new - 1))
        for name, (prompt, new, pass_) in zip("abcdefgh", [(*ask, 0)[:3] for ask in asks])
    ]
    return alone(lambda: (blocks, size, [*given]), f"{about}, {blocks} blocks of {size}")


def worlds():
    yield traffic("one request", 4, 4, (5, 6))
    yield traffic("two that fit", 8, 4, (4, 5), (3, 4))
    yield traffic("the second does not fit yet", 3, 4, (7, 3), (6, 4))
    yield traffic("the second does not fit yet, and the third would", 4, 4, (9, 3), (6, 4), (2, 2))
    yield traffic("three that grow until one gives way", 6, 2, (2, 7), (3, 6), (4, 5))
    yield traffic("blocks of one token", 7, 1, (2, 4), (2, 4), (2, 4))
    yield traffic("one gives way, and another could begin", 4, 2, (2, 6), (3, 5), (1, 2))
    yield traffic("one needs the blocks of two", 5, 2, (4, 6), (1, 5), (2, 4))
    yield traffic("the youngest finds no block", 4, 2, (3, 3), (3, 3), (2, 4, 2))
    yield traffic("one that can never fit, and others behind it", 4, 4, (3, 14), (20, 2), (14, 3), (5, 2), (12, 9))
    yield traffic("an empty pool", 0, 16, (3, 2), (1, 1))
    yield traffic("a prompt that takes all there is", 3, 4, (12, 1), (1, 3), (9, 4))
    yield traffic("many that come one after another", 7, 3, *((1 + i % 4, 4 + i % 3, i) for i in range(8)))


def served(answer, blocks, size, asks):
    """Pass after pass, until all have ended; the last entry says what ended it before."""
    waiting, running, passes = [], [], []
    to_come = [*asks]
    while to_come or waiting or running:
        waiting += [each for when, each in to_come if when <= len(passes)]
        to_come = [(when, each) for when, each in to_come if when > len(passes)]
        free = blocks - sum(each.held for each in running)
        decided = answer(blocks, free, size, [*running], [*waiting])
        go_on, begin, refused = (
            chosen(names, running if i == 0 else waiting) for i, names in enumerate(three(decided))
        )
        state = f"{free} free, running {listed(running)}, waiting {listed(waiting)}"
        passes.append((state, *([each.name for each in some] for some in (go_on, begin, refused))))
        waiting = [each for each in waiting if each not in begin + refused]
        gave_way = [each._replace(held=0) for each in running if each not in go_on]
        parts = [each._replace(held=-(-each.tokens // size)) for each in go_on + begin]
        if sum(each.held for each in parts) > blocks:
            return [*passes, f"out of memory: it takes {sum(each.held for each in parts)} blocks"]
        if (waiting or gave_way) and not parts and not to_come:
            return [*passes, "deadlock: nobody runs, so nothing will ever be free"]
        if len(passes) == MOST:
            return [*passes, f"after {MOST} passes there is no end"]
        running = [each._replace(tokens=each.tokens + 1) for each in parts if each.tokens < each.longest]
        order = [name for _, (name, *_) in asks]
        running.sort(key=lambda each: order.index(each.name))
        waiting = sorted(waiting + gave_way, key=lambda each: order.index(each.name))
    return passes


def three(decided):
    if not isinstance(decided, tuple | list) or len(decided) != 3 or not all(isinstance(x, list) for x in decided):
        raise Wrong(
            f"it returned {decided!r}, where three lists of names are right: those who go on, begin, are refused"
        )
    return decided


def chosen(names, among):
    there = {each.name: each for each in among}
    if len({*names}) < len(names) or not {*names} <= there.keys():
        raise Wrong(f"it names {names}, where each of {[*there]} may be named once")
    return [each for each in among if each.name in names]


def listed(sequences):
    return " ".join(f"{each.name} ({each.tokens} of {each.longest} tokens)" for each in sequences) or "nobody"


class Passes(Target):
    """The decisions, up to the first that is another than the solution's."""

    name, decides = "passes", True

    def judge(self, exercise, trial, right):
        mine, its = self.seen(trial), self.seen(right)
        if mine != its:
            at = next(i for i, pair in enumerate(zip(mine, its)) if pair[0] != pair[1])
            state, *asked = its[at]
            end = f" In the end: {mine[-1]}." if isinstance(mine[-1], str) else ""
            raise Wrong(f"in pass {at}, with {state}, {said(mine[at][1:])}, where it is right that {said(asked)}.{end}")

    def seen(self, trial):
        return trial.returned[0] if trial.error is None else None

    def alike(self, mine, other, right):
        at = next(i for i, pair in enumerate(zip(mine, right)) if pair[0] != pair[1])
        return 2 if mine == other else int(mine[: at + 1] == other[: at + 1])


def said(decisions):
    return ", ".join(
        f"{' '.join(names) or 'nobody'} {what}" for what, names in zip(("goes on", "begins", "is refused"), decisions)
    )


WAY = """\
    go_on = [*running]
    while (more := sum(needed(each.tokens) - each.held for each in go_on)) > free:
        free += go_on.pop().held
    free -= more
"""
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
    worlds=worlds,
    program=served,
    targets=[
        BY_HAND,
        Passes(
            "who goes on, begins and is refused, pass after pass until all have ended; never more blocks than there are"
        ),
    ],
    mistakes=[
        mistake(
            "Who can never fit is not refused. He stands first in the queue, and those behind him wait forever",
            "needed(each.longest) > blocks",
            "False",
        ),
        mistake(
            "Who takes all there is fits, and is not to be refused",
            "needed(each.longest) > blocks",
            "needed(each.longest) >= blocks",
        ),
        mistake(
            "Refused is who does not fit now. When others have ended he does: ask for his longest, and for all blocks",
            "needed(each.longest) > blocks",
            "needed(each.tokens) > free",
        ),
        mistake(
            "His prompt fits, and all that he will write does not: then he runs alone until he has no block, and can "
            "go neither on nor back. Refuse him at once",
            "needed(each.longest) > blocks",
            "needed(each.tokens) > blocks",
        ),
        mistake(
            "Who finds no block gives way himself, though others came after him. So may each in turn, with all that he "
            "has computed: the last gives way, and then the first always goes on",
            WAY,
            HIMSELF,
        ),
        mistake(
            "The one who came first gives way, and computes again; nobody need ever come to his end. The "
            "last gives way",
            "go_on.pop()",
            "go_on.pop(0)",
        ),
        mistake(
            "The next in the order gives way, and he came before the others. The last does",
            "go_on.pop()",
            "go_on.pop(len(go_on) > 1)",
        ),
        mistake(
            "Somebody gives way though there are enough blocks: so many as are free may be taken",
            ") > free:\n        free +=",
            ") >= free and go_on:\n        free +=",
        ),
        mistake(
            "The blocks of who gives way are free: others may take them in this pass",
            "free += go_on.pop().held",
            "go_on.pop()",
        ),
        mistake(
            "He gives way and takes memory again in the same pass. Where somebody gave way nobody begins",
            "if len(go_on) == len(running):",
            "if True:",
        ),
        mistake(
            "He who does not fit is overtaken. So he may be, again and again, while smaller ones come: who waits "
            "begins in his order, and the first who does not fit ends it",
            "                break\n            free -=",
            "                continue\n            free -=",
        ),
        mistake(
            "Blocks are promised twice: what one takes is not free for the next who begins",
            "            free -= needed(each.tokens)\n",
            "",
        ),
        mistake(
            "What those take who go on is not free for those who begin",
            "    free -= more\n",
            "",
        ),
        mistake(
            "Someone begins only if all that he will ever write fits. It is never known before how much that is; "
            "room for the tokens that he has is enough",
            "needed(each.tokens) > free",
            "needed(each.longest) > free",
            "free -= needed(each.tokens)",
            "free -= needed(each.longest)",
        ),
        mistake(
            "Someone begins only when nobody runs. Whoever fits need not wait for the others' end",
            "if len(go_on) == len(running):",
            "if not running:",
        ),
        mistake(
            "A block is taken for every token. There is room in the last one until it is full",
            "needed(each.tokens) - each.held for",
            "1 for",
        ),
        mistake(
            "He who takes all that is free fits",
            "needed(each.tokens) > free",
            "needed(each.tokens) >= free",
        ),
    ],
    hints=[
        "Where does it hang? If all hold what they have and wait for more; and if the first in the queue can never "
        "begin. Which rule rules out each?",
        "How many blocks more do all need who run: needed(tokens) - held of each? While there are too few, the last of "
        "them gives way, and what he held is free.",
        "It may be himself, if nobody is behind him; never the first: alone he fits, or he would have been refused.",
        "Then those who wait, in their order, if nobody gave way; until the first for whose tokens there are too few.",
    ],
    why="Most requests write less than they may, so servers admit more than they could hold at the worst, and take "
    "memory back when it comes to that. That somebody always goes on is then no luck: it is the order that is kept.",
)
def next_pass(blocks, free, size, running, waiting):
    """Decide who computes in the next pass of a server, whose cache has ``blocks`` blocks of ``size`` tokens.

    ``running`` and ``waiting`` are lists, in the order in which the requests came. Each has ``name``; ``tokens``, that
    will be in the cache when the next pass in which it takes part has run, with which it writes one more; ``longest``,
    the most that there will ever be; ``held``, the blocks that it has, 0 for who waits. ``free`` are nobody's.

    Return (go_on, begin, refused), three lists of names. Who runs goes on, if there are blocks for his tokens: who came
    first comes first. If there are too few, the one of those who run that came last gives way, with all his blocks;
    it may be himself. Who runs and isn't named has given way: he waits, and will compute all his tokens
    anew. If nobody gave way, those who wait begin, in their order, while there are blocks for all the tokens that they
    have; nobody overtakes. Who could not be served if he were alone is refused, whatever else happens, and is in
    nobody's way.
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
