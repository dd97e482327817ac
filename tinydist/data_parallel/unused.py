"""Which parameters will get no gradient: a walk over the autograd graph, before backward goes over it.

    output ---> node ---> node ---> gradient of a weight         reached
                  '-----> node ---> gradient of a bias           reached
                                    gradient of a spare weight   not: its bucket need not wait for it

Without the walk nobody knows until backward has ended, and each bucket with such a parameter waits till then. It costs
a visit to each node of the graph, on the CPU, in every iteration, even where nothing is ever unused: some 2 us each in
Python, where backward takes 5 us at least to start the node's kernel on a GPU.
Source: Li et al., PyTorch Distributed, 2020, section 3.2.3; PyTorch's Reducer, which warns of it.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass

import torch

from ..rules import each_of, takes


@takes(parameters=each_of(torch.Tensor, 0))
def unused(parameters, output):
    """Those of ``parameters`` that backward from ``output`` will not reach; none if there is no tensor in it."""
    tensors = list(tensors_in(output))
    reached = {getattr(node, "variable", None) for node in nodes_under(tensors)} | set(tensors)
    return [parameter for parameter in parameters if parameter not in reached] if tensors else []


def nodes_under(tensors):
    """Each node of the autograd graph that backward from ``tensors`` runs, once."""
    seen, waiting = set(), [tensor.grad_fn for tensor in tensors]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            waiting += [following for following, _ in node.next_functions]


def tensors_in(output):
    """In what a forward may return: a tensor, or lists, dicts and dataclasses of them."""
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, Mapping):
        yield from tensors_in(list(output.values()))
    elif isinstance(output, list | tuple):
        for each in output:
            yield from tensors_in(each)
    elif is_dataclass(output):
        yield from tensors_in([getattr(output, field.name) for field in fields(output)])
