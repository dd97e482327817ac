"""Each rank has its own copy of what fixtures and parameters gave to a test, as a process would.

    fixture: model          rank 0: its model    rank 1: its model    rank 2: its model

If ranks shared one model, their gradients would be added up before any communication. What one rank's arguments share
(an optimizer and its model), their copies share. pytest's own objects, and what cannot be copied, are one for all.
"""

from copy import copy, deepcopy
from multiprocessing.managers import BaseProxy
from unittest import TestCase

from torch import Tensor

ONE_FOR_ALL = ("_pytest", "pytest", "hypothesis")  # modules: their objects refer to the session


def own_copies(arguments, ranks):
    """``arguments``: (args, kwargs). A copy for each rank."""
    args, kwargs = arguments
    return [copied([bare(value) for value in args], kwargs) for _ in range(ranks)]


def copied(args, kwargs):
    memo = {id(value): value for value in leaves([args, kwargs]) if of_all(value)}
    return [own(value, memo) for value in args], {name: own(value, memo) for name, value in kwargs.items()}


def leaves(value):
    """What is in lists, tuples and dictionaries."""
    if isinstance(value, list | tuple | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from leaves(each)
    else:
        yield value


def own(value, memo):
    try:
        return deepcopy(value, memo)
    except Exception:  # a lock, a socket, a generator: libraries raise what they like
        return value


def of_all(value):
    if isinstance(value, Tensor):
        return value.is_shared()
    return type(value).__module__.startswith(ONE_FOR_ALL) or isinstance(value, BaseProxy)


def bare(value):
    """A unittest.TestCase without the running test, to which unittest and pytest have tied it."""
    if not isinstance(value, TestCase):
        return value
    new, name = copy(value), value._testMethodName
    vars(new).update(vars(type(value)(name)))
    vars(new).pop(name, None)
    return new
