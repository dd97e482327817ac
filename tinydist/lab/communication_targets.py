"""Checks of calls and communication: forbidden library functions, messages, bytes, collectives."""

from collections import Counter
from itertools import dropwhile
from statistics import median

from ..tracing.record import Operator
from .errors import Wrong
from .messages import are, left_open, many, messages, nobody, of, started, transfers
from .target import Target, draw_traffic
from .tracer import within


class Own(Target):
    """Nothing of ``solved`` is called (module or function -> its name for a learner), nor a solution of an exercise,
    nor what of torch's has ``torchs`` in its name. ``instead``: what to do. ``only``: names of the transfers that are
    allowed (None: all). ``lent``: what in ``solved`` may be called."""

    name, decides = "own work", True

    def __init__(self, holds, instead, solved=(), torchs="", only=None, lent=()):
        super().__init__(holds)
        self.instead, self.torchs, self.only, self.lent = instead, torchs, only, lent
        self.operators = bool(torchs)
        self.solved = solved if isinstance(solved, dict) else {each: each for each in solved}

    def concerns(self, trial, exercise):
        return True  # also where it raised: what it calls is to be left out, and not to be mended

    def judge(self, exercise, trial, right):
        if self.only is not None and trial.run:
            others = sorted({each.name for each in transfers(trial.run)} - set(self.only))
            if others:
                names = " and ".join(f"torch.distributed.{each}" for each in others)
                raise Wrong(f"{names} {'is' if len(others) == 1 else 'are'} not allowed here; {self.instead}")
        called = {name for name in trial.called if not any(within(each, name) for each in self.lent)}
        names = [told for home, told in self.solved.items() if any(within(home, name) for name in called)]
        names += [f"the solution of {name}" for name in exercise.solutions_among(called)]
        names += [f"torch's {name}" for name in (*sorted(trial.torchs), *sorted(self.ran(trial)))]
        if names:
            raise Wrong(f"you call {names[0]}, which already solves this; {self.instead}")

    def ran(self, trial):
        """Torch's operators, by their internal names, whatever calls them."""
        if not self.torchs or not trial.run:
            return set()
        ran = {entry.name for program in trial.run.record.programs for entry in of(program, Operator)}
        return {name for name in ran if self.torchs in name}


class Waits(Target):
    """Each message meets its other side, and whatever is started is waited for: so it is in every exercise in which
    ranks talk."""

    name = "waits"

    def __init__(self, holds="whatever is started is waited for"):
        super().__init__(holds)

    def judge(self, exercise, trial, right):
        left = left_open(trial)
        if left:
            raise Wrong(left)


class Bytes(Target):
    """As many from each rank as the reference sends, or up to ``room`` times as many where collectives send them; with
    ``together``, from all ranks (or if it says so of a case). ``formula``: said with them. ``names``: where other
    collectives are called than those of the reference, that is said first. ``measured``: judged only in cases that are
    measured, where there is ``room`` for what is sent once. ``fewer``: may it be fewer? Values tell if too few."""

    name = "bytes"

    def __init__(self, holds, formula="", together=False, room=1.0, names=False, measured=False, fewer=False):
        super().__init__(holds)
        self.formula, self.together, self.room, self.names = formula or holds, together, room, names
        self.measured, self.fewer = measured, fewer

    def judge(self, exercise, trial, right):
        mine, its = map(self.seen, (trial, right))
        for rank, (have, want) in enumerate(zip(mine, its)):
            if not (want - 0.5) * (not self.fewer) <= have <= want * self.room + 0.5:
                everybody = self.all_of(trial.case)
                who, in_all = ("the ranks send", " in all") if everybody else (f"rank {rank} sends", "")
                reason = (
                    nobody(mine)
                    or (not everybody and star(mine))
                    or whole_tensors(trial.run, in_parts(right), sum(its))
                    or f"{who} {have:,.0f} bytes{in_all}, where {want:,.0f} are {'enough' if self.fewer else 'right'}"
                )
                names = ({each.name for each in transfers(one.run)} for one in (trial, right))
                others = calls_besides(*names) if self.names else ""
                raise Wrong(f"{others}{'. ' * bool(others)}{reason}: {self.formula}", draw_traffic(trial))

    def shown(self, trial):
        """By rank; or a list of one number, of all ranks."""
        by_rank = [round(sum(row), 3) for row in trial.run.traffic]
        return [sum(by_rank)] if self.all_of(trial.case) else by_rank

    def general(self, trial, right):
        return smaller_numbers(trial, right)

    def all_of(self, case):
        return self.together(case) if callable(self.together) else self.together


