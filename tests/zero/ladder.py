"""The rungs of the ladder, a model that makes them hard, and its training: the same loop on each rung."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F
from data_parallel.awkward_model import Awkward
from tiny_training import global_batch, weights
from torch import nn

from tinydist import checkpoint
from tinydist.checkpoint import UnshardedModel
from tinydist.zero import ZeRO1, ZeRO2, ZeRO3

STEPS, ROWS = 4, 48  # rows divide by 1, 2, 3, 4 and 8, and then by 2 microbatches
A_LAYER = 200  # bytes: a row is full with a layer or less


def linear(module):
    return isinstance(module, nn.Linear)


def stage_1(module, optimizer=torch.optim.AdamW, **options):
    return ZeRO1(module, optimizer, bucket_bytes=A_LAYER, **options)


def stage_2(module, optimizer=torch.optim.AdamW, **options):
    return ZeRO2(module, optimizer, bucket_bytes=A_LAYER, **options)


def stage_3(module, optimizer=torch.optim.AdamW, **options):
    return ZeRO3(module, optimizer, units=linear, **options)


STAGES = [stage_1, stage_2, stage_3]


class Plain(UnshardedModel):
    def step(self):
        self.optimizer.step()

    def zero_grad(self):
        self.optimizer.zero_grad()


def stage_0(module, optimizer=torch.optim.AdamW, param_groups=None, **options):
    """Plain: every rank has all, and the same, as with DDP."""
    given = param_groups or [p for p in module.parameters() if p.requires_grad]
    return Plain(module, optimizer(given, **options))


def two_groups(module):
    """Biases without weight decay, and a group of its own for one of the layers."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    matrices, biases = [p for p in parameters if p.dim() == 2], [p for p in parameters if p.dim() < 2]
    return [{"params": biases, "weight_decay": 0.0}, {"params": matrices, "lr": 0.02}]


class Alone:
    """The bottom of the ladder: one process, and torch's own optimizer."""

    def __init__(self, module, optimizer, param_groups=None, **options):
        self.module = module
        given = [p for p in module.parameters() if p.requires_grad] if param_groups is None else param_groups
        self.optimizer = optimizer(given, **options)
        self.zero_grad = self.optimizer.zero_grad

    def step(self):
        self.optimizer.step()  # looked up now: a schedule replaces it

    def clip_grad_norm_(self, max_norm):
        return nn.utils.clip_grad_norm_([p for p in self.module.parameters() if p.grad is not None], max_norm)


def train(rung, share, steps=STEPS, clip=None, microbatches=1, quiet=False, dtype=None):
    """The norms before clipping, by step. ``quiet``: all microbatches but the last run in ``no_sync``."""
    norms = []
    for step in range(steps):
        inputs, targets = (tensor.to(dtype) for tensor in share(step))
        for left, x, y in zip(reversed(range(microbatches)), inputs.chunk(microbatches), targets.chunk(microbatches)):
            with rung.no_sync() if quiet and left else nullcontext():
                (F.mse_loss(rung.module(x), y) / microbatches).backward()
        if clip:
            norms.append(rung.clip_grad_norm_(clip).detach())
        rung.step()
        rung.zero_grad()
    return norms


def mine(step):
    return [tensor.chunk(dist.get_world_size())[dist.get_rank()] for tensor in everything(step)]


def everything(step):
    return global_batch(step, ROWS)


def whole_weights(rung):
    """Of a rung whose parameters may be sharded: gathered."""
    for bucket in getattr(rung, "all_buckets", ()):
        bucket.gather()
    return weights(rung.module)


def all_of(zero):
    """What a checkpoint of ``zero`` has, whole: the same for the same training state in any stage, on any ranks."""
    state = checkpoint.gathered(zero)
    options = {name: planned["options"] for name, planned in state["layout"].items()}
    return [state["step"], state["optimizer"], options], [state["parameters"], state["buffers"]]


def assert_same(found, expected, atol=0):
    assert found[0] == expected[0]
    torch.testing.assert_close(found[1], expected[1], rtol=0, atol=atol)


def trained_alone(make=Awkward, optimizer=torch.optim.AdamW, param_groups=None, options=None, **how):
    module = make()
    groups = param_groups(module) if param_groups else None
    rung = Alone(module, optimizer, groups, **(options or {"lr": 0.01}))
    norms = train(rung, everything, **how)
    return weights(module) | {f"norm {step}": norm for step, norm in enumerate(norms)}


def trained(stage, make=Awkward, optimizer=torch.optim.AdamW, param_groups=None, options=None, **how):
    module = make()
    groups = param_groups(module) if param_groups else None
    rung = stage(module, optimizer, param_groups=groups, **(options or {"lr": 0.01}))
    norms = train(rung, mine, **how)
    return whole_weights(rung) | {f"norm {step}": norm for step, norm in enumerate(norms)}
