"""How a rank's program ends besides returning and failing.

SystemExit, KeyboardInterrupt and GeneratorExit tell an interpreter what to do. On a rank that would be the interpreter
of whoever launched it: a kernel would end, or stop as if its reader had pressed Ctrl-C. So none of them leaves a rank.
"""


def end_of(rank, fn, args):
    """What ``fn(*args)`` returns; None where it calls sys.exit(0). RuntimeError for the other two, and other codes."""
    try:
        return fn(*args)
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as end:
        left = isinstance(end, SystemExit)
        if left and end.code in (None, 0):
            return None
        what = f"called sys.exit({end.code!r})" if left else f"raised {type(end).__name__}"
        raise RuntimeError(f"rank {rank} {what}").with_traceback(end.__traceback__) from None
