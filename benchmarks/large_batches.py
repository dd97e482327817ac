"""Adam beside LAMB on equal tokens, in batches of 64 to 4,096 sequences: the loss of a small GPT on held-out text.

    python benchmarks/large_batches.py [--seeds 5] [--processes 2] [--resume] [--write]

One layer of width 32 and sequences of 8 bytes of tinydist's text (its hash is in the table), of which the last tenth is
held out. A batch 64 times as large takes 64 times fewer steps. The rate rises over the first tenth of the steps, and
then falls to 0 in a line. For each optimizer and batch the best rate is found with a seed of its own ("scan"): of five,
each three times the one before, and then of its neighbors at 1.7 times and 1/1.7, and at 3 times where it is the last.
Five other seeds train with it ("run"). No weight decay. LAMB's trust ratio is for matrices; biases and norms
take Adam's steps at the same rate, as in the authors' code for BERT. One process of many sequences is what four ranks
with a quarter each compute. Half a minute a run on one core; ``--write`` puts the table where notebook 18 reads it,
and ``--resume`` computes no run again that is there.
"""

import argparse
import math
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from benchmarks import csv_rows
from benchmarks.held_out_text import HELD_OUT, sequences, text_hash
from tinydist.compression import Lamb
from tinydist.model import GPT, GPTConfig, load_text

FILE = Path(__file__).parents[1] / "notebooks" / "data" / "18_batches.csv"
LENGTH, TOKENS, WARM, SCAN_SEED = 8, 786_432, 0.1, 100
BATCHES = 64, 256, 1024, 4096  # sequences
RATES = {"Adam": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1), "LAMB": (3e-3, 1e-2, 3e-2, 1e-1, 3e-1)}


def make_model():
    return GPT(GPTConfig(context=LENGTH, layers=1, heads=2, dim=32))


def optimizers(name, model, lr):
    if name == "Adam":
        return [torch.optim.Adam(model.parameters(), lr=lr)]
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    return [Lamb(matrices, lr=lr), torch.optim.Adam(vectors, lr=lr)]


def part_of_rate(step, steps):
    """Of the highest rate: up over the first tenth, then down to 0."""
    warm = max(1, round(WARM * steps))
    return (step + 1) / warm if step < warm else (steps - step) / (steps - warm)


def train(name, batch, lr, seed, tokens=TOKENS):
    """(steps, loss on what is held out); inf if it diverges."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    model, last = make_model(), len(load_text()) - LENGTH
    end = len(load_text()) - len(load_text()) // HELD_OUT
    draw = torch.Generator().manual_seed(seed)
    steps = tokens // (batch * LENGTH)
    all_of_them = optimizers(name, model, lr)
    for step in range(steps):
        starts = torch.randint(end - LENGTH, (batch,), generator=draw)
        loss = model.loss(*sequences(starts[:, None], LENGTH))
        loss.backward()
        for optimizer in all_of_them:
            for group in optimizer.param_groups:
                group["lr"] = lr * part_of_rate(step, steps)
            optimizer.step()
            optimizer.zero_grad()
    with torch.no_grad():
        starts = torch.arange(end, last, LENGTH)
        loss = model.loss(*sequences(starts[:, None], LENGTH)).item()
    return steps, loss if math.isfinite(loss) else math.inf


def row(what, name, batch, lr, seed):
    steps, loss = train(name, batch, lr, seed)
    return {
        "what": what, "optimizer": name, "batch": batch, "rate": lr, "seed": seed, "steps": steps, "tokens": TOKENS,
        "loss": f"{loss:.4f}",
    }  # fmt: skip


def best(rows, name, batch):
    """The rate of the lowest loss of the scan."""
    scan = [each for each in rows if (each["what"], each["optimizer"], int(each["batch"])) == ("scan", name, batch)]
    return float(min(scan, key=lambda each: float(each["loss"]))["rate"])


def around(rate, rates):
    """Its neighbors, and those beyond where it is the last of the scan."""
    beyond = {min(rates): rate / 3, max(rates): rate * 3}
    near = [rate / 3**0.5, rate * 3**0.5, *[far for end, far in beyond.items() if end == rate]]
    return [float(f"{each:.2g}") for each in near]


def task_of(row):
    return row["what"], row["optimizer"], int(row["batch"]), float(row["rate"]), int(row["seed"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--write", action="store_true")
    chosen, rows = parser.parse_args(), []
    there = {task_of(each): each for each in csv_rows.read(FILE)} if chosen.resume else {}
    where = {"text": text_hash(), **csv_rows.measured_on("torch")}
    with ProcessPoolExecutor(chosen.processes) as pool:

        def run(tasks):
            found = {task: pool.submit(row, *task) for task in tasks if task not in there}
            for task in tasks:
                rows.append(there[task] if task in there else found[task].result() | where)
                print("{what} {optimizer} batch {batch} rate {rate} seed {seed}: {loss}".format(**rows[-1]), flush=True)

        pairs = [(name, batch) for batch in reversed(BATCHES) for name in RATES]
        run([("scan", name, batch, lr, SCAN_SEED) for name, batch in pairs for lr in RATES[name]])
        firsts = {pair: best(rows, *pair) for pair in pairs}
        run([("scan", *pair, lr, SCAN_SEED) for pair in pairs for lr in around(firsts[pair], RATES[pair[0]])])
        rates = {pair: best(rows, *pair) for pair in pairs}
        run([("run", *pair, rates[pair], seed) for seed in range(chosen.seeds) for pair in pairs])
    if chosen.write:
        csv_rows.write(FILE, rows)


if __name__ == "__main__":
    main()
