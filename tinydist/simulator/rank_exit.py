"""How a rank exits other than by returning or failing: sys.exit, KeyboardInterrupt, GeneratorExit.

SystemExit, KeyboardInterrupt and GeneratorExit tell an interpreter what to do. On a rank that would be the interpreter
that launched the ranks: a kernel would exit, or stop as on Ctrl-C. So none of them propagates out of a rank.
"""


def run_to_exit(rank, fn, args):
    """What ``fn(*args)`` returns; None where it calls sys.exit(0). RuntimeError for the other two, and other codes."""
    try:
        return fn(*args)
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as end:
        left = isinstance(end, SystemExit)
        if left and end.code in (None, 0):
            return None
        what = f"called sys.exit({end.code!r})" if left else f"raised {type(end).__name__}"
        raise RuntimeError(f"rank {rank} {what}").with_traceback(end.__traceback__) from None
