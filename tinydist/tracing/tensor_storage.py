"""The plain tensors in which a tensor is stored: itself, a DTensor's local shard, or a sparse tensor's parts."""

import torch
from torch._subclasses import FakeTensor

PLAIN = {torch.Tensor, torch.nn.Parameter, FakeTensor}
STORED = {  # layout -> what a tensor keeps in plain ones; a layout that is missing hides them
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}
WRAPPED = "_local_tensor", "elem"  # of a DTensor, and of a collective's result that nobody has waited for
SEQUENCES = list, tuple


def plain_tensors(tensor):
    if type(tensor) not in PLAIN:
        inside = next((getattr(tensor, part) for part in WRAPPED if hasattr(tensor, part)), None)
        if inside is not None:
            return plain_tensors(inside)  # which may be a wrapper too: a DTensor of a collective's result
    if tensor.layout is torch.strided:
        return [tensor]
    return [getattr(tensor, part)() for part in STORED.get(tensor.layout, ())]


def tensors_in(values):
    """The plain tensors of all that are among ``values``, in lists and tuples too."""
    found = []
    for value in values:
        if type(value) is torch.Tensor and value.layout is torch.strided:  # as most are
            found.append(value)
        elif isinstance(value, torch.Tensor):
            found += plain_tensors(value)
        elif isinstance(value, SEQUENCES):
            found += tensors_in(value)
    return found


def span(tensor):
    """The bytes of its storage among which a plain tensor lies."""
    begin = tensor.storage_offset() * tensor.itemsize
    return begin, begin + tensor.nbytes


def dims_cut(tensor):
    """The dims along which it is cut, if it is a rank's part of a larger one. (As a DTensor says.)"""
    placements = () if type(tensor) in PLAIN else getattr(tensor, "placements", ())
    return [each.dim for each in placements if each.is_shard()]
