"""The mean over ranks, in one bit per element: signs, one scale for all, and feedback of the errors on both sides.

    rank r      corrected = tensor + worker_error           n numbers, padded
                sent:  sign(corrected), s = |corrected| / sqrt(n)
                worker_error = corrected - s sign(corrected)

    all-to-all of signs, all-gather of scales: a rank has its chunk, n/p numbers, of all ranks

    its chunk   mean = sum of s_r sign_r / p + server_error
                sent:  sign(mean), t = |mean| / sqrt(n/p)
                server_error = mean - t sign(mean)

    all-gather of signs and scales: every rank has the same result, of at most p magnitudes

Sent by a rank: 2 (p-1)/p n/8 bytes of signs, and 2 (p-1) scales of 4 bytes. Held: n + n/p errors in float32, others on
each rank. Equal to the bit to DeepSpeed 0.19.6's (runtime/comm/compressed.py).
Source: Tang et al., 1-bit Adam, 2021, algorithm 1 and section 4.
"""

import math

import torch
import torch.distributed as dist
import torch.nn.functional as F

from ..annotate import purpose
from ..rules import count, floats, validate
from .bits import pack, unpack


@validate(tensor=floats, worker_error=torch.Tensor, server_error=torch.Tensor, group=dist.ProcessGroup)
def compressed_all_reduce(tensor, worker_error, server_error, group=None):
    """Replace ``tensor`` by about the mean over the ranks. The errors are those of ``error_buffers``; they change.

    NaN and inf spread to all numbers of the result. Raises ``ValueError`` if the errors are of another size.
    """
    p, padded = dist.get_world_size(group), padded_size(tensor.numel(), group)
    if (worker_error.numel(), server_error.numel()) != (padded, padded // p):
        raise ValueError(
            f"compressed_all_reduce: {tensor.numel()} numbers on {p} ranks need errors of {padded} and {padded // p} "
            f"numbers, got {worker_error.numel()} and {server_error.numel()} (rank {dist.get_rank()})"
        )
    numbers = F.pad(tensor.detach().flatten().float(), (0, padded - tensor.numel()))
    with purpose("communication"):
        signs, scales = swap_chunks(*compressed(numbers, worker_error), group)  # [p, padded/p], [p]
        mean = (signs * (scales * (1 / p)).unsqueeze(1)).sum(0)  # [padded/p]
        signs, scales = gather(*compressed(mean, server_error), group)
        result = signs.mul_(scales.unsqueeze(1)).flatten()
    with torch.no_grad():
        tensor.copy_(result[: tensor.numel()].view_as(tensor))


@validate(numel=count, group=dist.ProcessGroup)
def error_buffers(numel, group=None, device=None):
    """Errors of nothing yet: the worker's, of all numbers, and the server's, of this rank's chunk."""
    padded = padded_size(numel, group)
    with purpose("optimizer states"):
        return torch.zeros(padded, device=device), torch.zeros(padded // dist.get_world_size(group), device=device)


def padded_size(numel, group):
    """Each chunk is of whole bytes, and divisible by the ranks (which is DeepSpeed's, and no need)."""
    p = dist.get_world_size(group)
    unit = p * math.lcm(p, 8)
    return -(-numel // unit) * unit


def compressed(numbers, error):
    """Bits and a scale for ``numbers`` with the error that was left; it becomes what is left now."""
    corrected = numbers.add_(error)
    scale = torch.linalg.norm(corrected) / math.sqrt(corrected.numel())
    bits = pack(corrected)
    torch.sub(corrected, scale * unpack(bits), out=error)
    return bits, scale


def swap_chunks(bits, scale, group):
    """Chunk r of everybody's bits goes to rank r: signs [p, n/p] and scales [p] of all ranks."""
    theirs = torch.empty_like(bits)
    dist.all_to_all_single(theirs, bits, group=group)
    return unpack(theirs.view(dist.get_world_size(group), -1)), gathered(scale, group)


def gather(bits, scale, group):
    """The same of whole chunks, to all."""
    return unpack(gathered(bits, group)), gathered(scale, group)


def gathered(tensor, group):
    """[...] of each rank to [p, ...]."""
    p = dist.get_world_size(group)
    result = tensor.new_empty(p * tensor.numel())
    dist.all_gather_single(result, tensor.reshape(-1), group=group)
    return result.view(p, *tensor.shape)
