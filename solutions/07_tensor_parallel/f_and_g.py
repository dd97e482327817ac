"""The operators at the two ends of a tensor parallel layer."""

import torch
import torch.distributed as dist

from tinydist.lab.author import Bytes, Case, Values, Wrong, exercise, mistake

from .chapter import BY_HAND, gradients, leaf, noted, numbers, own_group, part_of_a_graph

TOKENS, WIDTH, HIDDEN, LAYERS = 3, 4, 12, 2
BACKWARD_OF_F = """\
            of_x = of_x.clone()
            dist.all_reduce(of_x, group=group)
            return of_x"""
FORWARD_OF_G = "dist.all_reduce(summed, group=group)"


def case(ranks, size, dtype=torch.float32):
    about = f"{ranks // size} group{'s' * (size < ranks)} of {size}" + (", float64" if dtype == torch.float64 else "")
    return Case(ranks, lambda rank: (size, dtype), about)


def test_cases():
    yield case(2, 2)
    yield case(4, 2)
    yield case(3, 3)
    yield case(4, 4, torch.float64)
    yield case(1, 1)


def train(answer, size, dtype):
    """Layers with a residual around them, and before each a scale that all ranks have, as a norm's weight is."""
    group, number, place = own_group(size)
    f, g = pair(answer(group))
    x = leaf(numbers(TOKENS, WIDTH, seed=100 + number, dtype=dtype))
    leaves, found, y = {"x": x}, {}, x
    for layer in range(LAYERS):
        scale = leaf(1 + numbers(WIDTH, seed=layer, dtype=dtype) / 10)
        up = leaf(numbers(WIDTH, HIDDEN, seed=10 + layer, dtype=dtype).chunk(size, 1)[place] / 2)
        down = leaf(numbers(HIDDEN, WIDTH, seed=20 + layer, dtype=dtype).chunk(size, 0)[place] / 4)
        leaves |= {f"layer {layer}'s {name}": each for name, each in dict(scale=scale, up=up, down=down).items()}
        entered = part_of_a_graph(f(y * scale), [TOKENS, WIDTH], "f")
        found[f"what enters layer {layer}"] = noted(entered)
        left = part_of_a_graph(g(torch.tanh(entered @ up) @ down), [TOKENS, WIDTH], "g")
        found[f"what leaves layer {layer}"] = noted(left)
        y = y + left
    y.pow(2).sum().backward()
    return found | gradients(leaves)


def pair(returned):
    if not isinstance(returned, tuple | list) or len(returned) != 2 or not all(map(callable, returned)):
        raise Wrong(f"on rank {dist.get_rank()} it returned {returned!r}, where it should return the functions f, g")
    return returned


@exercise(
    title="f and g",
    minutes=20,
    difficulty=2,
    test_cases=test_cases,
    program=train,
    targets=[
        *BY_HAND,
        Values(f"{LAYERS} layers: what enters, what leaves, all gradients; groups of 1, 2, 3, 4", scratch=True),
        Bytes("an all-reduce forward and one backward for each layer, inside of the group"),
    ],
    mistakes=[
        mistake(
            "What leaves is this rank's summand: g adds up over the group",
            f"            {FORWARD_OF_G}\n",
            "",
        ),
        mistake(
            "f and g have changed places: f is nothing forward, g is nothing backward",
            "return Entering.apply, Leaving.apply",
            "return Leaving.apply, Entering.apply",
        ),
        mistake(
            "x is on all ranks already: f leaves it as it is, and adds up in backward alone",
            "return x.view_as(x)",
            "x = x.clone()\n            dist.all_reduce(x, group=group)\n            return x",
        ),
        mistake(
            "You add up over all ranks. Other groups have other tokens: pass group=group to the collective",
            "group=group",
            "group=None",
        ),
        mistake(
            "In backward f adds up over all ranks. Other groups have other tokens: pass group=group there, too",
            BACKWARD_OF_F,
            BACKWARD_OF_F.replace("group=group", "group=None"),
        ),
        mistake(
            "f has no backward of its own here. What flows back into x on one rank has come through that rank's part "
            "alone, and is a summand: add up over the group",
            BACKWARD_OF_F,
            "            return of_x",
        ),
        mistake(
            "The backward of g must not add up: all ranks of the group have computed the same loss, and have the same "
            "gradient. (An all-reduce is its own conjugate if the losses of all ranks are added up)",
            "return of_sum",
            "of_sum = of_sum.clone()\n            dist.all_reduce(of_sum, group=group)\n            return of_sum",
        ),
        mistake(
            "The backward of g leaves the gradient as it is: divided by t, all that is below is too small",
            "return of_sum",
            "return of_sum / dist.get_world_size(group)",
        ),
    ],
    hints=[
        "Where x enters, all ranks have it. Where y leaves, each has a summand. Which of the two needs a collective in "
        "forward?",
        "In backward the roles change: where y leaves, all ranks have the same gradient. Where x enters, each rank has "
        "only what has come back through its own part.",
        "A Function's forward and backward may call collectives. Clone before you reduce, since others may hold the "
        "tensor, and pass group=group.",
    ],
    why="These two are all the communication that tensor parallelism has: two pairs of them make a block. In "
    "Megatron-LM they are called copy_to_tensor_model_parallel_region and reduce_from_tensor_model_parallel_region.",
)
def f_and_g(group):
    """Return the functions (f, g) of a tensor parallel layer: g(tanh(f(x) A) B), where each rank of ``group`` has all
    of x, some columns of A and the same rows of B.

    All ranks of the group get all of y, compute the same loss of it, and each parameter gets the gradient that it has
    in the whole layer. x is used elsewhere, too, and belongs to a graph. Other groups work on other tokens.
    """

    class Entering(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            # ? What happens to x, which all ranks have?
            return x.view_as(x)

        @staticmethod
        def backward(ctx, of_x):
            # ? This rank has what flows back through its own part.
            of_x = of_x.clone()
            dist.all_reduce(of_x, group=group)
            return of_x

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
