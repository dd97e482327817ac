"""Reports: a deadlock, in which no rank can run; and calls that are still pending when all ranks have ended."""

import sys
from collections import defaultdict

from ..rules import ranks_in_words
from .call_sites import site_of

SHOWN = 8  # calls; and ranks whose peers are listed one by one, of those that wait on the same line


class DeadlockError(RuntimeError):
    """Every rank that has not ended waits for another."""


def deadlock_report(tasks):
    """A DeadlockError for the scheduler's ``tasks``, of which none can run. Ranks on the same line stand together."""
    frames = sys._current_frames()
    waiting = [task for task in tasks if not task.ended]
    waits = [(task.rank, *in_words(task.event), site_of(frames[task.thread.ident])) for task in waiting]
    lines = [f"no rank can run: {len(waiting)} of {len(tasks)} ranks wait for calls that can never complete"]
    lines += paragraphs(waits, "waits in", "wait in")
    ended = [task.rank for task in tasks if task.ended]
    if ended:
        lines.append(f"  {ranks_in_words(ended)}: returned")
    return DeadlockError("\n".join(lines))


def pending_calls_report(groups):
    """Collectives that only some ranks have joined, and messages that have one side only, when all ranks have ended;
    None where there are none.

    No rank waited for them, so the run did not hang. But real ranks may hang: the call moved no data, or created a
    group that other ranks did not. A call that all ranks joined is not reported, even if no rank waited for it: it is
    unknown whether its data was needed.
    """
    calls = paragraphs([call for group in groups for call in group.pending()], "issued", "issued")
    if not calls:
        return None
    more = [f"  and {len(calls) - SHOWN} more"] if len(calls) > SHOWN else []
    return "\n".join(["all ranks have ended, but these calls were never completed:", *calls[:SHOWN], *more])


def in_words(event):
    return event.wait_in_words() if event else ("a polling loop", "no progress")


def paragraphs(waits, one, many):
    """A paragraph for each call and line of ``waits``: (rank, call, whom it waits for, site). What one rank does there,
    or many do, is in those words."""
    alike = defaultdict(list)  # (call, site) -> [(rank, whom it waits for)]
    for rank, call, peers, site in waits:
        alike[call, site].append((rank, peers))
    told = []
    for (call, site), waits in alike.items():
        ranks = {rank for rank, _ in waits}
        lines = [f"  {ranks_in_words(ranks)} {many if len(ranks) > 1 else one} {call}"]
        lines += [f"    {peers}" for peers in _peers(waits)] + [f"    at {site}"]
        told.append("\n".join(lines))
    return told


def _peers(waits):
    """Whom ranks on the same line wait for: once if it is the same for all, else one by one."""
    kinds = {peers for _, peers in waits}
    if len(kinds) == 1:
        return kinds
    shown = [f"rank {rank} {peers}" for rank, peers in waits[:SHOWN]]
    return shown + ([f"and {len(waits) - SHOWN} more"] if len(waits) > SHOWN else [])
