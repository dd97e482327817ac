"""Loss against bytes: a small GPT on four simulated ranks, trained with each way to send less, on equal tokens.

    python benchmarks/fewer_bytes.py [--seeds 0 1 2 3 4] [--steps 150] [--only METHOD] [--write] [--equal-seconds]

One layer of width 32 and sequences of 32 bytes of tinydist's text (its hash is in the table), of which the last tenth
is held out; 4 sequences a rank and step. One rate for all: of 3e-3 and 1e-2 the better for Adam on all gradients,
after 20 steps in which it rises. ``sent``: bytes that a rank sends in all steps, by formula, which
tests/compression/test_benchmark.py counts. One process, three to ten seconds a run; ``--write`` puts the table where
notebook 18 reads it. ``--equal-seconds``: each method takes the steps that fit into the time of ``--steps`` steps with
all gradients, by ``seconds``; 20 minutes.
"""

import argparse
import math
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

import tinydist
from benchmarks import csv_rows
from benchmarks.held_out_text import first_held_out, sequences, text_hash
from tinydist.compression import LocalSteps, OneBitAdam, PowerSGD, TopK, ZeroOneAdam, compressed_all_reduce
from tinydist.compression.adam import moments, move, move_square
from tinydist.compression.one_bit_adam import errors_of
from tinydist.data_parallel import DDP
from tinydist.data_parallel.averaging import average_flat
from tinydist.model import GPT, GPTConfig, load_text

DATA = Path(__file__).parents[1] / "notebooks" / "data"
RANKS, ROWS, LENGTH, RATE, RISE = 4, 4, 32, 3e-3, 20
ALL_REDUCE = {"Ethernet": 2259.36 / 2715.80, "InfiniBand": 339.52 / 765.39}  # of a step (18_onebit_adam.csv)
CONTROLS = "nothing kept", "3 %", "never frozen", "in full"


class SignAdam(torch.optim.Adam):
    """Adam on gradients in one bit per number, with error feedback or without: what 1-bit Adam was made to replace."""

    def __init__(self, params, lr, feedback):
        super().__init__(params, lr=lr)
        self.feedback, self.errors = feedback, {}

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            errors = errors_of(self.errors.setdefault(p, {}), p.numel(), p.device, None)
            if not self.feedback:
                for each in errors:
                    each.zero_()
            compressed_all_reduce(p.grad, *errors)
        super().step()


class Averaged(torch.optim.Adam):
    """What data parallelism does: all gradients, in fp32."""

    @torch.no_grad()
    def step(self):
        average_flat(self.param_groups[0]["params"])
        super().step()


class FrozenAdam(OneBitAdam):
    """The control of 1-bit Adam: v is frozen as early, and momenta go in full. What is lost, it is the freeze's."""

    def _update(self, p, state, warm, lr, betas, eps, **_):
        m, v = moments(state, p)
        move(m, p.grad, betas[0])
        if warm:
            move_square(v, p.grad, betas[1])
        else:
            dist.all_reduce(m)
            m /= RANKS
        p.add_(-lr * (m / (v.sqrt() + eps)))  # in OneBitAdam's order: where it diverges, rounding decides


def plain(optimizer):
    return lambda model, lr, steps: (model, optimizer(model.parameters(), lr, steps))


def hooked(hook):
    def make(model, lr, steps):
        ddp = DDP(model, hook=hook(steps))
        return ddp, torch.optim.Adam(ddp.parameters(), lr=lr)

    return make


def local(every):
    return plain(lambda params, lr, steps: LocalSteps(torch.optim.Adam(params, lr=lr), every))


def one_bit(part, optimizer=OneBitAdam):
    return plain(lambda params, lr, steps: optimizer(params, lr=lr, freeze_step=max(1, round(part * steps))))


