"""torchrun in a process that has loaded torch, and whose processes are forked from it."""

import os

from warm import Warm

import tinydist.__main__


def torchrun(processes, *words):
    """The exit status of ``torchrun --nproc-per-node PROCESSES -m tinydist WORDS``."""
    fork = ["--start-method", "fork", "--run-path", tinydist.__main__.__file__]  # for -m tinydist
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return Warm(environment, run, ["--standalone", "--nproc-per-node", str(processes), *fork, *words]).wait()


def run(words):
    from torch.distributed.run import main

    main(words)
