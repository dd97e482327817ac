"""Unused parameters: traverse the autograd graph before backward to find parameters that will get no gradient.

    output ---> node ---> node ---> gradient of a weight         reached
                  '-----> node ---> gradient of a bias           reached
                                    gradient of a spare weight   not: its bucket need not wait for it

Without the traversal a bucket with an unused parameter would have to wait for the end of backward. It visits every node
of the graph on the CPU in every iteration, even if nothing is ever unused: about 2 us per node in Python, where
backward takes at least 5 us to launch the node's kernel on a GPU.
Source: Li et al., PyTorch Distributed, 2020, section 3.2.3; PyTorch's Reducer, which warns of it.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass

import torch
import torch.distributed as dist

from ..rules import each_of, validate
from .reducer import Reducer


class ReducerWithUnused(Reducer):
    """A Reducer for losses that leave parameters out. At the end of backward the ranks ask one another who has used
    what: in every step; or, of a ``static_graph``, in the first, and there is no walk."""

    def __init__(self, static_graph, *arguments):
        super().__init__(*arguments)
        self.static_graph = static_graph
        self.learning = self.learning and static_graph
        self.unused = None  # parameters that need not be waited for, once they are known

    def prepare_for_backward(self, output):
        if not self.static_graph:
            self.unused = unused(list(self.bucket_of), output)

    @property
    def _asking(self):
        return not self.static_graph or self.unused is None

    def _begin_backward(self):
        self._mark_ready(self.unused or ())

    def _without_gradient(self, missing):
        if not self._asking:
            super()._without_gradient(missing)
        self._mark_ready(missing)

    def _finalize_backward(self):
        super()._finalize_backward()
        if self._asking:
            self._finalize_unused_parameters()

    def _finalize_unused_parameters(self):
        """A parameter used by any rank gets the mean gradient on all ranks; for globally unused ones it stays None."""
        parameters = list(self.bucket_of)
        used = torch.tensor([p.grad is not None for p in parameters], dtype=torch.uint8, device=parameters[0].device)
        dist.all_reduce(used, dist.ReduceOp.MAX, group=self.group)
        by_some_rank = dict(zip(parameters, used.tolist()))
        for parameter in parameters:
            if by_some_rank[parameter]:
                parameter.grad = self.bucket_of[parameter].views[parameter]
        if self.static_graph:
            self.unused = [parameter for parameter in parameters if not by_some_rank[parameter]]

    def _why_late(self, name):
        if self.static_graph:
            return f"static_graph is True, but {name} is used in the loss now but was not in the first step"
        return f"the last forward output is independent of {name}, but it got a gradient: its bucket is reduced"


@validate(parameters=each_of(torch.Tensor, 0))
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
