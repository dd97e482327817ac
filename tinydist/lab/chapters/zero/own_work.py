"""What a learner may use here: the collectives of torch.distributed, and no finished ZeRO; and what they sent."""

from ...errors import Wrong
from ...messages import draw_traffic
from ..data_parallel.own_work import collectives
from ..data_parallel.own_work import own_work as uses_none_of

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
SHARED = "Ranks of a real cluster share no memory: whatever one knows of another has to come in a message"


def own_work(watched):
    return uses_none_of(watched, FINISHED)


def only_these(trial, names):
    """No other collectives, and no messages."""
    for call in (call for rank in range(trial.case.ranks) for call in collectives(trial, rank)):
        if call.name not in names:
            advice = INSTEAD.get(call.name, "They are enough")
            raise Wrong(
                f"you call {call.name}, where {' and '.join(sorted(names))} are enough. {advice}", draw_traffic(trial)
            )


def each_sends(trial, nbytes, formula, reason=lambda times: ""):
    """Exactly ``nbytes``, on every rank. ``reason(times)``: why it is so many times as much, if that is known."""
    for rank, row in enumerate(trial.run.traffic):
        if abs(sum(row) - nbytes) > 0.5:
            why = reason(sum(row) / nbytes) if nbytes else ""
            why = why or (SHARED if sum(row) < nbytes else "")
            raise Wrong(
                f"rank {rank} sends {sum(row):,.0f} bytes, where {formula} = {nbytes:,.0f} are right. {why}".rstrip(),
                draw_traffic(trial),
            )
