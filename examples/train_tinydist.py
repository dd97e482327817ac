"""This library's own: a plan says how many ranks each axis has, and an engine trains by it.

    torchrun --nproc-per-node 2 examples/train_tinydist.py [--zero 3 | --tp 2] [--bf16]

Without a launcher it runs on simulated ranks: ``tinydist.launch(main, 2, init=False)``.
"""

import argparse

import torch.distributed as dist
from same_step import RANKS, RATE, ROWS, Report, make_model, make_text, show
from torch.utils.data import DataLoader, DistributedSampler

from tinydist.training import Plan, parallelize


def main(zero=0, tp=1, precision="fp32"):
    dist.init_process_group("gloo")
    text = make_text()
    report = Report()
    plan = Plan(dp=RANKS // tp, tp=tp, zero=zero, precision=precision)
    engine = parallelize(make_model(), plan, lr=RATE)
    mine = DistributedSampler(text, plan.dp, dist.get_rank() // tp, shuffle=False)
    loader = DataLoader(text, batch_size=ROWS // plan.dp, sampler=mine)

    for tokens, targets in loader:
        report.step(engine.step(tokens, targets).loss)

    found = report.end()
    dist.destroy_process_group()
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zero", type=int, default=0)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--bf16", action="store_const", const="bf16", default="fp32", dest="precision")
    show(main(**vars(parser.parse_args())))
