"""What formats cost a small decoder in perplexity: blocks, rounding at 4 and 3 bits with and without GPTQ and AWQ, the
KV cache.

    python benchmarks/quantization.py [--seeds 5] [--steps 400] [--control-steps 100] [--models FOLDER] [--write]

Two layers of width 256 (so that blocks of 256 fit), sequences of 64 bytes of tinydist's text (its hash is in the
table), of which the last tenth is held out: perplexity is of a byte there. Embedding, norms and head stay in fp32, as
they are a larger part of a small model than of a large one. Blocks multiply as llama.cpp does, with inputs in Q8_0;
roundings have inputs in fp32 and are given 16,384 tokens of the training text for GPTQ and AWQ. One process, about
two minutes a seed; ``--write`` puts the table where notebook 21 reads it, ``--models`` keeps trained weights. Controls,
with the same seeds:

    inputs in Q8_0     and weights in fp32: what blocks lose by their inputs
    outliers           the same function with large channels: a norm multiplies 4 of 256 by 30, and the columns of the
                       weights behind it are divided by 30
    training           formats once more, after --control-steps
"""

import argparse
import copy
from pathlib import Path

import torch
from torch import nn

from benchmarks import csv_rows
from benchmarks.held_out_text import first_held_out, sequences, text_hash
from tinydist.attention.decoder import Decoder, DecoderConfig
from tinydist.model import load_text
from tinydist.quantization import (
    FORMATS,
    BlockKVCache,
    awq,
    bits_per_weight,
    gptq,
    in_blocks,
    inputs_of,
    quantize,
    round_to_nearest,
)

FILE = Path(__file__).parents[1] / "notebooks" / "data" / "21_quality.csv"
CONFIG = DecoderConfig(dim=256, heads=8, kv_heads=4)
LENGTH, ROWS, RATE, RISE, CALIBRATION = 64, 8, 2e-3, 20, 256
METHODS = {"rounding": lambda weight, inputs, **how: round_to_nearest(weight, **how), "AWQ": awq, "GPTQ": gptq}


def training_batch(step, seed, rows=ROWS):
    draw = torch.Generator().manual_seed(1_000_003 * seed + step)
    return sequences(torch.randint(first_held_out() - LENGTH - 1, (rows, 1), generator=draw), LENGTH)


def held_out():
    """Every fourth sequence of the end."""
    return sequences(torch.arange(first_held_out(), len(load_text()) - LENGTH - 1, 4 * LENGTH).unsqueeze(1), LENGTH)


def trained(seed, steps):
    torch.manual_seed(seed)
    model = Decoder(CONFIG)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(steps):
        left = 1 - step / steps
        optimizer.param_groups[0]["lr"] = RATE * min(1, (step + 1) / RISE) * left
        optimizer.zero_grad()
        model.loss(*training_batch(step, seed)).backward()
        optimizer.step()
    return model.eval()


def trained_or_kept(seed, steps, folder):
    if not folder:
        return trained(seed, steps)
    path = Path(folder) / f"{seed}_{steps}.pt"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        torch.save(trained(seed, steps).state_dict(), path)
    model = Decoder(CONFIG).eval()
    model.load_state_dict(torch.load(path))
    return model


def linears(model):
    return {name: each for name, each in model.named_modules() if isinstance(each, nn.Linear) and name != "head"}


@torch.no_grad()
def with_weights(model, change):
    """A copy whose linear layers have ``change(name, weight)``."""
    model = copy.deepcopy(model)
    for name, layer in linears(model).items():
        layer.weight.copy_(change(name, layer.weight))
    return model


