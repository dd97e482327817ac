"""The operators at the two ends of a tensor parallel layer, for a group, with an all-reduce behind compute."""

import torch
import torch.distributed as dist

from tinydist.hardware.cluster import A100_NODE
from tinydist.lab.author import Bytes, Case, Seconds, Values, Wrong, exercise, mistake

from .chapter import BY_HAND, gradients, leaf, noted, numbers, own_group, part_of_a_graph

LAYERS = 2
SMALL, LARGE = (3, 4, 12), (64, 128, 256)  # tokens, width, hidden channels
CLUSTER = A100_NODE.at(matmul=0.002)  # where a product of this size takes as long as its all-reduce
SUM_OF_SUMMANDS = "sum(gradient @ weight for gradient, weight in zip(gradients, weights, strict=True))"
STARTED = "            work = dist.all_reduce(of_x, group=group, async_op=True)\n"
OF_WEIGHTS = "            of_weights = [gradient.T @ x for gradient in gradients]\n"
WAITED = "            work.wait()\n"
FORWARD_OF_G = "dist.all_reduce(summed, group=group)"
ONE_EACH = """\
            of_x = 0
            for gradient, weight in zip(gradients, weights, strict=True):
                summand = gradient @ weight
                dist.all_reduce(summand, group=group)
                of_x = of_x + summand
"""


def case(ranks, size, dtype=torch.float32, sizes=SMALL, measured=False):
    groups = f"{ranks // size} group{'s' * (size < ranks)} of {size}"
    kind = ", float64" if dtype == torch.float64 else ""
    about = f"{groups}{kind}, {sizes[0]} tokens of width {sizes[1]}"
    return Case(ranks, lambda rank: (size, dtype, sizes), about, measured)


def test_cases():
    yield case(2, 2)
    yield case(4, 2)
    yield case(3, 3)
    yield case(4, 4, torch.float64)
    yield case(1, 1)
    yield case(4, 4, torch.float64, LARGE, measured=True)


