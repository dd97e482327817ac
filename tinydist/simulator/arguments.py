"""What a rank hands to a collective: checked as a real backend checks it, and cut in a piece for each rank.

``handle`` is the rank's SimulatedProcessGroup.
"""

import torch

from .matching import MismatchError
from .transfer import NAMES


def where(handle, name):
    return f"{name} on rank {handle.owner} of {handle.group}"


def reduction_of(handle, name, opts):
    """The name of the reduction that ``opts`` asks for."""
    reduction = NAMES.get(int(opts.reduceOp.op))
    if reduction is None:
        raise NotImplementedError(f"{where(handle, name)}: simulated ranks cannot reduce with {opts.reduceOp.op}")
    return reduction


def check_plain(handle, name, tensors, reduction):
    """Dense and with data; a sum may be of sparse ones, as on gloo."""
    for tensor in tensors:
        dense = tensor.layout is torch.strided
        if dense and not (tensor.is_quantized or tensor.is_nested or tensor.is_meta):
            continue
        if name == "all_reduce" and reduction == "SUM" and tensor.is_sparse:
            continue
        what = str(tensor.dtype if tensor.is_quantized else tensor.device if dense else tensor.layout)
        also = ", or sparse_coo to sum" if name == "all_reduce" else ""
        raise ValueError(f"{where(handle, name)}: the tensors must be dense and have data{also}, got one of {what}")


def check_count(handle, name, what, tensors):
    if len(tensors) != handle.count:
        raise ValueError(
            f"{where(handle, name)}: {what} needs {handle.count} tensors, one for each rank, got {len(tensors)}"
        )


def check_pieces(handle, name, what, pieces, like):
    """One piece for each rank, each of the shape and dtype of ``like``."""
    check_count(handle, name, what, pieces)
    for index, piece in enumerate(pieces):
        if piece.shape != like.shape or piece.dtype != like.dtype:
            raise ValueError(
                f"{where(handle, name)}: {what}[{index}] is {list(piece.shape)} {piece.dtype}, but the tensor that "
                f"belongs to it is {list(like.shape)} {like.dtype}"
            )


def cut(handle, name, what, whole, piece):
    """``whole`` as one flat piece for each rank, each of the size of ``piece``."""
    needed = handle.count * piece.numel()
    if whole.numel() != needed or whole.dtype != piece.dtype:
        raise ValueError(
            f"{where(handle, name)}: {what} needs {handle.count} ranks x {piece.numel()} = {needed} elements of "
            f"{piece.dtype}, got {whole.numel()} of {whole.dtype}"
        )
    return whole.view(handle.count, -1).unbind() if needed else [whole.view(-1)] * handle.count


def split(handle, what, tensor, sizes):
    """``tensor`` cut along its first dim: by ``sizes``, or evenly."""
    rows = tensor.shape[0]
    if not sizes and rows % handle.count:
        raise ValueError(
            f"{where(handle, 'all_to_all')}: {rows} rows of {what} do not divide among {handle.count} ranks"
        )
    sizes = list(sizes) or [rows // handle.count] * handle.count
    if len(sizes) != handle.count or sum(sizes) != rows:
        raise ValueError(
            f"{where(handle, 'all_to_all')}: {what} needs {handle.count} split sizes whose sum is its {rows} rows, "
            f"got {sizes}"
        )
    return tensor.split(sizes)


def check_splits(group, calls):
    """What one rank of an all_to_all sends another must be what that one expects."""
    for source, sender in enumerate(calls):
        for destination, receiver in enumerate(calls):
            sent, expected = sender.inputs[destination], receiver.outputs[source]
            if sent.shape != expected.shape or sent.dtype != expected.dtype:
                source, destination = group.ranks[source], group.ranks[destination]
                raise MismatchError(
                    f"all_to_all on {group}: rank {source} sends {list(sent.shape)} {sent.dtype} to rank "
                    f"{destination}, which expects {list(expected.shape)} {expected.dtype} from it\n"
                    f"  rank {source} calls at {sender.site}\n  rank {destination} calls at {receiver.site}"
                )
