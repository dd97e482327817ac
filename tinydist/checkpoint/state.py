"""Sharded state dicts: what a rank saves of each parameter, and how a shard is assembled from saved ones (resharding).

    {"step", "world", "optimizer", "run", "layout"}      the same on all ranks
    {"rank", "parameters", "buffers", "random"}          of each rank

    parameters[name]    {"part", "start"}: where its piece lies (shard_overlap.py)
                        {"vectors"}: "weight", "exp_avg" ..., flat      {"scalars"}: "step" ...
    layout[name]        shape, options, dtypes: what all pieces have in common (rules.py)

A parameter of which a rank saves nothing is not in its state.
"""

import torch

from .rules import entries_of, sound
from .shard_overlap import ParameterPiece, copy_common, part_of


def state_of(zero, pieces_of, buffers, rank, world):
    """``pieces_of(row, vector)``: parameter -> its piece of a row's vector, to be saved."""
    layout, parameters, names = {}, {}, zero.names
    for row in zero.rows:
        vectors, scalars = zero.kept(row)
        pieces = {key: pieces_of(row, vector) for key, vector in vectors.items()}
        shapes = dict(zip(row.parameters, row.shapes))
        for parameter in pieces["weight"]:
            shape, part = part_of(parameter, shapes[parameter])
            layout[names[parameter]] = {
                "shape": list(shape),
                "options": _plain(zero.param_group(row)),
                "vectors": {key: str(vector.dtype) for key, vector in vectors.items()},
                "scalars": sorted(scalars),
            }
            parameters[names[parameter]] = {
                "part": part,
                "start": row.saved[parameter].start if world > 1 else 0,
                "vectors": {key: each[parameter] for key, each in pieces.items()},
                "scalars": {key: value.clone() for key, value in scalars.items()},
            }
    return {
        "step": zero.steps,
        "rank": rank,
        "world": world,
        "optimizer": zero.optimizer_name,
        "run": dict(zero.run),
        "layout": layout,
        "parameters": parameters,
        "buffers": {name: buffer.clone() for name, buffer in buffers.items()},
        "random": zero.random,
    }


def _plain(group):
    """Its options as numbers: a learning rate may be a tensor. None, if it is frozen."""
    if group is None:
        return None
    options = {key: value for key, value in group.items() if key != "params"}
    return {key: value.item() if isinstance(value, torch.Tensor) else value for key, value in options.items()}


def check_finite(state):
    for name, entry in state["parameters"].items():
        for key, tensor in (entry["vectors"] | entry["scalars"]).items():
            sound(f"{key} of {name}", tensor)


def shard_of(row, names, states):
    """(vectors, scalars) of this rank's shard of a row, from all saved pieces that overlap with it."""
    first = next(entries_of(names[row.parameters[0]], states))
    vectors = {}
    for key, vector in first["vectors"].items():
        shard = vectors[key] = torch.zeros(row.shard.numel(), dtype=vector.dtype, device=row.device)
        for (parameter, (start, place, size)), shape in zip(row.segments.items(), row.shapes):
            own = shard[place : place + size]
            _fill(own, *part_of(parameter, shape), start, entries_of(names[parameter], states), key)
            sound(f"{key} of {names[parameter]}", own)
    return vectors, {key: value.clone() for key, value in first["scalars"].items()}


def _fill(own, shape, part, start, entries, key):
    mine = ParameterPiece(part, start, len(own))
    for entry in entries:
        saved = entry["vectors"][key]
        copy_common(shape, mine, own, ParameterPiece(entry["part"], entry["start"], saved.numel()), saved.flatten())
