"""When states may be loaded: stated here, and nowhere else.

    one save     they are alike in step, world, optimizer, run and layout; one of each rank that saved
    complete     of what the layout says, nothing is missing; the pieces of a parameter cover it, once
    fits         the same parameters, shapes and buffers as what is trained; the same optimizer, and where parameters
                 share a group here, the same options
    sound        numbers are finite

The layout says of each parameter: its ``shape``, of all of it; the ``options`` with which it is trained, None if it is
frozen; ``vectors``, what is kept number by number, with dtypes; ``scalars``, what else is kept.
"""

import math

import torch

from .pieces import part_of

COMMON = ("step", "world", "optimizer", "run", "layout")
OWN = ("rank", "parameters", "buffers", "random")


class CheckpointError(ValueError):
    """It cannot be saved, or loaded. No parameter has been changed, on any rank, nor the checkpoint that was there."""


def require(holds, message):
    if not holds:
        raise CheckpointError(message)


def check(states, zero, training=True):
    """Raises ``CheckpointError`` for the first rule that does not hold. ``training``: not the weights alone."""
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
    """The same, without what else training needs."""
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


def one_layout(layouts):
    """Of what each rank has saved, that of all."""
    whole = {}
    for layout in layouts:
        for name, planned in layout.items():
            known = whole.setdefault(name, planned)
            require(known == planned, f"{name} is not the same on all ranks: {known} and {planned}")
    return whole


# Complete.


def known_to(layout, state):
    unknown = sorted(state["parameters"].keys() - layout.keys())
    require(not unknown, f"the layout knows no {', '.join(unknown[:3])} of the state of rank {state['rank']}")


def complete(name, planned, entries):
    """``entries``: rank -> its entry of the parameter."""
    for rank, entry in entries.items():
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
        for part, size in parts_of(name, math.prod(planned["shape"]), entries).items():
            runs = [(e["start"], e["vectors"][key].numel(), rank) for rank, e in entries.items() if e["part"] == part]
            covered(f"{key} of {name}", "numbers", size, runs)
    for key in planned["scalars"]:
        first, *others = (entry["scalars"][key] for entry in entries.values())
        alike = all(torch.equal(other, first) for other in others)
        require(alike, f"{key} of {name} is not the same in all states")
        sound(f"{key} of {name}", first)


def parts_of(name, size, entries):
    """Part -> how many numbers it has. Cut parameters have several, side by side."""
    ranks = {entry["part"]: rank for rank, entry in entries.items()}
    if ranks.keys() <= {None}:
        return {None: size}
    require(None not in ranks, f"{name} is whole in the state of rank {ranks.get(None)}, but a part in another")
    (lines, *others) = {part.lines for part in ranks}
    require(not others and size % lines == 0, f"the {size} numbers of {name} are cut into lines of different lengths")
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
            require(name in layout, f"{name} is not in the state that is loaded")
            saved = layout[name]["shape"]
            require(saved == list(shape), f"{name} has shape {list(shape)}, but {saved} was saved")
            for other in (entry["part"] for entry in entries_of(name, states)) if part else ():
                require(
                    other is None or other.lines == part.lines,
                    f"{name} is cut along another dim, or in other blocks, than when it was saved",
                )
    for name, buffer in zero.buffers.items():
        require(name in buffers, f"the buffer {name} is not in the state that is loaded")
        shape, saved = list(buffer.shape), list(buffers[name].shape)
        require(shape == saved, f"the buffer {name} has shape {shape}, but {saved} was saved")


def nothing_else(states, names):
    """``names``: of all ranks."""
    unknown = sorted((states[0]["layout"].keys() | buffers_of(states).keys()) - names)
    require(not unknown, f"the module here has no {', '.join(unknown[:3])}, which was saved")


def fits_training(saved, zero):
    mine, theirs = zero.optimizer_name, saved["optimizer"]
    require(mine == theirs, f"it was saved with {theirs}, but the optimizer here is {mine}")
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
                shared = f"{first} and {name} share a parameter group here"
                require(known[key] == options.get(key), f"{shared}, but were saved with {key}: {both}")


def trained_or_frozen(options):
    return "frozen" if options is None else "trained"


def alike_in_a_row(names, states):
    """A row has one count of steps, say, for all its parameters."""
    first, *others = names
    layout, scalars = states[0]["layout"], next(entries_of(first, states))["scalars"]
    for name in others:
        for kind in ("vectors", "scalars"):
            a, b = (layout[each][kind] for each in (first, name))
            require(a == b, f"{first} and {name} share a row here, but were saved with other {kind}: {a} and {b}")
        for key, value in next(entries_of(name, states))["scalars"].items():
            require(
                torch.equal(value, scalars[key]),
                f"{first} and {name} share a row here, and so must share {key}: {scalars[key].tolist()} and "
                f"{value.tolist()}",
            )


# Sound.


def sound(what, tensor):
    """Finite. (The extremes are NaN where any number is, and cost no memory.)"""
    if tensor.is_floating_point() and tensor.numel():
        finite = all(extreme.isfinite() for extreme in torch.aminmax(tensor))
        require(finite, f"{what} has {'numbers' if tensor.dim() else 'a number'} that are not finite")
