"""A training step with expert parallelism, and three bugs in it that raise no error."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from tinydist.collectives import autograd
from tinydist.lab.author import Case, Values, Waits, also, exercise, mistake

from .chapter import BY_HAND, gradients, noted, numbers

D, E = 4, 4


def case(ranks, share, N, most, dtype=torch.float64):
    """``share``: ranks that share the experts."""
    drops = f"at most {most} tokens for an expert" if most < N else "no capacity"
    kind = "" if dtype == torch.float64 else ", float32"
    about = f"{share} ranks share {E} experts, {N} tokens a rank, {drops}{kind}"
    return Case(ranks, lambda rank: (share, N, most, dtype), about)


def test_cases():
    yield case(1, 1, 5, 99)
    yield case(1, 1, 6, 1)
    yield case(4, 2, 4, 99)
    yield case(2, 1, 4, 99)
    yield case(3, 1, 3, 99)
    yield case(4, 2, 5, 2)
    yield case(4, 4, 6, 2)
    yield case(4, 2, 3, 99, torch.float32)


def train(answer, share, N, most, dtype):
    rank, p = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (p // share, share), mesh_dim_names=("same", "experts"))
    group, same = mesh.get_group("experts"), mesh.get_group("same")
    gate = numbers(D, E, seed=1, dtype=dtype).requires_grad_()
    each = E // share
    own = rank % share * each
    experts = numbers(E, D, D, seed=2, dtype=dtype)[own : own + each].clone().requires_grad_()
    x, targets = (numbers(N, D, seed=seed + rank, dtype=dtype) for seed in (10, 20))
    y = answer(x, targets, gate, experts, most, send, group, same)
    return {"the output": noted(y)} | gradients({"the router": gate, "the experts": experts})


def send(rows, sent, group):
    """(rows that come, how many from each rank): an all-to-all with a backward."""
    counts = torch.tensor(sent)
    coming = torch.empty_like(counts)
    dist.all_to_all_single(coming, counts, group=group)
    return autograd.all_to_all(rows, list(sent), coming.tolist(), group), coming.tolist()


GROUP = "dist.all_reduce(experts.grad, group=same)"
UNDONE = "out.index_add(0, kept[order], "


@exercise(
    title="Find three bugs",
    minutes=25,
    difficulty=3,
    test_cases=test_cases,
    program=train,
    targets=[
        BY_HAND,
        Waits("whatever is started is waited for"),
        Values(
            "outputs and gradients of one process that has all tokens, of the mean of the ranks' losses; 1 to 4 "
            "ranks, with and without a capacity",
            scratch=True,
        ),
    ],
    mistakes=[
        mistake(
            "The gradient of the experts is averaged over all ranks, but not all have the same experts: add up over "
            "``same`` alone",
            GROUP,
            "dist.all_reduce(experts.grad)",
            given=True,
        ),
        mistake(
            "A token that is dropped has vanished from the output: it misses the expert, and keeps the residual",
            "y = x + out",
            "y = torch.where(here[:, None], x + out, 0.0)",
            given=True,
        ),
        mistake(
            "What came back lies by expert, as it was sent, and was added in the order of tokens: the sort was not "
            "undone",
            UNDONE,
            "out.index_add(0, kept, ",
            given=True,
        ),
        mistake(
            "The gradient of the experts is summed over the ranks and not divided: the loss is the mean of p losses",
            "experts.grad /= p",
            "experts.grad /= 1",
        ),
        mistake(
            "The gradient of the experts has been divided by the ranks with the same experts. The tokens of all p "
            "ranks have come to them",
            "experts.grad /= p",
            "experts.grad /= dist.get_world_size(same)",
        ),
        mistake(
            "The gradient of the router is this rank's own: each rank has a copy", "dist.all_reduce(gate.grad)", "pass"
        ),
    ],
    alternatives=[also("experts.grad /= p", "experts.grad.div_(p)")],
    hints=[
        "Follow one token of a world of one rank: which row is it after the sort, and to which row of the output is it "
        "added?",
        "What should the block return for a token that no expert takes? A block adds to x.",
        "Which ranks have the same experts, and which have the same router?",
    ],
    why="None of the three raises an error, and with each of them the loss goes down. A comparison with one process, "
    "on a few tokens and in float64, finds all of them in a second: write it before the first long run.",
)
def mended_experts(x, targets, gate, experts, most, send, group, same):
    """One step's gradients of a block with experts, y = x + expert(x), over the ranks of ``group``. Three bugs.

    ``x`` and ``targets`` [N, D] are this rank's tokens, in float64 or float32; ``gate`` [D, E] is a copy on every rank;
    ``experts`` [E/g, D, D] are this rank's, of those that the g ranks of ``group`` share in order; ``same`` are the
    ranks that have the same. A token goes to its best expert, which takes the first ``most`` tokens of a rank; others
    pass the block unchanged. ``send(rows, sent, group)`` is right: an all-to-all with a backward. The loss is the mean
    over the ranks of their mean squared errors. Returns y; gradients are left in ``gate.grad`` and ``experts.grad``.
    """
    p, g = dist.get_world_size(), dist.get_world_size(group)
    each = experts.shape[0]
    E = each * g

    weight, chosen = (x @ gate).softmax(-1).max(-1)
    place = torch.nn.functional.one_hot(chosen, E).cumsum(0).gather(1, chosen[:, None]).squeeze(1)
    here = place <= most
    kept = here.nonzero().squeeze(1)
    order = chosen[kept].argsort(stable=True)

    counts = torch.bincount(chosen[kept], minlength=E).view(g, each)
    rows, came = send(x[kept[order]], counts.sum(1).tolist(), group)
    numbers = chosen[kept[order]] % each
    numbers, _ = send(numbers[:, None].to(x.dtype), counts.sum(1).tolist(), group)
    computed = torch.tanh(torch.einsum("rd,rde->re", rows, experts[numbers.squeeze(1).long()]))
    back, _ = send(computed, came, group)

    out = torch.zeros_like(x)
    out = out.index_add(0, kept[order], back * weight[kept[order]][:, None])
    y = x + out
    (y - targets).square().mean().backward()

    dist.all_reduce(gate.grad)
    gate.grad /= p
    dist.all_reduce(experts.grad, group=same)
    experts.grad /= p
    return y
