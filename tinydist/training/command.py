"""``python -m tinydist train``: train a GPT on any device mesh.

    python -m tinydist train --mesh dp=2,pp=2,tp=2                          on simulated ranks
    torchrun --nproc-per-node 8 -m tinydist train --mesh dp=2,pp=2,tp=2     on processes, with a GPU each if there are

    ... --config ds_config.json                                             as DeepSpeed's configuration says

Ctrl-C stops it; with --folder, the same command resumes from the latest checkpoint, on any mesh.
"""

import argparse
import io
import os
import statistics
import sys
from functools import partial

from ..checkpoint.rules import CheckpointError
from ..console.command_name import command
from ..launching.launch import launch
from ..plan_options import add_options
from . import expert_options, report
from .job import Job, Refused, on_rank
from .lr_schedules import LR_SCHEDULES

# A report runs two steps and shows the second; nothing is kept.
SHORT = dict(
    steps=2, warmup_steps=0, given=(), folder=None, save_every=None, validate_every=None, history=None, report=None
)


class Options(argparse.ArgumentParser):
    """``given``: the names of what was typed, also if it is as by default."""

    def parse_args(self, words):
        unset = object()
        blank = argparse.Namespace(**{action.dest: unset for action in self._actions})
        found = vars(super().parse_args(words, blank))
        given = [name for name, value in found.items() if value is not unset]
        return super().parse_args(words, argparse.Namespace(given=given))

    def error(self, message):
        raise Refused(f"train: {message}")


def options():
    about = "Train a GPT on a mesh of ranks."
    adds = Options(prog=command("train"), description=about, usage="%(prog)s [options]", allow_abbrev=False)
    add_options(adds)
    add = adds.add_argument
    add("--model", default="", metavar="layers=2,dim=64,heads=4,context=64", help="sizes of the GPT")
    data = "text file or token file (default: the bundled text)"
    expert_options.add_options(adds)
    add("--data", metavar="FILE", help=data)
    add("--steps", type=int, default=100, metavar="N", help="number of training steps (default: %(default)s)")
    add("--lr", type=float, default=1e-3, metavar="LR", help="peak learning rate (default: %(default)s)")
    schedules = f"{{{','.join(LR_SCHEDULES)}}}"
    add("--lr-schedule", default="constant", metavar=schedules, help="learning-rate schedule (default: %(default)s)")
    warmup = "number of linear warmup steps (default: %(default)s)"
    add("--warmup-steps", type=int, default=0, metavar="N", help=warmup)
    add("--seed", type=int, default=0, metavar="N", help="random seed (default: %(default)s)")
    add("--folder", metavar="DIR", help="checkpoint directory; resumes from the latest checkpoint")
    change = "resume even if these differ from the checkpoint's run: batch, seed, data, held-out, heads"
    add("--allow-change", nargs="+", default=(), metavar="NAME", help=change)
    add("--save-every", type=int, metavar="N", help="save a checkpoint every N steps and at the end")
    held_out = "compute the validation loss every N steps, on a held-out tenth of the data"
    add("--validate-every", type=int, metavar="N", help=held_out)
    file = 'DeepSpeed configuration; command-line options replace "auto" values'
    add("--config", "--deepspeed_config", metavar="FILE", help=file)
    alias = "alias of --config (Hugging Face style); ignored without a value"
    add("--deepspeed", metavar="FILE", nargs="?", const="", help=alias)
    unlike = "allow ZeRO 2 and 3 with pipeline parallelism, which DeepSpeed rejects"
    add("--zero-in-pipelines", action="store_true", help=unlike)
    add("--local_rank", help=argparse.SUPPRESS)  # from launchers; ranks know theirs
    add("--history", metavar="FILE", help="write the metrics of each step as JSON Lines")
    add("--report", metavar="DIR", help="write the timeline, memory and traffic of one step")
    add("--cluster", metavar="NAME", help="cluster model used for simulated timing, e.g. 'H100 pod'")
    where = "where ranks run: simulated (threads), gloo or nccl (processes, under torchrun)"
    add("--backend", metavar="{simulated,gloo,nccl}", help=where)
    wait = "collective timeout in seconds, under torchrun (default: 1800 on gloo)"
    add("--timeout", type=float, metavar="SECONDS", help=wait)
    return adds


def main(words):
    """The exit status: 0; 2 for invalid options, 1 if it fails, 130 if it is interrupted."""
    folder = None
    try:
        chosen = options().parse_args(words)
        if chosen.config is None:
            chosen.config = chosen.deepspeed or None
        folder, job = chosen.folder, Job(chosen)
        job.check()
        if job.file and job.file.ignored and is_first():
            print(f"{chosen.config}: accepted keys without effect here: {', '.join(job.file.ignored)}")
        conclude(job, on_ranks(job))
        return 0
    except (Refused, CheckpointError) as error:
        return ended(error, 2)
    except FloatingPointError as error:
        return ended(error, 1)
    except OSError as error:
        if not error.filename:
            raise
        return ended(f"train: {error.filename}: {error.strerror}", 1)
    except KeyboardInterrupt:
        return ended("train: interrupted" + (f"; the checkpoints in {folder} are complete" if folder else ""), 130)


def ended(why, status):
    if is_first():
        print(why, file=sys.stderr)
    return status


def is_first():
    """Of the processes under torchrun."""
    return os.environ.get("RANK", "0") == "0"


def on_ranks(job):
    """Simulated ranks write to this process's terminal; others have their own."""
    chosen = job.chosen
    if job.simulated:
        return simulate(job, sys.stdout, sys.stderr, observe=False)
    how = dict(backend=chosen.backend, seed=chosen.seed, timeout=chosen.timeout)
    try:
        return launch(partial(on_rank, chosen), job.plan.ranks, **how)
    except ValueError as error:
        if str(error).startswith("launch: "):  # there are no such ranks here
            raise Refused(str(error)) from error
        raise


def simulate(job, out, err, observe):
    chosen = job.chosen
    how = dict(backend="simulated", cluster=chosen.cluster, seed=chosen.seed, observe=observe)
    return launch(partial(on_rank, chosen, out, err), job.plan.ranks, **how)


def conclude(job, run):
    history, _, flops = run.results[0]
    if not is_first():
        return
    chosen = job.chosen
    if history:
        print(in_a_line(history, [peak for _, peak, _ in run.results]))
    else:
        print(f"nothing to do: the checkpoint has all {chosen.steps} steps")
    if chosen.report and job.simulated:
        short = Job(argparse.Namespace(**vars(chosen) | SHORT))
        run = simulate(short, io.StringIO(), io.StringIO(), observe=True)
        step = report.write_simulated(run, chosen.report)
        print(report.summary(step, job.plan, job.batches, flops))
    if chosen.report:
        print(f"report written to {chosen.report}")


def in_a_line(history, peaks):
    first, last = history[0], history[-1]
    rate = statistics.median(state.tokens_per_second for state in history)
    said = f"steps {first.step + 1} to {last.step + 1}: loss {first.loss:.4f} to {last.loss:.4f}, {rate:,.0f} tokens/s"
    if last.held_out is not None:
        said += f", validation loss {last.held_out:.4f}"
    if all(peaks):
        most = max(peaks, key=lambda peak: peak.nbytes)
        said += f", peak memory of a rank {most} ({most.of})"
    return said
