"""A training step with two axes, and three bugs in it with which it trains on."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from tinydist.lab.author import Bytes, Case, Varied, Waits, Wrong, also, exercise, mistake
from tinydist.tensor_parallel import Replicated

from .chapter import numbers

WIDTH, HIDDEN = 4, 12
PARTS = 'parts, mine = replicas, mesh["dp"].get_local_rank()'
LOSS = "    loss = (layer(x) - targets).square().mean()\n"
MEAN = "        parameter.grad /= replicas\n"
NORM = '    dist.all_reduce(square, group=mesh["tp"].get_group())\n'
BEFORE = (
    LOSS
    + """\
    loss.backward()
    square = sum(parameter.grad.square().sum() for parameter in parameters)
    dist.all_reduce(square, group=mesh["tp"].get_group())
    for parameter in parameters:
        parameter.grad *= (max_norm / square.sqrt()).clamp(max=1.0)
"""
)
TOLD = '    dist.all_reduce(told, group=mesh["dp"].get_group())\n'


def case(dp, tp, max_norm, rows, dtype=torch.float32):
    clipping = "no clipping" if max_norm > 1e3 else f"max_norm={max_norm}"
    about = f"dp {dp} x tp {tp}, {rows} rows for each replica, {clipping}" + ", float64" * (dtype == torch.float64)
    return Case(dp * tp, lambda rank: (dp, tp, max_norm, rows, dtype), about)


def test_cases():
    yield case(3, 2, 1e9, 2)
    yield case(3, 1, 1e9, 2)
    yield case(1, 3, 1e9, 1)
    yield case(2, 2, 0.3, 3)
    yield case(3, 2, 0.3, 1, torch.float64)
    yield case(2, 1, 0.3, 2)
    yield case(1, 1, 0.3, 2)


def train(answer, dp, tp, max_norm, rows, dtype):
    mesh = init_device_mesh("cpu", (dp, tp), mesh_dim_names=("dp", "tp"))
    part = mesh["tp"].get_local_rank()
    up = numbers(WIDTH, HIDDEN, seed=2, dtype=dtype).chunk(tp, 1)[part].clone().requires_grad_()
    down = (numbers(HIDDEN, WIDTH, seed=3, dtype=dtype) / 2).chunk(tp, 0)[part].clone().requires_grad_()
    x, targets = (numbers(dp * rows, WIDTH, seed=seed, dtype=dtype) for seed in (10, 20))
    group = mesh["tp"].get_group()

    whole = Replicated(group)

    def layer(x):
        return whole.leave(torch.tanh(whole.enter(x) @ up) @ down)

    found = answer(layer, [up, down], x, targets, mesh, max_norm)
    if not isinstance(found, tuple) or len(found) != 2:
        raise Wrong(f"on rank {dist.get_rank()} it returned {found!r}, where the loss and the norm are right")
    return {"the loss": found[0], "the norm": found[1], "up's gradient": up.grad, "down's gradient": down.grad}


@exercise(
    title="Find three bugs",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    program=train,
    targets=[
        Waits("whatever is started is waited for"),
        Varied(
            "loss, norm and clipped gradients of one process with the whole batch; 1 to 6 ranks",
            scratch=True,
            variants=[
                (
                    "The gradients are clipped before they are averaged: each replica then has another factor. "
                    "Average, "
                    "take the norm, clip",
                    LOSS + "    loss.backward()\n",
                    BEFORE,
                    MEAN,
                    MEAN.replace("replicas", "1 * replicas"),
                ),
                ("The gradients are as before: multiply them by the factor", "parameter.grad *= factor", "pass"),
                (
                    "The norm is the one after clipping: the one before it is asked for",
                    "return told / replicas, norm",
                    "return told / replicas, norm * factor",
                ),
                (
                    "The gradients are added up over all ranks, and those of a tensor group belong to other parts: "
                    "along "
                    "dp alone",
                    'parameter.grad, group=mesh["dp"].get_group()',
                    "parameter.grad",
                ),
                (
                    "The gradients are divided by all ranks: the mean is over the dp replicas",
                    MEAN,
                    MEAN.replace("replicas", "dist.get_world_size()"),
                ),
                (
                    "The gradients are added up along tp, where ranks have other parts: along dp are the replicas",
                    'parameter.grad, group=mesh["dp"]',
                    'parameter.grad, group=mesh["tp"]',
                ),
                (
                    "The gradients are those of this replica's rows: add them up along dp",
                    '        dist.all_reduce(parameter.grad, group=mesh["dp"].get_group())\n',
                    "",
                ),
                (
                    "The gradients are those of this replica's rows: add them up along dp, then divide",
                    '        dist.all_reduce(parameter.grad, group=mesh["dp"].get_group())\n' + MEAN,
                    "        pass\n",
                ),
                (
                    "The loss is the sum over the replicas: the mean is asked for",
                    "return told / replicas, norm",
                    "return told, norm",
                ),
                (
                    "The loss is divided by all ranks: the mean is over the dp replicas",
                    "return told / replicas, norm",
                    "return told / dist.get_world_size(), norm",
                ),
                (
                    "Rows are dealt out by the place along tp: ranks that share a layer work on the same rows",
                    PARTS,
                    'parts, mine = replicas, mesh["tp"].get_local_rank() % replicas',
                ),
                (
                    "All replicas train on the same rows: each place along dp has its own",
                    PARTS,
                    "parts, mine = replicas, 0",
                ),
                ("This is the square of the norm: its root is missing", "norm = square.sqrt()", "norm = square"),
                (
                    "The sum of squares is divided by tp: ranks of a tensor group have different parts, whose squares "
                    "add up to those of the whole",
                    "norm = square.sqrt()",
                    'norm = (square / mesh["tp"].size()).sqrt()',
                ),
                (
                    "The sum of squares is divided by dp, and was added up along tp alone: there each part is once",
                    "norm = square.sqrt()",
                    "norm = (square / replicas).sqrt()",
                ),
                ("The loss is a sum over numbers: the mean is asked for", ").square().mean()", ").square().sum()"),
                ("Gradients that are short enough stay as they are: the factor is 1 at most", ".clamp(max=1.0)", ""),
                (
                    "Each gradient is clipped by its own norm: one factor is for all",
                    "parameter.grad *= factor",
                    "parameter.grad *= (max_norm / parameter.grad.norm()).clamp(max=1.0)",
                ),
                (
                    "The loss is that along tp, where all ranks have computed the same: the replicas are along dp",
                    TOLD,
                    TOLD.replace('"dp"', '"tp"'),
                ),
            ],
        ),
        Bytes(
            "the layer's two all-reduces along tp, one for each gradient along dp, and one number along each axis",
            room=1.2,  # two numbers may go over the world
        ),
    ],
    mistakes=[
        mistake(
            "Ranks that share a layer work on the same rows. These are dealt out to all ranks, so a tensor group adds "
            "up summands of different rows: rows belong to a replica, a place along dp",
            PARTS,
            "parts, mine = dist.get_world_size(), dist.get_rank()",
            given=True,
        ),
        mistake(
            "The mean over replicas is taken twice, so it is dp times too small: divide once, in the loss or later",
            LOSS,
            LOSS.replace(".mean()", ".mean() / replicas"),
            given=True,
        ),
        mistake(
            "The norm is summed over replicas, which have the same gradients. The parts of the matrices are along tp",
            NORM,
            NORM.replace('"tp"', '"dp"'),
            given=True,
        ),
        mistake(
            "The gradients are dp times too large: those of the replicas are added up, and the mean is asked for",
            MEAN,
            "",
        ),
        mistake(
            "The norm is that of this rank's parts. The others of its tensor group have parts, too",
            NORM,
            "",
        ),
        mistake(
            "The norm is sqrt(dp) times too large, as if squares were added up over replicas, too: they have the same "
            "gradients, and one replica counts",
            NORM,
            "    dist.all_reduce(square)\n",
        ),
        mistake(
            "The loss is that of this replica. The mean over all replicas is asked for",
            "    return told / replicas, norm",
            "    return loss.detach(), norm",
        ),
        mistake(
            "The loss is tp times too large, as if it were added up over a tensor group: all its ranks have computed "
            "the same",
            TOLD,
            "    dist.all_reduce(told)\n",
        ),
    ],
    alternatives=[
        also(
            LOSS + "    loss.backward()\n",
            LOSS + "    (loss / replicas).backward()\n",
            MEAN,
            "",
        ),
        also(NORM, '    dist.all_reduce(square)\n    square /= mesh["dp"].size()\n'),
        also(TOLD + "    return told / replicas", "    dist.all_reduce(told)\n    return told / dist.get_world_size()"),
    ],
    hints=[
        "Run it in your head on dp 2 x tp 2. Which rows does each of the four ranks get? Which of them share a layer?",
        "Follow one gradient: by what is it divided, and how often? Then follow the square of the norm: whose squares "
        "are added up, and are they different ones?",
        "Rows are dealt out along dp. The mean over replicas is taken once, in the loss or in the gradients. Squares "
        "are added up along the axis along which ranks have different parameters.",
    ],
    why="All three train on: the loss goes down with each of them. They are found by holding one step against one "
    "process, as this check does, before a run begins.",
)
def mended_two_axes(layer, parameters, x, targets, mesh, max_norm):
    """One step's gradients of a layer that tp ranks share, on dp replicas; clipped. Three bugs.

    ``mesh`` has the axes dp and tp. ``x`` and ``targets`` [B, D] are the whole batch, the same on all ranks, and dp
    divides B. ``layer`` is right: all ranks along tp call it with the same rows, and get all of the output.
    ``parameters`` are this rank's parts, all of them cut along tp. The loss is the mean over the batch. Returns the
    loss of the whole batch and the norm of all gradients before clipping, as tensors, the same on all ranks.
    """
    replicas = mesh["dp"].size()
    parts, mine = replicas, mesh["dp"].get_local_rank()
    x, targets = x.chunk(parts)[mine], targets.chunk(parts)[mine]

    loss = (layer(x) - targets).square().mean()
    loss.backward()
    for parameter in parameters:
        dist.all_reduce(parameter.grad, group=mesh["dp"].get_group())
        parameter.grad /= replicas

    square = sum(parameter.grad.square().sum() for parameter in parameters)
    dist.all_reduce(square, group=mesh["tp"].get_group())
    norm = square.sqrt()
    factor = (max_norm / norm).clamp(max=1.0)
    for parameter in parameters:
        parameter.grad *= factor

    told = loss.detach().clone()
    dist.all_reduce(told, group=mesh["dp"].get_group())
    return told / replicas, norm
