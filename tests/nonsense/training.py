"""Valid calls of ``tinydist.training``."""

import torch
from nonsense.calls import Call

from tinydist.model import GPT, GPTConfig
from tinydist.training import Plan, link_of, members, parallelize, place_of
from tinydist.training.plan import Plan as AnyPlan

TINY = GPTConfig(vocab_size=8, context=4, layers=1, heads=1, dim=4)


def tokens():
    return torch.zeros(2, 4, dtype=torch.long)


def trained(tokens, targets, lr, **given):
    """Made, and a step: so that what is wrong cannot wait."""
    step = parallelize(**given).step(tokens, targets, lr)
    return [step.loss, step.norm]


def made():
    return dict(
        model=GPT(TINY),
        plan=Plan(dp=2, zero=1, max_norm=1.0),
        optimizer_class=torch.optim.SGD,
        param_groups=None,
        mesh=None,
        tokens=tokens(),
        targets=tokens(),
        lr=0.1,
    )


def numbers(**given):
    plan = AnyPlan(**given)
    return [plan.ranks, plan.shard, plan.stages]


SIZES = dict(pp=2, dp=4, tp=2, zero=1, replicate=2, microbatches=4, schedule="interleaved", chunks=2)
CHOICES = dict(layers=(1, 1, 1, 1), sequence="kept", recompute="full", precision="bf16", max_norm=1.0, reduce_each=True)
CALLS = {
    "Plan": Call(numbers, lambda: SIZES | CHOICES),
    "parallelize": Call(trained, made, ranks=2),
    "link_of": Call(lambda **given: str(link_of(**given)), lambda: dict(plan=Plan(dp=2), axis="tp", cluster="2 x 4")),
    "members": Call(members, lambda: dict(plan=Plan(dp=2), axis="shard", rank=1)),
    "place_of": Call(place_of, lambda: dict(plan=Plan(dp=2), rank=1)),
}
REASONS = {
    "AXES": "data",
    "Engine": "what parallelize makes",
    "Step": "what a step gives",
    "make_mesh": "a plan's, of all ranks, which parallelize asks for",
}
