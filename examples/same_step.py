"""What all examples share: the model, the text, the numbers of AdamW, and what each tells of its steps.

model       a GPT of 834,304 parameters, the same weights on every rank
text        20 steps of 4 sequences of 64 tokens: each rank takes its share of every 4
found       the loss of each step, the bytes that a rank's tensors take after the last, seconds a step
"""

import gc
import os
import statistics
import sys
import time
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from tinydist.model import GPT, GPTConfig, batch

STEPS, ROWS, RANKS, RATE = 20, 4, 2, 1e-3
CONFIG = GPTConfig(layers=4, heads=4, dim=128)


def make_model():
    torch.manual_seed(0)
    return GPT(CONFIG)


def make_text():
    """Rows of tokens and targets, in the order of steps."""
    tokens, targets = zip(*[batch(step, ROWS, CONFIG.context) for step in range(STEPS)])
    return TensorDataset(torch.cat(tokens), torch.cat(targets))


def loss_of(logits, targets):
    """logits [B, T, V], targets [B, T]; in fp32, whatever the logits are in."""
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


class Found(NamedTuple):
    losses: list  # of the steps: the mean over all ranks
    held: int  # bytes, after the last step
    seconds: float  # a step, the median


class Report:
    """Made before the model is, told of each step, asked at the end."""

    def __init__(self):
        self.before = storages()
        self.losses, self.times = [], []

    def step(self, loss):
        """At the end of each. ``loss``: a number, the mean over this rank's rows."""
        self.losses.append(loss)
        self.times.append(time.perf_counter())

    def end(self, unseen=0):
        """While there is a process group: what was ``Found``; ``unseen``: bytes held that Python does not know of.

        The sum comes first, to be forgotten in time: a moment later gloo's thread drops the tensor, for which it needs
        Python's lock. Whoever frees the group in that moment has the lock, and waits for that thread: forever (seen
        with torch 2.13.0, where the group goes with DDP's reducer).
        """
        losses = torch.tensor(self.losses)
        dist.all_reduce(losses)
        held = unseen + sum(storage.nbytes() for place, storage in storages().items() if place not in self.before)
        seconds = statistics.median(end - begin for begin, end in zip(self.times, self.times[1:]))
        return Found((losses / dist.get_world_size()).tolist(), held, seconds)


def storages():
    """Where they begin -> all that tensors lie in of which Python knows. What C++ alone holds is not seen."""
    gc.collect()
    tensors = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor) and type(each) is not DTensor]
    tensors += [each.grad for each in tensors if each.is_leaf and type(each.grad) is torch.Tensor]
    found = {each.untyped_storage().data_ptr(): each.untyped_storage() for each in tensors}
    return {place: storage for place, storage in found.items() if place}


def unseen_buckets(model):
    """Bytes of DDP's buckets, which are C++'s; none if gradients are views of them, which Python knows."""
    if not isinstance(model, DistributedDataParallel) or model.gradient_as_bucket_view:
        return 0
    return sum(map(int, model._get_ddp_logging_data()["bucket_sizes"].split(",")))


def show(found):
    """What rank 0 found, which for losses is that of all."""
    if os.environ["RANK"] == "0":
        losses = " ".join(f"{loss:.5f}" for loss in found.losses)
        sys.stdout.write(f"{losses}\n{found.held:,} bytes held, {1e3 * found.seconds:.1f} ms a step\n")
