"""The loss of a large vocabulary, and its gradients, without all logits at a time, and without computing any twice."""

import torch
import torch.nn.functional as F
import torch.utils.checkpoint

from tinydist.lab.author import Flops, Memory, Own, Varied, alone, exercise, mistake

SLACK = 3000  # bytes


def part_of_loss(hidden, weight, targets):
    return F.cross_entropy(hidden @ weight.T, targets, reduction="sum")


def case(rows, dim, words, parts, dtype=torch.float32, measured=False):
    def arguments():
        draw = torch.Generator().manual_seed(rows)
        hidden = torch.randn(rows, dim, generator=draw, dtype=dtype)
        weight = torch.randn(words, dim, generator=draw, dtype=dtype)
        return hidden, weight, torch.randint(words, (rows,), generator=draw), parts

    about = f"{rows} rows of {dim} numbers, {words} words, {parts} parts" + ", float64" * (dtype == torch.float64)
    return alone(arguments, about, measured=measured, rtol=1e-3)


def test_cases():
    yield case(4, 3, 5, 1)
    yield case(6, 4, 7, 3)
    yield case(7, 4, 9, 3)
    yield case(2, 3, 5, 4)
    yield case(5, 4, 6, 2, dtype=torch.float64)
    yield case(64, 4, 200, 8, measured=True)


IN_PARTS = ("    size = -(-len(targets)", "torch.cat(hidden_gradients), weight_gradient")  # all lines
PARTS = "zip(hidden.split(size), targets.split(size))"
OTHER_PARTS = "[each for each in zip(hidden.tensor_split(parts), targets.tensor_split(parts)) if len(each[1])]"
ITS_SHARE = 'F.cross_entropy(some @ own.T, wanted, reduction="sum") / len(targets)'
UNLIKE = (
    "Parts have unlike numbers of rows, and in the mean all rows count alike: it is not the mean of the parts' means"
)
AT_ONCE = """\
    hidden, weight = hidden.detach().requires_grad_(), weight.detach().requires_grad_()
    loss = F.cross_entropy(hidden @ weight.T, targets)
    loss.backward()
    return loss.detach(), hidden.grad, weight.grad"""


