"""Flattens a result (nested lists, dicts, dataclasses) into its numbers and tensors, each with a path."""

from dataclasses import is_dataclass

import torch


def leaves(thing, names=(), path=""):
    """path -> what is there, of lists, dicts and dataclasses in one another."""
    if is_dataclass(thing):
        thing = vars(thing)
    if isinstance(thing, dict):
        pairs = [(f"{key} of {path}" if path else str(key), each) for key, each in thing.items()]
    elif isinstance(thing, list | tuple):
        named = names if len(names) == len(thing) else [f"{path}[{i}]" for i in range(len(thing))]
        pairs = list(zip(named, thing))
    else:
        return {path: thing}
    return {place: leaf for at, each in pairs for place, leaf in leaves(each, (), at).items()}


def nbytes(thing):
    """Of the tensors in it."""
    return sum(each.nbytes for each in leaves(thing).values() if isinstance(each, torch.Tensor))


def in_place(trial):
    return all(each is None or (isinstance(each, torch.Tensor) and own(trial, each)) for each in trial.returned)


def own(trial, tensor):
    return any(tensor is each for arguments in trial.arguments for each in arguments)


def written(trial):
    return [tensors_of(arguments) for arguments in trial.arguments]


def tensors_of(arguments):
    found = [each for each in arguments if isinstance(each, torch.Tensor)]
    return found[0] if len(found) == 1 else found


def shares_memory(a, b):
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() != 0


def kind(value):
    if value is None:
        return "nothing (None)"
    return "a tensor" if type(value) is torch.Tensor else f"an object of type {type(value).__name__}"


def kind_of(thing):
    return shape_of(thing) if isinstance(thing, dict | tuple | list) else kind(thing)


def shape_of(thing):
    if isinstance(thing, dict):
        return f"a dict: {', '.join(map(repr, thing))}"
    if isinstance(thing, tuple | list):
        return f"{len(thing)} things"
    return "a number" if isinstance(thing, int | float) else kind(thing)
