"""Batches of tokens as a function of seed and step, independent of the mesh.

The tokens are cut into windows of T, each once an epoch:

    window w     tokens wT ... wT+T-1, and as targets those one further on
    epoch e      a permutation of all windows, by the seed and e
    step s       takes the next B of this order, across the end of an epoch
    data rank r  of p takes B/p consecutive ones of those, and reads no other

So a run can resume at any step, on any mesh, and the step is the only state. The permutation is not stored but computed
for each window: a Feistel network is a permutation of 2^(2h) indices, and cycle walking repeats it while the index is
beyond the last window (Black and Rogaway 2002, Ciphers with Arbitrary Finite Domains). 10^9 tokens need no memory and
no startup time.

The ranks of a tensor group work on the same tokens. Its rank 0 reads them, and tells the others.
"""

import json

import numpy as np
import torch
import torch.distributed as dist

from ..rules import count, function, listed, validate, whole, within
from ..torch_internals import device_of_group
from .tokens import some_tokens

ROUNDS, BLOCK = 6, 4096
HEADER = 4096  # bytes of the message that says what comes


@validate(tokens=some_tokens, batch=listed, context=listed, seed=whole)
class Batches:
    """``batches[step]``: tokens and targets of a global batch, int64 [B, T] each.

    tokens:  a ``TokenFile``, or a NumPy array of integers [N].
    """

    def __init__(self, tokens, batch, context, seed=0):
        self.tokens, self.batch, self.context, self.seed = tokens, batch, context, seed
        self.windows = (len(tokens) - 1) // context
        if self.windows < 1:
            raise ValueError(
                f"Batches: a window has context + 1 = {context + 1:,} tokens, but there are {len(tokens):,}"
            )
        self.block, self.kept = min(BLOCK, self.windows), (None, None)

    def __getitem__(self, step):
        return self.rows(step, 0, 1)

    def length(self, step):
        """Tokens of each row of this step: the context; curriculum.py has another."""
        return self.context

    @validate(step=within(0, 2**40), rank=whole, ranks=count)
    def rows(self, step, rank, ranks):
        """Those of data rank ``rank`` of ``ranks``: int64 [B / ranks, T] each."""
        if self.batch % ranks or rank >= ranks:
            raise ValueError(
                f"Batches: batch ({self.batch}) must be divisible by ranks ({ranks}), and rank ({rank}) must be < ranks"
            )
        mine = self.batch // ranks
        first = step * self.batch + rank * mine
        starts = (self.windows_at(first, first + mine) * self.context).tolist()
        read = np.stack([self.tokens[start : start + self.context + 1] for start in starts]).astype(np.int64)
        return torch.from_numpy(read[:, :-1].copy()), torch.from_numpy(read[:, 1:].copy())

    def windows_at(self, first, last):
        """The windows at these places, which count on from epoch to epoch."""
        blocks = range(first // self.block, (last - 1) // self.block + 1)
        return np.concatenate([self._of_block(number) for number in blocks])[first % self.block :][: last - first]

    def _of_block(self, number):
        """Many places take as long as one: the last that were computed are kept."""
        if number != self.kept[0]:
            epochs, places = np.divmod(np.arange(self.block) + number * self.block, self.windows)
            each = [permuted(places[epochs == e], self.windows, (self.seed, int(e))) for e in np.unique(epochs)]
            self.kept = number, np.concatenate(each)
        return self.kept[1]


def permuted(numbers, size, key):
    """Where each of ``numbers``, below ``size``, goes in a permutation of range(size) that ``key`` chooses."""
    half = np.uint64(max((size - 1).bit_length() + 1, 2) // 2)  # bits
    keys = np.random.SeedSequence(key).generate_state(ROUNDS, np.uint64)
    found, outside = numbers.astype(np.uint64), np.ones(len(numbers), bool)
    while outside.any():
        found[outside] = feistel(found[outside], half, keys)
        outside = found >= size
    return found.astype(np.int64)


def feistel(numbers, half, keys):
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = numbers >> half, numbers & mask
    for key in keys:
        left, right = right, left ^ (mixed(right ^ key) & mask)
    return left << half | right


def mixed(x):
    """Every bit of x in every bit: the last part of SplitMix64 (Steele et al. 2014)."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


@validate(read=function, group=dist.ProcessGroup)
def broadcast_data(read, group=None):
    """Broadcast what ``read()`` returns on rank 0 of ``group``, name -> tensor. Only rank 0 calls it.

    Two messages: names, dtypes and shapes; then all data, flattened. Megatron-LM's function of this name sends sizes,
    and wants one dtype (core/tensor_parallel/data.py). If ``read`` fails, the others raise ``RuntimeError`` with its
    reason.
    """
    if dist.get_world_size(group) == 1:
        return read()
    device = device_of_group(group)
    if dist.get_rank(group) == 0:
        return told(read, device, group)
    about = json.loads(bytes(received(HEADER, device, group).tolist()).rstrip(b"\0"))
    if "error" in about:
        raise RuntimeError(f"broadcast_data: reading failed on rank 0 of the group: {about['error']}")
    tensors = [(name, torch.empty(shape, dtype=getattr(torch, dtype))) for name, dtype, shape in about["tensors"]]
    sizes = [tensor.nbytes for _, tensor in tensors]
    pieces = received(sum(sizes), device, group).split(sizes)
    return {name: piece.view(tensor.dtype).view(tensor.shape) for (name, tensor), piece in zip(tensors, pieces)}


def told(read, device, group):
    """Largest numbers first: so each begins at a multiple of its size."""
    try:
        tensors = {name: tensor.to(device) for name, tensor in read().items()}
        tensors = dict(sorted(tensors.items(), key=lambda each: -each[1].itemsize))
        about = [(name, str(each.dtype).removeprefix("torch."), list(each.shape)) for name, each in tensors.items()]
        say(json.dumps({"tensors": about}), device, group)
    except Exception as error:
        say(json.dumps({"error": f"{type(error).__name__}: {error}"[: HEADER // 8]}), device, group)
        raise
    flat = [tensor.reshape(-1).view(torch.uint8) for tensor in tensors.values()]
    dist.broadcast(torch.cat(flat), group=group, group_src=0)
    return tensors


def say(text, device, group):
    if len(text) > HEADER:
        raise ValueError(f"broadcast_data: tensor metadata ({len(text)} bytes) exceeds {HEADER} bytes")
    padded = bytearray(text.encode().ljust(HEADER, b"\0"))  # JSON is ASCII
    dist.broadcast(torch.frombuffer(padded, dtype=torch.uint8).to(device), group=group, group_src=0)


def received(nbytes, device, group):
    tensor = torch.empty(nbytes, dtype=torch.uint8, device=device)
    dist.broadcast(tensor, group=group, group_src=0)
    return tensor
