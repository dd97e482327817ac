"""The ``train`` command's job: builds plan, model, data and schedule from the options, on each rank.

Ranks receive only the options. Each builds the same plan, model, data and schedule from them, and takes its shard.
"""

import json
import os
import sys
from argparse import Namespace
from contextlib import contextmanager
from dataclasses import asdict, fields
from functools import cache, partial
from math import inf
from pathlib import Path

import numpy as np
import torch.distributed as dist

from ..checkpoint.files import checksum_of
from ..console.quantities import bytes_text
from ..hardware import find_cluster
from ..launching.options import RULES, optional, under_torchrun
from ..model import GPTConfig, load_text
from ..plan import Plan
from ..plan_options import plan_of
from ..rules import count, each_of, must, one_of
from ..torch_internals import device_of_group
from . import expert_options, report
from .compat.config import Config
from .data import Batches
from .engine import schedule_of
from .expert_options import OPTIONS as EXPERT_OPTIONS
from .expert_options import gpt_of, load_balance_of
from .loop import rows_of, train
from .lr_schedules import LR_SCHEDULES
from .meters import flops_per_token, peak_memory
from .parallelize import parallelize
from .run_folder import CHANGES
from .tokens import TokenFile, hold_out, path_of_header

OF_THEIR_OWN = {
    "lr_schedule": one_of(LR_SCHEDULES),
    "backend": optional(RULES["backend"]),
    "cluster": RULES["cluster"],
    "seed": RULES["seed"],
    "timeout": RULES["timeout"],
    "save_every": optional(count),
    "validate_every": optional(count),
    **{name: option.rule for name, option in EXPERT_OPTIONS.items()},
    "allow_change": each_of(one_of([name.replace("_", "-") for name in CHANGES]), 0),
}
# No key of ds_config.json says these.
BESIDE_A_FILE = ("replicate", "schedule", "chunks", "sequence_parallel", "context", "recompute")
HELD_OUT = 0.1  # of the data
HOST_MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else inf
LINES = 20  # printed in a run, where no terminal shows a bar


class Refused(ValueError):
    """Invalid options."""


@contextmanager
def refusing():
    try:
        yield
    except ValueError as error:
        raise Refused(str(error)) from error
    except OSError as error:
        raise Refused(f"train: {error.filename}: {error.strerror}") from error


def file_of(chosen, dim):
    """A ds_config.json; the command line fills its "auto"."""
    sizes = Plan.parse(chosen.mesh)
    auto = Namespace(**vars(chosen), dp=sizes.dp, pp=sizes.pp, dim=dim)
    beside = {name: getattr(chosen, name) for name in BESIDE_A_FILE}
    return Config(chosen.config, chosen.mesh, auto, chosen.given, chosen.zero_in_pipelines, **beside)


class Job:
    """Also constructed before ranks start, so that invalid options are reported early. Raises ``Refused``."""

    def __init__(self, chosen):
        self.chosen = chosen
        with refusing():
            for name, rule in OF_THEIR_OWN.items():
                must("train", f"--{name.replace('_', '-')}", rule, getattr(chosen, name))
            for name in ("data", "folder", "history", "report", "config", "cluster"):
                if getattr(chosen, name) == "" and name in chosen.given:
                    raise ValueError(f"train: --{name} has an empty value: give a name, or leave it out")
            tokens, vocabulary, self.data = open_tokens(chosen.data)
            self.config = GPTConfig(vocab_size=vocabulary, **sizes_of(chosen.model))
            self.file = file_of(chosen, self.config.dim) if chosen.config else None
            if self.file:
                self.chosen = chosen = Namespace(
                    **vars(chosen) | {"batch": self.file.batch, "lr": self.file.options["lr"]}
                )
            self.plan = self.file.plan if self.file else plan_of(chosen)
            training, held_out = hold_out(tokens, HELD_OUT if chosen.validate_every else 0.0)
            batches = partial(Batches, batch=chosen.batch, context=self.config.context, seed=chosen.seed)
            self.batches = batches(training)
            self.validation = batches(held_out) if chosen.validate_every else None
            self.scheduled = self.file and self.file["scheduler.type"] is not None
            if self.scheduled:
                self.rate = None
            else:
                self.rate = LR_SCHEDULES[chosen.lr_schedule](chosen.lr, chosen.steps, chosen.warmup_steps)

    @property
    def run(self):
        """What defines it, beside the options that a run may change as it goes on."""
        sizes = {name: size for name, size in asdict(self.config).items() if name != "dropout"}
        held_out = HELD_OUT if self.validation else 0
        if self.chosen.num_experts:
            sizes |= {"experts": self.chosen.num_experts, "experts of a token": self.chosen.moe_router_topk}
        return sizes | {"seed": self.chosen.seed, "batch": self.chosen.batch, "data": self.data, "held_out": held_out}

    def optimizer(self):
        """What ``parallelize`` makes it of."""
        if not self.file:
            return {"lr": self.chosen.lr}
        return {"optimizer_class": self.file.optimizer_class, **self.file.options, **self.file.numbers}

    def rates(self, engine):
        """step -> learning rate. DeepSpeed's schedulers do not count steps that overflow, and move betas, too."""
        if not self.scheduled:
            return self.rate

        def rate(step):
            options = self.file.options_at(engine.steps)
            engine.set_options(**options)
            return options["lr"]

        return rate

    def check(self):
        """Before there are ranks: can they train, and write what they are to write?"""
        with refusing():
            schedule_of(self.plan)
            for holds, words in self.rules():
                if not holds:
                    raise ValueError(f"train: {words}")
            make_room(self.chosen)

    @property
    def simulated(self):
        backend = self.chosen.backend or os.environ.get("TINYDIST_BACKEND", "simulated")
        return backend == "simulated" and not under_torchrun()

    def rules(self):
        plan, chosen, config = self.plan, self.chosen, self.config
        world = int(os.environ["WORLD_SIZE"]) if under_torchrun() else plan.ranks
        yield plan.ranks == world, f"{plan.product}, but torchrun started {world}"
        yield from expert_options.rules(chosen)
        experts = chosen.num_experts or 0
        unsuited = next(plan.unsuited(config.layers, config.heads, config.context, experts=experts), None)
        yield not unsuited, unsuited
        yield chosen.folder or not chosen.save_every, "--save-every requires --folder"
        yield self.simulated or not chosen.cluster, "--cluster requires simulated ranks"
        yield under_torchrun() or not chosen.timeout, "--timeout requires torchrun"
        least = 4 * (4 + 8 * max(experts, 1)) * config.layers * config.dim**2  # of its blocks' matrices, in fp32
        words = (
            f"the model has {bytes_text(least)} of weights and more, and this machine {bytes_text(HOST_MEMORY)} in all"
        )
        yield under_torchrun() or least < HOST_MEMORY, words
        if self.simulated and chosen.cluster:
            find_cluster(chosen.cluster).check_ranks(plan.ranks)


