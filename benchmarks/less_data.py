"""Loss against tokens, FLOPs and virtual seconds: a small GPT under learning-rate schedules, a curriculum, random-LTD,
progressive layer drop.

    python benchmarks/less_data.py schedules [--seeds 0 1 2 3 4] [--write]
    python benchmarks/less_data.py methods [--seeds 0 1 2 3 4] [--write]

Four layers of width 32 (61,120 parameters), 16 sequences of 64 bytes of tinydist's text (its hash is in the tables), of
which the last tenth is held out; AdamW, gradients clipped at 1. A budget is 307,200 tokens (300 whole steps), or the
FLOPs or virtual seconds of these steps. Schedules count what part of the budget is gone, so each run is at its end when
the budget is. ``flops`` are those of matmuls by formula (forward, and twice that backward), ``seconds`` those of the
simulated laptop. The peak rate of a method is the best of those tried, by the mean of its five seeds: of two for each
method, its control and the baseline, of three for layer drop and for the baseline with a cosine. Methods run with WSD,
too, and those that ramp also with a warm-up of as many steps as the baseline's. One process, 5 to 15 seconds a run on a
free core; ``--write`` adds the runs that are missing to the tables that notebook 19 reads.
"""

import argparse
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import torch

import tinydist
from benchmarks import csv_rows
from benchmarks.held_out_text import first_held_out, sequences, text_hash
from tinydist.model import GPT, GPTConfig, load_text
from tinydist.training.curriculum import fixed_linear, fixed_root
from tinydist.training.layer_drop import LayerDrop, layer_drop, theta_schedule
from tinydist.training.lr_schedules import LR_SCHEDULES
from tinydist.training.meters import flops_of_step
from tinydist.training.one_cycle import one_cycle, one_cycle_momentum
from tinydist.training.random_ltd import kept_schedule, random_ltd

FOLDER = Path(__file__).parents[1] / "notebooks" / "data"
CONFIG = GPTConfig(context=64, layers=4, heads=2, dim=32)
ROWS, STEPS, TENTHS = 16, 300, 10
TOKENS = STEPS * ROWS * CONFIG.context
PEAKS = 3e-3, 1e-2
RATES = {"constant": (*PEAKS, 1e-3), "1cycle, momentum stays": PEAKS[1:]}
COURSE = 1000  # schedules of methods count thousandths of the budget
WARMUP = COURSE // 20  # 15 steps of the baseline, 120 where a step begins with an eighth of its tokens
SHORT = 6  # 15 steps where a step begins with an eighth


class Shape(NamedTuple):
    """Of a step."""

    rows: int = ROWS
    length: int = CONFIG.context
    kept: int = CONFIG.context  # tokens of the two layers in the middle
    layers: int = CONFIG.layers  # that run

    @property
    def tokens(self):
        return self.rows * self.length

    @property
    def flops(self):
        whole = self.layers - 2 if self.kept < self.length else self.layers
        return flops_of_step(
            CONFIG, self.rows, self.length, [self.length] * whole + [self.kept] * (self.layers - whole)
        )

    @property
    def seconds(self):
        return seconds_of(self)


@cache
def seconds_of(shape):
    """Virtual seconds of the third step."""
    two, three = (tinydist.launch(partial(some_steps, shape, n), 1, cluster="laptop").seconds for n in (2, 3))
    return three - two


def some_steps(shape, number):
    model = GPT(CONFIG)
    keep = random_ltd(model)
    keep(shape.kept)
    model.blocks = model.blocks[: shape.layers]  # which ones does not matter: a layer that keeps all is a plain one
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.zeros(shape.rows, shape.length, dtype=torch.int64)
    for _ in range(number):
        take(model, optimizer, tokens, tokens)


