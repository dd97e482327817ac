"""How evenly a small GPT's routers load their experts as it trains: without balancing, with Switch's loss, with a bias.

    python benchmarks/balance.py [--seeds 5] [--steps 300] [--only METHOD] [--write]

2 layers of width 64, 16 experts, 2 for a token, dropless, on tinydist's text (its hash is in the table), of which the
last tenth is held out. Every tenth step: the load of the fullest expert over the mean, in the worst layer and on the
mean of layers, and what capacity 1.25 would have dropped. After the last: the loss on what is held out, and MaxVio over
all of it, as Wang et al. measure it (arXiv 2408.15664, section 4.1). Each kind of scores has its control without
balancing. One process, a minute or two a run; ``--write`` puts the table where tests and notebook 17 read it, and
``--only`` runs one method and keeps the stored rows of the others.

And a dense GPT with as many FLOPs for a token: its MLP has the width of two experts together. All learn at 2e-3, which
is the best of 1, 2, 4 and 8e-3 for it.
"""

import argparse
import hashlib
import statistics
from functools import partial
from pathlib import Path

import torch

from benchmarks import csv_rows
from tinydist.experts import Router, auxiliary_loss, capacity, max_violation, update_biases, with_experts
from tinydist.model import GPT, GPTConfig, load_text

FILE = Path(__file__).parents[1] / "notebooks" / "data" / "17_balance.csv"
EXPERTS, TOP_K, ROWS, LENGTH, FACTOR = 16, 2, 8, 64, 1.25
HIDDEN, RATE, DENSE = 128, 2e-3, "dense"  # width of an expert, learning rate, the model without experts
HELD_OUT = 10  # one part in so many
SIGMOID = partial(Router, score="sigmoid", bias=True)
METHODS = {  # name: (router, weight of the balance loss, rate of the bias)
    "softmax": (Router, 0.0, 0.0),
    "softmax, balance loss 0.01": (Router, 0.01, 0.0),
    "sigmoid": (SIGMOID, 0.0, 0.0),
    "sigmoid, bias 0.001": (SIGMOID, 0.0, 0.001),
    "sigmoid, bias 0.01": (SIGMOID, 0.0, 0.01),  # is it the rate that a short run lacks?
}


def text_hash():
    return hashlib.sha256(load_text().numpy().tobytes()).hexdigest()[:16]


def training_batch(step, seed):
    """Drawn from all but the end of the text."""
    text = load_text()
    text = text[: len(text) - len(text) // HELD_OUT]
    draw = torch.Generator().manual_seed(1_000_003 * seed + step)
    starts = torch.randint(len(text) - LENGTH, (ROWS, 1), generator=draw)
    rows = text[starts + torch.arange(LENGTH + 1)].long()
    return rows[:, :-1], rows[:, 1:]


def held_out():
    """All of the end, in batches."""
    text = load_text()
    rows = text[len(text) - len(text) // HELD_OUT :].long()
    rows = rows[: len(rows) // (LENGTH + 1) * (LENGTH + 1)].view(-1, LENGTH + 1)
    return [(each[:, :-1], each[:, 1:]) for each in rows.split(64)]


def loads(model):
    """Of each layer: the assignments of its last forward by expert. No assignment was lost."""
    for block in model.blocks:
        load = block.mlp.load
        assert load.combined == load.assigned == sum(load.by_expert) and not load.dropped
    return [block.mlp.load.by_expert for block in model.blocks]


def dropped(by_expert):
    """The part of assignments that is over the capacity."""
    most = capacity(sum(by_expert), EXPERTS, 1, FACTOR)
    return sum(max(0, n - most) for n in by_expert) / sum(by_expert)


def train(method, seed, steps):
    """Yields rows: of every tenth step, and at the end of what is held out."""
    if method == DENSE:
        yield dense(seed, steps)
        return
    router, balance, rate = METHODS[method]
    torch.manual_seed(seed)
    model = GPT(GPTConfig(context=LENGTH, layers=2, dim=64))
    model = with_experts(model, EXPERTS, TOP_K, hidden=HIDDEN, router=router, seed=seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    for step in range(steps):
        loss = model.loss(*training_batch(step, seed))
        (loss + auxiliary_loss(model, balance)).backward()
        optimizer.step()
        optimizer.zero_grad()
        if rate:
            update_biases(model, rate)
        if step % 10 == 9 or step == 0:
            tokens = (step + 1) * ROWS * LENGTH
            yield row_of("training", method, seed, step + 1, tokens, loss.item(), loads(model))
    yield evaluated(model.eval(), method, seed, steps)


def dense(seed, steps):
    """The row of the model without experts, on what is held out."""
    torch.manual_seed(seed)
    model = GPT(GPTConfig(context=LENGTH, layers=2, dim=64))
    for block in model.blocks:
        assert block.mlp.up.out_features == TOP_K * HIDDEN
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    for step in range(steps):
        model.loss(*training_batch(step, seed)).backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        batches = held_out()
        loss = sum(model.loss(*each).item() * len(each[0]) for each in batches)
    rows = sum(len(tokens) for tokens, _ in batches)
    row = {"method": DENSE, "what": "held out", "seed": seed, "step": steps, "tokens": rows * LENGTH}
    return row | {"loss": f"{loss / rows:.4f}"}


@torch.no_grad()
def evaluated(model, method, seed, steps):
    batches = held_out()
    losses, by_layer = [], [[0] * EXPERTS for _ in model.blocks]
    for tokens, targets in batches:
        losses.append(model.loss(tokens, targets).item() * len(tokens))
        by_layer = [[a + b for a, b in zip(*both)] for both in zip(by_layer, loads(model))]
    rows = sum(len(tokens) for tokens, _ in batches)
    return row_of("held out", method, seed, steps, rows * LENGTH, sum(losses) / rows, by_layer)


def row_of(what, method, seed, step, tokens, loss, by_layer):
    violations = [max_violation(by_expert) for by_expert in by_layer]
    over = statistics.mean(dropped(by_expert) for by_expert in by_layer)
    return {
        "method": method, "what": what, "seed": seed, "step": step, "tokens": tokens, "loss": f"{loss:.4f}",
        "max_over_mean": f"{1 + statistics.mean(violations):.3f}", "worst_layer": f"{1 + max(violations):.3f}",
        "over_capacity": f"{over:.4f}",
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--only", choices=[*METHODS, DENSE])
    parser.add_argument("--write", action="store_true")
    chosen, rows = parser.parse_args(), []
    methods = [chosen.only] if chosen.only else [*METHODS, DENSE]
    kept = [row for row in csv_rows.read(FILE) if row["method"] not in methods] if chosen.only else []
    where = {"text": text_hash(), **csv_rows.measured_on("torch")}
    for seed in range(chosen.seeds):
        for method in methods:
            rows += [row | where for row in train(method, seed, chosen.steps)]
            told = {"max_over_mean": "-", "worst_layer": "-", "over_capacity": "-"} | rows[-1]
            said = "{method:28} seed {seed}  held-out loss {loss}  max/mean {max_over_mean}  worst layer {worst_layer}"
            print(said.format(**told), f" over capacity {told['over_capacity']}", flush=True)
            if chosen.write:
                csv_rows.write(FILE, kept + rows, [*(kept or rows)[0]])


if __name__ == "__main__":
    main()
