"""All-gather along the columns, with its partner in backward: a reduce-scatter, or nothing where the loss is shared."""

import torch
import torch.distributed as dist

from tinydist.lab.author import Bytes, Case, Own, Values, Waits, exercise, mistake

from .chapter import DIFFERENTIABLE, leaf, noted, numbers, result_of

OF_MINE = "            return parts[rank]\n"
REDUCED = """\
            mine = torch.empty_like(parts[rank])
            dist.reduce_scatter(mine, parts)
            return mine
"""


def case(ranks, shared, rows, columns, dtype=torch.float32):
    about = f"{rows} x {columns} numbers each, shared={shared}" + ", float64" * (dtype == torch.float64)
    return Case(ranks, lambda rank: (rows, columns, shared, dtype), about)


def test_cases():
    for sizes in [(2, 2, 3), (3, 4, 1), (4, 3, 2, torch.float64), (8, 2, 2), (1, 2, 3)]:
        for shared in (False, True):
            yield case(sizes[0], shared, *sizes[1:])


def train(answer, rows, columns, shared, dtype):
    rank, p = dist.get_rank(), dist.get_world_size()
    x = leaf(numbers(rank, (rows, columns), dtype))
    joined = result_of(answer, x, shared, [rows, p * columns])
    weight = numbers(100 if shared else 100 + rank, (rows, p * columns), dtype)
    torch.tanh(joined * weight).sum().backward()
    return {"what comes out": noted(joined), "the gradient of x": noted(x.grad)}


@exercise(
    title="The partner of an all-gather",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    program=train,
    targets=[
        Own(*DIFFERENTIABLE),
        Waits("each call is waited for"),
        Values("the columns of all ranks, and the gradient of each rank's own, on 1, 2, 3, 4 and 8 ranks"),
        Bytes(
            "forward those of an all-gather; backward those of a reduce-scatter, and none if the loss is shared: an "
            "all-reduce has twice as many"
        ),
    ],
    mistakes=[
        mistake(
            "Each rank's loss has used your columns. What you return is this rank's gradient for them alone: add up "
            "those of all ranks",
            "            if shared:\n" + "    " + OF_MINE,
            "            if True:\n" + "    " + OF_MINE,
        ),
        mistake(
            "shared=True is one loss of which each rank has a copy: added up, it counts p times. Your own columns of "
            "the gradient are all that you need",
            "            if shared:\n" + "    " + OF_MINE,
            "            if False:\n" + "    " + OF_MINE,
        ),
        mistake(
            "An all-reduce adds up the columns of all ranks on every rank, and you keep one part of it: a "
            "reduce-scatter sends half as much",
            REDUCED,
            "            gradient = gradient.contiguous().clone()\n            dist.all_reduce(gradient)\n"
            "            return gradient.chunk(p, dim=1)[rank]\n",
        ),
        mistake(
            "These are the rows of all ranks, one below another: the columns are asked for, side by side",
            "torch.cat(parts, dim=1)",
            "torch.cat(parts, dim=0).view(len(x), -1)",
        ),
        mistake(
            "The columns of the ranks take turns here. Side by side are all columns of rank 0 first, then all of rank "
            "1, and so on",
            "torch.cat(parts, dim=1)",
            "torch.stack(parts, -1).flatten(1)",
            "gradient.chunk(p, dim=1)]",
            "[gradient[:, each::p] for each in range(p)]]",
        ),
        mistake(
            "The mean of all losses has this gradient, and the sum is asked for",
            "            return mine\n",
            "            return mine / p\n",
        ),
    ],
    hints=[
        "Forward, each of your numbers is copied to all ranks. In backward each copy has a gradient. What becomes of "
        "these?",
        "They are added up, and each rank needs the sum of its own columns: a reduce-scatter of the gradient, cut "
        "along the columns. The collectives want contiguous tensors.",
        "If all ranks compute the same loss, each has the whole gradient already. Which columns of it are yours?",
    ],
    why="Both versions are in Megatron-LM: gather_from_tensor_model_parallel_region only cuts its gradient, and "
    "all_gather_last_dim_from_tensor_parallel_region reduce-scatters it. Which of them is right depends on what "
    "follows: one loss that all ranks compute alike, or a part of the work on each rank.",
)
def gather_columns(x, shared):
    """Return the columns of all ranks side by side, in the order of the ranks: [rows, p * columns] of [rows, columns].

    In backward the gradient of ``x`` is that of the sum of all ranks' losses; or, if ``shared``, that of the one loss
    that all ranks compute alike. Send no more than is needed.
    """
    rank, p = dist.get_rank(), dist.get_world_size()

    class Columns(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            # ? The columns of all ranks
            parts = [torch.empty_like(x) for _ in range(p)]
            dist.all_gather(parts, x.contiguous())
            return torch.cat(parts, dim=1)

        @staticmethod
        def backward(ctx, gradient):
            # ? The gradient of this rank's columns
            parts = [part.contiguous() for part in gradient.chunk(p, dim=1)]
            if shared:
                return parts[rank]
            mine = torch.empty_like(parts[rank])
            dist.reduce_scatter(mine, parts)
            return mine

    return Columns.apply(x)
