"""Valid calls of ``tinydist.training``."""

import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import torch
from nonsense.calls import Call
from training.toy_engine import ToyEngine

from tinydist import training
from tinydist.model import GPT, GPTConfig
from tinydist.training import Batches, Plan

PLAN = Plan(pp=2, dp=2, tp=2)


def tokens():
    return np.arange(50, dtype=np.uint8)


def batches():
    return Batches(tokens(), 2, 4)


def model():
    torch.manual_seed(0)
    return GPT(GPTConfig(vocab_size=16, context=4, layers=2, dim=8, heads=2))


def rows(step=0, rank=0, ranks=1, **options):
    return Batches(**options).rows(step, rank, ranks)


def trained(tokens, targets, lr=0.1, **options):
    """Made, and a step: so that what is wrong cannot wait."""
    engine = training.parallelize(**options)
    engine.step(tokens, targets, lr)
    return engine.evaluate(tokens, targets)


@cache
def folder():
    return Path(tempfile.mkdtemp())


def a_text():
    (folder() / "text").write_bytes(bytes(50))
    return folder() / "text"


def of_a_plan(function, **more):
    return Call(function, lambda: dict(plan=PLAN, **more))


def a_batch():
    return dict.fromkeys(("tokens", "targets"), torch.ones(2, 4, dtype=torch.int64))


CALLS = {
    "Plan": Call(
        Plan,
        lambda: dict(
            pp=2,
            dp=2,
            tp=2,
            zero=2,
            replicate=1,
            microbatches=2,
            microbatch=1,
            schedule="interleaved",
            chunks=2,
            layers=(1, 1, 1, 1),
            sequence_parallel="save",
            recompute="none",
            precision="fp32",
            max_norm=1.0,
            reduce_each=True,
            offload=False,
            overlap_comm=True,
            overlap_param_gather=True,
            ep=2,
        ),
    ),
    "LoadBalance": Call(training.LoadBalance, lambda: dict(balance=0.1, z=0.1, bias_rate=0.1), signed=True),
    "members": of_a_plan(training.members, axis="tp", rank=0),
    "place_of": of_a_plan(training.place_of, rank=3),
    "make_mesh": Call(lambda plan: training.make_mesh(plan).get_coordinate(), lambda: dict(plan=Plan(dp=2)), ranks=2),
    "parallelize": Call(
        trained,
        lambda: dict(
            model=model(),
            plan=Plan(dp=2),
            optimizer_class=torch.optim.SGD,
            param_groups=None,
            mesh=None,
            load_balance=None,
            lr=0.1,
            **a_batch(),
        ),
        ranks=2,
        kept=("lr",),  # a large one is no nonsense, and its losses are NaN
    ),
    "Batches": Call(rows, lambda: dict(tokens=tokens(), batch=2, context=4, seed=1, step=3, rank=0, ranks=1)),
    "hold_out": Call(training.hold_out, lambda: dict(tokens=tokens(), share=0.2)),
    "encode": Call(
        lambda **given: len(training.encode(**given)),
        lambda: dict(text=a_text(), to=folder() / "tokens", tokenizer=None),
        fits=("text", "to", "tokenizer"),
    ),
    "TokenFile": Call(
        lambda path: training.TokenFile(path)[:3].tolist(),
        lambda: dict(path=training.encode(a_text(), folder() / "own").path),
    ),
    "broadcast_data": Call(
        training.broadcast_data, lambda: dict(read=lambda: {"ones": torch.ones(2)}, group=None), ranks=2
    ),
    "flops_per_token": Call(training.flops_per_token, lambda: dict(model=model(), context=4)),
    "train": Call(
        lambda **given: training.train(ToyEngine(), **given).losses,
        lambda: dict(
            batches=batches(),
            steps=3,
            rate=lambda step: 0.1,
            validation=batches(),
            evaluate_every=1,
            evaluations=2,
            save_every=None,
            flops=None,
            on_step=None,
        ),
        ranks=1,
        kept=("steps",),  # 10**20 are many, and no nonsense
        fits=("on_step",),
    ),
}
REASONS = (
    {
        "AXES": "names",
        "Config": "of a file, of which tests/training/compat/test_config.py changes all that can be",
        "Engine": "what parallelize makes",
        "ModelEngine": "what initialize makes",
        "History": "what train returns",
        "StepMetrics": "what train returns",
        "Step": "what an engine returns",
    }
    | dict.fromkeys(["add_config_arguments", "init_distributed", "initialize"], "of DeepSpeed's shape")
    | dict.fromkeys(["Saver", "load", "load_weights", "save"], "of an engine that is made")
)
