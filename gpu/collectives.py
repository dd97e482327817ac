"""Our all-reduce, from messages alone, beside that of the backend: the same sums, and the seconds of each."""

import torch
import torch.distributed as dist

from tinydist.collectives import halving, ring, tree

from .training import now

ALGORITHMS = {"ring": ring.all_reduce, "tree": tree.all_reduce, "halving": halving.all_reduce}
COUNTS = {"cuda": (1 << 10, 1 << 20, 1 << 26), "cpu": (1 << 10, 1 << 16)}  # numbers
REPEATS = 5


def measured(device):
    """(name, count, seconds) of each; raises ``AssertionError`` for another sum."""
    found = []
    for count in COUNTS[device]:
        mine = torch.arange(count, device=device, dtype=torch.float32) % 7 + dist.get_rank()  # whole: sums are exact
        expected = mine.clone()
        dist.all_reduce(expected)
        for name, all_reduce in {"the backend's": dist.all_reduce, **ALGORITHMS}.items():
            seconds = []
            for _ in range(REPEATS):
                total = mine.clone()
                began = now(device)
                all_reduce(total)
                seconds.append(now(device) - began)
            torch.testing.assert_close(total, expected, rtol=0, atol=0, msg=lambda text, name=name: f"{name}: {text}")
            found.append((name, count, min(seconds)))
    return found


def compare(machine):
    found = machine.launch(measured, machine.device).results[0]
    return [{"all-reduce": name, "numbers": count, "seconds": seconds} for name, count, seconds in found]
