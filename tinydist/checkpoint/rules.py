"""Validation of a checkpoint before it is loaded: every rule is in this file.

    one save     all states have the same step, world, optimizer, run and layout; one from each rank that saved
    complete     nothing of the layout is missing; the pieces of a parameter cover it exactly once
    fits         the same parameters, shapes and buffers as the module; the same optimizer, and the same options for
                 parameters that share a group
    sound        values are finite

The layout has for each parameter: its full ``shape``; the optimizer's ``options``, None if it is frozen; ``vectors``,
the elementwise tensors, with dtypes; ``scalars``, the others.
"""

import math

import torch

from .shard_overlap import part_of

COMMON = ("step", "world", "optimizer", "run", "layout")
OWN = ("rank", "parameters", "buffers", "random")


class CheckpointError(ValueError):
    """Saving or loading failed. No parameter was modified on any rank, nor the previous checkpoint."""


def require(holds, message):
    if not holds:
        raise CheckpointError(message)


def check(states, zero, training=True):
    """Raises ``CheckpointError`` for the first rule that does not hold. ``training``: not just the weights."""
    of_one_save(states)
    layout = states[0]["layout"]
    fits(states, zero)
    if training:
        fits_training(states[0], zero)
    for state in states:
        known_to(layout, state)
    for name, planned in layout.items():
        complete(name, planned, {s["rank"]: s["parameters"][name] for s in states if name in s["parameters"]})
    names = zero.names
    for row in zero.rows:
        alike_in_a_row([names[p] for p in row.parameters], states)
    if training:
        zero.accept(states)


def weights_of(state):
    """The state, reduced to the weights."""
    weights = {
        name: {**entry, "vectors": {"weight": entry["vectors"]["weight"]}, "scalars": {}}
        for name, entry in state["parameters"].items()
    }
    layout = {
        name: {**planned, "vectors": {"weight": planned["vectors"]["weight"]}, "scalars": []}
        for name, planned in state["layout"].items()
    }
    return {**state, "parameters": weights, "layout": layout}


def entries_of(name, states):
    return (state["parameters"][name] for state in states if name in state["parameters"])


def buffers_of(states):
    return {name: buffer for state in states for name, buffer in state["buffers"].items()}


# One save.


def of_one_save(states):
    require(states, "no state was given")
    for state in states:
        lacks = [key for key in COMMON + OWN if not isinstance(state, dict) or key not in state]
        require(not lacks, f"a state must have the keys {', '.join(COMMON + OWN)}; missing: {lacks}")
    first = states[0]
    for state in states[1:]:
        for key in COMMON:
            both = f"{in_words(first[key])} and {in_words(state[key])}"
            ranks = f"ranks {first['rank']} and {state['rank']}"
            require(state[key] == first[key], f"the states of {ranks} come from different checkpoints: {key}: {both}")
    world, ranks = first["world"], sorted(state["rank"] for state in states)
    require(
        ranks == list(range(world)),
        f"the states of all {world} ranks that saved are required, each once; got those of ranks {ranks}",
    )


def in_words(value):
    words = str(value)
    return words if len(words) < 40 else f"{words[:40]}..."


def one_layout(layouts):
    """The layout of all ranks, from that of each."""
    whole = {}
    for layout in layouts:
        for name, planned in layout.items():
            known = whole.setdefault(name, planned)
            require(known == planned, f"{name} differs between ranks: {known} and {planned}")
    return whole


# Complete.


def known_to(layout, state):
    unknown = sorted(state["parameters"].keys() - layout.keys())
    require(not unknown, f"{', '.join(unknown[:3])} of the state of rank {state['rank']} is not in the layout")


def complete(name, planned, entries):
    """``entries``: rank -> its entry of the parameter."""
    for rank, entry in entries.items():
        for kind in ("vectors", "scalars"):
            found, wanted = sorted(entry[kind]), sorted(planned[kind])
            require(
                found == wanted,
                f"{name} must have the {kind} {wanted}, but has {found} in the state of rank {rank}",
            )
        for key, dtype in planned["vectors"].items():
            require(
                str(entry["vectors"][key].dtype) == dtype,
                f"{key} of {name} must be {dtype}, but is {entry['vectors'][key].dtype} in the state of rank {rank}",
            )
    for key in planned["vectors"]:
        for part, size in parts_of(name, math.prod(planned["shape"]), entries).items():
            runs = [(e["start"], e["vectors"][key].numel(), rank) for rank, e in entries.items() if e["part"] == part]
            covered(f"{key} of {name}", "elements", size, runs)
    for key in planned["scalars"]:
        first, *others = (entry["scalars"][key] for entry in entries.values())
        alike = all(torch.equal(other, first) for other in others)
        require(alike, f"{key} of {name} differs between states")
        sound(f"{key} of {name}", first)


