"""What is shown of a job that failed: the program's own lines, then the root cause as torchrun's summary names it."""

import re
import traceback

from ..rules import ranks_in_words
from ..simulator.call_sites import learners_traceback, site_of_traceback

OF_A_RANK = re.compile(r"on rank \d+ of \d+")


def show(error, job, file):
    """``error``: what ``launch`` has raised."""
    rank, cause = job.outcome.failed or (None, error)
    if isinstance(cause, SystemExit):
        words = [f"{cause.code}\n"] if isinstance(cause.code, str) else []
    else:
        words = traceback_of(cause)
    prefix = "" if rank is None or job.outcome.ranks == 1 else f"[rank {rank}] "
    for line in "".join(words).splitlines():
        print(f"{prefix}{line}", file=file)
    print(f"{job.program} FAILED", *root_cause(rank, cause, job.outcome), sep="\n  ", file=file)


def traceback_of(error):
    """As Python prints it, of the program's own lines and of the libraries' that they have called."""
    for each in chain(error):
        each.__traceback__ = learners_traceback(each)
        notes = [note for note in getattr(each, "__notes__", ()) if not OF_A_RANK.fullmatch(note)]
        if hasattr(each, "__notes__"):
            each.__notes__ = notes
    return traceback.format_exception(error)


def chain(error, seen=()):
    """It, its cause and its context, and theirs."""
    if error is not None and error not in seen:
        yield error
        yield from chain(error.__cause__, (*seen, error))
        yield from chain(error.__context__, (*seen, error))


def root_cause(rank, cause, outcome):
    if rank is None:
        return [f"root cause: {type(cause).__name__}, exit code 1"]
    node, local_rank = divmod(rank, outcome.per_node)
    exits = isinstance(cause, SystemExit)
    code = cause.code if exits and isinstance(cause.code, int) else 1
    first = f"sys.exit({cause.code!r})" if exits else first_line(cause)
    lines = [f"root cause: rank {rank} (local_rank {local_rank}, node {node}), exit code {code}: {first}"]
    site = site_of_traceback(cause.__traceback__)
    lines += [f"  at {site}"] if site else []
    others = set(range(outcome.ranks)) - {rank}
    return lines + ([f"stopped: {ranks_in_words(others)}"] if others else [])


def first_line(error):
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
