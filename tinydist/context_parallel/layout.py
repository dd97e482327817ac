"""Which tokens of a sequence each rank has: contiguous parts, or zig-zag, which balances a causal mask.

    16 tokens, 4 ranks       0 1 2 3   4 5 6 7   8 9 10 11   12 13 14 15
    contiguous               rank 0    rank 1    rank 2      rank 3          query i reads i + 1 keys: rank 3 has most
    zig-zag                  0   1     2   3     3   2       1   0           rank r: chunks r and 2p-1-r of 2p

Pairs of a query and a key that the mask leaves, busiest rank over mean, for N >> p tokens: (2p-1)/p contiguous, 1
zig-zag. Where the tokens do not divide, parts are uneven (the first chunks have one token more), and nothing is padded.
Striped attention deals single tokens out in turn (Brandon et al. 2023, arXiv 2311.09431); zig-zag is what Megatron-core
(utils.py, get_batch_on_this_cp_rank) and PyTorch (_HeadTailLoadBalancer) do.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from ..collectives.autograd import Conjugates, along
from ..rules import flag, validate, whole, within

length = within(1, 2**31)  # of a sequence, in tokens


@dataclass(frozen=True)
class SequenceLayout:
    """Of ``tokens`` over the ranks of a group; as it stands, over this rank alone."""

    tokens: int
    rank: int = 0
    ranks: int = 1
    balanced: bool = False
    group: dist.ProcessGroup | None = None

    @classmethod
    def over(cls, name, tokens, group=None, balanced=True):
        """``name`` is whose errors they are."""
        layout = cls(tokens, dist.get_rank(group), dist.get_world_size(group), balanced, group)
        if tokens < layout.ranks:
            rule = f"each rank needs a token, but there are {tokens} for {layout.ranks} ranks"
            raise ValueError(f"{name}: {rule} (rank {layout.rank})")
        return layout

    def chunks(self, rank):
        """Its tokens, as ranges that are contiguous: one, or the two of zig-zag."""
        parts = self.ranks * (1 + self.balanced)
        each, more = divmod(self.tokens, parts)
        mine = (rank, parts - 1 - rank) if self.balanced else (rank,)
        begin = [i * each + min(i, more) for i in range(parts + 1)]
        return [range(begin[i], begin[i + 1]) for i in mine]

    def size(self, rank):
        return sum(map(len, self.chunks(rank)))

    @property
    def sizes(self):
        return [self.size(rank) for rank in range(self.ranks)]

    def positions(self, rank, device=None):
        return torch.cat([torch.arange(each.start, each.stop, device=device) for each in self.chunks(rank)])

    def order(self, device=None):
        """The positions of all parts, one after another."""
        return torch.cat([self.positions(rank, device) for rank in range(self.ranks)])

    def seen(self, rank, owner, causal):
        """Of a rank's queries and an owner's keys, those that meet, as slices of their parts; None if the mask hides
        all. Every one of these queries sees all of these keys, but where the owner is the rank itself."""
        everything = slice(0, self.size(rank)), slice(0, self.size(owner))
        if not causal or rank == owner:
            return everything
        first, *last = self.chunks(min(rank, owner))
        if owner > rank:  # only the rank's later chunk comes after the owner's
            everything = slice(len(first), self.size(rank)), everything[1]
            return everything if last and len(last[0]) else None
        return everything[0], slice(0, len(first))  # only the owner's earlier chunk comes before the rank's


def layout_of(name, q, group, balanced, tokens, dim=2):
    """The layout of local tensors along ``dim``; ``tokens`` None: all ranks have equally many."""
    size = q.shape[dim]
    tokens = size * dist.get_world_size(group) if tokens is None else tokens
    layout = SequenceLayout.over(name, tokens, group, balanced)
    if size != (expected := layout.size(layout.rank)):
        rule = f"of {layout.tokens} tokens this rank has {expected}, got {size}"
        raise ValueError(f"{name}: {rule} (rank {layout.rank})")
    return layout


@validate(tokens=length, group=dist.ProcessGroup, balanced=flag)
def positions(tokens, group=None, balanced=True):
    """Where this rank's tokens are in the sequence of ``tokens``, [T/cp]."""
    layout = SequenceLayout.over("positions", tokens, group, balanced)
    return layout.positions(layout.rank)


@validate(tensor=torch.Tensor, group=dist.ProcessGroup, dim=whole, balanced=flag)
def shard_sequence(tensor, group=None, dim=1, balanced=True):
    """This rank's part of ``tensor``, which all ranks have. Sends nothing; in backward, zeros elsewhere."""
    tokens = tensor.shape[along(tensor, dim)]
    layout = SequenceLayout.over("shard_sequence", tokens, group, balanced)
    return tensor.index_select(dim, layout.positions(layout.rank, tensor.device))


@validate(tensor=torch.Tensor, group=dist.ProcessGroup, dim=whole, balanced=flag, tokens=length)
def unshard_sequence(tensor, group=None, dim=1, balanced=True, tokens=None):
    """The whole sequence, on all ranks, from each one's part: an all-gather; backward, a reduce-scatter.

    tokens:  of the sequence; None: all ranks have equally many.
    """
    along(tensor, dim)
    layout = layout_of("unshard_sequence", tensor, group, balanced, tokens, dim)
    order = layout.order(tensor.device)

    def there(part):
        whole = torch.cat(gathered(part.movedim(dim, 0), layout))
        return torch.empty_like(whole).index_copy_(0, order, whole).movedim(0, dim)

    def back(gradient):
        parts = gradient.movedim(dim, 0)[order].split(layout.sizes)
        return summed(torch.stack([padded(each, max(layout.sizes)) for each in parts]), layout).movedim(0, dim)

    return Conjugates.apply(tensor, there, back)


# Parts along dim 0, which may be uneven: they travel at the size of the largest.


def gathered(part, layout):
    """All ranks' parts, in their order."""
    largest = max(layout.sizes)
    found = part.new_empty(layout.ranks, largest, *part.shape[1:])
    dist.all_gather_single(found.flatten(0, 1), padded(part, largest), group=layout.group)
    return [each[:size] for each, size in zip(found, layout.sizes)]


def summed(parts, layout):
    """This rank's part of the sum over all ranks of ``parts``, [p, size of the largest, ...]."""
    mine = parts.new_empty(parts.shape[1:])
    dist.reduce_scatter_single(mine, parts.flatten(0, 1), group=layout.group)
    return mine[: layout.size(layout.rank)]


def padded(part, size):
    if len(part) == size:
        return part.contiguous()
    return torch.cat([part, part.new_zeros(size - len(part), *part.shape[1:])])