def parts_of(name, size, entries):
    """Part -> its number of elements. Cut parameters have several, side by side."""
    ranks = {entry["part"]: rank for rank, entry in entries.items()}
    if ranks.keys() <= {None}:
        return {None: size}
    require(None not in ranks, f"{name} is full in the state of rank {ranks.get(None)}, but a part in another")
    (lines, *others) = {part.lines for part in ranks}
    require(not others and size % lines == 0, f"the {size} elements of {name} are cut into lines of unequal length")
    covered(f"a line of {name}", "columns", size // lines, [(p.first, p.columns, rank) for p, rank in ranks.items()])
    return {part: part.lines * part.columns for part in ranks}


def covered(what, unit, size, runs):
    end = 0
    for start, length, rank in sorted(run for run in runs if run[1]):
        require(
            start == end and start + length <= size,
            f"{what} has {size} {unit}; the first {end} are given, and rank {rank} goes on with {unit} {start} to "
            f"{start + length - 1}",
        )
        end += length
    require(end == size, f"{what} has {size} {unit}, but the states have {end} of them")


# Fits.


def fits(states, zero):
    names, layout, buffers = zero.names, states[0]["layout"], buffers_of(states)
    for row in zero.rows:
        for parameter, own_shape in zip(row.parameters, row.shapes):
            name, (shape, part) = names[parameter], part_of(parameter, own_shape)
            require(name in layout, f"{name} is missing in the checkpoint")
            saved = layout[name]["shape"]
            require(saved == list(shape), f"{name} has shape {list(shape)}, but {saved} was saved")
            for other in (entry["part"] for entry in entries_of(name, states)) if part else ():
                require(
                    other is None or other.lines == part.lines,
                    f"{name} was saved with other sharding: along another dim, or in other blocks",
                )
    for name, buffer in zero.buffers.items():
        require(name in buffers, f"the buffer {name} is missing in the checkpoint")
        shape, saved = list(buffer.shape), list(buffers[name].shape)
        require(shape == saved, f"the buffer {name} has shape {shape}, but {saved} was saved")


def nothing_else(states, names):
    """The checkpoint has no parameters but ``names``, those of all ranks."""
    unknown = sorted((states[0]["layout"].keys() | buffers_of(states).keys()) - names)
    require(not unknown, f"the module has no {', '.join(unknown[:3])}, which the checkpoint has")


def fits_training(saved, zero):
    mine, theirs = zero.optimizer_name, saved["optimizer"]
    require(mine == theirs, f"the checkpoint was saved with {theirs}, but the optimizer is {mine}")
    names, of_groups = zero.names, {}  # the first parameter of each group, and its options
    for row in zero.rows:
        group = zero.param_group(row)
        for name in (names[parameter] for parameter in row.parameters):
            options = saved["layout"][name]["options"]
            here, there = trained_or_frozen(group), trained_or_frozen(options)
            require(here == there, f"{name} is {here} here, but was {there} when saved")
            first, known = of_groups.setdefault(id(group), (name, options))
            for key in known if known else ():
                both = f"{known[key]} and {options.get(key)}"
                shared = f"{first} and {name} share a parameter group"
                require(known[key] == options.get(key), f"{shared}, but were saved with {key}: {both}")


def trained_or_frozen(options):
    return "frozen" if options is None else "trained"


def alike_in_a_row(names, states):
    """The parameters of a bucket share a step count, for example."""
    first, *others = names
    layout, scalars = states[0]["layout"], next(entries_of(first, states))["scalars"]
    for name in others:
        for kind in ("vectors", "scalars"):
            a, b = (layout[each][kind] for each in (first, name))
            require(a == b, f"{first} and {name} share a bucket, but were saved with different {kind}: {a} and {b}")
        for key, value in next(entries_of(name, states))["scalars"].items():
            require(
                torch.equal(value, scalars[key]),
                f"{first} and {name} share a bucket, and so must have the same {key}: {scalars[key].tolist()} and "
                f"{value.tolist()}",
            )


# Sound.


def sound(what, tensor):
    """Finite. (The extremes are NaN if any value is, and take no memory.)"""
    if tensor.is_floating_point() and tensor.numel():
        finite = all(extreme.isfinite() for extreme in torch.aminmax(tensor))
        require(finite, f"{what} has non-finite values")
