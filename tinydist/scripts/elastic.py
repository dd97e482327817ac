"""torchrun called inside of a script: ``torch.distributed.run.main`` and ``elastic_launch`` launch ranks here."""

import os
from functools import partial

from .placement import Placement
from .program import Program
from .torchrun_options import variables


def elastic(job, config, entrypoint, args, **_):
    """In the place of ``launch_agent``: {rank: what ``entrypoint(*args)`` returned}. ``entrypoint``: a function, or the
    name of a Python, to which ``args`` say what it runs."""
    where = Placement(config.min_nodes, config.nproc_per_node, job.placement.cluster)
    program = program_of(entrypoint, args) if isinstance(entrypoint, str) else job.program
    address, _, port = config.rdzv_endpoint.rpartition(":")
    given = variables(where, address or "127.0.0.1", port, config.run_id, config.role, config.max_restarts)
    inner = type(job)(program, where, given, job.options, outcome=job.outcome)
    if program is not job.program:
        inner.launch(inner.begin, where)
        return {}
    run = inner.launch(partial(inner.begin_function, partial(entrypoint, *args)), where)
    return dict(enumerate(run.results))


def program_of(python, arguments):
    """``python -u script.py``, or ``-u -m module``, as torchrun calls it."""
    words = [word for word in arguments if word != "-u"]
    if not os.path.basename(python).startswith("python"):
        raise ValueError(f"torchrun: simulated ranks run Python programs, got {python!r}")
    return Program(words[1], words[2:], module=True) if words[0] == "-m" else Program(words[0], words[1:])
