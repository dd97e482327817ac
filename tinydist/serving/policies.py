"""Policies: which requests share a pass through the model. Each decides on the same queue, before each pass.

    two places; A is long           Static    A A A A A C C         a batch waits for its longest
                                              B . . . . D .

                                    Orca      A A A A A             who has ended makes place at the next pass
                                              B C C D

                                    Continuous    as Orca, but memory comes in blocks when it is needed; long prompts
                                                  in pieces; and if no block is free, the youngest gives way

The first two reserve, in one piece, all that a request may come to need. Requests run in their order, and no one who
waits overtakes for memory. With ``Continuous`` the first of those that run can always go on: all others may be
preempted, and alone it fits, or it would have been refused. So nobody waits forever.

Sources: Yu et al. 2022, Orca, section 3; Kwon et al. 2023, PagedAttention, sections 4.5 and 6.1 (what Orca would
reserve); Agrawal et al. 2024, Sarathi-Serve, section 4 (prompts in pieces). The rules of ``Continuous`` are those of
vLLM's V1 scheduler, first come, first served.
"""

from ..rules import count, flag, takes
from .blocks import OutOfBlocks
from .scheduler import Policy, Step, check_fits, equation

RESERVE = "exact", "power of 2"


def reserved(value):
    """an integer >= 1 (tokens), or one of exact, power of 2"""
    return count(value) or (isinstance(value, str) and value in RESERVE)


@takes(slots=count, reserve=reserved)
class Reserving(Policy):
    """At most ``slots`` sequences, with neighboring blocks for all that they may need.

    reserve:  for how many tokens: as many for each, which serving systems did that could not know; "power of 2", the
              next from what is needed; "exact", the oracle's.
    """

    def __init__(self, slots, reserve="exact"):
        self.slots, self.reserve = slots, reserve

    def reservation(self, request):
        """In tokens."""
        exact = {"exact": request.longest, "power of 2": 1 << (request.longest - 1).bit_length()}
        return exact.get(self.reserve, self.reserve)

    def check(self, request, pool):
        reservation = self.reservation(request)
        if request.longest > reservation:
            raise ValueError(f"request: {equation(request)}, but {reservation} are reserved for each")
        check_fits(f"{reservation} reserved tokens", reservation, request, pool)

    def fill(self, scheduler, step):
        """Admit who fits."""
        while scheduler.waiting and len(scheduler.running) < self.slots:
            sequence = scheduler.waiting[0]
            try:
                sequence.table.reserve(self.reservation(sequence.request))
            except OutOfBlocks:
                break
            scheduler.admit(step)

    def all_that_run(self, scheduler, step):
        step.parts = [(each, each.left) for each in scheduler.running if not each.reason]
        for sequence, tokens in step.parts:
            sequence.table.grow(tokens)
        return step


class Static(Reserving):
    """A batch begins together, and the next when all have ended."""

    def step(self, scheduler):
        step = Step()
        if not scheduler.running:
            self.fill(scheduler, step)
        return self.all_that_run(scheduler, step)

    def over(self, running):
        return [*running] if all(each.reason for each in running) else []


class Orca(Reserving):
    """Whoever has ended makes place at once."""

    def step(self, scheduler):
        step = Step()
        self.fill(scheduler, step)
        return self.all_that_run(scheduler, step)


@takes(slots=count, budget=count, chunked=flag)
class Continuous(Policy):
    """At most ``slots`` sequences and ``budget`` tokens a pass, in blocks; preempts by computing again.

    chunked:  a prompt may be computed in pieces, as the budget allows; else it waits until it has room whole.
    """

    shares = True

    def __init__(self, slots=8, budget=64, chunked=True):
        if budget < slots:
            raise ValueError(f"Continuous: budget ({budget}) must be >= slots ({slots}), one token per sequence")
        self.slots, self.budget, self.chunked = slots, budget, chunked

    def check(self, request, pool):
        super().check(request, pool)
        if request.n > self.slots:
            raise ValueError(
                f"request: n ({request.n}) exceeds slots ({self.slots}): all samples of a request start together"
            )
        if not self.chunked and request.longest > self.budget:
            words = f"exceeds the token budget ({self.budget}), and chunked prefill is disabled"
            raise ValueError(f"request: {equation(request)}: {words}")

    def step(self, scheduler):
        step = Step()
        budget = self.go_on(scheduler, step)
        if not step.preempted:
            self.admit(scheduler, step, budget)
        return step

    def go_on(self, scheduler, step):
        """Those that run, in their order; who finds no block takes the youngest's. Returns the budget that is left."""
        budget, i = self.budget, 0
        while i < len(scheduler.running) and budget:
            sequence, i = scheduler.running[i], i + 1
            tokens = self.piece(sequence.left, budget)
            if tokens and self.make_room(sequence, tokens, scheduler, step):
                step.parts.append((sequence, tokens))
                budget -= tokens
        return budget

    def admit(self, scheduler, step, budget):
        """Those that wait, in their order, until one does not fit."""
        places = self.slots - sum(each.places for each in scheduler.running)
        while scheduler.waiting and budget and scheduler.waiting[0].places <= places:
            sequence = scheduler.waiting[0]
            found = sequence.table.match(sequence.tokens[:-1])  # the last is computed: what follows it is asked for
            tokens = self.piece(len(sequence.tokens) - found, budget)
            try:
                if not tokens:
                    raise OutOfBlocks
                sequence.table.grow(tokens)
            except OutOfBlocks:
                sequence.table.clear()
                break
            sequence.computed = found
            scheduler.admit(step)
            step.parts.append((sequence, tokens))
            budget, places = budget - tokens, places - sequence.places

    def piece(self, left, budget):
        """Tokens that are computed now, of those left."""
        return min(left, budget) if self.chunked or left <= budget else 0

    def make_room(self, sequence, tokens, scheduler, step):
        while True:
            try:
                step.copies += sequence.table.grow(tokens)
                return True
            except OutOfBlocks:
                youngest = scheduler.running[-1]
                scheduler.preempt(youngest, step)
                if youngest is sequence:
                    return False
