"""Scheduler: who is served now, and with which memory. It knows no model: what decides is a policy.

    add --> waiting --admitted--> running --ended--> its blocks are free
               ^                     |
               '------preempted------'      loses its blocks, keeps its tokens, and computes them again

    while not scheduler.idle:
        step = scheduler.step()                 each of ``step.parts`` computes so many tokens
        scheduler.update(step, choose)          where all are computed, ``choose`` says the next

The engine computes with a model between the two; a replay asks only what it would cost.

Source: Yu et al. 2022, Orca, section 3.1: the unit of scheduling is an iteration, not a request.
"""

from collections import deque
from dataclasses import dataclass, field

from ..rules import function, takes
from .blocks import BlockPool, BlockTable
from .request import Request, Sequence, Served


@dataclass
class Step:
    """What one pass through the model computes.

    parts:      (sequence, how many of its next tokens).
    copies:     (from, to): blocks to copy before, for they were shared.
    admitted:   sequences that waited until now.
    preempted:  sequences that lost their memory.
    """

    parts: list = field(default_factory=list)
    copies: list = field(default_factory=list)
    admitted: list = field(default_factory=list)
    preempted: list = field(default_factory=list)

    @property
    def tokens(self):
        return sum(tokens for _, tokens in self.parts)


class Policy:
    """Who is served now: ``step(scheduler)`` gives a ``Step``, whose memory is there.

    shares:  whether the samples of a request share the blocks of its prompt.
    """

    shares = False

    def over(self, running):
        """Those whose place and memory are free now."""
        return [each for each in running if each.reason]

    def check(self, request, pool):
        """Raise ``ValueError`` unless it can be served when nobody else is."""
        check_fits(f"its {request.longest} tokens", request.longest, request, pool)


def check_fits(what, tokens, request, pool):
    if pool.needed(tokens) > pool.blocks:
        raise ValueError(
            f"request: {equation(request)}; {what} in blocks of {pool.block_size} are {pool.needed(tokens)} blocks, "
            f"but the pool has {pool.blocks}"
        )


def equation(request):
    return f"{len(request.prompt)} (prompt) + {request.max_new} (new) - 1 = {request.longest} tokens"


@takes(policy=Policy, pool=BlockPool)
class Scheduler:
    """Requests, in the order in which they came: ``waiting``, then ``running``, on the blocks of a pool."""

    def __init__(self, policy, pool):
        self.policy, self.pool = policy, pool
        self.waiting, self.running = deque(), []

    @property
    def idle(self):
        return not self.waiting and not self.running

    @takes(request=Request)
    def add(self, request):
        """Let it wait, and return its ``Served``. Raises ``ValueError`` for what could never be served."""
        self.policy.check(request, self.pool)
        served = Served(request)
        together = self.policy.shares  # samples are one sequence until the prompt is computed
        for sample in range(1 if together else request.n):
            served.sequences.append(Sequence(served, sample, BlockTable(self.pool, request.salt)))
        self.waiting += served.sequences
        return served

    def step(self):
        """What to compute now; its memory is there."""
        return self.policy.step(self)

    @takes(step=Step, choose=function)
    def update(self, step, choose):
        """``step`` has been computed. Returns what was written, (sequence, token) each.

        choose:  given those that may have a next token, (index in step.parts, sequence) each, the tokens.
        """
        ready = []
        for i, (sequence, tokens) in enumerate(step.parts):
            sequence.computed += tokens
            sequence.table.seal(sequence.tokens, sequence.computed)
            if sequence.left == 0:
                ready += [(i, each) for each in self._samples(sequence)]
        written = [(sequence, token) for (_, sequence), token in zip(ready, choose(ready))]
        for sequence, token in written:
            sequence.append(token)
        for sequence in self.policy.over(self.running):
            self._remove(sequence)
        return written

    @takes(served=Served)
    def cancel(self, served):
        """Nobody waits for it any more: its blocks are free."""
        for sequence in [each for each in served.sequences if each.reason is None]:
            self._remove(sequence)
            sequence.reason = "cancelled"

    def admit(self, step):
        """The first that waits, whose memory is there, runs."""
        sequence = self.waiting.popleft()
        self.running.append(sequence)
        step.admitted.append(sequence)

    def preempt(self, sequence, step):
        """It loses its memory, and is the next that is admitted."""
        self._remove(sequence)
        sequence.computed = 0
        self.waiting.appendleft(sequence)
        step.preempted.append(sequence)

    def start_over(self):
        """Nothing is computed: all that run wait again, in their order."""
        for sequence in reversed([each for each in self.running if each.reason is None]):
            self.preempt(sequence, Step())

    def _samples(self, sequence):
        """Where several samples of one prompt begin, one sequence becomes several that share its blocks."""
        served = sequence.served
        forks = [Sequence(served, i, sequence.table.fork()) for i in range(len(served.sequences), served.request.n)]
        for each in forks:
            each.computed = sequence.computed
        if forks:
            served.sequences += forks
            place = self.running.index(sequence) + 1
            self.running[place:place] = forks
        return [sequence, *forks]

    def _remove(self, sequence):
        among = self.running if sequence in self.running else self.waiting
        if sequence not in among:
            raise ValueError("Scheduler: cancel takes what add returned, got a request of another scheduler's")
        among.remove(sequence)
        sequence.table.clear()
