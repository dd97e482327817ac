"""What a learner may use here: the collectives of torch.distributed, no finished ZeRO, and tensors alone."""

import sys
from functools import partial

import torch.distributed as dist

from ...errors import Wrong
from ...own_work import Watched, calls_none_of

FINISHED = {
    "tinydist.zero": "tinydist.zero",
    "torch.distributed.fsdp": "torch's FSDP",
    "torch.distributed.optim": "torch's ZeroRedundancyOptimizer",
}
HOLDS = "it uses neither tinydist.zero nor torch's FSDP or ZeroRedundancyOptimizer, and no numpy"
INSTEAD = {
    "all_reduce": "An all-reduce brings the whole sum to every rank, and each needs its shard alone: reduce-scatter",
    "broadcast": "Nobody has the whole to broadcast it: every rank owns a shard",
    "reduce": "One reduce for each rank is a reduce-scatter",
}


LIBRARIES = ("torch.", "tinydist.")


class Counted(Watched):
    """It notes, too, in which worlds the answer takes a tensor's numbers to numpy, where no ledger counts them."""

    def __init__(self, answer):
        super().__init__(partial(self.look, answer))
        self.to_numpy = set()  # numbers of ranks

    def look(self, answer, *arguments):
        before, ranks = sys.getprofile(), dist.get_world_size()

        def note(frame, event, argument):
            if event == "c_call" and argument.__name__ == "numpy" and not of_a_library(frame):
                self.to_numpy.add(ranks)

        sys.setprofile(note)
        try:
            return answer(*arguments)
        finally:
            sys.setprofile(before)


def of_a_library(frame):
    return frame.f_globals.get("__name__", "").startswith(LIBRARIES)


def own_work(watched):
    finished = calls_none_of(watched, FINISHED, "use the collectives of torch.distributed")

    def judge(trial):
        if trial.case.ranks in watched.to_numpy:
            raise Wrong("you call numpy: what it gives is memory that is not counted. Keep numbers in tensors")
        finished(trial)

    return judge
