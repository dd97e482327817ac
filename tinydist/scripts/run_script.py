"""``run_script``: what ``tinydist run`` does in a terminal, from Python: it returns the run, and raises its error.

    run = run_script("--nproc-per-node 4 --gpus train.py --epochs 3")
    run.memory, run.traffic, visuals.timeline(run)
"""

import shlex

from .command import job_of, parsed


def run_script(words):
    """Run a script on simulated ranks. ``words``: those after ``tinydist run``, as text or as a list.

    Options that only the command has (--report, --quiet) do nothing here. Returns the ``Run``; what it observed is also
    there if the script has started the ranks itself.
    """
    chosen = parsed(shlex.split(words) if isinstance(words, str) else list(words))
    if chosen.backend == "gloo":
        raise ValueError("run_script: --backend gloo starts processes, which are not recorded: use the command line")
    job = job_of(chosen)
    job.run()
    return job.outcome.runs[0]  # the processes that a script has started end before itself
