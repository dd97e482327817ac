"""What a learner may use here: the collectives of torch.distributed, and no finished ZeRO."""

from ...own_work import calls_none_of

FINISHED = {
    "tinydist.zero": "tinydist.zero",
    "torch.distributed.fsdp": "torch's FSDP",
    "torch.distributed.optim": "torch's ZeroRedundancyOptimizer",
}
HOLDS = "it uses neither tinydist.zero nor torch's FSDP or ZeroRedundancyOptimizer"
INSTEAD = {
    "all_reduce": "An all-reduce brings the whole sum to every rank, and each needs its shard alone: reduce-scatter",
    "broadcast": "Nobody has the whole to broadcast it: every rank owns a shard",
}


def own_work(watched):
    return calls_none_of(watched, FINISHED, "use the collectives of torch.distributed")
