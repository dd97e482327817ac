"""Scheduler: which sequences take part in the next forward pass, with how many tokens each.

    add --> waiting --scheduled--> running --finished--> its blocks are free
               ^                      |
               '------preempted-------'      loses its blocks, keeps its tokens, and computes them again

    while not scheduler.idle:
        step = scheduler.schedule()             each sequence in ``step.scheduled`` computes so many tokens
        scheduler.update(step, sample)          where all are computed, ``sample`` gives the next token

It needs no model: the engine computes between the two calls, a replay asks only what the pass would cost. Who comes
next is a policy's decision. ``ContinuousBatching`` is vLLM's; those before it are in ``contiguous_batching``.

Prefill and decode are not phases of the scheduler. A sequence has tokens, of which some are computed: in prefill many
of the prompt's are not yet, in decode one. Each pass brings every running sequence forward, within one token budget.

Sources: Yu et al. 2022, Orca, section 3.1 (the unit of scheduling is an iteration, not a request); Kwon et al. 2023,
PagedAttention, section 4.5 (preemption); Agrawal et al. 2024, Sarathi-Serve, section 4 (chunked prefill); vLLM's V1
scheduler, first come, first served, whose rules these are.
"""

from collections import deque
from dataclasses import dataclass, field

from ..rules import count, flag, function, validate
from .blocks import BlockPool, BlockTable
from .request import Request, RequestState, Sequence


@dataclass
class SchedulerOutput:
    """What one forward pass computes.

    scheduled:  (sequence, num_tokens): how many of its next tokens.
    copies:     (from, to): blocks to copy first, because they were shared.
    preempted:  sequences that lost their blocks.
    """

    scheduled: list = field(default_factory=list)
    copies: list = field(default_factory=list)
    preempted: list = field(default_factory=list)

    @property
    def num_tokens(self):
        return sum(num_tokens for _, num_tokens in self.scheduled)

    def schedule(self, sequence, num_tokens):
        """``sequence`` computes so many tokens more, and gets slots for them."""
        self.copies += sequence.table.allocate_slots(num_tokens)
        self.scheduled.append((sequence, num_tokens))


class SchedulingPolicy:
    """``schedule(scheduler)`` gives a ``SchedulerOutput``, whose blocks are allocated.

    paged:  blocks are allocated when tokens need them, and the samples of a request share those of its prompt.
    """

    paged = False

    def finished(self, running):
        """The sequences that leave now."""
        return [each for each in running if each.finish_reason]

    def check(self, request, pool):
        """Raise ``ValueError`` for a request that does not fit even alone."""
        check_fits(f"its {request.longest} tokens", request.longest, request, pool)


def check_fits(what, num_tokens, request, pool):
    needed = pool.needed(num_tokens)
    if needed > pool.num_blocks:
        raise ValueError(
            f"request: {equation(request)}; {what} in blocks of {pool.block_size} are {needed} blocks, "
            f"but the pool has {pool.num_blocks}"
        )


def equation(request):
    return f"{len(request.prompt)} (prompt) + {request.max_new_tokens} (new) - 1 = {request.longest} tokens"


@validate(max_num_seqs=count, max_num_batched_tokens=count, chunked_prefill=flag)
class ContinuousBatching(SchedulingPolicy):
    """At most ``max_num_seqs`` sequences and ``max_num_batched_tokens`` tokens in a pass; blocks as they are needed.

    chunked_prefill:  split prompts by the token budget; else a prompt waits until it fits entirely.

    The oldest running sequence can always proceed: all others may be preempted, and it fits alone. So none starves.
    """

    paged = True

    def __init__(self, max_num_seqs=8, max_num_batched_tokens=64, chunked_prefill=True):
        if max_num_batched_tokens < max_num_seqs:
            got = f"max_num_batched_tokens ({max_num_batched_tokens}) must be >= max_num_seqs ({max_num_seqs})"
            raise ValueError(f"ContinuousBatching: {got}, one token per sequence")
        self.max_num_seqs, self.max_num_batched_tokens = max_num_seqs, max_num_batched_tokens
        self.chunked_prefill = chunked_prefill

    def check(self, request, pool):
        super().check(request, pool)
        if request.n > self.max_num_seqs:
            raise ValueError(
                f"request: n ({request.n}) exceeds max_num_seqs ({self.max_num_seqs}): all samples start together"
            )
        if not self.chunked_prefill and request.longest > self.max_num_batched_tokens:
            budget = f"exceeds the token budget ({self.max_num_batched_tokens}), and chunked prefill is disabled"
            raise ValueError(f"request: {equation(request)}: {budget}")

    def schedule(self, scheduler):
        step, token_budget = SchedulerOutput(), self.max_num_batched_tokens
        running, waiting = scheduler.running, scheduler.waiting

        # Running sequences, oldest first: the next token (decode), or the next chunk of the prompt (prefill).
        i = 0
        while i < len(running) and token_budget:
            sequence = running[i]
            num_tokens = self.chunk(sequence, token_budget)
            if not sequence.table.fits(num_tokens):
                step.preempted.append(running[-1])  # the youngest: at last this one itself
                scheduler.preempt(running[-1])
                continue
            if num_tokens:
                step.schedule(sequence, num_tokens)
                token_budget -= num_tokens
            i += 1

        # Waiting requests, first come, first served, until one does not fit. None where blocks have just run out.
        num_seqs = sum(each.num_seqs for each in running)
        while waiting and token_budget and not step.preempted:
            sequence = waiting[0]
            num_seqs += sequence.num_seqs
            if num_seqs > self.max_num_seqs:
                break
            sequence.match_prefix()
            num_tokens = self.chunk(sequence, token_budget)
            if not num_tokens or not sequence.table.fits(num_tokens):
                sequence.free()
                break
            running.append(waiting.popleft())
            step.schedule(sequence, num_tokens)
            token_budget -= num_tokens
        return step

    def chunk(self, sequence, token_budget):
        """How many tokens it computes now."""
        left = sequence.num_uncomputed_tokens
        return min(left, token_budget) if self.chunked_prefill or left <= token_budget else 0


