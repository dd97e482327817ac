"""The mean over all samples, of ranks that have different numbers of them."""

import torch
import torch.distributed as dist

from tinydist.lab.author import Case, Collectives, Own, Values, Waits, also, exercise, mistake
from tinydist.lab.differences import times, unchanged, weighed

from .chapter import SOLVED

SHAPES = {"weight.grad": (3, 2), "bias.grad": (3,), "scale.grad": ()}
SAMPLES = [(4, 1), (2, 2), (2, 0, 1), (0, 0, 4), (1, 2, 3, 4), (5, 0, 1, 2, 0, 3, 1, 7), (3,)]  # by rank


def case(samples, dtype=torch.float32, about="", **more):
    def arguments(rank):
        generator = torch.Generator().manual_seed(rank)
        parameters = [torch.nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in SHAPES.values()]
        if samples[rank]:  # else there was no backward
            for each in parameters:
                each.grad = torch.randn(each.shape, generator=generator, dtype=dtype)
        return parameters, samples[rank]

    return Case(len(samples), arguments, f"of {', '.join(map(str, samples))} samples{about}", **more)


def test_cases():
    yield from map(case, SAMPLES)
    yield case((3, 1), torch.float64, ", gradients in float64")
    yield case((3, 2, 1), about=", and the numbers that rank 1 sends changed on the way", changed=1)


def gradients(answer, parameters, samples):
    answer(parameters, samples)
    return {name: each.grad for name, each in zip(SHAPES, parameters)}


def by_rank(trial, got, want, own, pick):
    own = [
        next(each.grad if samples else torch.zeros_like(each) for each in parameters if each.shape == got[0].shape)
        for parameters, samples in map(trial.case.arguments, range(trial.case.ranks))
    ]
    looks = (look(trial, got, want, own, pick) for look in (times, unchanged, weighed))
    return next(filter(None, looks), None)


UNWEIGHTED = "Each rank's mean counts the same here, whether of few samples or many: weight each rank by its samples"
MINE, COUNT = "parameter.grad.flatten() * samples", " / flat[-1]"
LAST = "    parts.append(torch.tensor([float(samples)]))  # the one number more: it is added up, too\n"


@exercise(
    title="Average gradients of unequal batches",
    minutes=15,
    difficulty=2,
    test_cases=test_cases,
    program=gradients,
    targets=[
        Own("neither tinydist.data_parallel nor torch's DDP", "use the collectives of torch.distributed", SOLVED),
        Waits("whatever is started is waited for"),
        Values(
            "the gradient of the mean over all ranks' samples, on every rank; 1, 2, 3, 4 and 8 ranks, 0 to 7 samples "
            "each",
            scratch=True,
            explain=[by_rank],
        ),
        Collectives(
            "one all-reduce of all gradients and one number: S + 4 bytes in float32",
            "one for each parameter pays as many latencies. Put all gradients in a row, and the number of samples at "
            "their end",
            "It carries all gradients, in their dtype, and one number, the samples",
            name="calls",
        ),
    ],
    mistakes=[
        mistake(UNWEIGHTED, MINE, "parameter.grad.flatten()", COUNT, " / dist.get_world_size()"),
        mistake("This is the sum over all samples: divide it by their number", COUNT, ""),
        mistake(
            "This is the sum over all samples, divided by the number of ranks: divide by that of samples",
            COUNT,
            " / dist.get_world_size()",
        ),
        mistake(
            "This is the sum over all samples, but each rank divides by the number of its own: divide by that of all",
            COUNT,
            " / max(1, samples)",
        ),
        mistake(
            "This is the sum of the ranks' means, divided by the number of all samples: multiply each mean by its "
            "rank's samples first",
            MINE,
            "parameter.grad.flatten()",
        ),
        mistake(
            "Rank 0 alone has the mean; but all ranks take the step, and all need it",
            "dist.all_reduce(flat)",
            "dist.reduce(flat, 0)",
        ),
        mistake(
            "A rank without samples must take part, too: the others wait for its all-reduce",
            "    parts = []\n",
            "    parts = []\n    if not samples:\n        return\n",
        ),
        mistake(
            "The mean is added to the gradient that was there, and should take its place",
            "parameter.grad.copy_((mine / flat[-1]).view_as(parameter))",
            "parameter.grad.add_((mine / flat[-1]).view_as(parameter))",
        ),
    ],
    alternatives=[  # the number of samples before the gradients
        also(
            "parts = []",
            "parts = [torch.tensor([float(samples)])]",
            LAST,
            "",
            "    dist.all_reduce(flat)\n",
            "    dist.all_reduce(flat)\n    count, flat = flat.tensor_split([1])\n",
            COUNT,
            " / count",
        )
    ],
    hints=[
        "A mean of means is the mean only if all ranks have as many samples. What is the same for all samples: the "
        "sum over them. How do you get from a rank's mean to its sum?",
        "Multiply by samples, add up over the ranks, divide by the number of all samples. That number is a sum over "
        "the ranks, too, and may travel along.",
        "torch.cat flattened gradients and one more number, samples; all_reduce it; the last number of the result is "
        "the one to divide by.",
        "A rank without samples has grad None. It must take part nevertheless: give it torch.zeros_like(parameter) "
        "first. Afterwards flat[:-1].split([p.numel() for p in parameters]) are the parts to copy back.",
    ],
    why="The last batch of an epoch, sequences of different lengths, masked tokens: samples are seldom spread evenly, "
    "and a mean of means is then silently another loss. Torchtune trained with one until October 2024 (its change "
    "1875).",
)
def average_gradients(parameters, samples):
    """Leave on every rank, in ``parameter.grad``, the gradient of the mean loss over the samples of all ranks.

    Backward has run on the mean over this rank's ``samples``. A rank may have none: its gradients are None. One
    all-reduce carries everything. Parameters are in fp32, in one world in fp64: gradients keep their dtype.
    """
    parts = []
    for parameter in parameters:
        # ? What does this rank put in, so that the sum over the ranks is one over samples? And if it has none?
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        parts.append(parameter.grad.flatten() * samples)
    parts.append(torch.tensor([float(samples)]))  # the one number more: it is added up, too
    flat = torch.cat(parts)
    dist.all_reduce(flat)
    for parameter in parameters:
        # ? Which numbers of flat are this one's, and by what are they divided?
        mine, flat = flat.tensor_split([parameter.numel()])
        parameter.grad.copy_((mine / flat[-1]).view_as(parameter))
