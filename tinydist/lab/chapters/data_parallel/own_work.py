"""What a learner may use here: all of torch.distributed, but neither of the two finished wrappers."""

from ...own_work import calls_none_of

TORCHS = {"torch.nn.parallel": "torch's DistributedDataParallel"}
FINISHED = {"tinydist.data_parallel": "tinydist.data_parallel"} | TORCHS
HOLDS = "it uses neither tinydist.data_parallel nor torch's DDP"


def own_work(watched):
    return calls_none_of(watched, FINISHED, "use the collectives of torch.distributed")