def train(answer, size, dtype, sizes):
    """MLPs with a gate and a residual around them, and before each a scale that all ranks have, as a norm's weight."""
    tokens, width, hidden = sizes
    group, number, place = own_group(size)
    f, g = pair(answer(group))
    x = leaf(numbers(tokens, width, seed=100 + number, dtype=dtype))
    leaves, found, y = {"x": x}, {}, x
    for layer in range(LAYERS):
        scale = leaf(1 + numbers(width, seed=layer, dtype=dtype) / 10)
        gate, up = (part_of(hidden, width, seed + layer, size, place, dtype) for seed in (10, 30))
        down = leaf(numbers(hidden, width, seed=20 + layer, dtype=dtype).chunk(size, 0)[place] / hidden**0.5)
        mine = dict(scale=scale, gate=gate, up=up, down=down)
        leaves |= {f"layer {layer}'s {name}": each for name, each in mine.items()}
        products = several(f(y * scale, gate, up), [tokens, hidden // size])
        found |= {f"product {number} of layer {layer}": noted(each) for number, each in enumerate(products)}
        inner = torch.tanh(products[0]) * products[1]
        left = part_of_a_graph(g(inner @ down), [tokens, width], "g")
        found[f"what leaves layer {layer}"] = noted(left)
        y = y + left
    y.pow(2).sum().backward()
    return found | gradients(leaves)


def part_of(hidden, width, seed, size, place, dtype):
    """This rank's rows of a weight as nn.Linear stores it."""
    return leaf(numbers(hidden, width, seed=seed, dtype=dtype).chunk(size, 0)[place] / width**0.5)


def pair(returned):
    if not isinstance(returned, tuple | list) or len(returned) != 2 or not all(map(callable, returned)):
        raise Wrong(f"on rank {dist.get_rank()} it returned {returned!r}, where it should return the functions f, g")
    return returned


def several(products, shape):
    if not isinstance(products, tuple | list) or len(products) != 2:
        came = f"{len(products)} of them" if isinstance(products, tuple | list) else type(products).__name__
        raise Wrong(f"on rank {dist.get_rank()} f(x, gate, up) returned {came}, where a tuple of 2 products is right")
    return [part_of_a_graph(each, shape, "f") for each in products]


@exercise(
    title="f and g, behind compute",
    minutes=30,
    difficulty=3,
    test_cases=test_cases,
    program=train,
    targets=[
        *BY_HAND,
        Values(f"{LAYERS} layers: products, what leaves, all gradients; groups of 1, 2, 3, 4", scratch=True),
        Bytes("an all-reduce of y's size forward and one backward for each layer, inside of the group"),
        Seconds(
            "backward's all-reduce runs while the gradients of the weights are computed",
            "Start it with async_op=True as soon as the gradient of x is there, and wait for it last",
            room=1.02,
            clusters=lambda case: [CLUSTER],
        ),
    ],
    mistakes=[
        mistake("What leaves is this rank's summand: g adds up over the group", f"            {FORWARD_OF_G}\n", ""),
        mistake(
            "x is on all ranks already: f leaves it as it is, and adds up in backward alone",
            "            ctx.save_for_backward(x, *weights)\n",
            "            x = x.clone()\n            dist.all_reduce(x, group=group)\n"
            "            ctx.save_for_backward(x, *weights)\n",
        ),
        mistake(
            "You add up over all ranks. Other groups have other tokens: pass group=group to the collective",
            "group=group",
            "group=None",
        ),
        mistake(
            "f does not add up in backward. What flows back into x on one rank has come through that rank's parts "
            "alone, and is a summand: add up over the group",
            STARTED + OF_WEIGHTS + WAITED,
            OF_WEIGHTS,
        ),
        mistake(
            "The backward of g must not add up: all ranks of the group have computed the same loss, and have the same "
            "gradient. (An all-reduce is its own conjugate if the losses of all ranks are added up)",
            "return of_sum",
            "of_sum = of_sum.clone()\n            dist.all_reduce(of_sum, group=group)\n            return of_sum",
        ),
        mistake(
            "Each weight has an all-reduce of its own in backward. All of them read the same x: add their summands up "
            "on the rank first, and send one",
            f"            of_x = {SUM_OF_SUMMANDS}\n{STARTED}{OF_WEIGHTS}{WAITED}",
            ONE_EACH + OF_WEIGHTS,
        ),
        mistake(
            "Nothing is computed while the all-reduce runs, and the gradients of the weights do not need its result",
            STARTED + OF_WEIGHTS + WAITED,
            STARTED + WAITED + OF_WEIGHTS,
        ),
    ],
    hints=[
        "Where x enters, all ranks have it. Where y leaves, each has a summand. In backward the roles change: where y "
        "leaves, all have the same gradient, and where x enters each rank has what came back through its own parts.",
        "A Function may have several outputs: backward then gets a gradient for each. The gradient of x is the sum "
        "over all weights of gradient @ weight, and that of a weight is gradient.T @ x.",
        "Only the gradient of x has to be summed over the ranks. dist.all_reduce(..., async_op=True) returns a work at "
        "once; compute what does not need its result, then work.wait().",
    ],
    why="Two pairs of these make a block. Megatron-LM's linear layer does the same in one Function: it starts the "
    "all-reduce of the input's gradient, computes the weight's, and then waits.",
)
def f_and_g(group):
    """Return the functions (f, g) at the two ends of an MLP with a gate, g((tanh(x A) · x B) C), whose weights are cut
    over the ranks of ``group``.

    ``f(x, *weights)`` enters x [N, D], which all ranks of the group have, into any number of products, and returns a
    tuple of them: x @ weight.T for each ``weight`` [F/t, D], this rank's rows. ``g(summand)`` returns y [N, D], the sum
    over the group. All ranks of the group compute the same loss of y, and each parameter and x get the gradients that
    they have in the whole layer. x is used elsewhere, too, and belongs to a graph. Other groups work on other tokens.

    Backward has one all-reduce for all the products of an f, and it runs while the gradients of the weights are
    computed.
    """

    class Entering(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, *weights):
            ctx.save_for_backward(x, *weights)
            return tuple(x @ weight.T for weight in weights)

        @staticmethod
        def backward(ctx, *gradients):
            # ? What has to be summed over the group, and what can be computed in the meantime?
            x, *weights = ctx.saved_tensors
            of_x = sum(gradient @ weight for gradient, weight in zip(gradients, weights, strict=True))
            work = dist.all_reduce(of_x, group=group, async_op=True)
            of_weights = [gradient.T @ x for gradient in gradients]
            work.wait()
            return of_x, *of_weights

    class Leaving(torch.autograd.Function):
        @staticmethod
        def forward(ctx, summand):
            # ? This rank has a summand of y.
            summed = summand.clone()
            dist.all_reduce(summed, group=group)
            return summed

        @staticmethod
        def backward(ctx, of_sum):
            # ? All ranks have the gradient of the one loss.
            return of_sum

    return Entering.apply, Leaving.apply
