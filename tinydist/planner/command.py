"""``python -m tinydist plan --model llama-3-70b --cluster "H100 pod" --devices 512 --tokens 15e12``."""

import argparse
import math

from ..console.shell import command
from ..hardware import find_cluster
from .presets import find_model
from .run import Run
from .search import explain, search

SHOWN = 5


def options():
    adds = argparse.ArgumentParser(prog=command("plan"), description="Which plan fits, and what a run costs.")
    add = adds.add_argument
    add("--model", required=True, help="its name, such as llama-3-70b")
    add("--cluster", default="H100 pod", help="whose nodes: 'A100 node', 'H100 pod'")
    add("--devices", type=int, help="how many; all of the cluster's if left out")
    add("--batch", type=int, help="sequences of a step; about 4 million tokens if left out")
    add("--tokens", type=float, help="of the whole run")
    add("--price", type=float, default=0.0, help="of a device and hour")
    add("--watts", type=float, default=0.0, help="of a device, with its share of all else")
    return adds


def main(words):
    """The five fastest plans that fit, and the reasons of the first. The exit status."""
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
    print(f"{len(found.candidates):,} plans, of which {len(found.fitting):,} fit; {found.refused:,} make no sense\n")
    print(f"{'s a step':>9} {'tokens/s/GPU':>13} {'MFU':>6} {'GB':>6}   plan")
    for each in found.fitting[:SHOWN]:
        numbers = (
            f"{each.seconds:9.3f} {each.tokens_per_second:13,.0f} {each.step.mfu:6.1%} {each.memory.total / 1e9:6.1f}"
        )
        print(f"{numbers}   {each.plan}")
    print(f"\n{explain(best, *found.fitting[1:2])}")
    if chosen.tokens:
        print(f"\n{Run(best, chosen.tokens, price=chosen.price, watts=chosen.watts)}, if no time is lost")
    return 0


def natural_batch(model):
    """Sequences, a power of 2, of about 4 million tokens."""
    return 2 ** max(0, round(math.log2(2**22 / model.tokens)))
