"""A plain module and its optimizer, as checkpoints see them: whole in one process, or the same on every rank (DDP).

    checkpoint.load(Whole(model, torch.optim.AdamW(model.parameters())), folder)

Each rank saves an equal part of each parameter, and loads all of it. With the library's ``MasterWeights`` the masters
are what is saved, as they are of ZeRO's stages.
"""

import torch

from .pieces import Segment
from .trained import Trained
from .unanimous import place_in


class Replicated:
    """One parameter that every rank has whole. Each saves an equal part of it; all load all of it."""

    def __init__(self, parameter, group=None):
        self.parameters, self.shapes = [parameter], [tuple(parameter.shape)]
        self.device, size = parameter.device, parameter.numel()
        rank, ranks = place_in(group)
        share = -(-size // ranks)
        first = min(rank * share, size)
        self.segments = {parameter: Segment(0, 0, size)}
        self.saved = {parameter: Segment(first, first, min(share, size - first))}

    @property
    def mine(self):
        return self.parameters[0].detach().reshape(-1)

    def gathered(self, vector):
        return [vector.detach().clone().view(self.shapes[0])]

    def load(self, weight):
        self.parameters[0].copy_(weight.view(self.shapes[0]))


class Whole(Trained):
    """``steps`` counts from here, or from what is loaded: make it before training begins.

    ``group``: the ranks that have the same. A process without a process group is alone. Raises ``ValueError`` if the
    optimizer has a parameter that the module has not.
    """

    def __init__(self, module, optimizer, group=None):
        self.module, self.optimizer, self.group = module, optimizer, group
        self.inner = getattr(optimizer, "optimizer", optimizer)  # MasterWeights steps by another one
        self.masters = getattr(optimizer, "masters", {})
        self.rows = [Replicated(parameter, group) for parameter in module.parameters()]
        numbers = {p: number for number, each in enumerate(optimizer.param_groups) for p in each["params"]}
        if foreign := numbers.keys() - set(module.parameters()):
            shapes = ", ".join(str(list(p.shape)) for p in foreign)
            raise ValueError(f"Whole: the optimizer has parameters that are none of the module's: {shapes}")
        trained = {row: row.parameters[0] for row in self.rows if row.parameters[0].requires_grad}
        self.group_of = {row: numbers[p] for row, p in trained.items() if p in numbers}
        self.steps = 0
        optimizer.register_step_post_hook(self._has_stepped)

    def _has_stepped(self, *_):
        self.steps += 1

    @property
    def optimizer_name(self):
        return type(self.inner).__name__

    def kept(self, row):
        """The (master) weight and what else has its shape, flat; and what else the optimizer keeps."""
        (parameter,) = row.parameters
        master = self.masters.get(parameter, parameter)
        state = self.inner.state.get(master, {})
        counts = set() if parameter.dim() else self._counts()
        shaped = {key: value for key, value in state.items() if value.shape == parameter.shape and key not in counts}
        weight = self.optimizer.wide(parameter) if parameter in self.masters else parameter
        vectors = {key: vector.detach().reshape(-1) for key, vector in ({"weight": weight} | shaped).items()}
        return vectors, {key: state[key] for key in state.keys() - shaped.keys()}

    def _counts(self):
        """What is one number for any parameter: seen where a parameter is more than one."""
        states = [state for parameter, state in self.inner.state.items() if parameter.dim()]
        return {"step"} | {key for state in states for key, value in state.items() if not value.dim()}

    @torch.no_grad()
    def restore(self, loaded):
        """The reverse, of all rows: row -> (vectors, scalars)."""
        shaped = {
            row.parameters[0]: ({key: v.view(row.shapes[0]) for key, v in vectors.items()}, scalars)
            for row, (vectors, scalars) in loaded.items()
        }
        inside = [p for each in self.optimizer.param_groups for p in each["params"]]
        states = [{k: v for k, v in shaped[p][0].items() if k != "weight"} | shaped[p][1] for p in inside]
        packed = self.inner.state_dict() | {"state": {i: state for i, state in enumerate(states) if state}}
        if self.masters:
            packed = {"masters": [shaped[p][0]["weight"] for p in inside], "optimizer": packed}
        self.optimizer.load_state_dict(packed)
        for parameter in shaped.keys() - self.masters.keys():  # those of masters have been written with them
            parameter.copy_(shaped[parameter][0]["weight"])