@torch.no_grad()
def perplexity(model, cache=None):
    """``cache``: a format, or "fp32", for keys and values."""
    total, (tokens, targets) = 0.0, held_out()
    for few, few_targets in zip(tokens.split(64), targets.split(64)):
        caches = None
        if cache == "fp32":
            caches = model.caches(len(few), LENGTH)
        elif cache:
            size = len(few), CONFIG.kv_heads, LENGTH, CONFIG.dim // CONFIG.heads
            caches = [BlockKVCache(*size, cache) for _ in model.blocks]
        logits = model(few, caches)
        total += nn.functional.cross_entropy(logits.flatten(0, 1), few_targets.flatten(), reduction="sum").item()
    return torch.tensor(total / targets.numel()).exp().item()


def in_q8(model):
    """The control of blocks: inputs in Q8_0, and the weights as they were."""
    model = copy.deepcopy(model)
    for layer in linears(model).values():
        layer.register_forward_pre_hook(lambda _, args: quantize(args[0], "Q8_0").dequantize())
    return model


@torch.no_grad()
def with_outliers(model, times=30, every=64):
    """A copy that computes the same, with one of ``every`` channels behind a norm ``times`` larger."""
    model = copy.deepcopy(model)
    for block in model.blocks:
        attention = block.attention
        behind = {
            block.attention_norm: (attention.query, attention.key, attention.value),
            block.mlp_norm: (block.gate, block.up),
        }
        for norm, layers in behind.items():
            norm.weight[::every] *= times
            for layer in layers:
                layer.weight[:, ::every] /= times
    return model


def formats(model):
    """(kind, name, bits a number, perplexity)"""
    yield "format", "fp32", 32, perplexity(model)
    yield "format", "bf16", 16, perplexity(with_weights(model, lambda _, weight: weight.bfloat16()))
    for name, each in FORMATS.items():
        yield "format", name, each.bits, perplexity(in_blocks(copy.deepcopy(model), name))


def calibrated(model):
    return inputs_of(model, [training_batch(10**6, 0, CALIBRATION)[0]])


def rounded(model, inputs, kind="{}", groups=(32, 128)):
    """As ``formats``, by each method. ``kind``: with {} for the method's name."""
    for method, change in METHODS.items():
        for bits in (4, 3):
            for group in groups:
                changed = with_weights(
                    model, lambda name, weight: change(weight, inputs=inputs[name], bits=bits, group=group)
                )
                name = f"{bits} bits, groups of {group}"
                yield kind.format(method), name, bits_per_weight(bits, group), perplexity(changed)


def variants(model):
    """As ``formats``; of "inputs" the last is the largest channel's mean |x| over the median channel's."""
    yield from formats(model)
    yield "control", "fp32, inputs in Q8_0", 32, perplexity(in_q8(model))
    inputs = calibrated(model)
    for name, each in inputs.items():
        if name != "head":
            yield "inputs", name, "", (each.magnitude.max() / each.magnitude.median()).item()
    yield from rounded(model, inputs)
    large = with_outliers(model)
    yield "control", "fp32, with outliers", 32, perplexity(large)
    yield from rounded(large, calibrated(large), "{}, with outliers", groups=(128,))
    for name in ("fp32", "Q8_0", "Q4_0"):
        yield "cache", name, FORMATS[name].bits if name in FORMATS else 32, perplexity(model, name)


def rows(seed, steps, folder, measures):
    where = {"text": text_hash(), **csv_rows.measured_on("torch")}
    for kind, name, bits, value in measures(trained_or_kept(seed, steps, folder)):
        print(f"{seed}  {kind:10} {name:24} {bits:>7} bits  {value:.4f}", flush=True)
        row = {"kind": kind, "name": name, "bits": bits, "seed": seed, "tokens": steps * ROWS * LENGTH}
        yield row | {"perplexity": f"{value:.4f}"} | where


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--control-steps", type=int, default=100, help="of the same seeds, for formats alone")
    parser.add_argument("--models", metavar="FOLDER", help="where trained weights are kept")
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    found = []
    for seed in range(chosen.seeds):
        found += rows(seed, chosen.steps, chosen.models, variants)
        found += rows(seed, chosen.control_steps, chosen.models, formats)
        if chosen.write:
            csv_rows.write(FILE, found)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
