"""Batching before paging: policies that reserve contiguous memory for a request's maximum length.

    two at a time; A is long     StaticBatching        A A A A A C C      a batch waits for its longest request
                                                       B . . . . D .

                                 Orca                  A A A A A          a finished one is replaced at the next pass
                                                       B C C D

                                 ContinuousBatching    as Orca, with blocks when they are needed, prompts in chunks, and
                                                       preemption of the youngest if no block is free

Sources: Yu et al. 2022, Orca, section 3; Kwon et al. 2023, PagedAttention, section 6.1 (what Orca would reserve).
"""

from contextlib import suppress

from ..rules import count, validate
from .blocks import OutOfBlocks
from .scheduler import SchedulerOutput, SchedulingPolicy, check_fits, equation

RESERVE = "exact", "power of 2"


def reserved(value):
    """an integer >= 1 (tokens), or one of exact, power of 2"""
    return count(value) or (isinstance(value, str) and value in RESERVE)


@validate(max_num_seqs=count, reserve=reserved)
class Orca(SchedulingPolicy):
    """Iteration-level scheduling: each pass takes waiting requests while there are fewer than ``max_num_seqs``.

    reserve:  for how many tokens: as many for each, which serving systems did that could not know; "power of 2", the
              next from what is needed; "exact", the oracle's.
    """

    def __init__(self, max_num_seqs, reserve="exact"):
        self.max_num_seqs, self.reserve = max_num_seqs, reserve

    def reservation(self, request):
        """In tokens."""
        exact = {"exact": request.longest, "power of 2": 1 << (request.longest - 1).bit_length()}
        return exact.get(self.reserve, self.reserve)

    def check(self, request, pool):
        reservation = self.reservation(request)
        if request.longest > reservation:
            raise ValueError(f"request: {equation(request)}, but {reservation} are reserved for each")
        check_fits(f"{reservation} reserved tokens", reservation, request, pool)

    def schedule(self, scheduler):
        step = SchedulerOutput()
        self.admit(scheduler.waiting, scheduler.running)
        for sequence in scheduler.running:
            if not sequence.finish_reason:
                step.schedule(sequence, sequence.num_uncomputed_tokens)
        return step

    def admit(self, waiting, running):
        """First come, first served, until one finds no memory."""
        with suppress(OutOfBlocks):
            while waiting and len(running) < self.max_num_seqs:
                waiting[0].table.reserve(self.reservation(waiting[0].request))
                running.append(waiting.popleft())


class StaticBatching(Orca):
    """Static batching: the next batch starts when all sequences of this one have finished."""

    def admit(self, waiting, running):
        if not running:
            super().admit(waiting, running)

    def finished(self, running):
        return [*running] if all(each.finish_reason for each in running) else []
