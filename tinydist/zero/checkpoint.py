"""Checkpoints: whole, or each rank's shard; loaded by any number of ranks, in any stage or none (whole.py).

    save(zero, folder)    to files, one a rank, in the place of what was saved there before (checkpoint_files.py)
    gathered(zero)        a state: every parameter's master weight and optimizer states, the same on every rank
    sharded(zero)         a state: of each parameter this rank's segment, and where it starts: nothing is sent
    load(zero, folder)    or load(zero, *states): a gathered one, or those of all ranks that saved, in any order

Saved is what belongs to a parameter, not how rows were laid out: so 8 ranks save, and 3 load. A rank takes what
overlaps with the segments that it owns now.

    state["parameters"][name] = {"start", "vectors": {"weight", "exp_avg" ...}, "scalars": {"step"}}
    state["layout"], "step", "world", "optimizer", "options"     the same on all ranks: what belongs together

Ranks load all or nothing. Each checks what it is given (checkpoint_rules.py) and puts its own new shard together; the
first parameter changes when all ranks have said that they are ready, and load the same.

``gathered`` sends (p-1)/p of 12 bytes a parameter (master weight and two moments), and each rank then holds all of
them; ``sharded`` copies its 12/p, and so does ``save``. ``load`` holds 12/p more until it has changed over; of a folder
it reads only that.
"""

import os
from contextlib import ExitStack, contextmanager

import torch

from ..collectives.agreement import broadcast_all
from . import checkpoint_files as files
from .checkpoint_rules import COMMON, CheckpointError, check, check_buffers, require, sound
from .start import around
from .unanimous import place_in, unanimous


@torch.no_grad()
def gathered(zero):
    """Whole tensors, as one rank would have saved them. All ranks call it, and all get the same."""
    state = _state(zero, lambda row, vector: row.gathered(vector), rank=0, world=1)
    if place_in(zero.group)[1] > 1:
        broadcast_all(state["buffers"].values(), group=zero.group)
    return state


@torch.no_grad()
def sharded(zero):
    """This rank's segments, as flat tensors. Rank 0's has the buffers, too."""

    def segments(row, vector):
        return [vector[s.place : s.place + s.size].detach().clone() for s in row.saved.values()]

    rank, world = place_in(zero.group)
    return _state(zero, segments, rank, world)


@torch.no_grad()
def save(zero, folder):
    """All ranks call it; ``folder`` is one that all of them see. What was saved there is replaced once all is written.

    Raises ``CheckpointError`` on all ranks if one of them fails (a full disk, NaN); then the folder is as before.
    """
    nothing = "save: nothing has been saved"
    if zero.replicas:  # the first of those that have the same shard saves it, and the others wait
        with unanimous(nothing, zero.replicas, CheckpointError):
            if place_in(zero.replicas)[0] == 0:
                _save(zero, folder, nothing)
    else:
        _save(zero, folder, nothing)


def _save(zero, folder, nothing):
    rank, _ = place_in(zero.group)
    with ExitStack() as stack:
        with unanimous(nothing, zero.group, CheckpointError) as said:
            said.mine = stack.enter_context(files.new_save(folder)) if rank == 0 else None
        new = said.all[0]
        with unanimous(nothing, zero.group, CheckpointError) as said:
            state = sharded(zero)
            _check_finite(state)
            said.mine = files.write(folder, new, state)
        with unanimous(nothing, zero.group, CheckpointError):
            if rank == 0:
                files.publish(folder, new, {key: state[key] for key in COMMON}, said.all)


@torch.no_grad()
def load(zero, *saved):
    """Weights, optimizer states, its options, buffers and the count of steps, on every rank. All ranks call it.

    ``saved``: a folder, or states. If one rank must refuse what it is given, all raise ``CheckpointError``, a
    ``ValueError``, with the reason and the rank; ``OffloadError``, if a home has no room for it. Then nothing has been
    loaded on any of them.
    """
    with _by_all(zero) as words:
        states, shards, options = _prepared(zero, saved)
        for said in words:
            said.mine = files.fingerprint([states[0].get(key) for key in ("save", *COMMON)])
    with _by_all(zero):
        for said in words:
            require(said.mine == said.all[0], "what it is given is another checkpoint than rank 0's")
    zero.restore(shards)
    for name, buffer in zero.module.named_buffers():
        buffer.copy_(states[0]["buffers"][name])
    for group, loaded in zip(zero.optimizer.param_groups, options):
        group.update(loaded)
    zero.steps = states[0]["step"]


