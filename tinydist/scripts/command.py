"""``python -m tinydist run``: a script that is written for torchrun, on simulated ranks, in one process.

    python -m tinydist run --nproc-per-node 8 train.py --lr 1e-3         as torchrun --nproc-per-node 8 train.py ...
    python -m tinydist run --nproc-per-node 8 --nnodes 2 -m pkg.train    both nodes' ranks are started here
    python -m tinydist run --gpus "H100 pod" --nproc-per-node 8 train.py the script sees CUDA GPUs
    python -m tinydist run train.py                                      one process; those that it spawns are ranks

torchrun's options are those of the installed torch. The exit status is torchrun's: 0, or 1 if a rank failed; 2 for
options that cannot be met, 130 after Ctrl-C.
"""

import os
import sys
import time
import warnings
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

from ..console.command_name import command
from ..hardware import CLUSTERS, find_cluster
from . import processes
from . import torchrun_options as torchrun
from .failures import show
from .job import Job
from .program import Program

OURS = "tinydist"


def options():
    parser = torchrun.torchrun_parser()
    parser.prog, parser.description = command("run"), "Run a script that is written for torchrun on simulated ranks."
    parser.usage, parser.allow_abbrev = "%(prog)s [options] script.py [arguments of the script]", False
    adds = parser.add_argument_group(OURS)
    gpus = 'let the script see CUDA GPUs, those of a cluster (default: "A100 node")'
    adds.add_argument("--gpus", action="store_true", help=f"[CLUSTER]  {gpus}")
    adds.add_argument("--cluster", help=f"hardware on which virtual time is computed: {', '.join(CLUSTERS)}")
    backends = "gloo: start processes with torchrun itself, without a record (default: %(default)s)"
    adds.add_argument("--backend", choices=("simulated", "gloo"), default="simulated", help=backends)
    fakes = "forecast at real size: what is on a GPU has no data"
    adds.add_argument("--fake", action="store_true", help=fakes)
    adds.add_argument("--value", action="append", metavar="NAME=NUMBER", help="with --fake: a number the script reads")
    only = "with --fake: run these ranks alone, such as 0; the others are taken to do the same"
    adds.add_argument("--only", metavar="RANKS", help=only)
    seed = "seed of each rank's random generators (default: %(default)s)"
    adds.add_argument("--seed", type=int, default=0, help=seed)
    schedule = "order of the ranks' turns; shuffle: another legal order, by --seed (default: %(default)s)"
    adds.add_argument("--schedule", choices=("fifo", "shuffle"), default="fifo", help=schedule)
    report = "write a timeline for Perfetto, pictures of memory and traffic, and the summary into a folder"
    adds.add_argument("--report", metavar="FOLDER", help=report)
    adds.add_argument("--quiet", action="store_true", help="print no summary")
    return parser


def parsed(words):
    """The cluster after --gpus may be left out, so it stands where argparse finds a script."""
    chosen = options().parse_args(words)
    script, rest = chosen.training_script, chosen.training_script_args
    if chosen.gpus and not chosen.cluster and is_cluster(script):
        before = words[: len(words) - len(rest) - 1]
        chosen = options().parse_args([*before, "--cluster", script, *rest])
    return chosen


def is_cluster(word):
    """Also one that does not exist, which is told as such, if it looks like one."""
    known = word.lower() in map(str.lower, CLUSTERS)
    return known or (" " in word and not os.path.exists(word))


def main(words):
    chosen = parsed(words)
    try:
        if chosen.backend == "gloo":
            return processes.run(chosen)
        job = job_of(chosen)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return run(job, chosen)


def job_of(chosen):
    ignored = torchrun.check(chosen)
    cluster = find_cluster(chosen.cluster) if chosen.cluster else None
    where = torchrun.placement(chosen, cluster, chosen.gpus or chosen.fake)
    where.on()
    program = Program(chosen.training_script, chosen.training_script_args, chosen.module)
    asked = {"seed": chosen.seed, "schedule": chosen.schedule, **of_gpus(chosen)}
    shown = torchrun.local_ranks(chosen.local_ranks_filter)
    if ignored:
        print(ignored, file=sys.stderr)
    return Job(program, where, torchrun.variables_for(chosen, where), asked, shown)


def of_gpus(chosen):
    """A forecast is one of GPUs."""
    values = dict(map(named_number, chosen.value or ()))
    if values and not chosen.fake:
        raise ValueError(f"run: --value gives a number to a forecast, --fake, got {' '.join(chosen.value)}")
    if chosen.only and not chosen.fake:
        raise ValueError(f"run: --only is for a forecast, --fake, got {chosen.only!r}")
    if not (chosen.gpus or chosen.fake):
        return {}
    return {"gpus": True, "fake": chosen.fake, "values": values or None, "only": ranks_of(chosen.only)}


def ranks_of(text):
    if text is None:
        return None
    if not all(part.isdecimal() for part in text.split(",")):
        raise ValueError(f"run: --only must be ranks separated by commas, such as 0 or 0,8, got {text!r}")
    return [int(part) for part in text.split(",")]


def named_number(text):
    name, _, number = text.partition("=")
    try:
        return name.strip(), float(number)
    except ValueError:
        raise ValueError(f"run: --value must be NAME=NUMBER, such as loss=3.0, got {text!r}") from None


def run(job, chosen):
    """The exit status."""
    began = time.monotonic()
    try:
        with patch.object(warnings, "showwarning", partial(show_warning, warnings.showwarning)), no_rank_of_a_job():
            job.run()
        return tell(job, chosen, time.monotonic() - began)
    except KeyboardInterrupt as pressed:
        print("\ninterrupted", *getattr(pressed, "__notes__", ()), sep="\n", file=sys.stderr)
        return 130
    except Exception as error:
        if isinstance(error, ValueError) and not job.outcome.failed:  # no rank was started
            print(error, file=sys.stderr)
            return 2
        show(error, job, sys.stderr)
        return 1


@contextmanager
def no_rank_of_a_job():
    """Schedulers of a cluster set these, from which ``launch`` would conclude that it is to join a job."""
    with patch.dict(os.environ):
        for name in ("RANK", "WORLD_SIZE"):
            os.environ.pop(name, None)
        yield


def show_warning(show, message, *where, **options):
    """What ``launch`` warns of is about the script, and not about a line of this file."""
    if str(message).startswith("launch: "):
        print(message, file=sys.stderr)
    else:
        show(message, *where, **options)


def tell(job, chosen, wall):
    """The exit status."""
    if chosen.quiet and not (chosen.report or chosen.fake):
        return 0
    from .forecast import NoForecast, forecast  # only now: a script starts sooner
    from .summary import summary

    observed = job.outcome.runs[0]  # the processes that a script has started end before itself
    lines = summary(observed, wall)
    try:
        lines += forecast(observed) if chosen.fake else []
    except NoForecast as why:
        print(why, file=sys.stderr)
        return 1
    if not chosen.quiet:
        print(*lines, sep="\n")
    if chosen.report:
        from .report import write_report

        write_report(observed, lines, wall, chosen.report)
    return 0
