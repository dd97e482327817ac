"""``python -m tinydist plan --model llama-3-70b --cluster "H100 pod" --devices 512 --tokens 15e12``."""

import argparse
import math

from ..console.command_name import command
from ..hardware import find_cluster
from .presets import find_model
from .run import RunCost
from .search import explain, search

SHOWN = 5


def options():
    about = "Find the fastest parallel plans that fit, and estimate the cost of a run."
    adds = argparse.ArgumentParser(prog=command("plan"), description=about, allow_abbrev=False)
    add = adds.add_argument
    add("--model", required=True, metavar="NAME", help="model preset, e.g. llama-3-70b")
    cluster = "cluster preset (node type), e.g. 'A100 node' (default: '%(default)s')"
    add("--cluster", default="H100 pod", metavar="NAME", help=cluster)
    add("--devices", type=int, metavar="N", help="number of devices (default: all of the cluster)")
    batch = "global batch size, in sequences (default: about 4 million tokens)"
    add("--batch", type=int, metavar="N", help=batch)
    add("--tokens", type=float, metavar="N", help="training tokens; prints the duration and cost of the run")
    add("--price", type=float, default=0.0, help="price per device-hour (default: %(default)s)")
    watts = "power per device, including host and cooling overhead (PUE) (default: %(default)s)"
    add("--watts", type=float, default=0.0, help=watts)
    return adds


def main(words):
    """The five fastest plans that fit, the reasons of the first, and how to train by it. The exit status."""
    chosen = options().parse_args(words)
    try:
        model, cluster = find_model(chosen.model), find_cluster(chosen.cluster)
        devices = chosen.devices or cluster.size
        cluster = cluster.pod(math.ceil(devices / cluster.devices_per_node))
        found = search(model, cluster, chosen.batch or natural_batch(model), devices)
        best = found.best
    except ValueError as error:
        print(error)
        return 1
    print(f"{len(found.candidates):,} valid plans, {len(found.fitting):,} of them fit; {found.refused:,} invalid\n")
    print(f"{'s/step':>9} {'tokens/s/GPU':>13} {'MFU':>6} {'GB':>6}   plan")
    for each in found.fitting[:SHOWN]:
        numbers = (
            f"{each.seconds:9.3f} {each.tokens_per_second:13,.0f} {each.step.mfu:6.1%} {each.memory.total / 1e9:6.1f}"
        )
        print(f"{numbers}   {each.plan}")
    print(f"\n{explain(best, *found.fitting[1:2])}")
    print("\nTo train a GPT of these sizes by this plan (on GPUs, with torchrun in place of python):\n")
    print(f"    {train_line(best)}")
    if chosen.tokens:
        print(f"\n{RunCost(best, chosen.tokens, price=chosen.price, watts=chosen.watts)}, without failures")
    return 0


def train_line(candidate):
    """The command that trains by its plan: a GPT, whatever the model is."""
    model, options = candidate.model, candidate.plan.options
    sizes = f"layers={model.layers},dim={model.width},heads={model.heads},context={model.tokens}"
    words = [f"{name} {value}" for name, value in ({"--model": sizes} | options).items()]
    return " ".join([command("train"), *words])


def natural_batch(model):
    """Sequences, a power of 2, of about 4 million tokens."""
    return 2 ** max(0, round(math.log2(2**22 / model.tokens)))
