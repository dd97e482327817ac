"""Sharding of a parameter along one dim: this rank's shard, and the all-gather of the full parameter.

    Cut(dim=0)                          rows of a weight: outputs              rank 0 | rank 1
    Cut(dim=1)                          columns: inputs
    Cut(dim=0, blocks=3)                of a fused QKV projection: rows of each of the three
    Cut(dim=0, parts=2), on 4 ranks     each part on two ranks: two copies

Parts differ by at most one row, the first ones are larger. A parameter without a cut is replicated, and so is its
gradient.
"""

from dataclasses import dataclass
from math import prod

import torch
import torch.distributed as dist
from torch import nn


@dataclass(frozen=True)
class Cut:
    dim: int
    size: int  # of all of it, along dim
    part: int
    parts: int
    copies: int  # ranks that have this part
    blocks: int = 1

    def __post_init__(self):
        if self.size // self.blocks < self.parts:
            raise ValueError(f"cut: cannot split a dim of size {self.size // self.blocks} over {self.parts} ranks")

    @classmethod
    def among(cls, layout, dim, size, blocks=1):
        """One part for each rank of the layout's group."""
        return cls(dim, size, layout.rank, layout.ranks, 1, blocks)

    @property
    def sizes(self):
        """Of the parts of a block."""
        each, more = divmod(self.size // self.blocks, self.parts)
        return [each + (part < more) for part in range(self.parts)]

    @property
    def places(self):
        """The indices of this rank's part in a block."""
        begin = sum(self.sizes[: self.part])
        return range(begin, begin + self.sizes[self.part])

    @property
    def holders(self):
        """Ranks of the group that have this rank's part."""
        return range(self.part * self.copies, (self.part + 1) * self.copies)

    def whole_shape(self, shape):
        """The shape of the full parameter, from that of a part."""
        return (*shape[: self.dim], self.size, *shape[self.dim + 1 :])

    def columns(self, shape):
        """(lines, first, columns): a part of ``shape`` is the same columns of each line of a matrix."""
        after = prod(shape[self.dim + 1 :])
        return prod(shape[: self.dim]) * self.blocks, self.places.start * after, len(self.places) * after

    def parameter(self, whole):
        """This rank's part of a parameter; its attribute ``cut`` is this cut."""
        parameter = nn.Parameter(self.own(whole.detach()), whole.requires_grad)
        parameter.cut = self
        return parameter

    def own(self, tensor):
        """A copy of this rank's part of the full tensor."""
        blocks = tensor.unflatten(self.dim, (self.blocks, -1)).split(self.sizes, self.dim + 1)
        return blocks[self.part].flatten(self.dim, self.dim + 1).clone()

    def whole(self, tensor, group=None):
        """The full tensor, from this rank's part. A collective."""
        own = tensor.unflatten(self.dim, (self.blocks, -1)).movedim(self.dim + 1, 0)
        sizes = self.sizes
        own = torch.cat([own, own.new_zeros(max(sizes) - len(own), *own.shape[1:])])  # all parts have one size
        found = [torch.empty_like(own) for _ in range(self.parts * self.copies)]
        dist.all_gather(found, own, group)
        whole = torch.cat([each[:size] for each, size in zip(found[:: self.copies], sizes)])
        return whole.movedim(0, self.dim + 1).flatten(self.dim, self.dim + 1)


def copied(parameter):
    """Replicated."""
    return nn.Parameter(parameter.detach().clone(), parameter.requires_grad)


def cut_of(parameter) -> Cut | None:
    return getattr(parameter, "cut", None)


def copies_of(parameter, group=None):
    """How many ranks of the group hold the same elements of this parameter."""
    cut = cut_of(parameter)
    return cut.copies if cut else dist.get_world_size(group)
