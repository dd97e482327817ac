"""A layer that computes a random part of the tokens of each row."""

import torch

from tinydist.lab.author import Own, Target, Values, Wrong, alone, exercise, mistake

from .chapter import INSTEAD, SOLVED, numbers

GATHERED = "block(x.gather(1, places))"


def case(rows, length, width, kept, about):
    def arguments():
        draws = torch.rand(rows, length, generator=torch.Generator().manual_seed(rows + length))
        return numbers(rows, length, width, seed=10 * length + kept), draws, kept

    return alone(arguments, f"x [{rows}, {length}, {width}], kept {kept}: {about}")


def test_cases():
    yield case(1, 4, 2, 2, "one row")
    yield case(2, 6, 3, 3, "two rows, each with its own tokens")
    yield case(3, 9, 4, 4, "an odd length")
    yield case(2, 5, 2, 5, "all tokens")
    yield case(2, 7, 3, 1, "one token of each row")


def causal(y, seen):
    """A block of which each token sees those before it: the residual, and their running mean."""
    seen.append(list(y.shape))
    counts = torch.arange(1.0, y.shape[1] + 1).view(-1, 1)
    return y + (y.cumsum(1) / counts).tanh()


def forward_and_backward(answer, x, draws, kept):
    """What it returns, its gradient, and of what shapes the block was called."""
    seen, leaf = [], x.clone().requires_grad_()
    found = answer(leaf * 1.0, draws, kept, lambda y: causal(y, seen))
    result = {"the layer's output": found}
    if isinstance(found, torch.Tensor) and found.shape == x.shape and found.requires_grad:
        (result["the gradient of x"],) = torch.autograd.grad(found.square().sum(), leaf)
        result["the layer's output"] = found.detach()
    return result | {"shapes": seen}


class Shapes(Target):
    """What the block computes decides what the layer costs."""

    name = "tokens computed"

    def judge(self, exercise, trial, right):
        mine, its = trial.returned[0]["shapes"], right.returned[0]["shapes"]
        if mine != its:
            raise Wrong(f"the block was called on {mine or 'nothing'}, where one call on {its[0]} is right")


@exercise(
    title="A layer that drops random tokens",
    minutes=20,
    difficulty=2,
    test_cases=test_cases,
    program=forward_and_backward,
    targets=[
        Own("gather and scatter, or indexing", INSTEAD, SOLVED),
        Shapes("the block is called once, on [B, kept, D]"),
        Values("the output and the gradient of x, for 1 to 3 rows of 4 to 9 tokens"),
    ],
    mistakes=[
        mistake(
            "The tokens must keep their order: each sees what comes before it",
            ".indices.sort(1).values",
            ".indices",
        ),
        mistake("Each row has its own draws", "draws.topk(kept)", "draws[:1].expand_as(draws).topk(kept)"),
        mistake("It is the largest draws that are kept", "draws.topk(kept)", "draws.topk(kept, largest=False)"),
        mistake(
            "A token that is dropped goes round the block as it is: it does not become 0",
            "return x.scatter(",
            "return torch.zeros_like(x).scatter(",
        ),
        mistake(
            "The block has its residual connection: what it returns takes the token's place, and is not added to it",
            "return x.scatter(",
            "return x.scatter_add(",
        ),
        mistake(
            "Gradients go through the block, too: do not detach what it computes",
            GATHERED,
            f"{GATHERED}.detach()",
        ),
    ],
    hints=[
        "topk gives places in the order of the draws, and a causal block needs them in the order of the text.",
        "For x [B, T, D], gather along dim 1 takes places of shape [B, kept, D]: unsqueeze and expand.",
        "x.scatter(1, places, new) returns a new tensor: x, with `new` at those places. Autograd knows both.",
    ],
    why="The block needs to know nothing of it: it sees shorter sequences. Gradients of dropped tokens go round it "
    "too, by scatter's backward. DeepSpeed has kernels of its own for gather, scatter and the sort of the places.",
)
def drop_tokens(x, draws, kept, block):
    """Return what a layer gives that computes ``kept`` tokens of each row, and lets the others go round it.

    ``x`` is float32 [B, T, D], ``draws`` float32 [B, T]: in each row the tokens with the ``kept`` largest draws are
    kept, in the order that they have in x. ``block`` is causal, takes [B, K, D] and returns it, with its residual
    connection. Call it once. ``x`` must stay as it is.
    """
    # ? Which tokens of each row, and in which order? What does the block see, and where does its result go?
    places = draws.topk(kept).indices.sort(1).values  # [B, K]
    places = places.unsqueeze(2).expand(-1, -1, x.shape[2])  # [B, K, D]
    return x.scatter(1, places, block(x.gather(1, places)))
