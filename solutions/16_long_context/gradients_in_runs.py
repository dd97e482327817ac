"""Blocks with dropout that forget: forward and backward in runs of k, from one input and one random state each."""

import torch
from torch import nn

from tinydist.lab.author import Flops, Memory, Own, Values, Wrong, alone, exercise, mistake

from .chapter import BY_HAND, SOLVED

WIDTH, ROWS = 16, 32
INPUT = ROWS * WIDTH * 4  # bytes


def chain(count, k, dropout, measured=False):
    words = f"{count} block{'s' * (count > 1)} in runs of {k}, dropout {dropout}"
    return alone(lambda: (count, k, dropout), words, measured=measured, facts=(count, k))


class Twice(Flops):
    """As many FLOPs as the reference."""

    def judge(self, exercise, trial, right):
        (mine,), (its,) = self.seen(trial), self.seen(right)
        if sum(mine) > sum(its):
            raise Wrong(
                f"it multiplies matrices with {sum(mine):,} FLOPs, where {sum(its):,} are enough: each block runs "
                "forward twice, and backward once. A run begins with its own input, which forward kept"
            )


def test_cases():
    yield chain(1, 1, 0.0)
    yield chain(1, 1, 0.5)
    yield chain(4, 1, 0.5)
    yield chain(4, 2, 0.5)
    yield chain(5, 3, 0.25)
    yield chain(3, 8, 0.5)
    yield chain(36, 6, 0.5, measured=True)


def block(dropout):
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Dropout(dropout))


def trained(answer, count, k, dropout):
    """What the answer gives, the gradients that it leaves, and the next random number."""
    torch.manual_seed(5)
    blocks = nn.ModuleList(block(dropout) for _ in range(count))
    for parameter in blocks.parameters():
        parameter.grad = torch.ones_like(parameter)  # as if another backward had been here
    x, dout = torch.randn(2, ROWS, WIDTH)
    y, dx = answer(blocks, x, dout, k)
    weights = torch.stack([each[0].weight.grad.sum(1) for each in blocks])
    return y.detach(), dx.detach(), weights, torch.rand(1)


@exercise(
    title="Forget, with dropout, in runs",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    program=trained,
    targets=[
        Own("by autograd, and not by torch's checkpointing", BY_HAND, SOLVED),
        Values(
            "y, dx and the gradients of the weights are those of one plain pass, bit by bit but for rounding (added to "
            "those that the weights had); the next random number afterwards is, too. The last run may be shorter, or k "
            "more than there are blocks",
            names=("y", "dx", "the weights' gradients", "the next random number"),
        ),
        Twice("each block runs forward twice, and backward once", name="work"),
        Memory(
            "one input for each run of k, and in backward the activations of one run: with 36 blocks in runs of 6, "
            "neither the activations of 36 blocks nor 36 inputs",
            slack=4 * INPUT,
        ),
    ],
    mistakes=[
        mistake(
            "The masks are drawn anew in the second run. Restore the random state that the run began with",
            "torch.set_rng_state(state)",
            "len(state)",
        ),
        mistake(
            "The random state is left where backward ended: the next step would draw this step's masks again. Put "
            "back the one that forward ended with",
            "torch.set_rng_state(end)",
            "len(end)",
        ),
        mistake(
            "Each run is given the gradient of the last output. It needs that of its own output, which is the "
            "gradient of the next run's input",
            "gradient = given.grad",
            "gradient = dout",
        ),
        mistake(
            "Forward records a graph, so that all activations live until backward: run it under torch.no_grad()",
            "with torch.no_grad():",
            "with torch.enable_grad():",
            "x, ()",
            "x.requires_grad_(), ()",
        ),
    ],
    hints=[
        "Two loops over runs: forward, from the first to the last, without a graph; backward, from the last to the "
        "first. What does backward need of each run that forward alone can give?",
        "Forward keeps, for each run, its input and torch.get_rng_state(), both before the run begins.",
        "Backward of a run: set the state, make the input a leaf (detach().requires_grad_()), run its blocks, and call "
        "out.backward(gradient). The leaf's grad is the gradient for the run before.",
        "After the forward loop take the random state once more, and set it again at the very end.",
    ],
    why="This is all of torch.utils.checkpoint but for its care: it also keeps autocast's state and that of each "
    "GPU's generator. Megatron-LM's `--recompute-method uniform` makes such runs of `--recompute-num-layers` layers.",
)
def gradients_in_runs(blocks, x, dout, k):
    """The output and the gradient of x, of ``blocks`` one after the other, which forget in runs of k.

    ``blocks``: modules with weights and dropout, in training mode; x, dout: [T, D], the input of the first and the
    gradient of the last output. Between the passes hold no more than one input and one random state for each run of k
    blocks (the last run may be shorter). Return y and dx, [T, D]; add to the gradients of the weights, as backward
    does. All random numbers, and those drawn afterwards, must be those of a plain forward and backward.
    """
    # ? Forward without a graph: what do you keep for each run?
    # ? Backward, from the last run to the first: which state, which leaf, which gradient goes on?
    # ? With which random state does the program go on?
    kept, (y, _) = [], (x, ())
    with torch.no_grad():
        for first in range(0, len(blocks), k):
            kept.append((first, y, torch.get_rng_state()))
            for block in blocks[first : first + k]:
                y = block(y)
    end = torch.get_rng_state()
    gradient = dout
    while kept:
        first, given, state = kept.pop()
        torch.set_rng_state(state)
        given = given.detach().requires_grad_()
        out = given
        for block in blocks[first : first + k]:
            out = block(out)
        out.backward(gradient)
        gradient = given.grad
    torch.set_rng_state(end)
    return y, gradient
