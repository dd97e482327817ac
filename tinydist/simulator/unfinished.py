"""The report at the end of a run: collectives that only some ranks have joined, messages that have one side only.

Nobody has waited for them, so nothing hung. But real ranks may hang: the call has moved nothing, or made a group that
the others do not count. A call that all have joined is none of them, though nobody waited for it: whether its data
was needed cannot be told.
"""

from .deadlock import told

SHOWN = 8  # calls


def report(groups):
    """Words on the calls of ``groups`` that were never completed; None where there are none."""
    calls = told([call for group in groups for call in group.unfinished()], "issued", "issued")
    if not calls:
        return None
    more = [f"  and {len(calls) - SHOWN} more"] if len(calls) > SHOWN else []
    return "\n".join(["all ranks have ended, but these calls were never completed:", *calls[:SHOWN], *more])
