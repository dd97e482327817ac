"""Flattens a result (nested lists, dicts, dataclasses) into its numbers and tensors, each with a path."""

from dataclasses import is_dataclass

import torch


def leaves(thing, names=(), path=""):
    """path -> what is there, of lists, dicts and dataclasses in one another."""
    parts = parts_of(thing, names, path)
    if parts is None:
        return {path: thing}
    return {place: leaf for at, part in parts.items() for place, leaf in leaves(part, (), at).items()}


def parts_of(thing, names=(), path=""):
    """path -> what stands in it; None: it has no parts."""
    if is_dataclass(thing):
        thing = vars(thing)
    if isinstance(thing, dict):
        return {f"{key} of {path}" if path else str(key): each for key, each in thing.items()}
    if isinstance(thing, list | tuple):
        return dict(zip(names if len(names) == len(thing) else [f"{path}[{i}]" for i in range(len(thing))], thing))
    return None


def misfit(mine, its, names=(), path=""):
    """(path, what is there, what is right), where two have other parts; None: nowhere."""
    one, other = parts_of(mine, names, path), parts_of(its, names, path)
    if one is None and other is None:
        return None
    if one is None or other is None or one.keys() != other.keys():
        return path, mine, its
    return next(filter(None, (misfit(one[at], other[at], (), at) for at in other)), None)


def nbytes(thing):
    """Of the tensors in it."""
    return sum(each.nbytes for each in leaves(thing).values() if isinstance(each, torch.Tensor))


def in_place(trial):
    given = {id(each) for arguments in trial.arguments for each in arguments}
    return all(each is None or (isinstance(each, torch.Tensor) and id(each) in given) for each in trial.returned)


def tensors_of(arguments):
    found = [each for each in arguments if isinstance(each, torch.Tensor)]
    return found[0] if len(found) == 1 else found


def shares_memory(a, b):
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() != 0


def kind(value):
    if value is None:
        return "nothing (None)"
    if isinstance(value, dict):
        return f"a dict: {', '.join(map(repr, value))}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)} thing{'s' * (len(value) != 1)}"
    if type(value) in (int, float):
        return "a number"
    return "a tensor" if type(value) is torch.Tensor else f"an object of type {type(value).__name__}"
