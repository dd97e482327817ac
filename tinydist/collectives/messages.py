"""The primitives of the algorithms: send to a rank of the group, receive from one, or both at once (sendrecv)."""

import torch.distributed as dist

from ..rules import shown, whole


def place(group=None):
    """(this rank, number of ranks) in the group."""
    return dist.get_rank(group), dist.get_world_size(group)


def place_of(rank, group=None):
    """The rank in the group of a rank of the world, as torch.distributed takes ``src`` and ``dst``."""
    if group is not None:
        return dist.get_group_rank(group, rank)
    check_root(rank, dist.get_world_size())
    return rank


def check_root(rank, ranks):
    if not (whole(rank) and rank < ranks):
        raise ValueError(f"the root must be a rank from 0 to {ranks - 1}, got {shown(rank)}")


def check_parts(name, parts, ranks, rank, mine):
    """One for each rank, of which this rank's is like ``mine``."""
    if len(parts) != ranks:
        raise ValueError(f"{name}: expected {ranks} parts, one per rank, got {len(parts)} (rank {rank})")
    if parts[rank].shape != mine.shape or parts[rank].dtype != mine.dtype:
        raise ValueError(f"{name}: part {rank} is {shown(parts[rank])}, expected {shown(mine)} (rank {rank})")


def group_root(group=None):
    """The rank of the world that is rank 0 of the group."""
    return 0 if group is None else dist.get_global_rank(group, 0)


def send(tensor, to, group=None):
    dist.isend(tensor, group=group, group_dst=to).wait()


def receive(tensor, source, group=None):
    dist.irecv(tensor, group=group, group_src=source).wait()


def exchange(outgoing, to, incoming, source, group=None):
    """Send one tensor and receive another at the same time (sendrecv): blocking sends and receives could deadlock."""
    exchange_at_once([(outgoing, to, incoming, source)], group)


def exchange_at_once(exchanges, group=None):
    """Several of them: (outgoing, to, incoming, source) each."""
    messages = []
    for outgoing, to, incoming, source in exchanges:
        messages.append(dist.P2POp(dist.isend, outgoing, group=group, group_peer=to))
        messages.append(dist.P2POp(dist.irecv, incoming, group=group, group_peer=source))
    for work in dist.batch_isend_irecv(messages) if messages else ():
        work.wait()


def as_contiguous_1d(tensor, name):
    """The tensor as a flat (1-D) view; it must be contiguous."""
    if not tensor.is_contiguous():
        got = f"shape {list(tensor.shape)} with strides {list(tensor.stride())}"
        raise ValueError(f"{name}: works in place, so the tensor must be contiguous, got {got}")
    return tensor.view(-1)