def make_room(chosen):
    """What will be written can be written."""
    for folder in filter(None, (chosen.folder, chosen.report)):
        os.makedirs(folder, exist_ok=True)
    if chosen.history:
        open(chosen.history, "a").close()


def sizes_of(text):
    """Of a GPT: ``layers=2,dim=64``."""
    names = [field.name for field in fields(GPTConfig) if field.name not in ("vocab_size", "dropout")]
    sizes = {}
    for each in filter(None, text.replace(" ", "").split(",")):
        name, _, size = each.partition("=")
        if name not in names or name in sizes or not size.isdecimal() or int(size) == 0:
            raise ValueError(f"train: a model has the form layers=2,dim=64 with keys {', '.join(names)}, got {text!r}")
        sizes[name] = int(size)
    return sizes


@cache
def open_tokens(path):
    """The size of their vocabulary, too, and by what they are known again, wherever the file is."""
    if path is None:
        tokens, vocabulary, checksum = load_text().numpy(), 256, "of the bundled text"
    elif path_of_header(path).exists():
        tokens = TokenFile(path)
        vocabulary, checksum = tokens.vocabulary, tokens.checksum
    else:
        if Path(path).exists() and not (Path(path).is_file() and os.path.getsize(path)):
            raise ValueError(f"train: {path}: it " + ("is empty" if Path(path).is_file() else "is no file"))
        tokens, vocabulary, checksum = np.memmap(path, np.uint8, "r"), 256, checksum_of(path)
    return tokens, vocabulary, f"{len(tokens):,} tokens, {checksum}"


def on_rank(chosen, out=None, err=None):
    """Train. Returns the History, on rank 0; what this rank held at most; the FLOPs of a token."""
    job = Job(chosen)
    with refusing():
        model = gpt_of(job.config, chosen, chosen.seed).to(device_of_group())
        flops = flops_per_token(model)
        engine = parallelize(model, job.plan, load_balance=load_balance_of(chosen), **job.optimizer())
    history = train(
        engine,
        job.batches,
        chosen.steps,
        job.rates(engine),
        validation=job.validation,
        evaluate_every=chosen.validate_every,
        folder=chosen.folder,
        save_every=chosen.save_every,
        flops=flops,
        on_step=partial(tell, chosen, out or sys.stdout, err or sys.stderr) if dist.get_rank() == 0 else None,
        stream=err,
        run=job.run,
        allow_change=[name.replace("-", "_") for name in chosen.allow_change],
    )
    if chosen.report and dist.get_backend() != "simulated":
        report.profiled(chosen.report, lambda: engine.step(*rows_of(engine, job.batches, chosen.steps)))
    return history if dist.get_rank() == 0 else None, peak_memory(), flops


def tell(chosen, out, err, state):
    if chosen.history:
        try:
            with open(chosen.history, "a") as file:
                file.write(json.dumps(state._asdict()) + "\n")
        except OSError as error:  # a full disk names no file
            raise OSError(error.errno, error.strerror, chosen.history) from error
    if not err.isatty() and (state.step + 1) % max(1, chosen.steps // LINES) == 0:
        words = ", ".join(f"{name} {value}" for name, value in state.in_words().items())
        print(f"step {state.step + 1} of {chosen.steps}: {words}", file=out, flush=True)