@exercise(
    title="A loss that fits",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    targets=[
        Own("your own loop over parts", "build it yourself", ("tinydist.tensor_parallel",)),
        Varied(
            "the mean loss and both gradients, in parts of equal and of unlike sizes",
            ["the loss", "the gradient of hidden", "the gradient of weight"],
            variants=[
                (
                    UNLIKE,
                    PARTS,
                    OTHER_PARTS,
                    ITS_SHARE,
                    "F.cross_entropy(some @ own.T, wanted) / min(parts, len(targets))",
                ),
                (
                    UNLIKE,
                    ITS_SHARE,
                    "F.cross_entropy(some @ own.T, wanted) / -(-len(targets) // size)",
                ),
                ("This is the sum of the means of parts", ITS_SHARE, "F.cross_entropy(some @ own.T, wanted)"),
                (
                    "This is the sum of the means of parts",
                    PARTS,
                    OTHER_PARTS,
                    ITS_SHARE,
                    "F.cross_entropy(some @ own.T, wanted)",
                ),
                (
                    "The sum over all rows is divided by the number of parts, and not of rows",
                    ITS_SHARE,
                    'F.cross_entropy(some @ own.T, wanted, reduction="sum") / parts',
                ),
                (
                    "The sum over all rows is divided by the rows of a part, and not by all",
                    ITS_SHARE,
                    'F.cross_entropy(some @ own.T, wanted, reduction="sum") / size',
                ),
                (
                    "The loss is right, and the gradients are those of the sum over the rows: take those of the mean",
                    ITS_SHARE,
                    'F.cross_entropy(some @ own.T, wanted, reduction="sum")',
                    "total += loss.detach()",
                    "total += loss.detach() / len(targets)",
                ),
                (
                    "The loss is right, and the gradients are divided by the rows of their part: divide by all rows",
                    ITS_SHARE,
                    "F.cross_entropy(some @ own.T, wanted)",
                    "total += loss.detach()",
                    "total += loss.detach() * len(wanted) / len(targets)",
                ),
                (
                    "The loss is right, and the gradients are divided by the rows of their part: divide by all rows",
                    PARTS,
                    OTHER_PARTS,
                    ITS_SHARE,
                    "F.cross_entropy(some @ own.T, wanted)",
                    "total += loss.detach()",
                    "total += loss.detach() * len(wanted) / len(targets)",
                ),
                (
                    "The gradients are right, and the loss is the sum over the rows: their mean is asked for",
                    "total += loss.detach()",
                    "total += loss.detach() * len(targets)",
                ),
                (
                    "This is the loss of the last part alone: what all parts add is added up",
                    "total += loss.detach()",
                    "total = loss.detach()",
                ),
                (
                    "The loss is right, and the gradient of hidden is divided by the rows twice",
                    "hidden_gradients.append(some.grad)",
                    "hidden_gradients.append(some.grad / len(targets))",
                ),
                (
                    "The gradient of hidden is that of the sum over the rows",
                    "hidden_gradients.append(some.grad)",
                    "hidden_gradients.append(some.grad * len(targets))",
                ),
                (
                    "The gradient of the weight is divided by the number of parts: it is a sum over them",
                    "weight_gradient += own.grad",
                    "weight_gradient += own.grad / parts",
                ),
                (
                    "The gradient of the weight is that of the sum over the rows",
                    "weight_gradient += own.grad",
                    "weight_gradient += own.grad * len(targets)",
                ),
            ],
        ),
        Flops("three products for each part: logits, and the two gradients; none is computed twice"),
        Memory(
            "with 64 rows, 200 words and 8 parts: the logits of 8 rows, what is computed from them, and both gradients",
            slack=SLACK,
            advice="Let go of a part before the next",
        ),
    ],
    mistakes=[
        mistake(
            "All logits are there at a time: this is what runs out of memory",
            IN_PARTS,
            AT_ONCE,
            given=True,
        ),
        mistake(
            "Parts have unlike numbers of rows, so the mean of their means is not the mean: divide sums by all rows",
            'F.cross_entropy(some @ own.T, wanted, reduction="sum") / len(targets)',
            "F.cross_entropy(some @ own.T, wanted) / parts",
        ),
        mistake(
            "Each part's gradient of the weight takes the place of the last one's: they add up",
            "weight_gradient += own.grad",
            "weight_gradient = own.grad",
        ),
        mistake(
            "The graphs of all parts are kept until the end, and with them all logits: call backward for each part",
            "        loss.backward()\n        total += loss.detach()\n",
            "        loss.backward(retain_graph=True)\n        total = total + loss\n",
        ),
        mistake(
            "Logits are computed twice: what checkpoint saves in memory it takes in time, and here nothing has to be "
            "kept",
            'F.cross_entropy(some @ own.T, wanted, reduction="sum") / len(targets)',
            "torch.utils.checkpoint.checkpoint(part_of_loss, some, own, wanted, use_reentrant=False) / len(targets)",
        ),
        mistake(
            "The loss is a sum over the rows, where their mean is asked for",
            'reduction="sum") / len(targets)',
            'reduction="sum")',
        ),
    ],
    hints=[
        "Rows do not know of one another: the loss is a sum over rows, and so is the gradient of the weight.",
        "What has to be kept when a part's gradients are there? Then backward need not wait for the end.",
        "Detach a part and the weight, call requires_grad_(), compute its share of the mean, and call backward at "
        "once.",
    ],
    why="In models with large vocabularies the logits are the peak, not the layers. Liger Kernel's fused linear cross "
    "entropy computes the gradients with the loss in the same way, part by part.",
)
def loss_in_parts(hidden, weight, targets, parts):
    """Return the mean cross entropy of ``hidden @ weight.T``, and its gradients with respect to hidden and weight.

    ``hidden`` [rows, dim], ``weight`` [words, dim], both of float32 or both of float64, and ``targets`` [rows].
    The program works, and holds all logits, [rows, words], and what is computed from them. Let it hold those of
    about 1 / ``parts`` of the rows at a time, and still compute no product twice. There may be fewer rows than parts.
    """
    size = -(-len(targets) // parts)
    total, weight_gradient = torch.zeros((), dtype=weight.dtype), torch.zeros_like(weight)
    hidden_gradients = []
    for some, wanted in zip(hidden.split(size), targets.split(size)):
        some, own = some.detach().requires_grad_(), weight.detach().requires_grad_()
        loss = F.cross_entropy(some @ own.T, wanted, reduction="sum") / len(targets)
        loss.backward()
        total += loss.detach()
        hidden_gradients.append(some.grad)
        weight_gradient += own.grad
    return total, torch.cat(hidden_gradients), weight_gradient
