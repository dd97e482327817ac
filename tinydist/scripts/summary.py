"""The summary of a run: a few lines on its time, what it sent, what the fullest rank held, and who came last.

8 simulated ranks: 2.1 s here, 31.4 ms of virtual time on 1 x 8 A100 80GB, NVSwitch inside
sent: 60.0 MB by all_reduce, 1.2 MB by broadcast
fullest: rank 0, 34.1 MB: 16.0 MB activations, 8.00 MB parameters, 8.00 MB gradients
straggler: rank 3 came last in 12 of 14 calls by work of its own; the next-to-last waited 8.1 ms in all
replaced: torch.compile by eager
"""

from collections import Counter

from ..console.quantities import bytes_text, seconds_text
from ..diagnose.command import groups_of, waits_for_last
from ..diagnose.recorded_calls import calls_of_trace

STRAGGLES = 0.05  # of virtual time for which the next-to-last waits, at least, for the rank that comes last


def summary(run, wall=None):
    """Lines. ``wall``: seconds that it took here, if that is to be said."""
    ranks, here = len(run.results), "" if wall is None else f"{wall:.1f} s here, "
    who = f"{ranks} simulated rank{'s' * (ranks > 1)}"
    lines = [f"{who}: {here}{seconds_text(run.seconds)} of virtual time on {run.cluster}"]
    lines += [*sent_lines(run), *memory_lines(run), *straggler_lines(run)]
    return lines + replaced_lines(run)


def bytes_by_operation(run):
    """{name of a collective, or "message": bytes sent by all ranks}, most bytes first."""
    sent = Counter()
    for transfer, phases in run.trace.sent.items():
        sent[transfer.name] += sum(sum(edges.values()) for edges in phases)
    return dict(sent.most_common())


def sent_lines(run):
    sent = [f"{bytes_text(nbytes)} by {name}" for name, nbytes in bytes_by_operation(run).items() if nbytes]
    return [f"sent: {', '.join(sent)}"] if sent else []


def memory_lines(run):
    fullest = max(run.memory, key=lambda held: held.peak)
    purposes = sorted(fullest.at_peak.items(), key=lambda each: -each[1])
    parts = ", ".join(f"{bytes_text(nbytes)} {purpose}" for purpose, nbytes in purposes)
    return [f"fullest: rank {fullest.rank}, {bytes_text(fullest.peak)}: {parts}"] if fullest.peak else []


def straggler_lines(run):
    """The rank for which the others waited longest, if that is much of the time, and all ranks ran.

    A rank that was late once counts once, not in each call to which it is late still (``waits_for_last``).
    """
    if any(held.is_idle for held in run.memory):
        return []
    calls = [call for call in calls_of_trace(run.trace) if not call.operation.startswith("message")]
    waits, meetings = waits_for_last(groups_of(calls))
    rank, own = max(waits.items(), key=lambda each: sum(wait for wait, _ in each[1]), default=(None, []))
    total = sum(wait for wait, _ in own)
    if not own or total < STRAGGLES * run.seconds:
        return []
    joined = f"rank {rank} came last in {len(own)} of {meetings} calls by work of its own"
    return [f"straggler: {joined}; the next-to-last waited {seconds_text(total)} in all"]


def replaced_lines(run):
    replaced = getattr(run, "replaced", None)
    return ["replaced: " + "; ".join(f"{asked}: {got}" for asked, got in replaced.items())] if replaced else []
