"""In which pass of which part of the model an operator runs, and in which regions: of programs that do not change."""

import copy
from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.pipelining.schedules import ScheduleInterleavedZeroBubble
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import tinydist
from tinydist import zero
from tinydist.data_parallel import DDP
from tinydist.model import GPT, GPTConfig
from tinydist.pipeline_parallel import Worker, make_schedule
from tinydist.tracing.event_log import together

TINY = GPTConfig(vocab_size=64, context=16, layers=2, heads=2, dim=16)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        return x + self.down(self.up(x).relu())


def two_blocks():
    return nn.Sequential(*[Mlp() for _ in range(2)])


def step(model, prepare=lambda model: model):
    model = prepare(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    x = torch.ones(2, 4)
    tinydist.mark("step")
    F.mse_loss(model(x), x).backward()
    optimizer.step()


def said(run, rank=0, since="step"):
    """Of a rank's operators since the mark: (name, pass, part)."""
    trace = run.between(since, run.seconds).trace
    return [(e.name, e.phase, e.module) for e in trace.of(rank, "compute") if e.name != "wait"]


FORWARD = [
    *[("addmm", "0.up"), ("relu", "0"), ("addmm", "0.down"), ("add", "0")],
    *[("addmm", "1.up"), ("relu", "1"), ("addmm", "1.down"), ("add", "1"), ("mse_loss", "")],
]
BACKWARD = [("mse_loss_backward", "")] + [
    (name, part)
    for block in "10"
    for name, part in [
        *[("mm", f"{block}.down"), ("mm", f"{block}.down"), ("sum", f"{block}.down")],
        ("threshold_backward", block),
        *[("mm", f"{block}.up")] * (2 if block == "1" else 1),
        ("sum", f"{block}.up"),
        *[("add", f"{block}.up")] * (block == "1"),
    ]
]


def test_each_operator_of_a_step_has_its_pass_and_its_part():
    forward = [(name, "forward", part) for name, part in FORWARD]
    backward = [(name, "backward", part) for name, part in BACKWARD]
    names = said(tinydist.launch(lambda: step(two_blocks()), 1))
    assert names[: len(forward)] == forward
    assert names[len(forward)] == ("ones_like", "", "")  # the program's: where backward starts from
    assert names[len(forward) + 1 :][: len(backward)] == backward
    assert set(names[len(forward) + 1 + len(backward) :]) == {("add_", "optimizer", "")}


def test_names_are_those_of_the_model_whoever_wraps_it():
    plain = said(tinydist.launch(lambda: step(two_blocks()), 2))
    for wrap in (DDP, DistributedDataParallel):
        wrapped = said(tinydist.launch(lambda wrap=wrap: step(two_blocks(), wrap), 2))
        assert [each for each in wrapped if each[0] in ("addmm", "mm", "relu")] == [
            each for each in plain if each[0] in ("addmm", "mm", "relu")
        ]


def test_a_copy_and_a_model_from_before_the_launch_have_names():
    before = two_blocks()
    alone = said(tinydist.launch(lambda: step(two_blocks()), 1))
    assert said(tinydist.launch(lambda: step(before), 1)) == alone
    assert said(tinydist.launch(lambda: step(copy.deepcopy(two_blocks())), 1)) == alone
    copies = nn.Sequential(*[copy.deepcopy(before[0]) for _ in range(2)])
    assert said(tinydist.launch(lambda: step(copies), 1)) == alone


def test_layers_that_are_called_one_by_one_have_the_names_of_their_model():
    def program():
        model = GPT(TINY)
        tinydist.mark("step")
        x = torch.ones(1, 4, 16)
        for block in nn.Sequential(*model.blocks):  # a stage of a pipeline, say
            x = block(x)

    parts = {part.split(".")[1] for name, _, part in said(tinydist.launch(program, 1)) if name == "addmm"}
    assert parts == {"0", "1"}


def test_a_module_that_is_used_twice_has_its_name_twice():
    def program():
        layer, other = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        model = nn.ModuleDict({"a": layer, "b": other})
        tinydist.mark("step")
        model["a"](model["b"](model["a"](torch.ones(2, 4)))).sum().backward()

    run = tinydist.launch(program, 1)
    assert [each[2] for each in said(run) if each[:2] == ("mm", "forward")] == ["a", "b", "a"]
    assert [each[2] for each in said(run) if each[:2] == ("mm", "backward")] == ["a", "a", "b", "b", "a"]


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_checkpoint_computes_again_is_told_from_forward_and_backward(reentrant):
    def program():
        model = two_blocks()
        for block in model:
            block.forward = lambda x, run=block.forward: checkpoint(run, x, use_reentrant=reentrant)
        tinydist.mark("step")
        model(torch.ones(2, 4, requires_grad=True)).sum().backward()

    names = said(tinydist.launch(program, 1))
    passes = [(phase, part) for name, phase, part in names if name == "addmm"]
    again = ["1.up", "1.down", "0.up", "0.down"] if reentrant else ["1.up", "0.up"]  # what nobody needs is left out
    assert [part for phase, part in passes if phase == "recompute"] == again
    backward = [part for name, phase, part in names if name == "mm"]
    assert backward == ["1.down", "1.down", "1.up", "1.up", "0.down", "0.down", "0.up", "0.up"]
    assert {phase for name, phase, _ in names if name == "mm"} == {"backward"}


def test_an_error_in_a_module_ends_its_name():
    class Broken(nn.Module):
        def forward(self, x):
            raise ValueError

    def program():
        with pytest.raises(ValueError):
            nn.Sequential(Broken())(torch.ones(1))
        tinydist.mark("step")
        torch.ones(2) + 1

    assert said(tinydist.launch(program, 1)) == [("ones", "", ""), ("add", "", "")]


def test_regions_nest_and_record_function_is_one():
    def program():
        with tinydist.region("outer"):
            torch.ones(1)
            with torch.profiler.record_function("inner"):
                torch.ones(1)
        torch.ones(1)
        decorated()

    @tinydist.region("decorated")
    def decorated():
        torch.ones(1)

    run = tinydist.launch(program, 1)
    assert [event.regions for event in run.trace.of(0)] == [("outer",), ("outer", "inner"), (), ("decorated",)]
    assert [(each.name, each.depth) for each in run.trace.regions] == [("outer", 0), ("inner", 1), ("decorated", 0)]
    outer, inner, _ = run.trace.regions
    ends = [event.end for event in run.trace.of(0)]
    assert (outer.start, outer.end, inner.start, inner.end) == (0, ends[1], ends[0], ends[1])


@pytest.mark.parametrize("name", [3, None])
@pytest.mark.parametrize("what", [tinydist.region, tinydist.mark])
def test_a_name_is_a_text(what, name):
    with pytest.raises(TypeError, match=f"{what.__name__}: name must be a str, got {name}"):
        what(name)


def test_names_do_nothing_where_nobody_observes():
    def program():
        tinydist.mark("step")
        with tinydist.region("F0"):
            return tinydist.label(torch.ones(2), "layer 1").sum().item()

    assert program() == 2
    assert tinydist.launch(program, 2, observe=False).results == [2, 2]


def test_blocks_are_successive_operators_of_one_pass_and_part():
    def program():
        with tinydist.region("0F0"):
            step(two_blocks())

    trace = tinydist.launch(program, 1).between("step", 1.0).trace
    blocks = list(trace.blocks(0, depth=1))
    assert [(block.phase, block.module) for block in blocks] == [
        *[("forward", "0"), ("forward", "1"), ("forward", ""), ("", ""), ("backward", "")],
        *[("backward", "1"), ("backward", "0"), ("optimizer", "")],
    ]
    assert blocks[0].start == 0 and all(before.end == after.start for before, after in pairwise(blocks))
    assert {block.module for block in trace.blocks(0, regions=True) if block.phase != "optimizer"} == {"0F0"}


# What communication is for.


def transfers(run, rank=0):
    """(name, what for, pass) of a rank's transfers, in the order in which it issued them."""
    events = [event for event in run.trace.of(rank) if event.transfer and event.name != "wait"]
    return [(e.name, e.what, e.phase) for e in sorted(events, key=lambda event: event.place)]


def test_a_collective_is_for_the_parameter_that_travels():
    def program():
        layer = nn.Sequential(nn.Linear(4, 4))
        layer(torch.ones(2, 4)).sum().backward()
        dist.all_reduce(layer[0].weight.grad)
        with tinydist.region("loss"):
            dist.all_reduce(torch.ones(1))

    run = tinydist.launch(program, 2)
    assert transfers(run) == [("all_reduce", "0.weight", ""), ("all_reduce", "loss", "")]
    (wait,) = [event for event in run.trace.of(0) if event.name == "wait" and event.what == "0.weight"]
    assert wait.end == next(event.end for event in run.trace.of(0) if event.name == "all_reduce")


WRAPPERS = {
    "torch's": lambda model: DistributedDataParallel(model, bucket_cap_mb=1e-4),
    "ours": lambda model: DDP(model, bucket_bytes=200),
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_the_buckets_of_ddp_have_their_numbers(wrap):
    def program():
        model = wrap(two_blocks())
        for _ in range(2):  # torch makes its buckets anew after the first
            tinydist.mark("step")
            model(torch.ones(2, 4)).sum().backward()

    run = tinydist.launch(program, 2)
    reduced = [each for each in transfers(run.between(("step", 1), run.seconds)) if each[0] == "all_reduce"]
    assert len(reduced) >= 2
    assert reduced == [("all_reduce", f"bucket {number}", "backward") for number in range(len(reduced))]


def test_fully_shard_names_its_units():
    def program():
        model = two_blocks()
        for block in model:
            fully_shard(block)
        step(fully_shard(model))

    run = tinydist.launch(program, 2)
    assert transfers(run.between("step", run.seconds)) == [
        *[("all_gather", "0", "forward"), ("all_gather", "1", "forward")],
        *[("all_gather", "1", "backward"), ("all_gather", "0", "backward")],  # the next one while 1 is under way
        *[("reduce_scatter", "1", "backward"), ("reduce_scatter", "0", "backward")],
    ]
    assert {part for name, phase, part in said(run) if name == "addmm"} == {"0.up", "0.down", "1.up", "1.down"}


def test_our_own_sharding_names_its_units():
    def program():
        model = two_blocks()
        sharded = zero.ZeRO3(model, units=list(model), prefetch=False)
        tinydist.mark("step")
        model(torch.ones(2, 4)).sum().backward()
        sharded.step()

    run = tinydist.launch(program, 2)
    gathered = [each for each in transfers(run.between("step", run.seconds)) if each[0] == "all_gather"]
    assert gathered == [
        ("all_gather", part, phase)
        for part, phase in [("0", "forward"), ("1", "forward"), ("1", "backward"), ("0", "backward")]
    ]


def test_the_passes_of_torchs_pipelines_are_regions():
    def program(kind):
        rank, x = dist.get_rank(), torch.ones(8, 4)
        places = (rank,) if kind is ScheduleGPipe else (rank, rank + 2)
        stages = [PipelineStage(Mlp(), place, 2 * len(places), torch.device("cpu")) for place in places]
        pipeline = kind(stages[0] if len(stages) == 1 else stages, 2, loss_fn=F.mse_loss)
        pipeline.step(*[x] * (rank == 0), **({"target": x, "losses": []} if rank == 1 else {}))

    gpipe = tinydist.launch(program, 2, ScheduleGPipe).trace
    found = {(event.regions[0], event.phase) for event in gpipe.of(0, "compute") if event.regions and event.phase}
    assert found == {(f"Forward {n}", "forward") for n in (0, 1)} | {(f"Backward {n}", "backward") for n in (0, 1)}
    split = tinydist.launch(program, 2, ScheduleInterleavedZeroBubble).trace
    found = {(event.regions[0], event.phase) for event in split.of(1, "compute") if event.regions and event.phase}
    assert {("PP:1F0", "forward"), ("PP:3I1", "backward"), ("PP:3W1", "backward")} <= found


def test_passes_that_torchs_schedule_does_not_name():
    """Its 1F1B; and stages that were made one by one have names of their own."""

    def program():
        rank, x = dist.get_rank(), torch.ones(8, 4)
        stage = PipelineStage(Mlp(), rank, 2, torch.device("cpu"))
        pipeline = Schedule1F1B(stage, 2, loss_fn=F.mse_loss)
        pipeline.step(*[x] * (rank == 0), **({"target": x, "losses": []} if rank == 1 else {}))

    trace = tinydist.launch(program, 2).trace
    found = {(event.regions, event.phase) for event in trace.of(1, "compute") if event.regions and event.phase}
    assert found == {
        ((f"1{letter}{n}",), word) for letter, word in [("F", "forward"), ("B", "backward")] for n in (0, 1)
    }
    parts = {event.module.split(".")[0] for rank in range(2) for event in trace.of(rank) if event.module}
    assert parts == {"stage 0", "stage 1"}


def test_what_the_kernel_has_computed_before_is_no_pass_of_a_rank():
    """Each thread numbers its nodes for itself."""
    for _ in range(3):
        torch.ones(1, requires_grad=True).exp()
    trace = tinydist.launch(lambda: torch.ones(4, 4) @ torch.ones(4, 4), 1).trace
    assert {event.phase for event in trace.events} == {""}


@pytest.mark.parametrize("recompute, where", [(False, ""), ("before", "R"), ("inside", "I")])
def test_the_passes_of_our_pipelines_are_regions(recompute, where):
    def program():
        rank, x = dist.get_rank(), torch.ones(4, 4)
        schedule = make_schedule("ZB-H1", 2, 2)
        worker = Worker(schedule, {rank: Mlp()}, torch.empty(2, 4, device="meta"), F.mse_loss, recompute=recompute)
        worker.step(x if rank == 0 else None, x if rank == 1 else None)

    trace = tinydist.launch(program, 2).trace
    found = {(e.regions[0], e.phase) for e in trace.of(1, "compute") if e.name in ("addmm", "mm")}
    passes = {("F", "forward"), ("I", "backward"), ("W", "backward")} | ({(where, "recompute")} if recompute else set())
    assert found == {(f"1{letter}{n}", phase) for letter, phase in passes for n in (0, 1)}
    messages = [event for event in trace.of(1) if event.name == "message"]
    assert {event.what for event in messages} == {f"1{kind}{n}" for kind in ("RECV_F", "SEND_B") for n in (0, 1)}


@pytest.mark.parametrize(
    "names, one",
    [
        ([], ""),
        (["blocks.0.mlp.weight"], "blocks.0.mlp.weight"),
        (["blocks.0.mlp.weight", "blocks.0.norm.bias"], "blocks.0"),
        (["blocks.0.mlp.weight", "blocks.1.mlp.weight"], "blocks.0 … blocks.1"),
        (["norm.weight", "blocks.1.mlp.weight"], "norm … blocks.1"),
        (["head.weight", "head.bias", ""], "head"),
    ],
)
def test_several_names_as_one(names, one):
    assert together(names) == one


def test_names_are_the_same_every_time():
    def program():
        model = two_blocks()
        fully_shard(model[0])
        step(fully_shard(model))

    def everything(run):
        changes = [list(held.changes) for held in run.memory]
        return [[*event[:5], *event[6:]] for event in run.trace.events], run.trace.regions, changes

    assert everything(tinydist.launch(program, 2)) == everything(tinydist.launch(program, 2))


def test_a_place_for_a_module_may_be_empty():
    def program():
        experts = nn.ModuleList([None, nn.Linear(4, 4)])
        experts[1](torch.ones(1, 4))

    assert [event.module for event in tinydist.launch(program, 1).trace.events if event.phase == "forward"][-1] == "1"


class Cheaply(torch.autograd.Function):
    """A product that keeps its input's norm's input, in the region for it."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return F.layer_norm(x, x.shape[-1:]) @ weight

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        x = x.detach().requires_grad_()
        with torch.enable_grad(), tinydist.region("recompute"):
            again = F.layer_norm(x, x.shape[-1:])
        again.backward(gradient @ weight.T)
        return x.grad, again.detach().T @ gradient


def test_a_function_of_its_own_names_what_it_computes_once_more():
    def program():
        x, weight = torch.ones(4, 8, requires_grad=True), torch.ones(8, 8, requires_grad=True)
        Cheaply.apply(x, weight).sum().backward()

    run = tinydist.launch(program, 1, backend="simulated")
    again = [event.name for event in run.trace.of(0, "compute") if event.phase == "recompute"]
    assert again == ["native_layer_norm"]
