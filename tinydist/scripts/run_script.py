"""``run_script``: what ``tinydist run`` does in a terminal, from Python: it returns the run, or raises its error.

    run = run_script("--nproc-per-node 4 --gpus train.py --epochs 3")
    visuals.timeline(run)
    print(*summary(run), sep="\\n")

Options that only the command has (--report, --quiet) do nothing here.
"""

import shlex

from .command import job_of, parsed


def run_script(words):
    """Run a script on simulated ranks. ``words``: those after ``tinydist run``, a text or a list. Returns the Run."""
    chosen = parsed(shlex.split(words) if isinstance(words, str) else list(words))
    if chosen.backend != "simulated":
        raise ValueError(f"run_script: --backend {chosen.backend} starts processes, of which nothing is recorded")
    job = job_of(chosen)
    job.run()
    return job.outcome.runs[0]  # the processes that a script has started end before itself
