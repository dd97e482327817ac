"""``run_script``: what ``tinydist run`` does in a terminal, from Python: it returns the run, or raises its error.

    run = run_script("--nproc-per-node 4 --gpus train.py --epochs 3")
    visuals.timeline(run)
    print(*summary(run), sep="\\n")

Options that only the command has (--report, --quiet) do nothing here.
"""

import shlex

from ..simulator.call_sites import site_of_traceback
from .command import job_of, parsed


def run_script(words):
    """Run a script on simulated ranks. ``words``: those after ``tinydist run``, a text or a list. Returns the Run.

    What the script raises has a note with its line.
    """
    chosen = parsed(shlex.split(words) if isinstance(words, str) else list(words))
    if chosen.backend != "simulated":
        raise ValueError(f"run_script: --backend {chosen.backend} starts processes, of which nothing is recorded")
    job = job_of(chosen)
    try:
        job.run()
    except Exception as error:
        site = site_of_traceback(error.__traceback__)
        error.add_note(f"at {site}" if site else "before the script began")
        raise
    return job.outcome.runs[0]  # the processes that a script has started end before itself
