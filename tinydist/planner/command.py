"""``python -m tinydist plan --model llama-3-70b --cluster "H100 pod" --devices 512 --tokens 15e12``."""

import argparse
import math
from textwrap import indent

from ..console.command_name import command
from ..hardware import find_cluster
from ..rules import amount, count, must, positive
from .presets import find_model
from .programs import MEGATRON_LM, PROGRAMS, TINYDIST, find_program
from .run import RunCost
from .search import explain, search

SHOWN = 5
# Measured seconds for each predicted one (notebook 13b): of 70 billion parameters on 512 H100s, and of the worst step.
ON_512_H100S, WORST = 1.25, 1.66
RULES = {"devices": count, "batch": count, "tokens": positive, "price": amount, "watts": amount}


def options():
    about = "Find the fastest parallel plans that fit, and estimate the cost of a run."
    adds = argparse.ArgumentParser(prog=command("plan"), description=about, allow_abbrev=False)
    add = adds.add_argument
    add("--model", required=True, metavar="NAME", help="model preset, e.g. llama-3-70b")
    cluster = "cluster preset (node type), e.g. 'A100 node' (default: '%(default)s')"
    add("--cluster", default="H100 pod", metavar="NAME", help=cluster)
    programs = f"program that is to run the plan: {', '.join(PROGRAMS)} (default: %(default)s)"
    add("--program", default=MEGATRON_LM.name, metavar="NAME", help=programs)
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
        for name, rule in RULES.items():
            if getattr(chosen, name) is not None:
                must("plan", f"--{name}", rule, getattr(chosen, name))
        model, cluster, program = find_model(chosen.model), find_cluster(chosen.cluster), find_program(chosen.program)
        devices = chosen.devices or cluster.size
        cluster = cluster.pod(math.ceil(devices / cluster.devices_per_node))
        found = search(model, cluster, chosen.batch or natural_batch(model), devices, program)
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
    print(f"\nTo train by this plan with {program} ({program.source}):\n")
    print(indent(train_line(best) if program.name == TINYDIST.name else program.options(best.plan, model), "    "))
    if chosen.tokens:
        cost = RunCost(best, chosen.tokens, price=chosen.price, watts=chosen.watts)
        print(f"\n{cost}, as predicted, without failures")
        print(
            f"Steps of 70 billion parameters on 512 H100s took {ON_512_H100S} times as long, the worst measured {WORST}"
        )
    return 0


def train_line(candidate):
    """The command that trains by its plan: a GPT, whatever the model is. On GPUs with torchrun in place of python."""
    return f"{command('train')} {TINYDIST.options(candidate.plan, candidate.model)}"


def natural_batch(model):
    """Sequences, a power of 2, of about 4 million tokens."""
    return 2 ** max(0, round(math.log2(2**22 / model.tokens)))
