"""When states may be loaded: stated here, and nowhere else.

    one save     they are alike in step, world, optimizer, options and layout; one of each rank that saved
    complete     each has what the layout says, and the segments of a parameter cover it, once
    fits         the same optimizer, parameters, shapes, parameter groups and buffers as what is trained
    sound        numbers are finite

The layout says of each parameter: its ``shape``; the parameter ``group`` it is trained in, None if it is frozen;
``vectors``, what is kept number by number, with dtypes; ``scalars``, what else is kept.
"""

import math

import torch

COMMON = ("step", "world", "optimizer", "options", "layout")
OWN = ("rank", "parameters", "buffers")


class CheckpointError(ValueError):
    """It cannot be saved, or loaded. No parameter has been changed, on any rank, nor the checkpoint that was there."""


def require(holds, message):
    if not holds:
        raise CheckpointError(message)


def check(states, zero, names):
    """``names``: parameter -> name. Raises ``CheckpointError`` for the first rule that does not hold."""
    of_one_save(states)
    fits(states[0], zero, names)
    for state in states:
        lacks = sorted(states[0]["layout"].keys() ^ state["parameters"].keys())
        require(not lacks, f"layout and parameters differ in the state of rank {state['rank']}: {', '.join(lacks[:3])}")
    for name, planned in states[0]["layout"].items():
        complete(name, planned, [(state["rank"], state["parameters"][name]) for state in states])
    for row in zero.rows:
        alike_in_a_row([names[p] for p in row.parameters], states[0])


# One save.


def of_one_save(states):
    require(states, "no state was given")
    for state in states:
        lacks = [key for key in COMMON + OWN if not isinstance(state, dict) or key not in state]
        require(not lacks, f"a state must say its {', '.join(COMMON + OWN)}; one that was given lacks {lacks}")
    first = states[0]
    for state in states[1:]:
        for key in COMMON:
            both = f"{in_words(first[key])} and {in_words(state[key])}"
            ranks = f"ranks {first['rank']} and {state['rank']}"
            require(state[key] == first[key], f"those of {ranks} are of different saves: {key}: {both}")
    world, ranks = first["world"], sorted(state["rank"] for state in states)
    require(
        ranks == list(range(world)),
        f"{world} saved, so the states of ranks 0 to {world - 1} are needed, each once; given are those of {ranks}",
    )


def in_words(value):
    words = str(value)
    return words if len(words) < 40 else f"{words[:40]}..."


# Complete.


def complete(name, planned, entries):
    """``entries``: (rank, its entry of the parameter)."""
    size = math.prod(planned["shape"])
    for rank, entry in entries:
        for kind in ("vectors", "scalars"):
            found, wanted = sorted(entry[kind]), sorted(planned[kind])
            require(
                found == wanted,
                f"{name} must come with the {kind} {wanted}, but in the state of rank {rank} has {found}",
            )
        for key, dtype in planned["vectors"].items():
            require(
                str(entry["vectors"][key].dtype) == dtype,
                f"{key} of {name} must be {dtype}, but is {entry['vectors'][key].dtype} in the state of rank {rank}",
            )
    for key in planned["vectors"]:
        covered(name, key, size, [(entry["start"], entry["vectors"][key].numel(), rank) for rank, entry in entries])
    for key in planned["scalars"]:
        first = entries[0][1]["scalars"][key]
        alike = all(torch.equal(entry["scalars"][key], first) for _, entry in entries)
        require(alike, f"{key} of {name} is not the same in all states")
        sound(f"{key} of {name}", first)


def covered(name, key, size, segments):
    end = 0
    for start, length, rank in sorted(segment for segment in segments if segment[1]):
        require(
            start == end and start + length <= size,
            f"{key} of {name} has {size} numbers; the first {end} are given, and rank {rank} goes on with numbers "
            f"{start} to {start + length - 1}",
        )
        end += length
    require(end == size, f"{key} of {name} has {size} numbers, but the states have {end} of them")


# Fits.


def fits(saved, zero, names):
    mine, theirs = zero.optimizer_name, saved["optimizer"]
    require(mine == theirs, f"it was saved with {theirs}, but the optimizer here is {mine}")
    mine, theirs = len(zero.optimizer.param_groups), len(saved["options"])
    require(mine == theirs, f"it was saved with {theirs} parameter groups, but the optimizer here has {mine}")
    layout = saved["layout"]
    here = {
        names[p]: (shape, zero.group_of.get(row)) for row in zero.rows for p, shape in zip(row.parameters, row.shapes)
    }
    for name, (shape, group) in here.items():
        require(name in layout, f"{name} is not in the state that is loaded")
        saved_shape, saved_group = layout[name]["shape"], layout[name]["group"]
        require(saved_shape == list(shape), f"{name} has shape {list(shape)}, but {saved_shape} was saved")
        require(
            group == saved_group, f"{name} is {trained_in(group)} here, but was {trained_in(saved_group)} when saved"
        )
    unknown = sorted(layout.keys() - here.keys())
    require(not unknown, f"the module here has no {', '.join(unknown[:3])}, which was saved")


def trained_in(group):
    return "frozen" if group is None else f"trained in parameter group {group}"


def check_buffers(saved, module):
    here = dict(module.named_buffers())
    require(
        saved.keys() == here.keys(), f"the module here has the buffers {sorted(here)}, but {sorted(saved)} were saved"
    )
    for name, buffer in here.items():
        a, b = list(buffer.shape), list(saved[name].shape)
        require(a == b, f"the buffer {name} has shape {a}, but {b} was saved")


def alike_in_a_row(names, state):
    """A row has one count of steps, say, for all its parameters."""
    first = names[0]
    for name in names[1:]:
        for kind in ("vectors", "scalars"):
            a, b = (state["layout"][each][kind] for each in (first, name))
            require(a == b, f"{first} and {name} share a row here, but were saved with other {kind}: {a} and {b}")
        for key, value in state["parameters"][name]["scalars"].items():
            other = state["parameters"][first]["scalars"][key]
            require(
                torch.equal(value, other),
                f"{first} and {name} share a row here, and so must share {key}: {other.tolist()} and {value.tolist()}",
            )


# Sound.


def sound(what, tensor):
    """Finite. (The extremes are NaN where any number is, and cost no memory.)"""
    if tensor.is_floating_point() and tensor.numel():
        finite = all(extreme.isfinite() for extreme in torch.aminmax(tensor))
        require(finite, f"{what} has {'numbers' if tensor.dim() else 'a number'} that are not finite")
