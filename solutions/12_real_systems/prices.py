"""What a step takes with flags of Megatron-LM, by the library's own cost model."""

import argparse
from functools import lru_cache
from itertools import product

from tinydist.hardware import find_cluster
from tinydist.planner import Plan, check, evaluate, find_model

CHOICES = {"tensor_model_parallel_size": (1, 2, 4, 8), "pipeline_model_parallel_size": (1, 2, 4, 8)}
CHOICES |= {"micro_batch_size": (1, 2, 4), "use_distributed_optimizer": (False, True)}
CHOICES |= {"recompute_granularity": (None, "full")}


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise ValueError(f"flags: {message}")


@lru_cache
def parser():
    made = Parser(prog="pretrain", allow_abbrev=False, add_help=False)
    for name, (first, *others) in CHOICES.items():
        values = [each for each in (first, *others) if each is not None]
        what = {"action": "store_true"} if first is False else {"type": type(values[0]), "choices": values}
        made.add_argument(f"--{name.replace('_', '-')}", dest=name, default=first, **what)
    return made


@lru_cache
def prices(model, node, batch, counts):
    """(GPUs, flags) -> (seconds, bytes), or what does not fit, in words."""
    model, node, found = find_model(model), find_cluster(node), {}
    for gpus, flags in product(counts, product(*CHOICES.values())):
        try:
            found[gpus, flags] = priced(model, node.pod(-(-gpus // node.devices_per_node)), batch, gpus, *flags)
        except ValueError as error:
            found[gpus, flags] = str(error)
    return found


def priced(model, cluster, batch, gpus, tp, pp, rows, sharded, again):
    dp, rest = divmod(gpus, tp * pp)
    if rest:
        raise ValueError(f"{gpus} GPUs must be divisible by tensor ({tp}) x pipeline ({pp})")
    how = {"zero": int(sharded and dp > 1), "microbatch": rows, "recompute": again or "none", "precision": "bf16"}
    plan = Plan(tp=tp, pp=pp, dp=dp, **how).with_batch(batch)
    check(plan, model, gpus)
    found = evaluate(model, plan, cluster)
    return found.seconds, found.memory.total


class Price:
    """Of a number of GPUs with such flags; ``asked``: for which it was asked; ``refused``: what did not go together."""

    def __init__(self, table):
        self.table, self.asked, self.refused = table, set(), []

    def __call__(self, gpus, flags):
        self.asked.add(self.key(gpus, flags))
        try:
            return self.tells(gpus, flags)
        except ValueError as error:
            self.refused.append(f"{gpus} GPUs with {flags}: {error}")
            raise

    def key(self, gpus, flags):
        return gpus, parsed(flags if isinstance(flags, str) else " ".join(map(str, flags)))

    def knows(self, gpus, flags):
        return self.key(gpus, flags) in self.asked

    def tells(self, gpus, flags):
        found = self.table.get(self.key(gpus, flags), f"{gpus} GPUs are not for rent")
        if isinstance(found, str):
            raise ValueError(found)
        return found


@lru_cache(10_000)
def parsed(words):
    return tuple(vars(parser().parse_args(words.split())).values())