def star(sent):
    most = max(sent)
    others = median(sorted(sent)[:-1] or [most])
    if len(sent) > 2 and others and most >= 2 * others:
        return (
            f"rank {sent.index(most)} sends {most / others:.3g} times what the others send ({most:,.0f} bytes): this "
            "is a star, not a ring. All wait for one link"
        )


def whole_tensors(run, whole, right=None):
    """``whole``: bytes of a tensor, parts of which should be sent; ``right``: those that all ranks send."""
    if not whole or {message.nbytes for message in messages(run)} != {whole}:
        return None
    text = f"every message carries the whole tensor, {whole:,} bytes"
    if right is None:
        return f"{text}: send parts of it"
    count = sum(message.ranks[0] == 0 for message in messages(run))
    return (
        f"{text}: with {count} of them a rank sends {count * whole:,} bytes. Pass parts: a rank then sends "
        f"{right / len(run.record.programs):,.0f} bytes"
    )


def calls_besides(mine, its):
    """Names of transfers that are not needed."""
    if set(mine) <= set(its):
        return ""
    needless, enough = (" and ".join(sorted(names)) for names in (set(mine) - set(its), set(its) - {"message"}))
    return f"you call {needless}, where {enough} is enough"


def smaller_numbers(trial, right):
    """As many transfers, and each with half of the bytes, or a quarter of them."""
    mine, its = (
        sorted(each.nbytes for each in transfers(one.run) if each.name != "all_to_all") for one in (trial, right)
    )
    if any(mine) and any([factor * nbytes for nbytes in mine] == its for factor in (2, 4)):
        return "As many transfers, and each has a part of the bytes: are the numbers sent in a smaller dtype?"
    return ""


def in_parts(right):
    """Bytes of the whole tensor, where the reference sends parts of it."""
    whole = next((each.nbytes for each in right.arguments[0] if hasattr(each, "nbytes")), None)
    return None if any(each.nbytes == whole for each in messages(right.run)) else whole