@contextmanager
def _by_all(zero):
    """By those that share a model, and by those that have the same shard."""
    with ExitStack() as stack:
        groups = around(zero.group, zero.replicas)
        yield [stack.enter_context(unanimous("load: nothing has been loaded", g, CheckpointError)) for g in groups]


# What is saved.


def _state(zero, parts_of, rank, world):
    """``parts_of(row, vector)`` is what is saved of a row's vector, for each of its parameters."""
    names, layout, parameters = _names(zero), {}, {}
    for row in zero.rows:
        vectors, scalars = zero.kept(row)
        parts = {key: parts_of(row, vector) for key, vector in vectors.items()}
        for number, (parameter, segment) in enumerate(row.saved.items()):
            layout[names[parameter]] = {
                "shape": list(row.shapes[number]),
                "group": zero.group_of.get(row),
                "vectors": {key: str(vector.dtype) for key, vector in vectors.items()},
                "scalars": sorted(scalars),
            }
            parameters[names[parameter]] = {
                "start": segment.start if world > 1 else 0,
                "vectors": {key: parts[key][number] for key in vectors},
                "scalars": {key: value.clone() for key, value in scalars.items()},
            }
    return {
        "step": zero.steps,
        "rank": rank,
        "world": world,
        "optimizer": zero.optimizer_name,
        "options": [_plain(group) for group in zero.optimizer.param_groups],
        "layout": layout,
        "parameters": parameters,
        "buffers": {name: buffer.clone() for name, buffer in zero.module.named_buffers()} if rank == 0 else {},
    }


def _names(zero):
    return {parameter: name for name, parameter in zero.module.named_parameters()}


def _plain(group):
    """Its options as numbers: a learning rate may be a tensor."""
    options = {key: value for key, value in group.items() if key != "params"}
    return {key: value.item() if isinstance(value, torch.Tensor) else value for key, value in options.items()}


def _check_finite(state):
    for name, entry in state["parameters"].items():
        for key, tensor in (entry["vectors"] | entry["scalars"]).items():
            sound(f"{key} of {name}", tensor)


# What is loaded.


def _prepared(zero, saved):
    """The states, checked and by rank; for each row what this rank will own; the options of each parameter group."""
    from_files = len(saved) == 1 and isinstance(saved[0], str | os.PathLike)
    states = files.read(saved[0], *place_in(zero.group)) if from_files else list(saved)
    names = _names(zero)
    check(states, zero, names)
    states.sort(key=lambda state: state["rank"])
    check_buffers(states[0]["buffers"], zero.module)
    shards = {row: _shard(row, [names[p] for p in row.parameters], states) for row in zero.rows}
    options = [
        {key: _like(group.get(key), value) for key, value in saved.items()}
        for group, saved in zip(zero.optimizer.param_groups, states[0]["options"])
    ]
    return states, shards, options


def _shard(row, names, states):
    """(vectors, scalars) of what this rank owns in a row, from all saved segments that overlap with it."""
    layout, entries = states[0]["layout"][names[0]], states[0]["parameters"][names[0]]
    vectors = {}
    for key in layout["vectors"]:
        example = entries["vectors"][key]
        shard = vectors[key] = torch.zeros(row.mine.numel(), dtype=example.dtype, device=row.device)
        for name, segment in zip(names, row.segments.values()):
            own = shard[segment.place : segment.place + segment.size]
            _fill(own, segment.start, [state["parameters"][name] for state in states], key)
            sound(f"{key} of {name}", own)
    return vectors, {key: value.clone() for key, value in entries["scalars"].items()}


def _fill(own, start, entries, key):
    """``own`` begins at ``start`` of the parameter; saved segments are anywhere in it."""
    for entry in entries:
        saved, ahead = entry["vectors"][key], entry["start"] - start
        first, last = max(ahead, 0), min(ahead + saved.numel(), len(own))
        if first < last:
            own[first:last] = saved.flatten()[first - ahead : last - ahead]


def _like(current, value):
    """Files know no tuples, and a learning rate that is a tensor stays one."""
    if isinstance(current, torch.Tensor):
        return torch.full_like(current, value)
    return tuple(value) if isinstance(current, tuple) else value
