"""FSDP units: modules whose parameters are gathered and freed together; ownership, and order for prefetching.

defined     embedding, block 1, block 2, head
recorded    those that ran in the last forward, in that order: the next one is prefetched
backward    those that ended in this forward, in reverse
"""

import torch
from torch import nn


class Order:
    """Execution order of units: definition order until a forward is recorded. (Without the outermost unit.)"""

    def __init__(self, units):
        self.expected, self.begun, self.ended = list(units), [], []

    def forward_begins(self):
        self.expected, self.begun, self.ended = self.begun or self.expected, [], []

    def begins(self, unit):
        """The next two units; none, if another one was expected."""
        place = len(self.begun)
        self.begun.append(unit)
        return self.expected[place + 1 : place + 3] if self.expected[place : place + 1] == [unit] else []

    def ends(self, unit):
        self.ended.append(unit)

    def comes_back_to(self, unit):
        """In backward. The next two units."""
        while unit in self.ended and self.ended.pop() is not unit:
            pass
        return self.last()

    def first(self):
        return self.expected[:2]

    def last(self):
        return self.ended[:-3:-1]


def in_order(name, module, units):
    """``units``, modules or a policy, as a list in the module's order; the outermost is the first."""
    inside = list(module.modules())
    chosen = [each for each in inside if units(each)] if callable(units) else list(units)
    foreign = [type(unit).__name__ for unit in chosen if unit not in inside]
    if foreign:
        raise ValueError(f"{name}: units must be submodules of the module, got {', '.join(foreign)}")
    lists = [type(unit).__name__ for unit in chosen if isinstance(unit, nn.ModuleList | nn.ModuleDict)]
    if lists:
        raise ValueError(f"{name}: {lists[0]} has no forward() and cannot be a unit")
    return [each for each in inside if each is module or each in chosen]


def owners(module, units):
    """Parameter -> the innermost of ``units`` around all modules that use it."""
    paths = {}

    def visit(inside, path):
        path = (*path, inside) if inside in units else path
        for parameter in inside.parameters(recurse=False):
            known = paths.get(parameter, path)
            paths[parameter] = tuple(a for a, b in zip(known, path) if a is b)
        for child in inside.children():
            visit(child, path)

    visit(module, ())
    return {parameter: path[-1] for parameter, path in paths.items()}


def tensors_in(output):
    if isinstance(output, torch.Tensor):
        return [output]
    inside = output.values() if isinstance(output, dict) else output if isinstance(output, list | tuple) else ()
    return [tensor for each in inside for tensor in tensors_in(each)]
