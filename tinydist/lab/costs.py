"""What an answer costs beside the reference: bytes held at their peak, FLOPs of matrix products, virtual time."""

import torch

from ..simulator.record import Issue, Operator, Wait
from .errors import Wrong
from .memory import draw_memory, held_besides
from .results import leaves
from .seconds import CLUSTER, EXACT, draw_timeline
from .target import Malformed, Target
from .worlds import outside_of_tensors

NOISE = 4 * 1024  # bytes a rank: of Python's own, which differ from one right answer to another
LARGE = 4 * NOISE  # bytes of tensors a rank: what is kept of so much outside of tensors stands out


class Memory(Target):
    """``slack``: bytes that a rank may hold above the reference; or a function of the case. ``most``: all that it may
    hold, whatever the reference holds. ``of(trial)``: other bytes than those of the peak, by rank; ``what`` says which.
    ``advice``: said with them."""

    name, measured = "memory", True

    def __init__(self, holds, slack=0, most=None, advice="", of=held_besides, what="besides its arguments", name=name):
        super().__init__(holds)
        self.slack, self.most, self.advice = slack, most, advice
        self.of, self.what, self.name = of, what, name

    def judge(self, exercise, trial, right):
        slack = self.slack(trial.case) if callable(self.slack) else self.slack
        for rank, (mine, its) in enumerate(zip(self.seen(trial), self.seen(right))):
            enough = self.most(trial.case) if self.most else its + slack
            if mine > enough:
                raise Wrong(
                    f"{on(trial, rank)}holds {mine:,} bytes {self.what}, where {enough:,.0f} are enough: "
                    f"{self.holds}. {self.advice}".removesuffix(". "),
                    draw_memory(trial, rank),
                )
        given = sum(each.nbytes for each in leaves(trial.arguments[0]).values() if isinstance(each, torch.Tensor))
        if given < LARGE or self.of is not held_besides:
            return
        enough = exercise.outside(trial.case) + (slack + NOISE) * trial.case.ranks
        if all(outside_of_tensors(trial) > enough for _ in range(2)):  # once, things are loaded
            raise Malformed(
                "numbers are kept outside of tensors, in lists, bytes or NumPy's arrays: these take memory, too. "
                "Work on tensors"
            )

    def seen(self, trial):
        return None if trial.error is not None else self.of(trial)

    def alike(self, mine, other, right):
        return 2 * (mine == other and mine != right)


def on(trial, rank):
    return "it " if trial.case.ranks == 1 else f"rank {rank} "


class Flops(Target):
    """At most those of the reference, in as few products; and at least ``least`` of them: else the products were not
    made where they are seen."""

    name = "FLOPs"

    def __init__(self, holds, least=0.5, name="FLOPs"):
        super().__init__(holds)
        self.least, self.name = least, name

    def seen(self, trial):
        """By rank, of each product."""
        if trial.error is not None:
            return None
        return [
            [entry.flops for entry in program if isinstance(entry, Operator) and entry.flops]
            for program in trial.run.record.programs
        ]

    def judge(self, exercise, trial, right):
        for rank, (mine, its) in enumerate(zip(self.seen(trial), self.seen(right))):
            who, cost, enough = on(trial, rank), sum(mine), sum(its)
            if cost < self.least * enough:
                raise Wrong(
                    f"{who}multiplies matrices with {cost:,} FLOPs, where {enough:,} are right. NumPy, Python's lists, "
                    "(a * b).sum() and products of vectors lie outside of the meter: multiply matrices of torch, with @"
                )
            if cost > enough:
                raise Wrong(
                    f"{who}multiplies matrices {len(mine)} times with {cost:,} FLOPs, where {len(its)} products with "
                    f"{enough:,} are enough. Is something computed that nobody needs, or more often than once?"
                )
            if len(mine) > len(its):
                raise Wrong(f"{who}multiplies matrices {len(mine)} times, where {len(its)} are enough: in larger parts")


class Seconds(Target):
    """Virtual time, at most ``room`` times that of the reference. ``clusters(case)``: those on which both are put."""

    name, measured = "time", True

    def __init__(self, holds, advice="", room=1.0, clusters=lambda case: [CLUSTER], all=False):
        super().__init__(holds)
        self.advice, self.room, self.clusters, self.measured = advice, room, clusters, not all

    def seen(self, trial):
        if trial.error is not None:
            return None
        return [trial.run.on(cluster).seconds for cluster in self.clusters(trial.case)]

    def alike(self, mine, other, right):
        return 2 * all(abs(a - b) <= 1e-6 * b for a, b in zip(mine, other))

    def judge(self, exercise, trial, right):
        for cluster, took, its in zip(self.clusters(trial.case), self.seen(trial), self.seen(right)):
            if took > its * max(EXACT, self.room):
                raise Wrong(
                    f"it takes {took * 1e6:.2f} us of virtual time on {cluster.inside.name}, where {its * 1e6:.2f} us "
                    f"are right: {took / its:.2f} times as long. {self.advice}".rstrip(),
                    draw_timeline(trial, cluster),
                )

    def general(self, trial, right):
        """Where the first calls stand: behind all that is computed, or in the middle of it?"""
        program = trial.run.record.programs[0]
        at = {kind: [i for i, entry in enumerate(program) if isinstance(entry, kind)] for kind in (Issue, Wait)}
        work = [i for i, entry in enumerate(program) if isinstance(entry, Operator) and entry.flops]
        if not work or not at[Issue]:
            return ""
        if at[Issue][0] > work[-1]:
            return "nothing overlaps: the first call starts when all is computed"
        if at[Wait] and at[Wait][0] < work[-1]:
            return "a wait stands in the middle of what is computed, and holds it up"
        return "a call starts later than it could"
