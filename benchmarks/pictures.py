"""What a picture costs: the time to draw it and to make its PNG, and the bytes that a notebook keeps.

    python benchmarks/pictures.py [--times 5]

Medians of the processor's seconds, so that other work on the machine counts less, beside a plain figure of matplotlib
that is saved with as many pixels. Wanted is at most 0.6 s for both together.
"""

import argparse
import io
import statistics
import time
from contextlib import redirect_stdout

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import tinydist
from tinydist import visuals
from tinydist.collectives import ring
from tinydist.pipeline_parallel import analyze, make_schedule
from tinydist.visuals.figure import SHARP, png

WANTED = 0.6  # seconds, for both


def film():
    """An all-gather along a ring, photographed."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    cells = torch.zeros(ranks, dtype=torch.int64)
    cells[rank] = (rank + 1) * 10**rank
    frames = [cells.clone()]
    for step in range(ranks - 1):
        give, take = (rank - step) % ranks, (rank - step - 1) % ranks
        there, here = cells[give : give + 1].clone(), cells[take : take + 1]
        for work in [dist.isend(there, (rank + 1) % ranks), dist.irecv(here, (rank - 1) % ranks)]:
            work.wait()
        frames.append(cells.clone())
    return frames


def train(steps=2):
    """A stack of layers under torch's fully_shard."""
    layers = [torch.nn.Linear(4000, 4000, dtype=torch.bfloat16) for _ in range(8)]
    net = fully_shard(torch.nn.Sequential(*[fully_shard(layer) for layer in layers]))
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(steps):
        net(torch.empty(1024, 4000, dtype=torch.bfloat16)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def all_reduce():
    ring.all_reduce(torch.ones(1_000_000))


def plain():
    figure, axes = plt.subplots(figsize=(7.2, 2.5), layout="constrained")
    axes.plot(range(20))
    return figure


def pictures():
    """Name -> a function that draws it: of little and of much."""
    node, nodes, filmed = tinydist.launch(all_reduce, 4), tinydist.launch(all_reduce, 16), tinydist.launch(film, 4)
    trained, eight = (tinydist.launch(train, ranks, fake=True) for ranks in (4, 8))
    schedules = {name: analyze(make_schedule(name, 4, 8)) for name in ("1F1B", "ZB-H1", "ZB-V")}
    many, most = analyze(make_schedule("1F1B", 8, 64)), analyze(make_schedule("1F1B", 32, 256))
    lines = {name: [each**power for each in range(1, 21)] for name, power in (("a", 1), ("b", 1.5), ("c", 2))}
    masks = {name: torch.rand(16, 16).tril() for name in ("one", "two", "three")}
    return {
        "a plain figure of matplotlib": plain,
        "timeline, 4 ranks": lambda: visuals.timeline(node),
        "timeline, 16 ranks": lambda: visuals.timeline(nodes),
        "timeline of a training, 8 ranks": lambda: visuals.timeline(eight),
        "timelines": lambda: visuals.timelines({"4": trained, "8": eight}),
        "memory": lambda: visuals.memory(trained),
        "timeline over memory, 4 ranks": lambda: visuals.timeline_over_memory(trained),
        "memories": lambda: visuals.memories({"4": trained, "8": eight}),
        "owners, 8 ranks": lambda: visuals.shard_map(eight),
        "owners, 3 moments": lambda: visuals.shard_map(trained, moment=["F1", "F2", "B8"]),
        "film, 4 ranks": lambda: visuals.ownership_timeline(trained, since=("F1", 1)),
        "film, 8 ranks": lambda: visuals.ownership_timeline(eight, "gradients"),
        "traffic, 4 ranks": lambda: visuals.traffic(node),
        "traffic, 16 ranks": lambda: visuals.traffic(nodes),
        "cluster, 1 node": lambda: visuals.cluster(node),
        "cluster, 2 nodes": lambda: visuals.cluster(nodes),
        "steps, 4 ranks": lambda: visuals.steps(filmed),
        "schedule, 64 passes": lambda: visuals.schedule(schedules["1F1B"]),
        "schedule, 1,024 passes": lambda: visuals.schedule(many),
        "schedule, 16,384 passes": lambda: visuals.schedule(most),
        "three schedules": lambda: visuals.schedules(schedules),
        "bars": lambda: visuals.bars({name: {"parameters": 2, "gradients": 1} for name in "abcdef"}, "GB"),
        "curves": lambda: visuals.curves(range(1, 21), lines, "x", "y", log=True),
        "matrices": lambda: visuals.matrices(masks, "query", "key"),
    }


def measured(draw, times):
    drawing, keeping = [], []
    for _ in range(times + 1):  # the first finds fonts
        begin = time.process_time()
        with redirect_stdout(io.StringIO()):
            figure = draw()
        middle = time.process_time()
        if draw is plain:
            kept = io.BytesIO()
            figure.savefig(kept, dpi=SHARP * figure.dpi)
            size = len(kept.getvalue())
        else:
            size = len(png(figure))
        keeping.append(time.process_time() - middle)
        drawing.append(middle - begin)
        plt.close(figure)
    return statistics.median(drawing[1:]), statistics.median(keeping[1:]), size


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=5)
    times = parser.parse_args().times
    plt.switch_backend("agg")
    print(f"{'':32}{'draw':>10}{'PNG':>10}{'both':>10}{'kept':>12}")
    for name, draw in pictures().items():
        drawing, keeping, size = measured(draw, times)
        both = drawing + keeping
        missed = " missed" * (both > WANTED)
        columns = "".join(f"{1e3 * each:7.0f} ms" for each in (drawing, keeping, both))
        print(f"{name:32}{columns}{size / 1e3:9.1f} kB{missed}", flush=True)


if __name__ == "__main__":
    main()
