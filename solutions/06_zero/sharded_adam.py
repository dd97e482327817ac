"""Stage 1: Adam's states of one's own shard alone."""

from collections import defaultdict

import torch
import torch.distributed as dist
import torch.nn.functional as F

from tinydist.lab.author import Case, Varied, exercise, mistake

from .chapter import BY_HAND, VIEW, Held, Sent, function, held_now, noted, numbers, of

STEPS, SLACK = 3, 64  # bytes: Adam counts its steps
REDUCED = "dist.reduce_scatter_single(shard.grad, padded)"
GATHERED = "dist.all_gather_single(padded, shard)  # the row of gradients has done its work"


def adam(tensors):
    """With a large epsilon: Adam divides by the size of its gradients, and without it a sum would do for a mean."""
    return torch.optim.Adam(tensors, lr=0.1, eps=0.1)


def case(ranks, size, dtype=torch.float32):
    padding = f", {-size % ranks} of padding" if size % ranks else ""
    about = f"{size} weights{of(dtype)}{padding}"
    return Case(ranks, lambda rank: (0.2 * numbers(size, seed=99, dtype=dtype), defaultdict(list)), about)


def test_cases():
    for ranks, size in [(2, 120), (2, 91), (3, 100), (3, 4), (4, 18), (1, 60)]:
        yield case(ranks, size)
    yield case(2, 7, torch.float64)


def train(answer, weights, held):
    """The weights after each step; bytes held are noted: besides the weights, and of Adam's states."""
    rank, size, found = dist.get_rank(), len(weights), {}
    step = function(answer(weights, adam), "step")
    for number in range(STEPS):
        step(0.2 * numbers(size, seed=10 * number + rank, dtype=weights.dtype))
        found[f"the weights after step {number}"] = noted(weights)
        held["states"].append(held_now("optimizer states"))
        held["all"].append(held_now() - weights.nbytes)
    return found


@exercise(
    title="Your own shard of Adam (stage 1)",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    program=train,
    targets=[
        *BY_HAND,
        Varied(
            f"weights as of one process that takes the mean gradient; {STEPS} steps, 1, 2, 3 and 4 ranks, sizes that "
            "need padding",
            scratch=True,
            variants=[
                (
                    "The shard is dealt out one by one: rank, rank + p, ... The collectives deal out gradients, and "
                    "gather weights, in blocks: the first rank has the first k numbers",
                    "F.pad(weights, (0, padding)).chunk(p)[rank].clone()",
                    "F.pad(weights, (0, padding))[rank::p].clone()",
                ),
            ],
        ),
        Held(
            "states",
            "k = the weights / p, rounded up: 8k bytes of optimizer states a rank",
            noted="states",
            what="of optimizer states",
            slack=SLACK,
            least=0.5,
            advice="They are two moments of the own numbers",
        ),
        Held(
            "memory",
            "16k bytes between steps, besides the weights: shard, gradient, two moments",
            noted="all",
            what="between steps besides the weights",
            slack=SLACK,
            advice="What else is still there? " + VIEW,
        ),
        Sent("2(p-1)/p of the padded weights a step, as much as an all-reduce"),
    ],
    mistakes=[
        mistake(
            "This is what a new optimizer in each step makes: it has forgotten its moments. Make it once, outside of "
            "step",
            "optimizer.step()",
            "adam([shard]).step()",
        ),
        mistake(
            "The step was taken with the sum of the ranks' gradients, and not with their mean: Adam hides most of the "
            "factor, and not all of it. Divide by p",
            "shard.grad /= p",
            "pass",
        ),
        mistake(
            "Each shard took its step with its own rank's gradient: nothing was added up",
            REDUCED,
            "shard.grad.copy_(padded.chunk(p)[rank])",
            "shard.grad /= p",
            "pass",
        ),
        mistake(
            "The last numbers, which do not divide by the number of ranks, never change: pad before you cut",
            "padding = -len(weights) % p",
            "padding = -(len(weights) % p)",
            "weights.copy_(padded[: len(weights)])",
            "weights[: len(padded)] = padded",
        ),
        mistake(
            "A rank's shard of the weights took its step with the gradient of another part, or stands in the place of "
            "another: the same part of both is a rank's, the one of its number",
            "chunk(p)[rank]",
            "chunk(p)[(rank + 1) % p]",
        ),
        mistake(
            "The weights are still the old ones: an all-gather of the shards is missing, or what it brings is not "
            "written into `weights`, in place",
            "weights.copy_(padded[: len(weights)])",
            "return",
        ),
        mistake(
            "These are the moments of all numbers: a plain optimizer on every rank, and nothing is sharded. Give Adam "
            "the own shard",
            "F.pad(weights, (0, padding)).chunk(p)[rank].clone()",
            "weights",
            REDUCED,
            "shard.grad.copy_(gradient)\n        dist.all_reduce(shard.grad)",
            GATHERED,
            "return",
        ),
        mistake(
            "The shard is a view (chunk, split) of a padded copy, and keeps all of it: clone it",
            "F.pad(weights, (0, padding)).chunk(p)[rank].clone()",
            "F.pad(weights, (0, padding)).clone().chunk(p)[rank]",
        ),
    ],
    hints=[
        "Adam treats each number by itself. So a rank needs the mean gradient of its own numbers only; which "
        "collective gives just that? And which one brings the new numbers to all?",
        "Pad weights with zeros (F.pad) until p divides them, and cut them into p parts of k: the one of a rank's "
        "number is its own. Make Adam once, for that part alone, before the first step.",
        "In step: pad the gradient alike; dist.reduce_scatter_single(mean, padded); mean /= p; shard.grad = mean; "
        "optimizer.step(); dist.all_gather_single(row, shard).",
        "weights.copy_(row[:len(weights)]): in place, without the padding. If the shard is a part of a padded copy, "
        "the whole copy stays in memory with it: .clone() the part.",
    ],
    why="Adam's states are 12 of the 16 bytes a parameter in mixed precision, and to shard them costs no byte on the "
    "wire: an all-reduce was a reduce-scatter and an all-gather all along, and the step moves in between. That is "
    "DeepSpeed's stage 1, and Megatron-LM's distributed optimizer.",
)
def sharded_adam(weights, adam):
    """Train flat ``weights`` of float32, the same on every rank, with Adam, whose states each rank keeps for its own
    shard alone. (In one world all tensors are float64: take the dtype of ``weights``.)

    ``adam([tensor])`` makes torch's Adam for a tensor. Return a function ``step(gradient)``: it gets this rank's own
    gradient of all weights, and leaves in ``weights``, in place and on every rank, what one process would have after a
    step with the mean of the ranks' gradients. The ranks need not divide the weights: pad.
    """
    p, rank = dist.get_world_size(), dist.get_rank()
    padding = -len(weights) % p
    # ? Which part of the padded weights is this rank's own? Adam is made once, for it alone.
    shard = F.pad(weights, (0, padding)).chunk(p)[rank].clone()  # a view would keep the whole row
    optimizer = adam([shard])
    # .

    def step(gradient):
        padded = F.pad(gradient, (0, padding))
        # ? The mean gradient of the own part; a step of Adam there; and all parts to all ranks.
        shard.grad = torch.empty_like(shard)
        dist.reduce_scatter_single(shard.grad, padded)
        shard.grad /= p
        optimizer.step()
        dist.all_gather_single(padded, shard)  # the row of gradients has done its work
        weights.copy_(padded[: len(weights)])

    return step
