"""The messages and transfers of a run, as recorded: how many, to whom, how many bytes, and whether all are waited for.

Everything is counted in the record of the run, so a program that talks through a global variable has sent nothing.
"""

from ..tracing.record import Issue, Wait

RETURNING = {  # something to wait for
    "message": "isend, irecv and batch_isend_irecv return",
    "collective": "a call with async_op=True returns",
}
SHARED = "Ranks of a real cluster share no memory: whatever one knows of another has to come in a message"


def messages(run):
    """The messages that met their other side, each once, in the order in which rank 0, 1, ... posted them."""
    return [each for each in transfers(run) if each.name == "message" and each.awaited]


def transfers(run):
    return list(dict.fromkeys(entry.transfer for program in run.record.programs for entry in of(program, Issue)))


def of(program, kind):
    return [entry for entry in program if isinstance(entry, kind)]


def started(run, rank):
    """The transfers of a rank, in the order in which it started them."""
    return [entry.transfer for entry in of(run.record.programs[rank], Issue)]


def left_open(trial):
    """Of a rank that leaves a message alone, or does not wait for what it has started. Wrong values may come of it."""
    programs = trial.run.record.programs if trial.run else []  # none: a rank has ended it
    for rank, program in enumerate(programs):
        issued = started(trial.run, rank)
        alone = [each for each in issued if not each.awaited]
        if alone:
            return (
                f"rank {rank} posted {many(len(alone), 'message')} whose other side nobody posted: "
                f"a send that is not received, or a receive that nothing is sent for"
            )
        waited = {entry.transfer for entry in of(program, Wait)}
        forgotten = [each.name for each in issued if each not in waited]
        if forgotten:
            kind = "message" if set(forgotten) == {"message"} else "collective"
            return (
                f"rank {rank} does not wait for {many(len(forgotten), kind)}: call wait() on what {RETURNING[kind]}, "
                "else nobody knows whether the numbers have arrived"
            )
    return None


def nobody(sent):
    if not any(sent):
        return f"nobody sent anything. {SHARED}"


def many(count, thing):
    return f"{count} {thing}{'s' * (count != 1)}"


def are(count):
    return f"{count} {'is' if count == 1 else 'are'}"
