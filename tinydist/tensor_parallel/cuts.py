"""Which part of a parameter a rank has, and all of it again.

    Cut(dim=0)                          rows of a weight: outputs              rank 0 | rank 1
    Cut(dim=1)                          columns: inputs
    Cut(dim=0, blocks=3)                of queries, keys, values one under the other: rows of each of the three
    Cut(dim=0, parts=2), on 4 ranks     each part on two ranks: two copies

Parts are as equal as can be, the first ones larger. A parameter without a cut is replicated: all ranks have all of it,
the same, and the same gradient.
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
            raise ValueError(
                f"cut: a part for each of {self.parts} ranks, but there are {self.size // self.blocks} rows"
            )

    @classmethod
    def among(cls, layout, dim, size, blocks=1):
        """One part for each rank of a layout's group."""
        return cls(dim, size, layout.rank, layout.ranks, 1, blocks)

    @property
    def sizes(self):
        """Of the parts of a block, as equal as can be."""
        each, more = divmod(self.size // self.blocks, self.parts)
        return [each + (part < more) for part in range(self.parts)]

    @property
    def places(self):
        """Of this rank's part in a block."""
        begin = sum(self.sizes[: self.part])
        return range(begin, begin + self.sizes[self.part])

    @property
    def holders(self):
        """Ranks of the group that have this rank's part."""
        return range(self.part * self.copies, (self.part + 1) * self.copies)

    def whole_shape(self, shape):
        """Of a part of ``shape``, that of all of it."""
        return (*shape[: self.dim], self.size, *shape[self.dim + 1 :])

    def columns(self, shape):
        """(lines, first, columns): a part of ``shape`` is the same columns of each line of a matrix."""
        after = prod(shape[self.dim + 1 :])
        return prod(shape[: self.dim]) * self.blocks, self.places.start * after, len(self.places) * after

    def parameter(self, whole):
        """This rank's part of a parameter, as one that knows its cut."""
        parameter = nn.Parameter(self.own(whole.detach()), whole.requires_grad)
        parameter.cut = self
        return parameter

    def own(self, tensor):
        """Of all of it, this rank's part: a copy."""
        blocks = tensor.unflatten(self.dim, (self.blocks, -1)).split(self.sizes, self.dim + 1)
        return blocks[self.part].flatten(self.dim, self.dim + 1).clone()

    def whole(self, tensor, group=None):
        """Of this rank's part, all of it. All ranks call it."""
        own = tensor.unflatten(self.dim, (self.blocks, -1)).movedim(self.dim + 1, 0)
        sizes = self.sizes
        own = torch.cat([own, own.new_zeros(max(sizes) - len(own), *own.shape[1:])])  # all send as much
        found = [torch.empty_like(own) for _ in range(self.parts * self.copies)]
        dist.all_gather(found, own, group)
        whole = torch.cat([each[:size] for each, size in zip(found[:: self.copies], sizes)])
        return whole.movedim(0, self.dim + 1).flatten(self.dim, self.dim + 1)


def copied(parameter):
    """All of it."""
    return nn.Parameter(parameter.detach().clone(), parameter.requires_grad)


def cut_of(parameter) -> Cut | None:
    return getattr(parameter, "cut", None)


def copies_of(parameter, group=None):
    """On how many ranks of the group the numbers of this parameter are."""
    cut = cut_of(parameter)
    return cut.copies if cut else dist.get_world_size(group)
