"""The weighted mean over a group, compressed in both halves."""

import torch
import torch.distributed as dist

from tinydist.compression.bits import pack, unpack
from tinydist.lab.author import Bytes, Case, Own, Values, exercise, mistake

from .chapter import BITS, INSTEAD, SOLVED, WAITS, numbers

STEPS = 2
SERVER = "corrected = mean + server_error"
BACK = "return (scales.unsqueeze(1) * unpack(chunks).view(p, -1)).flatten()"
KEPT = "server_error.copy_(corrected - scale * unpack(bits))"
SWAP = "dist.all_to_all_single(chunks, bits, group=group)"
OF_SCALES = "dist.all_gather_single(scales, scale.view(1), group=group)"


def case(ranks, size, chunk):
    return Case(ranks, lambda rank: (size, chunk), f"groups of {size}, {size * chunk} numbers")


def test_cases():
    yield case(2, 2, 8)
    yield case(3, 3, 16)
    yield case(4, 2, 8)
    yield case(1, 1, 8)
    yield case(4, 4, 24)


def train(answer, size, chunk):
    rank = dist.get_rank()
    groups = [dist.new_group(list(range(first, first + size))) for first in range(0, dist.get_world_size(), size)]
    group, weight = groups[rank // size], 2 * (1 + rank % size) / (size * (size + 1))
    worker, server = torch.zeros(size * chunk), torch.zeros(chunk)
    found = {}
    for step in range(STEPS):
        x = numbers(size * chunk, seed=100 * step + rank)
        found[f"the mean of step {step}"] = answer(x, weight, worker, server, group)
        found[f"the worker's error after step {step}"] = worker.clone()
        found[f"the server's error after step {step}"] = server.clone()
    return found


@exercise(
    title="A mean in one bit per number, there and back",
    minutes=30,
    difficulty=4,
    test_cases=test_cases,
    program=train,
    targets=[
        WAITS,
        Own("bits.pack and bits.unpack, and the collectives of torch.distributed", INSTEAD, SOLVED, lent=(BITS,)),
        Values("the weighted mean on all ranks, and both errors, in two steps; groups of 1 to 4 ranks", scratch=True),
        Bytes("2(p-1)/p n/8 bytes of bits, and 2(p-1) scales of 4 bytes"),
    ],
    mistakes=[
        mistake(
            "The server forgets its error: it must be added to the mean before that is compressed, and kept",
            SERVER,
            "corrected = mean",
        ),
        mistake(
            "The server's error is what the second compression leaves: keep it, too",
            f"    {KEPT}\n",
            "",
        ),
        mistake(
            "Ranks have weights, and the scales of what they sent take them: the mean is a sum of weight x scale "
            "x sign",
            "scale = weight * scale",
            "scale = scale / p",
        ),
        mistake(
            "The weight belongs to the sum, and not to what is compressed: the worker's error is that of x",
            "corrected = x + worker_error",
            "corrected = weight * x + worker_error",
            "scale = weight * scale",
            "scale = 1 * scale",
        ),
        mistake(
            "The mean of your group is asked for: pass group to the collectives",
            "chunks, bits, group=group",
            "chunks, bits",
            "scales, scale.view(1), group=group",
            "scales, scale.view(1)",
            "p = dist.get_world_size(group)",
            "p = dist.get_world_size()",
        ),
        mistake(
            "The server's scale is its norm divided by the square root of n. It has a chunk alone, of n/p numbers",
            "mean.numel()",
            "x.numel()",
        ),
        mistake(
            "The mean comes back in one bit per number, too: you sent it in full",
            f"    {KEPT}\n",
            "",
            BACK,
            "chunks = torch.empty_like(x)\n    dist.all_gather_single(chunks, mean, group=group)\n    return chunks",
        ),
    ],
    hints=[
        "Two phases. In the first, bits of chunk r go to rank r of the group (dist.all_to_all_single), and each rank's "
        "scale to all. In the second the servers' bits and scales go to all.",
        "A server sums weight x scale x sign over the ranks. The weights need not travel: a rank multiplies its scale "
        "by its weight before it sends it.",
        "What the server sends is the sum plus its own error, in one bit again; what that leaves is its new error.",
    ],
    why="Weights are what uneven batches need, and they are free here: they travel in the scales. The two errors are "
    "the price: n + n/p numbers in float32 on each rank, which no checkpoint of rank 0 alone can hold.",
)
def one_bit_mean(x, weight, worker_error, server_error, group):
    """Return about the weighted mean of ``x`` over the ranks of ``group``, in one bit per number in both directions.

    ``x`` and ``worker_error`` are float32 [n], ``server_error`` [n/p], and 8p divides n. ``weight`` is this rank's own,
    a float; those of the group add up to 1. A scale is a norm divided by the square root of its count of numbers. Write
    both new errors into their tensors. The result is a new tensor [n], the same on all ranks of the group.
    You may call ``pack`` and ``unpack``: signs of float32 [m] to uint8 [m/8], and back to 1.0 and -1.0.
    """
    p = dist.get_world_size(group)
    # ? This rank's signs and scale; what do they leave?
    corrected = x + worker_error
    bits, scale = pack(corrected), corrected.norm() / x.numel() ** 0.5
    worker_error.copy_(corrected - scale * unpack(bits))
    # ? Its chunk of everybody's signs, and what they count.
    chunks, scales = torch.empty_like(bits), torch.empty(p)
    scale = weight * scale
    dist.all_to_all_single(chunks, bits, group=group)
    dist.all_gather_single(scales, scale.view(1), group=group)
    mean = (scales.unsqueeze(1) * unpack(chunks).view(p, -1)).sum(0)
    # ? The server's signs and scale, to all.
    corrected = mean + server_error
    bits, scale = pack(corrected), corrected.norm() / mean.numel() ** 0.5
    server_error.copy_(corrected - scale * unpack(bits))
    dist.all_gather_single(chunks, bits, group=group)
    dist.all_gather_single(scales, scale.view(1), group=group)
    return (scales.unsqueeze(1) * unpack(chunks).view(p, -1)).flatten()
