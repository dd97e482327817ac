"""Machines that are lost: what a process sees of its folder and its batches in one start."""

from copy import deepcopy

import torch

ROWS = 8  # of a batch


class Lost(BaseException):
    """A machine, and with it this start."""


class Folder:
    """One that all machines see, as one process sees it in one start. In a write, it may be lost in the middle."""

    def __init__(self, content, cut):
        self.content, self.cut, self.writes, self.lost = dict(content), cut, 0, False

    def __contains__(self, name):
        return name in self.content

    def __iter__(self):
        return iter(sorted(self.content))

    def read(self, name):
        if name not in self.content:
            raise FileNotFoundError(name)
        if self.content[name] is None:
            raise EOFError(f"{name!r} ends in the middle: who wrote it was lost meanwhile")
        return deepcopy(self.content[name])

    def write(self, name, state):
        if not self.lost:
            self.writes += 1
            self.lost = self.writes == self.cut
            self.content[name] = None if self.lost else deepcopy(state)

    def rename(self, old, new):
        if not self.lost:
            self.content[new] = self.content.pop(old)


def batches(end, begun, dtype):
    def batch_of(step):
        if step == end:
            raise Lost
        begun.append(step)
        numbers = torch.Generator().manual_seed(100 + step)
        return tuple(torch.randn(*shape, generator=numbers, dtype=dtype) for shape in ((ROWS, 3), (ROWS,)))

    return batch_of