def zero_one(params, lr, steps):
    intervals = dict(var_update_scaler=max(1, steps // 10), local_step_scaler=max(1, steps // 10), local_step_clipper=4)
    return ZeroOneAdam(params, lr=lr, var_freeze_step=steps // 2, **intervals)


METHODS = {
    "all gradients": plain(lambda params, lr, steps: Averaged(params, lr=lr)),
    "sign, nothing kept": plain(lambda params, lr, steps: SignAdam(params, lr, feedback=False)),
    "sign, error kept": plain(lambda params, lr, steps: SignAdam(params, lr, feedback=True)),
    "1-bit Adam, frozen after 15 %": one_bit(0.15),
    "1-bit Adam, frozen after 3 %": one_bit(0.03),
    "1-bit Adam, never frozen": one_bit(1.0),  # is it the freeze, or the bias correction that is not there?
    "frozen after 15 %, momenta in full": one_bit(0.15, FrozenAdam),  # is it the freeze, or the one bit?
    "0/1 Adam": plain(zero_one),
    "PowerSGD, rank 2": hooked(lambda steps: PowerSGD(2, start=round(0.15 * steps))),
    "top 1 %": hooked(lambda steps: TopK(0.01)),
    "DiLoCo, H = 10": local(10),
    "DiLoCo, H = 50": local(50),
}


def make_model():
    return GPT(GPTConfig(context=LENGTH, layers=1, heads=2, dim=32))


def sent(method, steps):
    """Bytes of a rank, in all steps: so many of each kind, times what one sends."""
    shapes = [p.shape for p in make_model().parameters()]
    n, p = sum(shape.numel() for shape in shapes), RANKS
    unit = p * math.lcm(p, 8)
    thin = [shape for shape in shapes if len(shape) == 2 and 4 * sum(shape) < shape.numel()]
    numbers = n + sum(2 * sum(shape) - shape.numel() for shape in thin)
    per_step = {
        "whole": 2 * (p - 1) * 4 * n // p,
        "bits": sum(2 * (p - 1) * (-(-shape.numel() // unit) * unit // p // 8 + 4) for shape in shapes),
        "low rank": 2 * (p - 1) * 4 * numbers // p,
        "top": (p - 1) * 12 * round(0.01 * n),
    }
    return sum(times * per_step[kind] for kind, times in kinds(method, steps).items())


def kinds(method, steps):
    """How many steps send what; the others send nothing."""
    part = {"1-bit Adam, frozen after 3 %": 0.03, "1-bit Adam, never frozen": 1.0}.get(method, 0.15)
    warm = max(1, round(part * steps))
    if method.startswith("1-bit"):
        return {"whole": warm, "bits": steps - warm}
    if method.startswith("sign"):
        return {"bits": steps}
    if method.startswith("DiLoCo"):
        return {"whole": steps // int(method.split()[-1])}
    if method == "0/1 Adam":
        return of_zero_one(steps)
    return {
        "all gradients": {"whole": steps},
        "frozen after 15 %, momenta in full": {"whole": steps},
        "PowerSGD, rank 2": {"whole": warm, "low rank": steps - warm},
        "top 1 %": {"top": steps},
    }[method]


def of_zero_one(steps):
    """Its schedule, counted out."""
    whole, bits, interval, updates, local_steps = 0, 0, 1, 0, 0
    for step in range(1, steps // 2 + 1):
        exact = step % interval == 0
        whole, bits, updates = whole + exact, bits + (not exact), updates + exact
        if updates == max(1, steps // 10):
            interval, updates = 2 * interval, 0
    interval = 1
    for step in range(steps // 2 + 1, steps + 1):
        bits, local_steps = bits + (step % interval == 0), local_steps + 1
        if local_steps == max(1, steps // 10):
            interval, local_steps = min(4, 2 * interval), 0
    return {"whole": whole, "bits": bits}


def seconds(method, steps, network):
    """In steps with all gradients: the all-reduce is as much shorter as its bytes are fewer, and the rest stays. An
    upper bound of what is gained, since to compress takes no time and a message has no latency."""
    part = ALL_REDUCE[network]
    return steps * (1 - part) + part * sent(method, steps) / sent("all gradients", 1)


def steps_within(method, budget, network):
    return max(range(budget, 10 * budget), key=lambda steps: (seconds(method, steps, network) <= budget, steps))


def training_batch(step, seed, rank):
    """This rank's rows, drawn from all but the end of the text."""
    draw = torch.Generator().manual_seed(1_000_003 * seed + 1_009 * rank + step * 100_003)
    return sequences(torch.randint(first_held_out() - LENGTH - 1, (ROWS, 1), generator=draw), LENGTH)


def held_out():
    """Every 100th place of the end."""
    return sequences(torch.arange(first_held_out(), len(load_text()) - LENGTH - 1, 100).unsqueeze(1), LENGTH)


def train(method, seed, steps, rate=RATE):
    torch.manual_seed(seed)
    model = make_model()
    wrapped, optimizer = METHODS[method](model, rate, steps)
    options = getattr(optimizer, "inner", optimizer).param_groups[0]
    tinydist.mark("begin")
    for step in range(steps):
        options["lr"] = rate * min(1, (step + 1) / RISE)
        tokens, targets = training_batch(step, seed, dist.get_rank())
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(wrapped(tokens).flatten(0, 1), targets.flatten()).backward()
        optimizer.step()
    tinydist.mark("end")
    with torch.no_grad():
        return model.eval().loss(*held_out()).item() if dist.get_rank() == 0 else None


def row(method, seed, steps):
    loss = tinydist.launch(partial(train, method, seed, steps), RANKS, observe=False).results[0]
    return {
        "method": method, "seed": seed, "ranks": RANKS, "steps": steps, "tokens": steps * RANKS * ROWS * LENGTH,
        "sent": sent(method, steps), "loss": f"{loss:.4f}",
    }  # fmt: skip


def runs_of(method, seed, chosen):
    """Its rows: one on equal tokens, or one for each network in equal time."""
    if not chosen.equal_seconds:
        return [row(method, seed, chosen.steps)]
    found = {network: steps_within(method, chosen.steps, network) for network in ALL_REDUCE}
    return [{"network": network} | row(method, seed, steps) for network, steps in found.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[*range(5)])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--only", choices=[*METHODS], metavar="METHOD")
    parser.add_argument("--write", action="store_true", help="the rows of these seeds and methods; the others stay")
    parser.add_argument("--equal-seconds", action="store_true", help="and not on equal tokens; without the controls")
    chosen = parser.parse_args()
    file = DATA / ("18_equal_seconds.csv" if chosen.equal_seconds else "18_methods.csv")
    methods = [chosen.only] if chosen.only else [*METHODS]
    if chosen.equal_seconds:
        methods = [method for method in methods if not method.endswith(CONTROLS)]
    where = {"text": text_hash(), **csv_rows.measured_on("torch")}
    for seed in chosen.seeds:
        for method in methods:
            found = [each | where for each in runs_of(method, seed, chosen)]
            for each in found:
                print("{method:30} seed {seed}  {steps} steps  loss {loss}  sent {sent:,}".format(**each), flush=True)
            if chosen.write:
                replace_rows(file, found)


def replace_rows(file, found):
    of = {(row["method"], str(row["seed"])) for row in found}
    before = csv_rows.read(file) if file.exists() else []
    rows = [row for row in before if (row["method"], row["seed"]) not in of] + found
    csv_rows.write(file, sorted(rows, key=lambda row: (int(row["seed"]), [*METHODS].index(row["method"]))))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
