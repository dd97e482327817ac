"""Activations in host memory: copied out in forward, back in backward, while the device computes.

    compute     forward 1 | forward 2 | forward 3 | backward 3 | backward 2 | backward 1
    to host               1 |         2 |
    to device                                      2 |          1 |

At most ``ahead`` copies are under way in a direction: before the next one begins, compute waits for the oldest. What is
still on its way out when backward needs it never left. On GPUs the host's memory is pinned, and copies have a stream of
their own; in virtual time, one for each direction.

A run of s seconds hides the copy of its input of n bytes if s >= n / bandwidth. Source: Ren et al. 2021, ZeRO-Offload,
has the streams; Rajbhandari et al. 2020, ZeRO, section 6.1, P_a+cpu, the idea.
"""

from collections import Counter, deque
from itertools import count as numbers
from weakref import WeakValueDictionary

import torch
from torch import nn
from torch._subclasses import FakeTensor
from torch.autograd.graph import saved_tensors_hooks

from ..annotate import begin_copy, purpose
from ..hardware import Link
from ..hardware.costs import p2p_time
from ..hardware.links import PCIE_4
from ..rules import count, validate
from ..torch_internals import unobserved


@validate(link=Link, ahead=count)
class Offloaded(saved_tensors_hooks):
    """For ``recompute(..., keep=Offloaded())``, or as a context around any forward. Parameters stay where they are."""

    def __init__(self, link=PCIE_4, ahead=1):
        super().__init__(self.store, self.load)
        self.link, self.ahead = link, ahead
        self.moved = Counter()  # "to host", "to device" -> bytes
        self.leaving = deque()  # those on their way out, each with the wait for it
        self.known = WeakValueDictionary()  # number -> each, in the order of forward, while its graph lives
        self.numbers = numbers()
        self.stream = None  # of a GPU

    def store(self, tensor):
        if isinstance(tensor, nn.Parameter) or isinstance(tensor._base, nn.Parameter):
            return tensor
        kept = self.known[next(self.numbers)] = Kept(tensor)
        with unobserved():
            kept.host = host_like(tensor)
        self.leaving.append((kept, self.copy("to host", kept.host, tensor.detach(), tensor)))
        while len(self.leaving) > self.ahead:
            left, wait = self.leaving.popleft()
            wait()
            left.device = None
        return kept

    def load(self, kept):
        if not isinstance(kept, Kept):
            return kept
        self.leaving = deque(each for each in self.leaving if each[0] is not kept)
        order = [*self.known.values()]
        place = order.index(kept)
        waiting = [each for each in order[:place] if not each.used]
        for coming in [kept, *waiting[: -self.ahead - 1 : -1]]:  # and the next ones of backward
            self.fetch(coming)
        kept.arrive()
        kept.used = True
        tensor, kept.device = kept.device, None
        return tensor

    def fetch(self, kept):
        if kept.device is None:
            with purpose("activations"):
                kept.device = torch.empty_like(kept.host, device=kept.place)
            kept.arrive = self.copy("to device", kept.device, kept.host, kept.device)

    def copy(self, name, target, source, on_device):
        """Start it; returns the wait for it, in which the host goes on if the device is a GPU."""
        nbytes = on_device.nbytes
        self.moved[name] += nbytes
        end = begin_copy(name, on_device, nbytes, p2p_time(nbytes, self.link))
        if not on_device.is_cuda:
            if not isinstance(on_device, FakeTensor):
                with unobserved():
                    target.copy_(source)
            return end
        now = torch.cuda.current_stream(on_device.device)
        self.stream = self.stream or torch.cuda.Stream(on_device.device)
        self.stream.wait_stream(now)
        with torch.cuda.stream(self.stream):
            target.copy_(source, non_blocking=True)
            copied = self.stream.record_event()
        return lambda: torch.cuda.current_stream(on_device.device).wait_event(copied)


class Kept:
    """One activation. ``device``: where it is needed, or None; ``host``: its copy; ``arrive``: wait for it; ``used``:
    backward took it, and seldom wants it twice."""

    def __init__(self, tensor):
        self.used = False
        self.device, self.place, self.arrive = tensor.detach(), tensor.device, lambda: None


def host_like(tensor):
    """In pinned memory, for a GPU. (For a fake tensor, without data.)"""
    if isinstance(tensor, FakeTensor):
        return torch.empty_like(tensor, device="meta")
    return torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