@validate(policy=SchedulingPolicy, pool=BlockPool)
class Scheduler:
    """Sequences in the order in which they came, ``waiting`` or ``running``, on the blocks of ``pool``."""

    def __init__(self, policy, pool):
        self.policy, self.pool = policy, pool
        self.waiting, self.running = deque(), []

    @property
    def idle(self):
        return not self.waiting and not self.running

    @validate(request=Request)
    def add(self, request):
        """Queue it, and return its ``RequestState``. Raises ``ValueError`` for one that could never be served."""
        self.policy.check(request, self.pool)
        state = RequestState(request)
        for sample in range(1 if self.policy.paged else request.n):  # paged: one sequence until the prompt is computed
            state.sequences.append(Sequence(state, sample, BlockTable(self.pool, request.cache_salt)))
        self.waiting += state.sequences
        return state

    def schedule(self):
        """The next pass; its blocks are allocated."""
        return self.policy.schedule(self)

    @validate(step=SchedulerOutput, sample=function)
    def update(self, step, sample):
        """``step`` has been computed. Returns what was written, (sequence, token) each.

        sample:  given those that get a next token, (index in step.scheduled, sequence) each, returns the tokens.
        """
        ready = []
        for i, (sequence, num_tokens) in enumerate(step.scheduled):
            sequence.num_computed_tokens += num_tokens
            sequence.table.cache_full_blocks(sequence.tokens, sequence.num_computed_tokens)
            if sequence.num_uncomputed_tokens == 0:
                ready += [(i, each) for each in self.fork_prompt(sequence)]
        written = [(sequence, token) for (_, sequence), token in zip(ready, sample(ready))]
        for sequence, token in written:
            sequence.append(token)
        for sequence in self.policy.finished(self.running):
            self.remove(sequence)
        return written

    def fork_prompt(self, sequence):
        """All samples of its request, once its prompt is computed: the others begin here, and share its blocks."""
        state, forks = sequence.state, []
        for sample in range(len(state.sequences), state.request.n):
            forks.append(Sequence(state, sample, sequence.table.fork()))
            forks[-1].num_computed_tokens = sequence.num_computed_tokens
        state.sequences += forks
        place = self.running.index(sequence) + 1
        self.running[place:place] = forks
        return [sequence, *forks]

    @validate(state=RequestState)
    def cancel(self, state):
        """End a request that is no longer wanted; its blocks are free."""
        for sequence in [each for each in state.sequences if each.finish_reason is None]:
            self.remove(sequence)
            sequence.finish_reason = "cancelled"

    def preempt(self, sequence):
        """Preempt: free its blocks and put it at the front of the waiting queue."""
        self.remove(sequence)
        self.waiting.appendleft(sequence)

    def preempt_all(self):
        """Nothing is computed: all running sequences wait again, in their order."""
        for sequence in reversed([each for each in self.running if each.finish_reason is None]):
            self.preempt(sequence)

    def remove(self, sequence):
        among = self.running if sequence in self.running else self.waiting
        if sequence not in among:
            raise ValueError("Scheduler: cancel takes what add returned, got a request of another scheduler")
        among.remove(sequence)
        sequence.free()
