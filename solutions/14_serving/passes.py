"""A server without a model: passes that somebody decides, and what becomes of them."""

from typing import NamedTuple

from tinydist.lab.author import Varied, Wrong, alone

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
        if (waiting or gave_way) and not (parts or refused or to_come):
            return [*passes, "deadlock: nobody runs, so nothing will ever be free"]
        if len(passes) == MOST:
            return [*passes, f"after {MOST} passes there is no end"]
        running = [each._replace(tokens=each.tokens + 1) for each in parts if each.tokens < each.longest]
        order = [name for _, (name, *_) in asks]
        running.sort(key=lambda each: order.index(each.name))
        waiting = sorted(waiting + gave_way, key=lambda each: order.index(each.name))
    return passes


def three(decided):
    if (
        not isinstance(decided, tuple | list)
        or len(decided) != 3
        or not all(isinstance(x, tuple | list) for x in decided)
    ):
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


class Passes(Varied):
    """The decisions, up to the first that is another than the solution's."""

    name, decides = "passes", True

    def judge(self, exercise, trial, right):
        mine, its = trial.returned[0], right.returned[0]
        if mine != its:
            at = next(i for i, pair in enumerate(zip(mine, its)) if pair[0] != pair[1])
            state, *asked = its[at]
            end = f" In the end: {mine[-1]}." if isinstance(mine[-1], str) else ""
            raise Wrong(f"in pass {at}, with {state}, {said(mine[at][1:])}, where it is right that {said(asked)}.{end}")

    def seen(self, trial):
        return dict(enumerate(trial.returned[0])) if trial.error is None else None

    def alike(self, mine, other, right):
        at = next(i for i, each in right.items() if mine.get(i) != each)
        return 2 if mine == other else int(all(mine.get(i) == other.get(i) for i in range(at + 1)))

    def enough(self, mine, agree, wrong):
        return agree == wrong

    def general(self, trial, right):
        return ""

    def known(self, exercise, trial, right, perhaps):
        return perhaps


def said(decisions):
    one, several = ("goes on", "begins", "is refused"), ("go on", "begin", "are refused")
    return ", ".join(
        f"{' '.join(names) or 'nobody'} {several[i] if len(names) > 1 else one[i]}" for i, names in enumerate(decisions)
    )
