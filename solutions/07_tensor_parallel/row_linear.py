"""A product by rows, whose bias is added once."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from tinydist.lab.author import Bytes, Case, Values, exercise, mistake

from .chapter import BY_HAND, gradients, leaf, noted, numbers, part_of_a_graph

SUM = "Sum.apply(F.linear(x, weight))"
ADDED = "dist.all_reduce(summed)"


def case(ranks, tokens, inputs, outputs, dtype=torch.float32):
    kind = "" if dtype == torch.float32 else ", float64"
    return Case(ranks, lambda rank: (tokens, inputs, outputs, dtype), f"[{tokens}, {inputs}] to {outputs}{kind}")


def test_cases():
    yield case(2, 3, 4, 5)
    yield case(3, 1, 6, 2)
    yield case(2, 4, 6, 1)
    yield case(4, 5, 8, 3, torch.float64)
    yield case(1, 2, 3, 4)


def train(answer, tokens, inputs, outputs, dtype):
    """Two steps of SGD: copies of the bias must get the same gradient, or else they drift apart."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    weight = leaf(numbers(outputs, inputs, seed=1, dtype=dtype).chunk(ranks, 1)[rank])
    bias = leaf(numbers(outputs, seed=2, dtype=dtype))
    found = {}
    for step in range(2):
        x = leaf(numbers(tokens, inputs, seed=10 + step, dtype=dtype).chunk(ranks, 1)[rank])
        weight.grad = bias.grad = None
        y = part_of_a_graph(answer(x, weight, bias), [tokens, outputs], "it")
        found[f"y of step {step}"] = noted(y)
        y.pow(2).sum().backward()
        of_all = gradients({"x": x, "weight": weight, "bias": bias})
        found |= {f"{name} in step {step}": gradient for name, gradient in of_all.items()}
        with torch.no_grad():
            weight -= 0.01 * weight.grad
            bias -= 0.01 * bias.grad
    return found


@exercise(
    title="By rows, with one bias",
    minutes=20,
    difficulty=3,
    test_cases=test_cases,
    program=train,
    targets=[
        *BY_HAND,
        Values("y and the gradients of x, weight and bias, two steps; 1, 2, 3 and 4 ranks", scratch=True),
        Bytes("one all-reduce of y forward, and nothing backward"),
    ],
    mistakes=[
        mistake(
            "y has the bias once for each rank: it was added to every summand",
            f"{SUM} + bias",
            "Sum.apply(F.linear(x, weight, bias))",
        ),
        mistake(
            "y is right, but the gradient of the bias is divided by the number of ranks: a share of the bias was added "
            "to each summand. Add all of it, after the sum",
            f"{SUM} + bias",
            "Sum.apply(F.linear(x, weight, bias / dist.get_world_size()))",
        ),
        mistake(
            "y is right, but only rank 0 has a gradient of the bias: it was added to one rank's summand. The copies of "
            "the bias will drift apart",
            f"{SUM} + bias",
            "Sum.apply(F.linear(x, weight, bias * (dist.get_rank() == 0)))",
        ),
        mistake("The bias is missing, or its gradient", f"{SUM} + bias", f"{SUM} + 0 * bias"),
        mistake(
            "The sum over the ranks was divided by their number",
            ADDED,
            f"{ADDED}\n            summed /= dist.get_world_size()",
        ),
        mistake(
            "The backward of the sum must not add up: all ranks have the same loss, and the gradient of y is on each "
            "of them already",
            "return of_sum",
            "of_sum = of_sum.clone()\n            dist.all_reduce(of_sum)\n            return of_sum",
        ),
        mistake(
            "The backward of the sum leaves the gradient as it is, and does not divide it by the number of ranks",
            "return of_sum",
            "return of_sum / dist.get_world_size()",
        ),
    ],
    hints=[
        "y = x W^T + b is a sum over the columns of W, plus b. Which of the two is divided among the ranks?",
        "Whatever is added before the sum is added t times. Whatever is added after it is added once, on each rank's "
        "copy of y.",
        "A rank's x and weight have some of the columns: F.linear(x, weight) is a summand of y. A Function with an "
        "all-reduce in forward, and nothing in backward, makes the sum.",
    ],
    why="RowParallelLinear in Megatron-LM adds its bias after the all-reduce, too. The bias is a copy on every rank, "
    "and so its gradient must be the same on all of them, without sending anything: it is, since the gradient of y is.",
)
def row_linear(x, weight, bias):
    """Return y = x W^T + b, all of it on every rank, where a rank has some columns of x and the same columns of W.

    ``x`` [N, K/t] and ``weight`` [M, K/t] are this rank's parts; ``bias`` [M] is on all ranks. All ranks compute the
    same loss of y. x, weight and bias get the gradients that they have in the whole product.
    """

    # -
    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, summand):
            summed = summand.clone()
            dist.all_reduce(summed)
            return summed

        @staticmethod
        def backward(ctx, of_sum):
            return of_sum

    # .
    # ? What is a summand of y, and what is not?
    return Sum.apply(F.linear(x, weight)) + bias
