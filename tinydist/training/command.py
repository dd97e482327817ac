"""``python -m tinydist train``: a GPT on any mesh, from one line.

    python -m tinydist train --mesh dp=2,pp=2,tp=2                          on simulated ranks
    torchrun --nproc-per-node 8 -m tinydist train --mesh dp=2,pp=2,tp=2     on processes, with a GPU each if there are

    ... --config ds_config.json                                             as DeepSpeed's configuration says

Ctrl-C ends it; with --folder, the same line again goes on from the last checkpoint, on any mesh.
"""

import argparse
import io
import os
import statistics
import sys
from functools import partial

from ..checkpoint.rules import CheckpointError
from ..console.shell import command
from ..launching.launch import launch
from . import report
from .job import Job, Refused, on_rank
from .rates import RATES

# What a report is made of: two steps, of which it shows the second, and nothing is kept.
SHORT = dict(steps=2, warmup=0, given=(), folder=None, save_every=None, validate_every=None, history=None, report=None)


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
    adds = Options(prog=command("train"), description="Train a GPT on a mesh of ranks.", usage="%(prog)s [options]")
    add = adds.add_argument
    add("--mesh", default="dp=1", metavar="dp=2,pp=2,tp=2", help="ranks along each axis")
    add("--model", default="", metavar="layers=2,dim=64,heads=4,context=64", help="sizes of the GPT")
    add("--data", metavar="FILE", help="a text, or a file of tokens; by default a text that is on every machine")
    add("--batch", type=int, default=16, help="sequences of a step, of all ranks")
    add("--microbatches", type=int, default=1, help="parts of a rank's batch, one after another")
    add("--steps", type=int, default=100)
    add("--lr", type=float, default=1e-3, help="learning rate at its peak")
    add("--rate", default="constant", metavar="|".join(RATES), help="its course")
    add("--warmup", type=int, default=0, help="steps in which it rises")
    add("--clip", type=float, dest="max_norm", metavar="NORM", help="limit for the norm of all gradients")
    add("--zero", type=int, default=0, help="0 to 3: optimizer states, gradients, parameters are sharded")
    add("--replicate", type=int, help="copies of the shards")
    add("--precision", default="fp32", metavar="fp32|bf16|fp16")
    add("--recompute", default="none", metavar="none|selective|full")
    add("--sequence", metavar="kept|again|ring", help="sequence parallelism in tensor groups")
    add("--schedule", default="1f1b", help="of the pipeline: gpipe, 1f1b, interleaved ...")
    add("--chunks", type=int, default=1, help="stages of a rank")
    add("--seed", type=int, default=0)
    add("--folder", help="for checkpoints; training goes on from the one that is there")
    add("--save-every", type=int, metavar="STEPS", help="a checkpoint after so many steps; one is saved in the end")
    add("--validate-every", type=int, metavar="STEPS", help="the loss on a tenth of the data, which is held out")
    says = "DeepSpeed's ds_config.json; options fill each auto in it"
    add("--config", "--deepspeed_config", metavar="FILE", help=says)
    add("--deepspeed", metavar="FILE", nargs="?", const="", help="the same, as transformers has it; or nothing")
    add("--zero-in-pipelines", action="store_true", help="allow ZeRO 2 and 3 there, which DeepSpeed refuses")
    add("--local_rank", help=argparse.SUPPRESS)  # from launchers; ranks know theirs
    add("--history", metavar="FILE", help="a line of JSON for each step")
    add("--report", metavar="FOLDER", help="the timeline, memory and traffic of a step, as files")
    add("--cluster", help="on which simulated ranks are timed: 'H100 pod'")
    add("--backend", metavar="simulated|gloo|nccl", help="where ranks live")
    says = "under torchrun, how long a rank waits for others: so soon a lost node is noticed; by default 1800, on gloo"
    add("--timeout", type=float, metavar="SECONDS", help=says)
    return adds


def main(words):
    """The exit status: 0; 2 for options of which no training can be made, 1 if it fails, 130 if it is interrupted."""
    folder = None
    try:
        chosen = options().parse_args(words)
        chosen.config = chosen.config or chosen.deepspeed
        folder, job = chosen.folder, Job(chosen)
        job.check()
        if job.file and job.file.ignored and is_first():
            print(f"{chosen.config}: accepted, and nothing comes of it here: {', '.join(job.file.ignored)}")
        conclude(job, on_ranks(job))
        return 0
    except (Refused, CheckpointError) as error:
        return ended(error, 2)
    except FloatingPointError as error:
        return ended(error, 1)
    except KeyboardInterrupt:
        return ended("train: interrupted" + (f"; what is in {folder} is whole" if folder else ""), 130)


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
    return launch(partial(on_rank, chosen), job.plan.ranks, **how)


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
        print(f"all {chosen.steps} steps were taken before")
    if chosen.report and job.simulated:
        short = Job(argparse.Namespace(**vars(chosen) | SHORT))
        run = simulate(short, io.StringIO(), io.StringIO(), observe=True)
        step = report.write_simulated(run, chosen.report)
        print(report.summary(step, job.plan, job.batches, flops))
    if chosen.report:
        print(f"the report is in {chosen.report}")


def in_a_line(history, peaks):
    first, last = history[0], history[-1]
    rate = statistics.median(state.tokens_per_second for state in history)
    said = f"steps {first.step + 1} to {last.step + 1}: loss {first.loss:.4f} to {last.loss:.4f}, {rate:,.0f} tokens/s"
    if last.held_out is not None:
        said += f", on held-out text {last.held_out:.4f}"
    if all(peaks):
        most = max(peaks, key=lambda peak: peak.nbytes)
        said += f", at most {most} on a rank ({most.of})"
    return said
