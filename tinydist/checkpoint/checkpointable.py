"""``Checkpointable``: base class of all that can be saved and loaded; and an unsharded model with its optimizer."""

import torch

from .consensus import place_in
from .shard_overlap import Segment


class Checkpointable:
    """Each rank of ``group`` has every parameter, or a shard of it; ``replicas`` have the same shard, in other groups.

    rows            what is saved and loaded at once: a bucket, or a parameter
    kept, restore   a row's weight and optimizer states, and the reverse
    run, random     what else is saved: of all ranks, for JSON; and of each rank, tensors
    """

    replicas = None
    run, random = {}, {}

    @property
    def names(self):
        return {parameter: name for name, parameter in self.module.named_parameters()}

    @property
    def buffers(self):
        return dict(self.module.named_buffers())

    @property
    def saved_buffers(self):
        """By this rank."""
        return self.buffers if place_in(self.group)[0] == 0 else {}

    @property
    def optimizer_name(self):
        return type(self.optimizer).__name__

    def param_group(self, row):
        """The optimizer's; None, if the row is frozen."""
        return self.optimizer.param_groups[self.group_of[row]] if row in self.group_of else None

    def saved(self, row):
        """Parameter -> the segment that this rank saves. Its vectors are flat."""
        return row.saved

    def accept(self, states):
        """Raises ``CheckpointError`` if what else was saved does not fit."""


class ReplicatedParameter:
    """One parameter, in full on every rank. Each saves an equal part of it; all load all of it."""

    def __init__(self, parameter, group=None):
        self.parameters, self.shapes = [parameter], [tuple(parameter.shape)]
        self.device, size = parameter.device, parameter.numel()
        rank, ranks = place_in(group)
        share = -(-size // ranks)
        first = min(rank * share, size)
        self.segments = {parameter: Segment(0, 0, size)}
        self.saved = {parameter: Segment(first, first, min(share, size - first))}

    @property
    def shard(self):
        return self.parameters[0].detach().reshape(-1)

    def gathered(self, vector):
        return [vector.detach().clone().view(self.shapes[0])]

    def load(self, weight):
        self.parameters[0].copy_(weight.view(self.shapes[0]))


class UnshardedModel(Checkpointable):
    """A plain module and its optimizer: in one process, or replicated on every rank (DDP).

        checkpoint.load(UnshardedModel(model, torch.optim.AdamW(model.parameters())), folder)

    Each rank saves an equal part of each parameter, and loads all of it. Of the library's ``MasterWeights``, the
    masters are saved, as they are of ZeRO's stages. ``steps`` counts from construction, or from the loaded step:
    construct it before training begins. ``group``: the ranks that have the same; None is fine without a process group.
    Raises ``ValueError`` if the optimizer has a parameter that is not in the module.
    """

    def __init__(self, module, optimizer, group=None):
        self.module, self.optimizer, self.group = module, optimizer, group
        self.inner = getattr(optimizer, "optimizer", optimizer)  # MasterWeights steps by another one
        self.masters = getattr(optimizer, "masters", {})
        self.rows = [ReplicatedParameter(parameter, group) for parameter in module.parameters()]
        numbers = {p: number for number, each in enumerate(optimizer.param_groups) for p in each["params"]}
        if foreign := numbers.keys() - set(module.parameters()):
            shapes = ", ".join(str(list(p.shape)) for p in foreign)
            raise ValueError(f"UnshardedModel: the optimizer has parameters that are not in the module: {shapes}")
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
        weight = self.optimizer.upcast(parameter) if parameter in self.masters else parameter
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
