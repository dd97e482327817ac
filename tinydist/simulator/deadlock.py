"""The report when no rank can run: for every rank the call it waits in, whom it waits for, and the line."""

import sys
from collections import defaultdict

from .call_sites import site_of
from .matching import ranks_in_words

SHOWN = 8  # ranks whose peers are listed one by one, of those that wait on the same line


class DeadlockError(RuntimeError):
    """Every rank that has not ended waits for another."""


def explain(tasks):
    """A DeadlockError for the scheduler's ``tasks``, of which none can run. Ranks on the same line stand together."""
    frames = sys._current_frames()
    waiting = [task for task in tasks if not task.ended]
    alike = defaultdict(list)  # (call, site) -> [(rank, whom it waits for)]
    for task in waiting:
        call, peers = task.event.wait_in_words() if task.event else ("a loop that polls", "nothing happens any more")
        alike[call, site_of(frames[task.thread.ident])].append((task.rank, peers))
    lines = [f"no rank can run: {len(waiting)} of {len(tasks)} wait and none of what they wait for can happen"]
    for (call, site), waits in alike.items():
        lines += [f"  {ranks_in_words([rank for rank, _ in waits])} wait{'s' * (len(waits) == 1)} in {call}"]
        lines += [f"    {peers}" for peers in _peers(waits)] + [f"    at {site}"]
    ended = [task.rank for task in tasks if task.ended]
    if ended:
        lines.append(f"  {ranks_in_words(ended)}: returned")
    return DeadlockError("\n".join(lines))


def _peers(waits):
    """Whom ranks on the same line wait for: once if it is the same for all, else one by one."""
    kinds = {peers for _, peers in waits}
    if len(kinds) == 1:
        return kinds
    shown = [f"rank {rank} {peers}" for rank, peers in waits[:SHOWN]]
    return shown + ([f"and {len(waits) - SHOWN} more"] if len(waits) > SHOWN else [])
