"""A model that is awkward to save, small enough to be saved often; what saves it, and what loads it."""

import torch
from torch import nn
from zero.ladder import all_of, everything, train, two_groups

from tinydist import checkpoint


class Small(nn.Module):
    """A shared parameter, a frozen one, one of a single number, fewer numbers than ranks; a buffer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.into, self.frozen, self.out = nn.Linear(8, 8), nn.Linear(8, 3).requires_grad_(False), nn.Linear(3, 8)
        self.tied = nn.Linear(8, 8, bias=False)
        self.tied.weight = self.into.weight
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.register_buffer("seen", torch.tensor([3, 4]))

    def forward(self, x):
        return self.out(self.frozen(self.tied(torch.tanh(self.into(x))))) * self.scale


OPTIMIZERS = {
    "AdamW": (torch.optim.AdamW, {"lr": 0.01, "amsgrad": True}),
    "SGD": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "NAdam": (torch.optim.NAdam, {"lr": 0.01}),
}


def saved_by(rung, optimizer, folder, steps=1, groups=False):
    module, (kind, options) = Small(), OPTIMIZERS[optimizer]
    zero = rung(module, kind, param_groups=two_groups(module) if groups else None, **options)
    train(zero, everything, steps)
    module.seen += 1
    checkpoint.save(zero, folder)
    return all_of(zero)


def loaded_by(rung, optimizer, folder, groups=False):
    """Into a module and an optimizer that have other numbers, and have stepped."""
    module, (kind, options) = Small(), OPTIMIZERS[optimizer]
    zero = rung(module, kind, param_groups=two_groups(module) if groups else None, **options | {"lr": 0.5})
    train(zero, everything, steps=2)
    checkpoint.load(zero, folder)
    return all_of(zero)
