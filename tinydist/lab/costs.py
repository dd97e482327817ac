"""Checks of cost relative to the reference: peak memory, matmul FLOPs, virtual time."""

from ..hardware.cluster import A100_NODE
from ..tracing.record import Issue, Operator, Wait
from .cases import outside_of_tensors
from .errors import Wrong
from .target import Malformed, Target, drawing

CLUSTER = A100_NODE.communication_alone  # where only messages take time: the longest chain of them
EXACT = 1 + 1e-6  # sums of floating point numbers
NOISE = 6 * 1024  # bytes per rank: of Python's own, which differ from one right answer to another, and run to run
LARGE = 16 * 1024  # bytes of tensors per rank: what is kept of so much outside of tensors stands out
OUTSIDE = (
    "numbers are kept outside of tensors, in lists, bytes or NumPy's arrays: these take memory, too. Work on tensors"
)


class Memory(Target):
    """``slack``: bytes that a rank may hold above the reference; or a function of the case. ``most``: all that it
    may hold, whatever the reference holds. ``of(trial)``: by rank, in place of what the peak has besides the
    arguments; ``what`` says which bytes. ``advice``: said with them. ``least``: the part of the reference's bytes
    that it has to hold."""

    name, measured, operators = "memory", True, True

    def __init__(self, holds, slack=0, most=None, advice="", of=None, what="besides its arguments", name=name, least=0):
        super().__init__(holds)
        self.slack, self.most, self.advice, self.least = slack, most, advice, least
        self.of, self.what, self.name = of, what, name

    def judge(self, exercise, trial, right):
        slack = self.slack(trial.case) if callable(self.slack) else self.slack
        for rank, (mine, its) in enumerate(zip(self.seen(trial), self.seen(right))):
            enough = self.most(trial.case) if self.most else its + slack
            if mine > enough:
                raise Wrong(
                    f"{trial.who(rank)} holds {mine:,} bytes {self.what}, where {enough:,.0f} are enough: "
                    f"{self.holds}. {self.advice}".removesuffix(". "),
                    drawing("memory", trial.run, rank),
                )
            if mine < its * self.least:
                raise Malformed(f"{trial.who(rank)} holds {mine:,} bytes {self.what}, of {its:,}: {OUTSIDE}")
        if trial.tracers and trial.case is self.weighed(exercise):  # no mistake of the exercise's is of this kind
            enough = exercise.outside(trial.case) + (slack + NOISE) * trial.case.ranks
            if all(outside_of_tensors(trial) > enough for _ in range(3)):  # once, things are loaded
                raise Malformed(OUTSIDE)

    def weighed(self, exercise):
        """The case in which the reference holds most: there, what is kept outside of tensors is counted, too. None: it
        would not stand out."""
        rights = [exercise.right(case) for case in exercise.cases]
        peaks = {right.case: right.run.memory[0].peak for right in rights if self.concerns(right, exercise)}
        heaviest = max(peaks, key=peaks.get)
        return heaviest if peaks[heaviest] >= LARGE and not self.of else None

    def shown(self, trial):
        if self.of:
            return self.of(trial)
        return [memory.peak - given for memory, given in zip(trial.run.memory, trial.given, strict=True)]

    def alike(self, mine, other, right):
        return 2 * (mine == other and mine != right)


class Flops(Target):
    """At most those of the reference, in as few matmuls; and at least ``least`` of them: else the matmuls were not
    observed."""

    name, operators = "FLOPs", True

    def __init__(self, holds, least=0.5, name="FLOPs"):
        super().__init__(holds)
        self.least, self.name = least, name

    def shown(self, trial):
        """By rank, of each matmul."""
        return [
            [entry.flops for entry in program if isinstance(entry, Operator) and entry.flops]
            for program in trial.run.record.programs
        ]

    def judge(self, exercise, trial, right):
        for rank, (mine, its) in enumerate(zip(self.seen(trial), self.seen(right))):
            who, cost, enough = trial.who(rank), sum(mine), sum(its)
            if cost < self.least * enough:
                raise Wrong(
                    f"{who} multiplies matrices with {cost:,} FLOPs, where {enough:,} are right. NumPy, Python's "
                    "lists, (a * b).sum() and dot products are not counted: multiply matrices of torch, with @"
                )
            if cost > enough:
                raise Wrong(
                    f"{who} multiplies matrices {len(mine)} times with {cost:,} FLOPs, where {len(its)} products with "
                    f"{enough:,} are enough. Is something computed that nobody needs, or more often than once?"
                )
            if len(mine) > len(its):
                raise Wrong(f"{who} multiplies matrices {len(mine)} times, where {len(its)} are enough: larger blocks")


class Seconds(Target):
    """Virtual time, at most ``room`` times that of the reference. ``clusters(case)``: those on which both are put."""

    name, measured, operators = "time", True, True

    def __init__(self, holds, advice="", room=1.0, clusters=lambda case: [CLUSTER], all=False):
        super().__init__(holds)
        self.advice, self.room, self.clusters, self.measured = advice, room, clusters, not all

    def shown(self, trial):
        return [trial.run.on(cluster).seconds for cluster in self.clusters(trial.case)]

    def alike(self, mine, other, right):
        return 2 * all(abs(a - b) <= 1e-6 * b for a, b in zip(mine, other))

    def judge(self, exercise, trial, right):
        for cluster, took, its in zip(self.clusters(trial.case), self.seen(trial), self.seen(right)):
            if took > its * max(EXACT, self.room):
                raise Wrong(
                    f"it takes {in_words(took)} of virtual time on {cluster.intra_node.name}, where {in_words(its)} "
                    f"are right: {took / its:.2f} times as long. {self.advice}".rstrip(),
                    drawing("timeline", trial.run.on(cluster)),
                )

    def general(self, trial, right):
        mine, its = map(overlap, (trial, right))
        return mine if mine != its else ""


def in_words(seconds):
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e6:.2f} us"


def overlap(trial):
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
    return ""
