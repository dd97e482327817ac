"""Steps of a GPT, or of a Decoder, by a plan, on fake ranks: what the planner predicts is held against what they do."""

import gc
from dataclasses import replace

import torch

import tinydist
from tinydist.attention import Decoder, DecoderConfig
from tinydist.experts import EvenRouter, alone, with_experts
from tinydist.model import GPT, GPTConfig
from tinydist.planner import TINYDIST, Model, Plan
from tinydist.training import parallelize


def program_of(config):
    """A GPT without dropout writes no weights of attention down."""
    return replace(TINYDIST, flash=isinstance(config, GPTConfig) and not config.dropout)


def model_of(config, tokens=None, experts=None):
    """A Decoder has the shape of a Llama, and sequences of any length. ``experts``: Experts."""
    if isinstance(config, GPTConfig):
        sizes = config.layers, config.dim, config.heads, config.vocab_size, config.context
        return Model("a GPT", *sizes, dropout=config.dropout, experts=experts)
    kinds = dict(
        gated=True,
        biases=False,
        tied=False,
        positions="rotary",
        norm="rms",
        kv_heads=config.kv_heads,
        experts=experts,
    )
    return Model("a Llama", config.layers, config.dim, config.heads, config.vocab_size, tokens, **kinds)


def planned(b, **choices):
    return Plan(microbatch=b, **{"precision": "bf16"} | choices)


def two_steps(config, plan, rows, tokens, experts=None):
    torch.set_default_dtype(torch.float32)
    model = GPT(config) if isinstance(config, GPTConfig) else Decoder(config)
    if experts:
        how = dict(hidden=experts.inner, shared=experts.shared, gated=isinstance(config, DecoderConfig))
        with_experts(model, experts.total, experts.active, router=EvenRouter, group=alone(), **how)
    engine = parallelize(model, plan, lr=1e-3)
    del model  # the stages of other ranks, too
    gc.collect()
    tokens = torch.zeros(rows, tokens, dtype=torch.long)
    for step in range(2):
        tinydist.mark(f"step {step}")
        engine.step(tokens, tokens)
    tinydist.mark("over")


def run(config, model, plan, cluster=None):
    """The second step counts."""
    rows = plan.microbatches * plan.microbatch
    only = [0] if plan.pp == 1 else None
    options = dict(fake=True, only=only, backend="simulated", cluster=cluster)
    return tinydist.launch(two_steps, plan.ranks, config, plan, rows, model.tokens, model.experts, **options)


def held(found, plan, rank):
    """Bytes at the peak of the second step, of the first rank of a stage."""
    return found.memory[rank * plan.ranks // plan.pp].peak_between("step 1", "over")


SMALL = GPTConfig(vocab_size=2048, context=128, layers=2, heads=4, dim=256)
DROPPED = GPTConfig(vocab_size=2048, context=128, layers=2, heads=4, dim=256, dropout=0.1)
LLAMA = DecoderConfig(vocab_size=2048, layers=2, heads=4, kv_heads=2, dim=256)
