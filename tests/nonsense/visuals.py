"""Valid calls of ``tinydist.visuals``."""

from contextlib import redirect_stdout
from functools import cache, wraps
from io import StringIO

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
from nonsense.calls import Call

import tinydist
from tinydist import visuals
from tinydist.hardware import DEVICES, find_cluster
from tinydist.pipeline_parallel import analyze, make_schedule
from tinydist.planner import find_model
from tinydist.serving import BlockPool, ContinuousBatching, StepCost, TraceRequest, replay
from tinydist.visuals.palette import MEMORY


@cache
def run():
    def program():
        x = torch.ones(100)
        dist.all_reduce(x)
        return x + 1

    return tinydist.launch(program, 2)


def served():
    cost = StepCost(find_model("OPT 13B"), DEVICES["A100 40GB"])
    return replay(ContinuousBatching(2, 64), [TraceRequest(0.0, 4, 3)], BlockPool(4), cost)


def analysis():
    return analyze(make_schedule("1F1B", 2, 3))


def drawn(draw, arguments):
    @wraps(draw)
    def quietly(**given):
        try:
            with redirect_stdout(StringIO()):
                draw(**given)
        finally:
            plt.close("all")

    return Call(quietly, arguments)


CALLS = {
    "against_reference": drawn(
        visuals.against_reference,
        lambda: dict(reference=[3, 2, 1], values={"a": [3, 4, 5]}, y="loss", limits=(0, 9)),
    ),
    "bars": drawn(
        visuals.bars, lambda: dict(values={"a": 1.0, "b": {"c": 2, "d": 1}}, unit="s", limit=("most", 3), log=False)
    ),
    "batch_shares": drawn(visuals.batch_shares, lambda: dict(sizes=[2, 1, 0], unit="sequences")),
    "bit_fields": drawn(visuals.bit_fields, lambda: dict(numbers={"fp4": ("0", "01", "1", 1.5)})),
    "block_owners": drawn(visuals.block_owners, lambda: dict(moments={"a": ["A", " "]}, block_size=2)),
    "block_tables": drawn(visuals.block_tables, lambda: dict(moments={"a": [[0, 1], [0]]})),
    "call_grid": drawn(visuals.call_grid, lambda: dict(calls=[["line 1", "line 2"], ["line 1"]], mark=2)),
    "cluster": drawn(visuals.cluster, lambda: dict(run_or_cluster=run())),
    "curves": drawn(
        visuals.curves,
        lambda: dict(
            points=[1, 2, 3], values={"a": [1, 2, 3]}, x="n", y="s", limit=("most", 2), log=True, zero=False, jumps=True
        ),
    ),
    "groups": drawn(
        visuals.groups, lambda: dict(groups={"tp": [[0, 1], [2, 3]]}, cluster=find_cluster("2 x 4"), rank=1)
    ),
    "histograms": drawn(visuals.histograms, lambda: dict(sizes={"a": [1.0, 2.0]}, x="size", below=("zero", -3))),
    "matrices": drawn(visuals.matrices, lambda: dict(tables={"a": [[0, 1], [1, 0]]}, rows="query", columns="key")),
    "memories": drawn(visuals.memories, lambda: dict(runs={"a": run()}, rank=0, purposes=list(MEMORY))),
    "memory": drawn(
        visuals.memory, lambda: dict(run=run(), rank=1, lines={"limit": 300}, since=0.0, until=run().seconds)
    ),
    "model_cut": drawn(visuals.model_cut, lambda: dict(held=[{"head": (0.0, 0.5)}, {"head": (0.5, 1.0)}], rank=1)),
    "number_line": drawn(visuals.number_line, lambda: dict(numbers={"a": [0.0, 1.0]}, x="number")),
    "ownership_timeline": drawn(
        visuals.ownership_timeline,
        lambda: dict(
            run=run(), purpose="activations", moments=["AR"], rank=0, labels=["x"], since=0.0, until=run().seconds
        ),
    ),
    "pareto_front": drawn(
        visuals.pareto_front, lambda: dict(points=[(1.0, 2.0), (2.0, 1.0)], x="seconds", y="GB", limit=("80 GB", 1.5))
    ),
    "plan_scatter": drawn(
        visuals.plan_scatter,
        lambda: dict(
            best={(1, 2): (0.5, 1e9)},
            every=[(0.4, 2e9)],
            axes=("pp", "tp"),
            published={"a": 0.3},
            whole=0.5,
            limit=("80 GB", 80e9),
        ),
    ),
    "rank_values": drawn(
        visuals.rank_values, lambda: dict(values=[[1, 2], [3, 4]], average=[2, 3], x="numbers", y="gradient")
    ),
    "roofline": drawn(
        visuals.roofline, lambda: dict(device=DEVICES["H100"], intensities={"add": 0.2}, dtype="bfloat16")
    ),
    "cut_tensors": drawn(
        visuals.cut_tensors, lambda: dict(run=run(), moment=0.0, panels={"a": {"x": (2, 3)}}, summands=["x"])
    ),
    "shard_map": drawn(
        visuals.shard_map, lambda: dict(run=run(), moment=0.0, purposes=["other"], labels=["x"], ranks=[0, 1])
    ),
    "seeds": drawn(visuals.seeds, lambda: dict(values={"a": [1.0, 2.0], "b": [1.5, 3.0]}, x="loss", band="a")),
    "scatter": drawn(
        visuals.scatter, lambda: dict(points={"a": (1.0, 2.0)}, x="held", y="seconds", limit=("nobody waits", 1.5))
    ),
    "schedule": drawn(visuals.schedule, lambda: dict(analysis=analysis())),
    "schedules": drawn(visuals.schedules, lambda: dict(analyses={"a": analysis()})),
    "slots": drawn(visuals.slots, lambda: dict(replays={"a": served()})),
    "step_costs": drawn(
        visuals.step_costs, lambda: dict(steps={"a": {"seconds": {"b": 1.0}, "memory": {"other": 2.0}}}, cut=3.0)
    ),
    "steps": drawn(
        visuals.steps,
        lambda: dict(
            run=[[["A1", ""], ["", "B2"]], [["AB1", ""], ["", "B2"]]],
            titles=["a", "b"],
            only=[1],
            columns=["c", "d"],
            computed=[1],
        ),
    ),
    "beside": drawn(visuals.beside, lambda: dict(measured={1: 1.0}, models={"a": {1: 2.0}}, shown=[1])),
    "table": drawn(visuals.table, lambda: dict(rows={"a": {"x": 1.0}}, unit="s")),
    "timeline": drawn(
        visuals.timeline, lambda: dict(run=run(), ranks=[0], since=0.0, until=run().seconds, mark=("AR", "x"))
    ),
    "timeline_over_memory": drawn(
        visuals.timeline_over_memory,
        lambda: dict(run=run(), rank=1, ranks=[0], lines={"a": 3}, since=0.0, until=run().seconds, mark=("AR", "x")),
    ),
    "timelines": drawn(
        visuals.timelines,
        lambda: dict(runs={"a": (run(), 0.0)}, rank=0, until=run().seconds, along={"a": {"dp": [0, 1]}}),
    ),
    "traffic": drawn(visuals.traffic, lambda: dict(run=run(), title="a ring", longest=1e6)),
    "waterfall": drawn(
        visuals.waterfall, lambda: dict(groups={"a": {"b": 1.0, "c": 2}}, unit="ms", total=("published", 4))
    ),
}
REASONS = {
    "Explorer": "widgets, which ipywidgets makes of what it is given",
    "stepper": "draws by steps",
    "film": "launches a program",
    "use_style": "takes nothing",
}