class Messages(Target):
    """From each rank to those to whom the reference sends; with ``most``, only as many in all, and no rank more than
    the busiest of the reference. ``empty``: do those without bytes count?"""

    name = "messages"

    def __init__(self, holds, most=False, empty=True):
        super().__init__(holds)
        self.most, self.empty = most, empty

    def shown(self, trial):
        return Counter(each.ranks for each in messages(trial.run) if each.nbytes or self.empty)

    def judge(self, exercise, trial, right):
        mine, its = self.seen(trial), self.seen(right)
        if self.most:
            self.at_most(trial, mine, its)
        elif mine != its:
            raise Wrong(
                whole_tensors(trial.run, in_parts(right)) or self.other_way(trial, mine, its), draw_traffic(trial)
            )

    def at_most(self, trial, mine, its):
        for rank, (count, right) in enumerate(zip(by(1, mine, trial), by(1, its, trial))):
            if count > right:
                enough = f"where {are(right)} enough" if right else "and has the numbers already"
                raise Wrong(f"rank {rank} receives {many(count, 'message')}, {enough}", draw_traffic(trial))
        sent, right = by(0, mine, trial), max(by(0, its, trial))
        if max(sent) > right:
            busiest = sent.index(max(sent))
            star = (
                f": all goes through rank {busiest}, a star"
                if trial.case.ranks > 2 and all(busiest in pair for pair in mine)
                else ""
            )
            raise Wrong(
                f"rank {busiest} sends {many(sent[busiest], 'message')}, where {are(right)} enough{star}",
                draw_traffic(trial),
            )

    def other_way(self, trial, mine, its):
        p = trial.case.ranks
        for (source, destination), count in sorted(mine.items()):
            if (source, destination) not in its:
                partners = [to for a, to in its if a == source]
                what = f"rank {source} sends to rank {destination}"
                ring = p > 2 and all(b == (a + 1) % p for a, b in its)
                if ring:
                    back = all(b == (a - 1) % p for a, b in mine)
                    way = "your ring turns the other way" if back else "this is no ring"
                    return f"{what}, but its right neighbor is rank {(source + 1) % p}: {way}"
                return f"{what}, {f'where rank {partners[0]} is right' if partners else 'and should send to nobody'}"
            if count > its[source, destination]:
                enough = are(its[source, destination])
                return f"rank {source} sends {many(count, 'message')} to rank {destination}, where {enough} enough"
        (source, destination), count = next((pair, n) for pair, n in its.items() if mine[pair] < n)
        sent = many(mine[source, destination], "message")
        return f"rank {source} sends {sent} to rank {destination}, where {are(count)} right"


def by(end, counter, trial):
    """Messages that a rank sends (0) or receives (1), by rank."""
    return [sum(n for pair, n in counter.items() if pair[end] == rank) for rank in range(trial.case.ranks)]


class Collectives(Target):
    """On each rank those of the reference, in its order, and as large; one rank needs none. ``things``: what each is
    for, in words. ``first``: names of others that may come before them. ``together``: only all bytes count, in as many
    calls as you like."""

    name = "collectives"

    def __init__(self, holds, things="calls", advice="", name="collectives", first=(), together=False):
        super().__init__(holds)
        self.things, self.advice, self.name, self.first, self.together = things, advice, name, first, together

    def shown(self, trial):
        return [self.of_rank(trial, rank) for rank in range(trial.case.ranks)]

    def general(self, trial, right):
        return smaller_numbers(trial, right)

    def of_rank(self, trial, rank):
        calls = dropwhile(lambda call: call.name in self.first, started(trial.run, rank))
        if not self.together:
            return [(call.name, call.nbytes) for call in calls]
        sums = Counter()
        for call in calls:
            sums[call.name] += call.nbytes
        return list(sums.items())

    def judge(self, exercise, trial, right):
        for rank, (mine, its) in enumerate(zip(self.seen(trial), self.seen(right))):
            alone = trial.case.ranks == 1 and not mine  # nobody to talk to: no call is needed
            text = None if alone else self.difference(rank, mine, its)
            if text:
                raise Wrong(text, draw_traffic(trial))

    def difference(self, rank, mine, its):
        names = sorted({name for name, _ in its})
        if others := calls_besides({name for name, _ in mine}, names):
            return others
        name = names[0].replace("_", "-") if len(names) == 1 else "collective"
        if self.together and mine != its:
            have, want = (sum(nbytes for _, nbytes in calls) for calls in (mine, its))
            what = f"{name}s of {have:,} bytes in all" if have else f"no {name}"
            return f"rank {rank} makes {what}, where {want:,} bytes are right: {self.things}"
        if len(mine) != len(its):
            return f"rank {rank} makes {many(len(mine), name)}, where {are(len(its))} right: {self.things}"
        for place, ((name, have), (_, want)) in enumerate(zip(mine, its)):
            if have != want:
                which = f"{name.replace('_', '-')} {place} of rank {rank}"
                return f"{which} has {have:,} bytes, where {want:,} are right. {self.advice}".rstrip()
        return None
