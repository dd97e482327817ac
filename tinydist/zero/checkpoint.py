"""Checkpoints: whole, or each rank's shard; loaded by any number of ranks, in any stage.

    gathered(zero)        every parameter's master weight and optimizer states, whole: the same on every rank
    sharded(zero)         the same, but of each this rank's segment, and where it starts: nothing is sent
    load(zero, *states)   one that is whole, or the shards of all ranks that saved, in any order

Saved is what belongs to a parameter, not how rows were laid out: so 8 ranks save, and 3 load. A rank takes what
overlaps with the segments that it owns now.

    state["parameters"][name] = {"shape", "start", "vectors": {"weight", "exp_avg" ...}, "scalars": {"step"}}

``gathered`` sends (p-1)/p of 12 bytes a parameter (master weight and two moments), and each rank then holds all of
them; ``sharded`` copies its 12/p.
"""

import torch
import torch.distributed as dist

from .shards import views


@torch.no_grad()
def gathered(zero):
    """Whole tensors. All ranks call it, and all get it."""

    def whole(flat, vector):
        row = vector.new_empty(flat.ranks * vector.numel())
        dist.all_gather_single(row, vector.detach(), group=flat.group)
        return [view.clone() for view in views(row, flat.shapes)]

    return _state(zero, whole, starts=False)


@torch.no_grad()
def sharded(zero):
    """This rank's segments, as flat tensors."""

    def segments(flat, vector):
        return [vector[s.place : s.place + s.size].clone() for s in flat.segments.values()]

    return _state(zero, segments, starts=True)


@torch.no_grad()
def load(zero, *states):
    """Weights, optimizer states, its options, and buffers, on every rank.

    Raises ``ValueError`` if a parameter is missing, has another shape, or not all of it is in ``states``; then nothing
    has been loaded.
    """
    shapes = {name: shape for flat in zero.all_flats for name, shape in zip(_names(zero, flat), flat.shapes)}
    shapes |= {name: tuple(p.shape) for name, p in _unsharded(zero).items()}
    entries = {name: [_checked(state, name, shape) for state in states] for name, shape in shapes.items()}
    shards = [_vectors(flat, [entries[name] for name in _names(zero, flat)]) for flat in zero.all_flats]
    weights = {p: _whole(p, entries[name], dist.get_rank(zero.group)) for name, p in _unsharded(zero).items()}
    for flat, vectors in zip(zero.all_flats, shards):
        zero.restore(flat, vectors, entries[_names(zero, flat)[0]][0]["scalars"])
    for parameter, weight in weights.items():
        parameter.copy_(weight)
    for name, buffer in zero.module.named_buffers():
        buffer.copy_(states[0]["buffers"][name])
    for group, options in zip(zero.optimizer.param_groups, states[0]["options"], strict=True):
        group.update(options)


# What is saved.


def _state(zero, parts_of, starts):
    """``parts_of(flat, vector)`` is what is saved of a shard, for each of the row's parameters."""
    parameters = {}
    for flat in zero.all_flats:
        vectors, scalars = zero.kept(flat)
        parts = {key: parts_of(flat, vector) for key, vector in vectors.items()}
        for number, (name, segment) in enumerate(zip(_names(zero, flat), flat.segments.values())):
            parameters[name] = {
                "shape": flat.shapes[number],
                "start": segment.start if starts else 0,
                "vectors": {key: parts[key][number] for key in vectors},
                "scalars": {key: value.clone() for key, value in scalars.items()},
            }
    for name, p in _unsharded(zero).items():
        whole = {"weight": p.detach().clone()}
        parameters[name] = {"shape": tuple(p.shape), "start": 0, "vectors": whole, "scalars": {}}
    return {
        "parameters": parameters,
        "buffers": {name: buffer.clone() for name, buffer in zero.module.named_buffers()},
        "options": [{key: value for key, value in g.items() if key != "params"} for g in zero.optimizer.param_groups],
    }


def _names(zero, flat):
    names = {parameter: name for name, parameter in zero.module.named_parameters()}
    return [names[parameter] for parameter in flat.parameters]


def _unsharded(zero):
    """What is in no row: frozen, in stages 1 and 2."""
    inside = {parameter for flat in zero.all_flats for parameter in flat.parameters}
    return {name: p for name, p in zero.module.named_parameters() if p not in inside}


# What is loaded.


def _checked(state, name, shape):
    if name not in state["parameters"]:
        raise ValueError(f"load: {name} is not in the state that is loaded")
    entry = state["parameters"][name]
    if entry["shape"] != shape:
        raise ValueError(f"load: {name} has shape {list(shape)}, but {list(entry['shape'])} was saved")
    return entry | {"name": name}


def _vectors(flat, entries_of_each):
    """Key -> this rank's shard, from all saved segments that overlap with it."""
    vectors = {}
    for entries, segment in zip(entries_of_each, flat.segments.values()):
        for key, example in entries[0]["vectors"].items():
            shard = vectors.setdefault(key, torch.zeros_like(flat.mine, dtype=example.dtype))
            _fill(shard[segment.place : segment.place + segment.size], segment.start, entries, key, flat.rank)
    return vectors


def _whole(parameter, entries, rank):
    weight = torch.zeros_like(parameter)
    _fill(weight.view(-1), 0, entries, "weight", rank)
    return weight


def _fill(own, start, entries, key, rank):
    """``own`` begins at ``start`` of the parameter; saved segments are anywhere in it."""
    missing = torch.ones(len(own), dtype=torch.bool)
    for entry in entries:
        saved, ahead = entry["vectors"][key].flatten(), entry["start"] - start
        first, last = max(ahead, 0), min(ahead + len(saved), len(own))
        if first < last:
            own[first:last] = saved[first - ahead : last - ahead]
            missing[first:last] = False
    if missing.any():
        raise ValueError(
            f"load: {int(missing.sum())} of the {len(own)} numbers of {entries[0]['name']} that rank {rank} owns were "
            "not given. Pass the shards of all ranks that saved"
        )