def take(model, optimizer, tokens, targets):
    optimizer.zero_grad()
    loss = model.loss(tokens, targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


# The text.


def training_batch(step, seed, rows=ROWS, length=CONFIG.context):
    end = first_held_out() - CONFIG.context - 1
    draw = torch.Generator().manual_seed(1_000_003 * seed + step)
    return sequences(torch.randint(end, (rows, 1), generator=draw), length)


@cache
def held_out():
    """128 sequences, spread over the end of the text."""
    starts = torch.linspace(first_held_out(), len(load_text()) - CONFIG.context - 1, 128).long()
    return sequences(starts.unsqueeze(1), CONFIG.context)


@torch.no_grad()
def loss_of(model):
    model.eval()
    loss = model.loss(*held_out()).item()
    model.train()
    return loss


# Methods: what a run does to its model; part of the budget that is gone -> the shape of a step.


def baseline(model):
    return lambda gone: Shape()


def curriculum(schedule):
    def begin(model):
        difficulty = schedule(8, CONFIG.context, steps=600)
        return lambda gone: Shape(length=difficulty(int(COURSE * gone)))

    return begin


def batch_ramp(model):
    """The control of the linear curriculum: as many tokens in each step, in whole sequences."""
    difficulty = fixed_linear(8, CONFIG.context, steps=600)
    return lambda gone: Shape(rows=ROWS * difficulty(int(COURSE * gone)) // CONFIG.context)


def token_drop(model):
    keep, kept = random_ltd(model), kept_schedule(16, CONFIG.context, steps=700, multiple=8)

    def shape(gone):
        keep(kept(int(COURSE * gone)))
        return Shape(kept=kept(int(COURSE * gone)))

    return shape


def depth_drop(model):
    set_theta, theta = layer_drop(model), theta_schedule(0.5, 100 / COURSE)

    def shape(gone):
        set_theta(theta(int(COURSE * gone)))
        return Shape()  # the layers that run are known after the step

    return shape


METHODS = {
    "baseline": baseline,
    "curriculum, linear": curriculum(fixed_linear),
    "curriculum, root": curriculum(fixed_root),
    "batch ramp": batch_ramp,
    "random-LTD": token_drop,
    "layer drop": depth_drop,
}
RAMPS = "curriculum, linear", "batch ramp"
SAVING = "random-LTD", "layer drop"
COMPARED = {  # the baseline's three budgets are one, and a curriculum's FLOPs are nearly its tokens
    "tokens": [*METHODS],
    "flops": SAVING,
    "seconds": [*RAMPS, *SAVING],
}
BUDGETS = {
    "tokens": TOKENS,
    "flops": STEPS * Shape().flops,
    "seconds": lambda: STEPS * Shape().seconds,
}


def plain(name, warmup=WARMUP):
    return lambda peak: (LR_SCHEDULES[name](peak, COURSE, warmup), None)


SCHEDULES = {name: plain(name) for name in ("constant", "cosine", "wsd")} | {
    "1cycle": lambda peak: (one_cycle(peak, COURSE), one_cycle_momentum(COURSE)),
    "1cycle, momentum stays": lambda peak: (one_cycle(peak, COURSE), None),  # is it the momentum?
    "cosine, long warm-up": plain("cosine", 300),  # or the slow rise?
    "cosine, short warm-up": plain("cosine", SHORT),
    "wsd, short warm-up": plain("wsd", SHORT),
}


def train(method, schedule, peak, seed, budget="tokens"):
    """Rows of a table, but for what names the run."""
    torch.manual_seed(seed)
    model = GPT(CONFIG)
    shape_at, (rate, momentum) = METHODS[method](model), SCHEDULES[schedule](peak)
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak)
    options, limit = optimizer.param_groups[0], BUDGETS[budget]
    limit = limit() if callable(limit) else limit
    spent, curve, step = dict.fromkeys(BUDGETS, 0), [], 0
    while spent[budget] < limit * (1 - 1e-9):
        gone = spent[budget] / limit
        shape = shape_at(gone)
        if budget == "tokens" and spent["tokens"] + shape.tokens > limit:  # the last step has what is left
            shape = shape._replace(rows=(limit - spent["tokens"]) // shape.length)
        options["lr"] = rate(int(COURSE * gone))
        if momentum:
            options["betas"] = momentum(int(COURSE * gone)), 0.999
        take(model, optimizer, *training_batch(step, seed, shape.rows, shape.length))
        ran = sum(not isinstance(block, LayerDrop) or block.ran for block in model.blocks)
        shape, step = shape._replace(layers=ran), step + 1
        for name in spent:
            spent[name] += getattr(shape, name)
        if spent[budget] >= limit * (len(curve) + 1) / TENTHS * (1 - 1e-9):
            curve.append(dict(spent, loss=loss_of(model)))
    each = {f"at_{name}": " ".join(shown(point[name]) for point in curve) for name in (*spent, "loss")}
    return {"steps": step, **{name: shown(curve[-1][name]) for name in (*spent, "loss")}} | each


def shown(number):
    return f"{number:.4f}" if isinstance(number, float) else str(number)


def of_schedules(seeds):
    for seed in seeds:
        for name in SCHEDULES:
            if "short warm-up" not in name:  # 2 steps of the baseline
                for rate in RATES.get(name, PEAKS):
                    yield "baseline", name, rate, seed, "tokens"


def of_methods(seeds):
    for seed in seeds:
        for method in RAMPS:
            for schedule in ("wsd", "cosine, short warm-up", "wsd, short warm-up"):
                yield method, schedule, PEAKS[0], seed, "tokens"
        for budget, methods in COMPARED.items():
            for method in methods:
                for rate in rates_of(method, budget):
                    yield method, "cosine", rate, seed, budget
        for method in SAVING:
            for budget in ("tokens", "flops"):
                yield method, "wsd", PEAKS[0], seed, budget


def rates_of(method, budget):
    """The baseline's are in the other table, as cosine. In the same time each method has the rate best by tokens."""
    if method == "layer drop" and budget != "seconds":
        return *PEAKS, 1e-3
    return PEAKS if method != "baseline" and budget == "tokens" else PEAKS[:1]


NAMES = "method", "schedule", "rate", "seed", "budget"
TABLES = {"schedules": of_schedules, "methods": of_methods}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--seeds", type=int, nargs="+", default=range(5))
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    where, runs, file = {"text": text_hash(), **csv_rows.measured_on("torch")}, {}, FOLDER / f"19_{chosen.table}.csv"

    def known():
        rows = csv_rows.read(file) if chosen.write and file.exists() else []
        return runs | {tuple(each[name] for name in NAMES): each for each in rows}

    for each in TABLES[chosen.table](chosen.seeds):
        named = tuple(map(str, each))
        if named in known():
            continue
        row = dict(zip(NAMES, named)) | train(*each) | where
        print(
            "{:20} {:22} {:6} seed {} equal {:8}".format(*named),
            f"{row['steps']} steps, loss {row['loss']}",
            flush=True,
        )
        runs = known() | {named: row}
        if chosen.write:
            csv_rows.write(file, [runs[key] for key in sorted(runs)])


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
