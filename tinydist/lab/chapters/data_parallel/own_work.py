"""What a learner may use here: all of torch.distributed, but neither of the two finished wrappers."""

from ....simulator.record import Issue, Wait
from ...errors import Wrong
from ...messages import many, of

TORCHS = {"torch.nn.parallel": "torch's DistributedDataParallel"}
FINISHED = {"tinydist.data_parallel": "tinydist.data_parallel"} | TORCHS


def own_work(watched, solved=FINISHED, instead="use the collectives of torch.distributed"):
    """A judge: it does not call the finished ones. ``solved``: module -> its name for a learner."""

    def judge(trial):
        for home, name in solved.items():
            if watched.calls(home, trial.case.ranks):
                raise Wrong(f"you call {name}, where this is solved; {instead}")

    return judge


def waited(trial):
    for rank, program in enumerate(trial.run.record.programs):
        forgotten = issued(trial, rank) - {entry.transfer for entry in of(program, Wait)}
        if forgotten:
            raise Wrong(
                f"rank {rank} does not wait for {many(len(forgotten), 'collective')}: call wait() on what a call with "
                "async_op=True returns, before you read the result. Else nobody knows whether the numbers are there"
            )


def issued(trial, rank):
    return set(collectives(trial, rank))


def collectives(trial, rank=0):
    """The transfers of a rank, in the order in which it started them."""
    return [entry.transfer for entry in of(trial.run.record.programs[rank], Issue)]
