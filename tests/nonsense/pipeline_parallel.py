"""Valid calls of ``tinydist.pipeline_parallel``."""

import torch
from nonsense.calls import Call
from torch import nn

from tinydist import pipeline_parallel
from tinydist.model import GPT, GPTConfig
from tinydist.pipeline_parallel import (
    Costs,
    Schedule,
    SplitBackward,
    Worker,
    analyze,
    backward,
    make_schedule,
    torch_csv,
)


def layers():
    torch.manual_seed(0)
    return [nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)]


def schedule():
    return make_schedule("1F1B", 2, 3)


def split():
    input = torch.ones(1, 2, requires_grad=True)
    return dict(edge=backward.edge_of(layers()[0](input).sum()), gradient=None, input=input)


def halves(edge, gradient, input):
    made = SplitBackward(edge, gradient, input)
    found = made.input_gradient()
    made.accumulate_weights()
    return found


def worker(**options):
    """Made, and a step: so that what is wrong cannot wait."""
    made = Worker(**options)
    first, last = 0 in made.stages, 1 in made.stages
    return made.step(torch.ones(3, 2) if first else None, torch.ones(3, 2) if last else None)


def options():
    rank = torch.distributed.get_rank()
    return dict(
        schedule=schedule(),
        stages={rank: layers()[0]},
        activation_spec=torch.empty(1, 2),
        loss=nn.functional.mse_loss,
        group=None,
        grad_group=None,
        recompute=True,
        no_sync=None,
    )


def step(inputs, targets):
    made = Worker(**options())
    first, last = 0 in made.stages, 1 in made.stages
    return made.step(inputs if first else None, targets if last else None)


def tied(parameter, ranks, group):
    pipeline_parallel.sum_tied_gradients(parameter, ranks, group)
    return parameter.grad


CALLS = {
    "Schedule": Call(
        lambda **given: pipeline_parallel.verify(Schedule(**given)),
        lambda: dict(name="mine", programs=schedule().programs, stages=2, microbatches=3),
    ),
    "Schedule.grid": Call(schedule().grid, lambda: dict(start=0, end=3, mark=(0, 1))),
    "Schedule.passes": Call(schedule().passes, lambda: dict(rank=1)),
    "Schedule.stages_of": Call(schedule().stages_of, lambda: dict(rank=1)),
    "Costs": Call(
        lambda **given: analyze(schedule(), Costs(**given)).makespan,
        lambda: dict(
            forward=1.0, backward_input=1.0, backward_weight=[1.0, 2.0], message=0.5, overlap=None, kept_for_weights=0.5
        ),
    ),
    "SplitBackward": Call(halves, split, signed=True),
    "Worker": Call(worker, options, ranks=2, signed=True),
    "Worker.step": Call(step, lambda: dict(inputs=torch.ones(3, 2), targets=torch.ones(3, 2)), ranks=2, signed=True),
    "step_1f1b": Call(
        pipeline_parallel.step_1f1b,
        lambda: dict(
            stage=layers()[0],
            activation_spec=torch.empty(1, 2),
            loss=nn.functional.mse_loss,
            microbatches=3,
            inputs=torch.ones(3, 2),
            targets=torch.ones(3, 2),
            group=None,
            grad_group=None,
        ),
        ranks=2,
        signed=True,
    ),
    "analyze": Call(analyze, lambda: dict(schedule=schedule(), costs=Costs())),
    "balanced": Call(pipeline_parallel.balanced, lambda: dict(costs=[1, 2, 3], stages=2)),
    "cut": Call(pipeline_parallel.cut, lambda: dict(layers=layers(), sizes=[1, 2])),
    "evenly": Call(pipeline_parallel.evenly, lambda: dict(layers=[1] * 7, stages=3)),
    "find_schedule": Call(
        pipeline_parallel.find_schedule,
        lambda: dict(placement=(0, 1), microbatches=2, costs=Costs(), most_activations=2, halves=True, skewed=False),
    ),
    "forward_flops": Call(pipeline_parallel.forward_flops, lambda: dict(layers=layers(), inputs=torch.ones(1, 2))),
    "looped": Call(pipeline_parallel.looped, lambda: dict(ranks=2, stages_per_rank=2)),
    "v_shape": Call(pipeline_parallel.v_shape, lambda: dict(ranks=2)),
    "layers_of": Call(pipeline_parallel.layers_of, lambda: dict(gpt=GPT(GPTConfig(layers=1, dim=8, heads=2)))),
    "make_schedule": Call(
        make_schedule, lambda: dict(name="interleaved 1F1B", ranks=2, microbatches=4, stages_per_rank=2)
    ),
    "contiguous": Call(pipeline_parallel.contiguous, lambda: dict(ranks=2)),
    "parameter_counts": Call(pipeline_parallel.parameter_counts, lambda: dict(layers=layers())),
    "parse": Call(pipeline_parallel.parse, lambda: dict(text="2F0")),
    "sum_tied_gradients": Call(
        tied, lambda: dict(parameter=nn.Parameter(torch.ones(2)), ranks=[0, 1], group=None), ranks=2
    ),
    "verify": Call(pipeline_parallel.verify, lambda: dict(schedule=schedule(), most_activations=3)),
    "with_messages": Call(pipeline_parallel.with_messages, lambda: dict(schedule=schedule(), blocking=True)),
    "with_recomputation": Call(pipeline_parallel.with_recomputation, lambda: dict(schedule=schedule())),
    "with_steps": Call(pipeline_parallel.with_steps, lambda: dict(schedule=schedule(), steps=2, checked="after")),
    "torch_csv.from_rows": Call(torch_csv.from_rows, lambda: dict(rows=[["0F0", "0B0"]], name="mine")),
}
REASONS = {
    "SCHEDULES": "data",
    "Action": "one line of a schedule, which verify judges",
    "Overlap": "one line of a schedule, which verify judges",
    "Analysis": "what analyze gives",
    "ScheduleError": "an error",
}
