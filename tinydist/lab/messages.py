"""The messages and transfers of a run, as recorded: how many, to whom, how many bytes, and whether all are waited for.

Everything is counted in the record of the run, so a program that talks through a global variable has sent nothing.
"""

from statistics import median

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


# None left over.


def left_open(trial, *_):
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


# How many, and to whom.


def only_hub(run, hub):
    return len(run.record.programs) > 2 and all(hub in message.ranks for message in messages(run))


# Bytes.


def nobody(sent):
    if not any(sent):
        return f"nobody sent anything. {SHARED}"


def star(sent):
    most = max(sent)
    others = median(sorted(sent)[:-1] or [most])
    if len(sent) > 2 and others and most >= 2 * others:
        return (
            f"rank {sent.index(most)} sends {most / others:.3g} times what the others send ({most:,.0f} bytes): this "
            "is a star, not a ring. All wait for one link"
        )


def whole_tensors(run, whole, right=None):
    """``whole``: bytes of a tensor, parts of which should be sent; ``right``: those that all ranks send."""
    if not whole or {message.nbytes for message in messages(run)} != {whole}:
        return None
    text = f"every message carries the whole tensor, {whole:,} bytes"
    if right is None:
        return f"{text}: send parts of it"
    count = sum(message.ranks[0] == 0 for message in messages(run))
    return (
        f"{text}: with {count} of them a rank sends {count * whole:,} bytes. Pass parts: a rank then sends "
        f"{right / len(run.record.programs):,.0f} bytes"
    )


def calls_besides(mine, its):
    """Names of transfers that are not needed."""
    if set(mine) <= set(its):
        return ""
    needless, enough = (" and ".join(sorted(names)) for names in (set(mine) - set(its), set(its) - {"message"}))
    return f"you call {needless}, where {enough} is enough"


def smaller_numbers(trial, right):
    """As many transfers, and each with half of the bytes, or a quarter of them."""
    mine, its = (
        sorted(each.nbytes for each in transfers(one.run) if each.name != "all_to_all") for one in (trial, right)
    )
    if any(mine) and any([factor * nbytes for nbytes in mine] == its for factor in (2, 4)):
        return "As many transfers, and each has a part of the bytes: are the numbers sent in a smaller dtype?"
    return ""


def many(count, thing):
    return f"{count} {thing}{'s' * (count != 1)}"


def are(count):
    return f"{count} {'is' if count == 1 else 'are'}"
