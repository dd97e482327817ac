"""Checkpoints of a training run, which can be resharded to another mesh or loaded into a plain model.

    save(engine, folder)              the full state: master weights, optimizer, scaler, RNG states, step, plan
    load(engine, folder)              the same, whatever the mesh that saved it
    load_weights(model, folder)       the weights alone: of an engine, or of a plain model in one process;
    load_weights(model, file)         of a checkpoint, or of a plain model's safetensors

What is saved is known by a parameter's name in the whole model, and its place in it: which part tensor parallelism has
left, and which shard of that. Each number is written once, by the first of the ranks that have it:

    replicate    copies of a shard; cp, in ZeRO 0    the first one
    tp           copies of a norm, of key heads      the first one
    pp           the copy of a tied parameter        not at all: the stage of the original does

A rank reads what overlaps with what it owns, and while it loads holds no more than that: 12 bytes of each of its N/(pp
tp shard) parameters, for Adam. Nothing has been loaded on any rank before all know that they can.

On the same mesh RNG states are restored, so dropout continues bit for bit; on another mesh generators are reseeded from
the step.
"""

import os
from dataclasses import asdict

import torch
from torch import nn

from .. import checkpoint
from ..checkpoint.checkpointable import Checkpointable, ReplicatedParameter
from ..checkpoint.rules import require
from ..rules import validate, whole
from ..tensor_parallel.cuts import cut_of
from .engine import Engine
from .mesh import place_in


@validate(engine=Engine, folder=str | os.PathLike, step=whole)
def save(engine, folder, step=None, extra=None):
    """All ranks call it. ``step``: the position in the data, if it is not that of the engine. ``extra``: for JSON.

    The previous checkpoint in ``folder`` is replaced once everything is written. Raises ``CheckpointError`` on all
    ranks if one of them fails; then the folder is as before.
    """
    checkpoint.save(EngineState(engine, step, extra), folder)


@validate(engine=Engine, folder=str | os.PathLike)
def load(engine, folder):
    """All ranks call it. Returns the step, and what was ``extra``.

    Raises ``CheckpointError`` on all ranks, with the reason, if what is there is damaged, or another model's: then
    nothing has been loaded on any of them.
    """
    run = EngineState(engine)
    return run.go_on(checkpoint.load(run, folder))


@validate(model=Engine | nn.Module, source=str | os.PathLike)
def load_weights(model, source):
    """Load weights into a plain ``model`` in one process, or an engine on all ranks, whose optimizer is reset.

    ``source``: the folder of a checkpoint, or a file of safetensors with the parameters of a plain model.
    """
    checkpoint.load_weights(EngineState(model) if isinstance(model, Engine) else Plain(model), source)


class EngineState(Checkpointable):
    """An engine, as checkpoints see it: the rows of all its stages, by names in the whole model."""

    group = None

    def __init__(self, engine, step=None, extra=None):
        self.engine, self.extra = engine, extra
        self.steps = engine.steps if step is None else step
        self.zero_of = {row: zero for zero in engine.zero.values() for row in zero.rows}
        self.rows = list(self.zero_of)

    @property
    def names(self):
        return self.engine.names

    @property
    def buffers(self):
        return self.engine.buffers

    @property
    def saved_buffers(self):
        return {} if any(place_in(self.engine.mesh)[1:]) else self.buffers

    # What is saved.

    @property
    def run(self):
        engine = self.engine
        scaler = engine.scaler and engine.scaler.state_dict()
        plan, mesh = asdict(engine.plan), engine.mesh.mesh.tolist()
        return {"plan": plan, "mesh": mesh, "steps": engine.steps, "scaler": scaler, "extra": self.extra}

    @property
    def random(self):
        own = {"cpu": torch.get_rng_state()}
        return own | {"cuda": torch.cuda.get_rng_state()} if self.engine.device.type == "cuda" else own

    @property
    def optimizer_name(self):
        return next(iter(self.zero_of.values())).optimizer_name

    def kept(self, row):
        return self.zero_of[row].kept(row)

    def param_group(self, row):
        return self.zero_of[row].param_group(row)

    def saved(self, row):
        if torch.distributed.get_rank(self.zero_of[row].ranks_of(row.parameters[0])[1]):
            return {}
        return {parameter: segment for parameter, segment in row.saved.items() if self._is_first(parameter)}

    def _is_first(self, parameter):
        """Of the stages, and of the tensor ranks, that have it."""
        cut, rank = cut_of(parameter), self.engine.mesh.get_local_rank("tp")
        return parameter not in self.engine.copies and rank == (cut.holders[0] if cut else 0)

    # What is loaded.

    def accept(self, states):
        require(states[0]["run"], "it was not saved by an engine: load_weights takes the weights alone")
        mine, saved = (each and each["rule"] for each in (self.run["scaler"], states[0]["run"]["scaler"]))
        require(not mine or not saved or mine == saved, f"the scaler's rule is {mine}, but {saved} was saved")

    def restore(self, loaded):
        for zero in self.engine.zero.values():
            zero.restore({row: kept for row, kept in loaded.items() if self.zero_of[row] is zero})

    def go_on(self, states):
        engine, run = self.engine, states[0]["run"]
        engine.steps = run["steps"]
        for zero in engine.zero.values():
            zero.steps = engine.steps
        if engine.scaler and run["scaler"]:
            engine.scaler.load_state_dict(run["scaler"])
        self._draw_on(states, run["mesh"])
        return self.steps, run["extra"]

    def _draw_on(self, states, mesh):
        if mesh == self.engine.mesh.mesh.tolist():
            own = states[torch.distributed.get_rank()]["random"]
            torch.set_rng_state(own["cpu"])
            if "cuda" in own:
                torch.cuda.set_rng_state(own["cuda"])
        else:
            torch.manual_seed(torch.initial_seed() + self.engine.plan.ranks * self.steps)


class Plain(Checkpointable):
    """A model into which only the weights are loaded."""

    group = None

    def __init__(self, module):
        self.module, self.rows = module, [ReplicatedParameter(parameter) for parameter in module.parameters()]

    def restore(self, loaded):
        for row, (vectors, _) in loaded.items():
            row.load(vectors["weight"])
